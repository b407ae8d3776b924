"""Bag probabilities calibrated on training bags that were left out."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

import bagwise as bw
from bagwise.core.calibration import left_out as left_out_module
from bagwise.core.calibration.bags import BagCalibration, calibrate, logits, too_few
from bagwise.core.calibration.left_out import LeftOut, bags_to_leave_out, left_out
from bagwise.core.calibration.ranking import class_counts
from bagwise.core.linalg import NotPositiveDefiniteError
from bagwise.kernels import RBF

FIXED: dict[str, Any] = {
    "kernel": RBF(4.0, 1.5),
    "learn_hyperparameters": False,
    "mean": -2.0,
    "n_inducing": 10,
    "random_state": 0,
}
LEARNED: dict[str, Any] = {"kernel": None, "n_inducing": 10, "random_state": 0}


def make_bags(n_bags: int = 40, shift: float = 3.0, **more: Any) -> bw.Bags:
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 8, n_bags)
    y = np.arange(n_bags) % 2
    X = rng.normal(size=(sizes.sum(), 2))
    starts = np.cumsum(sizes) - sizes
    X[starts[y == 1], 0] += shift
    return bw.Bags.from_arrays(X, np.repeat(np.arange(n_bags), sizes), y=y, **more)


BAGS = make_bags()


def scored(slope: float, bias: float) -> tuple[bw.Bags, np.ndarray, Any]:
    """Many bags of one number x with P(positive) = expit(x), and a model that says otherwise."""
    rng = np.random.default_rng(1)
    x = 2 * rng.normal(size=8000)
    T = rng.random(8000) < special.expit(x)
    bags = bw.Bags.from_list([[[value]] for value in x], y=T)
    return bags, T, lambda kept: lambda b: both(slope * b.X + bias)


def both(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Scores of bags of one instance, all of which are x."""
    return np.repeat(x, 2, axis=1), x[:, 0]


@pytest.mark.parametrize(("slope", "bias"), [(1.0, 0.0), (3.0, -4.0), (0.5, 1.0)])
def test_scores_become_the_true_probabilities(slope: float, bias: float) -> None:
    bags, T, refit = scored(slope, bias)
    found = calibrate(left_out(bags, T, 0, refit), T)
    p = found.probability(refit(None)(bags)[0])
    np.testing.assert_allclose(p, special.expit(bags.X[:, 0]), atol=0.06)
    assert found.n_bags == 8000


def test_scores_of_the_wrong_sign_are_ignored_not_turned_round() -> None:
    bags, T, _ = scored(1.0, 0.0)
    found = calibrate(left_out(bags, T, 0, lambda kept: lambda b: both(-b.X)), T)
    np.testing.assert_allclose(found.weights, 0, atol=1e-6)


def test_scores_that_tell_nothing_leave_the_prior_alone() -> None:
    T = np.arange(20) % 2 == 1
    bags = bw.Bags.from_list([[[0.0]]] * 20, y=T)
    found = calibrate(left_out(bags, T, 0, lambda kept: lambda b: both(0 * b.X)), T)
    np.testing.assert_allclose([*found.weights, found.intercept], [1, 0, 0], atol=1e-6)


def test_every_bag_is_scored_by_a_fit_that_never_saw_it() -> None:
    groups = np.repeat(np.arange(20), 2)
    bags = make_bags(40, groups=groups)
    T = np.asarray(bags.y) == 1
    seen: list[np.ndarray] = []

    def refit(kept: np.ndarray) -> Any:
        left_out = np.setdiff1d(np.arange(40), kept)
        assert not set(groups[kept]) & set(groups[left_out])
        seen.append(left_out)
        return lambda b: (np.tile(b.ids[:, None], 2), b.X[:, 0])

    found = left_out(bags, T, 0, refit)
    np.testing.assert_array_equal(np.sort(np.concatenate(seen)), np.arange(40))
    for k, numbers in enumerate(seen):
        np.testing.assert_array_equal(np.flatnonzero(found.folds == k), numbers)
    np.testing.assert_array_equal(found.bag_scores[:, 0], np.arange(40))
    np.testing.assert_array_equal(found.instance_logits, bags.X[:, 0])


def test_the_model_refits_with_its_hyperparameters(monkeypatch: pytest.MonkeyPatch) -> None:
    fits: list[bw.ProbitVGPMIL] = []
    fit = bw.ProbitVGPMIL._fit_bags

    def spy(self: bw.ProbitVGPMIL, *data: Any, **more: Any) -> Any:
        fits.append(self)
        return fit(self, *data, **more)

    monkeypatch.setattr(bw.ProbitVGPMIL, "_fit_bags", spy)
    # One bag has a feature that is constant without it: a refit's own scale would be another.
    X = np.column_stack([BAGS.X, np.where(BAGS.bag_index == 3, 1000.0, 0.0)])
    bags = BAGS.with_X(X)
    model = bw.ProbitVGPMIL(**LEARNED, standardize=True).fit(bags)
    assert len(fits) == 6 and fits[0] is model
    for refit in fits[1:]:
        np.testing.assert_array_equal(refit.posterior_.scale, model.posterior_.scale)
        assert refit.kernel_ == model.kernel_ and refit.mean_ == model.mean_
        assert refit.calibration_ is None


def test_calibrated_probabilities_are_those_of_all_scores() -> None:
    model = bw.ProbitVGPMIL(**LEARNED).fit(BAGS)
    assert model.bag_score == "auto" and model.bag_score_ == "calibrated"
    assert model.why_not_calibrated_ is None
    p, std = model.predict_proba(BAGS, return_std=True)
    joint, joint_std = model.set_params(bag_score="joint").predict_proba(BAGS, return_std=True)
    best = model.set_params(bag_score="max").predict_proba(BAGS)
    assert model.bag_score_ == "max"
    pooled = model.calibration_.pooled_logits(BAGS.X, BAGS.offsets)
    offset = model.calibration_.offset(np.log(BAGS.sizes), pooled)
    z = model.calibration_.logit(logits(joint[:, 1], best[:, 1]), offset)
    np.testing.assert_allclose(p[:, 1], special.expit(z), rtol=1e-12)
    assert np.all(std <= np.sqrt(p[:, 0] * p[:, 1])) and np.all(std >= 0)
    assert np.corrcoef(std, joint_std)[0, 1] > 0.5  # what is uncertain stays so


def deviation_of(calibration: BagCalibration, p: Any, std: Any) -> np.ndarray:
    """Of bags whose two scores are the same."""
    p, std = (np.repeat(np.atleast_1d(x)[:, None], 2, axis=1) for x in (p, std))
    return calibration.deviation(1 - p, p, std)


AS_IT_IS = BagCalibration(np.array([1.0, 0.0]), 0.0, n_bags=40)


def test_deviations_stay_where_scores_do() -> None:
    p = np.repeat([1e-6, 0.01, 0.3, 0.5, 0.9, 0.999], 5)
    std = np.tile([0.0, 0.01, 0.3, 0.9, 0.999], 6) * np.sqrt(p * (1 - p))
    np.testing.assert_allclose(deviation_of(AS_IT_IS, p, std), std, rtol=1e-6)
    halves = BagCalibration(np.array([0.5, 0.5]), 0.0, n_bags=40)
    np.testing.assert_allclose(deviation_of(halves, p, std), std, rtol=1e-6)


def test_deviations_of_flat_and_of_confident_scores() -> None:
    flat = BagCalibration(np.zeros(2), 0.3, n_bags=40)
    np.testing.assert_array_equal(deviation_of(flat, [0.5, 0.99], [0.1, 0.09]), 0.0)
    sure = 1e-12 * np.ones((1, 2))
    assert AS_IT_IS.deviation(sure, 1 - sure, sure / 2)[0] > 0
    none = np.full((1, 2), 1e-300)
    assert np.all(np.isfinite(AS_IT_IS.deviation(none, 1 - none, np.sqrt(none))))


@pytest.mark.parametrize("weights", [(0.3, 0.2), (1.0, 0.5), (2.0, 0.0)])
@pytest.mark.parametrize("intercept", [-2.0, 0.0, 1.0])
def test_deviations_are_no_more_than_there_can_be(
    weights: tuple[float, float], intercept: float
) -> None:
    calibration = BagCalibration(np.array(weights), intercept, n_bags=40)
    for p in (0.02, 0.4, 0.8, 0.999):
        std = np.array([0.001, 0.1, 0.3, 0.6, 0.9, 0.97]) * np.sqrt(p * (1 - p))
        found = deviation_of(calibration, np.full(6, p), std)
        after = calibration.probability(logits(np.array([p]), np.array([p])))
        assert np.all(np.diff(found) > 0)  # what is less certain stays so
        assert found[-1] < np.sqrt(after * (1 - after))


@pytest.mark.parametrize("weight", [0.4, 0.8, 1.5])
@pytest.mark.parametrize(
    ("mean", "sd", "close"),
    [(0.0, 0.05, 0.01), (-2.0, 0.05, 0.01), (0.0, 0.5, 0.05), (-1.0, 0.8, 0.1), (1.5, 1.0, 0.15)],
)
def test_deviations_of_bags_of_one_by_quadrature(
    weight: float, mean: float, sd: float, close: float
) -> None:
    """P(positive | f) = Phi(f), f ~ N(mean, sd^2), pushed through the calibration.

    As a share of the most that there can be: the calibration of a mean is not the mean of what is
    calibrated.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(80)
    weights /= weights.sum()

    def moments(values: np.ndarray) -> tuple[float, float]:
        average = weights @ values
        return float(average), float(np.sqrt(weights @ (values - average) ** 2))

    q = special.ndtr(mean + sd * nodes)
    p, std = moments(q)
    calibration = BagCalibration(np.array([weight, 0.0]), 0.2, n_bags=40)
    average, exact = moments(calibration.probability(logits(q, q)))
    after = calibration.probability(logits(np.array([p]), np.array([p])))[0]
    found = deviation_of(calibration, p, std)[0] / np.sqrt(after * (1 - after))
    assert found == pytest.approx(exact / np.sqrt(average * (1 - average)), rel=close)


def test_the_rest_of_the_model_does_not_depend_on_the_bag_score() -> None:
    one, other = (bw.ProbitVGPMIL(**FIXED, bag_score=s).fit(BAGS) for s in ("calibrated", "joint"))
    np.testing.assert_array_equal(one.latent(BAGS), other.latent(BAGS))
    assert one.elbo_ == other.elbo_ and other.calibration_ is None
    assert other.why_not_calibrated_ == "bag_score='joint' was asked for"


def test_a_more_probable_instance_never_lowers_the_probability() -> None:
    model = bw.ProbitVGPMIL(**FIXED, bag_score="calibrated").fit(BAGS)
    assert model.calibration_.pooled is None
    up = [np.where(np.arange(len(b.X))[:, None] == 0, [[3.0, 0.0]], b.X) for b in BAGS]
    before = model.predict_instance_proba(BAGS)[BAGS.offsets[:-1], 1]
    rises = model.predict_instance_proba(up)[BAGS.offsets[:-1], 1] > before
    change = model.predict_proba(up)[:, 1] - model.predict_proba(BAGS)[:, 1]
    assert rises.sum() > 20
    assert np.all(change[rises] > -1e-3)  # the joint score is an average over points


def test_the_size_of_a_bag_is_no_reason_to_call_it_positive() -> None:
    """Scores that rise with size by chance alone are taken back to those of usual bags."""
    rng = np.random.default_rng(0)
    T, sizes = np.arange(200) % 2 == 1, rng.integers(2, 2000, 200)
    scores = np.log(sizes) + np.where(T, 1.0, -1.0) + 0.3 * rng.normal(size=200)
    scores = np.repeat(scores[:, None], 2, axis=1)
    found = LeftOut(scores, scores[:, 0], np.arange(200) % 5, sizes)
    calibration = calibrate(found, T)
    p = calibration.probability(scores, calibration.offset(np.log(sizes)))
    assert abs(np.corrcoef(p[~T], np.log(sizes[~T]))[0, 1]) < 0.3
    assert np.corrcoef(calibration.probability(scores)[~T], np.log(sizes[~T]))[0, 1] > 0.5


def test_bags_of_one_size_have_no_slope() -> None:
    rng = np.random.default_rng(0)
    T, scores = np.arange(20) % 2 == 1, rng.normal(size=(20, 2))
    calibration = calibrate(LeftOut(scores, scores[:, 0], np.arange(20) % 5, np.full(20, 7)), T)
    assert calibration.size_slope == 0
    np.testing.assert_array_equal(calibration.offset(np.zeros(3)), np.zeros(3))


def test_auto_says_why_it_does_not_calibrate() -> None:
    few = bw.ProbitVGPMIL(**FIXED).fit(BAGS[:4])
    assert few.bag_score_ == "joint" and few.calibration_ is None
    assert few.why_not_calibrated_ == "it takes 3 bags of each class, there are 2 and 2"
    joint = bw.ProbitVGPMIL(**FIXED, bag_score="joint").fit(BAGS[:4])
    np.testing.assert_array_equal(few.predict_proba(BAGS), joint.predict_proba(BAGS))
    fixed = bw.ProbitVGPMIL(**FIXED).fit(BAGS)
    assert "learn_hyperparameters=False" in str(fixed.why_not_calibrated_)
    asked = bw.ProbitVGPMIL(**FIXED, bag_score="calibrated").fit(BAGS)
    assert asked.calibration_ is not None


@pytest.mark.parametrize("kind", ["probit", "linear", "file"])
def test_many_instances_are_calibrated_by_a_sample(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Refits see whole bags of a sample, and probabilities are calibrated all the same."""
    monkeypatch.setattr(left_out_module, "MOST_INSTANCES", 80)
    bags = BAGS
    if kind == "file":
        np.save(tmp_path / "X.npy", BAGS.X)
        bags = BAGS.with_X(np.load(tmp_path / "X.npy", mmap_mode="r"))
    model: Any = bw.MIRVM() if kind == "linear" else bw.ProbitVGPMIL(**LEARNED)
    model.fit(bags)
    assert model.bag_score_ == "calibrated" and model.instance_score_ == "calibrated"
    assert 20 <= model.calibration_.n_bags < len(BAGS)
    assert model.instance_calibration_.n_bags == model.calibration_.n_bags


def test_bags_to_leave_out(monkeypatch: pytest.MonkeyPatch) -> None:
    T = np.asarray(BAGS.y) == 1
    assert len(bags_to_leave_out(BAGS, T, 0)) == len(BAGS)
    monkeypatch.setattr(left_out_module, "MOST_INSTANCES", 1)
    few = bags_to_leave_out(BAGS, T, 0)
    assert np.all(np.diff(few) > 0) and len(few) < len(BAGS)
    assert min(T[few].sum(), (~T[few]).sum()) == 10
    assert np.array_equal(few, bags_to_leave_out(BAGS, T, 0))
    more, groups = make_bags(120), np.arange(120) // 4
    T = np.asarray(more.y) == 1
    grouped = bw.Bags.from_arrays(more.X, more.bag_index, y=more.y, groups=groups)
    some = bags_to_leave_out(grouped, T, 0)
    assert not set(groups[some]) & set(np.delete(groups, some)), "groups are drawn whole"
    assert class_counts(grouped[some], T[some]) == (10, 10), "and groups count, not their bags"


def test_sampling_is_not_repeated_unasked() -> None:
    settings = LEARNED | {
        "inference": "gibbs",
        "n_samples": 20,
        "n_chains": 1,
        "burn_in": 5,
        "thin": 1,
    }
    with pytest.warns(Warning):  # such short chains disagree
        model = bw.ProbitVGPMIL(**settings).fit(BAGS)
    assert "gibbs" in str(model.why_not_calibrated_)


def test_calibrated_is_refused_where_it_cannot_be() -> None:
    with pytest.raises(ValueError, match="3 bags of each class, there are 2 and 2; use bag_score"):
        bw.ProbitVGPMIL(**FIXED, bag_score="calibrated").fit(
            BAGS[:4], callbacks=[lambda *step: pytest.fail("refused too late")]
        )
    model = bw.ProbitVGPMIL(**FIXED, bag_score="joint").fit(BAGS)
    with pytest.raises(ValueError, match=r"was set after fit.*before fit"):
        model.set_params(bag_score="calibrated").predict_proba(BAGS)


def test_groups_are_what_is_counted() -> None:
    T = np.asarray(BAGS.y) == 1
    assert too_few(BAGS, T) is None
    grouped = make_bags(40, groups=np.arange(40) // 20)
    assert too_few(grouped, T) == ("it takes 3 groups with bags of each class, there are 2 and 2")


@pytest.mark.parametrize(
    "model",
    [
        bw.VGPMIL(n_inducing=10, random_state=0, bag_score="calibrated"),
        bw.VGPMIL(
            n_inducing=10,
            random_state=0,
            bag_score="calibrated",
            label_posterior="factorised",
            H=100.0,
            tol=1e-3,
            init={"pi": np.full(BAGS.n_instances, 0.5)},
        ),
        bw.IsingVGPMIL(
            n_inducing=10, random_state=0, bag_score="auto", neighbors="chain", coupling="learn"
        ),
        bw.ProbitVGPMIL(**LEARNED, inference="laplace"),
    ],
    ids=["logistic", "init", "coupled", "laplace"],
)
def test_other_models_calibrate_too(model: Any, tmp_path: Path) -> None:
    model.fit(BAGS)
    assert model.bag_score_ == "calibrated"
    assert model.score(BAGS) > 0.7
    model.save(tmp_path / "m.bagwise")
    loaded = bw.load(tmp_path / "m.bagwise")
    np.testing.assert_array_equal(loaded.predict_proba(BAGS), model.predict_proba(BAGS))
    assert loaded.calibration_.n_bags == 40


def test_a_given_graph_belongs_to_all_bags() -> None:
    graph = bw.IsingVGPMIL(neighbors="chain")._neighbor_graph(BAGS)
    settings: dict[str, Any] = FIXED | {"coupling": 0.2, "neighbors": graph}
    model = bw.IsingVGPMIL(**settings, bag_score="auto").fit(BAGS)
    assert "neighbors is a graph" in str(model.why_not_calibrated_)
    with pytest.raises(ValueError, match="neighbors is a graph of these bags"):
        bw.IsingVGPMIL(**settings, bag_score="calibrated").fit(BAGS)


def test_known_instance_labels_go_to_the_refits(monkeypatch: pytest.MonkeyPatch) -> None:
    witness = np.where(BAGS.X[:, 0] > 2.5, 1.0, np.nan)
    witness[np.repeat(np.asarray(BAGS.y) == 0, BAGS.sizes)] = np.nan
    bags = BAGS.with_instance_labels(witness)
    known: list[int] = []
    fit = bw.ProbitVGPMIL._fit_bags

    def spy(self: bw.ProbitVGPMIL, bags: Any, T: Any, labels: Any, *args: Any, **more: Any) -> Any:
        known.append(int(np.sum(np.isfinite(labels))))
        return fit(self, bags, T, labels, *args, **more)

    monkeypatch.setattr(bw.ProbitVGPMIL, "_fit_bags", spy)
    model = bw.ProbitVGPMIL(**LEARNED).fit(bags)
    assert model.bag_score_ == "calibrated" and model.score(BAGS) > 0.8
    total = int(np.sum(np.isfinite(witness)))
    assert known[0] == total and sum(known[1:]) == 4 * total  # each is left out once


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((np.array([1.0]), 0.0, 5), "weights must be 2 numbers"),
        ((np.array([1.0, -1.0]), 0.0, 5), "not negative"),
        ((np.array([1.0, np.nan]), 0.0, 5), "finite"),
        ((np.array([1.0, 1.0]), np.inf, 5), "intercept"),
        ((np.array([1.0, 1.0]), 0.0, 0), "n_bags"),
    ],
)
def test_what_does_not_fit_together_is_refused(parts: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BagCalibration(*parts)


@pytest.mark.parametrize("error", [FloatingPointError, NotPositiveDefiniteError])
def test_a_fold_that_breaks_down_does_not_kill_the_fit(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = bw.ProbitVGPMIL._run

    def breaks(self: bw.ProbitVGPMIL, problem: Any, *chosen: Any, **more: Any) -> Any:
        if len(problem.data.T) < len(BAGS):
            raise error("too ill-conditioned")
        return run(self, problem, *chosen, **more)

    monkeypatch.setattr(bw.ProbitVGPMIL, "_run", breaks)
    model = bw.ProbitVGPMIL(**LEARNED)
    with pytest.warns(UserWarning, match="not calibrated: a fit without.*too ill-conditioned"):
        model.fit(BAGS)
    assert model.bag_score_ == "joint" and "too ill-cond" in str(model.why_not_calibrated_)
    joint = bw.ProbitVGPMIL(**LEARNED, bag_score="joint").fit(BAGS)
    np.testing.assert_array_equal(model.predict_proba(BAGS), joint.predict_proba(BAGS))
    with pytest.warns(UserWarning, match="not calibrated"):
        asked = bw.ProbitVGPMIL(**LEARNED, bag_score="calibrated").fit(BAGS)
    with pytest.raises(ValueError, match=r"too ill-conditioned.*go on with bag_score='joint'"):
        asked.predict_proba(BAGS)


def test_scores_that_are_no_numbers_are_a_breakdown() -> None:
    bags, T, _ = scored(1.0, 0.0)
    with pytest.raises(FloatingPointError, match="not finite"):
        left_out(bags, T, 0, lambda kept: lambda b: both(np.nan * b.X))


def test_other_errors_of_a_fold_are_not_swallowed(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*arguments: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("bagwise.models._refits.GaussianRefits.__call__", broken)
    model = bw.ProbitVGPMIL(**LEARNED)
    with pytest.raises(ZeroDivisionError):
        model.fit(BAGS)
    assert not hasattr(model, "posterior_")


@pytest.mark.parametrize("name", ["size_slope", "usual_log_size"])
def test_sizes_of_files_that_are_no_numbers_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="must be finite"):
        replace(AS_IT_IS, **{name: float("nan")})
