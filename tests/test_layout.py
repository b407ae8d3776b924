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

# From the bottom of the library to the top. A name stands for a file or for a whole package,
# whose files may import each other. Execution comes before infer, whose loop calls it.
ORDER = [
    "exceptions",
    "fitting",
    "parameters",
    "linalg",
    "threads",
    "rows",
    "bag_checks",
    "bag_alignment",
    "label_order",
    "column_names",
    "label_like",
    "bag_inputs",
    "frame_columns",
    "bag_keys",
    "bag_sources",
    "boxes",
    "bags",
    "ranking",
    "io",
    "graphs",
    "validation",
    "kernels",
    "inducing",
    "features",
    "residuals",
    "densities",
    "links",
    "labels",
    "label_posterior",
    "couplings",
    "orthants",
    "coupled_moments",
    "sites",
    "stateful_sites",
    "ising",
    "storage",
    "execution",
    "distributed",
    "infer",
    "joint",
    "posterior",
    "mixture",
    "coupled_posterior",
    "rvm",
    "transformers",
    "checkpoints",
    "classifier",
    "bag_calibration",
    "loaded_models",
    "base",
    "progress",
    "ising_estimator",
    "rvm_estimators",
    "multitask",
    "estimators",
    "model_states",
    "multiclass",
    "saving",
    "one_model",
    "datasets",
    "baselines",
    "metrics",
    "seen_bags",
    "model_names",
    "class_labels",
    "leaks",
    "workflow",
    "cluster_workflow",
    "model_card",
    "plots",
    "benchmark",
    "report",
    "demo",
    "cli_errors",
    "cli_cluster",
    "cli_options",
    "cli_output",
    "cli_shared",
    "cli_tables",
    "cli_demo",
    "cli_benchmark",
    "cli",
    "__main__",
    "deep",
    "detection",
]

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
]


def unit_of(module: str) -> str:
    """'bagwise.infer.loop' -> 'infer'; the package itself is ''."""
    return [*module.split("."), ""][1]


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_modules(path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of every bagwise module that a file imports, at any depth."""
    package = path.parent.relative_to(SRC).parts
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), filename=str(path))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            stem = ".".join([*base, *([node.module] if node.module else [])])
            # `from bagwise import bags` names a module, `from bagwise.bags import Bags` does not.
            names = [f"{stem}.{a.name}" for a in node.names] if stem == "bagwise" else [stem]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.split(".")[0] == "bagwise")


def source_files() -> list[Path]:
    return [p for p in sorted(PACKAGE.rglob("*.py")) if p != PACKAGE / "__init__.py"]


def test_every_file_has_its_place() -> None:
    units = {unit_of(module_name(path)) for path in source_files()}
    unknown = sorted(units - set(ORDER))
    assert not unknown, (
        f"{', '.join(unknown)} not in ORDER of tests/test_layout.py; "
        "add each at the place that its imports allow"
    )


@pytest.mark.parametrize("path", source_files(), ids=lambda p: module_name(p))
def test_imports_only_what_is_above(path: Path) -> None:
    own = unit_of(module_name(path))
    if own not in ORDER:
        pytest.skip("reported by test_every_file_has_its_place")
    allowed = set(ORDER[: ORDER.index(own) + 1])
    wrong = [
        f"line {line} imports {name}"
        for line, name in imported_modules(path)
        if unit_of(name) not in allowed
    ]
    assert not wrong, (
        f"{path.relative_to(SRC)}: {'; '.join(wrong)}. "
        f"It may import only: {', '.join(sorted(allowed))}; move the code, or the file in ORDER"
    )


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


def test_every_benchmark_is_run_by_run_all() -> None:
    folder = SRC.parent / "benchmarks"
    listed = (folder / "run.py").read_text(encoding="utf-8")
    helpers = {"run.py", "shared_data.py"}
    missing = [
        p.name for p in folder.glob("*.py") if p.name not in helpers and f'"{p.name}"' not in listed
    ]
    assert not missing, f"add {missing} to benchmarks/run.py"
