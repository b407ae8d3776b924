"""Sobol points are kept, and are the same whatever was asked for before."""

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.posteriors import points
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.core.posteriors.joint import ROUGH
from toy_bags import separable_bags


def test_points_are_the_first_of_more_whatever_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(points, "_kept", {})
    few, more = (points._sobol(n, 5, 7).copy() for n in (64, 256))
    np.testing.assert_array_equal(more[:64], few)
    np.testing.assert_array_equal(points._sobol(64, 5, 7), few)
    np.testing.assert_array_equal(points._kept[5, 7], more)
    monkeypatch.setattr(points, "_kept", {})
    np.testing.assert_array_equal(points._sobol(256, 5, 7), more)


def test_few_sets_of_points_are_kept_and_none_that_is_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(points, "_kept", {})
    for seed in range(10):
        points._sobol(64, 5, seed)
    assert list(points._kept) == [(5, seed) for seed in range(10 - points.KEPT_SETS, 10)]
    monkeypatch.setattr(points, "KEPT_NUMBERS", 64)
    points._sobol(64, 6, 0)
    assert (6, 0) not in points._kept


def test_kept_points_cannot_be_changed() -> None:
    with pytest.raises(ValueError, match="read-only"):
        points._sobol(64, 5, 7)[0] = 0.0


def test_the_ranking_of_fitted_bags_is_looked_at_with_few_points(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []
    draws = Posterior.draws

    def noted(self: Posterior, n: int) -> points.Draws:
        asked.append(n)
        return draws(self, n)

    monkeypatch.setattr(Posterior, "draws", noted)
    settings = {"n_inducing": 5, "learn_hyperparameters": False, "random_state": 0}
    bags = separable_bags(20, 3)
    # Where instances alone tell that bags are ranked well, nothing is asked.
    bw.ProbitVGPMIL(**settings).fit(bags)
    assert not asked
    bw.ProbitVGPMIL(**settings).fit(bags, np.arange(20) // 3 % 2)
    assert set(asked) == set(ROUGH)
