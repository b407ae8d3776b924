"""Neural networks with attention, trained on bag labels; needs PyTorch (the extra `torch`).

torch is imported when a network is first built, not by `import bagwise.deep`.
"""

from bagwise.deep.attention import AttentionMIL, load_network
from bagwise.deep.features import AttentionFeatures

__all__ = ["AttentionFeatures", "AttentionMIL", "load_network"]
