"""LM-VGPMIL: a large margin between instances, by gates [V17, 3.2 and supplement]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.inference.stats import (
    Chunk,
    Q,
    StatefulSites,
    Stats,
    Values,
    diagonal_stats,
    latent_mean,
    second_moment,
)
from bagwise.core.likelihoods.at_least_one import BagLikelihood, Targets
from bagwise.core.parameters import check_number
from bagwise.densities import HyperbolicSecant
from bagwise.models._parts import Init, Parts
from bagwise.models.vgpmil import (
    LogisticMIL,
    LogisticSites,
    factorised_label_bound,
    factorised_labels,
    refuse_to_learn_H,
)

Array = NDArray[Any]


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
        tau = ungated(self.tau(mu, Ef2, pi, np.sqrt(Ef2)), chunk.targets)
        xi, phi = self.xi(mu, Ef2, pi), np.sqrt(tau * Ef2)
        return {"rho": mu, "pi": pi, "tau": tau, "xi": xi, "phi": phi}

    def update(self, chunk: Chunk, q: Q, old: Values) -> Values:
        mu = latent_mean(chunk, q)
        Ef2 = second_moment(chunk, q, mu)
        xi = self.xi(mu, Ef2, old["pi"])
        tau = self.tau(mu, Ef2, old["pi"], np.sqrt(old["tau"] * Ef2))
        tau = ungated(tau, chunk.targets)
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
        return diagonal_stats(chunk, eta, lam, bound)

    def objective(self, mu: Array, values: Values, targets: Targets) -> float:
        """The terms of F besides -KL."""
        pi, tau, xi, phi = (values[name] for name in ("pi", "tau", "xi", "phi"))
        margins = (tau - 0.5) * self.C * ((2 * pi - 1) * mu - self.V) + (pi - 0.5) * mu * tau
        gates = self.density.log_psi(xi) + self.density.log_psi(phi) + special.entr(tau)
        total = targets.total_of_rows(margins + gates + special.entr(1 - tau))
        return total + self.label_terms(values, targets)

    def label_terms(self, values: Values, targets: Targets) -> float:
        """E log p(T | y) + entropy of the joint q(y): log-normaliser minus pi'rho."""
        rho = values["rho"]
        log_Z = targets.total_of_bags(self.likelihood.log_prob(rho, targets))
        return log_Z + targets.total_of_rows(np.logaddexp(0, rho) - values["pi"] * rho)

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
        tau = ungated(self.tau(mu, Ef2, old["pi"], old["phi"]), chunk.targets)
        rho = self.rho(mu, tau, old["xi"])
        pi = factorised_labels(rho, old["pi"], chunk.targets, self.likelihood.H)
        xi, phi = self.xi(mu, Ef2, old["pi"]), np.sqrt(tau * Ef2)
        return {"rho": rho, "pi": pi, "tau": tau, "xi": xi, "phi": phi}

    def label_terms(self, values: Values, targets: Targets) -> float:
        return factorised_label_bound(values["pi"], targets, self.likelihood.H)


def ungated(tau: Array, targets: Targets) -> Array:
    """E g_n with the gates of known labels open: what was told is not left out for being unlikely.

    Else a positive that f does not reach at the start would be gated out, and never reached.
    """
    return tau if targets.known is None else np.where(np.isnan(targets.known), tau, 1.0)


def expected_labels(likelihood: BagLikelihood, mu: Array, targets: Targets) -> Array:
    """E y_n under the exact joint posterior of a bag's labels: sigmoid(mu) + d log Z / d mu."""
    return likelihood.link.hazard(mu) + likelihood.gradient(mu, targets)


class LargeMarginVGPMIL(LogisticMIL, alias="large-margin"):
    """LM-VGPMIL: instances near the decision boundary are gated out while learning [V17, 3.2].

    Parameters are those of `VGPMIL`, and

    C : how sharply a margin violation is penalised.
    V : the margin; 2 asks for about 88% certainty.
    label_posterior : "joint" (default, monotone) or "factorised" (the published updates).
    init : starting values "pi", "tau", "xi", "phi" per instance.

    `elbo_` is the model's unnormalised objective: it serves to follow one fit and must not be
    used to compare hyperparameters. For the same reason the mean (-1) and the kernel (variance
    1) are not learned unless asked for, then from the logistic model's evidence. A fit starts
    at VGPMIL's posterior unless `init` is given. Instances whose labels are known are not gated.

    Examples
    --------
    >>> from bagwise.datasets import make_digit_bags
    >>> bags, truth = make_digit_bags(40, random_state=0)
    >>> LargeMarginVGPMIL(random_state=0).fit(bags[:30]).predict(bags[30:]).shape
    (10,)
    """

    def __init__(
        self,
        *,
        C: float = 2.0,
        V: float = 2.0,
        mean: str | float = -1.0,
        learn_hyperparameters: bool = False,
        **shared: Any,
    ) -> None:
        super().__init__(mean=mean, learn_hyperparameters=learn_hyperparameters, **shared)
        self.C = C
        self.V = V

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_number("C", self.C, above=0)
        check_number("V", self.V, at_least=0)
        if self._learns_H:
            refuse_to_learn_H()  # the objective is not normalised

    def _parts(self, init: Init = None) -> Parts:
        likelihood = self._logistic()
        kind = PublishedLargeMarginSites if self._factorised else LargeMarginSites
        return Parts(
            likelihood,
            kind(likelihood, init, C=self.C, V=self.V),
            variance=1.0,
            inferences=("vi",),
            starting_values=("pi", "tau", "xi", "phi"),
        )
