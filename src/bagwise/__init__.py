"""bagwise: Bayesian multiple instance learning.

Labels are known for bags only; a bag is positive if at least one of its instances is. bagwise
gives a probability with its uncertainty for every bag and for every instance.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # the public names, each once: type checkers read them, and so does this file
    from bagwise import baselines as baselines
    from bagwise import benchmark as benchmark
    from bagwise import datasets as datasets
    from bagwise import deep as deep
    from bagwise import densities as densities
    from bagwise import detection as detection
    from bagwise import distributed as distributed
    from bagwise import inspection as inspection
    from bagwise import io as io
    from bagwise import kernels as kernels
    from bagwise import metrics as metrics
    from bagwise import plots as plots
    from bagwise import report as report
    from bagwise.bags import Bags as Bags
    from bagwise.core.files.modelfile import ModelFileError as ModelFileError
    from bagwise.core.likelihoods.rules import AtLeast as AtLeast
    from bagwise.core.likelihoods.rules import Share as Share
    from bagwise.core.warnings import NearChanceWarning as NearChanceWarning
    from bagwise.core.warnings import ShiftWarning as ShiftWarning
    from bagwise.models.ising import IsingVGPMIL as IsingVGPMIL
    from bagwise.models.large_margin import LargeMarginVGPMIL as LargeMarginVGPMIL
    from bagwise.models.mi_logistic import MILogisticRegression as MILogisticRegression
    from bagwise.models.mirvm import MIRVM as MIRVM
    from bagwise.models.mirvm import RVM as RVM
    from bagwise.models.multitask import MultiTaskMIRVM as MultiTaskMIRVM
    from bagwise.models.one_vs_rest import OneVsRestMIL as OneVsRestMIL
    from bagwise.models.persistence import load as load
    from bagwise.models.persistence import save as save
    from bagwise.models.probit import ProbitVGPMIL as ProbitVGPMIL
    from bagwise.models.progress import Progress as Progress
    from bagwise.models.psi import GammaVGPMIL as GammaVGPMIL
    from bagwise.models.psi import PsiVGPMIL as PsiVGPMIL
    from bagwise.models.transformer import InstanceTransformer as InstanceTransformer
    from bagwise.models.vgpmil import PGVGPMIL as PGVGPMIL
    from bagwise.models.vgpmil import VGPMIL as VGPMIL

__version__ = "0.1.0"

# Each name is imported when first used, so that the command line answers at once.
_HOME = {
    name.name: str(node.module)
    for node in ast.walk(ast.parse(Path(__file__).read_text(encoding="utf-8")))
    if isinstance(node, ast.ImportFrom) and str(node.module).split(".")[0] == "bagwise"
    for name in node.names
}
__all__ = sorted([*_HOME, "__version__"])


if not TYPE_CHECKING:  # which then know that there are no other names

    def __getattr__(name: str) -> Any:
        if name not in _HOME:
            raise AttributeError(f"module 'bagwise' has no attribute {name!r}")
        if _HOME[name] == "bagwise":
            return import_module(f"bagwise.{name}")
        value = globals()[name] = getattr(import_module(_HOME[name]), name)
        return value


def __dir__() -> list[str]:
    return __all__
