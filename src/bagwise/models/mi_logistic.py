"""`MILogisticRegression`: a linear model with one penalty for all weights [R08]."""

from __future__ import annotations

from typing import Any

import numpy as np

from bagwise.core.inference.monitor import Note
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.rules import AT_LEAST_ONE
from bagwise.core.linear.design import Design
from bagwise.core.linear.evidence import Fit
from bagwise.core.linear.penalty import fit_alpha, fit_by_folds, fit_evidence
from bagwise.core.links import Logistic
from bagwise.core.parameters import check_choice, check_number
from bagwise.models._linear import LinearMIL
from bagwise.models._rules import RuledMIL


class MILogisticRegression(RuledMIL, LinearMIL, alias="mi-logistic"):
    """Noisy-or logistic regression with one penalty for all weights: "MI" of [R08].

    Keeps all features. Use it where many features matter a little, or as a baseline of `MIRVM`.

    Parameters
    ----------
    alpha : precision of the prior of all weights. "evidence" maximises the Laplace evidence,
        "cv" the held-out log-likelihood in 5-fold cross-validation, as in the paper; a number is
        taken as given. 0 is maximum likelihood, which exists only if no linear rule separates
        the bags.
    rule : what the label of a bag means, as in `ProbitVGPMIL`: "at_least_one" positive instance,
        `bagwise.AtLeast(k)` or `bagwise.Share(std=0.05)`.
    max_iter, tol : for "evidence", steps of the search and how precisely log alpha is wanted; else
        Newton steps, and the relative gain at which they end (1e-9 at most).
    kernel, n_basis, standardize, support_z, chunk_size, random_state, verbose : as in `MIRVM`.
    bag_score, instance_score, witness_rate, class_weight : as in `MIRVM`. Refits keep alpha as it
        was learned.

    Examples
    --------
    >>> from bagwise.datasets import make_cad_bags
    >>> data = make_cad_bags(n_volumes=20, random_state=0)
    >>> model = MILogisticRegression(random_state=0).fit(data.bags)
    >>> bool(model.alpha_[0] > 0)
    True

    Bags that are positive if two of their instances are:

    >>> from bagwise import AtLeast
    >>> rng = np.random.default_rng(0)
    >>> k = np.arange(40) % 4  # positives of each bag
    >>> bags = [rng.normal(size=(6, 1)) + 4 * (np.arange(6) < n)[:, None] for n in k]
    >>> model = MILogisticRegression(rule=AtLeast(2), random_state=0).fit(bags, k >= 2)
    >>> one, two = (4.0 * (np.arange(6) < n)[:, None] for n in (1, 2))
    >>> (model.predict_proba([one, two])[:, 1] > 0.5).tolist()
    [False, True]
    """

    def __init__(
        self, *, alpha: float | str = "evidence", rule: Any = AT_LEAST_ONE, **shared: Any
    ) -> None:
        super().__init__(**shared)
        self.alpha = alpha
        self.rule = rule

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if isinstance(self.alpha, str):
            check_choice("alpha", self.alpha, ("evidence", "cv"))
        else:
            check_number("alpha ('evidence', 'cv' or a number)", self.alpha, at_least=0)

    def _likelihood(self) -> BagLikelihood:
        return self._ruled(Logistic())

    def _costly(self) -> str | None:
        given = not isinstance(self.alpha, str)
        return f"alpha={self.alpha}: nothing is to be learned but the weights" if given else None

    def _learned(self) -> dict[str, Any]:
        return {"alpha": float(np.min(self.alpha_))}

    @property
    def _stage(self) -> str:  # type: ignore[override]
        return "evidence" if self.alpha == "evidence" else "weights"

    def _solve(self, design: Design, rng: np.random.Generator, note: Note) -> Fit:
        settings: dict[str, Any] = {
            "max_iter": self.max_iter,
            "tol": self.tol,
            "verbose": self.verbose,
            "note": note,
        }
        likelihood = self._likelihood()
        if self.alpha == "evidence":
            return fit_evidence(design, likelihood, **settings)
        if self.alpha == "cv":
            return fit_by_folds(design, likelihood, rng, **settings)
        return fit_alpha(design, likelihood, float(self.alpha), **settings)
