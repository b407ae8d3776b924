"""A fit that does not finish changes nothing; one that does leaves nothing of an earlier one."""

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


def forget_earlier_fit(estimator: Any) -> None:
    """Drop the attributes of an earlier fit, whose names end in an underscore.

    Not every fit sets all of them: what was learned of another model would stay.

    >>> from types import SimpleNamespace
    >>> model = SimpleNamespace(H=100, H_=12.5)
    >>> forget_earlier_fit(model)
    >>> vars(model)
    {'H': 100}
    """
    for name in [n for n in vars(estimator) if n.endswith("_") and not n.startswith("_")]:
        delattr(estimator, name)
