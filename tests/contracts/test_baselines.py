"""What every baseline promises; each class in BASELINES is enrolled by itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import check_grad
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics.pairwise import rbf_kernel
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import bagwise as bw
from bagwise.baselines import BASELINES, MILR, boosting, logistic, svm
from bagwise.datasets import make_bags, make_false_frequency, make_multi_concept
from bagwise.metrics import roc_auc

NAMES = sorted(BASELINES)
FAST: dict[str, dict[str, Any]] = {"MIBoost": {"n_estimators": 10}}
WITH_INSTANCES = [n for n in NAMES if hasattr(BASELINES[n], "predict_instance_proba")]
each_model = pytest.mark.parametrize("name", NAMES)


def make(name: str, **settings: Any) -> Any:
    model = BASELINES[name](**(FAST.get(name, {}) | settings))
    return model.set_params(random_state=0) if "random_state" in model.get_params() else model


@pytest.fixture(scope="module")
def bags() -> bw.Bags:
    return make_bags(60, (2, 8), 4, overlap=0.01, witness_rate=0.6, random_state=0)[0]


def expected_failed_checks(estimator: Any) -> dict[str, str]:
    if isinstance(estimator, boosting.MIBoost):  # to trees the scale of features is nothing
        return {}
    return {"check_sample_weight_equivalence_on_dense_data": "scaling sees every instance once"}


@parametrize_with_checks(
    [make(name) for name in NAMES], expected_failed_checks=expected_failed_checks
)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    check(estimator)


@each_model
def test_learns_and_predicts_new_bags(name: str, bags: bw.Bags) -> None:
    model = make(name).fit(bags)
    new, _ = make_bags(60, (2, 8), 4, overlap=0.01, witness_rate=0.6, random_state=1)
    P = model.predict_proba(new)
    assert P.shape == (60, 2) and P.min() >= 0
    np.testing.assert_allclose(P.sum(axis=1), 1)
    np.testing.assert_array_equal(model.predict(new), model.classes_[P.argmax(axis=1)])
    assert roc_auc(new, P) > 0.85
    assert model.score(new) == np.mean(model.predict(new) == new.y)


@pytest.mark.parametrize("name", ["MILR", "MaxPoolLogistic", "MeanPoolLogistic", "SIL"])
def test_small_probabilities_keep_their_digits(name: str, bags: bw.Bags) -> None:
    far = bags.with_X(bags.X + 40)
    P = make(name).fit(bags).predict_proba(far)
    assert P[:, 1].max() == 1 and 0 < P[:, 0].min() < 1e-17


# Folds of SVMs part copies of a bag, so that their decision values are compared, not sigmoids.
@pytest.mark.parametrize("name", NAMES)
def test_weights_are_copies(name: str, bags: bw.Bags, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bagwise.baselines.base.scaling", lambda X, standardize: (0.0, 1.0))
    monkeypatch.setattr(svm._CalibratedSVM, "_held_out", lambda *parts: None)
    settings = {"gamma": 0.5} if "gamma" in make(name).get_params() else {}
    settings |= {"tol": 1e-10} if name == "MILR" else {}
    weights = np.arange(len(bags)) % 4
    copies = np.repeat(np.arange(len(bags)), weights)
    repeated = bw.Bags.from_list([np.array(bags[int(b)].X) for b in copies], y=bags.y[copies])
    weighted = make(name, **settings).fit(bags, sample_weight=weights).predict_proba(bags)
    copied = make(name, **settings).fit(repeated).predict_proba(bags)
    np.testing.assert_allclose(weighted, copied, atol=5e-3)
    plain = make(name, **settings).fit(bags).predict_proba(bags)
    assert np.max(np.abs(weighted - plain)) > 0.02


@pytest.mark.parametrize("name", WITH_INSTANCES)
def test_instances(name: str, bags: bw.Bags) -> None:
    new, truth = make_bags(40, (2, 8), 4, overlap=0.01, witness_rate=0.6, random_state=1)
    model = make(name).fit(bags)
    P = model.predict_instance_proba(new)
    assert P.shape == (new.n_instances, 2)
    assert roc_auc(truth, P) > 0.9
    assert set(model.predict_instances(new)) <= {0, 1}


def test_pooled_models_have_no_instances() -> None:
    assert set(NAMES) - set(WITH_INSTANCES) == {
        "MaxPoolLogistic",
        "MeanPoolLogistic",
        "SetKernelSVM",
    }


@each_model
def test_lists_of_arrays_and_names_as_labels(name: str, bags: bw.Bags) -> None:
    y = np.array(["healthy", "ill"])[bags.y]
    arrays = [np.array(b.X) for b in bags]
    model = make(name).fit(arrays, y, positive="ill")
    assert model.classes_.tolist() == ["healthy", "ill"]
    np.testing.assert_array_equal(
        model.predict_proba(bags), make(name).fit(bags).predict_proba(bags)
    )


@each_model
def test_units_of_features_do_not_matter(name: str, bags: bw.Bags) -> None:
    other = bags.with_X(bags.X * [1e3, 1e-3, 1, 5] + [0, 7, -3, 1])
    p, q = (make(name).fit(b).predict_proba(b) for b in (bags, other))
    np.testing.assert_allclose(p, q, atol=2e-3)


@each_model
def test_known_instance_labels_are_refused(name: str, bags: bw.Bags) -> None:
    labels = np.where(np.repeat(bags.y, bags.sizes) == 0, 0, np.nan)
    with pytest.raises(ValueError, match="bag labels only"):
        make(name).fit(bags.with_instance_labels(labels))


@each_model
def test_bad_arguments_are_refused(name: str, bags: bw.Bags) -> None:
    for parameter in set(make(name).get_params()) - {"random_state"}:
        with pytest.raises(ValueError, match=parameter):
            clone(make(name)).set_params(**{parameter: -1}).fit(bags)
    with pytest.raises(ValueError, match="both classes"):
        make(name).fit(bags, np.ones(len(bags)))


@each_model
def test_cross_validation(name: str, bags: bw.Bags) -> None:
    assert cross_val_score(make(name), bags, bags.y, cv=3, scoring="roc_auc").mean() > 0.8


def test_grid_search(bags: bw.Bags) -> None:
    search = GridSearchCV(make("MILR"), {"C": [0.1, 1.0]}, cv=2).fit(bags, bags.y)
    assert search.best_params_["C"] in (0.1, 1.0)


# --- The pieces, against slow references ---------------------------------------------------------


def test_milr_gradient_and_softmax(bags: bw.Bags) -> None:
    T = bags.y == 1
    args = (np.asarray(bags.X), bags.offsets, T, 2.5, 0.7)
    v = np.random.default_rng(0).normal(size=5)

    def value(v: np.ndarray) -> float:
        return logistic.milr_objective(v, *args)[0]

    assert check_grad(value, lambda v: logistic.milr_objective(v, *args)[1], v) < 1e-4
    P, Q, _ = logistic.softmax_pool(bags.X @ v[:-1] + v[-1], bags.offsets, 2.5)
    slow = 0.5 * v[:-1] @ v[:-1]
    for b, bag in enumerate(bags):
        p = 1 / (1 + np.exp(-(bag.X @ v[:-1] + v[-1])))
        expected = np.sum(p * np.exp(2.5 * p)) / np.sum(np.exp(2.5 * p))
        np.testing.assert_allclose([P[b], Q[b]], [expected, 1 - expected])
        slow -= 0.7 * np.log(expected if T[b] else 1 - expected)
    np.testing.assert_allclose(value(v), slow)


def test_milr_probabilities_do_not_exceed_one() -> None:
    model = MILR().fit(np.array([[0.0], [1.0]]), [0, 1])
    model.coef_, model.intercept_ = np.array([1.0]), 60.0
    rng = np.random.default_rng(0)
    P = model.predict_proba([rng.normal(size=(n, 1)) for n in range(1, 300)])
    assert P.min() >= 0 and P.max() <= 1


def test_milr_says_when_it_stops_early(bags: bw.Bags) -> None:
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        make("MILR", max_iter=1).fit(bags)


def test_set_kernel_is_the_mean_over_pairs(bags: bw.Bags, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(svm, "BLOCK", 7)
    a, b = bags[:5], bags[5:9]
    K = svm.set_kernel(a.X, a.offsets, b.X, b.offsets, 0.3)
    slow = [[rbf_kernel(u.X, v.X, gamma=0.3).mean() for v in b] for u in a]
    np.testing.assert_allclose(K, slow)
    own = [rbf_kernel(u.X, gamma=0.3).mean() for u in a]
    np.testing.assert_allclose(svm._self_kernel(a.X, a.offsets, 0.3), own)


def test_sigmoid_recovers_probabilities() -> None:
    rng = np.random.default_rng(0)
    f = 3 * rng.normal(size=20_000)
    slope, intercept = svm.fit_sigmoid(f, rng.random(20_000) < 1 / (1 + np.exp(-(0.8 * f - 0.5))))
    assert abs(slope - 0.8) < 0.08 and abs(intercept + 0.5) < 0.15


def test_sigmoid_keeps_the_order_of_decisions() -> None:
    f = np.arange(10.0)
    assert svm.fit_sigmoid(f, f < 5)[0] > 0


def test_misvm_ends_where_its_choice_is_its_own(bags: bw.Bags) -> None:
    X, T = np.asarray(bags.X), bags.y == 1
    model = make("MISVM")
    machine = model._machine(X, bags.offsets, T, np.ones(len(T)))
    best = svm.best_rows(machine.decision_function(X), bags.offsets)[T]
    inside = X[~np.repeat(T, bags.sizes)]
    rows, labels = np.vstack([inside, X[best]]), np.repeat([False, True], [len(inside), len(best)])
    again = model._svc(rows, labels, np.ones(len(rows)))
    np.testing.assert_allclose(again.decision_function(X), machine.decision_function(X))


def test_misvm_variant_leaves_no_positive_bag_without_a_positive(bags: bw.Bags) -> None:
    model = make("miSVM").fit(bags)
    assert model.n_iter_ >= 1 and model.score(bags) > 0.9


def test_boosting_step_minimises_the_loss() -> None:
    rng = np.random.default_rng(0)
    W, margin = rng.random(20), rng.uniform(-1, 0.8, 20)
    grid = np.linspace(0, boosting.LARGEST_STEP, 20001)
    loss = (W * np.exp(grid[:, None] * margin)).sum(axis=1)
    assert abs(boosting.best_step(W, margin) - grid[loss.argmin()]) < 1e-3
    assert boosting.best_step(W, np.abs(margin)) == 0
    assert boosting.best_step(W, -np.abs(margin)) == boosting.LARGEST_STEP


def test_boosting_lowers_the_exponential_loss() -> None:
    bags, _ = make_bags(60, 6, 4, overlap=0.3, random_state=0)
    T = np.where(bags.y == 1, 1.0, -1.0)
    losses = []
    for n in (1, 5, 20):
        P = make("MIBoost", n_estimators=n).fit(bags).predict_proba(bags)
        losses.append(np.mean(np.exp(-T * 0.5 * np.log(P[:, 1] / P[:, 0]))))
    assert losses[0] > losses[1] > losses[2]


# --- The multiple instance assumption ------------------------------------------------------------


def test_averaging_models_count_decoys() -> None:
    train, _ = make_false_frequency(random_state=0)
    test, _ = make_false_frequency(part="test", random_state=1)
    auc = {n: roc_auc(test, make(n).fit(train).predict_proba(test)) for n in NAMES}
    assert auc["MaxPoolLogistic"] > 0.85 and auc["miSVM"] > 0.7
    for name in ("MeanPoolLogistic", "SetKernelSVM", "MIBoost", "SIL"):
        assert auc[name] < 0.5


def test_two_concepts_are_beyond_a_line() -> None:
    train, _ = make_multi_concept(random_state=0)
    test, _ = make_multi_concept(part="test", random_state=1)
    auc = {n: roc_auc(test, make(n).fit(train).predict_proba(test)) for n in ("MISVM", "MILR")}
    assert auc["MISVM"] > 0.95 > 0.85 > auc["MILR"]
