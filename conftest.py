"""What tests and doctests share."""

import sys
from collections.abc import Iterator
from importlib.util import find_spec

import pytest

# Their files import torch, so that collecting them fails without it; tests/deep say why they skip.
collect_ignore_glob = [] if find_spec("torch") else ["src/bagwise/deep/*.py"]
# Importing it registers a model and more, which only those tests may see that ask for it.
collect_ignore = ["tests/own_extensions.py"]
if not find_spec("rdkit"):  # its example makes conformers
    collect_ignore.append("src/bagwise/io/molecules.py")


@pytest.fixture(autouse=True)
def closed_figures() -> Iterator[None]:
    """Close the figures of a test: matplotlib warns where many are open."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
