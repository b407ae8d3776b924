"""Networks in files: they come back as they were, and damaged ones are refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.deep import AttentionMIL, load_network

torch = pytest.importorskip(
    "torch", reason='networks need PyTorch: pip install ".[torch]", or make test-torch'
)
safetensors = pytest.importorskip(
    "safetensors.torch", reason='saving networks needs: pip install ".[torch]"'
)


@pytest.fixture(scope="module")
def bags() -> bw.Bags:
    rng = np.random.default_rng(0)
    y = np.array(["no", "yes"])[np.arange(24) % 2]
    X = [rng.normal(size=(3, 4)) + 3 * (label == "yes") for label in y]
    return bw.Bags.from_list(X, y, feature_names=list("abcd"))


def fit(bags: bw.Bags, **settings: Any) -> AttentionMIL:
    return AttentionMIL(
        n_features=5, attention_size=3, max_epochs=2, random_state=0, **settings
    ).fit(bags)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"image_shape": (2, 2), "pooling": "attention"},
        {"pooling": "max"},
        {"validation_size": 0},
    ],
    ids=str,
)
def test_round_trip(settings: dict, bags: bw.Bags, tmp_path: Path) -> None:
    model = fit(bags, **settings)
    model.save(tmp_path / "n.safetensors")
    back = load_network(tmp_path / "n.safetensors")
    assert back.get_params() == model.get_params()
    assert back.classes_.tolist() == ["no", "yes"]
    np.testing.assert_array_equal(back.predict_proba(bags), model.predict_proba(bags))
    np.testing.assert_array_equal(back.attention(bags), model.attention(bags))
    np.testing.assert_array_equal(back.transform(bags).X, model.transform(bags).X)
    assert back.feature_names_in_.tolist() == list("abcd")
    assert (back.n_iter_, back.best_epoch_) == (model.n_iter_, model.best_epoch_)
    assert [e.loss for e in back.history_] == [e.loss for e in model.history_]


def test_an_existing_file_is_kept_unless_told(bags: bw.Bags, tmp_path: Path) -> None:
    path = tmp_path / "n.safetensors"
    path.write_bytes(b"mine")
    model = fit(bags)
    with pytest.raises(FileExistsError, match="overwrite=True"):
        model.save(path, overwrite=False)
    assert path.read_bytes() == b"mine"
    model.save(path)
    assert load_network(path).n_iter_ == model.n_iter_


def test_a_module_of_the_user_must_be_given_again(bags: bw.Bags, tmp_path: Path) -> None:
    def module() -> Any:
        return torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.ReLU())

    model = fit(bags, encoder=module())
    model.save(tmp_path / "n.safetensors")
    with pytest.raises(bw.ModelFileError, match="pass the module as encoder="):
        load_network(tmp_path / "n.safetensors")
    back = load_network(tmp_path / "n.safetensors", encoder=module())
    np.testing.assert_array_equal(back.predict_proba(bags), model.predict_proba(bags))
    with pytest.raises(bw.ModelFileError, match="cannot read"):
        load_network(tmp_path / "n.safetensors", encoder=torch.nn.Linear(4, 6))


def test_saving_needs_a_fitted_network(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="not fitted"):
        AttentionMIL().save(tmp_path / "n.safetensors")


@pytest.fixture
def saved(bags: bw.Bags, tmp_path: Path) -> Path:
    path = tmp_path / "n.safetensors"
    fit(bags).save(path)
    return path


def rewrite(path: Path, change: Any) -> None:
    """Change header and tensors of a saved network."""
    with safetensors.safe_open(str(path), framework="pt") as file:
        header = json.loads(file.metadata()["bagwise"])
        tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    metadata = change(header, tensors)
    safetensors.save_file(tensors, str(path), {"bagwise": json.dumps(header)} | (metadata or {}))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, t: h.update(schema=99), "update bagwise"),
        (lambda h, t: h.update(format="other"), "not a network of bagwise"),
        (lambda h, t: h.pop("classes"), "lacks or has too much"),
        (lambda h, t: h["parameters"].update(pooling="__import__"), "pooling must be one of"),
        (lambda h, t: h["parameters"].update(verbosity=3), "unexpected keyword"),
        (lambda h, t: h.update(n_inputs=7), "cannot read"),
        (lambda h, t: h.update(classes=["|O", ["a", "b"]]), "two classes"),
        (lambda h, t: t.pop("classifier.bias"), "Missing key"),
        (lambda h, t: t.update(extra=torch.ones(2)), "Unexpected key"),
        (lambda h, t: t["classifier.bias"].fill_(float("nan")), "NaN or infinity"),
        (lambda h, t: h.update(n_inputs=30_000_000), "'shift' is of shape"),
        (lambda h, t: h["parameters"].update(n_features=10**9), "size mismatch"),
        (lambda h, t: h["parameters"].update(random_state="x"), "random_state must be"),
        (lambda h, t: h.update(n_inputs="4"), "n_inputs must be"),
        (lambda h, t: h.update(classes=["<U3", ["a", "a"]]), "two classes that differ"),
        (lambda h, t: h.update(classes=["<f8", [float("nan"), 1.0]]), "two classes that differ"),
        (lambda h, t: h.update(classes=["<U99999999", ["a", "b"]]), "two classes of type"),
        (lambda h, t: h.update(feature_names=["a"]), "names of 4 features"),
        (lambda h, t: h.update(feature_names=[1, 2, 3, 4]), "must be texts"),
        (lambda h, t: t.update(scale=torch.zeros(4)), "'scale' must be positive"),
        (lambda h, t: t.update(scale=torch.ones(3)), "'scale' is of shape"),
        (lambda h, t: t.update(scale=torch.ones(4, dtype=torch.int64)), "and type torch.int64"),
        (lambda h, t: t.update({"classifier.bias": torch.ones(1).double()}), "type torch.float64"),
    ],
)
def test_crafted_files_are_refused(saved: Path, change: Any, message: str) -> None:
    rewrite(saved, lambda h, t: change(h, t) and None)
    with pytest.raises(bw.ModelFileError, match=message):
        load_network(saved)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.99])
def test_truncated_files_are_refused(saved: Path, share: float) -> None:
    data = saved.read_bytes()
    saved.write_bytes(data[: int(share * len(data))])
    with pytest.raises(bw.ModelFileError, match="damaged or cut off"):
        load_network(saved)


def test_pickles_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "n.safetensors"
    path.write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(bw.ModelFileError, match="no safetensors file"):
        load_network(path)
    safetensors.save_file({"a": torch.ones(2)}, str(path))
    with pytest.raises(bw.ModelFileError, match="is not a network of bagwise"):
        load_network(path)
    with pytest.raises(FileNotFoundError):
        load_network(tmp_path / "gone")
