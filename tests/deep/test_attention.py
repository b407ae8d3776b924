"""AttentionMIL: pooling against loops, training, determinism, life inside scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.frozen import FrozenEstimator
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

import bagwise as bw
from bagwise.deep import AttentionFeatures, AttentionMIL
from toy_bags import separable_bags

torch = pytest.importorskip(
    "torch", reason='networks need PyTorch: pip install ".[torch]", or make test-torch'
)

POOLINGS = ["gated", "attention", "mean", "max"]


def make(**settings: Any) -> AttentionMIL:
    defaults: dict[str, Any] = {
        "n_features": 8,
        "attention_size": 8,
        "max_epochs": 30,
        "learning_rate": 0.02,
        "random_state": 0,
    }
    return AttentionMIL(**(defaults | settings))


def make_bags(n_bags: int = 60, seed: int = 0, **more: Any) -> bw.Bags:
    return separable_bags(n_bags, 4, seed, **more)


@pytest.fixture(scope="module")
def bags() -> bw.Bags:
    return make_bags()


# --- pooling -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", POOLINGS)
def test_pooling_equals_a_loop_over_bags(kind: str) -> None:
    from bagwise.deep.network import make_pooling

    torch.manual_seed(0)
    pooling = make_pooling(kind, 5, 3).double()
    h = torch.randn(9, 5, dtype=torch.float64)
    sizes = [3, 1, 5]
    bag = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    pooled, weight = pooling(h, bag, 3)
    for b, rows in enumerate(torch.split(h, sizes)):
        mine = weight[bag == b]
        assert float(mine.detach().sum()) == pytest.approx(1)
        if kind == "max":
            expected = rows.max(dim=0).values
            share = [(rows.argmax(dim=0) == n).double().mean() for n in range(len(rows))]
            torch.testing.assert_close(mine, torch.stack(share))
        else:
            score = torch.zeros(len(rows), dtype=torch.float64)
            if kind != "mean":
                hidden = torch.tanh(pooling.V(rows))
                hidden = hidden * torch.sigmoid(pooling.U(rows)) if kind == "gated" else hidden
                score = pooling.w(hidden)[:, 0]
            torch.testing.assert_close(mine, torch.softmax(score, 0))
            expected = (torch.softmax(score, 0)[:, None] * rows).sum(0)
        torch.testing.assert_close(pooled[b], expected)


@pytest.mark.parametrize("kind", POOLINGS)
def test_gradients_of_pooling(kind: str) -> None:
    from bagwise.deep.network import make_pooling

    torch.manual_seed(0)
    pooling = make_pooling(kind, 3, 2).double()
    bag = torch.tensor([0, 0, 1, 1, 1])
    h = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda v: pooling(v, bag, 2)[0], (h,))


def test_attention_does_not_overflow() -> None:
    from bagwise.deep.network import segment_softmax

    weight = segment_softmax(torch.tensor([1000.0, 0.0, -1000.0]), torch.tensor([0, 0, 1]), 2)
    assert weight.tolist() == [1.0, 0.0, 1.0]


# --- training ------------------------------------------------------------------------------------


@pytest.mark.parametrize("pooling", POOLINGS)
def test_learns_bags_and_looks_at_the_witness(pooling: str, bags: bw.Bags) -> None:
    model = make(pooling=pooling).fit(bags)
    new = make_bags(seed=5)
    p = model.predict_proba(new)
    assert p.shape == (60, 2) and np.allclose(p.sum(axis=1), 1)
    assert bw.metrics.roc_auc(new.y, p[:, 1]) >= 0.95
    assert model.score(new) >= 0.85
    weight = model.attention(new)
    np.testing.assert_allclose(np.add.reduceat(weight, new.offsets[:-1]), 1, rtol=1e-5)
    several = np.repeat((new.sizes > 1) & (new.y == 1), new.sizes)
    witness = several & (new.X[:, 0] > 4)
    if pooling in ("gated", "attention"):
        assert weight[witness].mean() > 2 * weight[several & ~witness].mean()
    if pooling == "mean":
        np.testing.assert_allclose(weight, np.repeat(1 / new.sizes, new.sizes), rtol=1e-6)


def test_equal_seeds_give_equal_networks(bags: bw.Bags) -> None:
    before = torch.random.get_rng_state()
    first, second = (make(dropout=0.3, max_epochs=5).fit(bags) for _ in range(2))
    np.testing.assert_array_equal(first.predict_proba(bags), second.predict_proba(bags))
    assert torch.equal(before, torch.random.get_rng_state()), "the global generator was moved"
    other = make(dropout=0.3, max_epochs=5, random_state=1).fit(bags)
    assert not np.array_equal(first.predict_proba(bags), other.predict_proba(bags))


def test_early_stopping_keeps_the_best_epoch(bags: bw.Bags) -> None:
    rng = np.random.default_rng(0)
    noise = bags.with_labels(rng.permutation(bags.y))  # nothing to learn
    model = make(max_epochs=100, patience=4).fit(noise)
    assert model.n_iter_ == len(model.history_) == model.best_epoch_ + 5 < 100
    ranks = [(epoch.validation_auc, -epoch.validation_loss) for epoch in model.history_]
    assert model.best_epoch_ == ranks.index(max(ranks))


def test_without_validation_all_epochs_run(bags: bw.Bags) -> None:
    model = make(validation_size=0.0, max_epochs=3).fit(bags)
    assert model.n_iter_ == 3 and model.best_epoch_ == 2
    assert np.isnan(model.history_[0].validation_auc)


def test_groups_are_not_split_between_training_and_validation() -> None:
    groups = np.arange(60) // 4
    bags = make_bags(groups=groups)
    train, test = make()._hold_out(bags, bags.y == 1, np.random.default_rng(0))
    assert not set(groups[train]) & set(groups[test])
    assert sorted([*train, *test]) == list(range(60))


def test_a_module_of_the_user_is_copied_not_changed(bags: bw.Bags) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())
    before = module[0].weight.detach().clone()
    model = make(encoder=module, n_features=3, max_epochs=3).fit(bags)
    assert torch.equal(module[0].weight, before)
    assert not torch.equal(model.network_.encoder[0].weight, before)
    assert model.transform(bags).n_features == 3
    with pytest.raises(ValueError, match="pass n_features=3"):
        make(encoder=module).fit(bags)


def test_precomputed_features_are_used_as_they_are(bags: bw.Bags) -> None:
    model = make(encoder="identity", max_epochs=2).fit(bags)
    scaled = (bags.X - bags.X.mean(axis=0)) / bags.X.std(axis=0)
    np.testing.assert_allclose(model.transform(bags).X, scaled, atol=1e-5)


def test_images_of_several_channels() -> None:
    rng = np.random.default_rng(0)
    bags = bw.Bags.from_list([rng.random((3, 2 * 12 * 10)) for _ in range(20)], [0, 1] * 10)
    model = make(image_shape=(2, 12, 10), max_epochs=2).fit(bags)
    assert model.transform(bags).n_features == 8


def test_transform_keeps_everything_but_features() -> None:
    bags = make_bags(groups=np.arange(60) // 2)
    bags = bw.Bags.from_arrays(
        bags.X, bags.bag_index, y=bags.y, coords=bags.X[:, :2], groups=bags.groups
    )
    out = make(max_epochs=1).fit(bags).transform(bags)
    assert out.n_features == 8
    for name in ("y", "ids", "offsets", "coords", "groups", "row_index"):
        np.testing.assert_array_equal(getattr(out, name), getattr(bags, name))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pooling": "sum"}, "pooling must be one of"),
        ({"encoder": "resnet"}, "encoder"),
        ({"encoder": "cnn"}, "needs image_shape"),
        ({"image_shape": (3, 3)}, "with 4 values in all"),
        ({"dropout": 1.0}, "dropout must be below 1"),
        ({"learning_rate": 0}, "learning_rate must be"),
        ({"validation_size": 0.001}, "validation_size"),
        ({"learning_rate": 1e30}, "no longer finite"),
    ],
)
def test_settings_that_are_wrong(settings: dict, message: str, bags: bw.Bags) -> None:
    with pytest.raises((ValueError, FloatingPointError), match=message):
        make(**settings).fit(bags)


def test_too_few_bags_for_early_stopping() -> None:
    with pytest.raises(ValueError, match="validation_size=0"):
        make().fit(make_bags(3))


# --- life inside scikit-learn --------------------------------------------------------------------


BAGS_OUT = "transform returns Bags, which the check takes for one array"
EXPECTED = dict.fromkeys(
    (
        "check_estimators_pickle",
        "check_fit_idempotent",
        "check_methods_sample_order_invariance",
        "check_methods_subset_invariance",
        "check_pipeline_consistency",
        "check_transformer_data_not_an_array",
        "check_transformer_general",
        "check_transformer_preserve_dtypes",
    ),
    BAGS_OUT,
)


@parametrize_with_checks(
    [make(max_epochs=15, batch_size=32, learning_rate=0.05, validation_size=0.0)],
    expected_failed_checks=lambda estimator: EXPECTED,
)
def test_scikit_learn_check(estimator: Any, check: Any) -> None:
    check(estimator)


def test_cross_validation_and_clone(bags: bw.Bags) -> None:
    assert cross_val_score(make(), bags, bags.y, cv=3, scoring="roc_auc").mean() > 0.9
    copy = clone(make(pooling="max").fit(bags))
    assert copy.pooling == "max" and not hasattr(copy, "network_")


def test_two_stages_in_a_pipeline(bags: bw.Bags) -> None:
    head = bw.ProbitVGPMIL(n_inducing=10, random_state=0)
    pipe = make_pipeline(AttentionFeatures(make()), head).fit(bags, bags.y)
    by_hand = make().fit(bags)
    features = by_hand.transform(bags)
    expected = clone(head).fit(features).predict_proba(features)
    np.testing.assert_allclose(pipe.predict_proba(bags), expected, rtol=1e-10)
    p = pipe[-1].predict_instance_proba(pipe[:-1].transform(bags))[:, 1]
    witness = bags.X[:, 0] > 4
    assert p[witness].mean() > p[~witness].mean() + 0.3
    frozen = AttentionFeatures(FrozenEstimator(by_hand)).fit(bags)
    np.testing.assert_array_equal(frozen.transform(bags).X, features.X)


def test_digit_features_beat_attention_on_instances() -> None:
    """Small form of the benchmark: 200 digit bags, instance AUC and log-likelihood."""
    bags, truth = bw.datasets.make_digit_bags(300, bag_size=5, witness=(1, 2), random_state=1)
    train, test = bags[:200], bags[200:]
    truth = truth[-test.n_instances :]
    network = AttentionMIL(image_shape=(8, 8), max_epochs=25, random_state=1).fit(train)
    head = bw.ProbitVGPMIL(random_state=1).fit(network.transform(train))
    p = head.predict_instance_proba(network.transform(test))[:, 1]
    weight = network.attention(test)
    top = np.maximum.reduceat(weight, test.offsets[:-1])[test.bag_index]
    rescaled = network.predict_proba(test)[test.bag_index, 1] * weight / top
    rescaled = np.clip(rescaled, 1e-3, 1 - 1e-3)
    assert bw.metrics.roc_auc(truth, p) >= 0.95
    assert bw.metrics.log_likelihood(truth, p) > bw.metrics.log_likelihood(truth, rescaled)


def test_a_fit_that_does_not_finish_changes_nothing(
    bags: bw.Bags, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    model = make(max_epochs=2).fit(bags)
    before = dict(vars(model))
    monkeypatch.setattr("bagwise.deep.attention.record_features", stop)
    with pytest.raises(KeyboardInterrupt):
        model.fit(bags)
    assert vars(model).keys() == before.keys()
    assert all(vars(model)[name] is value for name, value in before.items())
