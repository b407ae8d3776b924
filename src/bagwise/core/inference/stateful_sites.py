"""Sites that carry values per instance from sweep to sweep: published updates, large margins.

A joint posterior over a bag's labels depends on q alone. The factorised posterior of [V17] and
the large-margin model do not: they start from `init` (pi, xi, tau, phi in the row order of
``bags.X``) or from q, and keep their values with the chunk they belong to.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.inference.sites import (
    Chunk,
    LogisticSites,
    Q,
    Sites,
    Stats,
    diagonal_precision,
    expected_labels,
    latent_mean,
    project,
    second_moment,
)
from bagwise.core.likelihoods.at_least_one import BagLikelihood, Targets
from bagwise.densities import Density, HyperbolicSecant

Array = NDArray[Any]
Values = dict[str, Array]


class StatefulSites(Sites):
    """Local values that the next sweep starts from, kept by chunk."""

    stateful = True

    def __init__(self, likelihood: BagLikelihood, init: Values | None = None) -> None:
        self.likelihood = likelihood
        self.init = init or {}
        self._kept: dict[int, Values] = {}
        self._restored: Values = {}
        self._first_row = 0  # of the values restored

    def snapshot(self) -> Callable[[], Values]:
        kept = dict(self._kept)  # updates replace values, they do not change them

        def join() -> Values:
            parts = [kept[start] for start in sorted(kept)]
            return {name: np.concatenate([p[name] for p in parts]) for name in parts[0]}

        return join

    def restore(self, values: Values, first_row: int = 0) -> None:
        self._kept = {}
        self._restored, self._first_row = values, first_row

    def start(self, chunk: Chunk, q: Q) -> Stats:
        """Statistics of the starting values, before any update."""
        values = self.starting_values(chunk, q)
        rows = slice(chunk.start, chunk.start + len(chunk.A))
        values |= {name: np.asarray(v, float)[rows] for name, v in self.init.items()}
        self._kept[chunk.start] = values
        return self.stats(chunk, q, values)

    def local_step(self, chunk: Chunk, q: Q) -> Stats:
        values = self.update(chunk, q, self._values_of(chunk))
        self._kept[chunk.start] = values
        return self.stats(chunk, q, values)

    def _values_of(self, chunk: Chunk) -> Values:
        if chunk.start not in self._kept:
            start = chunk.start - self._first_row
            rows = slice(start, start + len(chunk.A))
            self._kept[chunk.start] = {name: v[rows] for name, v in self._restored.items()}
        return self._kept[chunk.start]

    @abstractmethod
    def starting_values(self, chunk: Chunk, q: Q) -> Values:
        """What is taken for values that `init` does not give."""

    @abstractmethod
    def update(self, chunk: Chunk, q: Q, old: Values) -> Values:
        """One pass of local updates."""

    @abstractmethod
    def stats(self, chunk: Chunk, q: Q, values: Values) -> Stats:
        """Gaussian sites and objective for given local values."""


class FactorisedLogisticSites(StatefulSites):
    """q(y) = prod_n Ber(pi_n), all pi_n of a bag updated at once: the published VGPMIL [V17].

    Updating all of a bag's labels at once is not coordinate ascent, and E max is taken as the
    max of the others' pi: the bound may fall. It is here to reproduce published numbers.
    """

    def __init__(
        self,
        likelihood: BagLikelihood,
        init: Values | None = None,
        density: Density | None = None,
    ) -> None:
        super().__init__(likelihood, init)
        self.density = density or HyperbolicSecant()

    def starting_values(self, chunk: Chunk, q: Q) -> Values:
        mu = latent_mean(chunk, q)
        pi = clamp_known(special.expit(mu), chunk.targets)
        return {"pi": pi, "xi": np.sqrt(second_moment(chunk, q, mu))}

    def update(self, chunk: Chunk, q: Q, old: Values) -> Values:
        mu = latent_mean(chunk, q)
        pi = factorised_labels(mu, old["pi"], chunk.targets, self.likelihood.H)
        return {"pi": pi, "xi": np.sqrt(second_moment(chunk, q, mu))}

    def stats(self, chunk: Chunk, q: Q, values: Values) -> Stats:
        pi, xi = values["pi"], values["xi"]
        mu = latent_mean(chunk, q)
        bound = factorised_label_bound(pi, chunk.targets, self.likelihood.H) + float(
            np.sum((pi - 0.5) * mu + self.density.log_psi(xi))
        )
        eta = pi - 0.5
        precision = diagonal_precision(chunk.A, self.density.theta(xi))
        return Stats(project(chunk.A, eta), float(eta.sum()), bound, precision)


class LargeMarginSites(StatefulSites):
    """LM-VGPMIL [V17, Eq. 15-21 and supplement] with a joint posterior over each bag's labels.

    The objective is unnormalised (|f| stands as (2 y - 1) f): it grows monotonically for given
    hyperparameters and must not be compared between them.
    """

    def __init__(
        self, likelihood: BagLikelihood, init: Values | None = None, *, C: float, V: float
    ) -> None:
        super().__init__(likelihood, init)
        if init is None:
            # |f| has two sides: from q = N(0, I) instances may settle on the wrong one.
            self.warm_start = LogisticSites(likelihood)
        self.C, self.V = C, V
        self.density = HyperbolicSecant()

    def starting_values(self, chunk: Chunk, q: Q) -> Values:
        mu = latent_mean(chunk, q)
        Ef2 = second_moment(chunk, q, mu)
        pi = expected_labels(self.likelihood, mu, chunk.targets)
        tau = self.tau(mu, Ef2, pi, np.sqrt(Ef2))
        xi, phi = self.xi(mu, Ef2, pi), np.sqrt(tau * Ef2)
        return {"rho": mu, "pi": pi, "tau": tau, "xi": xi, "phi": phi}

    def update(self, chunk: Chunk, q: Q, old: Values) -> Values:
        mu = latent_mean(chunk, q)
        Ef2 = second_moment(chunk, q, mu)
        xi = self.xi(mu, Ef2, old["pi"])
        tau = self.tau(mu, Ef2, old["pi"], np.sqrt(old["tau"] * Ef2))
        rho = self.rho(mu, tau, xi)
        pi = expected_labels(self.likelihood, rho, chunk.targets)
        xi, phi = self.xi(mu, Ef2, pi), np.sqrt(tau * Ef2)
        return {"rho": rho, "pi": pi, "tau": tau, "xi": xi, "phi": phi}

    def stats(self, chunk: Chunk, q: Q, values: Values) -> Stats:
        pi, tau, xi, phi = (values[name] for name in ("pi", "tau", "xi", "phi"))
        theta_xi, theta_phi = self.density.theta(xi), self.density.theta(phi)
        mu = latent_mean(chunk, q)
        eta = (
            self.C * (2 * pi - 1) * (tau - 0.5)
            + theta_xi * self.C**2 * (2 * pi - 1) * self.V
            + tau * (pi - 0.5)
        )
        lam = theta_xi * self.C**2 + theta_phi * tau
        bound = self.objective(mu, values, chunk.targets)
        precision = diagonal_precision(chunk.A, lam)
        return Stats(project(chunk.A, eta), float(eta.sum()), bound, precision)

    def objective(self, mu: Array, values: Values, targets: Targets) -> float:
        """The terms of F besides -KL."""
        pi, tau, xi, phi = (values[name] for name in ("pi", "tau", "xi", "phi"))
        margins = (tau - 0.5) * self.C * ((2 * pi - 1) * mu - self.V) + (pi - 0.5) * mu * tau
        gates = self.density.log_psi(xi) + self.density.log_psi(phi) + special.entr(tau)
        total = float(np.sum(margins + gates + special.entr(1 - tau)))
        return total + self.label_terms(values, targets)

    def label_terms(self, values: Values, targets: Targets) -> float:
        """E log p(T | y) + entropy of the joint q(y): log-normaliser minus pi'rho."""
        rho = values["rho"]
        log_Z = np.sum(self.likelihood.log_prob(rho, targets)) + np.sum(np.logaddexp(0, rho))
        return float(log_Z - values["pi"] @ rho)

    def xi(self, mu: Array, Ef2: Array, pi: Array) -> Array:
        """C sqrt(E f^2 - 2 (2 pi - 1) mu V + V^2)."""
        return self.C * np.sqrt(Ef2 - 2 * (2 * pi - 1) * mu * self.V + self.V**2)

    def tau(self, mu: Array, Ef2: Array, pi: Array, phi: Array) -> Array:
        """E g_n: how sure the model is of instance n."""
        pull = self.C * ((2 * pi - 1) * mu - self.V) + mu * (pi - 0.5)
        return special.expit(pull - 0.5 * self.density.theta(phi) * Ef2)

    def rho(self, mu: Array, tau: Array, xi: Array) -> Array:
        """Logit of y_n without its bag."""
        theta = self.density.theta(xi)
        return mu * (2 * self.C * (tau - 0.5) + 2 * theta * self.C**2 * self.V + tau)


class PublishedLargeMarginSites(LargeMarginSites):
    """The published order of updates: tau, pi (factorised), xi with the old pi, phi."""

    def update(self, chunk: Chunk, q: Q, old: Values) -> Values:
        mu = latent_mean(chunk, q)
        Ef2 = second_moment(chunk, q, mu)
        tau = self.tau(mu, Ef2, old["pi"], old["phi"])
        rho = self.rho(mu, tau, old["xi"])
        pi = factorised_labels(rho, old["pi"], chunk.targets, self.likelihood.H)
        xi, phi = self.xi(mu, Ef2, old["pi"]), np.sqrt(tau * Ef2)
        return {"rho": rho, "pi": pi, "tau": tau, "xi": xi, "phi": phi}

    def label_terms(self, values: Values, targets: Targets) -> float:
        return factorised_label_bound(values["pi"], targets, self.likelihood.H)


def factorised_labels(logit: Array, pi: Array, targets: Targets, H: float) -> Array:
    """sigmoid(logit + log H (2 T - 1) (1 - max of the others' pi)) [V17, Eq. 14]."""
    sign = np.where(targets.spread(targets.T), 1.0, -1.0)
    new = special.expit(logit + np.log(H) * sign * (1 - max_of_others(pi, targets)))
    return clamp_known(new, targets)


def max_of_others(pi: Array, targets: Targets) -> Array:
    """For each instance the largest pi among the others of its bag; 0 for a bag of one.

    >>> t = Targets(np.array([0, 3]), np.array([3, 1]), np.array([True, False]))
    >>> max_of_others(np.array([0.1, 0.9, 0.5, 0.7]), t)
    array([0.9, 0.5, 0.9, 0. ])
    """
    top = targets.spread(np.maximum.reduceat(pi, targets.starts))
    at_top = pi == top
    several = targets.spread(targets.sum_bags(at_top) > 1)
    rest = np.where(at_top, 0.0, pi)
    second = targets.spread(np.maximum.reduceat(rest, targets.starts))
    return np.where(at_top & ~several, second, top)


def factorised_label_bound(pi: Array, targets: Targets, H: float) -> float:
    """E log p(T | y) + entropy of q(y) = prod Ber(pi), with the exact E max = 1 - prod(1 - pi)."""
    with np.errstate(divide="ignore"):
        E_max = -np.expm1(targets.sum_bags(np.log1p(-pi)))
    agreement = np.where(targets.T, E_max, 1 - E_max)
    entropy = float(np.sum(special.entr(pi) + special.entr(1 - pi)))
    return float(np.sum(np.log(H) * agreement - np.log1p(H))) + entropy


def clamp_known(pi: Array, targets: Targets) -> Array:
    """Known labels stay what they are (mixed supervision [V17, 3.1])."""
    return pi if targets.known is None else np.where(targets.free, pi, targets.known)
