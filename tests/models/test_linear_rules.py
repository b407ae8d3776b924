"""Linear models whose bag labels are about numbers of positives."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

import bagwise as bw
from bagwise.metrics import expected_calibration_error, roc_auc
from toy_bags import pair_bags, share_bags

ALPHA = 0.5


def small(seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Twelve bags of four instances with two features, and their numbers of positives."""
    rng = np.random.default_rng(seed)
    k = np.arange(12) % 4
    X = rng.normal(size=(12, 4, 2))
    X[..., 0] += 2 * (np.arange(4) < k[:, None])
    return X, k


def label_density(rule: Any, k: int, label: float, reliability: float) -> float:
    """p(label | k of 4 positive), as the documentation says it."""
    if isinstance(rule, bw.Share):
        right = stats.norm(k / 4, rule.std).pdf(label)
        return reliability * right + (1 - reliability)
    return reliability if (k >= rule.k) == bool(label) else 1 - reliability


def enumerated(rule: Any, X: np.ndarray, y: np.ndarray, r: np.ndarray, v: np.ndarray) -> float:
    """log p(y, w) by the sum over all labels of instances; the last coordinate is the intercept."""
    total = -0.5 * ALPHA * v[:-1] @ v[:-1]
    for bag, label, sure in zip(X, y, r, strict=True):
        p = 1 / (1 + np.exp(-(bag @ v[:-1] + v[-1])))
        terms = [
            np.prod(np.where(h, p, 1 - p)) * label_density(rule, sum(h), label, sure)
            for h in itertools.product([False, True], repeat=len(bag))
        ]
        total += np.log(sum(terms))
    return float(total)


@pytest.mark.parametrize("told", [False, True], ids=["sure", "reliability"])
@pytest.mark.parametrize("rule", [bw.AtLeast(2), bw.AtLeast(1), bw.Share(0.2)], ids=str)
def test_weights_and_evidence_are_those_of_all_labels(rule: Any, told: bool) -> None:
    X, k = small()
    y = np.clip(k / 4 + 0.1 * np.sin(np.arange(12)), 0, 1) if rule.shares else k >= rule.k
    r = np.where(np.arange(12) % 3, 1.0, 0.8) if told else np.ones(12)
    model = bw.MILogisticRegression(
        rule=rule, alpha=ALPHA, standardize=False, bag_score="auto" if rule.shares else "joint"
    )
    model.fit(list(X), y, **({"reliability": r} if told else {}))
    v = np.append(model.coef_, model.intercept_)
    value = enumerated(rule, X, y, r, v)
    step = 1e-4
    basis = step * np.eye(3)

    def change(*moves: np.ndarray) -> float:
        return enumerated(rule, X, y, r, v + sum(moves))

    slope = [(change(e) - change(-e)) / (2 * step) for e in basis]
    np.testing.assert_allclose(slope, 0, atol=1e-5)
    P = [[-(change(a, b) - change(a, -b) - change(b, -a) + change(-a, -b)) / (4 * step**2)
          for b in basis] for a in basis]  # fmt: skip
    np.testing.assert_allclose(model.posterior_.S, np.linalg.inv(P), rtol=1e-4, atol=1e-6)
    # Prior constants of two weights; the intercept's flat prior has density 1 and its own volume.
    laplace = value + np.log(ALPHA) - 0.5 * np.linalg.slogdet(P)[1] + 0.5 * np.log(2 * np.pi)
    assert model.log_evidence_ == pytest.approx(laplace, abs=1e-5)
    found = optimize.minimize(lambda u: -enumerated(rule, X, y, r, u), v + 0.1).x
    np.testing.assert_allclose(found, v, atol=1e-3)


@pytest.mark.parametrize("alpha", ["evidence", "cv", 1.0])
def test_shares_tell_instances(alpha: Any) -> None:
    train, (test, truth, share) = share_bags(60, 0)[0], share_bags(40, 100)
    model = bw.MILogisticRegression(rule=bw.Share(0.05), alpha=alpha, random_state=0).fit(train)
    p = model.predict_instance_proba(test)[:, 1]
    assert roc_auc(truth, p) >= 0.95
    assert expected_calibration_error(truth, p) <= 0.04
    expected, std = model.predict_share(test, return_std=True)
    assert np.sqrt(np.mean((expected - share) ** 2)) < 0.1
    assert np.all((std > 0) & (std < 0.2))
    with pytest.raises(ValueError, match="predict_share"):
        model.predict_proba(test)


def test_two_of_a_bag_are_calibrated_and_better_than_by_one() -> None:
    train, (test, truth) = pair_bags(60, 0)[0], pair_bags(60, 1)
    two = bw.MILogisticRegression(rule=bw.AtLeast(2), random_state=0).fit(train)
    one = bw.MILogisticRegression(random_state=0).fit(train)
    assert two.bag_score_ == "calibrated" and two.instance_score_ == "posterior"
    scores = [roc_auc(truth, m.predict_instance_proba(test)[:, 1]) for m in (two, one)]
    assert scores[0] > scores[1] and scores[0] > 0.97
    assert roc_auc(test.y, two.predict_proba(test)[:, 1]) > 0.93
    np.testing.assert_array_equal(two.predict_proba([np.full((1, 3), 4.0)]), [[1.0, 0.0]])


def test_more_features_than_instances_and_kernels() -> None:
    """Weights are found among the directions of the instances, reliabilities with them."""
    rng = np.random.default_rng(0)
    k = np.arange(12) % 3
    X = rng.normal(size=(12, 3, 60))
    X[..., 0] += 5 * (np.arange(3) < k[:, None])
    y, r = k / 3, np.where(np.arange(12) % 3, 1.0, 0.7)
    rule, how = bw.Share(0.1), {"alpha": 1.0, "standardize": False}
    wide = bw.MILogisticRegression(rule=rule, **how).fit(list(X), y, reliability=r)
    padded = np.concatenate([X, X], axis=0)  # as many rows as make it a narrow fit
    narrow = bw.MILogisticRegression(rule=rule, **how)
    weights = np.repeat([1.0, 0.0], 12)
    both = {"reliability": np.tile(r, 2), "sample_weight": weights}
    narrow.fit(list(padded), np.tile(y, 2), **both)
    np.testing.assert_allclose(wide.coef_, narrow.coef_, atol=1e-5)
    basis = bw.MILogisticRegression(rule=rule, kernel=bw.kernels.RBF(1.0, 8.0), n_basis=6)
    assert basis.fit(list(X), y).predict_share(list(X)).shape == (12,)


@pytest.mark.parametrize("rule", [bw.Share(0.1), bw.AtLeast(2)], ids=str)
def test_files_hold_rules(rule: Any, tmp_path: Path) -> None:
    bags = share_bags(20, 0)[0] if rule.shares else pair_bags(20, 0)[0]
    model = bw.MILogisticRegression(rule=rule, alpha=1.0, random_state=0).fit(bags)
    model.save(tmp_path / "m.bagwise")
    loaded = bw.load(tmp_path / "m.bagwise")
    assert loaded.rule == rule
    ask = "predict_share" if rule.shares else "predict_proba"
    np.testing.assert_array_equal(getattr(loaded, ask)(bags), getattr(model, ask)(bags))


def test_a_fit_goes_on_from_its_checkpoint(tmp_path: Path) -> None:
    bags = pair_bags(20, 0)[0]
    r = np.where(np.arange(20) % 3, 1.0, 0.8)
    model = bw.MILogisticRegression(rule=bw.AtLeast(2), random_state=0)
    model.fit(bags, reliability=r, checkpoint=tmp_path / "c")
    again = bw.MILogisticRegression(rule=bw.AtLeast(2), random_state=0)
    again.fit(bags, reliability=r, resume=tmp_path / "c")
    np.testing.assert_array_equal(again.coef_, model.coef_)
    with pytest.raises(ValueError, match="reliabilities"):
        again.fit(bags, reliability=np.where(np.arange(20) % 3, 1.0, 0.9), resume=tmp_path / "c")
    with pytest.raises(ValueError, match="reliabilities"):  # which were silently taken over
        again.fit(bags, resume=tmp_path / "c")


@pytest.mark.parametrize("model", [bw.MILogisticRegression, bw.ProbitVGPMIL])
def test_at_least_one_is_predicted_as_the_usual_rule(model: Any) -> None:
    """Numbers of positives are averaged over fewer points: P(bag) was off by .004."""
    bags = pair_bags(12, 0)[0]
    how = {"bag_score": "joint", "random_state": 0}
    more = {"kernel": bw.kernels.RBF(), "n_inducing": 8} if model is bw.ProbitVGPMIL else {}
    usual, ruled = (model(rule=rule, **how, **more) for rule in ("at_least_one", bw.AtLeast(1)))
    usual.fit(bags)
    ruled.fit(bags)
    ruled.posterior_ = usual.posterior_
    np.testing.assert_allclose(ruled.predict_proba(bags), usual.predict_proba(bags), rtol=1e-12)


def test_wrong_questions() -> None:
    bags = pair_bags(12, 0)[0]
    with pytest.raises(ValueError, match=r"MILogisticRegression\(rule=bagwise.AtLeast\(1\)\)"):
        bw.MILogisticRegression().fit(bags, reliability=np.ones(12))
    with pytest.raises(ValueError, match="rule must be 'at_least_one'"):
        bw.MILogisticRegression(rule="most").fit(bags)
    with pytest.raises(ValueError, match=r"got 1 \(shares are cut at their median"):
        few = share_bags(3, 0)[0]
        bw.MILogisticRegression(rule=bw.Share(), alpha="cv").fit(few)
