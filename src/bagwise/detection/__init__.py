"""Weakly supervised detection: find objects after training on labels of whole images [V17, 3.3]."""

from bagwise.bags.boxes import Box, Detection, iou
from bagwise.detection.backbones import NetworkFeatures, torchvision_features
from bagwise.detection.detector import (
    WeaklySupervisedDetector,
    load_detector,
    non_maximum_suppression,
)
from bagwise.detection.devkit import VocSplit, read_voc_split
from bagwise.detection.encoders import GradientHistograms, Pixels, crops
from bagwise.detection.metrics import (
    average_precision,
    corloc,
    mean_average_precision,
    precision_recall,
)
from bagwise.detection.proposals import (
    SelectiveSearch,
    SlidingWindows,
    objectness,
    sliding_windows,
)
from bagwise.detection.reproduction import VocScores, reproduce_voc, voc_table
from bagwise.detection.voc import (
    Annotation,
    read_boxes_json,
    read_voc,
    write_boxes_json,
    write_voc,
)
from bagwise.io.annotations import AnnotationError

__all__ = [
    "Annotation",
    "AnnotationError",
    "Box",
    "Detection",
    "GradientHistograms",
    "NetworkFeatures",
    "Pixels",
    "SelectiveSearch",
    "SlidingWindows",
    "VocScores",
    "VocSplit",
    "WeaklySupervisedDetector",
    "average_precision",
    "corloc",
    "crops",
    "iou",
    "load_detector",
    "mean_average_precision",
    "non_maximum_suppression",
    "objectness",
    "precision_recall",
    "read_boxes_json",
    "read_voc",
    "read_voc_split",
    "reproduce_voc",
    "sliding_windows",
    "torchvision_features",
    "voc_table",
    "write_boxes_json",
    "write_voc",
]
