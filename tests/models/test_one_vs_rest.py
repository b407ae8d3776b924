"""One model per class: bags of several classes and bags with several labels."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import DataConversionWarning, NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import bagwise as bw
from bagwise.core.features import Whitener
from bagwise.models import _preparation, one_vs_rest
from bagwise.models._preparation import kmeans_points

CLASSES = np.array([0, 4, 6])
SIZE = 5


def make_bags(n_bags: int, seed: int, several: bool = False) -> tuple[bw.Bags, Any, Any]:
    """Digit bags, label matrix (B, 3) and digits of all instances.

    A bag has one or two images of each of its classes among digits of no class. It has one class,
    or with `several` any number of them.
    """
    rng = np.random.default_rng(seed)
    images, digits = load_digits(return_X_y=True)
    pools = {d: iter(rng.permutation(np.flatnonzero(digits == d))) for d in CLASSES}
    others = iter(rng.permutation(np.flatnonzero(~np.isin(digits, CLASSES))))
    Y = np.eye(3, dtype=np.int64)[rng.permutation(np.arange(n_bags) % 3)]
    if several:
        Y = rng.integers(0, 2, size=(n_bags, 3))
    rows = []
    for labels in Y:
        wanted = np.repeat(CLASSES[labels == 1], 1 if several else rng.integers(1, 3))
        bag = [next(pools[d]) for d in wanted]
        rows += bag + [next(others) for _ in range(SIZE - len(bag))]
    bags = bw.Bags.from_arrays(images[rows], np.repeat(np.arange(n_bags), SIZE))
    return bags, Y, digits[rows]


def quick(**settings: Any) -> bw.ProbitVGPMIL:
    defaults = {"n_inducing": 60, "learn_hyperparameters": False, "random_state": 0, "tol": 1e-3}
    return bw.ProbitVGPMIL(**(defaults | settings))


BAGS, Y, DIGITS = make_bags(120, seed=0)
KINDS = CLASSES[np.argmax(Y, axis=1)]
NAMES = np.array(["zero", "four", "six"])[np.argmax(Y, axis=1)]
SOME, MATRIX, SOME_DIGITS = make_bags(120, seed=1, several=True)


@pytest.fixture(scope="module")
def fitted() -> bw.OneVsRestMIL:
    return bw.OneVsRestMIL(quick()).fit(BAGS[:80], KINDS[:80])


@pytest.fixture(scope="module")
def multilabel() -> bw.OneVsRestMIL:
    return bw.OneVsRestMIL(quick()).fit(SOME[:80], MATRIX[:80])


@pytest.mark.parametrize("several", [False, True])
def test_no_calibrated_instance_is_above_its_bag(several: bool) -> None:
    bags, y = (SOME, MATRIX) if several else (BAGS, KINDS)
    calibrated = quick(n_inducing=15, bag_score="calibrated")
    model = bw.OneVsRestMIL(calibrated).fit(bags[:80], y[:80])
    of_bag = np.repeat(model.predict_proba(bags[80:]), SIZE, axis=0)
    p, std = model.predict_instance_proba(bags[80:], return_std=True)
    low, high = model.predict_instance_range(bags[80:])
    assert p.shape == std.shape == low.shape == high.shape == (40 * SIZE, 3)
    assert np.all(low <= p + 1e-12) and np.all(p <= high + 1e-12)
    assert np.all(high <= of_bag + 1e-12)
    np.testing.assert_array_equal(model.predict_instance_proba(bags[80:]), p)


# --- one class per bag --------------------------------------------------------------------------


def test_finds_the_class_of_bags(fitted: bw.OneVsRestMIL) -> None:
    p = fitted.predict_proba(BAGS[80:])
    assert p.shape == (40, 3)
    np.testing.assert_allclose(p.sum(axis=1), 1)
    np.testing.assert_array_equal(fitted.classes_, CLASSES)
    np.testing.assert_array_equal(fitted.predict(BAGS[80:]), CLASSES[np.argmax(p, axis=1)])
    assert fitted.score(BAGS[80:], KINDS[80:]) >= 0.85  # chance: 1/3


def test_finds_the_class_of_instances(fitted: bw.OneVsRestMIL) -> None:
    p, std = fitted.predict_instance_proba(BAGS[80:], return_std=True)
    digits = DIGITS[80 * SIZE :]
    assert p.shape == std.shape == (40 * SIZE, 3)
    np.testing.assert_array_equal(p, fitted.predict_instance_proba(BAGS[80:]))
    assert np.all((std >= 0) & (std <= 0.5))
    for k, digit in enumerate(CLASSES):
        assert roc_auc_score(digits == digit, p[:, k]) >= 0.9
    own = np.isin(digits, CLASSES)
    assert np.mean(fitted.predict_instances(BAGS[80:])[own] == digits[own]) >= 0.85
    truth = np.where(own, digits, -1)
    assert np.mean(fitted.predict_instances(BAGS[80:], none=-1) == truth) >= 0.8


def test_instances_of_no_class(fitted: bw.OneVsRestMIL) -> None:
    p = fitted.predict_instance_proba(BAGS[80:])
    plain = fitted.predict_instances(BAGS[80:])
    low = p.max(axis=1) < 0.5
    assert 0 < low.sum() < len(low)
    np.testing.assert_array_equal(fitted.predict_instances(BAGS[80:], none=-1)[low], -1)
    mixed = fitted.predict_instances(BAGS[80:], none="other")
    assert set(mixed[low]) == {"other"}
    np.testing.assert_array_equal(mixed[~low], plain[~low])  # still numbers


def test_labels_may_be_names_and_in_the_bags(fitted: bw.OneVsRestMIL) -> None:
    model = bw.OneVsRestMIL(quick()).fit(BAGS.with_labels(NAMES)[:80])
    assert model.classes_.tolist() == ["four", "six", "zero"]
    expected = fitted.predict_proba(BAGS[80:])[:, [1, 2, 0]]
    np.testing.assert_allclose(model.predict_proba(BAGS[80:]), expected)
    assert model.score(BAGS.with_labels(NAMES)[80:]) == fitted.score(BAGS[80:], KINDS[80:])
    assert "background" in model.predict_instances(BAGS[80:], none="background")


def test_lists_of_arrays(fitted: bw.OneVsRestMIL) -> None:
    model = bw.OneVsRestMIL(quick()).fit([b.X for b in BAGS[:80]], KINDS[:80].tolist())
    given = [b.X for b in BAGS[80:]]
    np.testing.assert_array_equal(model.predict_proba(given), fitted.predict_proba(BAGS[80:]))


# --- several classes per bag --------------------------------------------------------------------


def test_finds_all_labels_of_bags(multilabel: bw.OneVsRestMIL) -> None:
    p = multilabel.predict_proba(SOME[80:])
    assert p.shape == (40, 3)
    assert np.ptp(p.sum(axis=1)) > 0.5  # each class for itself
    predicted = multilabel.predict(SOME[80:])
    np.testing.assert_array_equal(predicted, (p > 0.5).astype(int))
    assert np.mean(predicted == MATRIX[80:]) >= 0.85
    assert multilabel.score(SOME[80:], MATRIX[80:]) == np.mean(
        np.all(predicted == MATRIX[80:], axis=1)
    )
    instances = multilabel.predict_instance_proba(SOME[80:])
    assert roc_auc_score(SOME_DIGITS[80 * SIZE :, None] == CLASSES, instances) >= 0.9


def test_kinds_of_label_matrices(multilabel: bw.OneVsRestMIL) -> None:
    assert multilabel.classes_.tolist() == [0, 1, 2]
    expected = multilabel.predict_proba(SOME[80:])
    model = bw.OneVsRestMIL(quick(), class_names=["zero", "four", "six"])
    for Y in (MATRIX.astype(bool), MATRIX.astype(float), sparse.csr_array(MATRIX)):
        model.fit(SOME[:80], Y[:80])
        np.testing.assert_array_equal(model.predict_proba(SOME[80:]), expected)
    assert model.classes_.tolist() == ["zero", "four", "six"]
    assert set(model.predict_instances(SOME[80:])) <= {"zero", "four", "six"}


def test_columns_of_a_table_name_the_classes(tmp_path: Path) -> None:
    linear = bw.MILogisticRegression(alpha=1.0, random_state=0)
    table = pd.DataFrame(MATRIX[:60], columns=["zero", "four", "six"])
    bags, turned = SOME[:60], table[["six", "zero", "four"]]
    model = bw.OneVsRestMIL(linear).fit(bags, table)
    assert model.classes_.tolist() == ["zero", "four", "six"]
    model.save(tmp_path / "m.bagwise")
    assert bw.load(tmp_path / "m.bagwise").classes_.tolist() == ["zero", "four", "six"]
    assert model.score(bags, turned) == model.score(bags, table) == model.score(bags, MATRIX[:60])
    np.testing.assert_array_equal(
        model.instance_posterior(bags, y=turned), model.instance_posterior(bags, y=MATRIX[:60])
    )
    named = bw.OneVsRestMIL(linear, class_names=["zero", "four", "six"]).fit(bags, turned)
    np.testing.assert_array_equal(named.predict_proba(bags), model.predict_proba(bags))


def test_matrix_of_single_classes_gives_the_same_models(fitted: bw.OneVsRestMIL) -> None:
    model = bw.OneVsRestMIL(quick()).fit(BAGS[:80], Y[:80])
    p = model.predict_proba(BAGS[80:])
    alone = [p[:, k] * np.prod(1 - np.delete(p, k, axis=1), axis=1) for k in range(3)]
    np.testing.assert_allclose(
        np.transpose(alone / np.sum(alone, axis=0)), fitted.predict_proba(BAGS[80:])
    )


# --- models -------------------------------------------------------------------------------------


@pytest.mark.parametrize("cls", [bw.VGPMIL, bw.ProbitVGPMIL])
def test_each_class_is_the_binary_model(cls: type) -> None:
    own = cls().get_params()
    quickly = quick(kernel=None).get_params()
    shared = {name: value for name, value in quickly.items() if name in own}
    many = bw.OneVsRestMIL(cls(**shared)).fit(BAGS[:60], KINDS[:60])
    single = cls(**(shared | {"inducing": many.estimators_[1].inducing}))
    single.fit(BAGS[:60], KINDS[:60] == CLASSES[1])
    np.testing.assert_array_equal(
        many.predict_instance_proba(BAGS[80:])[:, 1],
        single.predict_instance_proba(BAGS[80:])[:, 1],
    )
    np.testing.assert_array_equal(
        many.estimators_[1].predict_proba(BAGS[80:]), single.predict_proba(BAGS[80:])
    )


def test_inducing_points_are_shared(fitted: bw.OneVsRestMIL) -> None:
    X = BAGS[:80].X
    seed = np.random.RandomState(0).randint(2**31)
    Z = kmeans_points(X, np.zeros(len(X), dtype=int), 60, np.random.default_rng(seed))
    for model in fitted.estimators_:
        np.testing.assert_allclose(model.inducing_points_, Z)
    np.testing.assert_allclose(fitted.inducing_points_, Z)
    assert fitted.estimator.inducing == "kmeans"


def test_inducing_points_follow_the_kernel_s_units() -> None:
    units = np.where(np.arange(64) < 8, 1e4, 1.0)
    plain = bw.OneVsRestMIL(quick(standardize=True)).fit(BAGS[:40], KINDS[:40])
    for standardize in (True, "auto"):
        model = clone(plain).set_params(estimator__standardize=standardize)
        model.fit(BAGS.with_X(BAGS.X * units)[:40], KINDS[:40])
        np.testing.assert_allclose(
            model.inducing_points_, plain.inducing_points_ * units, atol=1e-8
        )


def test_given_inducing_points_and_all() -> None:
    Z = BAGS.X[:10]
    model = bw.OneVsRestMIL(quick(inducing=Z)).fit(BAGS[:40], KINDS[:40])
    np.testing.assert_allclose(model.inducing_points_, Z)
    model.set_params(estimator__inducing="all").fit(BAGS[:10], KINDS[:10])
    np.testing.assert_allclose(model.inducing_points_, BAGS[:10].X)


def test_n_jobs_does_not_matter() -> None:
    plain = quick()
    one, two = (bw.OneVsRestMIL(plain, n_jobs=n).fit(BAGS[:40], KINDS[:40]) for n in (1, 2))
    np.testing.assert_allclose(
        two.predict_proba(BAGS[80:]), one.predict_proba(BAGS[80:]), rtol=1e-6, atol=1e-9
    )


SHARED: dict[str, Any] = {
    "kernel given": quick(kernel=bw.kernels.RBF(5.0, 20.0)),
    "default kernel": quick(standardize=True),
    "kernel chosen": bw.ProbitVGPMIL(n_inducing=20, random_state=0, tol=1e-2),
    "logistic": bw.VGPMIL(n_inducing=20, random_state=0, learn_hyperparameters=False, tol=1e-2),
}


def rows_of_features(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of rows whose features are computed from now on, one for each call."""
    counted: list[int] = []
    compute = Whitener.__call__

    def noted(self: Whitener, X: Any) -> Any:
        counted.append(len(X))
        return compute(self, X)

    monkeypatch.setattr(Whitener, "__call__", noted)
    return counted


@pytest.mark.parametrize("name", SHARED)
def test_classes_that_share_features_are_those_by_themselves(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = rows_of_features(monkeypatch)
    model = bw.OneVsRestMIL(SHARED[name])
    shared = clone(model).fit(BAGS[:60], KINDS[:60])
    together, counted[:] = sum(counted), []
    monkeypatch.setattr(one_vs_rest, "sharing_features", lambda *_: nullcontext())
    alone = clone(model).fit(BAGS[:60], KINDS[:60])
    assert together < sum(counted)
    for one, other in zip(shared.estimators_, alone.estimators_, strict=True):
        np.testing.assert_allclose(one.posterior_.m, other.posterior_.m, rtol=0, atol=1e-10)
        np.testing.assert_allclose(one.posterior_.S, other.posterior_.S, rtol=0, atol=1e-10)
    np.testing.assert_allclose(
        shared.predict_proba(BAGS[80:]), alone.predict_proba(BAGS[80:]), atol=1e-10
    )


def test_features_and_centres_are_computed_once_for_all_classes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted, centres = rows_of_features(monkeypatch), []

    def noted(*args: Any) -> Any:
        centres.append(args)
        return kmeans_points(*args)

    monkeypatch.setattr(_preparation, "kmeans_points", noted)
    monkeypatch.setattr(bw.ProbitVGPMIL, "_check_ranking", lambda *_: None)  # looks at predictions
    bw.OneVsRestMIL(quick()).fit(BAGS[:60], KINDS[:60])
    n = BAGS[:60].n_instances
    assert len(centres) == 1
    assert sum(counted) == 2 * n  # of the fit, and of what instances look like


def test_learned_kernels_keep_no_features() -> None:
    for estimator in (quick(learn_hyperparameters=True, kernel=None), bw.MIRVM()):
        assert isinstance(_preparation.sharing_features(estimator, BAGS.X), nullcontext)


def test_arrays_are_bags_of_one() -> None:
    images, digits = load_digits(return_X_y=True)
    model = bw.OneVsRestMIL(quick()).fit(images[:300], digits[:300])
    assert len(model.estimators_) == 10
    assert model.score(images[300:600], digits[300:600]) >= 0.8


# --- scikit-learn -------------------------------------------------------------------------------


SEEN_ONCE = "scaling and inducing points see every instance once, whatever its bag's weight"


@parametrize_with_checks(
    [bw.OneVsRestMIL(quick(n_inducing=20))],
    expected_failed_checks=lambda _: {
        f"check_sample_weight_equivalence_on_{kind}_data": SEEN_ONCE for kind in ("dense", "sparse")
    },
)
def test_scikit_learn_contract(estimator: Any, check: Any) -> None:
    check(estimator)


def test_parameters_are_nested() -> None:
    model = bw.OneVsRestMIL(quick(), n_jobs=1)
    assert model.get_params()["estimator__n_inducing"] == 60
    assert clone(model).set_params(estimator__n_inducing=5).estimator.n_inducing == 5
    assert model.estimator.n_inducing == 60


def test_cross_validation_and_search() -> None:
    model = bw.OneVsRestMIL(quick())
    scores = cross_val_score(model, BAGS[:80], KINDS[:80], cv=2, scoring="roc_auc_ovr")
    assert np.mean(scores) >= 0.8
    assert np.mean(cross_val_score(model, SOME[:80], MATRIX[:80], cv=2, scoring="roc_auc")) >= 0.8
    search = GridSearchCV(model, {"estimator__n_inducing": [2, 60]}, cv=2).fit(
        BAGS[:80], KINDS[:80]
    )
    assert search.best_params_ == {"estimator__n_inducing": 60}
    assert search.best_score_ >= 0.6


def test_last_step_of_a_pipeline() -> None:
    scale = bw.InstanceTransformer(StandardScaler())
    pipe = make_pipeline(scale, bw.OneVsRestMIL(quick()))
    assert pipe.fit(BAGS[:80], KINDS[:80]).score(BAGS[80:], KINDS[80:]) >= 0.6


# --- errors -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (None, "requires y to be passed"),
        (KINDS[:5], r"one row per bag, 6; got shape \(5,\)"),
        (Y[:5], r"one row per bag, 6; got shape \(5, 3\)"),
        (np.zeros((6, 2, 2)), r"got an array of shape \(6, 2, 2\)"),
        (["a"] * 6, r"at least 2 classes.*1 class: \['a'\]; add bags"),
        (np.arange(6) + 0.5, "Unknown label type: continuous"),
        ([0, 1, 2, 0, 1, np.nan], "contains NaN"),
        (np.array([[0, 1], [1, 2]] * 3), "0 and 1 only; got 2 in row 1, column 1"),
        (np.array([["a", "b"]] * 6), "0 and 1 only; got a in row 0, column 0"),
        (np.array([[0, 1], [0, 0]] * 3), "class 0 has no positive bag; add bags that hold it"),
        (np.array([[0, 1], [1, 1]] * 3), "class 1 has no negative bag; add bags without it"),
        ([["a"], ["a", "b"], [], ["b"], ["a"], []], "MultiLabelBinarizer"),
    ],
)
def test_bad_labels(y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        bw.OneVsRestMIL(quick()).fit(BAGS[:6], y)


def test_class_names_are_checked() -> None:
    for names in (["a", "b"], ["a", "b", "b"], "abc"):
        with pytest.raises(ValueError, match="class_names must be 3 different names"):
            bw.OneVsRestMIL(quick(), class_names=names).fit(BAGS, Y)
    model = bw.OneVsRestMIL(quick(), class_names=["a", "b", "c"])
    with pytest.raises(ValueError, match="class_names are for the columns of a label matrix"):
        model.fit(BAGS, KINDS)
    model.set_params(class_names=["healthy", "ill"])
    with pytest.raises(ValueError, match="class 'ill' has no positive bag"):
        model.fit(BAGS[:4], [[0, 0], [1, 0]] * 2)


def test_a_column_of_classes_warns() -> None:
    with pytest.warns(DataConversionWarning):
        model = bw.OneVsRestMIL(quick()).fit(BAGS[:20], KINDS[:20, None])
    assert model.classes_.tolist() == CLASSES.tolist()


def test_instance_labels_have_no_meaning() -> None:
    known = np.full(BAGS.n_instances, np.nan)
    unknown = BAGS.with_instance_labels(known)[:20]
    bw.OneVsRestMIL(quick()).fit(unknown, KINDS[:20])
    known[3] = 1
    with pytest.raises(ValueError, match=r"which class.*1 are known; remove them with"):
        bw.OneVsRestMIL(quick()).fit(BAGS.with_instance_labels(known), KINDS)


@pytest.mark.parametrize("estimator", [None, bw.ProbitVGPMIL, "probit", StandardScaler()])
def test_estimator_must_be_a_model(estimator: Any) -> None:
    with pytest.raises(TypeError, match="estimator must be a model of bags"):
        bw.OneVsRestMIL(estimator).fit(BAGS, KINDS)


def test_settings_of_the_estimator_are_checked() -> None:
    with pytest.raises(ValueError, match="n_inducing must be an integer of at least 1"):
        bw.OneVsRestMIL(quick(n_inducing=0)).fit(BAGS, KINDS)
    with pytest.raises(ValueError, match="standardize must be one of"):
        bw.OneVsRestMIL(quick(standardize="yes")).fit(BAGS, KINDS)


def test_before_and_after_the_fit(fitted: bw.OneVsRestMIL) -> None:
    model = bw.OneVsRestMIL(quick())
    for ask in (model.predict_proba, model.predict, model.predict_instances, model.score):
        with pytest.raises(NotFittedError):
            ask(BAGS)
    with pytest.raises(ValueError, match="X has 2 features, but OneVsRestMIL is expecting 64"):
        fitted.predict(np.ones((3, 2)))
    with pytest.raises(ValueError, match="score needs labels"):
        fitted.score(BAGS)
