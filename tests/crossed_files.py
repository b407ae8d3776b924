"""Which files of the package a fit goes through: `python tests/crossed_files.py fit`.

In place of `fit`, `predict` or `command` (`bagwise fit table.csv`).

Counted are files of which a function is called; what runs while a module is imported is not.
"""

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "bagwise"
IS_FUNCTION = 1  # CO_OPTIMIZED, which bodies of classes and modules lack


def crossed_files(call: Callable[[], Any]) -> list[str]:
    """Files of the package in which a function is called, by their paths below it."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_flags & IS_FUNCTION:
            found.add(frame.f_code.co_filename)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    root = f"{PACKAGE}/"
    return sorted(Path(f).as_posix().removeprefix(root) for f in found if f.startswith(root))


def bags_of_points() -> Any:
    """Twenty bags of four points; one of a positive bag lies apart."""
    import bagwise as bw

    rng = np.random.default_rng(0)
    X = rng.normal(size=(20, 4, 2))
    X[1::2, 0] += 3
    ids = np.repeat([f"b{b:02d}" for b in range(20)], 4)
    return bw.Bags.from_arrays(X.reshape(-1, 2), ids, y=np.arange(20) % 2)


def files_of_fit() -> list[str]:
    """Files that `ProbitVGPMIL().fit(bags)` goes through."""
    import bagwise as bw

    bags, model = bags_of_points(), bw.ProbitVGPMIL(random_state=0)
    return crossed_files(lambda: model.fit(bags))


def files_of_predict() -> list[str]:
    """Files that `model.predict_proba(bags)` goes through."""
    import bagwise as bw

    bags = bags_of_points()
    model = bw.ProbitVGPMIL(random_state=0).fit(bags)
    return crossed_files(lambda: model.predict_proba(bags))


def files_of_command() -> list[str]:
    """Files that `bagwise fit table.csv` goes through."""
    from typer.testing import CliRunner

    from bagwise.cli.app import build_app

    build_app()
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "table.csv"
        bags_of_points().to_frame().to_csv(table, index=False)
        command = ["fit", str(table), "-o", str(Path(folder) / "m.bagwise")]
        result = []
        found = crossed_files(lambda: result.append(CliRunner().invoke(build_app(), command)))
    assert result[0].exit_code == 0, result[0].stderr
    return found


TRACES = {
    "fit": ("ProbitVGPMIL().fit", files_of_fit),
    "predict": ("predict_proba", files_of_predict),
    "command": ("bagwise fit table.csv", files_of_command),
}

if __name__ == "__main__":
    what, trace = TRACES[sys.argv[1]]
    files = trace()
    print(f"`{what}` goes through {len(files)} files")
    print(*(f"    {file}" for file in files), sep="\n")
