"""Optional packages of the readers: imported when needed, or an error with the remedy."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def require(module: str, *, what: str, extra: str) -> Any:
    """The module, or an ImportError that says which extra to install.

    >>> require("json", what="reading JSON", extra="io").loads("[1]")
    [1]
    """
    try:
        return import_module(module)
    except ImportError as error:
        package = module.split(".")[0]
        raise ImportError(
            f"{what} needs {package}, which is not installed; run: {install_line(extra)}"
        ) from error


def install_line(extra: str) -> str:
    """What installs an extra: bagwise is installed from a clone.

    >>> install_line("io")
    'pip install ".[io]" in your clone of bagwise'
    """
    return f'pip install ".[{extra}]" in your clone of bagwise'
