"""The examples of docs/images.md run, on files that the test writes."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import numpy as np
import pytest

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "images.md"
FENCE = re.compile(r"^```python[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)


def write_files(folder: Path) -> None:
    """Twelve slides of six patients, a thumbnail, two CT scans."""
    h5py = pytest.importorskip("h5py", reason='needs: pip install ".[io]"')
    image = pytest.importorskip("PIL.Image", reason='needs: pip install ".[io]"')
    pytest.importorskip("pydicom", reason='needs: pip install ".[io]"')
    rng = np.random.default_rng(0)
    (folder / "features").mkdir()
    rows = ["case_id,slide_id,label"]
    cells = np.array([[i, j] for i in range(3) for j in range(3)])
    for i in range(12):
        label = i % 4 // 2  # both slides of a patient have one label
        rows.append(f"p{i // 2},s{i},{label}")
        X = rng.normal(size=(9, 3)) + 4 * label * (np.arange(9) < 2)[:, None]
        with h5py.File(folder / "features" / f"s{i}.h5", "w") as file:
            file["features"], file["coords"] = X, cells * 512
            file["coords"].attrs["patch_size_level0"] = 512
    (folder / "slides.csv").write_text("\n".join(rows))
    image.fromarray(np.full((24, 24, 3), 200, dtype=np.uint8)).save(folder / "thumbnail.png")
    ct = runpy.run_path(str(Path(__file__).parent.parent / "io" / "test_dicom.py"))
    for name in ("scan1", "scan2"):
        truth = rng.integers(-500, 500, (3, 64, 64)) * 2.0
        ct["write_series"](folder / "ct" / name, truth, SeriesInstanceUID=f"1.2.{name[-1]}")


def test_examples_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason='networks need PyTorch: pip install ".[torch]"')
    write_files(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    text = GUIDE.read_text(encoding="utf-8")
    blocks = ["\n" * text.count("\n", 0, m.start(1)) + m.group(1) for m in FENCE.finditer(text)]
    assert len(blocks) >= 5
    namespace: dict[str, object] = {"__name__": "guide"}
    for block in blocks:
        exec(compile(block, str(GUIDE), "exec"), namespace)
    assert (tmp_path / "heatmap.png").stat().st_size > 1000
