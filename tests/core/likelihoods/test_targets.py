"""Sums over bags, and curvature that has their form, against dense matrices."""

import numpy as np
import pytest

from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.targets import FAINT, SecondOrder, Targets, halves
from bagwise.core.links import Logistic
from brute_force import central_difference

NAN = np.nan
SIZES = np.array([1, 3, 2])
STARTS = np.array([0, 1, 4])


def targets(**more) -> Targets:  # type: ignore[no-untyped-def]
    return Targets(STARTS, SIZES, np.array([True, True, False]), **more)


def test_what_known_labels_decide() -> None:
    found = targets(known=np.array([0.0, NAN, 1.0, NAN, NAN, 0.0]))
    assert found.free.tolist() == [False, True, False, True, True, False]
    assert found.settled.tolist() == [False, True, False]
    assert found.decided.tolist() == [True, True, False]
    unknown = targets()
    assert unknown.free.all() and not unknown.settled.any() and not unknown.decided.any()


def test_sums_weights_and_counts() -> None:
    x = np.arange(12.0).reshape(6, 2)
    found = targets(weights=np.array([1.0, 2, 3, 4, 5, 6]), counts=np.array([2.0, 0.5, 3]))
    expected = np.array([x[0], x[1:4].sum(axis=0), x[4:].sum(axis=0)])
    np.testing.assert_array_equal(found.sum_bags(x), expected)
    np.testing.assert_array_equal(found.membership(np.ones(6)) @ x, expected)
    np.testing.assert_array_equal(found.bag_index, [0, 1, 1, 1, 2, 2])
    np.testing.assert_array_equal(found.counted_rows(x[:, 0]), x[:, 0] * [2, 0.5, 0.5, 0.5, 3, 3])
    np.testing.assert_array_equal(found.counted_rows(x)[3], 0.5 * x[3])
    assert found.total_of_bags(np.array([1.0, 2, 3])) == 2 + 1 + 9
    assert found.total_of_rows(np.ones(6)) == 2 + 1.5 + 6
    np.testing.assert_array_equal(found.weighed(x[:, 0]), [0, 4, 12, 24, 40, 60])
    np.testing.assert_allclose(np.exp(found.log_weighed(np.zeros(6))), [1, 2, 3, 4, 5, 6])
    assert targets().weighed(x) is x and targets().log_weighed(x) is x


def test_halves_of_shares() -> None:
    assert halves(np.array([0.5, 0.5, 0.5])).all()
    assert halves(np.array([0.1, 0.5, 0.5])).tolist() == [False, True, True]
    assert halves(np.array([0.1, 0.4, 0.5])).tolist() == [False, False, True]


class Unequal(BagLikelihood):
    """Labels of negative bags are wrong more often than those of positive ones."""

    def rates(self) -> tuple[float, float]:
        return 0.3, 0.1


def negative_hessian(likelihood: BagLikelihood, z: np.ndarray, found: Targets) -> np.ndarray:
    columns = [
        central_difference(lambda x, n=n: float(likelihood.curvature(x, found).counted().g[n]), z)  # type: ignore[misc]
        for n in range(len(z))
    ]
    return -np.array(columns)


@pytest.mark.parametrize("likelihood", [BagLikelihood(Logistic(), 9.0), Unequal(Logistic())])
@pytest.mark.parametrize("counts", [None, np.array([2.0, 0.5, 3])])
def test_curvature_is_the_second_derivative(likelihood: BagLikelihood, counts: np.ndarray) -> None:
    rng = np.random.default_rng(0)
    z, A = rng.normal(size=6), rng.normal(size=(6, 3))
    found = targets(counts=counts)
    slopes = central_difference(lambda x: found.total_of_bags(likelihood.log_prob(x, found)), z)
    curvature = likelihood.curvature(z, found).counted()
    np.testing.assert_allclose(curvature.g, slopes, atol=1e-6)
    W = negative_hessian(likelihood, z, found)
    np.testing.assert_allclose(curvature.weigh(A), A.T @ W @ A, atol=1e-5)
    np.testing.assert_allclose(curvature.apply(A), W @ A, atol=1e-5)
    np.testing.assert_allclose(curvature.apply(A[:, 0]), W @ A[:, 0], atol=1e-5)
    b = rng.normal(size=6)
    scaled = likelihood.curvature(z, found).scaled(b)
    np.testing.assert_allclose(scaled.g, b * likelihood.curvature(z, found).g)
    W = negative_hessian(likelihood, z, targets())
    np.testing.assert_allclose(scaled.apply(A), b[:, None] * (W @ (b[:, None] * A)), atol=1e-5)
    root = rng.normal(size=(3, 3))
    P_inv = root @ root.T
    expected = central_difference(
        lambda x: float(np.trace(P_inv @ likelihood.curvature(x, found).counted().weigh(A))), z
    )
    np.testing.assert_allclose(curvature.trace_gradient(A, P_inv), expected, atol=1e-5)


def many_rows(counts: np.ndarray | None = None) -> tuple[SecondOrder, np.ndarray]:
    """Bags of 8, of whose rows the first bends little and the last hardly at all, and A."""
    rng = np.random.default_rng(0)
    sizes = np.full(1500, 8)
    found = Targets(np.arange(1500) * 8, sizes, np.ones(1500, bool), counts=counts)
    w = rng.choice([0.2, -0.1, 0.5, -0.3, 0.9], 12_000) * FAINT
    w[rng.random(12_000) < 0.02] = -0.05
    A = rng.normal(size=(12_000, 5)) * np.tile(np.arange(1.0, 9.0), 1500)[:, None]
    return SecondOrder(found, np.ones(12_000), w, np.zeros(12_000), np.ones(1500)), A


def test_faint_rows_stand_for_each_other() -> None:
    """Wherever in their bags they are: rows in the same place of bags of eight may be alike."""
    whole, A = many_rows()
    some = whole.roughly(np.ones(12_000), 0)
    clear = np.abs(whole.w) >= FAINT
    np.testing.assert_array_equal(some.w[clear], whole.w[clear])
    drawn = ~clear & (some.w != 0)
    np.testing.assert_array_equal(some.w[drawn], 8 * whole.w[drawn])
    assert np.mean(drawn[~clear]) == pytest.approx(1 / 8, abs=1e-3)
    places = np.arange(12_000)[drawn] % 8
    np.testing.assert_allclose(np.bincount(places) / len(places), 1 / 8, atol=0.01)
    faint = np.where(clear, 0.0, whole.w)
    error = np.sqrt(7 * (A**2).T @ (faint[:, None] ** 2 * A**2))  # as if drawn at random
    assert np.all(np.abs(some.weigh(A) - whole.weigh(A)) < 5 * error)
    assert some.g is whole.g and some.omega is whole.omega


def test_which_faint_rows_are_drawn_is_no_matter_of_chunks() -> None:
    whole, _ = many_rows()
    later = SecondOrder(
        Targets(np.arange(500) * 8, np.full(500, 8), np.ones(500, bool)),
        *(part[8000:] for part in (whole.g, whole.w, whole.omega)),
        np.ones(500),
    )
    squares = np.random.default_rng(1).uniform(0.5, 2, 12_000)
    found = later.roughly(squares[8000:], 8000).w
    np.testing.assert_array_equal(found, whole.roughly(squares, 0).w[8000:])


def test_rows_of_bags_that_count_often_are_not_faint() -> None:
    counts = np.where(np.arange(1500) < 750, 100.0, 1.0)
    whole, _ = many_rows(counts)
    some = whole.roughly(np.ones(12_000), 0)
    np.testing.assert_array_equal(some.w[:6000], whole.w[:6000])
    assert np.mean(some.w[6000:] == 0) > 0.8


def test_rows_of_large_features_are_not_faint() -> None:
    whole, _ = many_rows()
    squares = np.where(np.arange(12_000) < 6000, 100.0, 1.0)
    some = whole.roughly(squares, 0)
    np.testing.assert_array_equal(some.w[:6000], whole.w[:6000])
    assert np.mean(some.w[6000:] == 0) > 0.8
