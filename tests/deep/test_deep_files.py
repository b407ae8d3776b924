"""Files of `DeepProbitMIL`: they come back as they were, and damaged ones are refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.deep import AttentionMIL, DeepProbitMIL, load_network

torch = pytest.importorskip(
    "torch", reason='networks need PyTorch: pip install "bagwise[torch]", or make test-torch'
)
safetensors = pytest.importorskip(
    "safetensors.torch", reason='saving networks needs: pip install "bagwise[torch]"'
)


@pytest.fixture(scope="module")
def bags() -> bw.Bags:
    rng = np.random.default_rng(0)
    y = np.array(["no", "yes"])[np.arange(30) % 2]
    X = [rng.normal(size=(3, 4)) + 3 * (label == "yes") for label in y]
    return bw.Bags.from_list(X, y, feature_names=list("abcd"))


def fit(bags: bw.Bags, **network: Any) -> DeepProbitMIL:
    start = AttentionMIL(**({"n_features": 5, "attention_size": 3, "max_epochs": 2} | network))
    how = {"n_inducing": 6, "max_epochs": 2, "calibration_folds": 1, "random_state": 0}
    return DeepProbitMIL(start, **how).fit(bags)


@pytest.fixture(scope="module")
def model(bags: bw.Bags) -> DeepProbitMIL:
    return fit(bags)


@pytest.fixture
def saved(model: DeepProbitMIL, tmp_path: Path) -> Path:
    model.save(tmp_path / "n.safetensors")
    return tmp_path / "n.safetensors"


def test_round_trip_to_the_last_bit(model: DeepProbitMIL, saved: Path, bags: bw.Bags) -> None:
    back = load_network(saved)
    assert isinstance(back, DeepProbitMIL)
    mine, its = model.get_params(), back.get_params()
    assert {k: v for k, v in its.items() if k != "network"} == {
        k: v for k, v in mine.items() if k != "network"
    }
    for name in ("predict_proba", "predict_instance_proba", "predict_instance_range", "latent"):
        for a, b in zip(getattr(back, name)(bags), getattr(model, name)(bags), strict=True):
            np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(back.predict(bags), model.predict(bags))
    np.testing.assert_array_equal(back.novelty(bags).bags, model.novelty(bags).bags)
    assert [e.bound for e in back.history_] == [e.bound for e in model.history_]
    assert (back.n_iter_, back.best_epoch_) == (model.n_iter_, model.best_epoch_)
    np.testing.assert_array_equal(back.held_out_, model.held_out_)
    assert back.feature_names_in_.tolist() == list("abcd")
    back.save(saved)
    np.testing.assert_array_equal(
        load_network(saved).predict_proba(bags), model.predict_proba(bags)
    )


def test_a_module_of_the_user_must_be_given_again(bags: bw.Bags, tmp_path: Path) -> None:
    own = fit(bags, encoder=torch.nn.Linear(4, 5))
    own.save(tmp_path / "n.safetensors")
    with pytest.raises(bw.ModelFileError, match="pass the module as encoder="):
        load_network(tmp_path / "n.safetensors")
    back = load_network(tmp_path / "n.safetensors", encoder=torch.nn.Linear(4, 5))
    np.testing.assert_array_equal(back.predict_proba(bags), own.predict_proba(bags))


def test_saving_needs_a_fitted_model(tmp_path: Path) -> None:
    with pytest.raises(Exception, match="not fitted"):
        DeepProbitMIL().save(tmp_path / "n.safetensors")


def rewrite(path: Path, change: Any) -> None:
    """Change header and tensors of a saved model."""
    with safetensors.safe_open(str(path), framework="pt") as file:
        header = json.loads(file.metadata()["bagwise"])
        tensors = {k: file.get_tensor(k) for k in file.keys()}  # noqa: SIM118
    change(header, tensors)
    safetensors.save_file(tensors, str(path), {"bagwise": json.dumps(header)})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, t: h.update(schema=99), "update bagwise"),
        (lambda h, t: h.update(format="bagwise-attention"), "lacks or has too much"),
        (lambda h, t: h.update(network=None), "not a network of bagwise"),
        (lambda h, t: h["network"].update(format="other"), "not a network of bagwise"),
        (lambda h, t: h["network"]["parameters"].update(n_features=10**9), "size mismatch"),
        (lambda h, t: h["network"].update(classes=["<U3", ["a", "b"]]), "other classes"),
        (lambda h, t: h["parameters"].update(n_inducing=0), "n_inducing must be"),
        (lambda h, t: h["parameters"].update(random_state="x"), "random_state must be"),
        (lambda h, t: h["parameters"].update(more=1), "unexpected keyword"),
        (lambda h, t: h.update(held_out=[-1]), "held_out must be"),
        (lambda h, t: h.update(best="1"), "best must be"),
        (lambda h, t: h.update(epochs=[[1.0]]), "cannot read"),
        (lambda h, t: t.pop("head"), "has no head"),
        (lambda h, t: t.update(head=torch.ones(3)), "has no head"),
        (lambda h, t: t.update(head=torch.zeros(9, dtype=torch.uint8)), "cannot read"),
        (lambda h, t: t.update(head=t["head"][:-40].clone()), "damaged|cannot read"),
        (lambda h, t: t["classifier.bias"].fill_(float("nan")), "NaN or infinity"),
        (lambda h, t: t.update(extra=torch.ones(2)), "Unexpected key"),
    ],
)
def test_crafted_files_are_refused(saved: Path, change: Any, message: str) -> None:
    rewrite(saved, change)
    with pytest.raises(bw.ModelFileError, match=message):
        load_network(saved)


def test_a_head_of_another_kind_is_refused(saved: Path, bags: bw.Bags, tmp_path: Path) -> None:
    bw.MIRVM().fit(bags).save(tmp_path / "other.bagwise")
    other = torch.from_numpy(np.fromfile(tmp_path / "other.bagwise", dtype=np.uint8))
    rewrite(saved, lambda h, t: t.update(head=other))
    with pytest.raises(bw.ModelFileError, match="its head is a MIRVM"):
        load_network(saved)


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.99])
def test_truncated_files_are_refused(saved: Path, share: float) -> None:
    data = saved.read_bytes()
    saved.write_bytes(data[: int(share * len(data))])
    with pytest.raises(bw.ModelFileError, match="damaged or cut off"):
        load_network(saved)
