"""The estimators, one file each with the sites of the model; importing them fills the registry."""

# In the order in which commands list them.
# ruff: noqa: I001
from bagwise.models.probit import ProbitVGPMIL
from bagwise.models.vgpmil import PGVGPMIL, VGPMIL
from bagwise.models.psi import GammaVGPMIL, PsiVGPMIL
from bagwise.models.large_margin import LargeMarginVGPMIL
from bagwise.models.ising import IsingVGPMIL
from bagwise.models.mirvm import MIRVM, RVM, MILogisticRegression
from bagwise.models.multitask import MultiTaskMIRVM
from bagwise.models._gaussian_process import GaussianProcessMIL
from bagwise.models._parts import Init, Parts
from bagwise.models.registry import ALIASES, MODELS

__all__ = [
    "ALIASES",
    "MIRVM",
    "MODELS",
    "PGVGPMIL",
    "RVM",
    "VGPMIL",
    "GammaVGPMIL",
    "GaussianProcessMIL",
    "Init",
    "IsingVGPMIL",
    "LargeMarginVGPMIL",
    "MILogisticRegression",
    "MultiTaskMIRVM",
    "Parts",
    "ProbitVGPMIL",
    "PsiVGPMIL",
]
