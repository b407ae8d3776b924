"""The whole job beside the fit alone, and beside other models: time, and AUC of new bags.

    OPENBLAS_NUM_THREADS=1 python benchmarks/whole_job.py [--million] [--csv F] [--plot F]

For every number of instances and features: the default fit (kernel chosen, probabilities
calibrated), predictions of bags and of instances with deviations, and a report, as multiples of a
fit with a given kernel in the same run. Beside them a softmax-pooled logistic regression (`MILR`),
scikit-learn's SVC on the means of bags, and where torch is installed `deep.AttentionMIL`. Seconds
are processor time. Features have 16 directions that tell something, whatever their number; 3 % of
the instances of a positive bag are of a kind that negative bags do not have.
"""

import argparse
import csv
import importlib.util
import itertools
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scale import memory, reset_peak
from sklearn.metrics import roc_auc_score
from sklearn.svm import SVC

import bagwise as bw
from bagwise.baselines import MILR
from bagwise.core.calibration.pooled import bag_means
from bagwise.report import build_report

SIZES, FEATURES = (1_000, 10_000, 100_000), (8, 128, 1024)
BAG_SIZES = {1_000: 20}  # of 100 where there are more instances
DIRECTIONS, KINDS, APART, WITNESSES = 16, 4, 4.0, 0.03
NEW_BAGS = 200
JOBS = ("fixed fit", "default fit", "bags", "instances", "report")
COLUMNS = ("N", "D", "what", "seconds", "multiple", "auc", "MB beyond X")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    parser.add_argument("--features", nargs="+", type=int, default=FEATURES)
    parser.add_argument("--million", action="store_true", help="also a million instances")
    parser.add_argument("--csv", type=Path)
    parser.add_argument("--plot", type=Path)
    options = parser.parse_args()
    sizes = [*options.sizes, *([1_000_000] if options.million else [])]
    rows = []
    print("| " + " | ".join(COLUMNS) + " |\n|" + "---|" * len(COLUMNS))
    for D, N in itertools.product(options.features, sizes):
        for row in measure(N, D):
            rows.append(row)
            print("| " + " | ".join(shown(row[c]) for c in COLUMNS) + " |", flush=True)
    if options.csv:
        with options.csv.open("w", newline="") as file:
            table = csv.DictWriter(file, COLUMNS)
            table.writeheader()
            table.writerows(rows)
    if options.plot:
        draw(options.plot, rows)


def measure(N: int, D: int) -> Iterator[dict[str, Any]]:
    """Rows of the table for one number of instances and features."""
    size = BAG_SIZES.get(N, 100)
    rng = np.random.default_rng(0)
    places = places_of(D, rng)
    bags, new = make_bags(N // size, size, places, rng), make_bags(NEW_BAGS, size, places, rng)
    fixed: float | None = None
    for what, seconds, auc, more in itertools.chain(ours(bags, new), others(bags, new)):
        fixed = fixed or seconds
        yield {
            "N": N, "D": D, "what": what, "seconds": seconds, "multiple": seconds / fixed,
            "auc": auc, "MB beyond X": more,
        }  # fmt: skip


Found = tuple[str, float, float | None, float]


def ours(bags: bw.Bags, new: bw.Bags) -> Iterator[Found]:
    """A fit with a given kernel, the default fit, and what is done with that."""
    spread = float(np.sqrt(np.sum(np.var(bags.X, axis=0))))
    given = bw.ProbitVGPMIL(
        kernel=bw.kernels.RBF(4.0, spread),
        learn_hyperparameters=False,
        bag_score="joint",
        random_state=0,
    )
    default = bw.ProbitVGPMIL(random_state=0)
    for name, model in zip(JOBS, (given, default), strict=False):
        _, seconds, more = timed(lambda m=model: m.fit(bags))
        yield name, seconds, roc_auc_score(new.y, model.predict_proba(new)[:, 1]), more
    work: tuple[Callable[[], Any], ...] = (
        lambda: default.predict_proba(bags, return_std=True),
        lambda: default.predict_instance_proba(bags, return_std=True),
        lambda: build_report(default, bags),
    )
    for name, job in zip(JOBS[2:], work, strict=True):
        _, seconds, more = timed(job)
        yield name, seconds, None, more


def others(bags: bw.Bags, new: bw.Bags) -> Iterator[Found]:
    """Fits of other models."""
    models: dict[str, Any] = {"MILR": MILR()}
    if importlib.util.find_spec("torch"):
        models["AttentionMIL"] = bw.deep.AttentionMIL(random_state=0)
    for name, model in models.items():
        _, seconds, more = timed(lambda m=model: m.fit(bags))
        yield name, seconds, roc_auc_score(new.y, model.predict_proba(new)[:, 1]), more
    machine = SVC()
    _, seconds, more = timed(lambda: machine.fit(bag_means(bags.X, bags.offsets), bags.y))
    score = machine.decision_function(bag_means(new.X, new.offsets))
    yield "SVC of means", seconds, roc_auc_score(new.y, score), more


def timed(work: Callable[[], Any]) -> tuple[Any, float, float]:
    """A result, its processor time, and the memory that it took beyond what was there."""
    before = memory("VmRSS")
    reset_peak()
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = work()
    return result, time.process_time() - start, max(0.0, memory("VmHWM") - before)


def places_of(D: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Centres of the kinds, the last that of witnesses, and the directions of features."""
    r = min(D, DIRECTIONS)
    centres = rng.normal(size=(KINDS, r)) * APART / np.sqrt(2 * r)
    return centres, np.linalg.qr(rng.normal(size=(D, r)))[0].T


def make_bags(
    n_bags: int, size: int, places: tuple[np.ndarray, np.ndarray], rng: np.random.Generator
) -> bw.Bags:
    """Half of the bags have witnesses, at least one each."""
    centres, directions = places
    y = np.arange(n_bags) % 2
    kind = rng.integers(KINDS - 1, size=(n_bags, size))
    witness = rng.random((n_bags, size)) < WITNESSES
    witness[:, 0] = True
    kind[witness & (y[:, None] == 1)] = KINDS - 1
    latent = centres[kind.ravel()] + rng.normal(size=(kind.size, len(directions)))
    X = (latent @ directions).astype(np.float32)
    X += 0.1 * rng.standard_normal(X.shape, dtype=np.float32)
    return bw.Bags.from_arrays(X, np.repeat(np.arange(n_bags), size), y=y)


def shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def draw(path: Path, rows: list[dict[str, Any]]) -> None:
    """AUC of new bags against seconds of a fit, one panel for each number of features.

    Larger marks are of more instances.
    """
    import matplotlib.pyplot as plt

    fits = [row for row in rows if row["auc"] is not None]
    widths = sorted({row["D"] for row in fits})
    figure, axes = plt.subplots(1, len(widths), figsize=(4 * len(widths), 3.6), sharey=True)
    for axis, D in zip(np.atleast_1d(axes), widths, strict=True):
        for what in dict.fromkeys(row["what"] for row in fits):
            own = [row for row in fits if row["D"] == D and row["what"] == what]
            seconds, aucs = ([row[name] for row in own] for name in ("seconds", "auc"))
            (line,) = axis.plot(seconds, aucs, "-", label=what)
            marks = [row["N"] ** 0.45 for row in own]
            axis.scatter(seconds, aucs, marks, color=line.get_color())
        axis.set(xscale="log", xlabel="seconds of the fit", title=f"{D} features")
    np.atleast_1d(axes)[0].set_ylabel("AUC of new bags")
    np.atleast_1d(axes)[-1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


if __name__ == "__main__":
    main()
