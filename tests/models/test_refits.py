"""Refits share what is the same for all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.inference.monitor import Monitor
from bagwise.models._refits import GaussianRefits
from bagwise.models._shared_features import Shared, SharedFeatures
from toy_bags import separable_bags

MODELS = [
    bw.ProbitVGPMIL(),
    bw.ProbitVGPMIL(inference="laplace"),
    bw.VGPMIL(),
    bw.LargeMarginVGPMIL(bag_score="calibrated"),
    bw.IsingVGPMIL(neighbors="chain", coupling=0.02),
]


@pytest.mark.parametrize("model", MODELS, ids=lambda m: type(m).__name__ + m.inference)
def test_refits_with_shared_features_are_those_from_scratch(
    model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    bags = separable_bags(24, 3, 0)
    bags = bags.with_X(bags.X.astype(np.float32))
    points = bags.X[::5].astype(np.float64)
    model.set_params(inducing=points, kernel=bw.kernels.RBF(1.0, 2.0), random_state=0)
    shared = model.fit(bags).calibration_
    instances = model.predict_instance_proba(bags)
    asked = []
    monkeypatch.setattr(SharedFeatures, "__call__", lambda self, kept: asked.append(kept))
    scratch = model.fit(bags).calibration_
    assert len(asked) == 5
    assert shared.weights == pytest.approx(scratch.weights, abs=1e-6)
    assert shared.intercept == pytest.approx(scratch.intercept, abs=1e-6)
    assert instances == pytest.approx(model.predict_instance_proba(bags), abs=1e-6)


def shared_by_refits(model: Any, bags: bw.Bags) -> Shared | None:
    refits = GaussianRefits(model, bags, np.asarray(bags.y) == 1, None, 0, Monitor())
    assert refits.at_once == 1
    (shared,) = refits.features
    return shared


def test_features_of_a_bag_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    bags = separable_bags(24, 3, 0)
    model = bw.ProbitVGPMIL(inducing=bags.X[::5], kernel=None, random_state=0).fit(bags)
    shared = shared_by_refits(model, bags)
    assert shared is not None
    rows: list[int] = []
    features = type(model.posterior_).features

    def counted(self: Any, X: Any) -> Any:
        rows.append(len(X))
        return features(self, X)

    monkeypatch.setattr(type(model.posterior_), "features", counted)
    some = [np.arange(20), np.array([23, 3, 21]), np.arange(24)[::-1]]
    for kept in some:
        found = shared(kept)
        assert isinstance(found, tuple)
        A, kt = features(model.posterior_, bags[kept].X)
        assert found[0] == pytest.approx(A, abs=1e-9)
        assert found[1] == pytest.approx(kt, abs=1e-9)
    assert sum(rows) == bags.n_instances


def test_features_that_exceed_the_memory_budget_are_not_shared() -> None:
    bags = separable_bags(24, 3, 0)
    points = bags.X[::5]
    small = bw.ProbitVGPMIL(inducing=points, kernel=None, random_state=0, memory_budget=100)
    shared = shared_by_refits(small.fit(bags), bags)
    assert shared is not None and shared(np.arange(10)) is None


def test_refits_that_place_points_of_their_own_share_nothing() -> None:
    bags = separable_bags(24, 3, 0)
    model = bw.ProbitVGPMIL(n_inducing=5, kernel=None, random_state=0).fit(bags)
    assert shared_by_refits(model, bags) is None
