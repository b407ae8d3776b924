"""`bagwise doctor`: what is installed, what the machine has, and what to install for what."""

from __future__ import annotations

import os
import platform
import sys
from importlib import import_module, metadata
from typing import Any

from bagwise.cli.errors import printable
from bagwise.cli.options import Debug, Json

CORE = ("numpy", "scipy", "scikit-learn", "threadpoolctl")
# What each extra is for, and its packages: those of pyproject.toml, which a test compares.
EXTRAS: dict[str, tuple[str, tuple[str, ...]]] = {
    "cli": ("the bagwise command", ("typer", "rich")),
    "report": ("pages that explain predictions", ("jinja2",)),
    "plot": ("figures", ("matplotlib",)),
    "io": (
        "tables, slides, scans, pictures, .h5ad files",
        ("pandas", "pyarrow", "h5py", "pillow", "pydicom", "shapely"),
    ),
    "scverse": ("AnnData objects, Zarr stores, SpatialData", ("anndata", "h5py", "zarr")),
    "molecules": ("conformers of molecules", ("rdkit",)),
    "dask": ("fits on a cluster", ("dask", "distributed")),
    "datasets": ("data sets that are downloaded", ("pooch",)),
    "label": (
        "a page to label instances on",
        ("fastapi", "uvicorn", "pandas", "pyarrow", "pillow"),
    ),
    "torch": ("attention networks, .pt files", ("torch", "safetensors")),
    "detection": ("selective search in pictures", ("opencv-contrib-python-headless",)),
}


def doctor(json: Json = False, debug: Debug = False) -> None:
    """Say what is installed, what this machine has, and what to install for what; never fails.

    [bold]Examples[/bold]

    [cyan]bagwise doctor[/cyan]

    [cyan]bagwise doctor --json[/cyan] (to paste into a report of a problem)
    """
    found = examine()
    if json:
        import json as encoder

        print(encoder.dumps(found))
        return
    for line in lines(found):
        print(printable(line))


def examine() -> dict[str, Any]:
    """Everything that is found; what cannot be found out is None, or says why."""
    return {
        "bagwise": _version("bagwise"),
        "python": platform.python_version(),
        "executable": sys.executable,
        "system": platform.platform(),
        "packages": {name: _version(name) for name in CORE},
        "extras": {
            extra: {
                "for": purpose,
                "packages": (versions := {name: _version(name) for name in packages}),
                "complete": None not in versions.values(),
                "install": f'pip install "bagwise[{extra}]"',
            }
            for extra, (purpose, packages) in EXTRAS.items()
        },
        "blas": _tried(_blas),
        "cores": os.cpu_count(),
        "usable_cores": _tried(lambda: len(os.sched_getaffinity(0))),
        "free_memory": _tried(_free_memory),
        "problems": _problems(),
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except Exception:  # a package may be there without a record of it, or with a damaged one
        return None


def _tried(look: Any) -> Any:
    """What a look finds; a doctor must not fall ill."""
    try:
        return look()
    except Exception as error:
        return f"not found out ({type(error).__name__}: {error})"[:200]


def _blas() -> list[dict[str, Any]]:
    import_module("scipy.linalg")  # which may bring a BLAS of its own
    from threadpoolctl import threadpool_info

    keys = ("user_api", "internal_api", "version", "num_threads", "architecture")
    return [{key: library.get(key) for key in keys} for library in threadpool_info()]


def _free_memory() -> int:
    from bagwise.core.inference.feature_store import free_memory

    return free_memory()


def _problems() -> list[str]:
    """Packages that are installed but do not load: their own words say why."""
    modules = {"scikit-learn": "sklearn", "pillow": "PIL", "opencv-contrib-python-headless": "cv2"}
    names = dict.fromkeys([*CORE, *(n for _, packages in EXTRAS.values() for n in packages)])
    found = []
    for name in names:
        if _version(name) is None:
            continue
        try:
            import_module(modules.get(name, name))
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            found.append(f"{name} is installed but does not load: {why[:200]}; reinstall it")
    return found


def lines(found: dict[str, Any]) -> list[str]:
    """What was found, in words."""
    packages = ", ".join(
        f"{name} {version or 'MISSING'}" for name, version in found["packages"].items()
    )
    said = [
        f"bagwise {found['bagwise'] or '(not installed, run from its sources)'}",
        f"Python {found['python']} on {found['system']}",
        packages,
        *_machine(found),
        "",
        "extras:",
    ]
    for extra, one in found["extras"].items():
        there = [f"{name} {version}" for name, version in one["packages"].items() if version]
        missing = [name for name, version in one["packages"].items() if not version]
        if one["complete"]:
            said.append(f"  [x] {extra:<10} {one['for']}: {', '.join(there)}")
        else:
            said.append(
                f"  [ ] {extra:<10} {one['for']}: {', '.join(missing)} missing; {one['install']}"
            )
    said += ["", *(found["problems"] or ["all that is installed loads"])]
    return said


def _machine(found: dict[str, Any]) -> list[str]:
    memory = found["free_memory"]
    free = f"{memory / 2**30:.1f} GiB free memory" if isinstance(memory, int) else str(memory)
    said = [f"{found['usable_cores']} of {found['cores']} cores usable, {free}"]
    if isinstance(found["blas"], str):
        return [*said, f"BLAS: {found['blas']}"]
    for library in found["blas"]:
        name = f"{library['internal_api']} {library['version'] or ''}".strip()
        said.append(f"{library['user_api']}: {name}, {library['num_threads']} threads")
    return said
