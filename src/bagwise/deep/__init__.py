"""Neural networks with attention, trained on bag labels; needs PyTorch (the extra `torch`).

torch is imported when a network is first built, not by `import bagwise.deep`.
"""

from bagwise.deep.attention import AttentionMIL
from bagwise.deep.features import AttentionFeatures
from bagwise.deep.loading import load_network
from bagwise.deep.probit import DeepProbitMIL

__all__ = ["AttentionFeatures", "AttentionMIL", "DeepProbitMIL", "load_network"]
