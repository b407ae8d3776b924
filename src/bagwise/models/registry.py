"""Which models there are: by class name, for model files, and by short name, for commands.

Classes add themselves when they are defined, also those of other packages, whose model files
`bagwise.load` reads once their module has been imported.
"""

from __future__ import annotations

import inspect
from typing import Any

MODELS: dict[str, type[Any]] = {}
ALIASES: dict[str, str] = {}  # short name -> class name


def add_model(cls: type[Any], alias: str | None) -> None:
    """Add a class, or put it in the place of one that its module defined before.

    Notebooks define the same class again; two classes of one name could not be told apart in
    model files.
    """
    name = cls.__name__
    known = MODELS.get(name)
    if known is not None and _home(known) != _home(cls):
        raise TypeError(
            f"there is a model {name!r} already, {'.'.join(_home(known))}, and model files know "
            f"models by this name; give the class {'.'.join(_home(cls))} another one"
        )
    if alias is not None and ALIASES.get(alias, name) != name:
        raise TypeError(
            f"{alias!r} is the short name of {ALIASES[alias]} already; give {name} another alias"
        )
    MODELS[name] = cls
    for short in [short for short, kind in ALIASES.items() if kind == name]:
        del ALIASES[short]
    if alias is not None:
        ALIASES[alias] = name


def class_name(name: str) -> str:
    """The class that a short name or a class name stands for, in any case; else the name itself.

    >>> import bagwise.models
    >>> class_name("MiRVM"), class_name("probitvgpmil"), class_name("svm")
    ('MIRVM', 'ProbitVGPMIL', 'svm')
    """
    return ({kind.lower(): kind for kind in MODELS} | ALIASES).get(name.lower(), name)


def _home(cls: type[Any]) -> tuple[str, str]:
    """Where a class was defined."""
    return cls.__module__, cls.__qualname__


def complete_signature(cls: type[Any]) -> None:
    """Show a model's own arguments and those that it shares in one signature."""
    if "__init__" not in vars(cls):
        return
    own = _named(inspect.signature(cls.__init__))
    shared = _named(inspect.signature(super(cls, cls).__init__))
    merged = [*own.values(), *(p for n, p in shared.items() if n not in own)]
    cls.__init__.__signature__ = inspect.Signature(merged)


def _named(signature: inspect.Signature) -> dict[str, inspect.Parameter]:
    """The parameters of a signature but for *args and **kwargs."""
    collecting = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {n: p for n, p in signature.parameters.items() if p.kind not in collecting}
