"""What a fit has not seen: far things are flagged, things of the same kind as seldom as stated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.calibration import novelty as module
from bagwise.core.calibration.novelty import Novelty, SeenInstances, rows_to_look_at, warn_of_shift
from bagwise.core.calibration.ranking import auc


def drawn_bags(n: int, rng: np.random.Generator, group_size: int = 1) -> bw.Bags:
    """Bags of 1 to 12 instances, each bag, and each group, with its own level."""
    sizes = rng.integers(1, 13, n)
    level = np.repeat(rng.normal(size=(-(-n // group_size), 3)), group_size, axis=0)[:n]
    X = np.repeat(level + 0.5 * rng.normal(size=(n, 3)), sizes, axis=0)
    X = X + rng.normal(size=X.shape)
    groups = None if group_size == 1 else np.repeat(np.arange(n) // group_size, sizes)
    return bw.Bags.from_arrays(X, np.repeat(np.arange(n), sizes), groups=groups)


@pytest.mark.parametrize("group_size", [1, 4])
def test_bags_of_the_same_kind_alarm_as_seldom_as_stated(group_size: int) -> None:
    alpha, n_trials, flagged, of_instances, tables = 0.1, 80, [], [], []
    rng = np.random.default_rng(group_size)
    for trial in range(n_trials):
        bags = drawn_bags(60, rng, group_size)
        train, test = bags[: 60 - 5 * group_size], bags[60 - 5 * group_size :]
        found = SeenInstances.of(train, np.ones(3), trial).novelty(test)
        flagged.append(np.mean(found.bags <= alpha))
        share = np.add.reduceat((found.instances <= alpha) / 1.0, test.offsets[:-1]) / test.sizes
        of_instances.append(np.mean(share))
        tables.append(found.table)
    for shares in (flagged, of_instances):
        error = 5 * np.std(shares) / np.sqrt(n_trials)
        assert np.mean(shares) < alpha + error
        if group_size == 1:  # ten groups tell little of a tenth
            assert np.mean(shares) > alpha - 0.04 - error
    assert np.mean(np.array(tables) < 0.05) < 0.05 + 5 * np.sqrt(0.05 * 0.95 / n_trials)


@pytest.mark.parametrize("kind", ["inverted", "rotated", "shuffled", "noise"])
def test_other_pictures_are_flagged(kind: str) -> None:
    bags, _ = bw.datasets.make_digit_bags(90, random_state=0)
    train, test = bags[:60], bags[60:]
    rng = np.random.default_rng(0)
    X = np.asarray(test.X)
    other = {
        "inverted": 16 - X,
        "rotated": np.rot90(X.reshape(-1, 8, 8), axes=(1, 2)).reshape(X.shape),
        "shuffled": X[:, rng.permutation(64)],
        "noise": X + 4 * rng.normal(size=X.shape),
    }[kind]
    seen = SeenInstances.of(train, np.ones(64), 0)
    same, new = seen.novelty(test), seen.novelty(test.with_X(other))
    label = np.arange(60) >= 30
    assert auc(-np.append(same.bags, new.bags), label) >= 0.95
    score = np.append(seen.strangeness(X), seen.strangeness(other))
    assert auc(score, np.arange(len(score)) >= len(X)) >= 0.95
    assert new.table < 1e-3 < same.table
    with pytest.warns(bw.ShiftWarning, match="30 bags look unlike"):
        warn_of_shift(new, 30)


def test_units_and_dtype_do_not_matter() -> None:
    bags = drawn_bags(40, np.random.default_rng(0))
    new = drawn_bags(10, np.random.default_rng(1))
    units = np.array([1e-20, 1.0, 1e30])
    plain = SeenInstances.of(bags, np.ones(3), 0).novelty(new)
    scaled = SeenInstances.of(bags.with_X(bags.X * units), units, 0).novelty(
        new.with_X(new.X * units)
    )
    np.testing.assert_allclose(scaled.instances, plain.instances)
    single = SeenInstances.of(bags, np.ones(3), 0).novelty(new.with_X(new.X.astype(np.float32)))
    np.testing.assert_allclose(single.bags, plain.bags, atol=0.06)


def test_constant_features_are_seen() -> None:
    bags = bw.Bags.from_list([np.ones((2, 2))] * 6)
    found = SeenInstances.of(bags, np.ones(2), 0).novelty(bw.Bags.from_list([[[1.0, 1.0]]]))
    assert found.bags[0] == 1


def test_many_and_large_bags_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 50)
    monkeypatch.setattr(module, "ROWS_PER_BAG", 8)
    sizes = np.array([3, 100, 5, 2] * 5)
    bags = bw.Bags.from_arrays(
        np.arange(sizes.sum())[:, None] * 1.0, np.repeat(np.arange(20), sizes)
    )
    rows = rows_to_look_at(bags, np.random.default_rng(0))
    assert len(rows) <= 50 and len(np.unique(rows)) == len(rows)
    bag = bags.bag_index[rows]
    np.testing.assert_array_equal(
        np.bincount(bag)[np.unique(bag)], np.minimum(sizes, 8)[np.unique(bag)]
    )
    assert np.all(np.diff(rows) > 0)


def test_of_many_bags_some_of_every_group_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ROWS", 20)
    rng = np.random.default_rng(0)
    bags = bw.Bags.from_list(rng.normal(size=(60, 5, 2)), groups=["a"] * 59 + ["b"])
    for seed in range(5):  # of 60 bags 4 are drawn, and the last is the only one of its group
        seen = SeenInstances.of(bags, np.ones(2), seed)
        assert seen.bags.n_units == 2
        assert np.all(seen.novelty(bags).instances > 0)


def test_bags_that_do_not_count_are_not_seen() -> None:
    near, far = drawn_bags(30, np.random.default_rng(0)), drawn_bags(30, np.random.default_rng(1))
    X = np.vstack([near.X, far.X + 50])
    both = bw.Bags.from_arrays(X, np.append(near.bag_index, 30 + far.bag_index))
    counts = np.repeat([1.0, 0.0], 30)
    new = far.with_X(far.X + 50)
    assert np.all(SeenInstances.of(both, np.ones(3), 0, counts).novelty(new).bags < 0.04)
    assert np.mean(SeenInstances.of(both, np.ones(3), 0).novelty(new).bags) > 0.3


def test_nothing_is_said_of_a_usual_table() -> None:
    warn_of_shift(Novelty(np.ones(3), np.ones(2), 0.01), 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"Z": np.zeros((0, 2), dtype=np.float32)},
        {"Z": np.full((3, 2), np.nan, dtype=np.float32)},
        {"Z": np.zeros((3, 2))},
        {"centre": np.zeros(3)},
        {"centre": np.array([0.0, np.inf])},
        {"unit": np.zeros(2)},
        {"bags": None},
    ],
)
def test_parts_that_do_not_fit_together_are_refused(wrong: dict[str, Any]) -> None:
    bags = bw.Bags.from_list(np.random.default_rng(0).normal(size=(6, 2, 2)))
    good = vars(SeenInstances.of(bags, np.ones(2), 0))
    SeenInstances(**good)
    with pytest.raises(ValueError, match="seen instances"):
        SeenInstances(**(good | wrong))
