"""Scores of all models with default arguments, as a markdown table.

    python benchmarks/acceptance.py [--only digits musk1 rsna elephant]

Digit bags and MUSK1 come with the package. rsna and elephant are read from the shared data
folder (the environment variable BAGWISE_SHARED, or ../shared) and skipped where there is none.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

import bagwise as bw
from bagwise import metrics
from bagwise.models._gaussian_process import GaussianProcessMIL

MODELS: tuple[type[GaussianProcessMIL], ...] = (bw.ProbitVGPMIL, bw.VGPMIL, bw.GammaVGPMIL)
HEADINGS = (
    "data",
    "model",
    "bag score",
    "bag AUC",
    "mean over folds",
    "bag log-lik.",
    "instance AUC",
    "instance log-lik.",
    "instance ECE",
    "s per fit",
)

Floats = NDArray[np.float64]
Cells = tuple[str, ...]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), default=list(BENCHMARKS))
    chosen = parser.parse_args().only
    print("| " + " | ".join(HEADINGS) + " |")
    print("|" + "---|" * len(HEADINGS))
    # One BLAS thread: the matrices are small, and more threads suffer more from other programs.
    with threadpool_limits(1, user_api="blas"):
        for name in chosen:
            for row in BENCHMARKS[name]():
                print("| " + " | ".join(row) + " |", flush=True)


def digits() -> Iterator[Cells]:
    """160 bags of 10 digits, the first half trains; mean and standard deviation of 5 seeds."""
    for model_class in MODELS:
        scores, seconds = [], []
        for seed in range(5):
            bags, truth = bw.datasets.make_digit_bags(160, random_state=seed)
            start = time.perf_counter()
            model = model_class(random_state=seed).fit(bags[:80])
            seconds.append(time.perf_counter() - start)
            test = bags[80:]
            bag = metrics.bag_scores(model, test)
            instance = metrics.instance_scores(model, test, truth[-test.n_instances :])
            scores.append(
                [
                    bag["roc_auc"],
                    bag["log_likelihood"],
                    instance["roc_auc"],
                    instance["log_likelihood"],
                    instance["expected_calibration_error"],
                ]
            )
        mean, std = np.mean(scores, axis=0), np.std(scores, axis=0)
        shown = [f"{m:.3f} ± {s:.3f}" for m, s in zip(mean, std, strict=True)]
        yield (
            "digits, 5 seeds",
            model_class.__name__,
            model.bag_score_,
            shown[0],
            "",
            *shown[1:],
            f"{np.mean(seconds):.1f}",
        )


def musk1() -> Iterator[Cells]:
    yield from folds("MUSK1, 10 folds", bw.datasets.load_musk1(), None, 10, ("max", "joint"))


def rsna() -> Iterator[Cells]:
    yield from shared("rsna_cnn8_0", ("max", "joint"))


def elephant() -> Iterator[Cells]:
    yield from shared("elephant", ("max", "joint"))


def shared(name: str, bag_scores: tuple[str, ...]) -> Iterator[Cells]:
    """5 folds of a data set of the shared folder, or one row that says it is not there."""
    root = Path(os.environ.get("BAGWISE_SHARED") or Path(__file__).parents[2] / "shared")
    path = root / "data" / f"{name}.npz"
    if not path.is_file():
        yield (name, "skipped: no shared data; set BAGWISE_SHARED", *[""] * (len(HEADINGS) - 2))
        return
    with np.load(path, allow_pickle=False) as data:
        bags = bw.Bags.from_arrays(data["X"].astype(np.float64), data["bag"], y=data["y_bag"])
        # Rows are in bag order already, so true labels keep their places.
        truth = data["y_inst"] if "y_inst" in data.files else None
    yield from folds(f"{name}, 5 folds", bags, truth, 5, bag_scores)


def folds(
    name: str,
    bags: bw.Bags,
    truth: NDArray[np.int64] | None,
    n_folds: int,
    bag_scores: tuple[str, ...],
) -> Iterator[Cells]:
    """Stratified cross-validation; each fold is fitted once and scored in each way."""
    y = np.asarray(bags.y)
    splitter = StratifiedKFold(n_folds, shuffle=True, random_state=0)
    for model_class in MODELS:
        own = model_class().bag_score
        scores = (*bag_scores, "calibrated") if own == "auto" else bag_scores
        p_bag = {score: np.empty(len(bags)) for score in scores}
        p_instance = np.empty(bags.n_instances)
        tests, seconds = [], []
        for train, test in splitter.split(np.zeros(len(y)), y):
            start = time.perf_counter()
            model = model_class(random_state=0).fit(bags[train])
            seconds.append(time.perf_counter() - start)
            tests.append(test)
            for score in scores:
                model.set_params(bag_score=score)  # used in prediction only
                p_bag[score][test] = np.asarray(model.predict_proba(bags[test]))[:, 1]
            rows = np.isin(bags.bag_index, test)
            p_instance[rows] = np.asarray(model.predict_instance_proba(bags[test]))[:, 1]
        for score in scores:
            p = p_bag[score]
            per_fold = [metrics.roc_auc(y[test], p[test]) for test in tests]
            yield (
                name,
                model_class.__name__,
                score,
                f"{metrics.roc_auc(y, p):.3f}",
                f"{np.mean(per_fold):.3f} ± {np.std(per_fold):.3f}",
                f"{metrics.log_likelihood(y, p):.3f}",
                *instance_cells(truth, p_instance),
                f"{np.mean(seconds):.1f}",
            )


def instance_cells(truth: NDArray[np.int64] | None, p: Floats) -> Cells:
    if truth is None:
        return ("—", "—", "—")
    return (
        f"{metrics.roc_auc(truth, p):.3f}",
        f"{metrics.log_likelihood(truth, p):.3f}",
        f"{metrics.expected_calibration_error(truth, p):.3f}",
    )


BENCHMARKS: dict[str, Callable[[], Iterator[Cells]]] = {
    "digits": digits,
    "musk1": musk1,
    "rsna": rsna,
    "elephant": elephant,
}

if __name__ == "__main__":
    main()
