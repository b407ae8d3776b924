"""A fit whose model ranks bags near chance says so, and one that learned something does not."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.calibration.bags import warn_of_left_out
from bagwise.core.calibration.left_out import left_out
from bagwise.core.calibration.ranking import (
    auc,
    chance_error,
    class_counts,
    least_auc,
    some_of_each_class,
    warn_near_chance,
)
from bagwise.core.likelihoods.bag_scores import Predicted
from bagwise.core.links import Moments
from toy_bags import separable_bags

FAST: dict[str, Any] = {"n_inducing": 10, "random_state": 0, "tol": 1e-4}


def meaningless(n_bags: int = 60, **more: Any) -> bw.Bags:
    """Bags whose labels have nothing to do with their features."""
    X = np.random.default_rng(0).normal(size=(3 * n_bags, 2))
    return bw.Bags.from_arrays(X, np.repeat(np.arange(n_bags), 3), y=np.arange(n_bags) % 2, **more)


def test_auc_counts_pairs() -> None:
    rng = np.random.default_rng(0)
    score, T = rng.integers(0, 5, 40).astype(float), rng.random(40) < 0.4
    pairs = np.sign(score[T][:, None] - score[~T])
    assert auc(score, T) == pytest.approx(np.mean(0.5 + 0.5 * pairs))


def test_chance_error_is_the_spread_over_all_orders() -> None:
    from itertools import combinations

    values = []
    for positive in combinations(range(8), 3):
        T = np.isin(np.arange(8), positive)
        values.append(auc(np.arange(8.0), T))
    assert np.mean(values) == pytest.approx(0.5)
    assert np.std(values) == pytest.approx(chance_error(5, 3))


@pytest.mark.parametrize(
    ("n_bags", "value", "warned"),
    [(20, 0.5, True), (20, 0.58, False), (200, 0.58, True), (200, 0.61, False), (20, 0.3, True)],
)
def test_few_bags_must_say_it_more_clearly(n_bags: int, value: float, warned: bool) -> None:
    bags, n = meaningless(n_bags), n_bags // 2
    T = np.arange(n_bags) % 2 == 1
    # Positive bags score 1 in `value` of all cases, the others 0; negative bags are in between.
    score = np.full(n_bags, 0.5)
    score[T] = np.arange(n) < round(value * n)
    assert auc(score, T) == pytest.approx(value, abs=0.5 / n)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warn_near_chance(score, bags, T, "bags", "more")
    assert [w.category for w in caught] == [bw.NearChanceWarning] * warned


def test_bags_of_a_group_are_not_counted_twice() -> None:
    bags = meaningless(40, groups=np.arange(40) // 8)
    T = np.asarray(bags.y) == 1
    assert class_counts(bags, T) == (5, 5)
    warn_near_chance(np.zeros(40), bags, T, "bags", "more")  # five patients could be bad luck


def test_left_out_bags_near_chance_are_a_warning() -> None:
    with pytest.warns(bw.NearChanceWarning, match=r"left out .*AUC is 0\.\d\d.*30 pos.*try ") as w:
        model = bw.ProbitVGPMIL(**FAST).fit(meaningless())
    assert model.bag_score_ == "calibrated"
    assert len(w) == 1 and w[0].filename == __file__  # once, at the line that called fit


@pytest.mark.filterwarnings("ignore:f is constant")  # it is: so are the features
def test_fitted_bags_near_chance_are_a_warning() -> None:
    bags = meaningless()
    flat = bags.with_X(np.zeros_like(bags.X))
    for model in (
        bw.ProbitVGPMIL(**FAST, bag_score="joint"),
        bw.VGPMIL(**FAST, bag_score="joint"),
        bw.IsingVGPMIL(**FAST, bag_score="joint", neighbors="chain"),
        bw.MILogisticRegression(random_state=0, bag_score="joint"),
    ):
        with pytest.warns(bw.NearChanceWarning, match="even the bags that .* fitted to"):
            model.fit(flat)


@pytest.mark.parametrize("cls", [bw.MIRVM, bw.RVM, bw.MILogisticRegression])
def test_remedies_are_arguments_of_the_model(cls: type) -> None:
    bags = meaningless()
    with pytest.warns(bw.NearChanceWarning, match="try ") as caught:
        cls(random_state=0).fit(bags.with_X(np.zeros_like(bags.X)))
    named = set(re.findall(r"(\w+)=", str(caught[0].message)))
    assert named <= set(cls().get_params()) and "inducing" not in str(caught[0].message)


def test_many_features_may_be_whitened() -> None:
    wide = np.random.default_rng(0).normal(size=(80, 40))
    bags = bw.Bags.from_arrays(wide, np.repeat(np.arange(20), 4), np.arange(20) % 2)
    for X, named in ((wide, True), (wide[:, :5], False)):
        model = bw.ProbitVGPMIL(**FAST)
        model.n_features_in_ = bags.with_X(X).n_features
        assert ("whitened principal components" in model._remedies) is named


def test_standardised_counts_are_named_unless_they_are_as_they_were() -> None:
    assert "standardize=False" in bw.MILogisticRegression()._remedies
    assert "standardize" not in bw.MILogisticRegression(standardize=False)._remedies


@pytest.mark.filterwarnings("error::bagwise.NearChanceWarning")
def test_probabilities_that_round_to_one_are_no_ties() -> None:
    """Positive bags have more of what makes all of them certain."""
    x = np.random.default_rng(0).normal(size=(2000, 1))
    model = bw.MILogisticRegression(random_state=0, standardize=False, bag_score="joint")
    model.fit(x + np.arange(2000)[:, None] % 2, np.arange(2000) % 2)
    bags = bw.Bags.from_list([100 * np.ones((2 + 2 * (b % 2), 1)) for b in range(40)])
    assert np.all(model.predict_proba(bags)[:, 1] == 1)
    model._check_ranking(bags, np.arange(40) % 2 == 1)


def test_the_better_bag_score_is_named() -> None:
    bags, T = meaningless(), np.arange(60) % 2 == 1
    score, best = np.zeros(60), T.astype(float)
    with pytest.warns(bw.NearChanceWarning, match=r"bag_score='max' would .* 1\.00: try"):
        warn_near_chance(score, bags, T, "bags", "more", best)
    with pytest.warns(bw.NearChanceWarning) as caught:
        warn_near_chance(score, bags, T, "bags", "more", score)
    assert "bag_score" not in str(caught[0].message)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_the_class_is_named(n_jobs: int) -> None:
    bags = meaningless(90)
    y = np.array(["a", "b", "c"])[np.arange(90) % 3]
    flat = bags.with_X(np.zeros_like(bags.X))
    model = bw.OneVsRestMIL(bw.MILogisticRegression(random_state=0), n_jobs=n_jobs)
    with pytest.warns(bw.NearChanceWarning) as caught:
        model.fit(flat, y)
    of_class = [w for w in caught if w.category is bw.NearChanceWarning]
    assert [str(w.message)[:9] for w in of_class] == ["class 'a'", "class 'b'", "class 'c'"]
    (of_all,) = [w for w in caught if w.category is not bw.NearChanceWarning]
    assert "have one value in all instances" in str(of_all.message)
    assert {w.filename for w in caught} == {__file__}


@pytest.mark.filterwarnings("error::bagwise.NearChanceWarning")
@pytest.mark.parametrize("score", ["auto", "joint"])
def test_what_was_learned_is_not_doubted(score: str) -> None:
    bw.ProbitVGPMIL(**FAST, bag_score=score).fit(separable_bags(40, 2))


def test_scores_of_refits_are_not_looked_at_by_themselves() -> None:
    T = np.arange(40) % 2 == 1
    bags = bw.Bags.from_list([[[float(t)]] for t in T], y=T)
    with pytest.warns(bw.NearChanceWarning) as caught:
        found = left_out(
            bags, T, 0, lambda kept: lambda b: (np.zeros((len(b), 2)), np.zeros(b.n_instances))
        )
        warn_of_left_out(np.zeros(40), found, bags, T, "another model")
    assert len(caught) == 1


def test_large_data_are_looked_at_in_part() -> None:
    bags = meaningless(1000)
    T = np.asarray(bags.y) == 1
    some = some_of_each_class(bags, T, 300)
    assert len(some) == 100 and T[some].sum() == 50 and some.max() > 950
    np.testing.assert_array_equal(some_of_each_class(bags, T, 3000), np.arange(1000))


def test_a_given_graph_is_of_all_bags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bagwise.core.calibration.ranking.RANKED_ROWS", 10)
    bags = separable_bags(30, 2)
    chain = bw.IsingVGPMIL(neighbors="chain")._neighbor_graph(bags)
    for neighbors in ("chain", chain):
        bw.IsingVGPMIL(**FAST, neighbors=neighbors, coupling=0.02).fit(bags)


def test_the_command_line_says_it(tmp_path: Path) -> None:
    testing = pytest.importorskip("typer.testing")
    from bagwise.cli.app import build_app

    bags = meaningless()
    rows = ["bag_id,label,a,b"]
    rows += [
        f"{b},{bags.y[b]},{x:.6f},{z:.6f}" for b, (x, z) in zip(bags.bag_index, bags.X, strict=True)
    ]
    table = tmp_path / "t.csv"
    table.write_text("\n".join(rows) + "\n")
    model = str(tmp_path / "m.bagwise")
    done = testing.CliRunner().invoke(
        build_app(), ["fit", str(table), "-o", model, "--set", "n_inducing=10"]
    )
    assert done.exit_code == 0
    assert "warning: bags that were left out of the fit are ranked near chance" in done.stderr


def test_bags_that_instances_alone_rank_well_need_no_joint_probabilities() -> None:
    bags = separable_bags(30, 2)
    T = np.asarray(bags.y) == 1
    model = bw.ProbitVGPMIL(bag_score="joint", instance_score="posterior", **FAST).fit(bags)
    found = model._predictor(bags).predicted(bags.X, bags.offsets, joint=True, instances=True)
    all_of_them = np.arange(len(bags))
    least = least_auc(found, T, all_of_them)
    assert 0.6 < least <= auc(found.bags("joint").log_positive, T)
    assert least_auc(found, ~T, all_of_them) <= auc(found.bags("joint").log_positive, ~T)


@pytest.mark.parametrize("seed", range(5))
def test_the_least_auc_is_no_more_than_any_within_the_bounds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    offsets, T = np.arange(0, 61, 3), np.arange(20) % 2 == 1
    p = rng.uniform(0, 0.6, 60) * np.where(np.repeat(T, 3), 1.0, 0.5)
    instances = Moments(np.log1p(-p), np.log(p), np.zeros(60))
    found = Predicted(offsets, instances, None)
    parts = p.reshape(20, 3)
    for share in (0.0, 0.5, 1.0):
        score = (1 - share) * parts.max(axis=1) + share * np.minimum(parts.sum(axis=1), 1)
        assert least_auc(found, T, np.arange(20)) <= auc(score, T)
