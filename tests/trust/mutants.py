"""`make mutants`: small errors put into the core one at a time, of which tests must notice each.

A sample of the places where an operator, a comparison or a number could be wrong is changed in a
copy of the package; a mutant survives where the tests of its file still pass. Some survivors are
no errors (a tolerance that may be another): they are printed, to be looked at.
"""

from __future__ import annotations

import argparse
import ast
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import mpmath
import numpy as np
import pandas as pd
import pytest
import scipy.optimize
import scipy.stats
import sklearn.linear_model

ROOT = Path(__file__).parents[2]
TESTED = {
    "core/links.py": ["tests/core/test_links.py", "tests/trust/test_extremes.py"],
    "core/likelihoods/at_least_one.py": [
        "tests/core/likelihoods/test_at_least_one.py",
        "tests/trust/test_extremes.py",
    ],
    "core/likelihoods/count_rule.py": ["tests/core/likelihoods/test_count_rule.py"],
    "core/likelihoods/bag_scores.py": [
        "tests/core/likelihoods/test_bag_scores.py",
        "tests/core/posteriors/test_averaged.py",
    ],
    "core/likelihoods/targets.py": [
        "tests/core/likelihoods/test_targets.py",
        "tests/core/likelihoods/test_at_least_one.py",
        "tests/core/inference/test_laplace.py",
    ],
    "core/inference/stats.py": [
        "tests/core/inference/test_passes.py",
        "tests/core/inference/test_newton_logistic.py",
        "tests/core/inference/test_newton_probit.py",
        "tests/core/inference/test_laplace.py",
        "tests/core/inference/test_elbo.py",
    ],
    "core/calibration/bags.py": ["tests/core/calibration"],
    "core/calibration/pooled.py": ["tests/core/calibration"],
    "core/calibration/ranking.py": ["tests/core/calibration"],
    "core/calibration/instances.py": ["tests/core/calibration"],
    "core/calibration/instance_ends.py": ["tests/core/calibration"],
}
OTHERS: dict[type, type] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.Pow: ast.Mult,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.USub: ast.UAdd,
}
FAST = "not float32 and not near_singular"  # tests that look at other things, and are slow
SECONDS = 200  # of processor time, after which a mutant that does not end is noticed too
PRELOADED = (mpmath, pd, scipy.optimize, scipy.stats, sklearn.linear_model)


def changes(tree: ast.AST) -> Iterator[tuple[ast.AST, str, object]]:
    """Node, field and new value of every change that is tried; texts and types stay."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list"):
                continue
            waiting += [v for v in (value if isinstance(value, list) else [value])
                        if isinstance(v, ast.AST)]  # fmt: skip
        if isinstance(node, ast.BinOp | ast.BoolOp | ast.UnaryOp) and type(node.op) in OTHERS:
            yield node, "op", OTHERS[type(node.op)]()
        elif isinstance(node, ast.Compare) and type(node.ops[0]) in OTHERS:
            yield node, "ops", [OTHERS[type(node.ops[0])](), *node.ops[1:]]
        elif isinstance(node, ast.Constant) and type(node.value) in (int, float):
            yield node, "value", node.value + 1
        elif isinstance(node, ast.Constant) and type(node.value) is bool:
            yield node, "value", not node.value


def survives(project: Path, file: str, text: str, tests: list[str]) -> bool:
    """Whether all tests of a file pass with another text in its place.

    They run in a copy of this process, which has imported everything but the package already.
    """
    path = project / "src/bagwise" / file
    good = path.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    try:
        child = os.fork()
        if child == 0:
            _run_tests(project, tests)
        _, status = os.waitpid(child, 0)
        return status == 0
    finally:
        path.write_text(good, encoding="utf-8")


def _run_tests(project: Path, tests: list[str]) -> NoReturn:
    """Run some tests of a project, quietly, and end the process with the outcome."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # of processor time; the signal ends it
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.dont_write_bytecode = True
    os.chdir(project)  # whose pyproject.toml puts its own src first
    code = 1
    try:
        code = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "-k", FAST, *tests]))
    finally:
        os._exit(code)  # not back to the caller, who is the parent's


def copied(project: Path) -> Path:
    """A copy of what tests need."""
    for name in ("src", "tests", "docs"):
        shutil.copytree(ROOT / name, project / name, ignore=shutil.ignore_patterns("_build"))
    shutil.copy(ROOT / "pyproject.toml", project)
    return project


def check_runner(project: Path, sources: dict[str, str]) -> None:
    """Raise unless tests pass on sources as they are, and fail on one that cannot be imported."""
    file = next(iter(sources))
    if not survives(project, file, sources[file], TESTED[file]):
        raise RuntimeError("tests fail without any mutant; mend them first")
    if survives(project, file, "raise ImportError", TESTED[file]):
        raise RuntimeError("tests do not see mutants at all")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutants", type=int, default=100)
    parser.add_argument("--minutes", type=float, default=60, help="after which no more are tried")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="files whose path has this in it")
    options = parser.parse_args()
    sources = {
        file: (ROOT / "src/bagwise" / file).read_text(encoding="utf-8")
        for file in TESTED
        if options.only in file
    }
    places = [
        (file, i)
        for file, text in sources.items()
        for i in range(len(list(changes(ast.parse(text)))))
    ]
    order = np.random.default_rng(options.seed).permutation(len(places))[: options.mutants]
    end, tried, survivors = time.monotonic() + 60 * options.minutes, 0, 0
    with tempfile.TemporaryDirectory() as folder:
        project = copied(Path(folder) / "project")
        check_runner(project, sources)
        for k in order:
            if time.monotonic() > end:
                break
            file, i = places[k]
            tree = ast.parse(sources[file])
            node, field, value = list(changes(tree))[i]
            before = ast.unparse(node)
            setattr(node, field, value)
            tried += 1
            if survives(project, file, ast.unparse(tree), TESTED[file]):
                survivors += 1
                print(f"{file}:{getattr(node, 'lineno', 0)}: {before} -> {ast.unparse(node)}")
                sys.stdout.flush()
    print(f"{tried - survivors} of {tried} mutants noticed, of {len(places)} places")
    return 0


if __name__ == "__main__":
    sys.exit(main())
