"""Displays: what they draw, that they take axes, and what they refuse."""

import numpy as np
import pytest
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from bagwise import MIRVM, Bags, ProbitVGPMIL, metrics, plots
from bagwise.datasets.cad import CadData, make_cad_bags
from bagwise.kernels import RBF
from bagwise.plots.style import POSITIVE


@pytest.fixture(scope="module")
def bags() -> Bags:
    rng = np.random.default_rng(0)
    y = np.arange(20) % 2
    X = [rng.normal(size=(6, 2)) for _ in y]
    for Xb, label in zip(X, y, strict=True):
        Xb[0] += 4 * label
    grid = [[i % 3, i // 3] for i in range(6)]
    truth = np.concatenate([[label, *[0] * 5] for label in y])
    return Bags.from_list(X, y, coords=[grid] * 20, instance_labels=truth)


@pytest.fixture(scope="module")
def model(bags: Bags) -> ProbitVGPMIL:
    return ProbitVGPMIL(random_state=0).fit(bags)


@pytest.fixture(scope="module")
def cad() -> CadData:
    return make_cad_bags(n_volumes=20, random_state=0)


FROM_MODEL = {
    "instances": lambda m, b, ax: plots.InstanceProbabilityDisplay.from_estimator(m, b[1], ax=ax),
    "roc": lambda m, b, ax: plots.RocDisplay.from_estimator(m, b, ax=ax, n_resamples=20),
    "pr": lambda m, b, ax: plots.PrecisionRecallDisplay.from_estimator(
        m, b, ax=ax, n_resamples=20
    ),
    "reliability": lambda m, b, ax: plots.ReliabilityDisplay.from_estimator(m, b, ax=ax),
    "posterior": lambda m, b, ax: plots.InstancePosteriorDisplay.from_estimator(m, b, ax=ax),
    "elbo": lambda m, b, ax: plots.ElboDisplay.from_estimator(m, ax=ax),
}  # fmt: skip


@pytest.mark.parametrize("name", FROM_MODEL)
def test_displays_draw_models_into_given_or_new_axes(
    name: str, model: ProbitVGPMIL, bags: Bags
) -> None:
    _, ax = plt.subplots()
    display = FROM_MODEL[name](model, bags, ax)
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert ax.get_xlabel()
    assert ax.get_ylabel()
    fresh = FROM_MODEL[name](model, bags, None)
    assert fresh.ax_ is not ax
    fresh.figure_.canvas.draw()


def test_instances_are_sorted_and_true_ones_coloured(model: ProbitVGPMIL, bags: Bags) -> None:
    from matplotlib.colors import to_hex

    display = plots.InstanceProbabilityDisplay.from_estimator(model, bags[1])
    drawn = sorted(display.ax_.patches, key=lambda r: r.get_x())
    heights = [r.get_height() for r in drawn]
    np.testing.assert_allclose(
        heights, np.sort(model.predict_instance_proba(bags[1])[:, 1])[::-1], rtol=1e-12
    )
    assert to_hex(drawn[0].get_facecolor()).upper() == POSITIVE


@pytest.mark.parametrize("n", [3, 120])
def test_unlabelled_instances_are_told_from_negative_ones(n: int) -> None:
    from matplotlib.colors import to_hex

    truth = np.tile([1.0, 0.0, np.nan], n // 3)
    display = plots.InstanceProbabilityDisplay(np.linspace(0.1, 0.9, n), truth=truth).plot()
    assert display.ax_.get_legend() is not None
    names = [t.get_text() for t in display.ax_.get_legend().get_texts()]
    assert names == ["truly positive", "truly negative", "not labelled"]
    drawn = display.ax_.patches if n == 3 else display.ax_.lines[1:]
    colours = [p.get_facecolor() if n == 3 else p.get_color() for p in drawn]
    assert len({to_hex(c) for c in colours}) == 3
    plain = plots.InstanceProbabilityDisplay([0.1, 0.9], truth=[np.nan, np.nan]).plot()
    assert plain.ax_.get_legend() is None


def test_posteriors_of_several_models_share_axes() -> None:
    first = plots.InstancePosteriorDisplay.from_predictions([0.0, 0.01, 0.99], name="a", n_bins=4)
    second = plots.InstancePosteriorDisplay.from_predictions([0.5], name="b", ax=first.ax_)
    names = [t.get_text() for t in second.ax_.get_legend().get_texts()]
    assert names == ["a", "b"]
    assert first.ax_.patches[0].get_data().values.tolist() == [2, 0, 0, 1]
    assert first.ax_.patches[0].get_facecolor() != first.ax_.patches[2].get_facecolor()
    with pytest.raises(ValueError, match="probabilities"):
        plots.InstancePosteriorDisplay([1.5])


def test_instances_along_an_axis_keep_its_order() -> None:
    display = plots.InstanceProbabilityDisplay.from_predictions(
        [0.2, 0.9, 0.4], [0.1, 0.1, 0.1], position=[30, 10, 20]
    )
    drawn = sorted(display.ax_.patches, key=lambda r: r.get_x())
    assert [r.get_height() for r in drawn] == [0.9, 0.4, 0.2]
    assert display.ax_.get_xlabel() == "slice"


def test_large_bags_become_a_band() -> None:
    display = plots.InstanceProbabilityDisplay(np.linspace(0, 1, 500), np.full(500, 0.1)).plot()
    assert not display.ax_.patches
    assert len(display.ax_.collections) == 1


def test_heatmap_has_two_panels_with_every_instance(model: ProbitVGPMIL, bags: Bags) -> None:
    display = plots.HeatmapDisplay.from_estimator(model, bags[1])
    assert [len(ax.collections[0].get_paths()) for ax in display.ax_] == [6, 6]
    values = np.sort(model.predict_instance_proba(bags[1])[:, 1])
    np.testing.assert_allclose(display.ax_[0].collections[0].get_array(), values)
    low, high = display.ax_[0].get_ylim()
    assert low > high  # rows of an image grow downwards


def test_heatmap_over_an_image() -> None:
    display = plots.HeatmapDisplay([[1, 1], [2, 1]], [0.1, 0.9], [0.1, 0.1], image=np.eye(4))
    assert len(display.plot().ax_[0].images) == 1


def test_roc_band_holds_the_curve(model: ProbitVGPMIL, bags: Bags) -> None:
    p = np.random.default_rng(1).random(20)
    display = plots.RocDisplay.from_predictions(bags.y, p)
    assert (display.band.low <= display.band.high).all()
    inside = (display.band.low <= display.band.y) & (display.band.y <= display.band.high)
    assert inside.mean() > 0.9
    assert np.trapezoid(display.band.y, display.band.x) == pytest.approx(display.score, abs=0.02)


def test_relevance_counts_what_was_pruned() -> None:
    display = plots.RelevanceDisplay(list("abcd"), [0.0, -2.0, 1.0, 0.0], [0, 0.1, 0.1, 0]).plot()
    assert [t.get_text() for t in display.ax_.get_yticklabels()] == ["b", "c"]
    assert "2 of 4 features used" in display.ax_.get_title(loc="left")


def test_relevance_does_not_depend_on_units(cad: CadData) -> None:
    model = MIRVM(random_state=0).fit(cad.bags)
    units = np.geomspace(1, 1000, cad.bags.n_features)
    rescaled = MIRVM(random_state=0).fit(cad.bags.with_X(cad.bags.X * units))
    plain, other = (plots.RelevanceDisplay.from_estimator(m) for m in (model, rescaled))
    np.testing.assert_allclose(plain.coefficients, other.coefficients, rtol=1e-6)
    assert np.count_nonzero(plain.coefficients) == len(model.selected_features_)
    assert f"{len(model.selected_features_)} of 60" in plain.ax_.get_title(loc="left")


def test_relevance_needs_weights_of_features(model: ProbitVGPMIL, cad: CadData) -> None:
    with pytest.raises(TypeError, match="ProbitVGPMIL has no weights of features; use MIRVM"):
        plots.RelevanceDisplay.from_estimator(model)
    with pytest.raises(ValueError, match="basis points"):
        plots.RelevanceDisplay.from_estimator(MIRVM(kernel=RBF(), n_basis=5).fit(cad.bags))


def test_froc_of_a_model_is_that_of_the_metrics(cad: CadData) -> None:
    model = MIRVM(bag_score="max", random_state=0).fit(cad.bags)
    display = plots.FrocDisplay.from_estimator(
        model, cad.bags, volume=cad.volume, max_false_positives=5, n_resamples=20
    )
    curve = metrics.froc_curve(cad.bags.y, model.predict_proba(cad.bags), cad.volume)
    np.testing.assert_allclose(display.sensitivity, curve.at(display.false_positives))
    legend = display.ax_.get_legend().get_texts()[0].get_text()
    assert legend.startswith(f"MIRVM, mean {curve.area(0, 5):.3f}")
    by_group = plots.FrocDisplay.from_estimator(model, cad.bags, n_resamples=20)
    assert by_group.sensitivity[0] == display.sensitivity[0]
    with pytest.raises(ValueError, match="pass volume="):
        ungrouped = Bags.from_list([[[0.0]], [[1.0]]], [0, 1])
        plots.FrocDisplay.from_estimator(model, ungrouped)


def test_variability_falls_with_coupling(bags: Bags) -> None:
    spread = metrics.within_bag_variability(np.tile([0.0, 1.0], 60), bags)
    np.testing.assert_allclose(spread, 0.5)
    display = plots.VariabilityDisplay.from_predictions([1.0, 0.0], [spread / 2, spread])
    x, y = display.ax_.lines[0].get_data()
    np.testing.assert_allclose(x, [0, 1])
    np.testing.assert_allclose(y, [0.5, 0.25])


@pytest.mark.parametrize("seconds", [0.005, 0.13, 2.0])
def test_fits_of_equal_time_are_drawn(seconds: float) -> None:
    results = {"A": ([seconds], [0.9]), "B": ([seconds], [0.9])}
    display = plots.AucTimeDisplay.from_predictions(results, ax=Figure().subplots())
    display.figure_.canvas.draw()
    low, high = display.ax_.get_xlim()
    assert low < seconds < high
    heights = [text.xy[1] for text in display.ax_.texts]
    assert heights[0] != heights[1]  # names do not lie on each other


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda b: plots.AucTimeDisplay({"A": ([0.0], [0.9])}), "seconds must be above 0"),
        (lambda b: plots.HeatmapDisplay([[1, 2, 3]], [0.5], [0.1]), r"coords must be \(n, 2\)"),
        (lambda b: plots.InstanceProbabilityDisplay([0.5], [0.1, 0.2]), "std must have 1 entries"),
        (lambda b: plots.HeatmapDisplay.from_estimator(None, b), "one bag is drawn at a time"),
        (lambda b: plots.FrocDisplay([0, 1], [0, 1], low=[0, 1]), "pass both or none"),
        (lambda b: plots.VariabilityDisplay([0, 1], [[0.1]]), "one entry per coupling"),
        (lambda b: plots.RocDisplay.from_predictions([1, 1], [0.1, 0.2]), "both classes"),
    ],
)
def test_wrong_input_is_named(make, message: str, bags: Bags) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match=message):
        make(bags)
