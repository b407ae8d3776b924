"""`AttentionMIL`: an encoder and attention pooling in PyTorch, trained on bag labels."""

from __future__ import annotations

import os
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags
from bagwise.core.parameters import check_choice, check_integer, check_number, generator
from bagwise.deep.files import save_network
from bagwise.io.requirements import require
from bagwise.models.estimator import TwoClassEstimator, all_or_nothing
from bagwise.models.inputs import (
    bags_to_fit,
    bags_to_predict,
    binary_targets,
    record_features,
)

Array = NDArray[Any]

POOLINGS = ("gated", "attention", "mean", "max")
ENCODERS = ("auto", "cnn", "mlp", "identity")


class AttentionMIL(TransformerMixin, TwoClassEstimator):
    """Attention-based deep MIL: encoder, pooling over the bag, classifier [C24, Eq. 39].

    The network learns from bag labels which features of an instance matter. It gives bag
    probabilities, a weight per instance, and features on which a Gaussian process model can be
    trained, which has probabilities for instances and their uncertainty: see `AttentionFeatures`.
    Attention weights are no probabilities: they say what the network looked at. It runs on the CPU.

    Parameters
    ----------
    encoder : "cnn" (small; needs `image_shape`), "mlp" (one hidden layer), "identity" (features
        are used as they are), a `torch.nn.Module` that maps instances to `n_features` features
        (trained further on a copy of it), or "auto": "cnn" with an `image_shape`, else "mlp".
    image_shape : (channels, height, width), or (height, width), of the image that a row of
        features is; None if rows are plain features.
    n_features : number D of encoder features; [C24] has 8, 32 and 128.
    pooling : "gated" or "attention" [Ilse et al. 2018, Eq. 8-9], "mean" or "max".
    attention_size : hidden units of the attention.
    dropout : share of encoder units dropped in training.
    learning_rate, weight_decay, batch_size : of the Adam optimiser; a batch is so many bags. For a
        pretrained module a smaller learning rate, such as 1e-4, keeps what it knows.
    max_epochs, patience, validation_size : training stops when the AUC on the share
        `validation_size` of bags, which are not trained on, has not risen for `patience` epochs;
        the best epoch is kept. Bags of a group stay together. 0: train on all bags for
        `max_epochs` epochs.
    random_state : seed. On one machine and with one number of threads equal seeds give equal
        networks.
    verbose : 1 prints each epoch.

    Attributes
    ----------
    classes_ : the two classes; the second is positive.
    network_ : the fitted torch module.
    history_ : list of epochs with `loss`, `validation_auc`, `validation_loss`.
    best_epoch_, n_iter_ : the epoch kept (from 0), and the number of epochs.
    n_features_in_ : number of inputs per instance.

    Examples
    --------
    >>> from bagwise.datasets import make_digit_bags
    >>> bags, truth = make_digit_bags(40, random_state=0)
    >>> model = AttentionMIL(image_shape=(8, 8), max_epochs=3, random_state=0).fit(bags)
    >>> model.predict_proba(bags).shape, model.attention(bags).shape
    ((40, 2), (400,))
    """

    dtype: ClassVar[Any] = np.float32  # in which networks compute

    def __init__(
        self,
        *,
        encoder: Any = "auto",
        image_shape: tuple[int, ...] | None = None,
        n_features: int = 32,
        pooling: str = "gated",
        attention_size: int = 32,
        dropout: float = 0.1,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-4,
        batch_size: int = 8,
        max_epochs: int = 100,
        patience: int = 15,
        validation_size: float = 0.2,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.encoder = encoder
        self.image_shape = image_shape
        self.n_features = n_features
        self.pooling = pooling
        self.attention_size = attention_size
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.batch_size = batch_size
        self.max_epochs = max_epochs
        self.patience = patience
        self.validation_size = validation_size
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: ArrayLike | None = None, *, positive: Any = None) -> Self:
        """Train on bag labels; `y`, one per bag, overrides those of the bags.

        `positive` is the label of bags with a positive instance, which text labels need: see
        `bagwise.ProbitVGPMIL.fit`.
        """
        require_torch()
        self._check_parameters()
        bags = bags_to_fit(self, X, y)
        classes, target = binary_targets(bags, y, positive)
        rng = generator(self.random_state)
        parts = self._hold_out(bags, target, rng)
        with all_or_nothing(self):
            self._train(bags, target, *parts, rng, "cpu")
            self.classes_ = classes
        return self

    def _train(
        self,
        bags: Bags,
        target: NDArray[np.bool_],
        train_rows: NDArray[np.intp],
        test_rows: NDArray[np.intp],
        rng: np.random.Generator,
        device: Any,
    ) -> None:
        """Train on some of the bags, stop by others where there are any."""
        import torch

        from bagwise.deep.building import build_network
        from bagwise.deep.training import Schedule, seeded, train

        schedule = Schedule(
            self.learning_rate,
            self.weight_decay,
            self.batch_size,
            self.max_epochs,
            self.patience,
            self.verbose,
        )
        place = torch.device(device)
        with seeded(int(rng.integers(2**31)), place):
            network = build_network(self, bags.n_features, bags.X).to(place)
            held_out = (bags[test_rows], target[test_rows]) if len(test_rows) else None
            told = (bags[train_rows], target[train_rows], held_out)
            self.history_, self.best_epoch_ = train(network, *told, schedule, rng)
        self.network_, self.n_iter_ = network, len(self.history_)
        record_features(self, bags)

    def predict_proba(self, X: Any) -> Array:
        """Probability of each class for each bag, columns in the order of `classes_`."""
        bags = self._bags(X)
        from bagwise.deep.training import run

        logit, _ = run(self.network_, bags)
        p = expit(logit.astype(np.float64))
        return np.column_stack([1 - p, p])

    def attention(self, X: Any) -> Array:
        """(N,) weight of each instance in its bag; the weights of a bag sum to 1.

        They are no probabilities: in negative bags they sum to 1 too. With pooling "mean" all are
        equal, with "max" a weight is the share of features of which the instance is the maximum.
        """
        bags = self._bags(X)
        from bagwise.deep.training import run

        return run(self.network_, bags)[1].astype(np.float64)

    def transform(self, X: Any) -> Bags:
        """The bags with the encoder's features in place of theirs; all else is kept."""
        bags = self._bags(X)
        from bagwise.deep.training import encode

        return bags.with_X(encode(self.network_, bags))

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = True) -> None:
        """Write the network to a safetensors file with a JSON header; `load_network` reads it.

        With `overwrite=False` an existing file is kept and FileExistsError raised.
        """
        check_is_fitted(self)
        save_network(self, path, overwrite=overwrite)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "network_")

    def _bags(self, X: Any) -> Bags:
        check_is_fitted(self)
        require_torch()
        return bags_to_predict(self, X)

    def _hold_out(
        self, bags: Bags, target: NDArray[np.bool_], rng: np.random.Generator
    ) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Positions of the bags to train on and of those to stop by."""
        everything = np.arange(len(bags))
        seed = int(rng.integers(2**31))
        if self.validation_size == 0:
            return everything, everything[:0]
        numbered = Bags.from_arrays(
            everything[:, None].astype(np.float64), everything, y=target, groups=bags.groups
        )
        try:
            parts = numbered.split(self.validation_size, random_state=seed)
        except ValueError as error:
            raise ValueError(
                f"{len(bags)} bags cannot be split into training and validation ({error}); give "
                "more bags of both classes, or validation_size=0 to train on all of them"
            ) from error
        train, test = (p.X[:, 0].astype(np.intp) for p in parts)
        if len(np.unique(target[train])) < 2 or len(np.unique(target[test])) < 2:
            raise ValueError(
                "early stopping needs bags of both classes to train on and to validate on, but "
                f"validation_size={self.validation_size} of {len(bags)} bags leaves one side "
                "without; give more bags, or validation_size=0 to train on all of them"
            )
        return train, test

    def _check_parameters(self) -> None:
        if isinstance(self.encoder, str):
            check_choice("encoder (or a torch.nn.Module)", self.encoder, ENCODERS)
        check_choice("pooling", self.pooling, POOLINGS)
        for name in ("n_features", "attention_size", "batch_size", "max_epochs", "patience"):
            check_integer(name, getattr(self, name), at_least=1)
        check_number("learning_rate", self.learning_rate, above=0)
        check_number("weight_decay", self.weight_decay, at_least=0)
        for name in ("dropout", "validation_size"):
            if check_number(name, getattr(self, name), at_least=0) >= 1:
                raise ValueError(f"{name} must be below 1, got {getattr(self, name)!r}")


def require_torch(what: str = "AttentionMIL") -> Any:
    """The torch module, or an ImportError that names the extra to install."""
    return require("torch", what=what, extra="torch")
