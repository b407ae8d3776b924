"""Other Gaussian scale mixtures in place of the logistic likelihood's [C24]."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from bagwise.core.features import whitener
from bagwise.core.files.codec import is_registered
from bagwise.core.files.modelfile import ModelFileError, register
from bagwise.core.inference.driver import Problem, Result
from bagwise.core.inference.monitor import State
from bagwise.core.inference.psi_normaliser import log_normaliser
from bagwise.core.inference.psi_search import NormalisedBound, PsiKernel, learn_psi
from bagwise.core.inference.solvers import optimise
from bagwise.core.inference.stats import Sites, standard_q
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
from bagwise.models._parts import Init, Parts
from bagwise.models.bag_weights import sample_weights
from bagwise.models.inputs import bags_to_predict
from bagwise.models.vgpmil import LogisticMIL

for _density in (HyperbolicSecant, Gamma, StudentT, Laplace, PolyaGamma):
    register(_density)

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


class PsiVGPMIL(LogisticMIL, alias="psi"):
    """VGPMIL with another Gaussian scale mixture in place of the hyperbolic secant [C24].

    Parameters are those of `VGPMIL`, and

    psi : a density with `log_psi` and `theta`, such as `bagwise.densities.Gamma(1, 2.5)`, or a
        pair of functions (log_psi, its derivative) on xi >= 0. None is the hyperbolic secant.
    H, label_posterior, mean, learn_hyperparameters : "auto" is what suits psi. For the
        hyperbolic secant they are those of `VGPMIL`. For any other psi labels do not sum to 1,
        which pushes f away from zero: factorised labels with H = 100, mean 0 and a fixed kernel
        (variance 0.5), as in the paper. With learn_hyperparameters=True the kernel is learned
        from the logistic model's evidence; with "bound" the numbers of psi (then `psi_`) and the
        kernel are, by `elbo_` minus log Z [C24, Eq. 29] and log-normal priors around where they
        start. That takes a psi, a kernel and a number of instances for which log Z is known, and
        a psi that fits labels better may rank instances worse: compare on bags left out.
    bag_score : "auto": as in `VGPMIL`, and with a kernel that is not learned too unless psi is the
        hyperbolic secant, as the level of its probabilities means nothing.

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

    def __init__(
        self,
        *,
        psi: Any = None,
        H: float | str = "auto",
        label_posterior: str = "auto",
        mean: str | float = "auto",
        learn_hyperparameters: str | bool = "auto",
        **shared: Any,
    ) -> None:
        super().__init__(
            H=H,
            label_posterior=label_posterior,
            mean=mean,
            learn_hyperparameters=learn_hyperparameters,
            **shared,
        )
        self.psi = psi

    def normalised_elbo(
        self, X: Any, largest_error: float = 0.2, *, sample_weight: Any = None
    ) -> float:
        """`elbo_` minus log Z [C24, Eq. 29], by which fits with another psi or kernel compare.

        X are the bags of the fit. log Z is estimated from draws of the prior; ValueError says
        why where it is not known to `largest_error` nats, as with psi of heavy tails under a
        kernel of large variance. The larger value fits the labels better. `sample_weight` says how
        many times each bag counted in the fit, where not once: by its own weight times its class's.

        >>> import bagwise as bw
        >>> bags, _ = bw.datasets.make_bags(20, 3, 2, random_state=0)
        >>> settings = {"kernel": bw.kernels.RBF(0.3, 2.0), "bag_score": "max", "n_inducing": 10}
        >>> fits = (PsiVGPMIL(psi=PolyaGamma(b), **settings).fit(bags) for b in (1.2, 2.0))
        >>> bounds = [model.normalised_elbo(bags) for model in fits]
        """
        bags, q = bags_to_predict(self, X), self.posterior_
        A, kt = (np.asarray(x, dtype=np.float64) for x in q.features(bags.X))
        if self.class_weight is not None and sample_weight is None:
            raise ValueError(
                f"the fit weighed bags by class_weight={self.class_weight!r:.80}, which log Z has "
                "to know; give sample_weight, the weight of each bag times that of its class"
            )
        counts = None if sample_weight is None else sample_weights(X, bags, sample_weight)
        rows = None if counts is None else np.repeat(counts, bags.sizes)
        estimate = log_normaliser(self._fitted_density(), A, kt, q.c0, q.seed, rows)
        estimate.check(largest_error)
        return float(self.elbo_ - estimate.value)

    def _check_parameters(self) -> None:
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

    @property
    def _by_bound(self) -> bool:
        return isinstance(self.learn_hyperparameters, str) and self.learn_hyperparameters == "bound"

    def _fitted_density(self) -> Density:
        """psi as a fit has learned it, or as it was given."""
        learned: Density = self.psi_ if self._by_bound else self._density()
        return learned

    def _keep_density(self, psi: Density) -> None:
        self.psi_ = psi

    def _parts(self, init: Init = None) -> Parts:
        density = self._density()
        own = is_normalised(density)
        return self._logistic_parts(
            init,
            10.0 if own else 0.5,
            density,
            inferences=("vi",),
            mean=self._argument("mean"),
            learn_hyperparameters=not self._by_bound and self._argument("learn_hyperparameters"),
            refine=self._learn_by_bound if self._by_bound else None,
            also_learned=self._numbers_of_psi if self._by_bound else (),
            level_means_nothing=not own,
        )

    _numbers_of_psi: tuple[str, ...] = ("psi",)  # arguments that hold them

    def _learn_by_bound(self, problem: Problem, first: Result, refit: bool) -> Result:
        """The fit with the psi and the kernel that the bound minus log Z prefers."""

        def sites(psi: Density) -> Sites:
            return self._logistic_parts(None, 1.0, psi).sites

        bound = NormalisedBound(
            problem.data.in_memory(), problem.Z, self.jitter, first.q.c0, problem.seed, sites
        )
        start = PsiKernel(self._density(), first.kernel)

        def work(state: State | None) -> State:
            return {"theta": learn_psi(bound, start, problem.monitor).theta}

        found = start.with_theta(np.asarray(problem.monitor.run("psi", work)["theta"]))
        self._keep_density(found.psi)
        q, trace = optimise(
            problem.monitor,
            "vi, learned psi",
            sites(found.psi),
            problem.data.sweeper(whitener(found.kernel, problem.Z, self.jitter)),
            standard_q(len(problem.Z), first.q.c0),
            learn_mean=False,
            max_iter=self.max_iter,
            tol=self.tol,
            verbose=self.verbose,
        )
        return Result(q, found.kernel, trace)

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


class GammaVGPMIL(PsiVGPMIL, alias="gamma"):
    """G-VGPMIL: Gamma mixing variables, psi(x) = (beta + x^2 / 2)^-alpha [C24, Section 5].

    Labels are factorised with H = 100 as in the paper: psi falls so slowly that every instance
    whose label is more likely negative than not pulls f down without end, and with exact labels of
    a bag those are nearly all. Mean (0) and kernel (variance 0.5) are fixed unless asked for. The
    level of its probabilities is arbitrary, so that those of bags are calibrated where there are
    enough of them (`bag_score="auto"`).

    Parameters are those of `VGPMIL`, and

    alpha, beta : shape and rate of the mixing variables. Choose them by cross-validation
        (`GridSearchCV`), by `normalised_elbo`, or with learn_hyperparameters="bound", which finds
        `alpha_` and `beta_` (see `PsiVGPMIL`).

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
        learn_hyperparameters: str | bool = False,
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

    _numbers_of_psi = ("alpha", "beta")

    def _keep_density(self, psi: Density) -> None:
        assert isinstance(psi, Gamma)
        self.alpha_, self.beta_ = psi.alpha, psi.beta

    def _fitted_density(self) -> Density:
        return Gamma(self.alpha_, self.beta_) if self._by_bound else self._density()

    def _check_density(self) -> None:
        Gamma(self.alpha, self.beta)

    def _density(self) -> Density:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # said by the check
            return Gamma(self.alpha, self.beta)
