"""Weights of bags: an integer weight is as many copies of the bag, 0 leaves it out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bagwise as bw
from bagwise.core.features import whitener
from bagwise.core.inference.driver import Problem, fit_q
from bagwise.core.inference.hyper import EvidenceObjective, Hyperparameters
from bagwise.core.inference.passes import TrainingData
from bagwise.core.inference.thinning import thin
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Link, Logistic, Probit
from bagwise.models import MODELS
from bagwise.models._gaussian_process import GaussianProcessMIL
from bagwise.models.probit import ProbitSites
from bagwise.models.vgpmil import LogisticSites
from toy_bags import separable_bags

GP_NAMES = sorted(n for n, cls in MODELS.items() if issubclass(cls, GaussianProcessMIL))
LINEAR_NAMES = sorted(set(MODELS) - set(GP_NAMES))
WEIGHTS = np.array([2, 1, 0, 3, 1, 1, 2, 0, 1, 4, 1, 2], dtype=float)
COPIES = np.repeat(np.arange(12), WEIGHTS.astype(int))


def overlapping_bags(n_bags: int = 12, n_features: int = 2, seed: int = 1) -> bw.Bags:
    """Bags whose labels no rule explains without doubt."""
    bags = separable_bags(n_bags, n_features, seed)
    X = np.array(bags.X)
    X[:, 0] -= np.where(X[:, 0] > 3, 4.5, 0.0)
    return bags.with_X(X)


BAGS = overlapping_bags()
Z = np.array([[-1.0, 0.0], [0.0, 1.0], [0.5, -1.0], [1.5, 0.5]])
SETTINGS: dict[str, Any] = {
    "kernel": bw.kernels.RBF(2.0, 1.5),
    "inducing": Z,
    "standardize": False,
    "learn_hyperparameters": False,
    "tol": 1e-12,
    "max_iter": 5000,
    "random_state": 0,
}


def repeated(bags: bw.Bags, copies: np.ndarray) -> bw.Bags:
    """Bags by number, as often as they are named."""
    return bw.Bags.from_list([np.array(bags[int(b)].X) for b in copies], y=bags.y[copies])


def gp(name: str, **more: Any) -> Any:
    own = {"IsingVGPMIL": {"neighbors": "chain", "coupling": 0.1}}.get(name, {})
    return MODELS[name](**(SETTINGS | own | more))


def assert_same_fit(one: Any, other: Any, tol: float = 1e-6) -> None:
    np.testing.assert_allclose(one.posterior_.m, other.posterior_.m, atol=tol)
    np.testing.assert_allclose(one.posterior_.S, other.posterior_.S, atol=tol)
    assert one.elbo_ == pytest.approx(other.elbo_, rel=tol)
    assert one.mean_ == pytest.approx(other.mean_, rel=tol)


# --- Gaussian processes -------------------------------------------------------------------------

WAYS = [
    ("VGPMIL", {}),
    ("VGPMIL", {"mean": -0.5}),
    ("VGPMIL", {"H": 20.0}),
    ("VGPMIL", {"H": "learn", "mean": -0.5}),
    ("VGPMIL", {"inference": "laplace"}),
    ("VGPMIL", {"label_posterior": "factorised", "H": 20.0, "mean": -0.5}),
    ("PGVGPMIL", {}),
    ("PsiVGPMIL", {"mean": 0.0, "psi": bw.densities.Laplace(2.0), "bag_score": "joint"}),
    ("GammaVGPMIL", {}),
    ("LargeMarginVGPMIL", {}),
    ("LargeMarginVGPMIL", {"label_posterior": "factorised", "H": 20.0}),
    ("ProbitVGPMIL", {}),
    ("ProbitVGPMIL", {"approximation": "vfe"}),
    ("ProbitVGPMIL", {"inference": "laplace", "mean": -0.5}),
    ("IsingVGPMIL", {}),
    ("IsingVGPMIL", {"approximation": "vfe", "mean": -0.5}),
    ("IsingVGPMIL", {"moments": "diagonal", "mean": -0.5}),
]


@pytest.mark.parametrize(("name", "settings"), WAYS, ids=str)
def test_a_weight_is_a_number_of_copies(name: str, settings: dict[str, Any]) -> None:
    weighted = gp(name, **settings).fit(BAGS, sample_weight=WEIGHTS)
    copied = gp(name, **settings).fit(repeated(BAGS, COPIES))
    # EP ends at a tolerance of its own.
    assert_same_fit(weighted, copied, 1e-4 if name == "IsingVGPMIL" else 1e-6)
    if settings.get("H") == "learn":
        np.testing.assert_allclose(weighted.H_, copied.H_, rtol=1e-6)


def test_all_gaussian_process_models_are_here() -> None:
    assert {name for name, _ in WAYS} == set(GP_NAMES)


@pytest.mark.parametrize("name", GP_NAMES)
def test_weights_change_the_fit_and_ones_do_not(name: str) -> None:
    plain = gp(name).fit(BAGS)
    assert plain.elbo_ == gp(name).fit(BAGS, sample_weight=np.ones(12)).elbo_
    assert abs(plain.elbo_ - gp(name).fit(BAGS, sample_weight=WEIGHTS).elbo_) > 0.01


@pytest.mark.parametrize("chunk_size", [3, None])
def test_known_instance_labels_and_chunks(chunk_size: int | None) -> None:
    known = np.full(BAGS.n_instances, np.nan)
    known[BAGS.offsets[:-1]] = BAGS.y  # the first instance of each bag
    known[BAGS.offsets[4:6]] = np.nan
    told = BAGS.with_instance_labels(known)
    copies = repeated(BAGS, COPIES).with_instance_labels(
        np.concatenate([known[BAGS.offsets[b] : BAGS.offsets[b + 1]] for b in COPIES])
    )
    for name, tol in (("VGPMIL", 1e-6), ("ProbitVGPMIL", 1e-6), ("IsingVGPMIL", 1e-4)):
        weighted = gp(name, chunk_size=chunk_size).fit(told, sample_weight=WEIGHTS)
        assert_same_fit(weighted, gp(name).fit(copies), tol)  # EP ends at a tolerance of its own


def test_the_learned_coupling_counts_bags() -> None:
    weighted = gp("IsingVGPMIL", coupling="learn").fit(BAGS, sample_weight=WEIGHTS)
    copied = gp("IsingVGPMIL", coupling="learn").fit(repeated(BAGS, COPIES))
    np.testing.assert_allclose(weighted.coupling_gains_, copied.coupling_gains_, atol=1e-6)
    assert_same_fit(weighted, copied, 1e-4)


def problem(link: Link, bags: bw.Bags, counts: np.ndarray | None, H: float = np.inf) -> Problem:
    data = TrainingData(bags.X, bags.offsets, bags.y == 1, counts=counts)
    likelihood = BagLikelihood(link, H)
    sites = LogisticSites(likelihood) if isinstance(link, Logistic) else ProbitSites(likelihood)
    return Problem(data, Z, likelihood, sites, jitter=1e-6, seed=0)


@pytest.mark.parametrize("inference", ["vi", "laplace"])
@pytest.mark.parametrize("link", [Probit(), Logistic()], ids=["probit", "logistic"])
def test_learned_hyperparameters_are_those_of_copies(link: Link, inference: str) -> None:
    kernel = bw.kernels.RBF(2.0, 1.5)
    found = [
        fit_q(
            problem(link, bags, counts),
            kernel,
            kernel,
            mean=None,
            learn_kernel=True,
            prior_scale=0.5,
            inference=inference,
            max_iter=5000,
            tol=1e-12,
        )
        for bags, counts in ((BAGS, WEIGHTS), (repeated(BAGS, COPIES), None))
    ]
    one, other = found
    np.testing.assert_allclose(one.kernel.theta, other.kernel.theta, atol=1e-6)
    assert one.q.c0 == pytest.approx(other.q.c0, abs=1e-6)
    assert np.max(np.abs(one.kernel.theta - kernel.theta)) > 1e-3
    np.testing.assert_allclose(one.q.m, other.q.m, atol=1e-5)
    assert one.trace.history[-1] == pytest.approx(other.trace.history[-1], rel=1e-7)


@pytest.mark.parametrize("H", [np.inf, 20.0])
@pytest.mark.parametrize("link", [Probit(), Logistic()], ids=["probit", "logistic"])
def test_evidence_and_its_gradient_with_fractions(link: Link, H: float) -> None:
    counts = WEIGHTS * 0.7 + 0.1
    given = problem(link, BAGS, counts, H)
    h = Hyperparameters(bw.kernels.RBF(2.0, 1.5), -0.5)
    objective = EvidenceObjective(
        given.data, given.likelihood, Z, 1e-6, h, h, learn_kernel=True, learn_mean=True
    )
    x = objective.pack(h) + 0.1
    _, gradient = objective(x)
    objective.accept()
    eps = 1e-5
    for i, e in enumerate(eps * np.eye(len(x))):
        slope = (objective(x + e)[0] - objective(x - e)[0]) / (2 * eps)
        assert gradient[i] == pytest.approx(slope, abs=1e-5)


def test_the_bound_of_psi_counts_bags_in_log_z_too() -> None:
    settings = {"psi": bw.densities.PolyaGamma(1.2), "mean": 0.0, "bag_score": "max"}
    settings |= {"kernel": bw.kernels.RBF(0.3, 2.0)}
    weighted = gp("PsiVGPMIL", **settings).fit(BAGS, sample_weight=WEIGHTS)
    copies = repeated(BAGS, COPIES)
    value = weighted.normalised_elbo(BAGS, sample_weight=WEIGHTS)
    copied = gp("PsiVGPMIL", **settings).fit(copies)
    assert value == pytest.approx(copied.normalised_elbo(copies), abs=1e-6)
    assert abs(value - weighted.normalised_elbo(BAGS)) > 1e-3
    with pytest.raises(ValueError, match=r"class_weight='balanced'.*give sample_weight"):
        weighted.set_params(class_weight="balanced").normalised_elbo(BAGS)


@pytest.mark.filterwarnings("ignore:the chains disagree")
def test_gibbs_takes_copies() -> None:
    settings = {"inference": "gibbs", "n_samples": 20, "n_chains": 2, "burn_in": 5, "mean": -0.5}
    weighted = gp("ProbitVGPMIL", **settings).fit(BAGS, sample_weight=WEIGHTS)
    copied = gp("ProbitVGPMIL", **settings).fit(repeated(BAGS, COPIES))
    np.testing.assert_allclose(weighted.gibbs_.v, copied.gibbs_.v, atol=1e-6)
    with pytest.raises(ValueError, match=r"whole numbers; got 0\.5; round them"):
        gp("ProbitVGPMIL", **settings).fit(BAGS, sample_weight=WEIGHTS / 2)


# --- linear models ------------------------------------------------------------------------------

LINEAR: dict[str, Any] = {"standardize": False, "random_state": 0, "tol": 1e-9, "max_iter": 2000}


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.filterwarnings("ignore::bagwise.NearChanceWarning")
@pytest.mark.parametrize("n_features", [2, 60], ids=["primal", "dual"])
@pytest.mark.parametrize("name", LINEAR_NAMES)
def test_linear_weights_are_copies(name: str, n_features: int) -> None:
    bags = overlapping_bags(n_features=n_features)
    more = {"max_iter": 5} if n_features > 2 and name != "MILogisticRegression" else {}
    weighted = MODELS[name](**(LINEAR | more)).fit(bags, sample_weight=WEIGHTS)
    copied = MODELS[name](**(LINEAR | more)).fit(repeated(bags, COPIES))
    plain = MODELS[name](**(LINEAR | more)).fit(bags)
    np.testing.assert_allclose(weighted.coef_, copied.coef_, atol=1e-5)
    np.testing.assert_allclose(weighted.intercept_, copied.intercept_, atol=1e-5)
    np.testing.assert_allclose(weighted.alpha_, copied.alpha_, rtol=1e-4)
    assert weighted.log_evidence_ == pytest.approx(copied.log_evidence_, abs=1e-5)
    assert abs(plain.log_evidence_ - weighted.log_evidence_) > 0.01


@pytest.mark.parametrize("alpha", [0.0, 2.0])
def test_a_given_penalty(alpha: float) -> None:
    model = bw.MILogisticRegression(alpha=alpha, **LINEAR)
    weighted = model.fit(BAGS, sample_weight=WEIGHTS).coef_
    np.testing.assert_allclose(weighted, model.fit(repeated(BAGS, COPIES)).coef_, atol=1e-6)


def test_folds_leave_out_bags_that_count_nothing() -> None:
    bags = overlapping_bags(20)
    weights = np.where(np.arange(20) < 8, 0.0, 1.0)
    model = bw.MILogisticRegression(alpha="cv", **LINEAR)
    found = model.fit(bags, sample_weight=weights).coef_
    np.testing.assert_allclose(found, model.fit(bags[8:]).coef_, atol=1e-8)


def test_tasks_need_both_classes_to_count() -> None:
    tasks = np.repeat(["a", "b"], 6)
    model = bw.MultiTaskMIRVM(**LINEAR)
    weights = np.where((tasks == "b") & (BAGS.y == 1), 0.0, 1.0)
    with pytest.raises(ValueError, match=r"all 3 bags of task 'b' are negative"):
        model.fit(BAGS, tasks=tasks, sample_weight=weights)


# --- weights as they are given ------------------------------------------------------------------


def fast(**more: Any) -> Any:
    return bw.ProbitVGPMIL(**(SETTINGS | more))


def test_weight_zero_leaves_a_bag_out_of_the_likelihood() -> None:
    weights = np.array([0.0, 0.0] + [1.0] * 10)
    assert_same_fit(fast().fit(BAGS, sample_weight=weights), fast().fit(BAGS[2:]))
    # Scaling and inducing points see it all the same.
    far = np.array(BAGS.X)
    far[: BAGS.offsets[1]] += 100
    seen = {"standardize": True, "inducing": "kmeans", "n_inducing": 4}
    models = [fast(**seen).fit(bags, sample_weight=weights) for bags in (BAGS, BAGS.with_X(far))]
    assert models[1].posterior_.scale[0] > 10 * models[0].posterior_.scale[0]
    assert models[1].inducing_points_.max() > 50 > models[0].inducing_points_.max()


def test_class_weights() -> None:
    rare = BAGS[np.array([0, 1, 2, 4, 6, 3, 8, 10])]
    assert rare.y.sum() == 2
    by_hand = fast().fit(rare, sample_weight=np.where(rare.y == 1, 2.0, 2 / 3)).elbo_
    assert fast(class_weight="balanced").fit(rare).elbo_ == pytest.approx(by_hand, rel=1e-9)
    assert fast(class_weight={0: 2 / 3, 1: 2.0}).fit(rare).elbo_ == pytest.approx(by_hand, rel=1e-9)
    # A class without an entry counts once; balance is that of the copies.
    assert fast(class_weight={1: 1}).fit(rare).elbo_ == fast().fit(rare).elbo_
    named = np.array(["no", "yes"])[rare.y]
    text = fast(class_weight={"yes": 2.0, "no": 2 / 3}).fit(rare, named)
    assert text.elbo_ == pytest.approx(by_hand, rel=1e-9)
    copies = np.array([0, 1, 1, 1, 2, 3, 4, 5, 6, 7])
    weights = np.bincount(copies).astype(float)
    balanced = fast(class_weight="balanced")
    weighted = balanced.fit(rare, sample_weight=weights).elbo_
    assert balanced.fit(repeated(rare, copies)).elbo_ == pytest.approx(weighted, rel=1e-9)


def test_a_series_is_found_by_its_ids() -> None:
    ids = [f"slide {b:02d}" for b in range(12)]
    bags = bw.Bags.from_arrays(BAGS.X, np.repeat(ids, BAGS.sizes), y=BAGS.y)
    weights = pd.Series(WEIGHTS, index=ids)[::-1]
    assert (
        fast().fit(bags, sample_weight=weights).elbo_
        == fast().fit(bags, sample_weight=WEIGHTS).elbo_
    )


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (np.ones(11), r"one entry per bag: 12; got 11; pass one"),
        (np.ones((12, 2)), r"one-dimensional; got shape \(12, 2\)"),
        (np.r_[np.ones(11), np.nan], r"missing entries; .* is nan; leave"),
        (np.r_[np.ones(11), np.inf], r"finite and not negative; bag 11 has inf; give it 0"),
        (np.r_[-1.0, np.ones(11)], r"finite and not negative; bag 0 has -1; give it 0"),
        (["many"] * 12, r"must be numbers, one per bag; got \['many'"),
        (1.0 * (BAGS.y == 0), r"all 6 bags of class 1 have a weight of zero; give some"),
    ],
    ids=["short", "table", "nan", "inf", "negative", "text", "class"],
)
@pytest.mark.parametrize("name", ["ProbitVGPMIL", "MIRVM"])
def test_weights_that_are_refused(name: str, weights: Any, message: str) -> None:
    model = MODELS[name]()
    with pytest.raises(ValueError, match=message):
        model.fit(BAGS, sample_weight=weights)
    assert not hasattr(model, "posterior_")


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ("even", r"must be None, 'balanced' or \{class: weight\}, got 'even'"),
        ([1, 2], r"must be None, 'balanced' or \{class: weight\}"),
        ({0: 1, 1: -1}, r"class_weight of 1 must be a finite number .*got -1"),
        ({0: 1, 2: 1}, r"class_weight has the class 2, which no bag has; the classes are 0, 1"),
        ({1: 0}, r"all 6 bags of class 1 have a weight of zero"),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["ProbitVGPMIL", "MIRVM"])
def test_class_weights_that_are_refused(name: str, weights: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        MODELS[name](class_weight=weights).fit(BAGS)


# --- calibration, files, checkpoints ------------------------------------------------------------


def test_calibration_counts_bags() -> None:
    bags = overlapping_bags(40)
    weights = np.where(np.arange(40) < 12, 0.0, 1.0 + np.arange(40) % 3)
    settings = {"bag_score": "calibrated"}
    model = fast(**settings).fit(bags, sample_weight=weights)
    assert model.calibration_.n_bags == 28
    plain = fast(**settings).fit(bags)
    assert not np.allclose(model.calibration_.weights, plain.calibration_.weights, atol=1e-3)
    few = np.where(np.arange(40) < 36, 0.0, 1.0)
    with pytest.raises(ValueError, match=r"3 bags of each class, there are 2 and 2"):
        fast(**settings).fit(bags, sample_weight=few)


@pytest.mark.parametrize("weight", [None, "balanced", {0: 1.0, 1: 2.5}, {"no": 2, "yes": 1}])
def test_model_files_keep_class_weights(weight: Any, tmp_path: Path) -> None:
    y = np.array(["no", "yes"])[BAGS.y] if isinstance(weight, dict) and "no" in weight else BAGS.y
    for model in (fast(class_weight=weight), bw.MIRVM(class_weight=weight)):
        model.fit(BAGS, y).save(tmp_path / "m.bagwise")
        assert bw.load(tmp_path / "m.bagwise").class_weight == weight


def test_a_checkpoint_is_of_its_weights(tmp_path: Path) -> None:
    file = tmp_path / "run.ckpt"
    first = fast().fit(BAGS, sample_weight=WEIGHTS, checkpoint=file, checkpoint_minutes=0)
    again = fast().fit(BAGS, sample_weight=WEIGHTS, resume=file)
    assert again.elbo_ == pytest.approx(first.elbo_, rel=1e-9)
    with pytest.raises(ValueError, match=r"another fit: the weights of bags differ"):
        fast().fit(BAGS, resume=file)


# --- life inside scikit-learn -------------------------------------------------------------------


def test_routing_to_cross_validation_search_and_pipelines() -> None:
    bags = overlapping_bags(24)
    weights = 1.0 + np.arange(24) % 3
    scores = cross_val_score(fast(), bags, bags.y, cv=2, params={"sample_weight": weights})
    assert scores.shape == (2,)
    with config_context(enable_metadata_routing=True):
        model = fast().set_fit_request(sample_weight=True).set_score_request(sample_weight=False)
        routed = cross_val_score(model, bags, bags.y, cv=2, params={"sample_weight": weights})
        np.testing.assert_allclose(routed, scores)
        search = GridSearchCV(model, {"mean": [-1.0, -0.5]}, cv=2)
        search.fit(bags, bags.y, sample_weight=weights)
        scaler = bw.InstanceTransformer(StandardScaler())
        pipeline = make_pipeline(scaler, model).fit(bags, bags.y, sample_weight=weights)
    best = search.best_estimator_
    assert best.elbo_ == fast(mean=best.mean).fit(bags, sample_weight=weights).elbo_
    by_hand = fast().fit(pipeline[0].transform(bags), bags.y, sample_weight=weights)
    assert pipeline[1].elbo_ == pytest.approx(by_hand.elbo_, rel=1e-9)


def test_one_vs_rest_hands_weights_on() -> None:
    bags = overlapping_bags(24)
    kinds = np.array(["bee", "cow", "owl"])[np.arange(24) % 3]
    weights = pd.Series(1.0 + np.arange(24) % 4, index=bags.ids)[::-1]
    model = bw.OneVsRestMIL(fast()).fit(bags, kinds, sample_weight=weights)
    alone = fast().fit(bags, 1 * (kinds == "cow"), sample_weight=weights)
    assert model.estimators_[1].elbo_ == alone.elbo_
    message = r"the 8 bags with class 'cow' have a weight of zero; give"
    with pytest.raises(ValueError, match=message):
        model.fit(bags, kinds, sample_weight=1.0 * (kinds != "cow"))


def test_thinned_rows_keep_the_counts_of_their_bags() -> None:
    data = TrainingData(BAGS.X, BAGS.offsets, BAGS.y == 1, counts=WEIGHTS)
    rows = BAGS.offsets[[1, 3, 4]]
    part = data.of_rows(rows, np.array([2.0, 3.0, 1.0]))
    np.testing.assert_array_equal(part.counts, WEIGHTS[[1, 3, 4]])
    targets = part.targets(0, 3)
    np.testing.assert_array_equal(targets.weights, [2.0, 3.0, 1.0])
    np.testing.assert_array_equal(targets.counts, WEIGHTS[[1, 3, 4]])


def test_thinning_takes_no_rows_of_bags_that_count_nothing() -> None:
    rng = np.random.default_rng(0)
    X, offsets, T = rng.normal(size=(800, 2)), np.arange(0, 801, 20), np.arange(40) % 2 == 1
    counts = np.where(np.arange(40) < 10, 0.0, 1.5)
    kernel = whitener(bw.kernels.RBF(2.0, 1.5), Z, 1e-6)
    data = TrainingData(X, offsets, T, counts=counts)
    sample = thin(data, BagLikelihood(Probit()), kernel, None, 300, np.random.default_rng(0))
    part = data.of_rows(sample.rows, sample.weights)
    assert len(sample.rows) <= 300 and sample.rows.min() >= 200
    np.testing.assert_array_equal(part.counts, np.full(30, 1.5))
