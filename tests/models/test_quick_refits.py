"""Refits with more instance labels are the fits that they stand for, begun elsewhere."""

import warnings
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.bags import Bags
from bagwise.models.quick_refits import QuickRefits

KERNEL = bw.kernels.RBF(2.0, 2.0)
FIXED = {"kernel": KERNEL, "mean": -2.0, "learn_hyperparameters": False, "random_state": 0}


def bags_and_truth(n_bags: int = 24, seed: int = 0) -> tuple[Bags, Any]:
    rng = np.random.default_rng(seed)
    y = np.arange(n_bags) % 2
    X = rng.normal(size=(n_bags, 4, 2))
    X[y == 1, 0] += 2
    truth = np.zeros((n_bags, 4))
    truth[y == 1, 0] = 1
    coords = np.tile(np.arange(4.0)[:, None], (n_bags, 1))
    bags = Bags.from_arrays(X.reshape(-1, 2), np.repeat(np.arange(n_bags), 4), y, coords=coords)
    return bags, truth.ravel()


def some_known(truth: Any, n: int, seed: int = 0) -> Any:
    known = np.full(len(truth), np.nan)
    rows = np.random.default_rng(seed).choice(len(truth), n, replace=False)
    known[rows] = truth[rows]
    return known


MODELS = {
    "probit": bw.ProbitVGPMIL(inducing="all", **FIXED),
    "laplace": bw.ProbitVGPMIL(inducing="all", inference="laplace", **FIXED),
    "logistic": bw.VGPMIL(inducing="all", **FIXED),
    "coupled": bw.IsingVGPMIL(inducing="all", coupling=0.3, **FIXED),
    "linear": bw.MILogisticRegression(
        random_state=0, bag_score="joint", instance_score="posterior"
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_refit_is_the_fit_with_these_labels(name: str) -> None:
    bags, truth = bags_and_truth()
    known = some_known(truth, 20)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MODELS[name].fit(bags)
        refits = QuickRefits(model, bags)
        refits(some_known(truth, 5, seed=1))  # another on the way
        found = refits(known)
        before = model.latent(bags)[0]
        expected = type(model)(**model.get_params()).fit(bags.with_instance_labels(known))
    np.testing.assert_allclose(found.latent(bags)[0], expected.latent(bags)[0], atol=2e-3)
    assert np.max(np.abs(before - expected.latent(bags)[0])) > 0.05  # labels matter
    np.testing.assert_array_equal(model.latent(bags)[0], before)  # the model stays as it was
    assert found.suggest_instances(bags.with_instance_labels(known), 3).shape == (3,)


def test_a_learned_kernel_and_the_calibration_are_kept() -> None:
    bags, truth = bags_and_truth(40)
    model = bw.ProbitVGPMIL(n_inducing=20, random_state=0).fit(bags)
    found = QuickRefits(model, bags)(some_known(truth, 20))
    assert found.kernel_ == model.kernel_ and found.mean_ == model.mean_
    np.testing.assert_array_equal(found.inducing_points_, model.inducing_points_)
    assert found.calibration_ is model.calibration_ and found.bag_score_ == model.bag_score_
    assert found.n_iter_ < model.n_iter_ + 5
    again = QuickRefits(model, bags)(some_known(truth, 20))
    np.testing.assert_allclose(again.posterior_.m, found.posterior_.m, atol=1e-6)


def test_weights_of_bags_count() -> None:
    bags, truth = bags_and_truth()
    model = bw.ProbitVGPMIL(inducing="all", **FIXED).fit(bags)
    weights = np.where(np.arange(len(bags)) < 12, 2.0, 1.0)
    known = some_known(truth, 10)
    found = QuickRefits(model, bags, weights)(known)
    expected = bw.ProbitVGPMIL(inducing="all", **FIXED)
    expected.fit(bags.with_instance_labels(known), sample_weight=weights)
    np.testing.assert_allclose(found.latent(bags)[0], expected.latent(bags)[0], atol=1e-3)


def test_left_out_bags_are_more_probable_with_labels_and_the_work_can_be_cut_short() -> None:
    bags, truth = bags_and_truth(40)
    model = bw.ProbitVGPMIL(n_inducing=20, random_state=0).fit(bags)
    refits = QuickRefits(model, bags)
    none, all_ = np.full(bags.n_instances, np.nan), truth
    without, with_all = refits.left_out_likelihood(none), refits.left_out_likelihood(all_)
    assert without is not None and with_all is not None
    assert np.log(0.5) < without < 0 and np.log(0.5) < with_all < 0
    assert with_all != without
    asked = []

    def twice() -> bool:
        asked.append(1)
        return len(asked) < 3

    assert refits.left_out_likelihood(none, twice) is None and len(asked) == 3
    few = bags[:4]
    assert QuickRefits(model, few).left_out_likelihood(np.full(16, np.nan)) is None


def test_labels_that_contradict_their_bag_are_refused() -> None:
    bags, _ = bags_and_truth()
    known = np.full(bags.n_instances, np.nan)
    known[0] = 1
    model = bw.ProbitVGPMIL(inducing="all", **FIXED).fit(bags)
    with pytest.raises(ValueError, match="negative bag has no positive instance"):
        QuickRefits(model, bags)(known)
