"""Kernels: their formulas, ARD, sums and errors (what all kernels share is in contracts/)."""

import numpy as np
import pytest

from bagwise.kernels import RBF, Constant, Linear, Matern, Sum

X = np.array([[0.0, 0.0], [1.0, 2.0], [-0.5, 3.0]])
Z = np.array([[0.3, -1.0], [2.0, 2.0]])
DISTANCE = np.sqrt(((X[:, None] - Z[None]) ** 2).sum(axis=-1))


def test_rbf_is_the_squared_exponential() -> None:
    expected = 1.7 * np.exp(-(DISTANCE**2) / (2 * 0.8**2))
    np.testing.assert_allclose(RBF(1.7, 0.8).cross(X, Z), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("nu", "rho"),
    [
        (0.5, lambda r: np.exp(-r)),
        (1.5, lambda r: (1 + np.sqrt(3) * r) * np.exp(-np.sqrt(3) * r)),
        (2.5, lambda r: (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r)),
    ],
)
def test_matern_formulas(nu: float, rho) -> None:
    expected = 1.7 * rho(DISTANCE / 0.8)
    np.testing.assert_allclose(Matern(nu, 1.7, 0.8).cross(X, Z), expected, rtol=1e-12)


def test_linear_and_constant() -> None:
    np.testing.assert_allclose(Linear(2.0).cross(X, Z), 2.0 * X @ Z.T)
    np.testing.assert_array_equal(Constant(2.0).cross(X, Z), np.full((3, 2), 2.0))


@pytest.mark.parametrize("cls", [RBF, Matern])
def test_ard_scales_each_feature(cls: type) -> None:
    scales = np.array([0.5, 4.0])
    ard = cls(lengthscale=scales).cross(X, Z)
    np.testing.assert_allclose(ard, cls().cross(X / scales, Z / scales), rtol=1e-12)


def test_equal_ard_lengthscales_are_isotropic() -> None:
    np.testing.assert_allclose(RBF(1.0, (0.8, 0.8)).cross(X, Z), RBF(1.0, 0.8).cross(X, Z))
    assert RBF(1.0, (0.8, 0.8)).theta.size == 3 and RBF(1.0, 0.8).theta.size == 2


@pytest.mark.parametrize("lengthscale", [[1.0, 2.0], np.array([1.0, 2.0]), (1, 2)])
def test_lengthscales_become_a_tuple_of_floats(lengthscale: object) -> None:
    kernel = RBF(1, lengthscale)
    assert kernel.lengthscale == (1.0, 2.0)
    assert all(type(v) is float for v in (kernel.variance, *kernel.lengthscale))


def test_theta_is_logarithmic_in_field_order() -> None:
    np.testing.assert_allclose(RBF(2.0, (3.0, 4.0)).theta, np.log([2, 3, 4]))
    np.testing.assert_allclose(Matern(2.5, 2.0, 3.0).theta, np.log([2, 3]))
    moved = Matern(2.5).with_theta(np.log([2.0, 3.0]))
    assert moved.nu == 2.5
    assert (moved.variance, moved.lengthscale) == pytest.approx((2.0, 3.0))


def test_sums_are_flat_and_add() -> None:
    a, b, c = RBF(1.2, 0.7), Linear(0.3), Constant(2.0)
    total = a + b + c
    assert total == Sum((a, b, c)) == a + (b + c)
    np.testing.assert_allclose(total.cross(X, Z), a.cross(X, Z) + b.cross(X, Z) + c.cross(X, Z))
    np.testing.assert_allclose(total.diag(X), a.diag(X) + b.diag(X) + c.diag(X))
    assert total.theta.size == 4


@pytest.mark.parametrize("kernel", [RBF(1.0, (1.0, 2.0)), Matern(1.5, 1.0, (1.0, 2.0))])
def test_ard_needs_one_lengthscale_per_feature(kernel: RBF) -> None:
    kernel.check_features(2)
    name = type(kernel).__name__
    with pytest.raises(ValueError, match=f"{name} has 2, the data have 5 features"):
        kernel.check_features(5)
    with pytest.raises(ValueError, match="one lengthscale per feature"):
        (Linear() + kernel).check_features(5)


def test_kernels_without_ard_take_any_features() -> None:
    for kernel in (RBF(), Matern(), Linear(), Constant(), RBF() + Linear()):
        kernel.check_features(17)


@pytest.mark.parametrize("nu", [0, 1, 2.0, np.inf, "1.5"])
def test_matern_nu(nu: object) -> None:
    with pytest.raises(ValueError, match=r"nu must be 0\.5, 1\.5 or 2\.5"):
        Matern(nu)


@pytest.mark.parametrize("terms", [(), (RBF(), "Linear"), (1,)])
def test_sum_takes_kernels(terms: tuple) -> None:
    with pytest.raises(TypeError, match="non-empty tuple of kernels"):
        Sum(terms)


def test_one_bad_ard_lengthscale() -> None:
    with pytest.raises(ValueError, match=r"lengthscale of RBF must be .*-2\.0"):
        RBF(1.0, (1.0, -2.0))
