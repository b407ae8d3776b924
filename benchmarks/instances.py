"""Instance probabilities: as the posterior has them, both ends, their mean, and an oracle.

    python benchmarks/instances.py [rsna0 news digits0 bird3 colon slides model witness ...]

Test instances of 5 folds (3 for slides), log-likelihood / ECE with 10 bins of equal mass. Bags and
instances are calibrated on the same left-out bags as in a default fit. "oracle" is Platt's scaling
of the same left-out scores with the true instance labels of the training bags, which no user has;
"40 labels" tells the calibration those of 40 instances of positive bags, and "rate" the share of
positives in positive bags. Sets of real data need the shared folder (BAGWISE_SHARED, or ../shared).
"""

import argparse
import importlib.util
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy import optimize, special
from shared_data import load
from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold
from threadpoolctl import threadpool_limits

import bagwise as bw
from bagwise.core.calibration.bags import calibrate
from bagwise.core.calibration.instances import calibrate_instances
from bagwise.core.features import kernel_matrix
from bagwise.core.inference.monitor import Monitor
from bagwise.metrics import expected_calibration_error, log_likelihood, roc_auc
from bagwise.models._refits import GaussianRefits, scores, scores_by_refits

Data = tuple[bw.Bags, np.ndarray, np.ndarray]  # bags, T (B,), true labels of instances or NaN
COLUMNS = ("as is", "low", "high", "chosen", "rate", "40 labels", "oracle")
PLAIN = {"bag_score": "joint", "instance_score": "posterior", "random_state": 0}


def shared(name: str) -> Data:
    bags, data = load(name)
    return bags, data["y_bag"] == 1, data["y_inst"].astype(float)


def digits(seed: int) -> Data:
    bags, y = bw.datasets.make_digit_bags(150, random_state=seed)
    return bags, np.asarray(bags.y) == 1, y.astype(float)


def birds(kind: int) -> Data:
    """One species against the others; syllables of no known species are not looked at."""
    bags, data = load("birds_hja")
    y = np.where(data["y_inst"] < 0, np.nan, data["y_inst"] == kind)
    return bags, data["y_bag"][:, kind] == 1, y


def slides(n_features: int = 32) -> Data:
    root = Path(os.environ.get("BAGWISE_SHARED") or Path(__file__).parents[2] / "shared")
    spec = importlib.util.spec_from_file_location("slides", root / "slides.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    data = module.slides(60, n_features, 0)
    X = data["X"].astype(np.float64)
    bags = bw.Bags.from_arrays(X, data["bag"], groups=data["patient"])
    return bags, data["y_bag"] == 1, data["y_inst"].astype(float)


def from_the_model(size: int, c0: float, seed: int, n_bags: int = 150) -> Data:
    """Labels drawn from the probit model itself, an RBF of variance 4 on two features."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_bags * size, 2))
    K = kernel_matrix(bw.kernels.RBF(4.0, 1.0), X) + 1e-8 * np.eye(len(X))
    y = (c0 + np.linalg.cholesky(K) @ rng.normal(size=len(X)) + rng.normal(size=len(X))) > 0
    offsets = np.arange(0, len(X), size)
    T = np.maximum.reduceat(y, offsets)
    return bw.Bags.from_arrays(X, np.repeat(np.arange(n_bags), size)), T, y.astype(float)


def witnesses(rate: float, shift: float, drift: float = 0.0, n_bags: int = 80) -> Data:
    """Positives lie `shift` away; negatives of positive bags, `drift` of that way."""
    rng = np.random.default_rng(int(1000 * rate))
    sizes = rng.integers(10, 41, n_bags) if rate > 0.02 else rng.integers(50, 151, n_bags)
    T = np.arange(n_bags) % 2 == 1
    inside, starts = np.repeat(T, sizes), np.cumsum(sizes) - sizes
    y = inside & (rng.random(len(inside)) < rate)
    y[starts[T]] |= np.add.reduceat(y, starts)[T] == 0
    X = rng.normal(size=(len(y), 3))
    X[:, 0] += shift * np.where(y, 1.0, drift * inside)
    return bw.Bags.from_arrays(X, np.repeat(np.arange(n_bags), sizes)), T, y.astype(float)


SETS: dict[str, Callable[[], Data]] = {
    "rsna0": lambda: shared("rsna_cnn8_0"),
    "rsna1": lambda: shared("rsna_cnn8_1"),
    "news": lambda: shared("newsgroups_hockey"),
    "digits0": lambda: digits(0),
    "digits1": lambda: digits(1),
    **{f"bird{k}": lambda k=k: birds(k) for k in range(13)},
    "colon": lambda: shared("colon_nuclei"),
    "slides": slides,
    "model3": lambda: from_the_model(3, -2.0, 0),
    "model10": lambda: from_the_model(10, -3.0, 1),
    **{
        f"witness{int(100 * r)}": lambda r=r: witnesses(r, 3.0)
        for r in (0.01, 0.02, 0.05, 0.1, 0.2, 0.5)
    },
    "weak20": lambda: witnesses(0.2, 1.5),
    "drift5": lambda: witnesses(0.05, 3.0, 0.2),
    "drift50": lambda: witnesses(0.5, 3.0, 0.2),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="*", default=list(SETS), choices=list(SETS))
    warnings.simplefilter("ignore")
    print("| set | positive | AUC | " + " | ".join(COLUMNS) + " |", flush=True)
    print("|---" * (3 + len(COLUMNS)) + "|")
    with threadpool_limits(1, user_api="blas"):
        for name in parser.parse_args().sets:
            print(f"| {name} | {study(name)} |", flush=True)


def study(name: str) -> str:
    """One line of the table, all test instances together."""
    bags, T, y = SETS[name]()
    kind = bw.IsingVGPMIL if name == "colon" else bw.ProbitVGPMIL
    found = [fold(kind(**PLAIN), bags, T, y, *cut) for cut in cuts(bags, T)]
    truth = np.concatenate([part["truth"] for part in found])
    p = {key: np.concatenate([part[key] for part in found]) for key in COLUMNS}
    cells = [
        f"{log_likelihood(truth, p[k]):.3f}/{expected_calibration_error(truth, p[k]):.3f}"
        for k in COLUMNS
    ]
    return " | ".join(
        [f"{truth.mean():.3f}", f"{roc_auc(truth, p['chosen']):.3f}", *cells]
    ).replace("0.", ".")


def cuts(bags: bw.Bags, T: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    if bags.groups is None:
        return StratifiedKFold(5, shuffle=True, random_state=0).split(T, T)
    return StratifiedGroupKFold(3, shuffle=True, random_state=0).split(T, T, bags.groups)


def fold(
    model: bw.ProbitVGPMIL,
    bags: bw.Bags,
    T: np.ndarray,
    y: np.ndarray,
    train: np.ndarray,
    test: np.ndarray,
) -> dict[str, np.ndarray]:
    """Probabilities of the test instances whose truth is known."""
    kept, T, rows = bags[train], T[train], np.isin(bags.bag_index, train)
    model.fit(kept, T)
    seed, monitor = model.posterior_.seed, Monitor(())
    left = scores_by_refits(GaussianRefits(model, kept, T, None, seed, monitor))
    assert not isinstance(left, str), left
    s, own = left.instance_logits, y[rows]
    bag_scores, t = scores(model, bags[test])
    of_bags, offsets = calibrate(left, T).both(bag_scores), bags[test].offsets
    inside = np.repeat(T, kept.sizes)
    calibration = calibrate_instances(s, kept.offsets, T)
    share = max(float(np.nanmean(own[inside])), 1e-3)
    known = some_labels(own, inside, 40)
    versions = {
        "low": replace(calibration, weight=0.0),
        "high": replace(calibration, weight=1.0),
        "chosen": calibration,
        "rate": calibrate_instances(s, kept.offsets, T, witness_rate=share),
        "40 labels": calibrate_instances(s, kept.offsets, T, known),
    }
    p = {key: v.probability(t, offsets, of_bags).p[:, 1] for key, v in versions.items()}
    p |= {"as is": special.expit(t), "oracle": platt(s, own, t), "truth": y[~rows]}
    seen = np.isfinite(y[~rows])
    return {key: values[seen] for key, values in p.items()}


def some_labels(y: np.ndarray, inside: np.ndarray, n: int) -> np.ndarray:
    """The labels of n instances of positive bags, NaN for all others."""
    rows = np.flatnonzero(inside & np.isfinite(y))
    rows = np.random.default_rng(0).choice(rows, min(n, len(rows)), replace=False)
    known = np.full(len(y), np.nan)
    known[rows] = y[rows]
    return known


def platt(s: np.ndarray, y: np.ndarray, t: np.ndarray) -> np.ndarray:
    """sigmoid(a t + b) with a, b fitted to true labels of instances with scores s."""
    seen = np.isfinite(y)
    s, sign = s[seen], np.where(y[seen] == 1, 1.0, -1.0)

    def objective(x: np.ndarray) -> float:
        prior = 0.5 * (x[0] - 1) ** 2 + x[1] ** 2 / 18
        return prior - float(np.sum(special.log_expit(sign * (x[0] * s + x[1]))))

    a, b = optimize.minimize(objective, (1.0, 0.0), method="BFGS").x
    return special.expit(a * t + b)


if __name__ == "__main__":
    main()
