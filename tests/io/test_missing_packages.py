"""Each entry point that needs an optional package says which extra to install."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import bagwise as bw
from bagwise.cli import app as cli

BAGS = [np.zeros((2, 4)), np.ones((2, 4))]


@pytest.mark.parametrize(
    ("module", "extra", "call"),
    [
        ("h5py", "io", lambda: bw.io.read_slide_h5("a.h5")),
        ("h5py", "io", lambda: bw.io.read_slide("a.h5")),
        ("torch", "torch", lambda: bw.io.read_slide_pt("a.pt")),
        ("pydicom", "io", lambda: bw.io.read_dicom_bags(".")),
        ("pydicom", "io", lambda: bw.io.read_dicom_series(".")),
        ("pydicom", "io", lambda: bw.io.find_series(".")),
        ("shapely", "io", lambda: bw.io.read_annotations("a.geojson", [[0, 0]], classes={"T": 1})),
        ("h5py", "io", lambda: bw.io.read_anndata("a.h5ad", "donor")),
        ("rdkit", "molecules", lambda: bw.io.read_molecules(["CCO"])),
        ("PIL.Image", "io", lambda: bw.io.read_image("a.png")),
        ("pandas", "io", lambda: bw.io.read_table("a.csv")),
        ("torch", "torch", lambda: bw.deep.AttentionMIL().fit(BAGS, [0, 1])),
        ("torch", "torch", lambda: bw.deep.AttentionFeatures().fit(BAGS, [0, 1])),
        ("torch", "torch", lambda: bw.deep.load_network("a.safetensors")),
        ("cv2", "detection", lambda: bw.detection.SelectiveSearch()(np.zeros((20, 20)))),
    ],
)
def test_missing_packages_name_the_extra(
    module: str, extra: str, call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf'pip install "\.\[{extra}\]"'):
        call()


def test_commands_name_the_extra_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "s1.h5").touch()
    (tmp_path / "slides.csv").write_text("slide_id,label\ns1,1\n")
    monkeypatch.setitem(sys.modules, "h5py", None)
    command = ["fit", str(tmp_path), "--slides", str(tmp_path / "slides.csv"), "-o", "m.bagwise"]
    result = CliRunner().invoke(cli.build_app(), command)
    assert result.exit_code == 2
    assert result.stderr.count("\n") == 1
    assert 'pip install ".[io]"' in result.stderr
