"""LM-VGPMIL with known instance labels: they are learned from, however unlikely at the start."""

import numpy as np
import pytest

import bagwise as bw
from bagwise.datasets import make_digit_bags
from bagwise.metrics import roc_auc


@pytest.mark.parametrize("settings", [{}, {"label_posterior": "factorised", "H": 100.0}], ids=str)
def test_known_labels_help(settings: dict[str, object]) -> None:
    """Positives below the margin were gated out, and the more the more of them were known."""
    bags, truth = make_digit_bags(100, random_state=0)
    train, test = bags[:60], bags[60:]
    known, new = truth[: train.n_instances], truth[train.n_instances :]
    model = bw.LargeMarginVGPMIL(n_inducing=60, random_state=0, **settings)  # type: ignore[arg-type]
    told = model.fit(train.with_instance_labels(known.astype(float)))
    assert roc_auc(new, told.latent(test)[0]) > 0.97
    assert roc_auc(known, told.latent(train)[0]) > 0.99


def test_the_objective_rises_with_known_labels() -> None:
    bags, truth = make_digit_bags(40, random_state=1)
    known = np.where(np.arange(len(truth)) % 3 == 0, truth, np.nan)
    model = bw.LargeMarginVGPMIL(n_inducing=30, random_state=0, max_iter=60, tol=1e-6)
    history = model.fit(bags.with_instance_labels(known)).elbo_history_
    assert np.all(np.diff(history) > -1e-6 * np.abs(history[:-1]))
