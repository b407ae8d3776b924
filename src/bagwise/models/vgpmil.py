"""The models, one thin estimator each: arguments, likelihood and sites."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.files.codec import is_registered
from bagwise.core.files.modelfile import ModelFileError, register
from bagwise.core.inference.driver import Result
from bagwise.core.inference.psi_normaliser import log_normaliser
from bagwise.core.inference.reliability import START_H
from bagwise.core.inference.sites import LogisticSites, ProbitSites, Sites
from bagwise.core.inference.stateful_sites import (
    FactorisedLogisticSites,
    LargeMarginSites,
    PublishedLargeMarginSites,
)
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Logistic, Probit
from bagwise.core.parameters import check_choice, check_integer, check_number
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.core.posteriors.gibbs import GibbsPosterior
from bagwise.densities import (
    Density,
    Gamma,
    HyperbolicSecant,
    Laplace,
    PolyaGamma,
    StudentT,
    as_density,
    check_density,
    is_normalised,
)
from bagwise.models._base import BagClassifierMIL
from bagwise.models._gaussian_process import GaussianProcessMIL
from bagwise.models.inputs import bags_to_predict
from bagwise.models.ising import IsingVGPMIL
from bagwise.models.mi_logistic import MILogisticRegression
from bagwise.models.mirvm import MIRVM, RVM
from bagwise.models.multitask import MultiTaskMIRVM

Array = NDArray[Any]
Init = dict[str, Array] | None

for _density in (HyperbolicSecant, Gamma, StudentT, Laplace, PolyaGamma):
    register(_density)
register(GibbsPosterior)

# What "auto" means for the logistic likelihood and for any other psi: the settings of [C24].
LOGISTIC_DEFAULTS = {
    "H": np.inf,
    "label_posterior": "joint",
    "mean": "learn",
    "learn_hyperparameters": True,
}
PSI_DEFAULTS = {
    "H": 100.0,
    "label_posterior": "factorised",
    "mean": 0.0,
    "learn_hyperparameters": False,
}


class _LogisticMIL(GaussianProcessMIL):
    """Models with the logistic link and label noise H."""

    _link = "logistic"
    _start_variance = 10.0

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
        if self._learns_H() and not self._can_learn_H():
            raise ValueError(
                "H='learn' needs the variational bound of a joint label posterior: use VGPMIL with "
                "inference='vi' and label_posterior='joint', or give a number such as H=100"
            )
        if self._factorised and not np.inf > self._likelihood().H:
            raise ValueError(
                "label_posterior='factorised' weighs labels by log H and needs a finite H; the "
                f"papers use H=100, got {self.H!r}"
            )
        if self._factorised and self.inference != "vi":
            raise ValueError(
                "label_posterior='factorised' is a variational posterior; use inference='vi', "
                f"got {self.inference!r}"
            )

    def _starting_values(self) -> tuple[str, ...]:
        return ("pi", "xi") if self._factorised else ()

    @property
    def _factorised(self) -> bool:
        return bool(self._argument("label_posterior") == "factorised")

    def _likelihood(self) -> BagLikelihood:
        return BagLikelihood(Logistic(), START_H if self._learns_H() else self._argument("H"))

    def _fitted_likelihood(self) -> BagLikelihood:
        return BagLikelihood(Logistic(), self.H_) if self._learns_H() else self._likelihood()

    def _learns_H(self) -> bool:
        return isinstance(self.H, str) and self.H == "learn"

    def _can_learn_H(self) -> bool:
        """At a mode f explains wrong labels too, and H would come out far too large."""
        return self.inference == "vi" and not self._factorised

    def _bag_labels_may_be_wrong(self) -> bool:
        return bool(np.inf > self._likelihood().H)

    def _frozen(self, rows: NDArray[np.bool_]) -> dict[str, Any]:
        learned = {"H": self.H_} if self._learns_H() else {}
        return super()._frozen(rows) | learned

    def _fitted_names(self) -> tuple[str, ...]:
        return (*super()._fitted_names(), *(["H_"] if self._learns_H() else []))

    def _make_posterior(self, parts: dict[str, Any], result: Result) -> Posterior:
        if result.H is not None:
            self.H_ = result.H
        return super()._make_posterior(parts, result)


class VGPMIL(_LogisticMIL):
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
        fits (`calibration_`); or "auto", see `ProbitVGPMIL`.
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

    def _sites(self, init: Init) -> Sites:
        if self._factorised:
            return FactorisedLogisticSites(self._likelihood(), init)
        return LogisticSites(self._likelihood())


class PGVGPMIL(VGPMIL):
    """VGPMIL under its Polya-Gamma name [C24, Section 3]: the same model and the same updates."""


class PsiVGPMIL(_LogisticMIL):
    """VGPMIL with another Gaussian scale mixture in place of the hyperbolic secant [C24].

    Parameters are those of `VGPMIL`, and

    psi : a density with `log_psi` and `theta`, such as `bagwise.densities.Gamma(1, 2.5)`, or a
        pair of functions (log_psi, its derivative) on xi >= 0. None is the hyperbolic secant.
    H, label_posterior, mean, learn_hyperparameters : "auto" is what suits psi. For the
        hyperbolic secant they are those of `VGPMIL`. For any other psi labels do not sum to 1,
        which pushes f away from zero: factorised labels with H = 100, mean 0 and a fixed kernel
        (variance 0.5), as in the paper. The kernel is learned from the logistic model's evidence.
    bag_score : "auto": "calibrated" where that is possible and psi is not the hyperbolic secant,
        as the level of its probabilities means nothing; otherwise "joint".

    Model files hold the densities of `bagwise.densities` and any that `bagwise.io.register` was
    given; a pair of functions cannot be saved.

    Examples
    --------
    >>> import bagwise as bw
    >>> bags, truth = bw.datasets.make_digit_bags(40, random_state=0)
    >>> model = PsiVGPMIL(psi=bw.densities.Laplace(2.0), n_inducing=20, random_state=0)
    >>> model.fit(bags[:30]).predict(bags[30:]).shape
    (10,)
    """

    _inferences = ("vi",)

    def __init__(
        self,
        *,
        psi: Any = None,
        H: float | str = "auto",
        label_posterior: str = "auto",
        mean: str | float = "auto",
        learn_hyperparameters: str | bool = "auto",
        bag_score: str = "auto",
        **shared: Any,
    ) -> None:
        super().__init__(
            H=H,
            label_posterior=label_posterior,
            mean=mean,
            learn_hyperparameters=learn_hyperparameters,
            bag_score=bag_score,
            **shared,
        )
        self.psi = psi

    def normalised_elbo(self, X: Any, largest_error: float = 0.2) -> float:
        """`elbo_` minus log Z [C24, Eq. 29], by which fits with another psi or kernel compare.

        X are the bags of the fit. log Z is estimated from draws of the prior; ValueError says
        why where it is not known to `largest_error` nats, as with psi of heavy tails under a
        kernel of large variance. The larger value fits the labels better.

        >>> import bagwise as bw
        >>> bags, _ = bw.datasets.make_bags(20, 3, 2, random_state=0)
        >>> settings = {"kernel": bw.kernels.RBF(0.3, 2.0), "bag_score": "max", "n_inducing": 10}
        >>> fits = (PsiVGPMIL(psi=PolyaGamma(b), **settings).fit(bags) for b in (1.2, 2.0))
        >>> bounds = [model.normalised_elbo(bags) for model in fits]
        """
        bags, q = bags_to_predict(self, X), self.posterior_
        A, kt = (np.asarray(x, dtype=np.float64) for x in q.features(bags.X))
        estimate = log_normaliser(self._density(), A, kt, q.c0, q.seed)
        estimate.check(largest_error)
        return float(self.elbo_ - estimate.value)

    def _check_parameters(self) -> None:
        if not hasattr(self, "_fixed_scaling"):  # refits are part of a fit, whose psi was checked
            self._check_density()
        super()._check_parameters()

    def _check_density(self) -> None:
        """What is to be said of psi is said here, once per fit."""
        check_density(self._density())

    def _density(self) -> Density:
        return as_density(HyperbolicSecant() if self.psi is None else self.psi)

    def _argument(self, name: str) -> Any:
        value = getattr(self, name)
        if not (isinstance(value, str) and value == "auto"):
            return value
        defaults = LOGISTIC_DEFAULTS if is_normalised(self._density()) else PSI_DEFAULTS
        return defaults.get(name, value)

    def _kernel_variance(self) -> float:
        return 10.0 if is_normalised(self._density()) else 0.5

    def _too_costly(self, bags: Bags) -> str | None:
        if is_normalised(self._density()):
            return "psi is the logistic likelihood, whose probabilities mean what they say"
        return super()._too_costly(bags)

    def _learns_nothing(self) -> bool:
        return False  # a fixed kernel is the default here, not a wish to leave all as it is

    def _sites(self, init: Init) -> Sites:
        density = self._density()
        if self._factorised:
            return FactorisedLogisticSites(self._likelihood(), init, density)
        return LogisticSites(self._likelihood(), density)

    def _storable_parameters(self) -> dict[str, Any]:
        if self.psi is not None and not is_registered(type(self.psi)):
            raise ModelFileError(
                f"psi is {self.psi!r:.80}, which no file can hold; write it as a class with "
                "log_psi(xi) and theta(xi), a frozen dataclass whose fields are its numbers, and "
                "put @bagwise.io.register above it: @bagwise.io.register "
                "@dataclasses.dataclass(frozen=True) class MyPsi: ...; the program that loads the "
                "model imports its module first"
            )
        return super()._storable_parameters()


class GammaVGPMIL(PsiVGPMIL):
    """G-VGPMIL: Gamma mixing variables, psi(x) = (beta + x^2 / 2)^-alpha [C24, Section 5].

    Parameters are those of `VGPMIL`, `alpha` and `beta`; choose them by cross-validation
    (`GridSearchCV`) or by `normalised_elbo`. Labels are factorised with H = 100 as in the paper:
    psi falls so slowly that every instance whose label is more likely negative than not pulls f
    down without end, and with exact labels of a bag those are nearly all. Mean (0) and kernel
    (variance 0.5) are fixed unless asked for. The level of its probabilities is arbitrary, so that
    those of bags are calibrated where there are enough of them (`bag_score="auto"`).

    Examples
    --------
    >>> from bagwise.datasets import make_digit_bags
    >>> bags, truth = make_digit_bags(40, random_state=0)
    >>> model = GammaVGPMIL(alpha=1.0, beta=2.5, n_inducing=20, random_state=0)
    >>> model.fit(bags[:30]).predict(bags[30:]).shape
    (10,)
    """

    def __init__(
        self,
        *,
        alpha: float = 1.0,
        beta: float = 2.5,
        H: float | str = 100.0,
        label_posterior: str = "factorised",
        mean: str | float = 0.0,
        learn_hyperparameters: bool = False,
        **shared: Any,
    ) -> None:
        super().__init__(
            H=H,
            label_posterior=label_posterior,
            mean=mean,
            learn_hyperparameters=learn_hyperparameters,
            **shared,
        )
        self.alpha = alpha
        self.beta = beta

    def _check_density(self) -> None:
        Gamma(self.alpha, self.beta)

    def _density(self) -> Density:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said by the check
            return Gamma(self.alpha, self.beta)

    def _kernel_variance(self) -> float:
        return 0.5


class LargeMarginVGPMIL(_LogisticMIL):
    """LM-VGPMIL: instances near the decision boundary are gated out while learning [V17, 3.2].

    Parameters are those of `VGPMIL`, and

    C : how sharply a margin violation is penalised.
    V : the margin; 2 asks for about 88% certainty.
    label_posterior : "joint" (default, monotone) or "factorised" (the published updates).
    init : starting values "pi", "tau", "xi", "phi" per instance.

    `elbo_` is the model's unnormalised objective: it serves to follow one fit and must not be
    used to compare hyperparameters. For the same reason the mean (-1) and the kernel (variance
    1) are not learned unless asked for, then from the logistic model's evidence. A fit starts
    at VGPMIL's posterior unless `init` is given.

    Examples
    --------
    >>> from bagwise.datasets import make_digit_bags
    >>> bags, truth = make_digit_bags(40, random_state=0)
    >>> LargeMarginVGPMIL(random_state=0).fit(bags[:30]).predict(bags[30:]).shape
    (10,)
    """

    _inferences = ("vi",)
    _start_variance = 1.0

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

    def _starting_values(self) -> tuple[str, ...]:
        return ("pi", "tau", "xi", "phi")

    def _can_learn_H(self) -> bool:
        return False  # its objective is not normalised

    def _sites(self, init: Init) -> Sites:
        kind = PublishedLargeMarginSites if self._factorised else LargeMarginSites
        return kind(self._likelihood(), init, C=self.C, V=self.V)


class ProbitVGPMIL(GaussianProcessMIL):
    """Gaussian-process MIL with the probit link: MIL-GP-Probit [W21].

    Parameters are those of `VGPMIL` without `H` (bag labels are exact), and

    inference : "vi", "laplace", or "gibbs": asymptotically exact sampling [W21, 3.5], started
        at the Laplace mode; `gibbs_` then has the draws, split R-hat and effective sizes.
    n_samples, n_chains, burn_in, thin : kept draws per chain, chains (in parallel processes),
        sweeps dropped first, sweeps per kept draw; for "gibbs" only.
    bag_score : "auto" (default): "calibrated" with at least 10 bags of each class, at most
        100 000 instances in memory, hyperparameters that are learned and no sampling, otherwise
        "joint". `bag_score_` tells which, `why_not_calibrated_` why.

    Examples
    --------
    >>> from bagwise.datasets import make_digit_bags
    >>> bags, truth = make_digit_bags(40, random_state=0)
    >>> model = ProbitVGPMIL(random_state=0).fit(bags[:30])
    >>> p, std = model.predict_instance_proba(bags[30:], return_std=True)
    >>> p.shape, std.shape
    ((100, 2), (100,))
    """

    _link = "probit"
    _start_variance = 4.0
    _inferences = ("vi", "laplace", "gibbs")

    def __init__(
        self,
        *,
        n_samples: int = 1000,
        n_chains: int = 4,
        burn_in: int = 200,
        thin: int = 10,
        bag_score: str = "auto",
        **shared: Any,
    ) -> None:
        super().__init__(bag_score=bag_score, **shared)
        self.n_samples = n_samples
        self.n_chains = n_chains
        self.burn_in = burn_in
        self.thin = thin

    def _check_parameters(self) -> None:
        super()._check_parameters()
        check_integer("n_samples", self.n_samples, at_least=4)
        check_integer("n_chains", self.n_chains, at_least=1)
        check_integer("burn_in", self.burn_in, at_least=0)
        check_integer("thin", self.thin, at_least=1)

    def _chains(self) -> dict[str, int]:
        names = ("n_samples", "n_chains", "burn_in", "thin")
        return {name: getattr(self, name) for name in names}

    def _make_posterior(self, parts: dict[str, Any], result: Result) -> Posterior:
        if result.gibbs is None:
            return super()._make_posterior(parts, result)
        self.gibbs_ = result.gibbs
        means = result.gibbs.mixture_means()
        return GibbsPosterior(**(parts | {"m": means.mean(axis=0)}), means=means)

    def _likelihood(self) -> BagLikelihood:
        return BagLikelihood(Probit())

    def _sites(self, init: Init) -> Sites:
        return ProbitSites(self._likelihood(), integrate_residual=self.approximation == "fitc")


MODELS: dict[str, type[BagClassifierMIL]] = {
    model.__name__: model
    for model in (
        VGPMIL,
        PGVGPMIL,
        PsiVGPMIL,
        GammaVGPMIL,
        LargeMarginVGPMIL,
        ProbitVGPMIL,
        IsingVGPMIL,
        MIRVM,
        MILogisticRegression,
        RVM,
        MultiTaskMIRVM,
    )
}
