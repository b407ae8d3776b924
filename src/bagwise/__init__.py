"""bagwise: Bayesian multiple instance learning.

Labels are known for bags only; a bag is positive if at least one of its instances is. bagwise
gives a probability with its uncertainty for every bag and for every instance.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bagwise import (
        baselines,
        benchmark,
        datasets,
        deep,
        densities,
        detection,
        distributed,
        io,
        kernels,
        metrics,
        plots,
        report,
    )
    from bagwise.bags import Bags
    from bagwise.estimators import (
        PGVGPMIL,
        VGPMIL,
        GammaVGPMIL,
        LargeMarginVGPMIL,
        ProbitVGPMIL,
        PsiVGPMIL,
    )
    from bagwise.exceptions import NearChanceWarning
    from bagwise.io.modelfile import ModelFileError
    from bagwise.ising_estimator import IsingVGPMIL
    from bagwise.multiclass import OneVsRestMIL
    from bagwise.multitask import MultiTaskMIRVM
    from bagwise.progress import Progress
    from bagwise.rvm_estimators import MIRVM, RVM, MILogisticRegression
    from bagwise.saving import load, save
    from bagwise.transformers import InstanceTransformer

__version__ = "0.1.0"

__all__ = [
    "MIRVM",
    "PGVGPMIL",
    "RVM",
    "VGPMIL",
    "Bags",
    "GammaVGPMIL",
    "InstanceTransformer",
    "IsingVGPMIL",
    "LargeMarginVGPMIL",
    "MILogisticRegression",
    "ModelFileError",
    "MultiTaskMIRVM",
    "NearChanceWarning",
    "OneVsRestMIL",
    "ProbitVGPMIL",
    "Progress",
    "PsiVGPMIL",
    "__version__",
    "baselines",
    "benchmark",
    "datasets",
    "deep",
    "densities",
    "detection",
    "distributed",
    "io",
    "kernels",
    "load",
    "metrics",
    "plots",
    "report",
    "save",
]

# Names are imported when first used, so that the command line answers at once.
_HOME = {
    "Bags": "bagwise.bags",
    "GammaVGPMIL": "bagwise.estimators",
    "InstanceTransformer": "bagwise.transformers",
    "IsingVGPMIL": "bagwise.ising_estimator",
    "LargeMarginVGPMIL": "bagwise.estimators",
    "MILogisticRegression": "bagwise.rvm_estimators",
    "MIRVM": "bagwise.rvm_estimators",
    "ModelFileError": "bagwise.io.modelfile",
    "MultiTaskMIRVM": "bagwise.multitask",
    "NearChanceWarning": "bagwise.exceptions",
    "PGVGPMIL": "bagwise.estimators",
    "OneVsRestMIL": "bagwise.multiclass",
    "ProbitVGPMIL": "bagwise.estimators",
    "Progress": "bagwise.progress",
    "PsiVGPMIL": "bagwise.estimators",
    "RVM": "bagwise.rvm_estimators",
    "VGPMIL": "bagwise.estimators",
    "load": "bagwise.saving",
    "save": "bagwise.saving",
}
_MODULES = (
    "baselines",
    "benchmark",
    "datasets",
    "deep",
    "densities",
    "detection",
    "distributed",
    "io",
    "kernels",
    "metrics",
    "plots",
    "report",
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"bagwise.{name}")
    if name in _HOME:
        value = getattr(import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'bagwise' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
