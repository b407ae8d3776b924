"""Bag likelihoods against the enumeration of all label vectors."""

from dataclasses import replace

import numpy as np
import pytest

from bagwise.core.likelihoods.at_least_one import BagLikelihood, Targets
from bagwise.core.links import Link, Logistic, Probit
from brute_force import (
    central_difference,
    enumerated_labels,
    enumerated_log_prob,
    enumerated_probit_means,
    make_targets,
    random_known,
    truncated_means,
)

LINKS: dict[str, Link] = {"logistic": Logistic(), "probit": Probit()}
SIZES = [1, 8, 3, 1, 5, 2, 7, 4]
LABELS = [True, False, True, False, True, True, False, True]

each_link = pytest.mark.parametrize("link", list(LINKS))
each_H = pytest.mark.parametrize("H", [np.inf, 100.0, 2.0])
each_supervision = pytest.mark.parametrize("supervised", [False, True], ids=["weak", "mixed"])


def problem(supervised: bool, seed: int, shift: float = 0.0) -> tuple[np.ndarray, Targets]:
    rng = np.random.default_rng(seed)
    known = random_known(SIZES, LABELS, rng) if supervised else None
    return rng.normal(shift, 2.0, sum(SIZES)), make_targets(SIZES, LABELS, known)


@each_link
@each_H
@each_supervision
@pytest.mark.parametrize("seed", range(5))
class TestEnumeration:
    def test_log_prob(self, link: str, H: float, supervised: bool, seed: int) -> None:
        z, targets = problem(supervised, seed)
        found = BagLikelihood(LINKS[link], H).log_prob(z, targets)
        np.testing.assert_allclose(
            found, enumerated_log_prob(link, z, targets, H), rtol=1e-10, atol=1e-10
        )

    def test_gradient_gives_the_expected_labels(
        self, link: str, H: float, supervised: bool, seed: int
    ) -> None:
        z, targets = problem(supervised, seed)
        gradient = BagLikelihood(LINKS[link], H).gradient(z, targets)
        if link == "logistic":
            found = 1 / (1 + np.exp(-z)) + gradient
            expected = enumerated_labels(link, z, targets, H)
        else:
            found, expected = z + gradient, enumerated_probit_means(z, targets, H)
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)

    def test_curvature_is_minus_the_hessian(
        self, link: str, H: float, supervised: bool, seed: int
    ) -> None:
        z, targets = problem(supervised, seed)
        likelihood = BagLikelihood(LINKS[link], H)
        curvature = likelihood.curvature(z, targets)
        W = -central_difference(lambda x: likelihood.gradient(x, targets), z)
        np.testing.assert_allclose(curvature.g, likelihood.gradient(z, targets), rtol=1e-12)
        np.testing.assert_allclose(curvature.weigh(np.eye(len(z))), W, atol=1e-8)
        x = np.random.default_rng(seed).normal(size=len(z))
        np.testing.assert_allclose(curvature.apply(x), W @ x, atol=1e-7)
        A = np.random.default_rng(seed).normal(size=(len(z), 3))
        np.testing.assert_allclose(curvature.weigh(A), A.T @ W @ A, atol=1e-6)

    def test_trace_gradient(self, link: str, H: float, supervised: bool, seed: int) -> None:
        z, targets = problem(supervised, seed)
        likelihood = BagLikelihood(LINKS[link], H)
        rng = np.random.default_rng(seed + 100)
        A, root = rng.normal(size=(len(z), 3)), rng.normal(size=(3, 3))
        P_inv = root @ root.T
        expected = central_difference(
            lambda x: float(np.trace(P_inv @ likelihood.curvature(x, targets).weigh(A))), z
        )
        found = likelihood.curvature(z, targets).trace_gradient(A, P_inv)
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)


@each_link
@each_H
@each_supervision
@pytest.mark.parametrize("seed", range(3))
class TestWeights:
    """A row of weight w is w rows; weights of any size have the derivatives of their values."""

    def test_whole_weights_are_repeated_rows(
        self, link: str, H: float, supervised: bool, seed: int
    ) -> None:
        z, plain = problem(supervised, seed)
        rng = np.random.default_rng(seed)
        times = rng.integers(1, 5, len(z))
        weighted = replace(plain, weights=times.astype(float))
        bag_sizes = np.add.reduceat(times, plain.starts)
        known = None if plain.known is None else np.repeat(plain.known, times)
        repeated = make_targets(bag_sizes.tolist(), LABELS, known)
        likelihood, z_rep = BagLikelihood(LINKS[link], H), np.repeat(z, times)
        np.testing.assert_allclose(
            likelihood.log_prob(z, weighted), likelihood.log_prob(z_rep, repeated), rtol=1e-12
        )
        # All copies of a row move together: R sums over them.
        R = np.repeat(np.eye(len(z)), times, axis=0).T
        found, copies = likelihood.curvature(z, weighted), likelihood.curvature(z_rep, repeated)
        np.testing.assert_allclose(
            likelihood.gradient(z, weighted), R @ copies.g, rtol=1e-11, atol=1e-13
        )
        np.testing.assert_allclose(found.g, R @ copies.g, rtol=1e-11, atol=1e-13)
        W = R @ copies.weigh(np.eye(len(z_rep))) @ R.T
        np.testing.assert_allclose(found.weigh(np.eye(len(z))), W, rtol=1e-11, atol=1e-12)
        A, root = rng.normal(size=(len(z), 3)), rng.normal(size=(3, 3))
        np.testing.assert_allclose(
            found.trace_gradient(A, root @ root.T),
            R @ copies.trace_gradient(R.T @ A, root @ root.T),
            rtol=1e-10,
            atol=1e-10,
        )

    def test_derivatives(self, link: str, H: float, supervised: bool, seed: int) -> None:
        z, targets = problem(supervised, seed)
        rng = np.random.default_rng(seed)
        targets = replace(targets, weights=rng.uniform(0.3, 20.0, len(z)))
        likelihood = BagLikelihood(LINKS[link], H)
        found = likelihood.curvature(z, targets)
        slope = central_difference(lambda x: float(likelihood.log_prob(x, targets).sum()), z)
        np.testing.assert_allclose(found.g, slope, rtol=1e-6, atol=1e-6)
        W = -central_difference(lambda x: likelihood.gradient(x, targets), z)
        np.testing.assert_allclose(found.weigh(np.eye(len(z))), W, rtol=1e-6, atol=1e-6)
        A, root = rng.normal(size=(len(z), 3)), rng.normal(size=(3, 3))
        P_inv = root @ root.T
        pull = central_difference(
            lambda x: float(np.trace(P_inv @ likelihood.curvature(x, targets).weigh(A))), z
        )
        np.testing.assert_allclose(
            found.trace_gradient(A, P_inv), pull, rtol=1e-5, atol=1e-5 * np.abs(pull).max()
        )


@each_link
@each_H
def test_log_prob_from_the_near_certain_to_the_near_impossible(link: str, H: float) -> None:
    z = np.linspace(-30, 30, 13)
    targets = make_targets([1] * 13, [True] * 13)
    found = BagLikelihood(LINKS[link], H).log_prob(z, targets)
    expected = enumerated_log_prob(link, z, targets, H)
    np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-15)


@each_link
@each_H
@pytest.mark.parametrize("T", [True, False])
@pytest.mark.parametrize("size", [1, 3, 50])
def test_extremes_have_no_nan(link: str, H: float, T: bool, size: int) -> None:
    likelihood = BagLikelihood(LINKS[link], H)
    targets = make_targets([size], [T])
    for value in (-1e3, -300.0, -38.0, -8.0, 0.0, 8.0, 38.0, 300.0, 1e3):
        z = value + np.linspace(-1, 1, size)
        assert np.isfinite(likelihood.log_prob(z, targets)).all(), value
        curvature = likelihood.curvature(z, targets)
        for part in (curvature.g, curvature.w, curvature.omega, curvature.apply(z)):
            assert np.isfinite(part).all(), value
        assert np.isfinite(curvature.trace_gradient(z[:, None], np.eye(1))).all(), value


@each_link
def test_labels_stay_in_their_range_at_extremes(link: str) -> None:
    rng = np.random.default_rng(0)
    z = rng.choice([-500.0, -50.0, -9.0, 0.0, 9.0, 50.0, 500.0], size=400)
    targets = make_targets([4] * 100, [True, False] * 50)
    gradient = BagLikelihood(LINKS[link]).gradient(z, targets)
    positive = np.repeat(targets.T, 4)
    assert np.all(gradient[positive] >= 0) and np.all(gradient[~positive] <= 0)


@pytest.mark.parametrize("mu", [-8.0, -40.0])
def test_probit_mean_of_a_lone_unlikely_positive(mu: float) -> None:
    # E[m | m > 0] = mu + phi(mu)/Phi(mu) -> -1/mu + 2/mu^3 - 10/mu^5 + 74/mu^7.
    z = np.array([mu])
    Em = z + BagLikelihood(Probit()).gradient(z, make_targets([1], [True]))
    x = -mu
    series = 1 / x - 2 / x**3 + 10 / x**5 - 74 / x**7
    assert Em[0] > 0
    np.testing.assert_allclose(Em[0], series, rtol=1e-3 if mu == -8 else 1e-7)


@pytest.mark.parametrize("mu", [-8.0, -40.0])
def test_probit_means_of_unlikely_equal_instances(mu: float) -> None:
    # As P0 -> 1 exactly one of n equal instances is positive, each with probability 1/n.
    n = 4
    z = np.full(n, mu)
    Em = z + BagLikelihood(Probit()).gradient(z, make_targets([n], [True]))
    below, above = truncated_means(z)
    np.testing.assert_allclose(Em, above / n + below * (1 - 1 / n), rtol=1e-10)


@pytest.mark.parametrize("top", [-8.0, -40.0])
def test_probit_top_instance_explains_a_positive_bag(top: float) -> None:
    z = np.array([2 * top, top, 3 * top])
    Em = z + BagLikelihood(Probit()).gradient(z, make_targets([3], [True]))
    assert np.isfinite(Em).all()
    assert Em[1] > 0
    np.testing.assert_allclose(Em[1], truncated_means(z)[1][1], rtol=1e-6)
    np.testing.assert_allclose(Em[[0, 2]], z[[0, 2]], rtol=1e-6)


@each_link
def test_a_known_positive_settles_its_bag(link: str) -> None:
    z = np.array([0.3, -2.0, 1.0])
    known = np.array([np.nan, 1.0, np.nan])
    likelihood = BagLikelihood(LINKS[link])
    targets = make_targets([3], [True], known)
    assert targets.settled.all()
    gradient = likelihood.gradient(z, targets)
    np.testing.assert_array_equal(gradient[[0, 2]], 0)
    assert gradient[1] > 0


@each_link
def test_known_negatives_leave_the_product(link: str) -> None:
    z = np.array([0.3, -2.0, 1.0])
    likelihood = BagLikelihood(LINKS[link])
    known = np.array([0.0, np.nan, 0.0])
    mixed = likelihood.log_prob(z, make_targets([3], [True], known))
    single = likelihood.log_prob(z[[1]], make_targets([1], [True]))
    own = LINKS[link].log_negative(z[[0, 2]]).sum()
    np.testing.assert_allclose(mixed, single + own, rtol=1e-13)


def test_targets_sum_and_spread() -> None:
    targets = make_targets([2, 1, 3], [True, False, True])
    np.testing.assert_array_equal(targets.sum_bags(np.arange(6.0)), [1, 2, 12])
    np.testing.assert_array_equal(targets.sum_bags(np.ones((6, 2))), [[2, 2], [1, 1], [3, 3]])
    np.testing.assert_array_equal(targets.spread(np.array([7, 8, 9])), [7, 7, 8, 9, 9, 9])
    np.testing.assert_array_equal(targets.bag_index, [0, 0, 1, 2, 2, 2])
    assert targets.free.all() and not targets.settled.any()
    assert targets.sum_bags(np.full(6, 0.1, dtype=np.float32)).dtype == np.float64


@pytest.mark.parametrize("H", [1.0, 0.5, -3.0, np.nan])
def test_H_must_exceed_one(H: float) -> None:
    with pytest.raises(ValueError, match="H must be greater than 1"):
        BagLikelihood(Logistic(), H)


def test_scaled_curvature_has_no_third_derivatives() -> None:
    likelihood = BagLikelihood(Logistic())
    z, targets = problem(supervised=False, seed=0)
    b = np.linspace(0.5, 1.0, len(z))
    scaled = likelihood.curvature(b * z, targets).scaled(b)
    slope = central_difference(lambda x: float(likelihood.log_prob(b * x, targets).sum()), z)
    np.testing.assert_allclose(scaled.g, slope, atol=1e-7)
    W = likelihood.curvature(b * z, targets).weigh(np.eye(len(z)))
    np.testing.assert_allclose(scaled.weigh(np.eye(len(z))), b[:, None] * W * b, atol=1e-12)
    for name in ("trace_gradient", "third", "kappa", "rank_one"):
        assert not hasattr(scaled, name)


@each_link
@pytest.mark.parametrize("H", [np.inf, 50.0])
def test_all_negative_is_the_product_over_the_bag(link: str, H: float) -> None:
    z, targets = problem(supervised=False, seed=3)
    found = BagLikelihood(LINKS[link], H).log_all_negative(z, targets)
    expected = np.add.reduceat(LINKS[link].log_negative(z), targets.starts)
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    z, targets = problem(supervised=True, seed=3)
    found = BagLikelihood(LINKS[link], H).log_all_negative(z, targets)
    np.testing.assert_array_equal(np.isneginf(found), targets.settled)
