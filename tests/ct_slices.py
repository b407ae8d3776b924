"""Slices of CT series in DICOM, as tests write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

# Tilted by 30 degrees about x, as a head CT with gantry tilt.
TILT = np.deg2rad(30)
ROW, COLUMN = np.array([1.0, 0, 0]), np.array([0, np.cos(TILT), np.sin(TILT)])
NORMAL = np.cross(ROW, COLUMN)


def write_slice(path: Path, stored: np.ndarray, place: float, **changes: Any) -> None:
    """A slice whose pixels are stored signed; a change of None leaves the element out."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid(entropy_srcs=[str(path)])
    data = Dataset()
    data.file_meta = meta
    elements = {
        "SOPClassUID": CTImageStorage,
        "SOPInstanceUID": meta.MediaStorageSOPInstanceUID,
        "SeriesInstanceUID": "1.2.3",
        "StudyInstanceUID": "1.2",
        "PatientID": "p1",
        "Modality": "CT",
        "ImagePositionPatient": [float(f"{v:.6f}") for v in place * NORMAL + [-100, -90, 7]],
        "ImageOrientationPatient": [float(f"{v:.6f}") for v in (*ROW, *COLUMN)],
        "RescaleSlope": 2,
        "RescaleIntercept": -1000,
        "Rows": stored.shape[0],
        "Columns": stored.shape[1],
        "BitsAllocated": 16,
        "BitsStored": 16,
        "HighBit": 15,
        "PixelRepresentation": 1 if stored.dtype == np.int16 else 0,
        "SamplesPerPixel": 1,
        "PhotometricInterpretation": "MONOCHROME2",
    }
    for name, value in (elements | changes).items():
        if value is not None:
            setattr(data, name, value)
    if stored.size:
        data.PixelData = stored.tobytes()
    data.save_as(path, enforce_file_format=True)
