"""Embedded and made data sets."""

from __future__ import annotations

from importlib.resources import files

import numpy as np
import pytest
from sklearn.datasets import load_digits

from bagwise.datasets import load_musk1, make_digit_bags


def test_musk1() -> None:
    bags = load_musk1()
    assert (len(bags), int(bags.y.sum()), bags.X.shape) == (92, 47, (476, 166))
    assert (bags.dtype, bags.y.dtype, bags.ids.tolist()) == ("float64", "int64", list(range(92)))
    assert (bags.sizes.min(), bags.sizes.max()) == (2, 40)
    assert bags.X[0, :5].tolist() == [42, -198, -109, -75, -117]
    assert (bags.X.min(), bags.X.max()) == (-348, 336)


def test_musk1_file_is_small_and_attributed() -> None:
    data = files("bagwise.datasets") / "data"
    assert len((data / "musk1.npz").read_bytes()) < 150_000
    text = (data / "README.md").read_text()
    assert "10.24432/C5ZK5B" in text and "CC BY 4.0" in text


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"n_bags": 7, "bag_size": 5, "positive": 3, "witness": (2, 2)},
        {"n_bags": 30, "bag_size": 4, "positive": (0, 1, 8), "witness": (1, 4)},
    ],
)
def test_digit_bags_keep_their_promises(settings: dict) -> None:
    bags, truth = make_digit_bags(**settings, random_state=1)
    n, size = settings.get("n_bags", 160), settings.get("bag_size", 10)
    low, high = settings.get("witness", (1, 4))
    assert bags.sizes.tolist() == [size] * n and bags.ids.tolist() == list(range(n))
    assert bags.y.sum() == n // 2 and bags.instance_labels is None
    witnesses = np.add.reduceat(truth, bags.offsets[:-1])
    assert set(witnesses[bags.y == 1]) == set(range(low, high + 1))
    assert not witnesses[bags.y == 0].any()
    images, digits = load_digits(return_X_y=True)
    rows = {image.tobytes(): i for i, image in enumerate(images)}
    found = [rows[x.tobytes()] for x in bags.X]
    assert len(set(found)) == len(found) == n * size, "an image must be used once"
    wanted = np.atleast_1d(settings.get("positive", (2, 9)))
    np.testing.assert_array_equal(np.isin(digits[found], wanted), truth == 1)


def test_digit_bags_are_shuffled_and_reproducible() -> None:
    bags, truth = make_digit_bags(random_state=0)
    again, _ = make_digit_bags(random_state=0)
    other, _ = make_digit_bags(random_state=1)
    np.testing.assert_array_equal(bags.X, again.X)
    assert not np.array_equal(bags.X, other.X)
    assert 0.3 < bags.y[:80].mean() < 0.7, "positive bags must not come first"
    places = truth.reshape(160, 10).sum(axis=0)
    assert places.min() > 5, "witnesses must be anywhere in a bag"


def test_digit_bags_limit_is_sharp_and_does_not_depend_on_the_seed() -> None:
    with pytest.raises(ValueError, match=r"at most (\d+) bags .*got n_bags=500; ask") as caught:
        make_digit_bags(500)
    most = int(str(caught.value).split("at most ")[1].split()[0])
    assert most >= 160
    for seed in range(20):
        assert len(make_digit_bags(most, random_state=seed)[0]) == most
    with pytest.raises(ValueError, match=f"at most {most} bags"):
        make_digit_bags(most + 1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"witness": (0, 3)}, r"1 <= low <= high <= bag_size = 10; got \(0, 3\)"),
        ({"witness": (3, 2)}, "low <= high"),
        ({"witness": (1, 6), "bag_size": 5}, "bag_size = 5"),
        ({"witness": 3}, "two whole numbers"),
        ({"positive": (2, 10)}, "digits 0..9"),
        ({"positive": ()}, "one to nine"),
        ({"positive": range(10)}, "one to nine"),
        ({"positive": (1.5,)}, "one to nine"),
        ({"n_bags": 0}, "n_bags must be a whole number of at least 1; got 0"),
        ({"bag_size": 2.5}, "bag_size must be a whole number"),
    ],
)
def test_digit_bags_errors(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make_digit_bags(**settings)
