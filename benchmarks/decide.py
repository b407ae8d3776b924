"""Whether decisions keep what they promise: sets, thresholds.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/decide.py [sets] [splits]

`sets`: coverage of `predict_set` per class over splits of 70 % to 30 %, the mean size of sets
beside that of MAPIE's on the same left-out scores where it is installed, and what
`choose_threshold` gives of a sensitivity of 0.9. The interval beside a coverage is where the share
of as many bags as the set has of that class would lie 95 times of 100.
"""

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from shared_data import load
from sklearn.model_selection import train_test_split

import bagwise as bw

ALPHAS = (0.1, 0.2)
SETS = ("musk1", "rsna_cnn8_0", "digits")


def main() -> None:
    parts = {"sets": sets}
    names = [name for name in sys.argv[1:] if name in parts] or list(parts)
    n_splits = next((int(x) for x in sys.argv[1:] if x.isdigit()), 100)
    for name in names:
        parts[name](n_splits)


# --- Sets and thresholds -------------------------------------------------------------------------


def sets(n_splits: int) -> None:
    for name in SETS:
        rows = [_one_split(*split, seed) for seed, split in enumerate(_splits(name, n_splits))]
        n = rows[0]["n"]
        print(f"{name}, {n_splits} splits, {n[0]} negative and {n[1]} positive bags")
        for alpha in ALPHAS:
            shares = np.mean([row[alpha] for row in rows], axis=0)
            for side, label in enumerate(("negative", "positive")):
                error = 1.96 * np.sqrt(alpha * (1 - alpha) / n[side])
                print(
                    f"  alpha {alpha}: {label} covered {shares[side]:.3f} "
                    f"({1 - alpha - error:.3f} to {min(1 - alpha + error, 1):.3f})"
                )
            print(f"  alpha {alpha}: mean size {shares[2]:.3f}, MAPIE's {shares[3]:.3f}")
        sensitivity, specificity = np.nanmean([row["rates"] for row in rows], axis=0)
        print(f"  sensitivity 0.9: {sensitivity:.3f}, at a specificity of {specificity:.3f}")


def _splits(name: str, n: int) -> Iterator[tuple[bw.Bags, bw.Bags]]:
    for seed in range(n):
        if name == "digits":  # new bags every time, as there are enough images
            bags, _ = bw.datasets.make_digit_bags(150, random_state=seed)
        else:
            bags, _ = load(name)
        train, test = train_test_split(
            np.arange(len(bags)), test_size=0.3, stratify=bags.y, random_state=seed
        )
        yield bags[train], bags[test]


def _one_split(train: bw.Bags, test: bw.Bags, seed: int) -> dict[Any, Any]:
    model = bw.ProbitVGPMIL(random_state=seed).fit(train)
    T = (np.asarray(test.y) == model.classes_[1]).astype(int)
    own = np.arange(len(T)), T
    found: dict[Any, Any] = {
        "n": np.bincount(np.append(T, np.asarray(train.y) == model.classes_[1]))
    }
    p = np.asarray(model.predict_proba(test))
    for alpha in ALPHAS:
        held = model.predict_set(test, alpha)
        covered = np.bincount(T, held[own], 2) / np.bincount(T, minlength=2)
        theirs = _mapie_size(model.left_out_bags_, np.log(p[:, 1] / p[:, 0]), alpha)
        found[alpha] = [*covered, held.sum(axis=1).mean(), theirs]
    model.choose_threshold(sensitivity=0.9)
    right = model.predict(test) == test.y
    found["rates"] = [right[T == 1].mean(), right[T == 0].mean()]
    return found


def _mapie_size(kept: Any, z: Any, alpha: float) -> float:
    """Mean size of class-conditional sets: MAPIE's own of each class, calibrated on that class."""
    try:
        from mapie.classification import SplitConformalClassifier
    except ImportError:
        return float("nan")
    size = 0.0
    for label, own in enumerate((~kept.T, kept.T)):
        theirs = SplitConformalClassifier(Given(), confidence_level=1 - alpha)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            theirs.conformalize(kept.logits[own, None], kept.T[own].astype(int))
            size += theirs.predict_set(z[:, None])[1][:, label, 0].mean()
    return size


class Given:
    """A classifier whose features are logits already."""

    classes_ = np.array([0, 1])
    _estimator_type = "classifier"

    def fit(self, X: Any, y: Any) -> "Given":
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict_proba(self, X: Any) -> Any:
        p = 1 / (1 + np.exp(-np.asarray(X)[:, 0]))
        return np.column_stack([1 - p, p])

    def predict(self, X: Any) -> Any:
        return (self.predict_proba(X)[:, 1] > 0.5).astype(int)


if __name__ == "__main__":
    main()
