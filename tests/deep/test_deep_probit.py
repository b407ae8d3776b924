"""`DeepProbitMIL`: what its fits promise, and what its predictions are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import bagwise as bw
from bagwise.deep import AttentionMIL, DeepProbitMIL

torch = pytest.importorskip(
    "torch", reason='networks need PyTorch: pip install "bagwise[torch]", or make test-torch'
)


def make_bags(n: int = 40, seed: int = 0, dtype: Any = np.float64, **more: Any) -> bw.Bags:
    """Positive bags have one instance whose first two features have the same sign."""
    rng = np.random.default_rng(seed)
    X = []
    for b in range(n):
        rows = rng.normal(size=(int(rng.integers(1, 5)), 4))
        rows[:, :2] = np.abs(rows[:, :2]) * [1, -1] + [1, -1]
        if b % 2:
            rows[0, 1] *= -1
        X.append(rows.astype(dtype))
    return bw.Bags.from_list(X, np.arange(n) % 2, **more)


def settings(**more: Any) -> dict[str, Any]:
    network = AttentionMIL(
        n_features=6, attention_size=4, max_epochs=8, dropout=0.0, learning_rate=0.02
    )
    how = {"n_inducing": 8, "max_epochs": 4, "learning_rate": 0.01, "random_state": 0}
    return {"network": network, "calibration_folds": 1} | how | more


@pytest.fixture(scope="module")
def bags() -> bw.Bags:
    return make_bags()


@pytest.fixture(scope="module")
def model(bags: bw.Bags) -> DeepProbitMIL:
    return DeepProbitMIL(**settings()).fit(bags)


def test_joint_training_raises_the_bound(bags: bw.Bags) -> None:
    fitted = DeepProbitMIL(**settings(max_epochs=12, patience=12)).fit(bags)
    bounds = [epoch.bound for epoch in fitted.history_]
    assert len(bounds) == fitted.n_iter_ + 1 == 13
    assert bounds[-1] > bounds[0] + 0.05
    assert np.all(np.isfinite([e.validation_log_likelihood for e in fitted.history_]))


def test_the_epoch_that_held_out_bags_like_best_is_kept(model: DeepProbitMIL) -> None:
    scores = [epoch.validation_log_likelihood for epoch in model.history_]
    assert model.best_epoch_ == 1 + int(np.argmax(scores[1:]))  # the start does not count


def test_predictions_are_those_of_the_head(model: DeepProbitMIL, bags: bw.Bags) -> None:
    features = model.transform(bags)
    assert features.X.shape == (bags.n_instances, 6)
    p, std = model.predict_proba(bags, return_std=True)
    np.testing.assert_array_equal(p, model.head_.predict_proba(features))
    assert p.shape == (40, 2) and std.shape == (40,)
    p, std = model.predict_instance_proba(bags, return_std=True)
    np.testing.assert_array_equal(p, model.head_.predict_instance_proba(features))
    low, high = model.predict_instance_range(bags)
    assert np.all(low <= high) and np.all(p[:, 1] <= high + 1e-12)
    both = model.predict_all(bags, y=bags.y)
    np.testing.assert_allclose(both.p, p)
    np.testing.assert_array_equal(both.given, model.instance_posterior(bags))
    np.testing.assert_array_equal(model.latent(bags)[0], model.head_.latent(features)[0])
    assert set(model.predict(bags)) <= {0, 1}
    assert set(model.predict_instances(bags)) <= {0, 1}
    assert [len(rows) for rows in model.top_instances(bags)] == [1] * 40


def test_decisions_come_from_held_out_bags(bags: bw.Bags) -> None:
    fitted = DeepProbitMIL(**settings(calibration_folds=2)).fit(bags)
    kept = fitted.head_.left_out_bags_
    assert kept is not None and len(kept.T) == 16  # two fifths
    assert fitted.head_.calibration_.n_bags == 16
    assert fitted.predict_set(bags, alpha=0.3).shape == (40, 2)
    point = fitted.choose_threshold(sensitivity=0.8)
    assert fitted.threshold_ == point.threshold
    assert fitted.novelty(bags).bags.shape == (40,)
    assert len(fitted.suggest_instances(bags, 2)) == 2
    assert len(fitted.suggest_bags(bags, 2)) == 2


def test_held_out_bags_do_not_reach_the_encoder(bags: bw.Bags) -> None:
    """With one epoch nothing is chosen by them, so that the weights are the same."""
    network = AttentionMIL(n_features=3, attention_size=2, max_epochs=1)
    how = settings(network=network, max_epochs=1)
    first = DeepProbitMIL(**how).fit(bags)
    X, rows = bags.X.copy(), np.isin(bags.bag_index, first.held_out_)
    X[rows] = X[rows][::-1]  # scaled as before
    second = DeepProbitMIL(**how).fit(bags.with_X(X))
    np.testing.assert_array_equal(second.held_out_, first.held_out_)
    a, b = (m.network_.network_.encoder.state_dict() for m in (first, second))
    for name, weights in a.items():
        assert torch.allclose(weights, b[name], atol=1e-6), name


def test_too_few_held_out_bags_are_not_calibrated_on() -> None:
    few = make_bags(8)
    fitted = DeepProbitMIL(**settings()).fit(few)
    assert fitted.head_.calibration_ is None
    assert "3 bags of each class" in fitted.head_.why_not_calibrated_
    assert fitted.predict_proba(few).shape == (8, 2)
    with pytest.raises(ValueError, match="bag_score='calibrated' cannot be fitted here"):
        DeepProbitMIL(**settings(bag_score="calibrated")).fit(few)


def test_equal_seeds_give_equal_models(model: DeepProbitMIL, bags: bw.Bags) -> None:
    state = torch.random.get_rng_state()
    again = clone(model).fit(bags)
    assert torch.equal(state, torch.random.get_rng_state())
    np.testing.assert_array_equal(again.predict_proba(bags), model.predict_proba(bags))
    other = clone(model).set_params(random_state=1).fit(bags)
    assert not np.array_equal(other.predict_proba(bags), model.predict_proba(bags))


def test_bags_are_predicted_alike_in_any_order(model: DeepProbitMIL, bags: bw.Bags) -> None:
    order = np.random.default_rng(1).permutation(len(bags))
    np.testing.assert_allclose(
        model.predict_proba(bags[order]), model.predict_proba(bags)[order], rtol=1e-5
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_precisions_of_features(dtype: Any) -> None:
    some = make_bags(24, dtype=dtype)
    p = DeepProbitMIL(**settings(max_epochs=1)).fit(some).predict_proba(some)
    assert np.all((p > 0) & (p < 1))


def test_bags_of_one_instance() -> None:
    X = np.random.default_rng(0).normal(size=(40, 4))
    y = (X[:, 0] > 0).astype(int)
    fitted = DeepProbitMIL(**settings(max_epochs=10)).fit(X, y)
    p = fitted.predict_proba(X)[:, 1]
    assert bw.metrics.roc_auc(y, p) > 0.8


def test_known_instance_labels_are_used() -> None:
    bags = make_bags(24)
    known = np.full(bags.n_instances, np.nan)
    known[bags.offsets[:-1][1::2]] = 1
    told = bags.with_instance_labels(known)
    fitted = DeepProbitMIL(**settings(calibration_folds=5)).fit(told)
    assert fitted.possible_positives(bags, alpha=0.4).shape == (bags.n_instances,)
    plain = DeepProbitMIL(**settings(calibration_folds=5)).fit(bags)
    assert not np.array_equal(fitted.latent(bags)[0], plain.latent(bags)[0])


def test_groups_are_held_out_together() -> None:
    groups = np.arange(40) // 4
    fitted = DeepProbitMIL(**settings(max_epochs=1)).fit(make_bags(groups=groups))
    inside = np.setdiff1d(np.arange(40), fitted.held_out_)
    assert not set(groups[fitted.held_out_]) & set(groups[inside])


def test_images_and_modules_of_the_user() -> None:
    bags = make_bags(24)
    images = AttentionMIL(image_shape=(2, 2), n_features=4, max_epochs=1)
    assert DeepProbitMIL(**settings(network=images)).fit(bags).transform(bags).X.shape[1] == 4
    own = AttentionMIL(encoder=torch.nn.Linear(4, 3), n_features=3, max_epochs=1)
    assert DeepProbitMIL(**settings(network=own)).fit(bags).transform(bags).X.shape[1] == 3
    as_they_are = AttentionMIL(encoder="identity", n_features=4, max_epochs=1)
    fitted = DeepProbitMIL(**settings(network=as_they_are)).fit(bags)
    assert fitted.transform(bags).X.shape[1] == 4


def test_text_labels_and_lists(bags: bw.Bags) -> None:
    names = np.array(["no", "yes"])[np.asarray(bags.y)]
    X = [bags.X[a:b] for a, b in zip(bags.offsets[:-1], bags.offsets[1:], strict=True)]
    fitted = DeepProbitMIL(**settings(max_epochs=1)).fit(X, names)
    assert fitted.classes_.tolist() == ["no", "yes"] == fitted.head_.classes_.tolist()
    assert set(fitted.predict(X)) <= {"no", "yes"}
    assert fitted.score(X, names) >= 0.5


def test_parameters_and_clones(model: DeepProbitMIL) -> None:
    copy = clone(model)
    assert copy.get_params()["network__n_features"] == 6
    copy.set_params(network__n_features=3)
    assert model.network.n_features == 6
    with pytest.raises(NotFittedError):
        copy.predict_proba(make_bags())


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"n_inducing": 0}, "n_inducing must be an integer of at least 1"),
        ({"calibration_folds": 6}, "at most 5"),
        ({"device": "tpu"}, "device must be 'cpu', 'cuda'"),
        ({"learning_rate": 0.0}, "learning_rate must be a finite number"),
        ({"bag_score": "best"}, "bag_score must be one of"),
        ({"witness_rate": 1.5}, "at most 1"),
        ({"network": AttentionMIL(pooling="sum")}, "pooling must be one of"),
    ],
)
def test_wrong_arguments(wrong: dict[str, Any], message: str, bags: bw.Bags) -> None:
    with pytest.raises(ValueError, match=message):
        DeepProbitMIL(**settings(**wrong)).fit(bags)


def test_a_network_is_an_attention_network(bags: bw.Bags) -> None:
    with pytest.raises(TypeError, match="network must be an AttentionMIL"):
        DeepProbitMIL(torch.nn.Linear(2, 2)).fit(bags)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device here")
def test_a_device_that_is_not_there(bags: bw.Bags) -> None:
    with pytest.raises(ValueError, match="finds no CUDA device"):
        DeepProbitMIL(device="cuda").fit(bags)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_a_fit_on_cuda(bags: bw.Bags) -> None:
    p = DeepProbitMIL(**settings(device="cuda")).fit(bags).predict_proba(bags)[:, 1]
    assert bw.metrics.roc_auc(bags.y, p) > 0.8


def test_a_fit_that_fails_changes_nothing(bags: bw.Bags) -> None:
    fitted = DeepProbitMIL(**settings(max_epochs=1)).fit(bags)
    before = fitted.predict_proba(bags)
    with pytest.raises(ValueError, match="2 bags of each class"):
        fitted.fit(bags[:3])
    fitted.set_params(learning_rate=1e30, max_epochs=50)
    with pytest.raises((FloatingPointError, np.linalg.LinAlgError), match="lower"):
        fitted.fit(bags)
    np.testing.assert_array_equal(fitted.predict_proba(bags), before)
