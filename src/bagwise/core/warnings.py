"""Warnings of the package, and how they are given."""

from __future__ import annotations

import sys
import warnings


class NearChanceWarning(UserWarning):
    """A fit ended, but its model ranks bags hardly better than chance.

    To turn it into an error: `warnings.simplefilter("error", bagwise.NearChanceWarning)`.
    """


class ConstantFeaturesWarning(NearChanceWarning):
    """No instance of a fit differs from another, whatever the labels are."""


class ShiftWarning(UserWarning):
    """Bags to predict look unlike those that the model was fitted to."""


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the line of the caller outside of this package, however deep the reason lies."""
    package = __name__.partition(".")[0]
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and _package(frame.f_globals) == package:
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)


def called_by(package: str) -> bool:
    """Whether a function of a package waits for this call."""
    frame = sys._getframe(1).f_back
    while frame is not None:
        if str(frame.f_globals.get("__name__", "")).startswith(package):
            return True
        frame = frame.f_back
    return False


def _package(names: dict[str, object]) -> str:
    return str(names.get("__name__", "")).partition(".")[0]
