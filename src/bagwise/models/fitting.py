"""A fit that does not finish changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def all_or_nothing(estimator: Any) -> Iterator[None]:
    """Put an estimator's attributes back where the work inside ends in an error or in Ctrl-C.

    A model that was fitted before predicts as before; one that was not stays unfitted.

    >>> from types import SimpleNamespace
    >>> model = SimpleNamespace(posterior_="of an earlier fit")
    >>> try:
    ...     with all_or_nothing(model):
    ...         model.posterior_, model.elbo_ = "new", -1.0
    ...         raise KeyboardInterrupt
    ... except KeyboardInterrupt:
    ...     vars(model)
    {'posterior_': 'of an earlier fit'}
    """
    attributes = vars(estimator)
    before = dict(attributes)
    try:
        yield
    except BaseException:
        attributes.update(before)
        for name in attributes.keys() - before.keys():
            del attributes[name]
        raise
