"""What every kernel promises; each concrete kernel class of the package is found by itself."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import fields, replace

import numpy as np
import pytest

from bagwise import kernels
from bagwise.kernels import RBF, Constant, Kernel, Linear, Matern, Sum
from brute_force import central_difference

# At least one example per class; a class without one fails test_every_kernel_has_an_example.
EXAMPLES: dict[type[Kernel], list[Kernel]] = {
    RBF: [RBF(), RBF(2.5, 0.7), RBF(0.8, (0.5, 2.0, 1.3))],
    Matern: [
        Matern(0.5, 1.2, 0.8),
        Matern(1.5, 0.4, 2.0),
        Matern(2.5, 3.0, 1.1),
        Matern(1.5, 1.0, (0.5, 2.0, 1.3)),
    ],
    Linear: [Linear(), Linear(0.3)],
    Constant: [Constant(), Constant(4.0)],
    Sum: [RBF(1.5, 0.9) + Linear(0.2), Matern(2.5) + RBF(1.0, (1.0, 2.0, 3.0)) + Constant(0.5)],
}


def concrete_kernels(base: type[Kernel] = Kernel) -> Iterator[type[Kernel]]:
    """All subclasses, at any depth, that the package defines and that can be instantiated."""
    for cls in base.__subclasses__():
        if not inspect.isabstract(cls) and cls.__module__.startswith("bagwise."):
            yield cls
        yield from concrete_kernels(cls)


CLASSES = list(concrete_kernels())
KERNELS = [k for cls in CLASSES for k in EXAMPLES.get(cls, [])]
each_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=repr)


def points(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, 3))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_every_kernel_has_an_example(cls: type[Kernel]) -> None:
    assert EXAMPLES.get(cls), f"add an example of {cls.__name__} to EXAMPLES in {__file__}"


def test_the_search_finds_the_known_kernels() -> None:
    assert {RBF, Matern, Linear, Constant, Sum} <= set(CLASSES)
    assert kernels._Stationary not in CLASSES


@each_kernel
def test_symmetric_and_positive_semidefinite(kernel: Kernel) -> None:
    X = points(30)
    K = kernel.cross(X, X)
    assert K.shape == (30, 30)
    np.testing.assert_allclose(K, K.T, atol=1e-12)
    assert np.linalg.eigvalsh(K)[0] >= -1e-6 * np.trace(K)
    np.testing.assert_allclose(kernel.cross(X, points(4, 1)), kernel.cross(points(4, 1), X).T)


@each_kernel
def test_diag_is_the_diagonal_of_cross(kernel: Kernel) -> None:
    # A distance of 0 rounds to 1e-8, which the exponential kernel sees.
    X = points(20)
    np.testing.assert_allclose(kernel.diag(X), np.diagonal(kernel.cross(X, X)), rtol=1e-6)


@each_kernel
def test_far_from_the_origin_nothing_cancels(kernel: Kernel) -> None:
    X = points(10) + 1e4
    K = kernel.cross(X, X)
    np.testing.assert_allclose(kernel.diag(X), np.diagonal(K), rtol=1e-5)
    if not isinstance(kernel, Linear | Sum):
        np.testing.assert_allclose(K, kernel.cross(X - 1e4, X - 1e4), rtol=1e-6)


@each_kernel
def test_pullback_matches_finite_differences(kernel: Kernel) -> None:
    X, Z = points(12), points(5, 1)
    G = np.random.default_rng(2).normal(size=(12, 5))
    expected = central_difference(
        lambda t: float(np.sum(G * kernel.with_theta(t).cross(X, Z))), kernel.theta
    )
    np.testing.assert_allclose(kernel.pullback(X, Z, G), expected, rtol=1e-5, atol=1e-7)


@each_kernel
def test_pullback_between_the_same_points(kernel: Kernel) -> None:
    # Without the diagonal, as in K_ZZ: the distance of a point to itself is rounding only.
    Z = points(6)
    G = np.random.default_rng(2).normal(size=(6, 6)) * (1 - np.eye(6))
    expected = central_difference(
        lambda t: float(np.sum(G * kernel.with_theta(t).cross(Z, Z))), kernel.theta
    )
    np.testing.assert_allclose(kernel.pullback(Z, Z, G), expected, rtol=1e-5, atol=1e-6)


@each_kernel
def test_pullback_diag_matches_finite_differences(kernel: Kernel) -> None:
    X, g = points(12), np.random.default_rng(2).normal(size=12)
    expected = central_difference(
        lambda t: float(np.sum(g * kernel.with_theta(t).diag(X))), kernel.theta
    )
    np.testing.assert_allclose(kernel.pullback_diag(X, g), expected, rtol=1e-5, atol=1e-7)


@each_kernel
def test_theta_round_trip(kernel: Kernel) -> None:
    same = kernel.with_theta(kernel.theta)
    np.testing.assert_allclose(same.theta, kernel.theta, rtol=1e-14, atol=1e-15)
    moved = kernel.theta + np.linspace(-0.5, 0.5, kernel.theta.size) + 0.1
    other = kernel.with_theta(moved)
    assert type(other) is type(kernel)
    np.testing.assert_allclose(other.theta, moved, rtol=1e-12, atol=1e-14)
    assert not np.allclose(other.cross(points(3), points(3)), kernel.cross(points(3), points(3)))


@each_kernel
def test_float32_stays_float32(kernel: Kernel) -> None:
    X, Z = points(7), points(4, 1)
    K = kernel.cross(X.astype(np.float32), Z)
    assert K.dtype == np.float32 and kernel.diag(X.astype(np.float32)).dtype == np.float32
    np.testing.assert_allclose(K, kernel.cross(X, Z), rtol=1e-4, atol=1e-5)
    assert kernel.cross(X, Z.astype(np.float32)).dtype == np.float64


@each_kernel
def test_inputs_are_left_alone(kernel: Kernel) -> None:
    X = points(5)
    X.flags.writeable = False
    first = kernel.cross(X, X)
    kernel.pullback(X, X, first)
    np.testing.assert_array_equal(kernel.cross(X, X), first)


@each_kernel
def test_kernels_are_values(kernel: Kernel) -> None:
    assert replace(kernel) == kernel
    assert hash(replace(kernel)) == hash(kernel)


PARAMETERS = [
    (kernel, field.name)
    for kernel in KERNELS
    for field in fields(kernel)
    if field.name in ("variance", "lengthscale")
]


@pytest.mark.parametrize("bad", [-1.0, 0.0, np.nan, np.inf, "long", None])
@pytest.mark.parametrize(("kernel", "name"), PARAMETERS, ids=repr)
def test_bad_parameters_raise(kernel: Kernel, name: str, bad: object) -> None:
    with pytest.raises(ValueError, match=f"{name} of {type(kernel).__name__} must be a positive"):
        replace(kernel, **{name: bad})
