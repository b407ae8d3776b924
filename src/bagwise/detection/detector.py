"""`WeaklySupervisedDetector`: find objects after training on labels of whole images [V17, 3.3]."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.utils.parallel import Parallel, delayed
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags
from bagwise.bags.boxes import Box, Detection, as_boxes, boxes_of, iou
from bagwise.core.parameters import check_integer, check_number
from bagwise.detection.encoders import GradientHistograms
from bagwise.detection.files import read_detector, save_detector
from bagwise.detection.proposals import SlidingWindows
from bagwise.detection.targets import check_boxed_images, image_targets
from bagwise.models.estimator import all_or_nothing
from bagwise.models.probit import ProbitVGPMIL

Floats = NDArray[np.float64]


class WeaklySupervisedDetector(BaseEstimator):
    """Detect objects after training on images of which only the classes that they show are known.

    An image is a bag, its region proposals are the instances. A binary model per class learns
    from image labels which proposals show the class [V17, 3.3]; boxes that are known for some of
    the images are used as instance labels (mixed supervision [V17, 4.3.1]). Overlapping
    detections of a class are thinned out by non-maximum suppression.

    Parameters
    ----------
    estimator : binary model that is cloned for each class; default `ProbitVGPMIL()`. [V17] has
        `VGPMIL(n_inducing=50)` and `LargeMarginVGPMIL(n_inducing=50)`.
    proposals : callable image -> (n, 4) boxes; default `SlidingWindows()`. Your own boxes can be
        given to `fit` and `detect` instead.
    encoder : callable (image, boxes) -> (n, D) features; default `GradientHistograms()`. A
        pretrained network goes here.
    n_components : dimension to which features are reduced by PCA, or None to keep them.
    class_names : names of the columns of a label matrix.
    positive_overlap, negative_overlap : a proposal of a boxed image shows an object if it overlaps
        its box by at least the first, and does not if it overlaps all of them by less than the
        second; in between it stays unknown.
    nms_threshold : overlap above which of two detections of a class the lesser one is dropped.
    min_score : detections with a lower probability are not reported.
    max_detections : most detections of a class per image.
    n_jobs : classes fitted at the same time.
    random_state : seed of the PCA and, where the estimator has none of its own, of the models.

    Attributes
    ----------
    classes_ : (K,) classes.
    estimators_ : list of the K fitted models.
    pca_ : the fitted PCA, or None.
    n_features_in_ : number of features that the encoder gives.

    Examples
    --------
    >>> from bagwise.datasets import make_digit_canvases
    >>> canvases = make_digit_canvases(30, (0,), random_state=0)
    >>> detector = WeaklySupervisedDetector(
    ...     ProbitVGPMIL(n_inducing=30), proposals=SlidingWindows((16, 20, 24), top=20),
    ...     class_names=[0], random_state=0)
    >>> found = detector.fit(canvases.images, canvases.y).detect(canvases.images[:2])
    >>> len(found), found[0][0].label
    (2, 0)
    """

    def __init__(
        self,
        estimator: Any = None,
        *,
        proposals: Callable[[Any], Any] | None = None,
        encoder: Callable[[Any, Any], Any] | None = None,
        n_components: int | None = 60,
        class_names: Sequence[Any] | None = None,
        positive_overlap: float = 0.5,
        negative_overlap: float = 0.3,
        nms_threshold: float = 0.3,
        min_score: float = 0.0,
        max_detections: int = 20,
        n_jobs: int | None = None,
        random_state: int | None = None,
    ) -> None:
        self.estimator = estimator
        self.proposals = proposals
        self.encoder = encoder
        self.n_components = n_components
        self.class_names = class_names
        self.positive_overlap = positive_overlap
        self.negative_overlap = negative_overlap
        self.nms_threshold = nms_threshold
        self.min_score = min_score
        self.max_detections = max_detections
        self.n_jobs = n_jobs
        self.random_state = random_state

    def fit(
        self,
        images: Sequence[Any],
        y: Any,
        *,
        boxes: Sequence[Sequence[Box] | None] | None = None,
        proposals: Sequence[ArrayLike] | None = None,
    ) -> Self:
        """Learn from image labels, and from boxes where there are any.

        Parameters
        ----------
        images : n arrays (height, width) or (height, width, 3); sizes may differ.
        y : for each image the collection of classes that it shows, e.g. [{"dog"}, set(), ...], or
            an (n, K) matrix of 0 and 1.
        boxes : for each image all `Box` objects in it, or None where they are not known.
        proposals : for each image its own (n, 4) boxes, in place of those of `self.proposals`.
        """
        self._check_parameters()
        classes, T = image_targets(images, y, self.class_names)
        known = check_boxed_images(boxes, classes, T)
        regions = self._regions(images, proposals)
        # The true boxes are proposals too: none of the others may come close enough.
        regions = [
            r if b is None else np.concatenate([r, boxes_of(b)])
            for r, b in zip(regions, known, strict=True)
        ]
        raw = self._encode(images, regions)
        pca = self._fit_pca(np.concatenate(raw))
        bags = _as_bags(raw, pca)
        models = Parallel(n_jobs=self.n_jobs)(
            delayed(_fit_class)(
                self._model(k),
                bags,
                T[:, k],
                self._region_labels(regions, known, classes[k]),
            )
            for k in range(len(classes))
        )
        with all_or_nothing(self):
            self.classes_, self.estimators_, self.pca_ = classes, models, pca
            self.n_features_in_ = raw[0].shape[1]
        return self

    def detect(
        self, images: Sequence[Any], *, proposals: Sequence[ArrayLike] | None = None
    ) -> list[list[Detection]]:
        """For each image its detections, best first, with the probability and its std."""
        regions, bags = self._predictable(images, proposals)
        found: list[list[Detection]] = [[] for _ in images]
        for label, model in zip(self.classes_.tolist(), self.estimators_, strict=True):
            both, std = model.predict_instance_proba(bags, return_std=True)
            for b, (boxes, detections) in enumerate(zip(regions, found, strict=True)):
                rows = slice(int(bags.offsets[b]), int(bags.offsets[b + 1]))
                detections += self._thinned(label, boxes, both[rows, 1], std[rows])
        return [sorted(detections, key=lambda d: -d.score) for detections in found]

    def predict_proba(
        self, images: Sequence[Any], *, proposals: Sequence[ArrayLike] | None = None
    ) -> Floats:
        """(n, K) probability that each image shows each class."""
        _, bags = self._predictable(images, proposals)
        return np.column_stack([model.predict_proba(bags)[:, 1] for model in self.estimators_])

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Write the detector to one file that `bagwise.detection.load_detector` reads.

        Proposals and encoders of your own are code, which is not written: give them again to
        `load_detector`. With `overwrite=False` an existing file is kept and FileExistsError raised.
        """
        check_is_fitted(self)
        save_detector(self, path, overwrite=overwrite)

    def _predictable(
        self, images: Sequence[Any], proposals: Sequence[ArrayLike] | None
    ) -> tuple[list[Floats], Bags]:
        check_is_fitted(self)
        regions = self._regions(images, proposals)
        raw = self._encode(images, regions)
        if raw[0].shape[1] != self.n_features_in_:
            raise ValueError(
                f"the encoder gave {raw[0].shape[1]} features, but {self.n_features_in_} in fit; "
                "use the same encoder"
            )
        return regions, _as_bags(raw, self.pca_)

    def _regions(self, images: Sequence[Any], given: Sequence[ArrayLike] | None) -> list[Floats]:
        """(n, 4) proposals of each image, at least one."""
        if len(images) == 0:
            raise ValueError("there are 0 images; give at least one")
        propose = SlidingWindows() if self.proposals is None else self.proposals
        if given is not None and len(given) != len(images):
            raise ValueError(
                f"proposals must have one array per image, {len(images)}; got {len(given)}"
            )
        regions = [
            as_boxes(propose(image) if given is None else given[i], f"proposals of image {i}")
            for i, image in enumerate(images)
        ]
        empty = [i for i, r in enumerate(regions) if len(r) == 0]
        if empty:
            raise ValueError(
                f"image {empty[0]} has no proposal; give at least one, e.g. the whole image"
            )
        return regions

    def _encode(self, images: Sequence[Any], regions: list[Floats]) -> list[Floats]:
        encoder = GradientHistograms() if self.encoder is None else self.encoder
        features = []
        for i, (image, boxes) in enumerate(zip(images, regions, strict=True)):
            values = np.asarray(encoder(image, boxes))
            if values.ndim != 2 or len(values) != len(boxes):
                raise ValueError(
                    f"the encoder must return one row per box, ({len(boxes)}, D); image {i} gave "
                    f"shape {values.shape}"
                )
            features.append(values)
        return features

    def _fit_pca(self, X: Floats) -> PCA | None:
        if self.n_components is None:
            return None
        n = min(self.n_components, *X.shape)
        return PCA(n, random_state=self.random_state).fit(X)

    def _model(self, k: int) -> Any:
        model = ProbitVGPMIL() if self.estimator is None else clone(self.estimator)
        if "random_state" in model.get_params() and model.random_state is None:
            seed = None if self.random_state is None else self.random_state + k
            model.set_params(random_state=seed)
        return model

    def _region_labels(
        self, regions: list[Floats], known: Sequence[Sequence[Box] | None], label: Any
    ) -> Floats | None:
        """(N,) 1, 0 or NaN for each proposal; None where no image has boxes."""
        if all(b is None for b in known):
            return None
        labels = []
        for boxes, objects in zip(regions, known, strict=True):
            values = np.full(len(boxes), np.nan)
            if objects is not None:
                best = iou(boxes, boxes_of(objects, label)).max(axis=1, initial=0.0)
                values[best >= self.positive_overlap] = 1.0
                values[best < self.negative_overlap] = 0.0
            labels.append(values)
        return np.concatenate(labels)

    def _thinned(self, label: Any, boxes: Floats, p: Floats, std: Floats) -> list[Detection]:
        """Detections of one class in one image after non-maximum suppression."""
        kept = non_maximum_suppression(boxes, p, self.nms_threshold)
        kept = kept[p[kept] >= self.min_score][: self.max_detections]
        return [
            Detection(label, tuple(boxes[i].tolist()), float(p[i]), float(std[i])) for i in kept
        ]

    def _check_parameters(self) -> None:
        if self.n_components is not None:
            check_integer("n_components", self.n_components, at_least=1)
        check_integer("max_detections", self.max_detections, at_least=1)
        for name in ("positive_overlap", "negative_overlap", "nms_threshold", "min_score"):
            check_number(name, getattr(self, name), at_least=0)
        if self.negative_overlap > self.positive_overlap:
            raise ValueError(
                f"negative_overlap={self.negative_overlap} must not exceed "
                f"positive_overlap={self.positive_overlap}"
            )


def load_detector(
    path: str | os.PathLike[str],
    *,
    proposals: Callable[[Any], Any] | None = None,
    encoder: Callable[[Any, Any], Any] | None = None,
) -> WeaklySupervisedDetector:
    """Read a detector that `WeaklySupervisedDetector.save` wrote; nothing in the file is run.

    `proposals` and `encoder` are needed where the detector was trained with callables of yours,
    whose code is not in the file: pass the same ones.
    """
    given = {"proposals": proposals, "encoder": encoder}
    return read_detector(WeaklySupervisedDetector, path, given)


def _as_bags(raw: list[Floats], pca: PCA | None) -> Bags:
    bags = Bags.from_list(raw)
    return bags if pca is None else bags.with_X(pca.transform(bags.X))


def _fit_class(model: Any, bags: Bags, positive: NDArray[np.bool_], known: Floats | None) -> Any:
    return model.fit(bags.with_instance_labels(known), positive.astype(np.int64))


def non_maximum_suppression(
    boxes: Any, scores: ArrayLike, threshold: float = 0.3
) -> NDArray[np.intp]:
    """Indices of the boxes to keep, best first.

    From the best score down, a box is dropped if its overlap (`iou`) with one that was kept
    exceeds `threshold`. Of equal scores the earlier box comes first.

    >>> boxes = [[0, 0, 10, 10], [1, 1, 11, 11], [20, 20, 30, 30]]
    >>> non_maximum_suppression(boxes, [0.8, 0.9, 0.1])
    array([1, 2])
    """
    boxes = as_boxes(boxes)
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (len(boxes),) or not np.all(np.isfinite(values)):
        raise ValueError(
            f"scores must be one finite number per box, {len(boxes)}; got shape {values.shape}"
        )
    check_number("threshold", threshold, at_least=0)
    waiting = np.argsort(-values, kind="stable")
    kept = []
    while len(waiting):
        best, waiting = waiting[0], waiting[1:]
        kept.append(best)
        overlap = iou(boxes[best : best + 1], boxes[waiting])[0]
        waiting = waiting[overlap <= threshold]
    return np.array(kept, dtype=np.intp)
