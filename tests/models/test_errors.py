"""Bad input raises an error that states the rule, the value and the remedy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError

import bagwise as bw
from bagwise.kernels import RBF

MODELS = [bw.VGPMIL, bw.ProbitVGPMIL]
each_model = pytest.mark.parametrize("cls", MODELS, ids=lambda c: c.__name__)

X = np.random.default_rng(0).normal(size=(12, 2))
IDS = np.repeat(["a", "b", "c", "d"], 3)
Y = [0, 1, 0, 1]


def make_bags(**more: Any) -> bw.Bags:
    return bw.Bags.from_arrays(X, IDS, y=Y, **more)


def with_entry(value: float) -> np.ndarray:
    changed = X.copy()
    changed[7, 1] = value
    return changed


def frame(**columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"bag_id": IDS, "label": np.repeat(Y, 3), "x": X[:, 0], **columns})


def quick(cls: type, **settings: Any) -> Any:
    return cls(**({"learn_hyperparameters": False, "tol": 1e-2} | settings))


# --- data ---------------------------------------------------------------------------------------


WHERE = r"bag 'c', row 1 of that bag \(input row 7\), feature 1"


@pytest.mark.parametrize("value", [np.inf, -np.inf])
def test_infinite_features_name_the_bag(value: float) -> None:
    with pytest.raises(ValueError, match=rf"contains infinity.*{WHERE}.*correct the entry"):
        bw.Bags.from_arrays(with_entry(value), IDS, y=Y)


@each_model
def test_missing_features_name_the_bag(cls: type) -> None:
    """Bags carry them to an imputer; a model refuses them."""
    bags = bw.Bags.from_arrays(with_entry(np.nan), IDS, y=Y)
    with pytest.raises(ValueError, match=r"contains NaN.*bag 'c', row 1 of that bag.*feature 1"):
        quick(cls).fit(bags)


@each_model
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_non_finite_features_in_lists_and_arrays(cls: type, value: float) -> None:
    bad = with_entry(value)
    parts = [bad[i : i + 3] for i in range(0, 12, 3)]
    with pytest.raises(ValueError, match="bag 2, row 1 of that bag"):
        quick(cls).fit(parts, Y)
    model = quick(cls).fit(make_bags())
    with pytest.raises(ValueError, match="bag 7, row 0 of that bag"):
        model.predict_proba(bad)


@each_model
def test_empty_bag(cls: type) -> None:
    parts = [X[:3], X[:0], X[3:6], X[6:9]]
    with pytest.raises(ValueError, match=r"bag 1 has 0 instances.*drop it"):
        quick(cls).fit(parts, Y)


@each_model
def test_no_instances(cls: type) -> None:
    with pytest.raises(ValueError, match="at least one bag"):
        bw.Bags.from_list([])
    with pytest.raises(ValueError, match="0 sample"):
        bw.Bags.from_arrays(np.empty((0, 2)), [])
    with pytest.raises(ValueError, match="0 bags while a minimum of 1 is required"):
        quick(cls).fit(make_bags()[:0])


@each_model
def test_label_count_mismatch(cls: type) -> None:
    with pytest.raises(ValueError, match="y must have one entry per bag: 4; got 3"):
        bw.Bags.from_arrays(X, IDS, y=[0, 1, 0])
    with pytest.raises(ValueError, match="one entry per bag: 4; got 5"):
        quick(cls).fit(make_bags(), [0, 1, 0, 1, 1])
    with pytest.raises(ValueError, match="these look like one per row"):
        quick(cls).fit(make_bags(), np.repeat(Y, 3))


@each_model
def test_three_label_values(cls: type) -> None:
    with pytest.raises(ValueError, match=r"3 label values, \[0, 1, 2\]; .*OneVsRestMIL"):
        quick(cls).fit(make_bags(), [0, 1, 2, 1])


@each_model
def test_one_class_only(cls: type) -> None:
    with pytest.raises(ValueError, match=r"of 1 class.*add bags of the other class"):
        quick(cls).fit(make_bags(), [1, 1, 1, 1])


@each_model
@pytest.mark.parametrize("y", [[0.1, 0.7, 1.3, 2.5], [0.0, np.inf, 0.0, 1.0]], ids=repr)
def test_labels_that_are_no_classes(cls: type, y: list[float]) -> None:
    with pytest.raises(ValueError, match="bag labels must be two"):
        quick(cls).fit(make_bags(), y)


@each_model
def test_missing_labels(cls: type) -> None:
    with pytest.raises(ValueError, match=r"requires y.*one label per bag"):
        quick(cls).fit(make_bags().with_labels(None))
    with pytest.raises(ValueError, match="score needs labels"):
        quick(cls).fit(make_bags()).score(make_bags().with_labels(None))


@each_model
def test_a_positive_instance_in_a_negative_bag(cls: type) -> None:
    known = np.full(12, np.nan)
    known[7] = 1
    message = (
        "negative bag has no positive instance.*input row 7, of bag .*'c'.*correct the bag's label"
    )
    with pytest.raises(ValueError, match=message):
        quick(cls).fit(make_bags(instance_labels=known))


@each_model
def test_a_positive_bag_of_negative_instances(cls: type) -> None:
    known = np.where(IDS == "b", 0.0, np.nan)
    message = "positive bag has at least one positive.*bag .*'b'.*set some instance labels to NaN"
    with pytest.raises(ValueError, match=message):
        quick(cls).fit(make_bags(instance_labels=known))


@each_model
def test_instance_labels_of_other_values(cls: type) -> None:
    with pytest.raises(ValueError, match="must be 0, 1, or NaN or -1 for unknown; entry 0 is 2"):
        make_bags(instance_labels=np.full(12, 2))


def test_non_numeric_column() -> None:
    with pytest.raises(ValueError, match=r"must be numeric; column 'name'.*features="):
        bw.Bags.from_frame(frame(name=["u"] * 12))


def test_missing_column() -> None:
    with pytest.raises(ValueError, match=r"no column 'label'; its columns are.*label=None"):
        bw.Bags.from_frame(frame().drop(columns="label"))
    with pytest.raises(ValueError, match="no column 'slide'"):
        bw.Bags.from_frame(frame(), bag="slide")


def test_numeric_strings_are_not_numbers() -> None:
    with pytest.raises(ValueError, match=r"must be numbers, not .*strings.*astype\(float\)"):
        bw.Bags.from_arrays(X.astype(str), IDS, y=Y)


# --- use of estimators --------------------------------------------------------------------------

METHODS = [
    "predict",
    "predict_proba",
    "predict_instances",
    "predict_instance_proba",
    "latent",
    "top_instances",
    "score",
]


@each_model
@pytest.mark.parametrize("method", METHODS)
def test_before_fit(cls: type, method: str) -> None:
    with pytest.raises(NotFittedError, match="Call 'fit'"):
        getattr(cls(), method)(make_bags())


@each_model
def test_after_a_failed_fit(cls: type) -> None:
    model = quick(cls)
    with pytest.raises(ValueError, match="1 class"):
        model.fit(make_bags(), [1, 1, 1, 1])
    with pytest.raises(NotFittedError):
        model.predict(make_bags())


@each_model
@pytest.mark.parametrize("method", METHODS)
def test_wrong_feature_count(cls: type, method: str) -> None:
    model = quick(cls).fit(make_bags())
    wide = bw.Bags.from_arrays(np.column_stack([X, X]), IDS, y=Y)
    with pytest.raises(ValueError, match=r"X has 4 features, but .* is expecting 2 features"):
        getattr(model, method)(wide)


@each_model
def test_other_feature_names(cls: type) -> None:
    named = bw.Bags.from_arrays(X, IDS, y=Y, feature_names=["u", "v"])
    model = quick(cls).fit(named)
    with pytest.raises(ValueError, match=r"(?s)feature names should match.*- w.*missing:\n- v"):
        model.predict(bw.Bags.from_arrays(X, IDS, feature_names=["u", "w"]))
    remedy = r"(?s)same order.*features=list\(model.feature_names_in_\)"
    with pytest.raises(ValueError, match=remedy):
        model.predict(bw.Bags.from_arrays(X, IDS, feature_names=["v", "u"]))


@each_model
def test_top_instances_needs_a_count(cls: type) -> None:
    with pytest.raises(ValueError, match="k must be an integer of at least 1, got 0"):
        quick(cls).fit(make_bags()).top_instances(make_bags(), 0)


# --- hyperparameters ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"variance": -1}, "variance of RBF must be a positive finite number, got -1"),
        ({"variance": np.inf}, "variance of RBF must be .* got inf"),
        ({"lengthscale": np.nan}, "lengthscale of RBF must be a positive finite number, got nan"),
        ({"lengthscale": 0.0}, "lengthscale of RBF .* got 0.0"),
    ],
)
def test_kernel_parameters(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RBF(**settings)


BAD_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"mean": np.inf}, r"mean \('learn' or a number\) must be a finite number, got inf"),
    ({"mean": np.nan}, "mean .* must be a finite number, got nan"),
    ({"mean": "zero"}, "mean .* got 'zero'"),
    ({"tol": -1e-3}, "tol must be a finite number of at least 0, got -0.001"),
    ({"tol": np.nan}, "tol must be a finite number"),
    ({"jitter": 0}, "jitter must be a finite number greater than 0, got 0"),
    ({"jitter": -1e-6}, "jitter must be .* greater than 0"),
    ({"n_inducing": 0}, "n_inducing must be an integer of at least 1, got 0"),
    ({"n_inducing": 2.5}, "n_inducing must be an integer .* got 2.5"),
    ({"max_iter": 0}, "max_iter must be an integer of at least 1"),
    ({"chunk_size": 0}, "chunk_size must be an integer of at least 1"),
    ({"inducing": np.ones((3, 5))}, r"inducing must be .* \(M, 2\) array .* got shape \(3, 5\)"),
    ({"inducing": np.ones(3)}, r"inducing must be .* got shape \(3,\)"),
    ({"inducing": np.empty((0, 2))}, r"inducing must be .* got shape \(0, 2\)"),
    ({"inducing": np.full((3, 2), np.nan)}, "inducing points must be finite"),
    ({"inducing": "random"}, "inducing must be one of 'kmeans', 'all', got 'random'"),
    ({"bag_score": "mean"}, "bag_score must be one of .*'joint', 'noisy-or', 'max', got 'mean'"),
    ({"inference": "mcmc"}, "inference must be one of 'vi', 'laplace'.*, got 'mcmc'"),
    ({"standardize": "yes"}, "standardize must be one of 'auto', True, False, got 'yes'"),
    ({"learn_hyperparameters": 2}, "learn_hyperparameters must be one of True, False, got 2"),
    ({"dtype": "int32"}, "dtype must be None, 'float32' or 'float64', got 'int32'"),
    ({"kernel": RBF(1.0, (1.0, 2.0, 3.0))}, "RBF has 3, the data have 2 features"),
]


@each_model
@pytest.mark.parametrize(("settings", "message"), BAD_SETTINGS, ids=lambda v: str(v)[:40])
def test_bad_settings(cls: type, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        quick(cls, **settings).fit(make_bags())


@each_model
@pytest.mark.parametrize("kernel", ["rbf", 1.0, RBF])
def test_kernel_type(cls: type, kernel: object) -> None:
    with pytest.raises(TypeError, match=r"kernel must be a bagwise kernel such as .*RBF\(\), got"):
        quick(cls, kernel=kernel).fit(make_bags())


@pytest.mark.parametrize("H", [0.5, 1, -np.inf, np.nan, "high"])
def test_H(H: object) -> None:
    with pytest.raises(ValueError, match=r"H must be greater than 1 \(inf is .*\), got"):
        quick(bw.VGPMIL, H=H).fit(make_bags())


def test_approximation() -> None:
    with pytest.raises(ValueError, match="approximation must be one of 'fitc', 'vfe', got 'dtc'"):
        quick(bw.ProbitVGPMIL, approximation="dtc").fit(make_bags())


def test_laplace_has_no_vfe() -> None:
    with pytest.raises(ValueError, match="no 'vfe' form; use approximation='fitc'"):
        quick(bw.ProbitVGPMIL, inference="laplace", approximation="vfe").fit(make_bags())


@each_model
def test_errors_come_before_any_work(cls: type) -> None:
    model = quick(cls, bag_score="mean")
    with pytest.raises(ValueError, match="bag_score"):
        model.fit(make_bags())
    assert not hasattr(model, "n_features_in_")
