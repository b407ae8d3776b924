"""What scikit-learn users try with bags: names, output, scorers, ensembles, notebooks."""

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.ensemble import (
    AdaBoostClassifier,
    BaggingClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.feature_selection import SelectFromModel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import bagwise as bw
from bagwise.baselines import BASELINES
from bagwise.metrics import scorer
from toy_bags import separable_bags

NAMES = ["a", "b", "c"]


def named_bags(n_bags: int = 16) -> bw.Bags:
    return separable_bags(n_bags, 3, feature_names=NAMES)


def quick() -> Any:
    return BASELINES["MILR"]()


def test_labels_inside_bags_are_enough() -> None:
    bags = named_bags()
    assert np.all(np.isfinite(cross_validate(quick(), bags, cv=2)["test_score"]))
    found = cross_val_score(quick(), bags, cv=2, scoring=scorer("roc_auc"))
    given = cross_val_score(
        quick(), bags.with_labels(None), bags.y, cv=[*_halves()], scoring="roc_auc"
    )
    np.testing.assert_allclose(found, given)
    search = GridSearchCV(quick(), {"C": [0.1, 1.0]}, cv=2, scoring=scorer("neg_brier"))
    assert search.fit(bags).best_score_ <= 0


def _halves() -> Any:
    rows = np.arange(16)
    return (rows[8:], rows[:8]), (rows[:8], rows[8:])


def test_scorers_take_the_positive_class_for_positive() -> None:
    """Labels whose positive one is the first in sorted order turn scikit-learn's AUC around."""
    bags = named_bags()
    y = np.where(bags.y == 1, "cancer", "healthy")
    told = {"params": {"positive": "cancer"}, "cv": [*_halves()]}
    numbers = cross_val_score(quick(), bags, bags.y, cv=told["cv"], scoring="roc_auc")
    found = _without_warnings(lambda: cross_val_score(
        quick(), bags, y, scoring=scorer("roc_auc"), **told
    ))  # fmt: skip
    np.testing.assert_allclose(found, numbers)
    with pytest.warns(UserWarning, match=r"'roc_auc' would be 1 - AUC.*metrics\.scorer"):
        turned = cross_val_score(quick(), bags, y, scoring="roc_auc", **told)
    np.testing.assert_allclose(turned, 1 - numbers)


def _without_warnings(call: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


def test_fits_outside_of_a_cross_validation_do_not_warn() -> None:
    bags = named_bags()
    y = np.where(bags.y == 1, "cancer", "healthy")
    assert quick().fit(bags, y, positive="cancer").classes_.tolist() == ["healthy", "cancer"]


@pytest.mark.parametrize("name", ["accuracy", "instance_roc_auc", "neg_brier"])
def test_scorers_are_the_scores_of_metrics(name: str) -> None:
    bags = named_bags()
    known = np.where(np.arange(bags.n_instances) % 2, 1.0, 0.0)
    model, bags = quick().fit(bags), bags.with_instance_labels(known)
    scores = {**bw.metrics.bag_scores(model, bags)}
    if name.startswith("instance_"):
        scores = bw.metrics.instance_scores(model, bags)
    key = name.removeprefix("instance_").removeprefix("neg_")
    assert scorer(name)(model, bags) == (-scores[key] if "neg" in name else scores[key])


def test_unknown_scores_are_named() -> None:
    with pytest.raises(ValueError, match=r"no score 'auc'; choose one of roc_auc"):
        scorer("auc")


def test_names_and_output_go_through_pipelines() -> None:
    bags = named_bags()
    pipe = make_pipeline(
        bw.InstanceTransformer(StandardScaler()), bw.InstanceTransformer(PCA(2)), quick()
    )
    before = pipe.fit(bags).predict_proba(bags)
    assert pipe[:-1].get_feature_names_out().tolist() == ["pca0", "pca1"]
    assert pipe[0].feature_names_in_.tolist() == NAMES
    tables = clone(pipe.set_output(transform="pandas"))  # clones keep it
    np.testing.assert_allclose(tables.fit(bags).predict_proba(bags), before)
    assert tables[0].transformer_.feature_names_in_.tolist() == NAMES
    assert isinstance(tables[:-1].transform(bags), bw.Bags)
    with pytest.raises(ValueError, match="transform must be one of 'default', 'pandas', 'polars'"):
        pipe[0].set_output(transform="table")


def test_columns_are_chosen_by_name() -> None:
    bags = named_bags()
    step = bw.InstanceTransformer(ColumnTransformer([("s", StandardScaler(), ["a", "b"])]))
    with pytest.raises(ValueError, match=r"set_output\(transform='pandas'\)"):
        step.fit(bags)
    out = step.set_output(transform="pandas").fit_transform(bags)
    assert out.feature_names == ("s__a", "s__b")
    np.testing.assert_allclose(out.X, StandardScaler().fit_transform(bags.X[:, :2]))


def test_other_names_are_refused() -> None:
    bags = named_bags()
    step = bw.InstanceTransformer(StandardScaler()).fit(bags)
    with pytest.raises(ValueError, match="must be in the same order"):
        step.transform(bags.with_X(bags.X, feature_names=["b", "a", "c"]))


def test_selectors_by_a_model_get_the_labels_of_bags() -> None:
    step = bw.InstanceTransformer(SelectFromModel(LogisticRegression(), max_features=1))
    assert step.fit_transform(named_bags()).feature_names == ("a",)


@pytest.mark.parametrize(
    "ensemble",
    [
        VotingClassifier([("a", quick()), ("b", BASELINES["MeanPoolLogistic"]())], voting="soft"),
        StackingClassifier([("a", quick())], cv=2),
        CalibratedClassifierCV(quick(), cv=2),
    ],
    ids=lambda e: type(e).__name__,
)
def test_ensembles_take_bags(ensemble: Any) -> None:
    bags = named_bags()
    assert ensemble.fit(bags, bags.y).predict(bags).shape == (16,)


@pytest.mark.parametrize("kind", [BaggingClassifier, AdaBoostClassifier])
def test_ensembles_that_need_one_array_say_so(kind: Any) -> None:
    bags = named_bags()
    with pytest.raises(TypeError, match="BaggingClassifier and AdaBoostClassifier make arrays too"):
        kind(quick()).fit(bags, bags.y)


def test_notebooks_show_bags_and_whether_models_are_fitted() -> None:
    bags = named_bags()
    page = bags._repr_html_()
    assert "16 bags: 8 positive, 8 negative" in page and "features: a, b, c" in page
    assert page.count("<tr>") == 7 and "and 11 more" in page
    odd = bw.Bags.from_list([[[1.0]]], y=["<script>"], ids=["&"])._repr_html_()
    assert "<script>" not in odd and "&lt;script&gt;" in odd and "&amp;" in odd
    assert "Not fitted" in quick()._repr_html_()
    assert "Not fitted" not in quick().fit(bags)._repr_html_()
