"""Colours that all figures share, and the check that matplotlib is there."""

from __future__ import annotations

# Okabe and Ito's colours, which stay apart for all common kinds of colour blindness.
POSITIVE = "#D55E00"
PROBABILITY = "#0072B2"
INK = "#222222"
QUIET = "#6E6E6E"
TRACK = "#E3E3E3"


def require_matplotlib() -> None:
    """Raise an ImportError that names the extra to install where matplotlib is missing."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError(
            'figures need matplotlib, which is not installed; run: pip install "bagwise[plot]"'
        ) from error
