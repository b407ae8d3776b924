"""Files of pipelines and of several classes: what comes back, and what is refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

import bagwise as bw
from bagwise.core.files.modelfile import read_state, write_state
from toy_bags import separable_bags

BAGS = separable_bags(24, 3)
THREE = np.array(["bee", "cow", "owl"])[np.arange(24) % 3]
MATRIX = np.column_stack([BAGS.y, 1 - BAGS.y])


def probit(**settings: Any) -> bw.ProbitVGPMIL:
    return bw.ProbitVGPMIL(n_inducing=8, random_state=0, **settings)


def saved(model: Any, folder: Path) -> Any:
    bw.save(model, folder / "m.bagwise")
    return bw.load(folder / "m.bagwise")


@pytest.mark.parametrize(
    ("y", "settings"),
    [
        (THREE, {}),
        (THREE.astype(object), {}),
        (np.arange(24) % 3, {}),
        (MATRIX, {"class_names": ["hit", "miss"]}),
    ],
    ids=["text", "objects", "numbers", "matrix"],
)
def test_several_classes_come_back(y: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    model = bw.OneVsRestMIL(probit(), **settings).fit(BAGS, y)
    back = saved(model, tmp_path)
    np.testing.assert_array_equal(back.predict_proba(BAGS), model.predict_proba(BAGS))
    np.testing.assert_array_equal(back.predict_instances(BAGS), model.predict_instances(BAGS))
    assert back.predict(BAGS).dtype == model.predict(BAGS).dtype
    np.testing.assert_array_equal(back.predict(BAGS), model.predict(BAGS))
    assert repr(back) == repr(model)
    again = back.fit(BAGS, y)
    np.testing.assert_array_equal(again.predict_proba(BAGS), model.predict_proba(BAGS))


@pytest.mark.parametrize(
    "rows", [StandardScaler(), MinMaxScaler(), PCA(2, whiten=True, random_state=0)]
)
def test_pipelines_come_back(rows: Any, tmp_path: Path) -> None:
    pipe = make_pipeline(bw.InstanceTransformer(rows), bw.MIRVM(random_state=0)).fit(BAGS)
    back = saved(pipe, tmp_path)
    np.testing.assert_array_equal(back.predict_proba(BAGS), pipe.predict_proba(BAGS))
    assert [name for name, _ in back.steps] == ["instancetransformer", "mirvm"]
    np.testing.assert_array_equal(back.fit(BAGS).predict_proba(BAGS), pipe.predict_proba(BAGS))


def test_a_pipeline_may_end_in_several_classes(tmp_path: Path) -> None:
    pipe = make_pipeline(bw.InstanceTransformer(StandardScaler()), bw.OneVsRestMIL(probit()))
    pipe.fit(BAGS, THREE)
    np.testing.assert_array_equal(saved(pipe, tmp_path).predict(BAGS), pipe.predict(BAGS))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LogisticRegression(), "a LogisticRegression cannot be written.*MIRVM"),
        (
            lambda: bw.OneVsRestMIL(bw.baselines.MISVM()).fit(BAGS, THREE),
            "a MISVM cannot be written",
        ),
        (
            lambda: make_pipeline(bw.InstanceTransformer(RobustScaler()), bw.MIRVM()).fit(BAGS),
            "a RobustScaler cannot be written.*PCA",
        ),
        (
            lambda: Pipeline([("x", "passthrough"), ("m", bw.MIRVM())]).fit(BAGS),
            "step 'x' is a str; files hold InstanceTransformer steps",
        ),
    ],
    ids=["sklearn", "baseline", "transformer", "step"],
)
def test_what_files_cannot_hold_is_named(make: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(bw.ModelFileError, match=message):
        bw.save(make(), tmp_path / "m.bagwise")
    assert not any(tmp_path.iterdir())


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "m.bagwise"
    path.write_text("mine")
    pipe = make_pipeline(bw.InstanceTransformer(PCA(1)), bw.MIRVM()).fit(BAGS)
    for model in (pipe, pipe[-1], bw.OneVsRestMIL(bw.MIRVM()).fit(BAGS, THREE)):
        with pytest.raises(FileExistsError):
            bw.save(model, path, overwrite=False)
    assert path.read_text() == "mine"


def crafted(change: Any, kind: str, folder: Path) -> Path:
    """A file whose state was changed."""
    pipe = make_pipeline(bw.InstanceTransformer(PCA(1)), bw.OneVsRestMIL(bw.MIRVM()))
    pipe.fit(BAGS, THREE)
    path = folder / "m.bagwise"
    bw.save(pipe if kind == "Pipeline" else pipe[-1], path)
    _, state = read_state(path)
    change(state)
    write_state(path, state, kind=kind)
    return path


def set_step(state: Any, name: str, fitted: dict[str, Any]) -> None:
    (step, (_, parameters, values)) = state["steps"][0]
    state["steps"][0] = (step, (name, parameters, {**values, **fitted}))


@pytest.mark.parametrize(
    ("kind", "change", "message"),
    [
        ("OneVsRestMIL", lambda s: s["models"].pop(), "2 models for 3 classes"),
        ("OneVsRestMIL", lambda s: s.pop("classes"), "not a complete OneVsRestMIL"),
        ("OneVsRestMIL", lambda s: s.update(estimator=("eval", {})), "'eval' is not a model"),
        ("OneVsRestMIL", lambda s: s.update(models=3), "not a complete OneVsRestMIL"),
        ("Pipeline", lambda s: set_step(s, "FunctionTransformer", {}), "not a transformer that"),
        ("Pipeline", lambda s: set_step(s, "PCA", {"__class__": 1}), "lacks or has too much"),
        ("Pipeline", lambda s: set_step(s, "PCA", {"mean_": np.zeros(9)}), "not a complete Pipe"),
        (
            "Pipeline",
            lambda s: set_step(s, "PCA", {"mean_": np.full(3, np.nan)}),
            "does not give finite numbers",
        ),
        ("Pipeline", lambda s: s.update(model=("p", "Pipeline", dict(s))), "inside a pipeline"),
        ("Pipeline", lambda s: s.update(steps=[1]), "not a complete Pipeline"),
    ],
)
def test_crafted_files_are_refused(kind: str, change: Any, message: str, tmp_path: Path) -> None:
    path = crafted(change, kind, tmp_path)
    with pytest.raises(bw.ModelFileError, match=message):
        bw.load(path)


def test_a_folder_is_no_model_file(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="is a folder; give a file"):
        bw.load(tmp_path)
