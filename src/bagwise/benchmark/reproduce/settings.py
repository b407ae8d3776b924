"""The papers' settings as estimators: as printed, as in the authors' programs, and our defaults."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.kernels import RBF, Kernel, Matern
from bagwise.models import (
    VGPMIL,
    GammaVGPMIL,
    IsingVGPMIL,
    LargeMarginVGPMIL,
    ProbitVGPMIL,
    PsiVGPMIL,
)

PROGRAM_H = 1e12  # of the program of [V17]; its text has 100


def fixed(kernel: Kernel, n_inducing: int, sweeps: int, standardize: bool) -> dict[str, Any]:
    """A zero mean and a kernel that stays as it is, so many sweeps, bags by their best instance."""
    return {
        "kernel": kernel,
        "learn_hyperparameters": False,
        "mean": 0.0,
        "standardize": standardize,
        "n_inducing": n_inducing,
        "approximation": "vfe",
        "bag_score": "max",
        "instance_score": "posterior",
        "max_iter": sweeps,
        "tol": 0.0,
    }


def root_rbf(n_features: int) -> RBF:
    """The kernel of [V17]: variance 1, lengthscale the root of the number of features."""
    return RBF(1.0, float(np.sqrt(n_features)))


def v17(n_features: int, H: float = 100.0, standardize: bool = False) -> VGPMIL:
    """VGPMIL with 50 inducing points and 20 sweeps [V17, 4]."""
    how = fixed(root_rbf(n_features), 50, 20, standardize)
    return VGPMIL(label_posterior="factorised", H=H, **how)


def v17_large_margin(
    n_features: int, H: float = 100.0, standardize: bool = False
) -> LargeMarginVGPMIL:
    """LM-VGPMIL with C = V = 2 [V17, 4.3]."""
    how = fixed(root_rbf(n_features), 50, 20, standardize)
    return LargeMarginVGPMIL(C=2, V=2, label_posterior="factorised", H=H, **how)


def w21(kernel: Kernel, standardize: bool, **more: Any) -> ProbitVGPMIL:
    """MIL-GP-Probit: 50 inducing points, 25 iterations [W21, 4]."""
    return ProbitVGPMIL(**(fixed(kernel, 50, 25, standardize) | more))


def w21_logistic(kernel: Kernel, standardize: bool) -> VGPMIL:
    """MIL-GP-Logistic with 25 iterations [W21, 4]."""
    how = fixed(kernel, 50, 25, standardize)
    return VGPMIL(label_posterior="factorised", H=100.0, **how)


def w21_large_margin(kernel: Kernel, standardize: bool) -> LargeMarginVGPMIL:
    """MIL-GP-Logistic-LM with C = V = 2 [W21, 4]."""
    how = fixed(kernel, 50, 25, standardize)
    return LargeMarginVGPMIL(C=2, V=2, label_posterior="factorised", H=100.0, **how)


def exponential(n_features: int) -> Matern:
    """The exponential kernel with the root of the number of features as lengthscale [W21, 4.2]."""
    return Matern(0.5, 1.0, float(np.sqrt(n_features)))


def m24(n_features: int, n_inducing: int, sweeps: int) -> dict[str, Any]:
    """What all models of [M24, 3.1] share: variance 1, lengthscale the root of the features."""
    return fixed(root_rbf(n_features), n_inducing, sweeps, False)


def m24_ising(
    coupling: float, moments: str, n_features: int, n_inducing: int, sweeps: int
) -> IsingVGPMIL:
    """VGPMIL-PR-I; without coupling it is VGPMIL-PR [M24]."""
    shared = m24(n_features, n_inducing, sweeps) | {"bag_score": "joint", "tol": 1e-8}
    return IsingVGPMIL(coupling=coupling, moments=moments, **shared)


def c24(n_features: int, n_inducing: int, variance: float, bag_score: str) -> dict[str, Any]:
    """What both models of [C24, 6] share; the l of its kernel is the square of a lengthscale."""
    kernel = RBF(variance, float(np.sqrt(n_features)))
    shared = fixed(kernel, n_inducing, 200, False) | {"bag_score": bag_score}
    return shared | {"label_posterior": "factorised", "H": 100.0}


def c24_gamma(alpha: float, beta: float, **shared: Any) -> GammaVGPMIL:
    """G-VGPMIL."""
    return GammaVGPMIL(alpha=alpha, beta=beta, **shared)


def c24_polya_gamma(**shared: Any) -> PsiVGPMIL:
    """VGPMIL in its Polya-Gamma view: psi is that of the hyperbolic secant distribution."""
    return PsiVGPMIL(**shared)
