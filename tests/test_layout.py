"""Each file of the package imports only files above it, and importing it stays light."""

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SRC = Path(__file__).resolve().parent.parent / "src"
PACKAGE = SRC / "bagwise"

# From the bottom of the library to the top. A name stands for a file or for a whole package, whose
# files may import each other; those of one line may not.
LAYERS = [
    ("core.warnings",),
    ("kernels", "densities"),
    ("bags",),
    ("core.parameters", "core.linalg", "core.smoothing", "core.threads", "core.rounds"),
    ("core.links",),
    ("core.features", "core.residuals"),
    ("core.files",),
    ("core.likelihoods",),
    ("core.inference",),
    ("core.linear",),
    ("core.posteriors",),
    ("core.calibration",),
    ("io",),
    ("distributed",),
    ("models",),
    ("datasets", "metrics", "baselines"),
    ("inspection",),
    ("plots",),
    ("report",),
    ("benchmark",),
    ("deep", "detection"),
    ("benchmark.reproduce",),
    ("cli",),
    ("__main__",),
]
RANK = {room: rank for rank, layer in enumerate(LAYERS) for room in layer}
MOST_LINES = 350  # of a file
# At the top of the package, beside py.typed; all are names for users, of which `inspection` is one.
MOST_ROOMS = 19

# Files that a fit may go through; to be lowered as they get fewer, never raised without need.
MOST_CROSSED = {"files_of_fit": 57, "files_of_command": 85}

OPTIONAL = [
    "torch",
    "safetensors",
    "dask",
    "distributed",
    "pandas",
    "matplotlib",
    "typer",
    "jinja2",
    "h5py",
    "pydicom",
    "PIL",
    "cv2",
    "pooch",
    "shapely",
    "fastapi",
    "uvicorn",
    "anndata",
    "zarr",
    "rdkit",
]


def room_of(module: str) -> str:
    """'bagwise.core.inference.loop' -> 'core.inference'; '' for the package itself."""
    name = module.partition(".")[2]
    rooms = [room for room in RANK if name == room or name.startswith(f"{room}.")]
    return max(rooms, key=len, default=name)


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


class WithoutTypes(ast.NodeTransformer):
    """Leaves out what only type checkers import."""

    def visit_If(self, node: ast.If) -> ast.AST | None:
        return None if ast.unparse(node.test) == "TYPE_CHECKING" else self.generic_visit(node)


MODULES = {module_name(path) for path in PACKAGE.rglob("*.py")}


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every bagwise module that a file imports, at any depth."""
    package = path.parent.relative_to(SRC).parts
    tree = ast.parse(path.read_text(encoding="utf-8"), filename=str(path))
    for node in ast.walk(WithoutTypes().visit(tree)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join([*base, *([node.module] if node.module else [])])
            # `from bagwise.bags import checks` names a module, `from bagwise.bags import Bags` not.
            within = [f"{stem}.{a.name}" for a in node.names]
            names = [name if name in MODULES else stem for name in within]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == "bagwise")


def source_files() -> list[Path]:
    return [p for p in sorted(PACKAGE.rglob("*.py")) if p != PACKAGE / "__init__.py"]


def test_every_file_has_its_place() -> None:
    rooms = {room_of(module_name(path)) for path in source_files()}
    only_parents = {"core"}
    unknown = sorted(rooms - set(RANK) - only_parents)
    assert not unknown, f"{', '.join(unknown)} in no layer of tests/test_layout.py"


def test_the_top_of_the_package_is_short() -> None:
    entries = {p.name for p in PACKAGE.iterdir()} - {"__pycache__", "py.typed"}
    assert len(entries) <= MOST_ROOMS, f"too many to look through: {sorted(entries)}"


def test_files_are_short() -> None:
    sizes = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in PACKAGE.rglob("*.py")}
    long = [f"{p.relative_to(PACKAGE)} ({n})" for p, n in sizes.items() if n > MOST_LINES]
    assert not long, f"over {MOST_LINES} lines: {', '.join(long)}; split them by subject"


@pytest.mark.parametrize("path", source_files(), ids=lambda p: module_name(p))
def test_imports_only_what_is_below(path: Path) -> None:
    own = room_of(module_name(path))
    if own not in RANK:
        assert not list(imported_modules(path)), f"{own} only names what is in it"
        return
    wrong = [
        f"line {line} imports {name}"
        for line, name in imported_modules(path)
        if room_of(name) != own and RANK.get(room_of(name), 99) >= RANK[own]
    ]
    assert not wrong, f"{path.relative_to(SRC)}: {'; '.join(wrong)}; move the code, or the room"


def cycle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a ring, or none."""
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> list[str]:
        if module in path:
            return path[path.index(module) :]
        if module in done:
            return []
        for other in sorted(graph.get(module, ())):
            if ring := visit(other, [*path, module]):
                return ring
        done.add(module)
        return []

    return next((ring for module in sorted(graph) if (ring := visit(module, []))), [])


def test_a_cycle_is_found() -> None:
    assert cycle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c"]
    assert cycle({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_no_module_is_imported_through_a_cycle() -> None:
    """Imports inside functions count, and those of packages, whose names come from their files."""
    graph = {
        module_name(path): {name for _, name in imported_modules(path)} for path in source_files()
    }
    assert not (ring := cycle(graph)), f"a ring of imports: {' -> '.join(ring)}"


def run_python(code: str) -> str:
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded_by(module: str) -> set[str]:
    out = run_python(f"import sys, {module}\nprint(*(m for m in {OPTIONAL} if m in sys.modules))")
    return set(out.split())


def test_import_loads_no_optional_package() -> None:
    # scikit-learn loads pandas by itself where it is installed: that much is not ours.
    extra = loaded_by("bagwise") - loaded_by("sklearn")
    assert not extra, f"`import bagwise` loads {sorted(extra)}; import them where they are used"


def test_import_needs_no_optional_package() -> None:
    run_python(f"import sys\nsys.modules.update(dict.fromkeys({OPTIONAL}))\nimport bagwise")


@pytest.mark.parametrize("way", MOST_CROSSED)
def test_a_fit_goes_through_few_files(way: str) -> None:
    pytest.importorskip("typer")
    pytest.importorskip("pyarrow")
    # In a process of its own: what was imported before must not matter.
    code = f"import sys\nsys.path.insert(0, {str(Path(__file__).parent)!r})\nimport crossed_files"
    found = run_python(f"{code}\nprint(*crossed_files.{way}())").split()
    assert len(found) <= MOST_CROSSED[way], f"{len(found)} files: {found}"


def test_every_benchmark_is_run_by_run_all() -> None:
    folder = SRC.parent / "benchmarks"
    listed = (folder / "run.py").read_text(encoding="utf-8")
    helpers = {"run.py", "shared_data.py"}
    missing = [
        p.name for p in folder.glob("*.py") if p.name not in helpers and f'"{p.name}"' not in listed
    ]
    assert not missing, f"add {missing} to benchmarks/run.py"
