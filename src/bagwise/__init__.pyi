# The public names of bagwise, each once: __init__.py imports them from here when first used.
from bagwise import baselines as baselines
from bagwise import benchmark as benchmark
from bagwise import datasets as datasets
from bagwise import deep as deep
from bagwise import densities as densities
from bagwise import detection as detection
from bagwise import distributed as distributed
from bagwise import io as io
from bagwise import kernels as kernels
from bagwise import metrics as metrics
from bagwise import plots as plots
from bagwise import report as report
from bagwise.bags import Bags as Bags
from bagwise.core.files.modelfile import ModelFileError as ModelFileError
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

__version__: str
