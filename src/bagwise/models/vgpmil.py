"""VGPMIL: the logistic link by Polya-Gamma or Jaakkola, with joint or factorised labels [V17]."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.inference.reliability import START_H
from bagwise.core.inference.stats import (
    Chunk,
    Q,
    Sites,
    StatefulSites,
    Stats,
    Values,
    diagonal_stats,
    latent_mean,
    second_moment,
)
from bagwise.core.likelihoods.at_least_one import BagLikelihood, Targets
from bagwise.core.links import Logistic
from bagwise.core.parameters import check_choice
from bagwise.core.smoothing import log_sigmoids
from bagwise.densities import Density, HyperbolicSecant, SmoothDensity
from bagwise.models._gaussian_process import GaussianProcessMIL
from bagwise.models._parts import Init, Parts

Array = NDArray[Any]


@dataclass(frozen=True)
class LogisticSites(Sites):
    """Logistic likelihood by Polya-Gamma or Jaakkola with a joint posterior over bag labels."""

    likelihood: BagLikelihood
    density: Density = field(default_factory=HyperbolicSecant)
    plain_start_too = True

    def __post_init__(self) -> None:
        # At N(0, I) a bag of n instances has P0 = 2^-n or so. Where that is below 1 / H, every
        # negative bag looks like a wrong label, which is an optimum: E y = 1/2 everywhere.
        if np.isfinite(self.likelihood.H):
            exact = LogisticSites(self.likelihood.as_exact_rule(), self.density)
            object.__setattr__(self, "warm_start", exact)
        if isinstance(self.density, SmoothDensity):
            object.__setattr__(self, "solver", "sweeps, then newton")

    def with_likelihood(self, likelihood: BagLikelihood) -> LogisticSites:
        return LogisticSites(likelihood, self.density)

    def local_step(self, chunk: Chunk, q: Q) -> Stats:
        mu = latent_mean(chunk, q)
        xi = np.sqrt(second_moment(chunk, q, mu))  # [V17, below Eq. 12]
        log_prob, g = self.likelihood.log_prob_and_gradient(mu, chunk.targets)
        Ey = self.likelihood.link.hazard(mu) + g  # sigmoid(mu) + d log Z / d mu
        eta = Ey - 0.5  # [V17, Eq. 12]
        mixture = self.mixture_bound(mu, xi)
        bound = chunk.targets.total_of_bags(log_prob) + chunk.targets.total_of_rows(mixture)
        return diagonal_stats(chunk, eta, self.density.theta(xi), bound)  # [C24, Eq. 27-28]

    def mixture_bound(self, mu: Array, xi: Array) -> Array:
        """What the scale mixture adds to log p(T | mu), at the optimal xi, by instance."""
        return 0.5 * mu - log_sigmoids(mu)[0] + self.density.log_psi(xi)


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
        bound = factorised_label_bound(pi, chunk.targets, self.likelihood.H)
        bound += chunk.targets.total_of_rows((pi - 0.5) * mu + self.density.log_psi(xi))
        return diagonal_stats(chunk, pi - 0.5, self.density.theta(xi), bound)


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
    entropy = targets.total_of_rows(special.entr(pi) + special.entr(1 - pi))
    return targets.total_of_bags(np.log(H) * agreement - np.log1p(H)) + entropy


def clamp_known(pi: Array, targets: Targets) -> Array:
    """Known labels stay what they are (mixed supervision [V17, 3.1])."""
    return pi if targets.known is None else np.where(targets.free, pi, targets.known)


class LogisticMIL(GaussianProcessMIL, abstract=True):
    """Models with the logistic link and label noise H."""

    def __init__(
        self, *, H: float | str = np.inf, label_posterior: str = "joint", **shared: Any
    ) -> None:
        super().__init__(**shared)
        self.H = H
        self.label_posterior = label_posterior

    def _check_parameters(self) -> None:
        super()._check_parameters()
        label_posterior = self._argument("label_posterior")
        check_choice("label_posterior", label_posterior, ("joint", "factorised"))
        if self._learns_H and (self.inference != "vi" or self._factorised):
            refuse_to_learn_H()
        if self._factorised and not np.inf > self._logistic().H:
            raise ValueError(
                "label_posterior='factorised' weighs labels by log H and needs a finite H; the "
                f"papers use H=100, got {self.H!r}"
            )
        if self._factorised and self.inference != "vi":
            raise ValueError(
                "label_posterior='factorised' is a variational posterior; use inference='vi', "
                f"got {self.inference!r}"
            )

    def _argument(self, name: str) -> Any:
        """The value of an argument, where "auto" may stand for one."""
        return getattr(self, name)

    @property
    def _factorised(self) -> bool:
        return bool(self._argument("label_posterior") == "factorised")

    def _logistic(self) -> BagLikelihood:
        """The likelihood as a fit begins."""
        return BagLikelihood(Logistic(), START_H if self._learns_H else self._argument("H"))

    @property
    def _learns_H(self) -> bool:
        return isinstance(self.H, str) and self.H == "learn"

    def _logistic_parts(
        self,
        init: Init,
        variance: float,
        density: Density,
        also_learned: tuple[str, ...] = (),
        **more: Any,
    ) -> Parts:
        """A scale mixture of the logistic kind, with labels as asked for."""
        likelihood = self._logistic()
        sites: Sites = LogisticSites(likelihood, density)
        if self._factorised:
            sites = FactorisedLogisticSites(likelihood, init, density)
        return Parts(
            likelihood,
            sites,
            variance,
            starting_values=("pi", "xi") if self._factorised else (),
            learned=(*(("H",) if self._learns_H else ()), *also_learned),
            **more,
        )


def refuse_to_learn_H() -> NoReturn:
    """At a mode f explains wrong labels too, and H would come out far too large."""
    raise ValueError(
        "H='learn' needs the variational bound of a joint label posterior: use VGPMIL with "
        "inference='vi' and label_posterior='joint', or give a number such as H=100"
    )


class VGPMIL(LogisticMIL, alias="vgpmil"):
    """Gaussian-process MIL with the logistic link [V17]; Polya-Gamma view in [C24].

    Parameters
    ----------
    H : reliability of bag labels [V17, Eq. 3]: a label is wrong with probability 1 / (H + 1).
        inf is the exact rule "at least one positive"; "learn" finds H from the bound (`H_`).
    label_posterior : "joint" is the exact posterior of a bag's labels given q(v);
        "factorised" is the published update, for reproduction (needs a finite H; its bound
        may fall and may oscillate).
    kernel : a bagwise kernel; default RBF with half the features' overall spread as
        lengthscale. While hyperparameters are learned its parameters are only where the
        search may start; with learn_hyperparameters=False they are taken as given.
    n_inducing : number of inducing points; with fewer instances all of them are used.
    inducing : "kmeans" (centres per label), "all", or an (M, D) array in raw feature units.
    mean : "learn", or the constant mean of the latent function.
    learn_hyperparameters : learn the kernel's parameters from the Laplace evidence, under
        log-normal priors centred at values that suit the data's spread (standard deviation of
        the logarithm 0.2, or 0.5 where a kernel is given).
    standardize : scale each feature to mean 0 and variance 1 first. "auto" does so where the
        features have different units: where one spreads 20 times as far as the median one.
        Pixels, word counts or network outputs share a unit and are better left alone.
    approximation : what becomes of the residual of the sparse approximation. "fitc" integrates
        it out exactly, "vfe" keeps it in the bound as [W21] does. With the logistic link both
        give the same bound.
    inference : "vi" (coordinate ascent on the ELBO) or "laplace".
    bag_score : how instances make a bag probability: "joint", "noisy-or", "max"; "calibrated",
        a logistic regression on the first and the last for training bags left out of five more
        fits (`calibration_`); or "auto" (default): "calibrated" with at least 3 bags of each
        class, hyperparameters that are learned and no sampling, otherwise "joint". Of more than
        100,000 instances a sample of whole bags is left out. `bag_score_` tells which,
        `why_not_calibrated_` why.
    instance_score : where instance probabilities come from. "posterior" is the model's: as few
        positives as bag labels require. "calibrated" puts them between that and the other end
        that bag labels allow (`predict_instance_range`), by the instances of the same left-out
        bags (`instance_calibration_`); no instance is then more probable than its bag. "auto"
        (default): "calibrated" wherever bags are. `instance_score_` tells which,
        `why_instances_not_calibrated_` why.
    witness_rate : the share of positives among the instances of positive bags, where it is known:
        calibrated instances then have that share. Known instance labels help likewise.
    class_weight : None, "balanced" (both classes have the same total weight) or {class: weight}:
        what multiplies the log-likelihood of each bag of a class; see `sample_weight` of `fit`.
    max_iter, tol : sweeps at most; relative change of the objective at which to stop.
    jitter : relative jitter on K_ZZ.
    init : starting values per instance, {"pi": ..., "xi": ...}, for "factorised" only.
    dtype : None (that of the data), "float32" or "float64": how large data are kept; up to
        2^24 features are always float64.
    chunk_size : rows per chunk, cut between bags; does not change the result.
    memory_budget : bytes of features to keep in memory; more than that go to a scratch file
        (in the folder that TMPDIR names), or are computed anew in each pass where that is
        faster. None: half of the free memory, or 256 MiB if X is itself not in memory. Does
        not change the result.
    random_state : seeds k-means and the Sobol points of joint bag probabilities.
    verbose : 1 prints the objective after each sweep.

    Examples
    --------
    >>> from bagwise.datasets import make_digit_bags
    >>> bags, truth = make_digit_bags(40, random_state=0)
    >>> model = VGPMIL(random_state=0).fit(bags[:30])
    >>> model.predict_proba(bags[30:]).shape
    (10, 2)
    """

    def _parts(self, init: Init = None) -> Parts:
        return self._logistic_parts(init, 10.0, HyperbolicSecant())


class PGVGPMIL(VGPMIL, alias="pg"):
    """VGPMIL under its Polya-Gamma name [C24, Section 3]: the same model and the same updates."""
