"""WeaklySupervisedDetector: learns where digits are from image labels alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import bagwise as bw
from bagwise.datasets import make_digit_canvases
from bagwise.detection import (
    Box,
    Detection,
    SlidingWindows,
    WeaklySupervisedDetector,
    average_precision,
    corloc,
    load_detector,
)

SIZES = (16, 20, 24)


def make(**settings: Any) -> WeaklySupervisedDetector:
    defaults: dict[str, Any] = {
        "estimator": bw.ProbitVGPMIL(n_inducing=40, tol=1e-5),
        "proposals": SlidingWindows(SIZES, top=25),
        "n_components": 15,
        "class_names": [0],
        "random_state": 0,
    }
    return WeaklySupervisedDetector(**(defaults | settings))


@pytest.fixture(scope="module")
def canvases() -> Any:
    return make_digit_canvases(80, (0,), share=0.5, random_state=0)


@pytest.fixture(scope="module")
def fitted(canvases: Any) -> WeaklySupervisedDetector:
    return make().fit(canvases.images, canvases.y)


def test_image_labels_suffice_to_find_boxes(canvases: Any, fitted: Any) -> None:
    assert corloc(canvases.boxes, fitted.detect(canvases.images), 0) >= 0.7
    test = make_digit_canvases(60, (0,), share=0.5, subset="test", random_state=1)
    found = fitted.detect(test.images)
    assert average_precision(test.boxes, found, 0) >= 0.5
    p = fitted.predict_proba(test.images)
    assert p.shape == (60, 1) and bw.metrics.roc_auc(test.y[:, 0], p[:, 0]) >= 0.85


def test_detections_are_sorted_thinned_and_have_a_spread(canvases: Any, fitted: Any) -> None:
    for image in fitted.detect(canvases.images[:10]):
        assert all(isinstance(d, Detection) and d.label == 0 for d in image)
        scores = [d.score for d in image]
        assert scores == sorted(scores, reverse=True) and len(scores) <= 20
        assert all(0 < d.std <= 0.5 and 0 <= d.score <= 1 for d in image)
        boxes = np.array([d.box for d in image])
        overlap = bw.detection.iou(boxes, boxes) - np.eye(len(boxes))
        assert overlap.max() <= 0.3
    strict = fitted.set_params(min_score=0.5)
    assert all(d.score >= 0.5 for image in strict.detect(canvases.images[:10]) for d in image)
    fitted.set_params(min_score=0.0)


def test_boxes_are_used_as_instance_labels(canvases: Any) -> None:
    known = [b if i % 4 == 0 else None for i, b in enumerate(canvases.boxes)]
    mixed = make().fit(canvases.images, canvases.y, boxes=known)
    found = mixed.detect(canvases.images)
    boxed = [i for i, b in enumerate(known) if b]
    truth = [canvases.boxes[i] for i in boxed]
    assert corloc(truth, [found[i] for i in boxed], 0) >= 0.9


@pytest.mark.filterwarnings("ignore:f is constant")  # features that tell little
@pytest.mark.parametrize("model", [bw.VGPMIL, bw.LargeMarginVGPMIL])
def test_own_proposals_encoder_and_model(canvases: Any, model: Any) -> None:
    boxes = [np.array([[0, 0, 32, 32], [32, 32, 64, 64.0]])] * len(canvases.images)
    seen = []

    def encoder(image: np.ndarray, regions: np.ndarray) -> np.ndarray:
        seen.append(len(regions))
        return np.column_stack([regions[:, 0], [image.mean()] * len(regions)])

    detector = make(encoder=encoder, n_components=None, estimator=model(n_inducing=5))
    detector.fit(canvases.images, canvases.y, proposals=boxes)
    found = detector.detect(canvases.images[:3], proposals=boxes[:3])
    assert set(seen) == {2} and detector.pca_ is None
    assert {d.box for image in found for d in image} == {(0, 0, 32, 32), (32, 32, 64, 64)}


def test_labels_as_sets_and_clone(canvases: Any, fitted: Any) -> None:
    sets = [{0} if row[0] else set() for row in canvases.y]
    again = clone(fitted).set_params(class_names=None).fit(list(canvases.images), sets)
    assert again.classes_.tolist() == [0]
    assert again.detect(canvases.images[:3]) == fitted.detect(canvases.images[:3])


def test_two_classes(canvases: Any) -> None:
    two = make_digit_canvases(40, (0, 1), share=0.5, random_state=2)
    detector = make(class_names=["zero", "one"], n_jobs=1).fit(two.images, two.y)
    labels = {d.label for image in detector.detect(two.images[:5]) for d in image}
    assert labels == {"zero", "one"} and detector.predict_proba(two.images).shape == (40, 2)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"y": np.ones((80, 1), dtype=int)}, "every image shows class 0"),
        ({"y": np.zeros((80, 1), dtype=int)}, "no image shows class 0"),
        ({"y": np.full((80, 1), 2)}, "0 and 1 only"),
        ({"y": [{0}] * 3}, "one entry per image, 80; got 3"),
        ({"boxes": [None] * 3}, "one list .* per image, 80"),
        ({"boxes": [[Box(0, (0, 0, 5, 5))]] * 80}, "by its label but .* by its boxes"),
        ({"proposals": [np.zeros((0, 4))] * 80}, "image 0 has no proposal"),
        ({"proposals": [np.zeros((0, 4))] * 3}, "one array per image, 80; got 3"),
    ],
)
def test_input_that_is_wrong(canvases: Any, change: dict, message: str) -> None:
    given = {"images": canvases.images, "y": canvases.y} | change
    with pytest.raises(ValueError, match=message):
        make().fit(**given)


def test_labels_must_be_collections(canvases: Any) -> None:
    with pytest.raises(TypeError, match="collection of classes"):
        make().fit(canvases.images, ["dog"] * 80)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"negative_overlap": 0.6}, "must not exceed"),
        ({"n_components": 0}, "n_components must be"),
        ({"max_detections": 0}, "max_detections must be"),
        ({"class_names": [0, 1]}, "class_names must be 1 different names"),
        ({"encoder": lambda image, boxes: np.zeros(3)}, "one row per box"),
    ],
)
def test_settings_that_are_wrong(canvases: Any, settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(**settings).fit(canvases.images, canvases.y)


# --- files ---------------------------------------------------------------------------------------


def test_a_detector_comes_back_from_its_file(canvases: Any, fitted: Any, tmp_path: Path) -> None:
    fitted.save(tmp_path / "d.bagwise")
    back = load_detector(tmp_path / "d.bagwise")
    assert back.detect(canvases.images[:3]) == fitted.detect(canvases.images[:3])
    assert repr(back) == repr(fitted)
    with pytest.raises(FileExistsError):
        fitted.save(tmp_path / "d.bagwise", overwrite=False)
    with pytest.raises(bw.ModelFileError, match=r"use bagwise\.detection\.load_detector"):
        bw.load(tmp_path / "d.bagwise")
    with pytest.raises(bw.ModelFileError, match="it has its own encoder"):
        load_detector(tmp_path / "d.bagwise", encoder=print)
    fitted.estimators_[0].save(tmp_path / "m.bagwise")
    with pytest.raises(bw.ModelFileError, match=r"not a detector; use bagwise\.load"):
        load_detector(tmp_path / "m.bagwise")


def test_code_of_the_user_is_asked_for_again(canvases: Any, tmp_path: Path) -> None:
    def windows(image: Any) -> Any:
        return SlidingWindows(SIZES, top=9)(image)

    images = canvases.images[:30]
    detector = make(proposals=windows, estimator=None, n_components=None)
    detector.fit(images, canvases.y[:30]).save(tmp_path / "d.bagwise")
    with pytest.raises(bw.ModelFileError, match=r"its proposals was .* pass it as proposals="):
        load_detector(tmp_path / "d.bagwise")
    back = load_detector(tmp_path / "d.bagwise", proposals=windows)
    assert back.detect(images[:2]) == detector.detect(images[:2])
