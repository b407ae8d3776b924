"""Leave out the doctests of packages whose optional dependency is not installed."""

from importlib.util import find_spec

# Their files import torch, so that collecting them fails without it; tests/deep say why they skip.
collect_ignore_glob = [] if find_spec("torch") else ["src/bagwise/deep/*.py"]
