"""Instance probabilities of fitted models: calibrated, with both ends, never above their bag."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.calibration.instance_ends import InstanceCalibration

SMALL: dict[str, Any] = {"n_inducing": 10, "random_state": 0}


def make_bags(n_bags: int = 40, seed: int = 0, rate: float = 0.5) -> tuple[bw.Bags, np.ndarray]:
    """Bags of 1 to 7 instances; a share of those of positive bags is far from the others."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 8, n_bags)
    T = np.arange(n_bags) % 2
    starts = np.cumsum(sizes) - sizes
    y = (rng.random(sizes.sum()) < rate) & (np.repeat(T, sizes) == 1)
    y[starts[T == 1]] = True
    X = rng.normal(size=(len(y), 2))
    X[y, 0] += 3
    return bw.Bags.from_arrays(X, np.repeat(np.arange(n_bags), sizes), y=T), y


BAGS, TRUTH = make_bags()
NEW, _ = make_bags(30, seed=1)

MODELS: dict[str, Any] = {
    "probit": bw.ProbitVGPMIL(**SMALL),
    "laplace": bw.ProbitVGPMIL(**SMALL, inference="laplace"),
    "logistic": bw.VGPMIL(**SMALL),
    "large margin": bw.LargeMarginVGPMIL(**SMALL, bag_score="calibrated"),
    "gamma": bw.GammaVGPMIL(**SMALL, tol=1e-4),
    "psi": bw.PsiVGPMIL(**SMALL),
    "coupled": bw.IsingVGPMIL(**SMALL, neighbors="chain", coupling=0.3),
    "sparse linear": bw.MIRVM(random_state=0),
    "linear": bw.MILogisticRegression(random_state=0),
    "linear, kernel": bw.MILogisticRegression(kernel=bw.kernels.RBF(), n_basis=10, random_state=0),
    "instances alone": bw.ProbitVGPMIL(**SMALL, bag_score="max", instance_score="calibrated"),
}


@pytest.fixture(scope="module", params=list(MODELS))
def model(request: pytest.FixtureRequest) -> Any:
    return MODELS[request.param].fit(BAGS)


def test_no_instance_is_more_probable_than_its_bag(model: Any) -> None:
    assert model.instance_score_ == "calibrated" and model.why_instances_not_calibrated_ is None
    bag = np.repeat(model.predict_proba(NEW)[:, 1], NEW.sizes)
    p, std = model.predict_instance_proba(NEW, return_std=True)
    low, high = model.predict_instance_range(NEW)
    assert low.shape == high.shape == std.shape == (NEW.n_instances,)
    assert np.all(low <= p[:, 1] + 1e-15) and np.all(p[:, 1] <= high + 1e-15)
    assert np.all(high <= bag * (1 + 1e-12))
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    assert np.all(std <= np.sqrt(p[:, 0] * p[:, 1]) * (1 + 1e-9))
    assert np.all(std >= 0.4 * (high - low) * (1 - 1e-9))  # no certainty between the ends


def test_the_only_instance_of_a_bag_is_as_probable_as_its_bag(model: Any) -> None:
    alone = NEW.sizes == 1
    bags = NEW[np.flatnonzero(alone)]
    both, bag_std = model.predict_proba(bags, return_std=True)
    p, std = model.predict_instance_proba(bags, return_std=True)
    np.testing.assert_allclose(p, both, rtol=1e-12)
    np.testing.assert_allclose(std, bag_std, rtol=1e-6, atol=1e-12)


def test_one_pass_gives_the_same(model: Any) -> None:
    found = model.predict_all(NEW)
    p, std = model.predict_instance_proba(NEW, return_std=True)
    np.testing.assert_allclose(found.p, p, rtol=1e-9)
    np.testing.assert_allclose(found.p, model.predict_instance_proba(NEW), rtol=1e-9)
    np.testing.assert_allclose(found.std, std, rtol=1e-9)
    np.testing.assert_allclose((found.low, found.high), model.predict_instance_range(NEW))
    np.testing.assert_allclose(found.bag_p, model.predict_proba(NEW), rtol=1e-9)


def test_bags_are_predicted_each_by_itself(model: Any) -> None:
    whole = model.predict_instance_proba(NEW)
    parts = [model.predict_instance_proba(NEW[[b]]) for b in range(len(NEW))]
    np.testing.assert_allclose(np.vstack(parts), whole, rtol=1e-6, atol=1e-12)


def test_files_hold_the_calibration(model: Any, tmp_path: Path) -> None:
    model.save(tmp_path / "m.bagwise")
    loaded = bw.load(tmp_path / "m.bagwise")
    assert isinstance(loaded.instance_calibration_, InstanceCalibration)
    np.testing.assert_array_equal(
        loaded.predict_instance_range(NEW), model.predict_instance_range(NEW)
    )


@pytest.fixture(scope="module")
def probit() -> bw.ProbitVGPMIL:
    return bw.ProbitVGPMIL(**SMALL).fit(BAGS)


def test_order_inside_a_bag_does_not_matter(probit: bw.ProbitVGPMIL) -> None:
    order = np.concatenate([np.arange(a, b)[::-1] for a, b in zip(*_limits(NEW), strict=True)])
    turned = bw.Bags.from_arrays(NEW.X[order], NEW.bag_index)
    p = np.asarray(probit.predict_instance_proba(NEW))
    np.testing.assert_allclose(probit.predict_instance_proba(turned), p[order], rtol=1e-5)


def _limits(bags: bw.Bags) -> tuple[np.ndarray, np.ndarray]:
    return bags.offsets[:-1], bags.offsets[1:]


def test_ranks_inside_a_bag_are_those_of_the_posterior(probit: bw.ProbitVGPMIL) -> None:
    p = np.asarray(probit.predict_instance_proba(NEW))[:, 1]
    score, _ = probit.posterior_.instances(NEW.X)
    for first, last in zip(*_limits(NEW), strict=True):
        np.testing.assert_array_equal(np.argsort(p[first:last]), np.argsort(score[first:last]))


def test_the_posterior_is_still_there(probit: bw.ProbitVGPMIL) -> None:
    plain = bw.ProbitVGPMIL(**SMALL, instance_score="posterior").fit(BAGS)
    assert plain.instance_calibration_ is None and plain.bag_score_ == "calibrated"
    assert plain.why_instances_not_calibrated_ == "instance_score='posterior' was asked for"
    as_it_was = probit.set_params(instance_score="posterior")
    np.testing.assert_array_equal(
        plain.predict_instance_proba(NEW), as_it_was.predict_instance_proba(NEW)
    )
    found = plain.predict_all(NEW)
    assert found.low is None and found.high is None
    with pytest.raises(ValueError, match=r"no range of theirs: instance_score='posterior' was"):
        plain.predict_instance_range(NEW)
    probit.set_params(instance_score="auto")
    with pytest.raises(ValueError, match=r"was set after fit.*before fit"):
        plain.set_params(instance_score="calibrated").predict_instance_proba(NEW)


def test_level_and_ranking_on_other_bags(probit: bw.ProbitVGPMIL) -> None:
    bags, y = make_bags(400, seed=5)
    p = np.asarray(probit.predict_instance_proba(bags))[:, 1]
    few = np.asarray(probit.set_params(instance_score="posterior").predict_instance_proba(bags))[
        :, 1
    ]
    probit.set_params(instance_score="auto")
    assert abs(p.mean() - y.mean()) < abs(few.mean() - y.mean())
    assert bw.metrics.log_likelihood(y, p) > bw.metrics.log_likelihood(y, few)


def test_few_bags_are_not_calibrated_and_say_so() -> None:
    few = bw.ProbitVGPMIL(**SMALL).fit(BAGS[:4])
    assert few.instance_score_ == "posterior"
    assert "3 bags of each class" in str(few.why_instances_not_calibrated_)
    with pytest.raises(ValueError, match="instance_score='calibrated' cannot be fitted here: it"):
        bw.ProbitVGPMIL(**SMALL, instance_score="calibrated").fit(BAGS[:4])
    with pytest.raises(ValueError, match="witness_rate calibrates instances, which is not done"):
        bw.ProbitVGPMIL(**SMALL, witness_rate=0.5).fit(BAGS[:4])


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (bw.RVM(random_state=0), "the baseline that knows no bags"),
        (bw.MILogisticRegression(alpha=1.0, random_state=0), "nothing is to be learned but"),
        (bw.MultiTaskMIRVM(random_state=0), "tasks share their penalties"),
    ],
)
def test_linear_models_say_why_they_are_not_calibrated(model: Any, reason: str) -> None:
    model.fit(BAGS)
    assert (model.bag_score_, model.instance_score_) == ("joint", "posterior")
    assert reason in model.why_not_calibrated_ and reason in model.why_instances_not_calibrated_


def test_a_stated_share_moves_the_level(probit: bw.ProbitVGPMIL) -> None:
    inside = np.repeat(np.asarray(BAGS.y) == 1, BAGS.sizes)
    means = [
        np.asarray(
            bw.ProbitVGPMIL(**SMALL, witness_rate=rate).fit(BAGS).predict_instance_proba(BAGS)
        )[inside, 1].mean()
        for rate in (0.3, 0.6, 0.9)
    ]
    assert means[0] < means[1] < means[2]
    np.testing.assert_allclose(means, (0.3, 0.6, 0.9), atol=0.12)


def test_known_labels_bring_the_ends_together(probit: bw.ProbitVGPMIL) -> None:
    known = np.where(np.arange(BAGS.n_instances) % 2 == 0, TRUTH, np.nan)
    told = bw.ProbitVGPMIL(**SMALL).fit(BAGS.with_instance_labels(known))
    assert told.instance_calibration_ is not None and probit.instance_calibration_ is not None
    assert told.instance_calibration_.doubt < 1 == probit.instance_calibration_.doubt
    assert told.instance_calibration_.doubt < 1


def test_parquet_files_have_both_ends(probit: bw.ProbitVGPMIL, tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    path = tmp_path / "p.parquet"
    bw.io.write_predictions(probit, NEW, path, instances=True, rows_at_once=20)
    found = pd.read_parquet(path)
    low, high = probit.predict_instance_range(NEW)
    np.testing.assert_allclose(found["low"], low, rtol=1e-6)
    np.testing.assert_allclose(found["high"], high, rtol=1e-6)


def test_plots_and_reports_show_both_ends(probit: bw.ProbitVGPMIL) -> None:
    from bagwise.report.content import page_content

    page = page_content(probit, NEW, title="t", data_name="d")
    low, high = probit.predict_instance_range(NEW)
    n = NEW.sizes[0]
    assert page["instances"][0]["low"] == np.rint(low[:n] * 10_000).astype(int).tolist()
    assert page["instances"][0]["high"] == np.rint(high[:n] * 10_000).astype(int).tolist()
    assert ["Instance score", "calibrated"] in page["card"]
    assert any("how many instances" in note for note in page["notes"])
    pytest.importorskip("matplotlib")
    display = bw.plots.InstanceProbabilityDisplay.from_estimator(probit, NEW[[0]])
    assert display.ends is not None
    np.testing.assert_allclose(display.ends[1], high[:n], rtol=1e-6)
