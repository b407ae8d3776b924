"""Compare models on data sets: one protocol, every figure reproducible by one command.

`run` is what `bagwise benchmark` calls. Everything is fitted inside the folds, results are written
fold by fold, and a second run goes on where the first one stopped.
"""

from bagwise.benchmark.protocol import Job, evaluate, splits
from bagwise.benchmark.registry import DEFAULT_MODELS, DEFAULT_SETS, Problem, make_model, problems
from bagwise.benchmark.report import mean_ranks, summary_table, write_report
from bagwise.benchmark.results import ConfigurationError, Store
from bagwise.benchmark.run import run

__all__ = [
    "DEFAULT_MODELS",
    "DEFAULT_SETS",
    "ConfigurationError",
    "Job",
    "Problem",
    "Store",
    "evaluate",
    "make_model",
    "mean_ranks",
    "problems",
    "run",
    "splits",
    "summary_table",
    "write_report",
]
