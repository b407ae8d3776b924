"""CT series that the test writes itself: order, Hounsfield units, windows; damaged series."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bagwise.bags.graphs import neighbor_graph
from bagwise.io import DicomError, read_dicom_bags, read_dicom_series, window, windowed
from ct_slices import write_slice

pydicom = pytest.importorskip(
    "pydicom", reason='reading DICOM needs the extra: pip install ".[io]"'
)


def stored_of(hounsfield: np.ndarray, slope: float = 2, intercept: float = -1000) -> np.ndarray:
    return np.rint((hounsfield - intercept) / slope).astype(np.int16)


@pytest.fixture
def truth() -> np.ndarray:
    """(6, 8, 8) Hounsfield values, even, from air to bone, different in every slice."""
    rng = np.random.default_rng(0)
    values = 2 * rng.integers(-1200, 600, (6, 8, 8)).astype(np.float32)
    values[:, 0, :5] = [-2000, 0, 40, 80, 180]
    return values


def write_series(
    folder: Path, truth: np.ndarray, seed: int = 0, places: Any = None, **changes: Any
) -> None:
    """Slices 5 mm apart in files whose names say nothing about their order."""
    folder.mkdir(parents=True, exist_ok=True)
    names = np.random.default_rng(seed).permutation(len(truth))
    places = 5.0 * np.arange(len(truth)) - 12 if places is None else places
    for name, values, place in zip(names, truth, places, strict=True):
        write_slice(folder / f"im{name}.dcm", stored_of(values), place, **changes)


def test_slices_come_in_the_order_of_space(tmp_path: Path, truth: np.ndarray) -> None:
    write_series(tmp_path / "scan", truth)
    names = sorted(p.name for p in (tmp_path / "scan").iterdir())
    series = read_dicom_series(tmp_path / "scan")
    assert [p.name for p in series.paths] != names, "the test's files are in order already"
    np.testing.assert_array_equal(series.hounsfield, truth)
    assert series.hounsfield.min() < -1000, "the test needs negative stored values"
    np.testing.assert_allclose(np.diff(series.positions), 5.0, atol=1e-4)
    assert (series.series, series.study, series.patient) == ("1.2.3", "1.2", "p1")


def test_position_counts_not_one_coordinate(tmp_path: Path, truth: np.ndarray) -> None:
    """In a sagittal series z does not change at all."""
    orientation = [0, 1, 0, 0, 0, -1]
    for i, values in enumerate(truth):
        write_slice(
            tmp_path / f"{9 - i}.dcm",
            stored_of(values),
            0.0,
            ImageOrientationPatient=orientation,
            ImagePositionPatient=[-3.0 * i, 5.0, 6.0],  # the normal points along -x
        )
    np.testing.assert_array_equal(read_dicom_series(tmp_path).hounsfield, truth)


def test_slope_and_intercept_are_those_of_each_slice(tmp_path: Path, truth: np.ndarray) -> None:
    write_slice(tmp_path / "a", stored_of(truth[0]), 0.0)
    other = stored_of(truth[1], 1, 24)
    write_slice(tmp_path / "b", other, 5.0, RescaleSlope=1, RescaleIntercept=24)
    np.testing.assert_array_equal(read_dicom_series(tmp_path).hounsfield, truth[:2])


def test_unsigned_pixels(tmp_path: Path) -> None:
    stored = np.full((4, 4), 60_000, dtype=np.uint16)
    write_slice(tmp_path / "a", stored, 0.0, RescaleSlope=1, RescaleIntercept=-1024)
    assert np.all(read_dicom_series(tmp_path).hounsfield == 58_976)


def test_windows() -> None:
    values = np.array([-2000.0, 0, 40, 80, 180])
    np.testing.assert_allclose(window(values, 40, 80), [0, 0, 0.5, 1, 1])
    np.testing.assert_allclose(window(values, 80, 200), [0, 0.1, 0.3, 0.5, 1])
    np.testing.assert_allclose(window(values, 40, 380), [0, 150 / 380, 0.5, 230 / 380, 330 / 380])
    assert windowed(np.zeros((3, 4, 5))).shape == (3, 3, 4, 5)
    with pytest.raises(ValueError, match="width must be positive"):
        window(values, 40, 0)


def test_bags_of_series(tmp_path: Path, truth: np.ndarray) -> None:
    write_series(tmp_path / "s1", truth, 1, SeriesInstanceUID="1.9", PatientID="kim")
    write_series(tmp_path / "s2", truth[:4], 2, SeriesInstanceUID="1.10", PatientID="lee")
    (tmp_path / "s2" / "notes.txt").write_text("not a DICOM file")
    bags = read_dicom_bags(tmp_path, {"s1": 1, "s2": 0}, bag_id="folder")
    assert bags.ids.tolist() == ["s1", "s2"] and bags.y.tolist() == [1, 0]
    assert bags.groups.tolist() == ["kim", "lee"] and bags.sizes.tolist() == [6, 4]
    images = bags[0].X.reshape(6, 3, 8, 8)
    for channel, (centre, width) in enumerate([(40, 80), (80, 200), (40, 380)]):
        expected = np.clip((truth - (centre - width / 2)) / width, 0, 1)
        np.testing.assert_allclose(images[:, channel], expected, atol=1e-6)
    np.testing.assert_allclose(images[0, :, 0, 2], [0.5, 0.3, 0.5], atol=1e-6)  # 40 HU
    chain = neighbor_graph(bags.coords, bags.offsets)
    np.testing.assert_array_equal(
        chain.toarray(), neighbor_graph(None, bags.offsets, "chain").toarray()
    )
    assert read_dicom_bags(tmp_path).ids.tolist() == ["1.10", "1.9"]
    assert len(set(bags.instance_ids)) == 10


def test_smaller_images_are_means(tmp_path: Path, truth: np.ndarray) -> None:
    write_series(tmp_path / "s1", truth)
    small = read_dicom_bags(tmp_path, size=(4, 2)).X.reshape(6, 3, 4, 2)
    full = read_dicom_bags(tmp_path).X.reshape(6, 3, 8, 8)
    np.testing.assert_allclose(small[:, :, 0, 0], full[:, :, :2, :4].mean(axis=(2, 3)), rtol=1e-5)
    with pytest.raises(ValueError, match="must divide the slices' height and width"):
        read_dicom_bags(tmp_path, size=(3, 3))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ImagePositionPatient": None}, "no ImagePositionPatient: where the slice lies"),
        ({"ImageOrientationPatient": None}, "no ImageOrientationPatient"),
        ({"RescaleSlope": None}, "no RescaleSlope: its pixels cannot be turned"),
        ({"Modality": "MR"}, "modality 'MR', not CT"),
        ({"SeriesInstanceUID": None}, "no SeriesInstanceUID"),
        ({"ImageOrientationPatient": [1, 0, 0, 1, 0, 0]}, "two perpendicular directions"),
        ({"RescaleSlope": [1, 2]}, "RescaleSlope of .* must be 1 finite numbers"),
        ({"Rows": 999}, "pixels of .* cannot be read"),
        ({"ImagePositionPatient": [0, 0, 0]}, "lie at the same place"),
    ],
)
def test_series_that_cannot_be_read(
    changes: dict, message: str, tmp_path: Path, truth: np.ndarray
) -> None:
    write_series(tmp_path / "scan", truth, **changes)
    with pytest.raises(DicomError, match=message):
        read_dicom_series(tmp_path / "scan")


def test_a_localiser_in_the_series_is_reported(tmp_path: Path, truth: np.ndarray) -> None:
    write_series(tmp_path, truth)
    write_slice(
        tmp_path / "loc.dcm", stored_of(truth[0]), 99, ImageOrientationPatient=[0, 1, 0, 0, 0, -1]
    )
    with pytest.raises(DicomError, match="cut in another direction"):
        read_dicom_series(tmp_path)


def test_damaged_files(tmp_path: Path, truth: np.ndarray) -> None:
    write_series(tmp_path, truth)
    path = tmp_path / "im0.dcm"
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 40])
    with pytest.raises(DicomError, match=r"cannot (be )?read"):
        read_dicom_series(tmp_path)
    path.write_bytes(b"hello")
    with pytest.raises(DicomError, match="no DICOM file"):
        read_dicom_series(tmp_path)


def test_folders_without_series(tmp_path: Path, truth: np.ndarray) -> None:
    with pytest.raises(FileNotFoundError, match="no folder"):
        read_dicom_bags(tmp_path / "gone")
    with pytest.raises(DicomError, match="holds no DICOM file"):
        read_dicom_bags(tmp_path)
    write_series(tmp_path / "a", truth, SeriesInstanceUID="1.4")
    write_series(tmp_path / "b", truth, SeriesInstanceUID="1.5")
    with pytest.raises(DicomError, match="holds 2 series"):
        read_dicom_series(tmp_path)
    with pytest.raises(DicomError, match="two series have the PatientID 'p1'"):
        read_dicom_bags(tmp_path, bag_id="PatientID")
    with pytest.raises(ValueError, match=r"no label for '1\.5'"):
        read_dicom_bags(tmp_path, {"1.4": 1})


@pytest.mark.parametrize("name", ["PatientID", "StudyInstanceUID"])
def test_slices_of_two_patients_are_no_series(name: str, tmp_path: Path, truth: np.ndarray) -> None:
    write_series(tmp_path / "a", truth[:3])
    write_series(tmp_path / "b", truth[3:], places=[40.0, 45.0, 50.0], **{name: "9.9"})
    with pytest.raises(DicomError, match=f"their {name} is .* separate them"):
        read_dicom_bags(tmp_path)
