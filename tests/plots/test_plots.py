"""Figures of image bags: what is drawn, what is refused, what is said without matplotlib."""

import io
import sys

import numpy as np
import pytest

from bagwise import Bags, ProbitVGPMIL
from bagwise.datasets import make_digit_bags
from bagwise.plots import POSITIVE, ImageBagsDisplay, require_matplotlib


@pytest.fixture
def bags() -> Bags:
    rng = np.random.default_rng(0)
    return Bags.from_list([rng.random((3, 6)), rng.random((5, 6))], y=[0, 1])


def texts(display: ImageBagsDisplay) -> list[str]:
    return [t.get_text() for t in display.ax_.texts]


def test_every_instance_is_an_image_with_its_caption(bags: Bags) -> None:
    p, std = np.linspace(0, 1, 8), np.full(8, 0.05)
    display = ImageBagsDisplay.from_predictions(
        bags, (2, 3), p, std, bag_p=[0.25, 0.75], bag_std=[0.1, 0.2]
    )
    assert len(display.ax_.images) == 8
    shown = texts(display)
    assert "0.00 ± 0.05" in shown
    assert "1.00 ± 0.05" in shown
    assert "P = 0.25 ± 0.10" in shown
    assert "positive bag" in shown
    assert "negative bag" in shown


def test_true_positives_are_framed(bags: Bags) -> None:
    from matplotlib.colors import to_rgba

    truth = np.array([0, 0, 0, 1, 0, 0, 1, np.nan])
    display = ImageBagsDisplay.from_predictions(
        bags, (2, 3), np.full(8, 0.5), truth=truth, frame_name="a witness"
    )
    frames = [r for r in display.ax_.patches if r.get_edgecolor() == to_rgba(POSITIVE)]
    assert len(frames) == 2 + 1  # one is in the legend
    assert "a witness" in texts(display)


def test_both_columns_of_predict_proba_are_taken(bags: Bags) -> None:
    p = np.linspace(0, 1, 8)
    one = ImageBagsDisplay.from_predictions(bags, (2, 3), p, bag_p=[0.2, 0.4])
    two = ImageBagsDisplay.from_predictions(
        bags, (2, 3), np.column_stack([1 - p, p]), bag_p=[[0.8, 0.2], [0.6, 0.4]]
    )
    assert texts(one) == texts(two)


def test_a_model_draws_its_own_predictions_into_given_axes(bags: Bags) -> None:
    from matplotlib import pyplot as plt

    named = bags.with_labels(np.array(["no", "yes"]))
    model = ProbitVGPMIL(random_state=0).fit(named)
    _, ax = plt.subplots()
    display = ImageBagsDisplay.from_estimator(model, named, (2, 3), ax=ax)
    assert display.ax_ is ax and display.figure_ is ax.figure
    p, std = model.predict_proba(named, return_std=True)
    assert f"P = {p[1, 1]:.2f} ± {std[1]:.2f}" in texts(display)
    assert "positive bag" in texts(display)


def test_long_bags_wrap(bags: Bags) -> None:
    wide = ImageBagsDisplay.from_predictions(bags, (2, 3), np.full(8, 0.5))
    narrow = ImageBagsDisplay.from_predictions(bags, (2, 3), np.full(8, 0.5), images_per_row=2)
    assert narrow.figure_.get_size_inches()[1] > wide.figure_.get_size_inches()[1]
    assert narrow.figure_.get_size_inches()[0] < wide.figure_.get_size_inches()[0]


def test_figure_is_saved_as_a_png_that_is_not_blank() -> None:
    digits, truth = make_digit_bags(2, random_state=0)
    display = ImageBagsDisplay.from_predictions(
        digits, (8, 8), np.full(20, 0.5), np.full(20, 0.1), truth=truth
    )
    file = io.BytesIO()
    display.figure_.savefig(file, format="png")
    assert file.getvalue().startswith(b"\x89PNG")
    assert len(file.getvalue()) > 10_000


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"image_shape": (8, 8)}, "64 pixels, but an instance has 6 features"),
        ({"p": np.zeros(7)}, r"p must have 8 entries, got shape \(7,\)"),
        ({"std": np.zeros(9)}, "std must have 8 entries"),
        ({"truth": np.zeros(2)}, "truth must have 8 entries"),
        ({"bag_p": np.zeros(8)}, "bag_p must have 2 entries"),
    ],
)
def test_wrong_shapes_are_named(bags: Bags, change: dict[str, object], message: str) -> None:
    arguments: dict[str, object] = {"image_shape": (2, 3), "p": np.zeros(8), **change}
    with pytest.raises(ValueError, match=message):
        ImageBagsDisplay.from_predictions(bags, **arguments)


def test_no_bags_are_refused(bags: Bags) -> None:
    with pytest.raises(ValueError, match="0 bags"):
        ImageBagsDisplay.from_predictions(bags[:0], (2, 3), [])


def test_missing_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch, bags: Bags) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'pip install "\.\[plot\]"'):
        require_matplotlib()
    with pytest.raises(ImportError, match=r'pip install "\.\[plot\]"'):
        ImageBagsDisplay.from_predictions(bags, (2, 3), np.zeros(8))
