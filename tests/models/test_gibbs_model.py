"""ProbitVGPMIL(inference="gibbs") from data to prediction."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import bagwise as bw

SETTINGS = {"n_inducing": 15, "random_state": 0, "n_samples": 200, "n_chains": 2, "thin": 12}


@pytest.fixture(scope="module")
def fitted() -> tuple[bw.ProbitVGPMIL, bw.Bags, np.ndarray]:
    bags, truth = bw.datasets.make_digit_bags(60, random_state=1)
    model = bw.ProbitVGPMIL(inference="gibbs", **SETTINGS).fit(bags[:40])
    return model, bags[40:], truth[bags.offsets[40] :]


def test_agrees_with_variational_inference(fitted: tuple) -> None:
    model, test, truth = fitted
    bags, _ = bw.datasets.make_digit_bags(60, random_state=1)
    vi = bw.ProbitVGPMIL(n_inducing=15, random_state=0, instance_score="posterior").fit(bags[:40])
    p, q = (m.predict_instance_proba(test)[:, 1] for m in (model, vi))
    assert np.corrcoef(p, q)[0, 1] > 0.9
    assert bw.metrics.roc_auc(truth, p) > 0.6


def test_diagnostics_and_reproducibility(fitted: tuple) -> None:
    model, test, _ = fitted
    assert model.gibbs_.max_r_hat < 1.2 and model.gibbs_.min_ess > 20
    again = bw.ProbitVGPMIL(inference="gibbs", **SETTINGS)
    bags, _ = bw.datasets.make_digit_bags(60, random_state=1)
    np.testing.assert_array_equal(
        again.fit(bags[:40]).predict_proba(test), model.predict_proba(test)
    )


def test_round_trip(fitted: tuple, tmp_path: Path) -> None:
    model, test, _ = fitted
    model.save(tmp_path / "m.bagwise")
    loaded = bw.load(tmp_path / "m.bagwise")
    for a, b in zip(
        loaded.predict_proba(test, return_std=True),
        model.predict_proba(test, return_std=True),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_short_chains_warn() -> None:
    bags, _ = bw.datasets.make_digit_bags(30, random_state=0)
    short = SETTINGS | {"n_samples": 4, "burn_in": 0, "thin": 1}
    with pytest.warns(ConvergenceWarning, match=r"R-hat .* raise n_samples or thin"):
        bw.ProbitVGPMIL(inference="gibbs", **short).fit(bags)


@pytest.mark.parametrize("bad", [{"n_samples": 1}, {"n_chains": 0}, {"burn_in": -1}, {"thin": 0.5}])
def test_bad_settings(bad: dict) -> None:
    bags, _ = bw.datasets.make_digit_bags(30, random_state=0)
    with pytest.raises(ValueError, match=next(iter(bad))):
        bw.ProbitVGPMIL(inference="gibbs", **bad).fit(bags)


def test_vfe_is_refused() -> None:
    bags, _ = bw.datasets.make_digit_bags(30, random_state=0)
    with pytest.raises(ValueError, match="has no 'vfe' form"):
        bw.ProbitVGPMIL(inference="gibbs", approximation="vfe").fit(bags)
