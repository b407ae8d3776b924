"""Models whose bag labels are about numbers of positives: at least k, shares, reliabilities."""

from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.calibration.judged import bags_to_judge
from bagwise.core.inference.driver import Problem, learning_data
from bagwise.core.inference.passes import TrainingData
from bagwise.core.inference.thinning import some_bags
from bagwise.core.likelihoods.count_rule import CountRule
from bagwise.core.likelihoods.rules import check_rule
from bagwise.core.links import Probit
from bagwise.kernels import RBF
from bagwise.metrics import expected_calibration_error, roc_auc
from bagwise.models.probit import ProbitSites
from toy_bags import pair_bags, share_bags

FIXED: dict[str, Any] = {
    "kernel": RBF(4.0, 4.0),
    "learn_hyperparameters": False,
    "n_inducing": 30,
    "random_state": 0,
}
SHARE: dict[str, Any] = FIXED | {"rule": bw.Share(std=0.05)}


@pytest.fixture(scope="module")
def share_model() -> Any:
    bags = share_bags(60, 0)[0]
    return bw.ProbitVGPMIL(**SHARE).fit(bags)


@pytest.fixture(scope="module")
def pair_model() -> Any:
    return bw.ProbitVGPMIL(rule=bw.AtLeast(2), **FIXED).fit(pair_bags(60, 0)[0])


@pytest.mark.parametrize("seed", range(5))
def test_shares_tell_instances_where_every_bag_is_positive(seed: int) -> None:
    """At least one fails: all bags but a few have a positive, so that there is one class."""
    train, _, _ = share_bags(60, seed)
    test, truth, share = share_bags(40, 100 + seed)
    assert np.mean(share > 0) > 0.95
    model = bw.ProbitVGPMIL(**SHARE).fit(train)
    p = model.predict_instance_proba(test)[:, 1]
    assert roc_auc(truth, p) >= 0.95
    assert expected_calibration_error(truth, p) <= 0.04
    expected, std = model.predict_share(test, return_std=True)
    assert np.sqrt(np.mean((expected - share) ** 2)) < 0.1
    assert np.all((std > 0) & (std < 0.2))


def test_at_least_one_refuses_bags_that_are_all_positive() -> None:
    bags, _, share = share_bags(30, 1)
    with pytest.raises(ValueError, match="both classes"):
        bw.ProbitVGPMIL().fit(bags, (share > 0).astype(int))


def test_laplace_agrees_with_the_variational_fit(share_model: Any) -> None:
    test = share_bags(20, 5)[0]
    other = bw.ProbitVGPMIL(**SHARE | {"inference": "laplace", "mean": share_model.mean_})
    p = other.fit(share_bags(60, 0)[0]).predict_share(test)
    np.testing.assert_allclose(p, share_model.predict_share(test), atol=0.05)


def test_hyperparameters_are_learned_from_the_evidence_of_a_rule() -> None:
    bags, _ = pair_bags(30, 2, n=5)
    start = bw.kernels.RBF(1.0, 1.0)
    model = bw.ProbitVGPMIL(
        rule=bw.AtLeast(2), kernel=start, n_inducing=10, bag_score="joint", random_state=0
    ).fit(bags)
    assert model.kernel_.lengthscale > 1.5  # of features that spread over about 2.7
    assert model.converged_


def test_two_of_a_bag(pair_model: Any) -> None:
    test, truth = pair_bags(60, 1)
    assert roc_auc(test.y, pair_model.predict_proba(test)[:, 1]) > 0.93
    assert roc_auc(truth, pair_model.predict_instance_proba(test)[:, 1]) > 0.95
    p, std = pair_model.predict_proba(test, return_std=True)
    assert np.all(std <= np.sqrt(p[:, 0] * p[:, 1]) + 1e-9)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-9)


def test_bags_that_are_too_small_are_negative(pair_model: Any) -> None:
    p = pair_model.predict_proba([np.full((1, 3), 4.0)])
    np.testing.assert_array_equal(p, [[1.0, 0.0]])


def test_at_least_two_is_calibrated() -> None:
    train, test = pair_bags(60, 0)[0], pair_bags(60, 1)[0]
    model = bw.ProbitVGPMIL(rule=bw.AtLeast(2), **FIXED | {"bag_score": "calibrated"}).fit(train)
    assert model.bag_score_ == "calibrated" and model.instance_score_ == "posterior"
    assert "AtLeast(k=2)" in model.why_instances_not_calibrated_
    assert model.score(test) > 0.85
    assert model.predict_set(test, alpha=0.2).shape == (60, 2)


def test_one_of_a_bag_by_either_way() -> None:
    """AtLeast(1) is the usual rule, by sums in place of a closed form."""
    bags, _ = pair_bags(30, 3)
    bags = bags.with_labels((np.arange(30) % 2 == 0).astype(int))
    way = FIXED | {"tol": 1e-12}
    one, other = (
        bw.ProbitVGPMIL(rule=rule, **way).fit(bags) for rule in ("at_least_one", bw.AtLeast(1))
    )
    assert other.elbo_ == pytest.approx(one.elbo_, rel=1e-9)
    for ask in ("predict_instance_proba", "instance_posterior"):
        np.testing.assert_allclose(getattr(other, ask)(bags), getattr(one, ask)(bags), atol=2e-3)
    np.testing.assert_allclose(other.predict_proba(bags), one.predict_proba(bags), atol=5e-3)


def test_instance_posterior_of_shares(share_model: Any) -> None:
    bags, truth, _ = share_bags(10, 7)
    low, high = (
        share_model.instance_posterior(bags, y=np.full(10, share))[:, 1] for share in (0.1, 0.9)
    )
    before = share_model.predict_share(bags)
    for found, label in ((low, 0.1), (high, 0.9)):  # between what features and the label say
        share = found.reshape(10, 50).mean(axis=1)
        assert np.all(np.abs(share - label) < np.abs(before - label) + 0.02)
    assert np.all(low <= high + 1e-12)
    known = np.where(np.arange(500) % 50 < 2, truth.astype(float), np.nan)
    both, std = share_model.instance_posterior(bags.with_instance_labels(known), return_std=True)
    np.testing.assert_array_equal(both[~np.isnan(known), 1], known[~np.isnan(known)])
    assert np.all(std[~np.isnan(known)] == 0) and np.all(std[np.isnan(known)] > 0)


def test_unreliable_labels_lose_their_say() -> None:
    """Sixth labels are turned round; told which ones may be, the fit is as good as without them."""
    bags, truth = pair_bags(60, 4)
    y = np.where(np.arange(60) < 12, 1 - bags.y, bags.y)
    reliability = np.where(np.arange(60) < 12, 0.501, 1.0)
    model = bw.ProbitVGPMIL(rule=bw.AtLeast(2), **FIXED)
    told = model.fit(bags, y, reliability=reliability).predict_instance_proba(bags)[:, 1]
    without = model.fit(bags[12:]).predict_instance_proba(bags)[:, 1]
    believed = model.fit(bags, y).predict_instance_proba(bags)[:, 1]
    scores = [roc_auc(truth, p) for p in (told, without, believed)]
    assert scores[0] > scores[1] - 0.02 and scores[0] > scores[2]


@pytest.mark.parametrize("rule", [bw.Share(0.1), bw.AtLeast(2)], ids=str)
def test_files_hold_rules(rule: Any, tmp_path: Any, share_model: Any, pair_model: Any) -> None:
    model, bags = (
        (share_model, share_bags(5, 9)[0]) if rule.shares else (pair_model, pair_bags(5, 9)[0])
    )
    model.save(tmp_path / "m.bagwise")
    loaded = bw.load(tmp_path / "m.bagwise")
    assert loaded.rule == model.rule
    ask = "predict_share" if rule.shares else "predict_proba"
    np.testing.assert_array_equal(getattr(loaded, ask)(bags), getattr(model, ask)(bags))


@pytest.mark.parametrize(
    "ask",
    [
        lambda m, b: m.predict_proba(b),
        lambda m, b: m.predict(b),
        lambda m, b: m.score(b),
        lambda m, b: m.predict_all(b),
        lambda m, b: m.predict_set(b),
        lambda m, b: m.choose_threshold(sensitivity=0.9),
        lambda m, b: bw.report.build_report(m, b),
    ],
    ids=["proba", "predict", "score", "all", "set", "threshold", "report"],
)
def test_what_shares_have_no_answer_to(share_model: Any, ask: Any) -> None:
    with pytest.raises(ValueError, match="predict_share"):
        ask(share_model, share_bags(5, 1)[0])


def test_other_questions_to_rules(share_model: Any, pair_model: Any) -> None:
    bags = share_bags(5, 1)[0]
    assert share_model.predict_instances(bags).shape == (250,)
    assert len(share_model.top_instances(bags)) == 5
    assert share_model.novelty(bags).bags.shape == (5,)
    with pytest.raises(ValueError, match="suggestions know the rule"):
        share_model.suggest_bags(bags, 1)
    with pytest.raises(ValueError, match="labels are shares, which set the level"):
        share_model.predict_instance_range(bags)
    with pytest.raises(ValueError, match="rule=bagwise"):
        pair_model.predict_share(pair_bags(3, 0)[0])


def test_bad_labels_and_arguments() -> None:
    bags, _, share = share_bags(6, 1)
    pairs = pair_bags(6, 1)[0]
    tries: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({}, {"y": 100 * share}, "divide percentages by 100"),
        ({}, {"y": np.full(6, 0.5)}, "shares must differ"),
        ({}, {"y": ["a"] * 6}, "numbers from 0 to 1"),
        ({}, {"positive": 1}, "leave it out"),
        ({"class_weight": "balanced"}, {}, "sample_weight="),
        ({"inference": "gibbs"}, {}, "inference='vi' or 'laplace'"),
        ({"bag_score": "max"}, {}, "use 'auto'"),
        ({"instance_score": "calibrated"}, {}, "labels are shares"),
        ({"rule": "share"}, {}, r"bagwise\.Share\(std=0.05\)"),
        ({"rule": "at_least_one"}, {"y": np.arange(6) % 2, "reliability": np.ones(6)}, "AtLeast"),
    ]
    for arguments, how, message in tries:
        with pytest.raises(ValueError, match=message):
            bw.ProbitVGPMIL(**SHARE | arguments).fit(bags, **how)
    two = bw.ProbitVGPMIL(rule=bw.AtLeast(2), **FIXED)
    with pytest.raises(ValueError, match="and at most 1"):
        two.fit(pairs, np.arange(6) % 2, reliability=np.full(6, 0.3))
    with pytest.raises(ValueError, match="one value per bag"):
        two.fit(pairs, np.arange(6) % 2, reliability=np.ones(4))
    known = np.where(np.arange(48) < 2, 1.0, np.nan)
    with pytest.raises(ValueError, match="is negative, but has at least 2"):
        two.fit(pairs.with_instance_labels(known), np.arange(6) % 2)
    with pytest.raises(ValueError, match="is positive, but has at most 8"):
        bw.ProbitVGPMIL(rule=bw.AtLeast(9), **FIXED).fit(pairs, np.arange(6) % 2)
    assert check_rule(bw.AtLeast(3)) == bw.AtLeast(3)


def test_large_data_are_looked_at_by_whole_bags() -> None:
    """Rows of a bag do not say how many of all are positive."""
    bags = bw.Bags.from_list([np.full((101, 1), float(b)) for b in range(100)])
    T, reliability = np.linspace(0, 1, 100), np.linspace(0.6, 1, 100)
    judged = bags_to_judge(bags, T, None, 0, None, reliability, in_parts=False)
    some = np.asarray(judged.bags.X)[::101, 0].astype(int)
    assert not judged.whole and len(some) == 79 and np.all(judged.bags.sizes == 101)
    np.testing.assert_array_equal(judged.T, T[some])
    np.testing.assert_array_equal(judged.reliability, reliability[some])
    data = TrainingData(bags.X, bags.offsets, T, reliability=reliability)
    likelihood = CountRule(Probit(), bw.Share())
    problem = Problem(data, bags.X[:1], likelihood, ProbitSites(likelihood), 1e-6, 0)
    part = learning_data(problem, RBF(), None)
    assert len(part.T) == 99 and np.all(np.diff(part.offsets) == 101)
    np.testing.assert_array_equal(part.reliability, reliability[part.X[::101, 0].astype(int)])


@pytest.mark.parametrize("size", [100, 4000, 9000])
def test_samples_of_whole_bags_have_both_labels(size: int) -> None:
    T = np.arange(40) % 4 == 0
    data = TrainingData(np.zeros((40 * size, 1)), size * np.arange(41), T)
    for seed in range(5):
        some = some_bags(data, 10_000, seed)
        assert min(T[some].sum(), (~T[some]).sum()) >= 5
        assert len(np.unique(some)) == len(some)


def test_large_bags_can_be_judged() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(12) % 2
    X = [rng.normal(size=(900, 1)) + 6 * (np.arange(900)[:, None] < 3 * t) for t in y]
    model = bw.ProbitVGPMIL(rule=bw.AtLeast(2), n_inducing=5, random_state=0).fit(X, y)
    assert model.candidates_


def test_deviations_given_labels_are_numbers() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(30) % 2
    bags = [rng.normal(size=(rng.integers(2, 7), 1)) + 4 * t for t in y]
    bags[0][0], bags[1][0] = -60.0, 60.0
    kernel = bw.kernels.Linear(4.0)
    model = bw.ProbitVGPMIL(rule=bw.AtLeast(1), kernel=kernel, n_inducing=5, random_state=0)
    p, std = model.fit(bags, y).instance_posterior(bags, return_std=True, y=y)
    assert np.all((p >= 0) & (p <= 1)) and np.all(np.isfinite(std))


def test_a_bag_that_is_too_small_for_its_rule_is_negative() -> None:
    rng = np.random.default_rng(1)
    y = np.arange(40) % 2
    bags = [rng.normal(size=(6, 1)) + 5 * (np.arange(6)[:, None] < 4 * t) for t in y]
    model = bw.ProbitVGPMIL(rule=bw.AtLeast(3), n_inducing=8, random_state=0).fit(bags, y)
    p, std = model.predict_proba([np.full((2, 1), 5.0)], return_std=True)
    assert p.tolist() == [[1.0, 0.0]] and std.tolist() == [0.0]
