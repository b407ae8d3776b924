"""`load_network`: networks of files, of whichever kind they are."""

from __future__ import annotations

import os
from typing import Any

from bagwise.deep.attention import AttentionMIL
from bagwise.deep.files import read_network
from bagwise.deep.probit import DeepProbitMIL


def load_network(path: str | os.PathLike[str], *, encoder: Any = None, device: str = "cpu") -> Any:
    """Read a network that `AttentionMIL.save` or `DeepProbitMIL.save` wrote; nothing in it is run.

    `encoder` is needed if the network was trained with a `torch.nn.Module` of yours: a module of
    the same architecture, whose weights are then replaced by those of the file. `device` is where
    a `DeepProbitMIL` encodes instances from now on, whatever it was trained on.
    """
    return read_network((AttentionMIL, DeepProbitMIL), path, encoder, device)
