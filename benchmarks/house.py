"""How the source is built: files that a fit goes through, sizes of files and functions."""

import argparse
import ast
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import numpy as np

import bagwise
from bagwise import ProbitVGPMIL

PACKAGE = Path(bagwise.__file__).parent
LONGEST = 5  # files to name


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--list", action="store_true", help="name the files that a fit runs in")
    parser.add_argument("--command", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.command:
        with tempfile.TemporaryDirectory() as folder:
            table = Path(folder) / "table.csv"
            tiny_bags().to_frame().to_csv(table, index=False)
            show("bagwise fit table.csv", files_of(lambda: run_command(table)), options.list)
        return
    print_sizes()
    bags = tiny_bags()
    show("ProbitVGPMIL().fit", files_of(lambda: ProbitVGPMIL().fit(bags)), options.list)
    sys.stdout.flush()
    # In a process of its own: what the first fit has computed and kept is not traced again.
    more = ["--list"] if options.list else []
    subprocess.run([sys.executable, __file__, "--command", *more], check=True)


# --- Files that a fit goes through ---------------------------------------------------------------


def files_of(work: Callable[[], object]) -> list[str]:
    """Files of the package whose functions run while some work is done; imports do not count."""
    seen: set[str] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_flags & 2:  # of functions; modules and classes have none
            seen.add(code.co_filename)

    work()  # so that everything is imported
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    inside = [Path(name) for name in seen if name.startswith(f"{PACKAGE}{os.sep}")]
    return sorted(path.relative_to(PACKAGE).as_posix() for path in inside)


def tiny_bags() -> bagwise.Bags:
    """Twenty-four bags of one to four instances, enough to be calibrated."""
    rng = np.random.default_rng(0)
    y = np.arange(24) % 2
    return bagwise.Bags.from_list(
        [rng.normal(size=(1 + b % 4, 2)) + 3 * label for b, label in enumerate(y)], y=y
    )


def run_command(table: Path) -> None:
    from typer.testing import CliRunner

    from bagwise.cli.app import build_app

    asked = ["fit", str(table), "-o", str(table.with_suffix(".bagwise")), "--force"]
    done = CliRunner().invoke(build_app(), asked)
    assert done.exit_code == 0, done.output


def show(what: str, files: list[str], listed: bool) -> None:
    print(f"`{what}` goes through {len(files)} files")
    if listed:
        print("\n".join(f"    {name}" for name in files))


# --- Sizes ---------------------------------------------------------------------------------------


def print_sizes() -> None:
    files = {
        path.relative_to(PACKAGE).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(PACKAGE.rglob("*.py"))
    }
    lines = {name: len(text.splitlines()) for name, text in files.items()}
    functions = [f for name, text in files.items() for f in function_sizes(name, text)]
    sizes = np.array([size for size, _ in functions])
    top = [p.name for p in PACKAGE.iterdir() if p.name not in ("__pycache__", "py.typed")]
    longest = sorted(lines, key=lambda name: -lines[name])[:LONGEST]
    print(f"{sum(lines.values())} lines in {len(lines)} files, {len(top)} at the top")
    print(f"longest files: {', '.join(f'{name} {lines[name]}' for name in longest)}")
    print(f"files over 350 lines: {sum(n > 350 for n in lines.values())}")
    print(
        f"{len(sizes)} functions: median {np.median(sizes):.0f} lines, 90th percentile "
        f"{np.percentile(sizes, 90):.0f}, longest {max(functions)[0]} ({max(functions)[1]})"
    )


def function_sizes(name: str, text: str) -> list[tuple[int, str]]:
    """Lines of the body of each function without its docstring, and where it is."""
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            size = node.end_lineno - body[0].lineno + 1 if body and node.end_lineno else 0
            found.append((size, f"{name}:{node.name}"))
    return found


if __name__ == "__main__":
    main()
