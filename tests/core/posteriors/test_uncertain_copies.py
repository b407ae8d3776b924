"""P0 of copies of one instance whose f is very uncertain, beside quadrature over that f."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import special

from bagwise.core.links import LINKS, Moments
from bagwise.core.posteriors import feature_posterior, joint
from bagwise.core.posteriors.linear import LinearPosterior
from bagwise.core.posteriors.points import _newton

LOGS = {"logistic": lambda f: special.log_expit(-f), "probit": lambda f: special.log_ndtr(-f)}


class ProbitWeights(LinearPosterior):
    """A linear model with the other link."""

    link = "probit"


def posterior(mean: float, sd: float, d: int, link: str = "logistic"):
    """A linear model of d weights and one row, (1, d), of which f has that mean and deviation."""
    rng = np.random.default_rng(d)
    x = rng.normal(size=d)
    root = rng.normal(size=(d + 1, d + 1))
    a, S = np.append(x, 1.0), root @ root.T
    m = rng.normal(size=d + 1)
    m[-1] += mean - a @ m
    of_features = {"columns": np.arange(d), "shift": np.zeros(d), "scale": np.ones(d)}
    form = ProbitWeights if link == "probit" else LinearPosterior
    rest = {"kernel": None, "basis": None, "seed": 0}
    return form(m=m, S=S * sd**2 / (a @ S @ a), **of_features, **rest), x[None]


def found_and_exact(mean: float, sd: float, n: int, d: int, link: str) -> tuple[Moments, float]:
    """What is found of a bag of n copies, and log P0."""
    q, x = posterior(mean, sd, d, link)
    ends = np.array([0, n])
    found = q.predicted(np.repeat(x, n, axis=0), ends, joint=True, instances=False).joint
    t = np.linspace(-60.0, 60.0, 400_001)
    logs = n * LOGS[link](mean + sd * t) - 0.5 * t**2
    return found, float(special.logsumexp(logs) - special.logsumexp(-0.5 * t**2))


@pytest.mark.parametrize("d", [2, 20])
@pytest.mark.parametrize(
    ("n", "sd", "mean"), [(200, 4, -15), (100, 3, -12), (100, 4, -15), (40, 4, -15), (10, 3, -9)]
)
def test_unseen_positives_of_copies_are_not_one_chance_each(
    n: int, sd: float, mean: float, d: int
) -> None:
    """Few points see none of what makes a bag positive, and were believed; off by up to 0.05."""
    found, log_P0 = found_and_exact(mean, sd, n, d, "logistic")
    assert np.exp(found.log_positive[0]) == pytest.approx(-np.expm1(log_P0), abs=2e-3)


@pytest.mark.parametrize("link", LOGS)
@pytest.mark.parametrize("n", [20, 200, 1000])
@pytest.mark.parametrize(("mean", "sd"), [(12, 8), (8, 5), (8, 8), (20, 1), (20, 3)])
def test_rare_negatives_of_copies_far_above_zero(link: str, n: int, mean: float, sd: float) -> None:
    """A step to where they are was many times too long; log P0 was wrong by hundreds."""
    found, log_P0 = found_and_exact(mean, sd, n, 2, link)
    assert found.log_negative[0] == pytest.approx(log_P0, abs=0.02)
    assert found.log_ratio[0] > 0


@pytest.mark.parametrize("link", LOGS)
def test_newton_steps_end_where_the_height_is_flat(link: str) -> None:
    of, rng = LINKS[link](), np.random.default_rng(0)
    root = rng.normal(size=(6, 40, 3))
    K = root @ root.transpose(0, 2, 1) * np.array([0.01, 0.1, 1, 10, 100, 1000])[:, None, None]
    mu, own = rng.normal(size=(6, 40)) + 10, np.ones((6, 40))
    alpha = _newton(K, mu, own, own, of)
    # Where it is flat, alpha is the slope of log P(y = 0).
    slope = -of.hazard(mu + np.einsum("bwx,bx->bw", K, alpha))
    miss = np.einsum("bwx,bx->bw", K, alpha - slope)
    assert np.all(np.abs(miss) < 0.5 * np.sqrt(np.diagonal(K, axis1=1, axis2=2)))


def test_the_number_of_positives_makes_no_probability_more_than_one() -> None:
    """Log(1 - 1.03) was not a number, which no error exceeds: no more points were taken."""
    excess = np.linspace(-35.0, -25.0, 64)[None]
    log_p0 = np.log1p(-(0.85 + 0.006 * (excess + 30)))
    found = joint.Sampled(log_p0, excess, None, None)
    estimate = joint.estimated(found)
    assert np.isfinite(estimate.log_negative[0]) and np.isfinite(estimate.log_positive[0])
    assert estimate.too_wide[0]


def test_an_error_that_is_not_known_asks_for_more_points() -> None:
    half = np.log([0.5])
    assert joint.Estimate(half, half, np.array([np.nan])).too_wide[0]
    assert not joint.Estimate(half, half, np.array([1e-6])).too_wide[0]


def test_what_is_not_a_number_is_no_probability(monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(*_, **__) -> Moments:
        return Moments(*np.full((3, 1), np.nan))

    monkeypatch.setattr(feature_posterior, "joint_moments", nothing)
    q, x = posterior(0.0, 8.0, 2)
    with pytest.raises(FloatingPointError, match="1 bag probabilities are not numbers"):
        q.predicted(np.repeat(x, 50, axis=0), np.array([0, 50]), joint=True, instances=False)
