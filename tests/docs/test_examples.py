"""Scripts in examples/ run without a screen.

`make docs` runs all examples and stops where one fails, but for those whose package or data it
does not find: these are run here, where there are both.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def names_in_configuration() -> list[str]:
    """Examples that docs/conf.py runs only under a condition."""
    text = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    conditions = re.search(r"^runnable = \{(.*?)^\}", text, re.MULTILINE | re.DOTALL)
    assert conditions is not None
    return re.findall(r'^    "(\w+)":', conditions.group(1), re.MULTILINE)


def run_example(name: str, folder: Path, **variables: str) -> None:
    """Run a script in a folder that must stay empty: examples show figures, and leave no files."""
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "MPLBACKEND": "Agg", **variables}
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / f"{name}.py")],
        env=env,
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not list(folder.iterdir())


def test_the_gallery_takes_all_examples() -> None:
    stems = [path.stem for path in EXAMPLES]
    assert stems
    assert all(stem.startswith("plot_") for stem in stems), "the gallery runs plot_*.py"
    assert {f"plot_{name}" for name in names_in_configuration()} <= set(stems)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda p: p.stem)
def test_examples_are_python_and_show_their_figures(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    compile(text, str(path), "exec")
    assert "plt.show()" in text
    assert "savefig" not in text


def test_conformers_example(tmp_path: Path) -> None:
    pytest.importorskip("rdkit", reason='needs RDKit: pip install "bagwise[molecules]"')
    run_example("plot_conformers", tmp_path)


def test_attention_example(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason='needs: pip install ".[torch]"')
    run_example("plot_attention_and_gp", tmp_path)


def test_nuclei_example(tmp_path: Path, shared_dir: Path) -> None:
    if not (shared_dir / "data" / "colon_nuclei.npz").is_file():
        pytest.skip("no colon_nuclei.npz among the shared data")
    run_example("plot_nuclei_heatmap", tmp_path, BAGWISE_SHARED=str(shared_dir))
