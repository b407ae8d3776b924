"""Each entry point that needs an optional package says which extra to install."""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import pytest

import bagwise as bw

BAGS = [np.zeros((2, 4)), np.ones((2, 4))]


@pytest.mark.parametrize(
    ("module", "extra", "call"),
    [
        ("h5py", "io", lambda: bw.io.read_slide_h5("a.h5")),
        ("h5py", "io", lambda: bw.io.read_slide("a.h5")),
        ("torch", "torch", lambda: bw.io.read_slide_pt("a.pt")),
        ("pydicom", "io", lambda: bw.io.read_dicom_bags(".")),
        ("pydicom", "io", lambda: bw.io.read_dicom_series(".")),
        ("PIL.Image", "io", lambda: bw.io.read_image("a.png")),
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
    with pytest.raises(ImportError, match=rf'pip install "bagwise\[{extra}\]"'):
        call()
