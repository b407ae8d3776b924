"""CT series in DICOM: slices in their order in space, in Hounsfield units, as windowed images."""

from __future__ import annotations

import os
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bags import Bags
from bagwise.core.files.reading import LARGE, UnreadableFileError, one_error
from bagwise.io.images import check_same_shape, labels_of
from bagwise.io.requirements import require

Floats = NDArray[np.float32]
Slice = tuple[Floats, NDArray[np.float64], NDArray[np.float64], tuple[str, ...]]
PIXEL_COUNTS = ("Rows", "Columns", "SamplesPerPixel", "NumberOfFrames", "BitsAllocated")
DAMAGED = "it is damaged or cut off; copy it, or export it, again"
IDENTIFIERS = ("SeriesInstanceUID", "StudyInstanceUID", "PatientID", "SOPInstanceUID")

# (centre, width) in Hounsfield units: brain, blood (subdural), soft tissue. [C24, 6.3] names the
# three windows; the numbers are those that radiologists use.
CT_WINDOWS = ((40.0, 80.0), (80.0, 200.0), (40.0, 380.0))


class DicomError(UnreadableFileError):
    """A DICOM file or series is damaged, incomplete or not a series of CT slices."""


@dataclass(frozen=True)
class CTSeries:
    """The slices of one CT series, in order along the axis of the patient they were cut across.

    hounsfield : (n, height, width) float32.
    positions : (n,) place of each slice along the slices' normal, in mm, rising.
    series, study, patient : their identifiers ("" where the files have none).
    slice_ids : (n,) SOPInstanceUID of each slice.
    paths : the files, in the order of the slices.
    """

    hounsfield: Floats
    positions: NDArray[np.float64]
    series: str
    study: str
    patient: str
    slice_ids: NDArray[Any]
    paths: tuple[Path, ...]


def window(hounsfield: ArrayLike, centre: float, width: float) -> Floats:
    """Values of a CT window, 0 below it and 1 above it, linear between.

    >>> window([-100.0, 0.0, 40.0, 80.0, 1000.0], 40, 80)
    array([0. , 0. , 0.5, 1. , 1. ], dtype=float32)
    """
    if not width > 0:
        raise ValueError(f"a window's width must be positive, got {width!r}")
    share = (np.asarray(hounsfield, dtype=np.float32) - (centre - width / 2)) / width
    return np.clip(share, 0.0, 1.0).astype(np.float32)


def windowed(hounsfield: ArrayLike, windows: Sequence[tuple[float, float]] = CT_WINDOWS) -> Floats:
    """(n, channels, height, width) slices seen through each window: brain, blood, soft tissue.

    >>> windowed(np.zeros((5, 4, 4))).shape
    (5, 3, 4, 4)
    """
    return np.stack([window(hounsfield, centre, width) for centre, width in windows], axis=1)


def read_dicom_series(folder: str | os.PathLike[str]) -> CTSeries:
    """Read a folder with the slices of one CT series.

    Slices are put in order by ImagePositionPatient along the normal of ImageOrientationPatient,
    whatever the files are called, and pixels become Hounsfield units by the slope and intercept
    of each slice. Folders below are searched too; files that are not DICOM are left aside.
    """
    found = list(find_series(folder).values())
    if len(found) > 1:
        raise DicomError(
            f"{folder} holds {len(found)} series; read them with read_dicom_bags, one bag each"
        )
    return _read_series(found[0])


def find_series(root: str | os.PathLike[str]) -> dict[str, list[Path]]:
    """The DICOM files below a folder by the SeriesInstanceUID that they belong to."""
    pydicom = require("pydicom", what="reading DICOM files", extra="io")
    base = Path(root)
    if not base.is_dir():
        raise FileNotFoundError(f"no folder {base}; give the folder of the DICOM files")
    series: dict[str, list[Path]] = {}
    for path in sorted(p for p in base.rglob("*") if p.is_file() and p.name != "DICOMDIR"):
        with one_error(path, DicomError, DAMAGED):
            try:
                _check_unpacked(pydicom, path)
                header = pydicom.dcmread(
                    path, stop_before_pixels=True, specific_tags=["SeriesInstanceUID"]
                )
            except pydicom.errors.InvalidDicomError:
                if path.suffix.lower() in (".dcm", ".dicom"):
                    raise DicomError(f"{path} is no DICOM file, or its start is damaged") from None
                continue
            uid = str(header.get("SeriesInstanceUID", ""))
        if not uid:
            raise DicomError(f"{path} has no SeriesInstanceUID, so its series is not known")
        series.setdefault(uid, []).append(path)
    if not series:
        raise DicomError(f"{base} holds no DICOM file")
    return series


def read_dicom_bags(
    root: str | os.PathLike[str],
    y: Mapping[str, Any] | Sequence[Any] | None = None,
    *,
    bag_id: str = "SeriesInstanceUID",
    windows: Sequence[tuple[float, float]] = CT_WINDOWS,
    size: tuple[int, int] | None = None,
) -> Bags:
    """Read the CT series below a folder as bags: a series is a bag, a slice an instance.

    A slice's row of `bags.X` is its (channels, height, width) array, flattened, one channel per
    window (centre, width), from 0 to 1; the default are brain, blood and soft tissue [C24, 6.3].
    `bags.coords` (n, 1) are the slices' positions in mm, so `IsingVGPMIL` links consecutive ones;
    `bags.groups` are the patients where all files name them; `bags.instance_ids` the slices' UIDs.

    Parameters
    ----------
    y : labels by bag id, or a list in the order of the sorted bag ids.
    bag_id : what names a bag: "SeriesInstanceUID", "StudyInstanceUID", "PatientID" or "folder".
    size : (height, width) to scale slices to, by averaging; a divisor of theirs.
    """
    known = ("SeriesInstanceUID", "StudyInstanceUID", "PatientID", "folder")
    if bag_id not in known:
        raise ValueError(f"bag_id must be one of {known}, got {bag_id!r}")
    bags = {}
    for paths in find_series(root).values():
        series = _read_series(paths)
        name = _bag_name(series, bag_id)
        if name in bags:
            raise DicomError(
                f"two series have the {bag_id} {name!r:.80}; pass bag_id='SeriesInstanceUID'"
            )
        images = windowed(series.hounsfield, windows)
        bags[name] = (series, images if size is None else _shrunk(images, size, name))
    ids = sorted(bags)
    check_same_shape([bags[i][1].shape[1:] for i in ids], ids)
    every = [bags[i][0] for i in ids]
    patients = [s.patient for s in every]
    return Bags.from_list(
        [bags[i][1].reshape(len(bags[i][1]), -1) for i in ids],
        labels_of(ids, y),
        ids=ids,
        coords=[s.positions[:, None] for s in every],
        groups=patients if all(patients) else None,
        instance_ids=[s.slice_ids for s in every],
    )


def _bag_name(series: CTSeries, bag_id: str) -> str:
    names = {
        "SeriesInstanceUID": series.series,
        "StudyInstanceUID": series.study,
        "PatientID": series.patient,
        "folder": series.paths[0].parent.name,
    }
    if not names[bag_id]:
        raise DicomError(f"series {series.series} has no {bag_id}; name bags by another bag_id")
    return names[bag_id]


def _read_series(paths: Sequence[Path]) -> CTSeries:
    pydicom = require("pydicom", what="reading DICOM files", extra="io")
    slices = [_read_slice(pydicom, path) for path in paths]
    normal = _common_normal(slices, paths)
    place = np.array([position @ normal for _, position, *_ in slices])
    order = np.argsort(place, kind="stable")
    same = np.flatnonzero(np.diff(place[order]) < 1e-3)
    if len(same):
        a, b = paths[order[same[0]]], paths[order[same[0] + 1]]
        raise DicomError(
            f"{a} and {b} lie at the same place ({place[order[same[0]]]:.3f} mm along the normal); "
            "remove the copy, or separate the phases of the series"
        )
    shapes = {pixels.shape for pixels, *_ in slices}
    if len(shapes) > 1:
        raise DicomError(
            f"the slices of a series differ in size, {sorted(shapes)}: {paths[0].parent}"
        )
    _check_one_patient([identifiers for *_, identifiers in slices], paths)
    series, study, patient, _ = slices[0][3]
    return CTSeries(
        np.stack([slices[i][0] for i in order]),
        place[order],
        series,
        study,
        patient,
        np.array([slices[i][3][3] for i in order]),
        tuple(paths[i] for i in order),
    )


def _check_one_patient(identifiers: Sequence[tuple[str, ...]], paths: Sequence[Path]) -> None:
    """Raise where slices of one series are of several patients or studies, as after a mix-up."""
    for found, path in zip(identifiers, paths, strict=True):
        for k in (1, 2):
            if found[k] != identifiers[0][k]:
                raise DicomError(
                    f"{paths[0]} and {path} are of one series, but their {IDENTIFIERS[k]} is "
                    f"{identifiers[0][k]!r:.80} and {found[k]!r:.80}; separate them"
                )


def read_slice(path: str | os.PathLike[str]) -> Floats:
    """(height, width) Hounsfield values of one file."""
    pydicom = require("pydicom", what="reading DICOM files", extra="io")
    return _read_slice(pydicom, Path(path))[0]


def _read_slice(pydicom: Any, path: Path) -> Slice:
    """Hounsfield values, position, orientation (6,) and identifiers of one file."""
    with one_error(path, DicomError, DAMAGED):
        return _slice_of(pydicom.dcmread(path), path)


def _slice_of(data: Any, path: Path) -> Slice:
    if data.get("Modality") != "CT":
        raise DicomError(
            f"{path} is of modality {data.get('Modality')!r:.80}, not CT: its pixels are no "
            "Hounsfield units; put other series elsewhere"
        )
    position = _numbers(data, "ImagePositionPatient", 3, path)
    orientation = _numbers(data, "ImageOrientationPatient", 6, path)
    slope = _numbers(data, "RescaleSlope", 1, path)[0]
    intercept = _numbers(data, "RescaleIntercept", 1, path)[0]
    _check_size(data, path)
    try:
        pixels = np.asarray(data.pixel_array)  # signed or not, as PixelRepresentation says
    except Exception as error:
        raise DicomError(
            f"the pixels of {path} cannot be read ({error}); if they are compressed, install "
            "pylibjpeg, or convert the file to an uncompressed one"
        ) from error
    if pixels.ndim != 2:
        raise DicomError(
            f"{path} has pixels of shape {pixels.shape}; one grey slice per file is read"
        )
    values = pixels.astype(np.float32) * np.float32(slope) + np.float32(intercept)
    # Not the data set itself: it would keep the raw pixels of the whole series in memory.
    return values, position, orientation, tuple(str(data.get(name, "")) for name in IDENTIFIERS)


def _check_unpacked(pydicom: Any, path: Path) -> None:
    """Raise where a deflated file unpacks to more than a slice has: pydicom would do all of it."""
    meta = pydicom.filereader.read_file_meta_info(path)
    if meta.get("TransferSyntaxUID") != pydicom.uid.DeflatedExplicitVRLittleEndian:
        return
    unzip, size = zlib.decompressobj(-zlib.MAX_WBITS), 0
    with path.open("rb") as file:
        file.seek(128 + 4 + 12 + int(meta.FileMetaInformationGroupLength))
        while not unzip.eof and (block := unzip.unconsumed_tail or file.read(2**16)):
            size += len(unzip.decompress(block, 2**24))
            if size > LARGE:
                raise DicomError(f"{path} unpacks to more than {LARGE} bytes; it is no slice of CT")


def _check_size(data: Any, path: Path) -> None:
    """Raise where pixels claim more room than a slice takes, whatever is stored of them."""
    counts = [int(data.get(name) or 1) for name in PIXEL_COUNTS]
    if min(counts) < 1 or int(np.prod(counts, dtype=object)) > 8 * LARGE:
        sizes = ", ".join(f"{n} {c}" for n, c in zip(PIXEL_COUNTS, counts, strict=True))
        raise DicomError(f"{path} claims pixels of {sizes}, which no slice of CT has")


def _numbers(data: Any, keyword: str, count: int, path: Path) -> NDArray[np.float64]:
    """The `count` numbers of an element that must be there."""
    value = data.get(keyword)
    if value is None or value == "":
        what = {
            "ImagePositionPatient": "where the slice lies is not known; file names are no order",
            "ImageOrientationPatient": "the direction of the slices is not known",
        }.get(keyword, "its pixels cannot be turned into Hounsfield units")
        raise DicomError(f"{path} has no {keyword}: {what}; export the series with it")
    try:
        numbers = np.ravel(np.asarray(value, dtype=np.float64))
    except (TypeError, ValueError):
        numbers = np.array([])
    if numbers.shape != (count,) or not np.all(np.isfinite(numbers)):
        raise DicomError(f"{keyword} of {path} must be {count} finite numbers; got {value!s:.80}")
    return numbers


def _common_normal(slices: Sequence[Slice], paths: Sequence[Path]) -> NDArray[np.float64]:
    """Unit normal of the slices, which must be parallel."""
    first = slices[0][2]
    for (_, _, orientation, _), path in zip(slices, paths, strict=True):
        if np.max(np.abs(orientation - first)) > 1e-3:
            raise DicomError(
                f"{path} is cut in another direction than {paths[0]}; a series of parallel slices "
                "is needed (leave out the localiser)"
            )
    normal = np.cross(first[:3], first[3:])
    length = float(np.linalg.norm(normal))
    if abs(length - 1) > 1e-2:
        raise DicomError(
            f"ImageOrientationPatient of {paths[0]} must be two perpendicular directions of length "
            f"1; got {first.tolist()}"
        )
    return normal / length


def _shrunk(images: Floats, size: tuple[int, int], name: str) -> Floats:
    """Images averaged over blocks of pixels."""
    n, channels, height, width = images.shape
    h, w = size
    if h < 1 or w < 1 or height % h or width % w:
        raise ValueError(
            f"size={size!r} must divide the slices' height and width; those of {name} are "
            f"{height} x {width}; pass e.g. {(height // 4, width // 4)}"
        )
    blocks = images.reshape(n, channels, h, height // h, w, width // w)
    return np.asarray(blocks.mean(axis=(3, 5)), dtype=np.float32)
