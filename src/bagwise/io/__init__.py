"""Reading and writing: models, tables, slide features, CT series, pictures; never runs code."""

from bagwise.core.files.codec import ModelFileError, register
from bagwise.core.files.modelfile import SCHEMA_VERSION, read_state, write_state
from bagwise.core.files.reading import UnreadableFileError
from bagwise.io.anndata_files import AnnDataFileError, read_anndata
from bagwise.io.annotations import AnnotationError, annotate_bags, read_annotations
from bagwise.io.columns import Columns
from bagwise.io.conformers import MoleculeError
from bagwise.io.dicom import (
    CT_WINDOWS,
    CTSeries,
    DicomError,
    find_series,
    read_dicom_bags,
    read_dicom_series,
    window,
    windowed,
)
from bagwise.io.geojson import write_geojson
from bagwise.io.hdf5 import read_slide_h5
from bagwise.io.images import ImageFileError, read_image, read_image_folders
from bagwise.io.label_studio import read_label_studio
from bagwise.io.molecules import Molecules, draw_molecule, read_molecules
from bagwise.io.row_files import Hdf5Rows, ParquetRows
from bagwise.io.slide_features import SlideFeatures, SlideFileError, grid_stride, slides_to_bags
from bagwise.io.slide_tables import read_slide, read_slide_table
from bagwise.io.slide_zarr import read_slide_zarr
from bagwise.io.streams import TableError
from bagwise.io.tables import Table, read_table
from bagwise.io.torch_files import read_slide_pt
from bagwise.io.torchmil import read_torchmil
from bagwise.io.write_anndata import write_anndata
from bagwise.io.write_predictions import write_predictions
from bagwise.io.write_tables import write_table

__all__ = [
    "CT_WINDOWS",
    "SCHEMA_VERSION",
    "AnnDataFileError",
    "AnnotationError",
    "CTSeries",
    "Columns",
    "DicomError",
    "Hdf5Rows",
    "ImageFileError",
    "ModelFileError",
    "MoleculeError",
    "Molecules",
    "ParquetRows",
    "SlideFeatures",
    "SlideFileError",
    "Table",
    "TableError",
    "UnreadableFileError",
    "annotate_bags",
    "draw_molecule",
    "find_series",
    "grid_stride",
    "read_anndata",
    "read_annotations",
    "read_dicom_bags",
    "read_dicom_series",
    "read_image",
    "read_image_folders",
    "read_label_studio",
    "read_molecules",
    "read_slide",
    "read_slide_h5",
    "read_slide_pt",
    "read_slide_table",
    "read_slide_zarr",
    "read_state",
    "read_table",
    "read_torchmil",
    "register",
    "slides_to_bags",
    "window",
    "windowed",
    "write_anndata",
    "write_geojson",
    "write_predictions",
    "write_state",
    "write_table",
]
