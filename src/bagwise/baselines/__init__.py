"""Classical models for multiple instance learning, to compare with: small and plain.

They take what the Gaussian process models take, learn from bag labels alone, and standardise
features on the training bags. `BASELINES` has all of them by name.
"""

from bagwise.baselines.base import BaselineMIL
from bagwise.baselines.boosting import MIBoost
from bagwise.baselines.logistic import MILR, SIL, MaxPoolLogistic, MeanPoolLogistic
from bagwise.baselines.svm import MISVM, SetKernelSVM, miSVM

BASELINES: dict[str, type[BaselineMIL]] = {
    model.__name__: model
    for model in (MISVM, miSVM, MILR, MIBoost, SIL, MeanPoolLogistic, MaxPoolLogistic, SetKernelSVM)
}

__all__ = [
    "BASELINES",
    "MILR",
    "MISVM",
    "SIL",
    "BaselineMIL",
    "MIBoost",
    "MaxPoolLogistic",
    "MeanPoolLogistic",
    "SetKernelSVM",
    "miSVM",
]
