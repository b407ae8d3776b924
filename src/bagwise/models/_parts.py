"""What makes one Gaussian-process model, and checks of the arguments that all of them have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.core.inference.driver import Problem, Result
from bagwise.core.inference.stats import Sites
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.parameters import (
    check_choice,
    check_dtype,
    check_integer,
    check_number,
    check_rows,
)
from bagwise.distributed import DaskRows
from bagwise.kernels import Kernel

if TYPE_CHECKING:
    from bagwise.models._gaussian_process import GaussianProcessMIL

Array = NDArray[Any]
Init = dict[str, Array] | None


@dataclass(frozen=True)
class Parts:
    """What a model is made of, with the arguments that it has."""

    likelihood: BagLikelihood  # what bag labels say about instances, as a fit begins
    sites: Sites  # the model as the variational loop sees it
    variance: float  # of the default kernel, on the scale of the link
    inferences: tuple[str, ...] = ("vi", "laplace")
    starting_values: tuple[str, ...] = ()  # per instance, that `init` may give
    learned: tuple[str, ...] = ()  # arguments that a fit finds, and keeps as NAME_
    mean: str | float | None = None  # in place of the argument, where that says "auto"
    learn_hyperparameters: bool | None = None  # likewise
    chains: dict[str, int] | None = None  # settings of the Gibbs sampler
    graph: Callable[[Bags], Any] | None = None  # neighbours, for models that couple instances
    refine: Callable[[Problem, Result, bool], Result] | None = None  # a fit after the first
    whole: str | None = None  # why no part of the bags can be fitted by itself
    level_means_nothing: bool = False  # so that "auto" calibrates with a given kernel too


def check_arguments(model: GaussianProcessMIL, parts: Parts) -> None:
    """Raise where an argument that these models have cannot be used."""
    check_kernel(model.kernel, parts)
    check_integer("n_inducing", model.n_inducing, at_least=1)
    if isinstance(model.inducing, str):
        check_choice("inducing", model.inducing, ("kmeans", "all"))
    mean, learn = asked(model, parts)
    if not (isinstance(mean, str) and mean == "learn"):
        check_number("mean ('learn' or a number)", mean)
    check_choice("learn_hyperparameters", learn, (True, False))
    check_choice("approximation", model.approximation, ("fitc", "vfe"))
    check_choice("inference", model.inference, parts.inferences)
    if model.inference != "vi" and model.approximation == "vfe":
        raise ValueError(
            f"inference={model.inference!r} integrates the residual out and has no 'vfe' form; "
            "use approximation='fitc'"
        )
    check_number("jitter", model.jitter, above=0)
    check_dtype(model.dtype)
    if model.memory_budget is not None:
        check_number("memory_budget (bytes)", model.memory_budget, at_least=0)
    if model.init is not None and not parts.starting_values:
        raise ValueError(
            "this model starts from q(v) = N(0, I) and has no starting values to give; init is "
            "for label_posterior='factorised' and for LargeMarginVGPMIL"
        )


def check_kernel(kernel: Any, parts: Parts) -> None:
    """Raise where a kernel is none, or cannot be chosen for this model."""
    if isinstance(kernel, str) and kernel == "auto":
        if parts.likelihood.link.name != "probit":
            raise ValueError(
                "kernel='auto' is for models with the probit link, ProbitVGPMIL and IsingVGPMIL; "
                "use kernel=None, which learns an RBF kernel, or pass one"
            )
    elif not (kernel is None or isinstance(kernel, Kernel)):
        raise TypeError(
            f"kernel must be a bagwise kernel such as bagwise.kernels.RBF(), got {kernel!r}; None "
            "learns an RBF kernel, and 'auto' chooses one where the link is the probit"
        )


def asked(model: GaussianProcessMIL, parts: Parts) -> tuple[Any, Any]:
    """The mean and whether to learn hyperparameters, as asked for or as the model has it."""
    mean = model.mean if parts.mean is None else parts.mean
    learn = parts.learn_hyperparameters
    return mean, model.learn_hyperparameters if learn is None else learn


def checked_init(model: GaussianProcessMIL, parts: Parts, n_rows: int) -> Init:
    """`init` with each array checked against the data's rows."""
    if model.init is None:
        return None
    return {
        check_choice("a key of init", name, parts.starting_values): check_rows(
            f"init[{name!r}]", values, n_rows
        )
        for name, values in model.init.items()
    }


def check_way_of_fitting(
    model: Any, X: Any, sites: Sites, counts: Array | None, *, saves: bool
) -> None:
    """Raise where a way of fitting has no checkpoints, is not distributed, or needs copies."""
    away = isinstance(X, DaskRows)
    if model.inference == "gibbs":
        refuse_fractions(counts)
    if model.inference == "gibbs" and away:
        raise ValueError(
            "inference='gibbs' runs its chains in processes of its own and is not distributed; use "
            "inference='vi' or 'laplace', or leave client out"
        )
    if saves and away and sites.stateful:
        raise ValueError(
            f"{type(model).__name__} with these arguments keeps values per instance, which "
            "stay with the Dask workers: a distributed fit of it writes no checkpoints; leave "
            "checkpoint and resume out"
        )


def too_costly(model: GaussianProcessMIL, parts: Parts) -> str | None:
    """Why bag_score="auto" does not pay for five more fits, or None."""
    if not (model.learn_hyperparameters or parts.level_means_nothing):
        return "learn_hyperparameters=False: nothing is to be learned but the posterior"
    if model.inference == "gibbs":
        return "inference='gibbs' would sample five times more"
    return None


def refuse_fractions(counts: Array | None) -> None:
    """Raise where bags do not count whole times, for samplers of each copy's latent values."""
    if counts is None or np.array_equal(counts, np.round(counts)):
        return
    fraction = counts[counts != np.round(counts)][0]
    raise ValueError(
        "inference='gibbs' draws the latent values of each copy of a bag, so that weights must be "
        f"whole numbers; got {fraction:g}; round them, leave class_weight='balanced' out, or use "
        "inference='vi' or 'laplace'"
    )
