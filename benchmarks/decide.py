"""Whether decisions keep what they promise: sets, thresholds, novelty, what to label next.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/decide.py [PART...] [splits or seeds]

Parts are `sets`, `novelty` and `labels`; all of them by default.

`sets`: coverage of `predict_set` per class over splits of 70 % to 30 %, the mean size of sets
beside that of MAPIE's on the same left-out scores where it is installed, and what
`choose_threshold` gives of a sensitivity of 0.9. The interval beside a coverage is where the share
of as many bags as the set has of that class would lie 95 times of 100.

`novelty`: models of bags of the digits 0 to 4 are shown other digits, transformed ones and pieces
of photographs; AUROC of instances and of bags, and how often new bags of the same digits alarm.

`labels`: log-likelihood of test instances after labels that are suggested, ten at a time, those
nearest 1/2, and random ones.
"""

import sys
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from shared_data import load
from sklearn.datasets import load_digits, load_sample_images
from sklearn.model_selection import train_test_split

import bagwise as bw

ALPHAS = (0.1, 0.2)
SETS = ("musk1", "rsna_cnn8_0", "digits")


def main() -> None:
    parts = {"sets": (sets, 100), "novelty": (novelty, 20), "labels": (labels, 5)}
    names = [name for name in sys.argv[1:] if name in parts] or list(parts)
    number = next((int(x) for x in sys.argv[1:] if x.isdigit()), None)
    for name in names:
        part, usual = parts[name]
        part(number or usual)


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


# --- Novelty -------------------------------------------------------------------------------------


def novelty(n_seeds: int) -> None:
    found: dict[str, list[Any]] = {}
    for seed in range(n_seeds):
        for name, values in _shown(seed).items():
            found.setdefault(name, []).append(values)
    print(f"bags of the digits 0 to 4 and of other things, mean of {n_seeds} seeds")
    for name, values in found.items():
        print(f"  {name}: {', '.join(f'{x:.3f}' for x in np.mean(values, axis=0))}")


def _shown(seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    images, digits = load_digits(return_X_y=True)
    two = rng.permutation(images[digits == 2])
    others = rng.permutation(images[(digits < 5) & (digits != 2)])
    train, same = _half_with(others[:450], two[:80]), _half_with(others[450:], two[80:])
    model = bw.ProbitVGPMIL(n_inducing=50, random_state=seed).fit(train)
    usual = model.novelty(same)
    shown = _others(np.asarray(same.X), images[digits >= 5], rng)
    found: dict[str, Any] = {
        "alarms at 0.1, bags and instances": [
            np.mean(usual.bags <= 0.1),
            np.mean(usual.instances <= 0.1),
        ]
    }
    for name, rows in shown.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bw.ShiftWarning)
            new = model.novelty(_bags_of(rows, 10))
        found[f"{name}, AUROC of instances and bags"] = [
            _auc(usual.instances, new.instances),
            _auc(usual.bags, new.bags),
        ]
    return found


def _others(same: Any, other_digits: Any, rng: np.random.Generator) -> dict[str, Any]:
    squares = same.reshape(-1, 8, 8)
    pictures = [picture.mean(axis=2) for picture in load_sample_images().images]
    return {
        "digits 5 to 9": rng.permutation(other_digits)[:450],
        "rotated": np.rot90(squares, axes=(1, 2)).reshape(same.shape),
        "inverted": 16 - same,
        "darker by 40 %": 0.6 * same,
        "photographs": np.concatenate([_pieces(picture, rng) for picture in pictures]),
    }


def _pieces(image: Any, rng: np.random.Generator) -> Any:
    """150 squares of 32 pixels as 8 x 8 pictures with values from 0 to 16."""
    corners = zip(*(rng.integers(0, side - 32, 150) for side in image.shape), strict=True)
    squares = [
        image[i : i + 32, j : j + 32].reshape(8, 4, 8, 4).mean(axis=(1, 3)) for i, j in corners
    ]
    return np.array(squares).reshape(150, 64) * 16 / 255


def _half_with(rows: Any, twos: Any) -> bw.Bags:
    """Bags of ten, two of which in every second bag are of the positive kind."""
    bags = _bags_of(rows, 10)
    y, X = np.arange(len(bags)) % 2, np.array(bags.X)
    places = np.concatenate([bags.offsets[:-1][y == 1] + i for i in (0, 1)])
    X[places] = twos[: len(places)]
    return bags.with_X(X).with_labels(y)


def _bags_of(rows: Any, size: int) -> bw.Bags:
    n = len(rows) // size
    return bw.Bags.from_arrays(rows[: n * size], np.repeat(np.arange(n), size))


def _auc(usual: Any, new: Any) -> float:
    return bw.metrics.roc_auc(np.repeat([0, 1], [len(usual), len(new)]), -np.append(usual, new))


# --- What to label next --------------------------------------------------------------------------


def labels(n_seeds: int) -> None:
    found: dict[str, list[float]] = {}
    for seed in range(n_seeds):
        for name, value in _curve(seed).items():
            found.setdefault(name, []).append(value)
    print(f"log-likelihood of test instances, mean of {n_seeds} seeds and its standard error")
    for name, values in found.items():
        print(f"  {name}: {np.mean(values):.4f} +- {np.std(values) / np.sqrt(n_seeds):.4f}")


def _curve(seed: int) -> dict[str, float]:
    bags, truth = bw.datasets.make_digit_bags(130, random_state=seed)
    train, test, y = bags[:60], bags[60:], truth[600:]
    inside = np.repeat(np.asarray(train.y) == 1, train.sizes)
    rng = np.random.default_rng(seed)
    of_positive, of_all = rng.permutation(np.flatnonzero(inside)), rng.permutation(len(inside))

    def told(rows: Any) -> tuple[Any, bw.Bags, float]:
        known = np.full(train.n_instances, np.nan)
        known[rows] = truth[rows]
        labelled = train.with_instance_labels(known)
        model = bw.ProbitVGPMIL(n_inducing=100, random_state=0).fit(labelled)
        p = model.predict_instance_proba(test)
        return model, labelled, bw.metrics.log_likelihood(y, p)

    def nearest_half(model: Any, rows: Any) -> Any:
        p = np.where(inside, model.predict_instance_proba(train)[:, 1], 9.0)
        p[rows] = 9.0
        return np.argsort(np.abs(p - 0.5))[:10]

    found = {"no labels": told([])[2]}
    for way in ("suggested", "nearest 1/2", "random of positive bags"):
        rows: Any = np.empty(0, dtype=int)
        model, labelled, _ = told(rows)
        for n in (10, 20, 30, 40):
            if way == "suggested":
                new = model.suggest_instances(labelled, 10)
            else:
                new = nearest_half(model, rows) if way == "nearest 1/2" else of_positive[n - 10 : n]
            rows = np.append(rows, new)
            model, labelled, found[f"{n} {way}"] = told(rows)
    found["120 random of positive bags"] = told(of_positive[:120])[2]
    found["120 random of all bags"] = told(of_all[:120])[2]
    return found


if __name__ == "__main__":
    main()
