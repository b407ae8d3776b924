"""bagwise: Bayesian multiple instance learning.

Labels are known for bags only; a bag is positive if at least one of its instances is. bagwise
gives a probability with its uncertainty for every bag and for every instance.
"""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

__version__ = "0.1.0"

# The stub has the public names, each once, for type checkers and for this. Each is imported when
# first used, so that the command line answers at once.
_STUB = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
_HOME = {
    name.name: str(node.module)
    for node in _STUB.body
    if isinstance(node, ast.ImportFrom)
    for name in node.names
}
__all__ = sorted([*_HOME, "__version__"])


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'bagwise' has no attribute {name!r}")
    if _HOME[name] == "bagwise":
        return import_module(f"bagwise.{name}")
    value = globals()[name] = getattr(import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
