"""MIRVM, MILogisticRegression and RVM as users meet them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import special
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import bagwise as bw
from bagwise.bags.rows import BLOCK_ROWS, RowSource
from bagwise.datasets import make_related_tasks

MODELS = [bw.MIRVM, bw.RVM, bw.MILogisticRegression, bw.MultiTaskMIRVM]
each_model = pytest.mark.parametrize("cls", MODELS, ids=lambda c: c.__name__)


def make_bags(n_bags: int = 80, n_features: int = 20, seed: int = 0) -> tuple[bw.Bags, np.ndarray]:
    bags, _, relevant = make_related_tasks(
        (n_bags,), n_features, n_relevant=3, similarity=1.0, random_state=seed
    )
    return bags, relevant


def separable_bags() -> bw.Bags:
    X = np.concatenate([np.linspace(-3, -2, 30), np.linspace(2, 3, 30)])[:, None]
    return bw.Bags.from_arrays(X, np.repeat(np.arange(20), 3), y=np.repeat([0, 1], 10))


# --- what it finds -------------------------------------------------------------------------------


def test_relevant_features_are_found_and_few_others() -> None:
    hits, spurious, rvm_kept, kept = 0, 0, 0, 0
    for seed in range(4):
        bags, _, relevant = make_related_tasks(
            (200,), 100, n_relevant=5, similarity=1.0, random_state=seed
        )
        model = bw.MIRVM(random_state=0).fit(bags)
        support = model.get_support(indices=True)
        hits += set(relevant) <= set(support)
        spurious += len(set(support) - set(relevant))
        kept += len(model.selected_features_)
        rvm_kept += len(bw.RVM(random_state=0).fit(bags).selected_features_)
    assert hits >= 3 and spurious <= 8
    assert rvm_kept > kept


def test_coefficients_are_in_raw_units_and_ignore_units() -> None:
    bags, _ = make_bags()
    factor = np.geomspace(1e-3, 1e3, 20)
    model, other = (
        bw.MIRVM(random_state=0).fit(b) for b in (bags, bags.with_X(bags.X * factor + 5))
    )
    np.testing.assert_allclose(other.coef_ * factor, model.coef_, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(other.coef_std_ * factor, model.coef_std_, rtol=1e-5, atol=1e-9)
    np.testing.assert_array_equal(other.get_support(), model.get_support())
    assert np.all((model.coef_std_ > 0) == (model.coef_ != 0))


def test_support_is_by_standard_deviations() -> None:
    bags, _ = make_bags()
    model = bw.MIRVM(random_state=0, support_z=0.0).fit(bags)
    np.testing.assert_array_equal(model.get_support(indices=True), model.selected_features_)
    model.set_params(support_z=2.5)
    z = np.abs(model.coef_[model.selected_features_]) / model.coef_std_[model.selected_features_]
    assert model.get_support().sum() == np.sum(z > 2.5) < len(model.selected_features_) + 1
    assert model.set_params(support_z=1e9).get_support().sum() == 0


def test_instance_probabilities_are_logistic_gaussian_averages() -> None:
    bags, _ = make_bags()
    model = bw.MIRVM(bag_score="joint", random_state=0).fit(bags)
    mean, variance = model.latent(bags)
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    draws = special.expit(mean[:, None] + np.sqrt(variance)[:, None] * nodes)
    first = draws @ weights / weights.sum()
    p, std = model.predict_instance_proba(bags, return_std=True)
    np.testing.assert_allclose(p[:, 1], first, atol=1e-5)
    np.testing.assert_allclose(std**2, draws**2 @ weights / weights.sum() - first**2, atol=1e-5)


def test_joint_bag_probabilities_are_those_of_samples() -> None:
    bags, _ = make_bags(40)
    model = bw.MIRVM(bag_score="joint", random_state=0).fit(bags)
    q = model.posterior_
    draws = np.random.default_rng(0).normal(size=(20_000, len(q.m)))
    f = q.features(bags.X)[0] @ (q.m + draws @ np.linalg.cholesky(q.S).T).T
    P0 = np.exp(np.add.reduceat(special.log_expit(-f), bags.offsets[:-1], axis=0))
    p, std = model.predict_proba(bags, return_std=True)
    mean, spread = P0.mean(axis=1), P0.std(axis=1)
    error = spread / np.sqrt(20_000)
    spread_error = np.std((P0 - mean[:, None]) ** 2, axis=1) / (2 * spread * np.sqrt(20_000))
    # A bag's own Sobol points add 1e-3.
    assert np.all(np.abs(p[:, 1] - (1 - mean)) <= 5 * error + 1e-3)
    assert np.all(np.abs(std - spread) <= 5 * spread_error + 1e-3)


def test_order_of_bags_rows_and_features_does_not_matter() -> None:
    bags, _ = make_bags(60, 8)
    rng = np.random.default_rng(1)
    order, columns = rng.permutation(60), rng.permutation(8)
    rows = [rng.permutation(b.X)[:, columns] for b in bags[order]]
    shuffled = bw.Bags.from_list(rows, y=bags.y[order])
    model, other = (
        bw.MIRVM(bag_score="joint", random_state=0, tol=1e-7).fit(b) for b in (bags, shuffled)
    )
    np.testing.assert_allclose(other.coef_, model.coef_[columns], atol=1e-5)
    p, q = model.predict_proba(bags[order]), other.predict_proba(shuffled)
    np.testing.assert_allclose(p, q, atol=1e-3)  # Sobol points of other directions


def test_rvm_is_mirvm_on_single_instances() -> None:
    bags, _ = make_bags(40, 6)
    single = bw.Bags.from_arrays(
        bags.X, np.arange(bags.n_instances), y=np.repeat(bags.y, bags.sizes)
    )
    one, other = bw.RVM(random_state=0).fit(bags), bw.MIRVM(random_state=0).fit(single)
    np.testing.assert_array_equal(one.coef_, other.coef_)
    assert one.log_evidence_ == other.log_evidence_


def test_rvm_believes_known_labels_over_the_bags() -> None:
    bags, _ = make_bags(40, 6)
    truth = np.repeat(bags.y, bags.sizes).astype(float)
    truth[bags.offsets[:-1]] = np.where(bags.y == 1, 1.0, 0.0)
    told = bags.with_instance_labels(np.where(np.arange(bags.n_instances) % 5 == 1, 0.0, np.nan))
    assert not np.allclose(
        bw.RVM(random_state=0).fit(told).coef_, bw.RVM(random_state=0).fit(bags).coef_
    )


def test_known_instance_labels_sharpen_the_weights() -> None:
    bags, _ = make_bags(60)
    model = bw.MIRVM(random_state=0).fit(bags)
    best = [rows[0] for rows in model.top_instances(bags)]
    known = np.full(bags.n_instances, np.nan)
    known[np.array(best)[bags.y == 1]] = 1
    told = bw.MIRVM(random_state=0).fit(bags.with_instance_labels(known))
    p = told.predict_instance_proba(bags)[:, 1]
    assert p[known == 1].mean() > model.predict_instance_proba(bags)[known == 1, 1].mean()


# --- penalties -----------------------------------------------------------------------------------


@pytest.mark.parametrize("alpha", ["evidence", "cv", 3.0])
def test_logistic_regression_keeps_every_feature(alpha: Any) -> None:
    bags, _ = make_bags(60)
    model = bw.MILogisticRegression(alpha=alpha, random_state=0).fit(bags)
    assert len(model.selected_features_) == 20 and len(set(model.alpha_.tolist())) == 1
    assert alpha != 3.0 or model.alpha_[0] == 3.0
    assert model.score(bags) > 0.8


def test_evidence_finds_the_best_shared_alpha() -> None:
    bags, _ = make_bags(60)
    model = bw.MILogisticRegression(random_state=0, tol=1e-8).fit(bags)
    for factor in (0.3, 3.0):
        other = bw.MILogisticRegression(alpha=factor * model.alpha_[0]).fit(bags)
        assert other.log_evidence_ < model.log_evidence_


def test_maximum_likelihood_is_the_limit_of_small_penalties() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = (X[:, 0] + rng.logistic(size=400) > 0).astype(int)
    likelihood = bw.MILogisticRegression(alpha=0).fit(X, y)
    small = bw.MILogisticRegression(alpha=1e-8).fit(X, y)
    np.testing.assert_allclose(likelihood.coef_, small.coef_, rtol=1e-5)
    np.testing.assert_allclose(likelihood.coef_std_, small.coef_std_, rtol=1e-5)


def test_maximum_likelihood_of_separable_bags_stops_with_a_warning() -> None:
    bags = separable_bags()
    with pytest.warns(ConvergenceWarning, match=r"separates the bags.*use alpha > 0"):
        model = bw.MILogisticRegression(alpha=0, random_state=0).fit(bags)
    assert np.isfinite(model.coef_).all() and np.isfinite(model.predict_proba(bags)).all()
    assert not model.converged_


def test_maximum_likelihood_of_too_many_features_is_refused() -> None:
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 3)), rng.integers(0, 2, 40)
    with pytest.raises(ValueError, match=r"undetermined.*use alpha > 0"):
        bw.MILogisticRegression(alpha=0).fit(np.column_stack([X, X[:, 0]]), y)
    # Fewer instances than features: separable as well, but this is what matters (no warning).
    with pytest.raises(ValueError, match=r"features outnumber instances"):
        bw.MILogisticRegression(alpha=0).fit(rng.normal(size=(6, 20)), [0, 1] * 3)


@each_model
def test_separable_bags_converge(cls: type) -> None:
    bags = separable_bags()
    model = cls(random_state=0).fit(bags)
    assert model.converged_ and np.abs(model.coef_).max() < 50
    assert model.score(bags) == 1.0


@each_model
def test_all_features_constant(cls: type) -> None:
    bags = separable_bags().with_X(np.ones((60, 2)))
    model = cls(random_state=0).fit(bags)
    assert len(model.selected_features_) == 0 and model.converged_
    p, std = model.predict_proba(bags, return_std=True)
    np.testing.assert_allclose(p, np.broadcast_to(p[0], p.shape))
    assert np.isfinite(std).all()
    assert cls is bw.RVM or 0.3 < p[0, 1] < 0.7  # RVM: each of three instances has even odds


@each_model
def test_numbers_that_overflow_are_an_error(cls: type) -> None:
    bags, _ = make_bags(20, 3)
    huge = bags.with_X(bags.X * 1e160)
    with pytest.raises(ValueError, match=r"features must be below 1e\+100"):
        cls(standardize=False, random_state=0).fit(huge)


@pytest.mark.parametrize("seed", [14, 42, 47, 49])
def test_bags_that_look_the_same_from_both_sides(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_bags, d = int(rng.integers(4, 30)), int(rng.integers(1, 6))
    x = rng.normal(size=(n_bags, d))
    y = (np.abs(x[:, 0]) > np.median(np.abs(x[:, 0]))).astype(int)
    bags = bw.Bags.from_list([np.stack([row, -row]) for row in x], y=y)
    model = bw.MILogisticRegression(random_state=0).fit(bags)
    assert model.converged_ and model.log_evidence_ <= 0


def test_a_saddle_names_what_linear_models_have() -> None:
    x = np.array([[3.0], [-3.0]])
    bags = bw.Bags.from_list([x, *[0.1 * x] * 6], y=[1] + [0] * 6)
    with pytest.raises(FloatingPointError, match=r"saddle.*raise max_iter, or use a larger alpha"):
        bw.MILogisticRegression(alpha=0.01, max_iter=1).fit(bags)


# --- kernels -------------------------------------------------------------------------------------


def test_kernel_features_learn_what_a_line_cannot(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = (np.sum(X**2, axis=1) > 1.6).astype(int)
    model = bw.MIRVM(kernel=bw.kernels.RBF(1.0, 1.0), n_basis=60, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.9 > bw.MIRVM(random_state=0).fit(X, y).score(X, y) + 0.1
    vectors = model.relevance_vectors_
    assert 1 <= len(vectors) < 40 and vectors.shape[1] == 2
    assert np.all(vectors >= X.min(axis=0)) and np.all(vectors <= X.max(axis=0))
    for what in ("get_support", "transform"):
        with pytest.raises(ValueError, match=r"weights belong to basis points.*without a kernel"):
            getattr(model, what)(*([X] if what == "transform" else []))
    model.save(tmp_path / "m.bagwise")
    np.testing.assert_array_equal(
        bw.load(tmp_path / "m.bagwise").predict_proba(X), model.predict_proba(X)
    )
    with pytest.raises(AttributeError, match="only with kernel"):
        _ = bw.MIRVM().fit(X, y).relevance_vectors_


class Ranges(RowSource):
    """Rows elsewhere, of which the longest range that is read is noted."""

    def __init__(self, X: np.ndarray) -> None:
        self.values, self.shape, self.dtype, self.longest = X, X.shape, X.dtype, 0

    def read(self, start: int, stop: int) -> np.ndarray:
        self.longest = max(self.longest, stop - start)
        return self.values[start:stop].copy()


def test_kernel_features_of_rows_elsewhere_are_computed_in_chunks() -> None:
    X = np.random.default_rng(0).normal(size=(3 * BLOCK_ROWS, 1))
    ids, y = np.repeat(np.arange(len(X) // 4), 4), X.reshape(-1, 4).max(axis=1) > 1
    rows, settings = Ranges(X), {"kernel": bw.kernels.RBF(1.0, 1.0), "n_basis": 3}
    found, expected = (
        bw.MIRVM(random_state=0, tol=1.0, **settings).fit(bw.Bags.from_arrays(x, ids, y=y))
        for x in (rows, X)
    )
    assert rows.longest <= BLOCK_ROWS
    np.testing.assert_allclose(found.coef_, expected.coef_, rtol=1e-6)


# --- as a selector -------------------------------------------------------------------------------


def test_selector_before_a_gaussian_process() -> None:
    bags, _ = make_bags(100)
    pipeline = make_pipeline(
        bw.MIRVM(random_state=0), bw.ProbitVGPMIL(n_inducing=20, random_state=0)
    )
    pipeline.fit(bags, bags.y)
    reduced = pipeline[:-1].transform(bags)
    assert isinstance(reduced, bw.Bags) and reduced.n_features == pipeline[0].get_support().sum()
    np.testing.assert_array_equal(reduced.X, bags.X[:, pipeline[0].get_support()])
    assert pipeline.score(bags, bags.y) > 0.8
    search = GridSearchCV(pipeline, {"mirvm__support_z": [0.0, 2.5]}, cv=2)
    assert search.fit(bags, bags.y).best_score_ > 0.6


def test_feature_names_come_from_the_table() -> None:
    bags, _ = make_bags(100, 5)
    columns = ["mean", "contrast", "edge", "size", "round"]
    table = pd.DataFrame(bags.X, columns=columns).assign(bag_id=bags.bag_index)
    named = bw.Bags.from_frame(table.assign(label=bags.y[bags.bag_index]))
    model = bw.MIRVM(random_state=0).fit(named)
    chosen = model.get_feature_names_out()
    assert chosen.tolist() == np.array(columns)[model.get_support()].tolist()
    assert model.transform(named).feature_names == tuple(chosen)
    unnamed = bw.MIRVM(random_state=0).fit(bags).get_feature_names_out()
    assert unnamed.tolist() == [f"x{j}" for j in model.get_support(indices=True)]
    with pytest.raises(ValueError, match="5 names seen in fit"):
        model.get_feature_names_out(["a", "b"])


def test_no_supported_feature() -> None:
    bags, _ = make_bags(40, 4)
    model = bw.MIRVM(support_z=1e6, random_state=0).fit(bags)
    with pytest.raises(ValueError, match=r"support_z=1000000.0 .*lower support_z"):
        model.transform(bags)
    with pytest.warns(UserWarning, match="no features are left"):
        assert model.transform(bags.X).shape == (bags.n_instances, 0)


# --- bad input -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha_limits": (1.0, 0.1)}, r"alpha_limits must be two numbers.*got \(1.0, 0.1\)"),
        ({"alpha_limits": "wide"}, "alpha_limits must be two numbers"),
        ({"alpha_init": 0.0}, "alpha_init must be a finite number greater than 0"),
        ({"update": "em"}, "update must be one of 'fixed-point', 'printed'"),
        ({"support_z": -1}, "support_z must be a finite number of at least 0"),
        ({"bag_score": "mean"}, "bag_score must be one of"),
        ({"standardize": "yes"}, "standardize must be one of"),
        ({"n_basis": 0}, "n_basis must be an integer of at least 1"),
        ({"chunk_size": 0}, "chunk_size must be an integer"),
        ({"max_iter": 0}, "max_iter must be an integer"),
        ({"tol": np.nan}, "tol must be a finite number"),
    ],
)
def test_bad_arguments(settings: dict[str, Any], message: str) -> None:
    bags, _ = make_bags(10, 3)
    with pytest.raises(ValueError, match=message):
        bw.MIRVM(**settings).fit(bags)


def test_bad_kernel_and_alpha() -> None:
    bags, _ = make_bags(10, 3)
    with pytest.raises(TypeError, match="kernel must be None or a bagwise kernel"):
        bw.MIRVM(kernel="rbf").fit(bags)
    with pytest.raises(ValueError, match="alpha must be one of 'evidence', 'cv'"):
        bw.MILogisticRegression(alpha="bic").fit(bags)
    with pytest.raises(ValueError, match="number of at least 0, got -1"):
        bw.MILogisticRegression(alpha=-1).fit(bags)
    with pytest.raises(ValueError, match=r"at least 2 bags of each class, got 1.*evidence"):
        bw.MILogisticRegression(alpha="cv").fit(np.eye(4), [0, 0, 0, 1])


@each_model
def test_bad_data(cls: type) -> None:
    bags, _ = make_bags(10, 3)
    with pytest.raises(ValueError, match="of 1 class"):
        cls().fit(bags, np.ones(10))
    with pytest.raises(ValueError, match="OneVsRestMIL"):
        cls().fit(bags, np.arange(10) % 3)
    with pytest.raises(ValueError, match="requires y"):
        cls().fit(bags.with_labels(None))
    with pytest.raises(ValueError, match="contains NaN"):
        cls().fit(np.full((4, 2), np.nan), [0, 1, 0, 1])
    with pytest.raises(NotFittedError):
        cls().predict(bags)
    known = np.where(np.repeat(bags.y, bags.sizes) == 0, 1.0, np.nan)
    with pytest.raises(ValueError, match="negative bag has no positive instance"):
        cls().fit(bags.with_instance_labels(known))
    with pytest.raises(ValueError, match="is expecting 3 features"):
        cls(random_state=0).fit(bags).predict(np.ones((2, 4)))


@each_model
def test_max_iter_is_said(cls: type) -> None:
    bags, _ = make_bags(30, 5)
    with pytest.warns(ConvergenceWarning, match="max_iter=1 "):
        cls(max_iter=1, tol=0.0, random_state=0).fit(bags)


@each_model
def test_a_new_fit_forgets_what_was_noted_of_the_last(cls: type) -> None:
    bags, _ = make_bags(20, 3)
    model = cls(random_state=0).fit(bags)
    model.metadata_ = {"classes": ["no", "yes"]}
    assert model.fit(bags).metadata_ == {}


def test_seeds_of_any_whole_number_type_are_saved(tmp_path: Path) -> None:
    bags, _ = make_bags(20, 3)
    bw.MIRVM(random_state=np.int64(3)).fit(bags).save(tmp_path / "m.bagwise")
    assert bw.load(tmp_path / "m.bagwise").random_state == 3


def test_verbose(capsys: pytest.CaptureFixture[str]) -> None:
    bags, _ = make_bags(20, 3)
    bw.MIRVM(verbose=1, random_state=0).fit(bags)
    assert "3 features" in capsys.readouterr().out


# --- real data -----------------------------------------------------------------------------------


def test_musk1_with_few_features() -> None:
    bags = bw.datasets.load_musk1()
    model = bw.MIRVM(random_state=0).fit(bags)
    assert len(model.selected_features_) <= 40
    assert model.score(bags) > 0.9


def restless(alpha: np.ndarray, w: np.ndarray, variances: np.ndarray) -> np.ndarray:
    """An update without a fixed point, whatever the processor rounds."""
    return np.where(alpha > 1, 0.1, 10.0)


def test_precisions_that_go_back_and_forth_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bagwise.models.mirvm.fixed_point", restless)
    bags, _ = bw.datasets.make_bags(40, random_state=0)
    model = bw.MIRVM(bag_score="joint", random_state=0)
    with pytest.warns(ConvergenceWarning, match=r"went back and forth.*compare"):
        model.fit(bags)
    assert not model.converged_ and model.n_iter_ < 500


def test_musk2_takes_few_steps(load_shared: Callable[[str], dict[str, np.ndarray]]) -> None:
    data = load_shared("musk2")
    bags = bw.Bags.from_arrays(data["X"].astype(float), data["bag"], y=data["y_bag"])
    model = bw.MIRVM(random_state=0).fit(bags)
    assert model.converged_ and model.n_iter_ < 200 and len(model.selected_features_) <= 40
