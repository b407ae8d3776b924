"""Predictions of the Ising-coupled model: a test bag's own graph couples its instances [M24]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.bag_scores import Predicted, parts_of, within_bounds
from bagwise.core.likelihoods.coupled.blocks import (
    Coupling,
    DensePrior,
    Prior,
    predictive_prior,
    predictive_variance,
)
from bagwise.core.likelihoods.coupled.ep import log_orthant, orthant_ep
from bagwise.core.links import Moments
from bagwise.core.posteriors.feature_posterior import LABEL_DRAWS
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.core.posteriors.given_labels import BagDraws, BagLabels, given_labels, log_minus_log
from bagwise.core.posteriors.points import standard_normal

Array = NDArray[Any]

REPLICA_SIZE = 150  # bags up to that size get an exact-by-EP standard deviation


@dataclass(frozen=True)
class _Bag:
    """One bag's Gaussians: m = Sigma f + noise, f ~ N(mu, diag(kt) + G G').

    G has what instances share: v, and the factors of their residuals.
    """

    coupling: Coupling
    mu: Array
    kt: Array
    G: Array


class CoupledPredictor:
    """A posterior together with the neighbour graph of the bags that are asked about."""

    def __init__(
        self,
        posterior: Posterior,
        lam: float,
        graph: Any,
        offsets: Array,
    ) -> None:
        self.posterior = posterior
        self._link = posterior.link_function
        self.lam = lam
        self.graph = graph
        self.offsets = offsets

    def instances(self, X: Array) -> tuple[Array, Array]:
        """P(m_n > 0) and the standard deviation of P(m_n > 0 | f) over the posterior of f."""
        found = self.predicted(X, self.offsets, joint=False, instances=True).instances
        assert found is not None
        return np.exp(found.log_positive), found.std

    def bags(self, X: Array, offsets: Array, score: str) -> tuple[Array, Array]:
        """Bag probability and its standard deviation; see `Posterior.bags`."""
        asked: dict[str, Any] = parts_of(score)
        found = self.predicted(X, offsets, **asked).bags(score)
        return np.exp(found.log_positive), found.std

    def given_labels(
        self, X: Array, offsets: Array, labels: Sequence[BagLabels], likelihood: BagLikelihood
    ) -> tuple[Array, Array]:
        """P(y_n | bag label, known labels), (n, 2), by EP, and its standard deviation, (n,).

        The deviation takes the labels of a bag as independent given f.
        """
        found = [
            self._given_labels(bag, known, likelihood)
            for bag, known in zip(self._bags(X), labels, strict=True)
        ]
        mean, std = (np.concatenate(part) for part in zip(*found, strict=True))
        return mean, std

    def _given_labels(
        self, bag: _Bag, labels: BagLabels, likelihood: BagLikelihood
    ) -> tuple[Array, Array]:
        both = labels.as_columns()
        if labels.excluded(likelihood) or not np.any(labels.free):
            return both, np.zeros(len(both))
        _, std = given_labels(self._draws_in_noise(bag), labels, likelihood)
        prior = predictive_prior(bag.coupling, bag.kt, bag.G)
        mean = bag.coupling.solve(bag.mu)
        log_p, log_q, x_log = positive_given_known(prior, mean, labels)
        q = np.exp(log_q)
        if not labels.settled:
            log_prob, shift = likelihood.log_label(x_log, labels.T)
            log_p = log_p + shift
            q = np.maximum(q - np.exp(-np.exp(x_log)), 0) * np.exp(-log_prob)  # P0 is part of q
        p = np.exp(np.minimum(log_p, 0.0))
        q = np.where(p < 0.5, 1 - p, np.minimum(q, 0.5))  # the rarer label has the digits
        both = np.where(labels.free[:, None], np.column_stack([q, p]), both)
        return both, np.minimum(std, np.sqrt(both[:, 0] * both[:, 1]))

    def _draws_in_noise(self, bag: _Bag) -> BagDraws:
        """Draws of (Sigma f)_n in units of m_n's own noise."""
        root = np.sqrt(bag.coupling.diag())
        loadings = bag.coupling.solve(bag.G) / root[:, None]
        mean, variance = self._instance_moments(bag)
        rest = np.maximum(variance - np.sum(loadings**2, axis=1), 0)
        points, _ = standard_normal(LABEL_DRAWS, loadings.shape[1], self.posterior.seed)
        return BagDraws(self._link, mean, loadings, points, rest)

    def draws_over_v(self, X: Array, offsets: Array, n: int) -> Iterator[BagDraws]:
        """One bag after the other, over n draws of v; given v labels are taken as independent.

        What neighbours share of v they share here too: f is averaged over them, in units of m_n's
        own noise.
        """
        draws, M = self.posterior.draws(n), len(self.posterior.m)
        for bag in self._bags(X):
            mean, variance = self._instance_moments(bag)
            root = np.sqrt(bag.coupling.diag())[:, None]
            loadings = bag.coupling.solve(bag.G[:, :M]) / root
            rest = np.maximum(variance - np.sum(loadings**2, axis=1), 0)
            yield BagDraws(self._link, mean, loadings, draws.normal, rest)

    def predicted(
        self,
        X: Array,
        offsets: Array,
        *,
        joint: bool,
        instances: bool,
        second: bool = True,
        stages: tuple[int, ...] = (),
        readout: Array | None = None,
    ) -> Predicted:
        """Everything that predictions are made of; see `Posterior.predicted`.

        Joint probabilities are by expectation propagation, without points: `stages` save nothing.
        """
        read = None
        if readout is not None:
            plain = self.posterior.predicted(
                X, offsets, joint=False, instances=False, readout=readout
            )
            read = plain.readout
        latent, logs = [], []
        for bag in self._bags(X):
            latent.append(self._instance_moments(bag))
            if joint:
                logs.append(self._log_negative(bag, second))
        mean, variance = (np.concatenate(part) for part in zip(*latent, strict=True))
        of_rows, of_bags = self._link.moments(mean, variance), None
        if joint:
            negative, ratio = np.array(logs).T
            with np.errstate(divide="ignore"):  # a bag that cannot be positive
                of_bags = Moments(negative, np.log(-np.expm1(negative)), ratio)
            of_bags = within_bounds(of_bags, of_rows, offsets[:-1])
        return Predicted(offsets, of_rows if instances else None, of_bags, readout=read)

    def _instance_moments(self, bag: _Bag) -> tuple[Array, Array]:
        """Mean and variance of (Sigma f)_n in units of m_n's own noise Sigma_nn."""
        noise = bag.coupling.diag()
        variance = predictive_variance(bag.coupling, bag.kt, bag.G) - noise
        return bag.coupling.solve(bag.mu) / np.sqrt(noise), np.maximum(variance, 0) / noise

    def _log_negative(self, bag: _Bag, second: bool) -> tuple[float, float]:
        """log E[P0] and log E[P0^2] - 2 log E[P0], P0 = P(all m < 0 | f), by EP."""
        mean = bag.coupling.solve(bag.mu)
        first = min(log_orthant(predictive_prior(bag.coupling, bag.kt, bag.G), mean), 0.0)
        ratio = 0.0
        if second and len(mean) > REPLICA_SIZE:
            # Instances taken as independent, for the spread only.
            ratio = float(np.sum(self._link.moments(*self._instance_moments(bag)).log_ratio))
        elif second:
            ratio = self._log_square(bag, mean) - 2 * first
        if np.isnan(first) or np.isnan(ratio):
            raise FloatingPointError(
                f"a bag's joint probability is not a number: its latent values reach "
                f"{np.max(np.abs(bag.mu)):.3g}, too far for expectation propagation; use "
                "bag_score='noisy-or' or 'max'"
            )
        return first, float(np.clip(ratio, 0, -first))  # E[P0]^2 <= E[P0^2] <= E[P0]

    def _log_square(self, bag: _Bag, mean: Array) -> float:
        """E[P0^2] is the probability that two m with the same f are both negative."""
        sigma = bag.coupling.solve(np.eye(len(mean)))
        shared = sigma @ (np.diag(bag.kt) + bag.G @ bag.G.T) @ sigma
        both = np.block([[sigma + shared, shared], [shared, sigma + shared]])
        return log_orthant(DensePrior(0.5 * (both + both.T)), np.concatenate([mean, mean]))

    def _bags(self, X: Array) -> Iterator[_Bag]:
        features = self.posterior.bag_features(X, self.offsets)
        for (begin, end), (mu, rest, G) in zip(pairwise(self.offsets), features, strict=True):
            rows = slice(begin, end)
            yield _Bag(Coupling(self.graph[rows][:, rows], self.lam), mu, rest, G)


def positive_given_known(
    prior: Prior, mean: Array, labels: BagLabels
) -> tuple[Array, Array, Array]:
    """log P(m_n > 0 | known signs) and log P(m_n < 0 | the same), (n,), and log(-log P0).

    P0 = P(all others < 0 | the same).
    """
    starts = np.zeros(1, dtype=np.int64)
    signs = np.select([labels.known == 1, labels.known == 0], [1, -1], 0).astype(np.int8)
    found = orthant_ep(prior, mean, signs, starts, tol=1e-4)
    z = (mean + found.shift) / np.sqrt(found.variance)
    log_p, log_q = special.log_ndtr(z), special.log_ndtr(-z)
    log_known = log_orthant(prior, mean, signs) if np.any(signs) else 0.0
    negative = np.where(signs == 0, -1, signs).astype(np.int8)
    log_P0 = log_orthant(prior, mean, negative) - log_known
    # P0 is at most P(y_n = 0) for every n; EP may miss that by its error.
    x_log = float(np.max(log_minus_log(log_p, log_q)[labels.free]))
    return log_p, log_q, np.array(max(x_log, float(np.log(-log_P0)) if log_P0 < 0 else -np.inf))
