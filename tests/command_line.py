"""Commands run in this process, and a table to run them on."""

from typing import Any

import numpy as np
import pandas as pd
from typer.testing import CliRunner

from bagwise.cli.app import build_app


def run(*arguments: Any, stdin: bytes | None = None):  # type: ignore[no-untyped-def]
    return CliRunner().invoke(build_app(), [str(a) for a in arguments], input=stdin)


def good(*arguments: Any, **more: Any) -> str:
    result = run(*arguments, **more)
    assert result.exit_code == 0, result.output + result.stderr
    return str(result.stdout)


def refused(*arguments: Any) -> str:
    """Standard error of a command that must stop with exit code 2 and one line."""
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.stderr
    errors = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1, result.stderr
    assert result.stderr.rstrip().endswith(errors[0])
    return errors[0]


def small_frame(n_bags: int = 16, seed: int = 0) -> pd.DataFrame:
    """Bags of three, shuffled; the first instance of a positive bag gives it away."""
    rng = np.random.default_rng(seed)
    y = np.arange(n_bags) % 2
    X = rng.normal(size=(n_bags, 3, 2))
    X[y == 1, 0] += 4
    frame = pd.DataFrame(X.reshape(-1, 2), columns=["area", "shade"])
    frame.insert(0, "slide", np.repeat([f"s{b:02d}" for b in range(n_bags)], 3))
    frame["diagnosis"] = np.repeat(np.where(y == 1, "cancer", "healthy"), 3)
    frame["x"], frame["y"] = rng.integers(0, 9, (2, len(frame)))
    frame["comment"] = "=1+1"
    return frame.sample(frac=1, random_state=seed, ignore_index=True)
