"""Sums over bags, and curvature that has their form, against dense matrices."""

import numpy as np
import pytest

from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.targets import Targets, halves
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
