"""Rules about numbers of positives against the enumeration of all label vectors.

Derivatives of the enumerated sums are taken by complex steps, which have no rounding.
"""

from dataclasses import replace

import numpy as np
import pytest
from scipy import special

from bagwise.core.likelihoods.at_least_one import BagLikelihood, Targets
from bagwise.core.likelihoods.count_rule import CountRule
from bagwise.core.likelihoods.rules import AtLeast, BagRule, Share, check_rule
from bagwise.core.links import Link, Logistic, Probit
from brute_force import bag_slices, central_difference, label_vectors

LINKS: dict[str, Link] = {"logistic": Logistic(), "probit": Probit()}
RULES: list[BagRule] = [AtLeast(1), AtLeast(2), AtLeast(3), Share(0.05), Share(0.3)]
SIZES = np.array([4, 8, 3, 6, 5])
COMPLEX_STEP = 1e-30

each_link = pytest.mark.parametrize("link", list(LINKS))
each_rule = pytest.mark.parametrize("rule", RULES, ids=str)
each_supervision = pytest.mark.parametrize("supervised", [False, True], ids=["weak", "mixed"])
each_seed = pytest.mark.parametrize("seed", range(3))


def problem(rule: BagRule, supervised: bool, seed: int) -> tuple[np.ndarray, Targets]:
    """Latent values from hopeless to certain, labels of both kinds, sure and unsure ones."""
    rng = np.random.default_rng(seed)
    T = rng.random(5).round(2) if rule.shares else np.arange(5) % 2 == seed % 2
    known = np.full(SIZES.sum(), np.nan)
    if supervised:
        known[rng.choice(len(known), 9, replace=False)] = rng.integers(0, 2, 9)
    # Known labels contradict some labels of bags, so that these have to be unsure.
    reliability = np.full(5, 0.9) if supervised else np.array([1.0, 0.8, 1.0, 0.99, 1.0])
    targets = Targets(
        np.cumsum(SIZES) - SIZES, SIZES, T, known if supervised else None, None, None, reliability
    )
    return rng.normal(rng.choice([-3.0, 0.0, 1.0]), 2.0, SIZES.sum()), targets


def log_labels(link: str, z: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """log P(y = 1 | z) and log P(y = 0 | z) of complex z."""
    if link == "probit":
        return special.log_ndtr(z), special.log_ndtr(-z)
    return -np.log1p(np.exp(-z)), -np.log1p(np.exp(z))


def enumerated(
    link: str, rule: BagRule, z: np.ndarray, targets: Targets
) -> tuple[np.ndarray, np.ndarray]:
    """log p(label) of bags, and P(y_n = 1 | label) of their instances."""
    values, positive = [], []
    for b, (rows, _) in enumerate(bag_slices(targets)):
        Y = label_vectors(
            int(targets.sizes[b]), None if targets.known is None else targets.known[rows]
        )
        log_p, log_q = log_labels(link, z[rows])
        reliability = 1.0 if targets.reliability is None else targets.reliability[b]
        k, n = Y.sum(axis=1)[None], targets.sizes[b : b + 1, None]
        label = rule.log_label(k, n, targets.T[b : b + 1, None], reliability)[0]
        terms = Y @ log_p + (1 - Y) @ log_q + label
        top = np.max(terms.real)
        weights = np.exp(terms - top)
        values.append(top + np.log(weights.sum()))
        positive.append(weights @ Y / weights.sum())
    return np.array(values), np.concatenate(positive)


def enumerated_gradient(link: str, rule: BagRule, z: np.ndarray, targets: Targets) -> np.ndarray:
    """d log p / dz_n by the labels that the enumeration expects [Fisher's identity]."""
    rho = enumerated(link, rule, z, targets)[1]
    if link == "logistic":
        return rho - 1 / (1 + np.exp(-z))
    log_p, log_q = log_labels(link, z)
    log_density = -0.5 * z**2 - 0.5 * np.log(2 * np.pi)
    return rho * np.exp(log_density - log_p) - (1 - rho) * np.exp(log_density - log_q)


def complex_slopes(f, z: np.ndarray) -> np.ndarray:  # type: ignore[no-untyped-def]
    """df/dz_k, stacked along the first axis."""
    steps = 1j * COMPLEX_STEP * np.eye(len(z))
    return np.array([np.imag(f(z + e)) / COMPLEX_STEP for e in steps])


@each_link
@each_rule
@each_supervision
@each_seed
class TestEnumeration:
    def test_log_prob(self, link: str, rule: BagRule, supervised: bool, seed: int) -> None:
        z, targets = problem(rule, supervised, seed)
        found = CountRule(LINKS[link], rule).log_prob(z, targets)
        expected = enumerated(link, rule, z.astype(complex), targets)[0].real
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-10)

    def test_gradient(self, link: str, rule: BagRule, supervised: bool, seed: int) -> None:
        z, targets = problem(rule, supervised, seed)
        found = CountRule(LINKS[link], rule).gradient(z, targets)
        slopes = complex_slopes(lambda x: enumerated(link, rule, x, targets)[0].sum(), z)
        np.testing.assert_allclose(found, slopes, rtol=1e-10, atol=1e-10)

    def test_curvature(self, link: str, rule: BagRule, supervised: bool, seed: int) -> None:
        z, targets = problem(rule, supervised, seed)
        log_prob, curvature = CountRule(LINKS[link], rule).log_prob_and_curvature(z, targets)
        W = -complex_slopes(lambda x: enumerated_gradient(link, rule, x, targets), z)
        np.testing.assert_allclose(curvature.weigh(np.eye(len(z))), W, rtol=1e-10, atol=1e-10)
        A = np.random.default_rng(seed).normal(size=(len(z), 3))
        np.testing.assert_allclose(curvature.apply(A), W @ A, rtol=1e-10, atol=1e-9)
        np.testing.assert_allclose(curvature.g, CountRule(LINKS[link], rule).gradient(z, targets))
        np.testing.assert_allclose(log_prob, CountRule(LINKS[link], rule).log_prob(z, targets))

    def test_scaled_is_the_chain_rule(
        self, link: str, rule: BagRule, supervised: bool, seed: int
    ) -> None:
        z, targets = problem(rule, supervised, seed)
        curvature = CountRule(LINKS[link], rule).curvature(z, targets)
        b, A = np.random.default_rng(seed).normal(size=(2, len(z), 1)) * [[[1.0]], [[2.0]]]
        scaled = curvature.scaled(b[:, 0])
        np.testing.assert_allclose(scaled.g, b[:, 0] * curvature.g)
        np.testing.assert_allclose(scaled.apply(A), b * curvature.apply(b * A), atol=1e-12)

    def test_labels_of_instances(
        self, link: str, rule: BagRule, supervised: bool, seed: int
    ) -> None:
        z, targets = problem(rule, supervised, seed)
        found = CountRule(LINKS[link], rule).counts(z, targets)
        expected = enumerated(link, rule, z, targets)[1]
        np.testing.assert_allclose(found.positive, expected, rtol=1e-10, atol=1e-12)
        np.testing.assert_allclose(found.negative, 1 - expected, rtol=1e-10, atol=1e-12)

    def test_trace_gradient(self, link: str, rule: BagRule, supervised: bool, seed: int) -> None:
        z, targets = problem(rule, supervised, seed)
        targets = replace(targets, counts=np.array([1.0, 2.0, 0.0, 0.5, 1.0]))
        likelihood = CountRule(LINKS[link], rule)
        rng = np.random.default_rng(seed + 100)
        A, root = rng.normal(size=(len(z), 3)), rng.normal(size=(3, 3))
        P_inv = root @ root.T
        expected = central_difference(
            lambda x: float(np.trace(P_inv @ likelihood.curvature(x, targets).counted().weigh(A))),
            z,
        )
        found = likelihood.curvature(z, targets).trace_gradient(A, P_inv)
        np.testing.assert_allclose(found, expected, atol=2e-4 * np.max(np.abs(expected)))


@each_link
@pytest.mark.parametrize("T", [True, False])
@pytest.mark.parametrize("shift", [-30.0, -8.0, 0.0, 8.0, 30.0])
def test_at_least_one_is_the_closed_form_however_improbable(
    link: str, T: bool, shift: float
) -> None:
    """Also where log p is -900."""
    z = np.random.default_rng(0).normal(shift, 1.0, 40)
    targets = Targets(np.array([0]), np.array([40]), np.array([T]))
    found, closed = CountRule(LINKS[link], AtLeast(1)), BagLikelihood(LINKS[link])
    np.testing.assert_allclose(
        found.log_prob(z, targets), closed.log_prob(z, targets), rtol=1e-12, atol=1e-12
    )
    np.testing.assert_allclose(
        found.gradient(z, targets), closed.gradient(z, targets), rtol=1e-8, atol=1e-11
    )


@pytest.mark.parametrize("n", [300, 3000])
@pytest.mark.parametrize("rule", [AtLeast(5), Share(0.02)], ids=str)
def test_large_bags_against_the_recursion(n: int, rule: BagRule) -> None:
    """P(K = k) by n convolutions of positive terms, which lose nothing."""
    p = special.expit(np.random.default_rng(n).normal(-2, 2, n))
    distribution = np.ones(1)
    for x in p:
        distribution = np.append(distribution * (1 - x), 0.0) + np.append(0.0, distribution * x)
    targets = Targets(np.array([0]), np.array([n]), np.array([0.3 if rule.shares else True]))
    k = np.arange(n + 1.0)[None]
    weights = np.exp(rule.log_label(k, np.array([[n]]), targets.T[:, None], 1.0))[0]
    found = CountRule(Logistic(), rule).log_prob(special.logit(p), targets)
    np.testing.assert_allclose(found, np.log(weights @ distribution), rtol=1e-11, atol=1e-11)


def test_labels_that_cannot_be_are_said_so() -> None:
    """Two of one instance, and a rule whose labels say opposite things at once."""
    impossible = Targets(np.array([0]), np.array([1]), np.array([True]))
    with pytest.raises(FloatingPointError, match="too improbable"):
        CountRule(Logistic(), AtLeast(2)).log_prob(np.zeros(1), impossible)


def test_rows_that_stand_for_others_are_refused() -> None:
    targets = Targets(np.array([0]), np.array([2]), np.array([True]), None, np.array([1.0, 3.0]))
    with pytest.raises(ValueError, match="whole bags"):
        CountRule(Probit(), AtLeast(2)).log_prob(np.zeros(2), targets)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AtLeast(0), "k of AtLeast"),
        (lambda: AtLeast(1.5), "k of AtLeast"),  # type: ignore[arg-type]
        (lambda: Share(0), "std of Share"),
        (lambda: Share(5), "give 0.05"),
        (lambda: check_rule("share"), "bagwise.Share"),
        (lambda: check_rule(None), "at_least_one"),
    ],
)
def test_rules_that_are_none(make, message: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises((ValueError, TypeError), match=message):
        make()
