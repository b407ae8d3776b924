"""`DeepProbitMIL`: an encoder and a Gaussian process on its features, trained together."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags
from bagwise.core.calibration.bags import ALL_BAG_SCORES
from bagwise.core.calibration.instances import INSTANCE_SCORES, check_witness_rate
from bagwise.core.calibration.left_out import cut_folds
from bagwise.core.calibration.ranking import class_counts
from bagwise.core.parameters import check_choice, check_integer, check_number, generator
from bagwise.deep.attention import AttentionMIL, require_torch
from bagwise.deep.files import save_deep_model
from bagwise.deep.head import HeldOut, calibrate_head, fitted_head
from bagwise.deep.predictions import EncodedPredictions
from bagwise.models.estimator import all_or_nothing, forget_earlier_fit
from bagwise.models.inputs import (
    bags_to_fit,
    bags_to_predict,
    binary_targets,
    known_labels,
    record_features,
)

if TYPE_CHECKING:
    from bagwise.deep.joint_training import Trained

Array = NDArray[Any]
FOLDS = 5  # parts of the bags, each of which can be held out


@dataclass(frozen=True)
class Part:
    """What was trained without a part of the bags, and what it says of them."""

    network: AttentionMIL
    joint: Trained
    held_out: HeldOut
    bound: float  # of the head, per training bag


class DeepProbitMIL(EncodedPredictions):
    """A deep kernel: encoder and sparse Gaussian process are trained together on bag labels.

    An attention network finds first features, as in the two stages of `AttentionFeatures`; from
    there encoder, inducing points and kernel climb the bound of `ProbitVGPMIL` on a few bags at a
    time, and q(v) follows in closed form. Then the encoder is frozen, and a `ProbitVGPMIL` with
    this kernel and these points makes all predictions. All this is done without each fifth of the
    bags in turn, which says when to stop and calibrates probabilities.

    Parameters
    ----------
    network : `AttentionMIL` that says how instances look (`image_shape`, `encoder`, `n_features`)
        and how the first features are learned; it is cloned. Default `AttentionMIL()`. Its
        `validation_size` is not looked at: it stops by the same fifth of bags.
    n_inducing : number M of inducing points in the space of features.
    learning_rate, weight_decay, batch_size : of the Adam optimiser in joint training; a batch is so
        many bags.
    max_epochs, patience : joint training ends when the log-likelihood of held-out bags, calibrated,
        has not risen for `patience` epochs; the best epoch is kept.
    calibration_folds : how many models are trained, 1 to 5, each without another fifth of the bags,
        on which probabilities are calibrated. The encoder of the one with the highest bound per bag
        is kept. 1 takes a fifth of the time of 5, but calibrates by a fifth of the bags.
    bag_score, instance_score, witness_rate : as those of `bagwise.ProbitVGPMIL`.
    device : "cpu", "cuda", "cuda:1", ...; where networks are trained and instances encoded.
    random_state : seed. On one machine, on the CPU and with one number of threads equal seeds give
        equal models.
    verbose : 1 prints each epoch.

    Attributes
    ----------
    classes_ : the two classes; the second is positive.
    head_ : the fitted `ProbitVGPMIL` on the encoder's features, calibrated on held-out bags.
    network_ : the fitted `AttentionMIL` with the encoder as it was trained on. Its attention is
        that of the start.
    history_ : list of epochs with `bound` (per training bag) and `validation_log_likelihood`; the
        first is the start.
    best_epoch_, n_iter_ : the epoch kept, and the number of epochs after the start.
    held_out_ : (n,) numbers of the bags that the encoder was not trained on.
    n_features_in_ : number of inputs per instance.

    Examples
    --------
    >>> from bagwise.datasets import make_digit_bags
    >>> bags, truth = make_digit_bags(40, random_state=0)
    >>> network = AttentionMIL(image_shape=(8, 8), n_features=8, max_epochs=3)
    >>> quick = {"max_epochs": 2, "calibration_folds": 1}
    >>> model = DeepProbitMIL(network, n_inducing=20, random_state=0, **quick).fit(bags)
    >>> p, std = model.predict_instance_proba(bags, return_std=True)
    >>> p.shape, std.shape
    ((400, 2), (400,))
    """

    dtype: ClassVar[Any] = np.float32  # in which networks compute

    def __init__(
        self,
        network: AttentionMIL | None = None,
        *,
        n_inducing: int = 50,
        learning_rate: float = 1e-3,
        weight_decay: float = 1e-4,
        batch_size: int = 8,
        max_epochs: int = 40,
        patience: int = 10,
        calibration_folds: int = 5,
        bag_score: str = "auto",
        instance_score: str = "auto",
        witness_rate: float | None = None,
        device: str = "cpu",
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.network = network
        self.n_inducing = n_inducing
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.calibration_folds = calibration_folds
        self.bag_score = bag_score
        self.instance_score = instance_score
        self.witness_rate = witness_rate
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike | None = None, *, positive: Any = None) -> Self:
        """Train on bag labels; `y`, one per bag, overrides those of the bags.

        `positive` is the label of bags with a positive instance, which text labels need: see
        `bagwise.ProbitVGPMIL.fit`. Instance labels of the bags are used where known.
        """
        require_torch("DeepProbitMIL")
        self._check_parameters()
        bags = bags_to_fit(self, X, y)
        classes, T = binary_targets(bags, y, positive)
        known = known_labels(bags, T)
        rng = generator(self.random_state)
        seed = int(rng.integers(2**31))
        folds = self._folds(bags, T, seed)
        with all_or_nothing(self):
            forget_earlier_fit(self)
            self.classes_ = classes
            record_features(self, bags)
            n_parts = min(self.calibration_folds, int(folds.max()) + 1)
            found = [clone(self)._trained(bags, T, known, folds == k, rng) for k in range(n_parts)]
            found.sort(key=lambda part: -part.bound)  # the first is kept
            self._keep(found[0])
            kernel, Z = found[0].joint.kernel, found[0].joint.Z
            self.head_ = fitted_head(self._encoded(bags), classes[1], kernel, Z, seed)
            scores = ("bag_score", "instance_score", "witness_rate")
            asked = {name: getattr(self, name) for name in scores}
            calibrate_head(self.head_, [part.held_out for part in found], bags, T, asked, seed)
        return self

    def transform(self, X: Any) -> Bags:
        """The bags with the encoder's features in place of theirs; all else is kept."""
        return self._encoded(bags_to_predict(self, X))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Write encoder and head to one safetensors file; `bagwise.deep.load_network` reads it.

        With `overwrite=False` an existing file is kept and FileExistsError raised.
        """
        check_is_fitted(self)
        save_deep_model(self, path, overwrite=overwrite)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "head_")

    def _encoded(self, bags: Bags) -> Bags:
        require_torch("DeepProbitMIL")
        from bagwise.deep.training import encode

        return bags.with_X(encode(self.network_.network_, bags).astype(np.float64))

    def _keep(self, part: Part) -> None:
        """Take an encoder over, and what is told of its training."""
        self.network_ = part.network
        self.network_.classes_ = self.classes_
        self.history_, self.best_epoch_ = part.joint.history, part.joint.kept
        self.n_iter_ = len(self.history_) - 1
        self.held_out_ = part.held_out.numbers

    def _trained(
        self,
        bags: Bags,
        T: NDArray[np.bool_],
        known: Array | None,
        out: NDArray[np.bool_],
        rng: np.random.Generator,
    ) -> Part:
        """Train encoder, kernel and points without the bags that are `out`."""
        from bagwise.deep.joint_training import LabelledBags, joint_fit

        rows, out_rows = np.flatnonzero(~out), np.flatnonzero(out)
        self.network_ = AttentionMIL() if self.network is None else clone(self.network)
        self.network_._train(bags, T, rows, out_rows, rng, self.device)
        unknown = np.full(bags.n_instances, np.nan) if known is None else known
        data = LabelledBags(bags.with_labels(T.astype(np.int64)), T, unknown)
        found = joint_fit(self, self.network_.network_, data.part(rows), data.part(out_rows), rng)
        seed = int(rng.integers(2**31))
        inside, outside = (self._encoded(data.part(some).bags) for some in (rows, out_rows))
        head = fitted_head(inside, 1, found.kernel, found.Z, seed, quiet=True)
        bound = head.elbo_ / len(rows)
        return Part(self.network_, found, HeldOut.by(head, out_rows, outside), bound)

    def _folds(self, bags: Bags, T: NDArray[np.bool_], seed: int) -> NDArray[np.int64]:
        """(B,) which fifth each bag belongs to; those of the first are held out."""
        units = class_counts(bags, T)
        if min(units) < 2:
            what = "bags" if bags.groups is None else "groups with bags"
            raise ValueError(
                f"DeepProbitMIL holds a part of the bags out of training, which takes 2 {what} of "
                f"each class; there are {units[0]} and {units[1]}; give more bags, or use "
                "ProbitVGPMIL on features"
            )
        folds = cut_folds(bags, T, seed)
        for k in range(int(folds.max()) + 1):
            if len(np.unique(T[folds == k])) < 2 or len(np.unique(T[folds != k])) < 2:
                raise ValueError(
                    "bags of a group stay together, so that a part of the bags to be held out has "
                    "one class only; give more groups with bags of both classes"
                )
        return folds

    def _check_parameters(self) -> None:
        if not (self.network is None or isinstance(self.network, AttentionMIL)):
            raise TypeError(f"network must be an AttentionMIL or None, got {self.network!r}")
        if self.network is not None:
            self.network._check_parameters()
        for name in ("n_inducing", "batch_size", "max_epochs", "patience", "calibration_folds"):
            check_integer(name, getattr(self, name), at_least=1)
        if self.calibration_folds > FOLDS:
            raise ValueError(
                f"calibration_folds must be at most {FOLDS}, got {self.calibration_folds}: as many "
                "parts of the bags can be held out by turns"
            )
        check_number("learning_rate", self.learning_rate, above=0)
        check_number("weight_decay", self.weight_decay, at_least=0)
        check_choice("bag_score", self.bag_score, ALL_BAG_SCORES)
        check_choice("instance_score", self.instance_score, INSTANCE_SCORES)
        check_witness_rate(self.witness_rate, self.instance_score)
        check_device(self.device)


def check_device(device: Any) -> None:
    """Raise where torch has no such device here."""
    torch = require_torch("DeepProbitMIL")
    kinds = ("cpu", "cuda")
    if not isinstance(device, str) or device.split(":")[0] not in kinds:
        raise ValueError(f"device must be 'cpu', 'cuda' or 'cuda:1' and so on, got {device!r}")
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise ValueError(
            f"device={device!r}, but torch finds no CUDA device here; use device='cpu', or install "
            "a build of torch for CUDA and its driver"
        )
