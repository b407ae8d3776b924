"""kernel="auto": candidates judged by left-out bags, and the one that is chosen."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest

import bagwise as bw
from bagwise.core.calibration import candidates as judging
from bagwise.core.calibration import judged as judged_by
from bagwise.core.calibration.candidates import (
    Candidate,
    Fitting,
    judge,
    left_out_logits,
    log_likelihood,
)
from bagwise.core.calibration.judged import (
    LEAST_WEIGHT,
    POWER,
    JudgedBags,
    JudgedKernel,
    bags_to_judge,
    choice_line,
    weights_of,
)
from bagwise.core.calibration.left_out import FOLDS, LeftOut, cut_folds
from bagwise.core.calibration.ranking import auc
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Probit
from bagwise.kernels import RBF, Linear
from toy_bags import separable_bags

FAST = {"n_inducing": 30, "random_state": 0}


def linear_bags(seed: int = 0, n_bags: int = 40, D: int = 60) -> bw.Bags:
    """Witnesses are shifted a little in each of many features: no RBF kernel sees that far."""
    rng = np.random.default_rng(seed)
    y, sizes = np.arange(n_bags) % 2, rng.integers(5, 15, n_bags)
    X = rng.normal(size=(sizes.sum(), D))
    index = np.repeat(np.arange(n_bags), sizes)
    for b in np.flatnonzero(y):
        X[np.flatnonzero(index == b)[:3]] += 0.9
    return bw.Bags.from_arrays(X, index, y=y)


def round_bags(seed: int = 0, n_bags: int = 60) -> bw.Bags:
    """Witnesses lie on a circle around all others: no line tells them apart."""
    rng = np.random.default_rng(seed)
    y, sizes = np.arange(n_bags) % 2, rng.integers(3, 8, n_bags)
    X = 0.5 * rng.normal(size=(sizes.sum(), 2))
    index = np.repeat(np.arange(n_bags), sizes)
    for b in np.flatnonzero(y):
        angle = rng.uniform(0, 2 * np.pi)
        X[np.flatnonzero(index == b)[0]] = 3 * np.array([np.cos(angle), np.sin(angle)])
    return bw.Bags.from_arrays(X, index, y=y)


def chosen(model: bw.ProbitVGPMIL) -> JudgedKernel:
    (found,) = [row for row in model.candidates_ if row.chosen]
    return found


def test_the_chosen_candidate_is_that_of_the_most_probable_left_out_bags() -> None:
    model = bw.ProbitVGPMIL(standardize=False, **FAST).fit(linear_bags())
    table = model.candidates_
    best = max(table, key=lambda row: row.log_likelihood)
    assert best is chosen(model) and model.kernel_ == best.kernel
    names = ["RBF, 0.5 spread", "linear", "RBF, 0.5 spread, + linear"]
    assert [row.name for row in table] == [f"{name}, raw features" for name in names]
    assert {row.n_bags for row in table} == {40}


def test_a_linear_kernel_wins_where_many_features_shift_a_little() -> None:
    bags = linear_bags()
    model = bw.ProbitVGPMIL(**FAST).fit(bags[:30])
    assert isinstance(model.kernel_, Linear) and chosen(model).auc > 0.9
    assert not chosen(model).standardized


def test_an_rbf_kernel_wins_where_no_line_tells_apart() -> None:
    model = bw.ProbitVGPMIL(**FAST).fit(round_bags())
    assert isinstance(model.kernel_, RBF) and chosen(model).auc > 0.95
    linear = [row.auc for row in model.candidates_ if row.name.startswith("linear")]
    assert max(linear) < chosen(model).auc


def test_more_features_than_instances() -> None:
    bags = linear_bags(n_bags=30, D=700)
    assert bags.n_instances < bags.n_features
    model = bw.ProbitVGPMIL(**FAST).fit(bags[:20])
    p = np.asarray(model.predict_proba(bags[20:]))[:, 1]
    assert auc(p, np.asarray(bags.y[20:]) == 1) == 1.0


def slides(seed: int, n_slides: int = 20, D: int = 128) -> bw.Bags:
    """Large wide bags with noise of low rank, and a tenth of tumour in half of them."""
    rng = np.random.default_rng(seed)
    kinds, mixing = 0.5 * rng.normal(size=(2, D)), rng.normal(size=(16, D)) / 4
    y, sizes = np.arange(n_slides) % 2, rng.integers(60, 200, n_slides)
    X = []
    for b in range(n_slides):
        noise = rng.normal(size=(sizes[b], 16)) @ mixing + 0.5 * rng.normal(size=(sizes[b], D))
        tumour = (np.arange(sizes[b]) < sizes[b] // 10) & bool(y[b])
        X.append(kinds[tumour.astype(int)] + noise)
    return bw.Bags.from_arrays(np.concatenate(X), np.repeat(np.arange(n_slides), sizes), y=y)


def test_slides_are_ranked() -> None:
    """With the RBF kernel of half the spread left-out bags are ranked by chance."""
    bags = slides(0)
    model = bw.ProbitVGPMIL(n_inducing=40, random_state=0).fit(bags[:14])
    p = np.asarray(model.predict_proba(bags[14:]))[:, 1]
    assert auc(p, np.asarray(bags.y[14:]) == 1) == 1.0
    assert chosen(model).auc >= 0.97 and model.bag_score_ == "calibrated"


def test_a_seed_gives_the_same_choice_and_numbers() -> None:
    bags = linear_bags()
    first, again = (bw.ProbitVGPMIL(**FAST).fit(bags) for _ in range(2))
    assert first.candidates_ == again.candidates_
    np.testing.assert_array_equal(first.predict_proba(bags), again.predict_proba(bags))


def test_the_order_of_bags_and_instances_does_not_matter_to_the_choice() -> None:
    bags = linear_bags()
    rng = np.random.default_rng(1)
    order = rng.permutation(bags.n_instances)
    mixed = bw.Bags.from_arrays(bags.X[order], bags.bag_index[order], y=bags.y)[
        rng.permutation(len(bags))
    ]
    one, other = (bw.ProbitVGPMIL(**FAST).fit(b) for b in (bags, mixed))
    assert chosen(one).name == chosen(other).name


@pytest.mark.parametrize("kernel", [None, RBF(4.0, 2.0)])
def test_another_kernel_switches_it_off(kernel: Any) -> None:
    model = bw.ProbitVGPMIL(kernel=kernel, **FAST).fit(separable_bags(30, 2))
    assert model.candidates_ == () and isinstance(model.kernel_, RBF)


def test_nothing_is_chosen_where_nothing_is_to_be_learned() -> None:
    bags = separable_bags(30, 2)
    fits = [
        bw.ProbitVGPMIL(kernel=kernel, learn_hyperparameters=False, **FAST).fit(bags)
        for kernel in ("auto", None)
    ]
    assert fits[0].candidates_ == () and fits[0].kernel_ == fits[1].kernel_


def test_two_bags_of_a_class_judge_nothing() -> None:
    bags = separable_bags(30, 2)
    few = bags[[0, 1, 2, 3, 4, 6, 8, 10]]
    assert np.sum(few.y) == 2
    model = bw.ProbitVGPMIL(**FAST).fit(few)
    assert model.candidates_ == () and model.why_not_calibrated_ is not None


def test_standardised_features_need_a_lead_over_raw_ones() -> None:
    heights = np.array([-20.0, -18.0])
    raw, standardised = weights_of(heights - [0, 4])
    assert raw > standardised > 0
    raw, standardised = weights_of(heights - [0, 1])
    assert standardised > raw > 0
    np.testing.assert_array_equal(weights_of(heights, alone=True), [0, 1])


def test_candidates_that_are_far_behind_or_broke_down_have_no_weight() -> None:
    behind = np.log(1 / LEAST_WEIGHT) / POWER
    weights = weights_of(np.array([-10.0, -10 - 0.99 * behind, -10 - 1.01 * behind, -np.inf]))
    assert weights is not None
    np.testing.assert_allclose(weights[1] / weights[0], LEAST_WEIGHT**0.99)
    assert weights.sum() == pytest.approx(1) and not np.any(weights[2:])
    assert weights_of(np.array([-np.inf, -np.inf])) is None


def test_standardize_says_which_features_are_tried() -> None:
    bags = linear_bags(n_bags=20, D=5)
    wide = bags.with_X(bags.X * np.array([1.0, 1, 1, 1, 1000]))  # its units differ
    tried = {
        (name, standardize): {
            row.standardized
            for row in bw.ProbitVGPMIL(standardize=standardize, **FAST).fit(data).candidates_
        }
        for name, data in (("same", bags), ("differ", wide))
        for standardize in ("auto", True, False)
    }
    assert tried["same", "auto"] == tried["differ", "auto"] == {True, False}
    assert tried["same", True] == tried["differ", True] == {True}
    assert tried["same", False] == tried["differ", False] == {False}


def test_model_files_hold_the_table() -> None:
    bags = linear_bags(n_bags=20)
    model = bw.ProbitVGPMIL(**FAST).fit(bags)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.bagwise"
        model.save(path)
        same = bw.load(path)
    assert same.candidates_ == model.candidates_ and same.kernel == "auto"
    np.testing.assert_array_equal(same.predict_proba(bags), model.predict_proba(bags))


class Interrupted(Exception):
    """What ends a fit in the middle."""


def test_a_fit_goes_on_after_the_candidates_that_were_judged(tmp_path: Path) -> None:
    bags, path = linear_bags(n_bags=20), tmp_path / "fit.ckpt"
    whole = bw.ProbitVGPMIL(**FAST).fit(bags)

    def stop(stage: str, step: int, objective: float, seconds: float) -> None:
        if stage == "candidate 3 of 6":
            raise Interrupted

    model = bw.ProbitVGPMIL(**FAST)
    with pytest.raises(Interrupted):
        model.fit(bags, checkpoint=path, checkpoint_minutes=0, callbacks=[stop])
    heard: list[str] = []
    model.fit(bags, resume=path, callbacks=[lambda stage, *_: heard.append(stage)])
    assert "candidate 2 of 8" not in heard and "candidate 3 of 6" in heard
    assert model.candidates_ == whole.candidates_
    np.testing.assert_array_equal(model.predict_proba(bags), whole.predict_proba(bags))


def test_many_instances_are_judged_by_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(judged_by, "WHOLE_ROWS", 300)
    monkeypatch.setattr(judged_by, "SAMPLE_ROWS", 200)
    monkeypatch.setattr(judged_by, "ROWS_PER_BAG", 10)
    bags = linear_bags()
    T = np.asarray(bags.y) == 1
    judged = bags_to_judge(bags, T, None, 0)
    assert not judged.whole and judged.bags.n_instances <= 200 + 10 * len(judged.T)
    assert len(judged.T) < len(bags) and 0.4 < judged.T.mean() < 0.6
    model = bw.ProbitVGPMIL(**FAST).fit(bags)
    assert isinstance(model.kernel_, Linear) and model.bag_score_ == "calibrated"
    assert chosen(model).n_bags == len(judged.T)


def test_scores_are_those_of_fits_without_the_bag() -> None:
    """A bag's own label has no say in its scores."""
    bags = linear_bags(n_bags=20, D=3)
    T = np.asarray(bags.y) == 1
    fitting = Fitting(BagLikelihood(Probit()), None, 1e-6, 0)
    one = Candidate("one", RBF(4.0, 2.0), np.zeros(3), np.ones(3), np.asarray(bags.X[:15]))
    judged = bags_to_judge(bags, T, None, 0)
    before = judging.left_out_of(one, judged, fitting)
    out = judged.folds == 0
    other = JudgedBags(judged.bags, np.where(out, ~T, T), None, judged.folds, judged.whole)
    after = judging.left_out_of(one, other, fitting)
    np.testing.assert_allclose(after.bag_scores[out], before.bag_scores[out], atol=2e-3)
    assert np.max(np.abs(after.bag_scores[~out] - before.bag_scores[~out])) > 0.1


def test_refits_by_downdate_are_those_from_scratch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums of all bags less those left out, from the mode of all: the fit to the others."""
    monkeypatch.setattr(judging, "TOL", 1e-14)
    bags = linear_bags(n_bags=30, D=3)
    T = np.asarray(bags.y) == 1
    fitting = Fitting(BagLikelihood(Probit()), None, 1e-6, 0)
    one = Candidate("one", RBF(4.0, 2.0), np.zeros(3), np.ones(3), np.asarray(bags.X[:15]))
    judged = bags_to_judge(bags, T, None, 0)
    found, make = [], Fitting.posterior

    def noted(*arguments: Any) -> Any:
        found.append(make(*arguments))
        return found[-1]

    monkeypatch.setattr(Fitting, "posterior", noted)
    judging.left_out_of(one, judged, fitting)
    for k, quick in enumerate(list(found)):
        kept = np.flatnonzero(judged.folds != k)
        part = JudgedBags(bags[kept], T[kept], None, judged.folds[kept], True)
        features = fitting.features(one, part)
        v = fitting.mode(fitting.log_joint(features), np.zeros(features.A.shape[1]))
        slow = fitting.posterior(one, v, fitting.precision(features))
        np.testing.assert_allclose(quick.m, slow.m, atol=1e-6)
        np.testing.assert_allclose(quick.S, slow.S, atol=1e-6)
        assert quick.c0 == pytest.approx(slow.c0, abs=1e-6)
    assert len(found) == 2 * (judged.folds.max() + 1)


@pytest.mark.parametrize("backend", ["loky", "threading"])
def test_candidates_that_are_judged_at_once_are_judged_alike(backend: str) -> None:
    bags = linear_bags(n_bags=20, D=3)
    alone = bw.ProbitVGPMIL(**FAST).fit(bags)
    with joblib.parallel_config(backend, n_jobs=2):
        together = bw.ProbitVGPMIL(**FAST).fit(bags)
    for one, other in zip(together.candidates_, alone.candidates_, strict=True):
        assert (one.name, one.log_likelihood, one.auc) == (
            other.name,
            other.log_likelihood,
            other.auc,
        )
    np.testing.assert_array_equal(together.predict_proba(bags), alone.predict_proba(bags))


def test_a_candidate_that_breaks_down_is_not_chosen() -> None:
    bags = linear_bags(n_bags=20, D=3)
    T = np.asarray(bags.y) == 1
    fitting = Fitting(BagLikelihood(Probit()), None, 1e-6, 0)
    tried = [
        Candidate(name, RBF(4.0, 2.0), np.zeros(3), np.ones(3), np.asarray(bags.X[:5]))
        for name in ("one", "two")
    ]

    def keep(stage: str, work: Any) -> LeftOut:
        if stage == "candidate 1 of 2":
            raise FloatingPointError
        return work()

    table, found = judge(tried, bags_to_judge(bags, T, None, 0), fitting, keep)
    assert [row.chosen for row in table] == [False, True] and found is not None
    assert table[0].log_likelihood == -np.inf
    assert table[1].log_likelihood == log_likelihood(found, T)
    assert table[1].auc == auc(left_out_logits(found, T), T)

    def never(stage: str, work: Any) -> LeftOut:
        raise FloatingPointError

    table, found = judge(tried, bags_to_judge(bags, T, None, 0), fitting, never)
    assert found is None and choice_line(table) is None


def test_the_choice_in_one_line() -> None:
    table = [
        JudgedKernel("RBF", RBF(), False, -0.5, 0.8, 40),
        JudgedKernel("linear", Linear(), False, -0.25, 0.9, 40, chosen=True),
    ]
    assert choice_line(table) == (
        "linear, of 2 candidates that 40 left-out bags judged: log-likelihood -0.250 per bag, "
        "AUC 0.900; next: RBF, -0.500"
    )
    table = [replace(table[0], weight=0.25), replace(table[1], weight=0.75)]
    assert str(choice_line(table)).endswith("AUC 0.900; averaged with its weight of 75%; 25% RBF")
    assert choice_line(()) is None


def test_few_bags_make_fewer_folds() -> None:
    bags = separable_bags(20, 2)
    T = np.asarray(bags.y) == 1
    assert cut_folds(bags, T, 0).max() == FOLDS - 1
    few = np.flatnonzero(~T | (np.cumsum(T) <= 3))
    assert cut_folds(bags[few], T[few], 0).max() == 2


def test_only_models_with_the_probit_link_choose() -> None:
    with pytest.raises(ValueError, match=r"kernel='auto' is for models with the probit link"):
        bw.VGPMIL(kernel="auto").fit(separable_bags(20, 2))
    model = bw.IsingVGPMIL(kernel="auto", neighbors="chain", coupling=0.1, **FAST)
    assert chosen(model.fit(separable_bags(20, 2))).kernel == model.kernel_


@pytest.mark.parametrize(
    "parts",
    [
        {"name": 1},
        {"kernel": "RBF"},
        {"log_likelihood": np.nan},
        {"auc": 2.0},
        {"n_bags": 0},
        {"chosen": 1},
        {"weight": 1.5},
        {"weight": np.nan},
    ],
)
def test_tables_of_damaged_files_are_refused(parts: dict[str, Any]) -> None:
    good = {"name": "RBF", "kernel": RBF(), "standardized": False}
    good |= {"log_likelihood": -0.5, "auc": 0.8, "n_bags": 40}
    JudgedKernel(**good)
    with pytest.raises(ValueError, match="candidate"):
        JudgedKernel(**(good | parts))
