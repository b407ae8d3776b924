"""MIL-GP-Probit: the probit link with exact moments of each bag [W21]."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.core.inference.stats import (
    Chunk,
    ClimbableSites,
    Derivatives,
    FoldedLikelihood,
    Precision,
    Q,
    Slope,
    Stats,
    diagonal_precision,
    diagonal_stats,
    latent_mean,
)
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.rules import AT_LEAST_ONE
from bagwise.core.links import Probit
from bagwise.core.parameters import check_integer
from bagwise.kernels import Kernel
from bagwise.models._gaussian_process import GaussianProcessMIL
from bagwise.models._parts import Init, Parts
from bagwise.models._rules import RuledMIL

Array = NDArray[Any]


class ProbitSites(ClimbableSites):
    """Probit likelihood with augmented m_n ~ N(f_n, 1) and exact joint moments per bag [W21].

    `integrate_residual=True` ("fitc") integrates f out exactly: m_n has noise s_n^2 = 1 + kt_n.
    False ("vfe") keeps f in the bound, s_n = 1: the paper's updates [W21, Eq. 17-23].
    """

    def __init__(self, likelihood: BagLikelihood, integrate_residual: bool = True) -> None:
        self.integrate_residual = integrate_residual
        if np.isfinite(likelihood.H):  # labels may be wrong: as all of large bags look at first
            self.warm_start = ProbitSites(likelihood.as_exact_rule(), integrate_residual)
            self.plain_start_too = True
        self.folded = FoldedLikelihood(likelihood, 1.0 if integrate_residual else 0.0)

    def local_step(self, chunk: Chunk, q: Q) -> Stats:
        s = 1 / self.folded.scale(chunk.kt)
        mu = latent_mean(chunk, q)
        log_prob, g = self.folded.likelihood.log_prob_and_gradient(mu / s, chunk.targets)
        Em = mu + s * g  # [W21, Eq. 21-23]
        eta = Em / s**2
        bound = chunk.targets.total_of_bags(log_prob) + self.constant_bound(chunk)
        return diagonal_stats(chunk, eta, 1 / s**2, bound)

    def precision(self, chunk: Chunk) -> Precision:
        """Lambda = 1 / s_n^2."""
        lam = chunk.targets.counted_rows(self.folded.scale(chunk.kt) ** 2)
        return diagonal_precision(chunk.A, lam)

    def constant_bound(self, chunk: Chunk) -> float:
        """-1/2 tr(Lambda Kt), where the residual is part of the bound."""
        if self.integrate_residual:
            return 0.0
        return -0.5 * chunk.targets.total_of_rows(np.asarray(chunk.kt, dtype=np.float64))

    def log_prob(self, chunk: Chunk, m: Array, c0: float) -> float:
        return self.folded.log_prob(chunk, m, c0)

    def derivatives(self, chunk: Chunk, m: Array, c0: float) -> Derivatives:
        return self.folded.derivatives(chunk, m, c0)

    def slope(self, chunk: Chunk, m: Array, c0: float) -> Slope:
        """Value and gradient."""
        return self.folded.slope(chunk, m, c0)


class ProbitVGPMIL(RuledMIL, GaussianProcessMIL, alias="probit"):
    """Gaussian-process MIL with the probit link: MIL-GP-Probit [W21].

    Parameters are those of `VGPMIL` without `H` (bag labels are exact), and

    rule : what the label of a bag means: "at_least_one" positive instance, `bagwise.AtLeast(k)`,
        or `bagwise.Share(std=0.05)`: the share of positive instances, known to that standard
        deviation. Labels are then numbers from 0 to 1, and bags are predicted by `predict_share`.
    inference : "vi", "laplace", or "gibbs": asymptotically exact sampling [W21, 3.5], started
        at the Laplace mode; `gibbs_` then has the draws, split R-hat and effective sizes.
    n_samples, n_chains, burn_in, thin : kept draws per chain, chains (in parallel processes),
        sweeps dropped first, sweeps per kept draw; for "gibbs" only.
    kernel : "auto" (default): an RBF kernel with a lengthscale of half the features' spread, a
        linear one and their sum, on raw and on standardised features, are judged by bags left out
        of the fit, and predictions average the logits of those that are about as good as the best.
        `candidates_` is the table of what was tried, with weights.
        With learn_hyperparameters=False or fewer than 3 bags of a class the same as None.

    Examples
    --------
    >>> from bagwise.datasets import make_digit_bags
    >>> bags, truth = make_digit_bags(40, random_state=0)
    >>> model = ProbitVGPMIL(random_state=0).fit(bags[:30])
    >>> p, std = model.predict_instance_proba(bags[30:], return_std=True)
    >>> p.shape, std.shape
    ((100, 2), (100,))
    """

    def __init__(
        self,
        *,
        n_samples: int = 1000,
        n_chains: int = 4,
        burn_in: int = 200,
        thin: int = 10,
        rule: Any = AT_LEAST_ONE,
        kernel: Kernel | str | None = "auto",
        **shared: Any,
    ) -> None:
        super().__init__(kernel=kernel, **shared)
        self.n_samples = n_samples
        self.n_chains = n_chains
        self.burn_in = burn_in
        self.thin = thin
        self.rule = rule

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer("n_samples", self.n_samples, at_least=4)
        check_integer("n_chains", self.n_chains, at_least=1)
        check_integer("burn_in", self.burn_in, at_least=0)
        check_integer("thin", self.thin, at_least=1)
        if self._rule is not None and self.inference == "gibbs":
            raise ValueError(
                f"inference='gibbs' draws labels by the rule 'at least one'; with rule="
                f"{self.rule!r} use inference='vi' or 'laplace'"
            )

    def _parts(self, init: Init = None) -> Parts:
        likelihood = self._ruled(Probit())
        return Parts(
            likelihood,
            ProbitSites(likelihood, integrate_residual=self.approximation == "fitc"),
            variance=4.0,
            inferences=("vi", "laplace", "gibbs"),
            chains={
                "n_samples": self.n_samples,
                "n_chains": self.n_chains,
                "burn_in": self.burn_in,
                "thin": self.thin,
            },
        )
