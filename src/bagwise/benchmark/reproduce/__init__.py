"""The experiments of the five papers by one command: published figures beside our own.

`reproduce("v17", quick=True)` is what `bagwise reproduce v17 --quick` calls. Each paper has a file
that says, for each of its tables and figures, on which data which settings are run and what was
published; where data cannot be had, a stand-in of the same shape takes their place, which the page
says. Results are kept row by row, and a second run goes on where the first one stopped.
"""

from bagwise.benchmark.reproduce.run import PAPERS, Outcome, reproduce

__all__ = ["PAPERS", "Outcome", "reproduce"]
