"""bagwise: Bayesian multiple instance learning.

Labels are known for bags only; a bag is positive if at least one of its instances is. bagwise
gives a probability with its uncertainty for every bag and for every instance.
"""

from bagwise import datasets, kernels, metrics
from bagwise.bags import Bags
from bagwise.estimators import VGPMIL, ProbitVGPMIL, load
from bagwise.io.modelfile import ModelFileError
from bagwise.transformers import InstanceTransformer

__version__ = "0.1.0"

__all__ = [
    "VGPMIL",
    "Bags",
    "InstanceTransformer",
    "ModelFileError",
    "ProbitVGPMIL",
    "__version__",
    "datasets",
    "kernels",
    "load",
    "metrics",
]
