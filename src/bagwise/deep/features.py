"""`AttentionFeatures`: the first stage of a two-stage model [C24, Fig. 7]."""

from __future__ import annotations

from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from bagwise.bags import Bags
from bagwise.deep.attention import AttentionMIL
from bagwise.models.estimator import all_or_nothing


class AttentionFeatures(TransformerMixin, BaseEstimator):
    """Learn features with an attention network, then hand bags of them to any bagwise model.

    The network is trained on bag labels; then its attention and its classifier are dropped and
    the encoder's features go to the model that follows in the pipeline [C24, 6.3, Eq. 39].

    Parameters
    ----------
    network : `AttentionMIL` to be cloned and trained; default `AttentionMIL()`. To use a network
        that is trained already, pass `sklearn.frozen.FrozenEstimator(network)`.

    Attributes
    ----------
    network_ : the fitted network.
    n_features_in_ : number of inputs per instance.

    Examples
    --------
    >>> from sklearn.pipeline import make_pipeline
    >>> from bagwise import ProbitVGPMIL
    >>> from bagwise.datasets import make_digit_bags
    >>> bags, truth = make_digit_bags(40, random_state=0)
    >>> network = AttentionMIL(image_shape=(8, 8), n_features=8, max_epochs=3, random_state=0)
    >>> pipe = make_pipeline(AttentionFeatures(network), ProbitVGPMIL(random_state=0))
    >>> pipe.fit(bags, bags.y).predict_proba(bags).shape
    (40, 2)
    """

    def __init__(self, network: Any = None) -> None:
        self.network = network

    def fit(self, X: Any, y: ArrayLike | None = None) -> Self:
        """Train the network on bag labels; `y`, one per bag, overrides those of the bags."""
        network = AttentionMIL() if self.network is None else clone(self.network)
        if isinstance(network, type) or not hasattr(network, "transform"):
            raise TypeError(f"network must be an AttentionMIL, got {self.network!r}")
        network.fit(X, y)
        with all_or_nothing(self):
            self.network_ = network
            self.n_features_in_ = network.n_features_in_
        return self

    def transform(self, X: Any) -> Bags:
        """The bags with the encoder's features in place of theirs; all else is kept."""
        check_is_fitted(self, "network_")
        return self.network_.transform(X)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags
