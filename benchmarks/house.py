"""How the source is built: sizes of files and functions, files that a fit goes through."""

import ast
import subprocess
import sys
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "src" / "bagwise"
TRACES = ROOT / "tests" / "crossed_files.py"
LONGEST = 5  # files to name


def main() -> None:
    print_sizes()
    sys.stdout.flush()
    for way in ("fit", "command"):  # each in a process of its own: what is kept is not traced again
        subprocess.run([sys.executable, TRACES, way], check=True)


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
