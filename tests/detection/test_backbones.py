"""Networks as encoders of regions."""

from __future__ import annotations

import pickle
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.datasets import make_digit_canvases
from bagwise.detection import (
    NetworkFeatures,
    SlidingWindows,
    WeaklySupervisedDetector,
    torchvision_features,
)
from bagwise.detection.backbones import _put_in, colour_crops

torch = pytest.importorskip(
    "torch", reason='networks need PyTorch: pip install "bagwise[torch]", or make test-torch'
)
BOXES = [[0, 0, 6, 6], [2, 2, 8, 10], [0, 0, 10, 10]]


def backbone() -> Any:
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten(),
        torch.nn.Linear(4 * 8 * 8, 5),
    )  # fmt: skip


def test_features_are_those_of_the_layer() -> None:
    image = np.random.default_rng(0).random((12, 12, 3))
    module = backbone()
    encoder = NetworkFeatures(module, side=8, batch_size=2)
    out = encoder(image, BOXES)
    assert out.shape == (3, 5) and out.dtype == np.float32
    squares = (colour_crops(image, BOXES, 8) - encoder.mean) / encoder.std
    with torch.no_grad():
        x = torch.from_numpy(squares.astype(np.float32))
        whole, maps = module(x), module[:2](x)
    np.testing.assert_allclose(out, whole.numpy(), atol=1e-5)
    of_layer = NetworkFeatures(module, layer="1", side=8)(image, BOXES)
    np.testing.assert_allclose(of_layer, maps.mean(dim=(2, 3)).numpy(), atol=1e-5)


def test_grey_images_and_bytes() -> None:
    grey = np.random.default_rng(0).integers(0, 256, size=(12, 12), dtype=np.uint8)
    colour = np.repeat(grey[:, :, None], 3, axis=2)
    np.testing.assert_allclose(colour_crops(grey, BOXES, 4), colour_crops(colour, BOXES, 4))
    np.testing.assert_allclose(colour_crops(grey, BOXES, 4), colour_crops(grey / 255, BOXES, 4))


def test_what_cannot_be_used_is_refused() -> None:
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module"):
        NetworkFeatures("resnet18")
    with pytest.raises(ValueError, match="no layer 'avgpool'; it has 0, 1, 2, 3"):
        NetworkFeatures(backbone(), layer="avgpool")


def test_a_detector_with_a_network() -> None:
    canvases = make_digit_canvases(16, (0,), random_state=0)
    detector = WeaklySupervisedDetector(
        bw.ProbitVGPMIL(kernel=bw.kernels.RBF(4.0, 1.0), learn_hyperparameters=False),
        proposals=SlidingWindows((16, 20), top=6),
        encoder=NetworkFeatures(backbone(), layer="1", side=8),
        n_components=3,
        class_names=[0],
        random_state=0,
    ).fit(canvases.images, canvases.y)
    assert len(detector.detect(canvases.images[:2])) == 2


def test_weights_are_read_without_running_anything(tmp_path: Path) -> None:
    module, other = backbone(), backbone()
    path = tmp_path / "w.pth"
    torch.save(module.state_dict(), path)
    _put_in(other, path)
    for name, values in module.state_dict().items():
        assert torch.equal(other.state_dict()[name], values)

    class Harmful:
        def __reduce__(self) -> Any:
            return (Path.touch, (tmp_path / "harm",))

    for protocol in (2, 4):
        path.write_bytes(pickle.dumps(Harmful(), protocol=protocol))
        with pytest.raises(bw.ModelFileError, match=r"nothing of it was run|it is no \.pt file"):
            _put_in(other, path)
    assert not (tmp_path / "harm").exists()
    torch.save(torch.ones(2), path)
    with pytest.raises(bw.ModelFileError, match="holds a Tensor"):
        _put_in(other, path)
    with pytest.raises(FileNotFoundError):
        _put_in(other, tmp_path / "gone")


@pytest.mark.parametrize("wrong", [{}, {"0.weight": 3}, {1: 2}, "shape"], ids=str)
def test_weights_of_another_model_are_refused(wrong: Any, tmp_path: Path) -> None:
    module = backbone()
    if wrong == "shape":
        wrong = {name: torch.ones(7) for name in module.state_dict()}
    torch.save(wrong, tmp_path / "w.pth")
    with pytest.raises(bw.ModelFileError, match="its weights are not those of the model"):
        _put_in(module, tmp_path / "w.pth")


def test_models_of_torchvision_or_what_to_install() -> None:
    try:
        import_module("torchvision.models")
    except (ImportError, RuntimeError):
        with pytest.raises(ImportError, match="built for the torch that is installed"):
            torchvision_features("resnet18", None)
        return
    encoder = torchvision_features("resnet18", None, side=32)
    assert encoder(np.zeros((12, 12, 3)), BOXES).shape == (3, 512)
    with pytest.raises(ValueError, match="torchvision has no model"):
        torchvision_features("resnet0", None)
