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
    from bagwise.core.files.modelfile import ModelFileError
    from bagwise.core.warnings import NearChanceWarning
    from bagwise.models.ising import IsingVGPMIL
    from bagwise.models.large_margin import LargeMarginVGPMIL
    from bagwise.models.mirvm import MIRVM, RVM, MILogisticRegression
    from bagwise.models.multitask import MultiTaskMIRVM
    from bagwise.models.one_vs_rest import OneVsRestMIL
    from bagwise.models.persistence import load, save
    from bagwise.models.probit import ProbitVGPMIL
    from bagwise.models.progress import Progress
    from bagwise.models.psi import GammaVGPMIL, PsiVGPMIL
    from bagwise.models.transformer import InstanceTransformer
    from bagwise.models.vgpmil import PGVGPMIL, VGPMIL

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
    "GammaVGPMIL": "bagwise.models.psi",
    "InstanceTransformer": "bagwise.models.transformer",
    "IsingVGPMIL": "bagwise.models.ising",
    "LargeMarginVGPMIL": "bagwise.models.large_margin",
    "MILogisticRegression": "bagwise.models.mirvm",
    "MIRVM": "bagwise.models.mirvm",
    "ModelFileError": "bagwise.core.files.modelfile",
    "MultiTaskMIRVM": "bagwise.models.multitask",
    "NearChanceWarning": "bagwise.core.warnings",
    "PGVGPMIL": "bagwise.models.vgpmil",
    "OneVsRestMIL": "bagwise.models.one_vs_rest",
    "ProbitVGPMIL": "bagwise.models.probit",
    "Progress": "bagwise.models.progress",
    "PsiVGPMIL": "bagwise.models.psi",
    "RVM": "bagwise.models.mirvm",
    "VGPMIL": "bagwise.models.vgpmil",
    "load": "bagwise.models.persistence",
    "save": "bagwise.models.persistence",
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
