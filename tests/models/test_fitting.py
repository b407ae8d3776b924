"""A fit that does not finish leaves the estimator as it was before, fitted or not."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import StandardScaler

import bagwise as bw
from bagwise.baselines import BASELINES
from bagwise.datasets import make_digit_canvases
from bagwise.detection import SlidingWindows, WeaklySupervisedDetector
from bagwise.models import MODELS
from toy_bags import separable_bags

FAST: dict[str, dict[str, Any]] = {
    "IsingVGPMIL": {"neighbors": "chain", "coupling": 0.02},
    "MIBoost": {"n_estimators": 5},
}
SHARED: dict[str, Any] = {"random_state": 0, "max_iter": 200, "tol": 1e-4, "n_inducing": 5}


def small(kind: type) -> Any:
    """An estimator with arguments that make its fit short."""
    model = kind(**FAST.get(kind.__name__, {}))
    return model.set_params(**{k: v for k, v in SHARED.items() if k in model.get_params()})


def named(n_bags: int, seed: int) -> bw.Bags:
    return separable_bags(n_bags, 3, seed).with_X(
        separable_bags(n_bags, 3, seed).X, feature_names=["a", "b", "c"]
    )


BAGS = (named(12, 0), separable_bags(16, 2, 1))  # other features, and without names
CANVASES = [make_digit_canvases(8, (0,), share=0.5, random_state=seed) for seed in (0, 1)]
ON_BAGS = {
    **{name: small(kind) for name, kind in {**MODELS, **BASELINES}.items()},
    "OneVsRestMIL": bw.OneVsRestMIL(bw.ProbitVGPMIL(**SHARED)),
    "InstanceTransformer": bw.InstanceTransformer(StandardScaler()),
}
DETECTOR = WeaklySupervisedDetector(
    bw.ProbitVGPMIL(**SHARED),
    proposals=SlidingWindows((16, 24), top=5),
    n_components=3,
    class_names=[0],
    random_state=0,
)
Fits = tuple[Callable[[Any], Any], Callable[[Any], Any]]  # an estimator's fit to two sets of data
CASES: dict[str, tuple[Any, Fits]] = {
    **{
        name: (model, (lambda m: m.fit(BAGS[0]), lambda m: m.fit(BAGS[1])))
        for name, model in ON_BAGS.items()
    },
    "WeaklySupervisedDetector": (
        DETECTOR,
        (
            lambda m: m.fit(CANVASES[0].images, CANVASES[0].y),
            lambda m: m.fit(CANVASES[1].images, CANVASES[1].y),
        ),
    ),
}


def stopped_after(model: Any, n: int, fit: Callable[[Any], Any]) -> list[str]:
    """Fit, with Ctrl-C after the n-th attribute that is set; the attributes set until then."""
    heard: list[str] = []

    class Stopped(type(model)):  # type: ignore[misc]
        def __setattr__(self, name: str, value: Any) -> None:
            super().__setattr__(name, value)
            heard.append(name)
            if len(heard) == n:
                raise KeyboardInterrupt

    kind = type(model)
    model.__class__ = Stopped
    try:
        fit(model)
    except KeyboardInterrupt:
        pass
    finally:
        object.__setattr__(model, "__class__", kind)
    return heard


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("name", sorted(CASES))
def test_wherever_it_is_interrupted(name: str) -> None:
    model, (first, second) = CASES[name]
    count = len(stopped_after(clone(model), -1, second))
    assert count > 1
    for n in (1, count):
        fresh = clone(model)
        before = dict(vars(fresh))
        assert len(stopped_after(fresh, n, second)) == n
        assert vars(fresh) == before
        fitted = first(clone(model))
        before = dict(vars(fitted))
        stopped_after(fitted, n, second)
        assert vars(fitted).keys() == before.keys()
        assert all(vars(fitted)[key] is value for key, value in before.items())


def stop(at: str) -> Callable[..., None]:
    def hear(stage: str, *rest: Any) -> None:
        if stage == at:
            raise KeyboardInterrupt

    return hear


def test_an_interrupted_calibration_leaves_no_half_fitted_model(tmp_path: Path) -> None:
    settings: dict[str, Any] = SHARED | {"bag_score": "calibrated", "kernel": None}
    bags, path = separable_bags(24, 2), tmp_path / "fit.ckpt"
    model = bw.ProbitVGPMIL(**settings)
    with pytest.raises(KeyboardInterrupt):
        model.fit(bags, checkpoint=path, callbacks=[stop("calibration 3 of 5")])
    with pytest.raises(NotFittedError):
        model.predict_proba(bags)
    assert not [name for name in vars(model) if name.endswith("_")]
    model.fit(bags, resume=path)  # the checkpoint of Ctrl-C is there all the same
    p = model.predict_proba(bags)
    np.testing.assert_array_equal(p, bw.ProbitVGPMIL(**settings).fit(bags).predict_proba(bags))
    with pytest.raises(KeyboardInterrupt):
        model.fit(separable_bags(24, 3), callbacks=[stop("calibration 3 of 5")])
    np.testing.assert_array_equal(model.predict_proba(bags), p)


def test_nothing_of_an_earlier_fit_stays() -> None:
    bags = separable_bags(20, 2)
    model = bw.VGPMIL(H="learn", n_inducing=5, random_state=0).fit(bags)
    assert np.isfinite(model.H_)
    model.set_params(H=np.inf).fit(bags)
    assert not hasattr(model, "H_")


def test_models_travel_without_what_predictions_leave_behind() -> None:
    bags = separable_bags(20, 3)
    model = bw.ProbitVGPMIL(n_inducing=10, bag_score="joint", random_state=0).fit(bags)
    before = len(pickle.dumps(model))
    p = model.predict_proba(bags)
    assert len(pickle.dumps(model)) == before
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict_proba(bags), p)


@pytest.mark.parametrize("mean", [-1.0, "learn"])
def test_large_fits_start_from_some_of_the_bags(
    mean: float | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitted() -> tuple[Any, list[str]]:
        stages: list[str] = []
        model = bw.ProbitVGPMIL(
            n_inducing=10, learn_hyperparameters=False, mean=mean, tol=1e-10, random_state=0
        )
        return model.fit(bags, callbacks=[lambda stage, *_: stages.append(stage)]), stages

    bags = separable_bags(60, 4)
    plain, stages = fitted()
    assert set(stages) == {"vi"}  # passes over all bags cost little
    monkeypatch.setattr("bagwise.core.inference.passes.FLOAT64_FEATURES", 0)
    assert set(fitted()[1]) == {"vi"}  # a hundred bags at least
    monkeypatch.setattr("bagwise.core.inference.solvers.START_BAGS", 3)
    monkeypatch.setattr("bagwise.core.inference.solvers.START_SHARE", 5)
    warm, stages = fitted()
    assert stages[0] == "some bags" and stages.count("vi") == warm.n_iter_
    assert warm.elbo_ == pytest.approx(plain.elbo_, rel=1e-9)
    np.testing.assert_allclose(warm.latent(bags)[0], plain.latent(bags)[0], atol=1e-5)


def test_bags_of_one_class_are_no_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bagwise.core.inference.passes.FLOAT64_FEATURES", 0)
    bags, stages = separable_bags(2000, 2)[np.r_[0:2000:2, 1]], set[str]()  # one positive
    model = bw.ProbitVGPMIL(n_inducing=5, learn_hyperparameters=False, mean=-1.0, random_state=0)
    model.fit(bags, callbacks=[lambda stage, *_: stages.add(stage)])
    assert stages == {"vi"}


@pytest.mark.parametrize("model", ["laplace", "mixture"])
def test_large_modes_are_climbed_from_that_of_some_bags(
    model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind: Any = {
        "laplace": partial(bw.ProbitVGPMIL, inference="laplace"), "mixture": bw.VGPMIL
    }[model]  # fmt: skip
    told = {"n_inducing": 10, "learn_hyperparameters": False, "mean": -1.0, "random_state": 0}
    bags, stages = separable_bags(60, 4), list[str]()
    plain = kind(tol=1e-10, **told).fit(bags)
    monkeypatch.setattr("bagwise.core.inference.passes.FLOAT64_FEATURES", 0)
    monkeypatch.setattr("bagwise.core.inference.solvers.START_BAGS", 3)
    monkeypatch.setattr("bagwise.core.inference.solvers.START_SHARE", 5)
    large = kind(tol=1e-10, **told).fit(bags, callbacks=[lambda s, *_: stages.append(s)])
    assert list(dict.fromkeys(stages))[:2] == ["some bags", "laplace"]
    assert large.elbo_ == pytest.approx(plain.elbo_, rel=1e-8)
    np.testing.assert_allclose(large.latent(bags)[0], plain.latent(bags)[0], atol=1e-5)


@pytest.mark.parametrize("model", [bw.ProbitVGPMIL, bw.VGPMIL])
def test_large_fits_go_on_as_if_they_had_not_stopped(
    model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The curvature that steps go on with is in their checkpoints."""
    monkeypatch.setattr("bagwise.core.inference.passes.FLOAT64_FEATURES", 0)
    told = {"n_inducing": 10, "learn_hyperparameters": False, "mean": -1.0, "random_state": 0}
    bags, path = separable_bags(60, 4), tmp_path / "fit.ckpt"
    whole = model(tol=1e-10, **told).fit(bags)
    for steps in range(1, whole.n_iter_):
        heard = itertools.count(1)

        def stop(stage: str, *_: Any, heard: Any = heard, steps: int = steps) -> None:
            if stage.startswith("vi") and next(heard) == steps:
                raise KeyboardInterrupt

        with suppress(KeyboardInterrupt):
            model(tol=1e-10, **told).fit(bags, checkpoint=path, callbacks=[stop])
        rest = model(tol=1e-10, **told).fit(bags, resume=path)
        np.testing.assert_allclose(rest.elbo_history_, whole.elbo_history_, rtol=1e-12)
        path.unlink()


@pytest.mark.parametrize("H", [np.inf, 100.0])
def test_large_fits_of_scale_mixtures_end_where_others_do(
    H: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With exact labels they start at the mode, otherwise at the optimum for exact labels."""

    def fitted() -> tuple[Any, list[str]]:
        stages: list[str] = []
        model = bw.VGPMIL(
            H=H, n_inducing=10, learn_hyperparameters=False, mean=-1.0, tol=1e-10, random_state=0
        )
        return model.fit(bags, callbacks=[lambda stage, *_: stages.append(stage)]), stages

    bags = separable_bags(60, 4)
    plain, stages = fitted()
    assert stages[0] != "laplace" and "vi, from the mode, Newton" in stages
    monkeypatch.setattr("bagwise.core.inference.passes.FLOAT64_FEATURES", 0)
    large, stages = fitted()
    begun = {np.inf: ["laplace", "vi, Newton"], 100.0: ["warm start", "warm start, Newton"]}[H]
    assert list(dict.fromkeys(stages))[:2] == begun  # the mode, and on from there without sweeps
    assert len(large.elbo_history_) >= 2
    assert large.elbo_ == pytest.approx(plain.elbo_, rel=1e-9)
    np.testing.assert_allclose(large.latent(bags)[0], plain.latent(bags)[0], atol=1e-5)


@pytest.mark.parametrize("H", [np.inf, 100.0])
def test_a_given_kernel_and_mean_need_the_mode_too(H: float) -> None:
    """From N(0, I) alone these bags of 20 to 100 end 39 nats lower and rank new ones by chance."""
    (X, y), (new, truth) = large_bags(100, 2), large_bags(100, 1002)
    model = bw.VGPMIL(
        H=H,
        kernel=bw.kernels.RBF(10.0, 1.5),
        inducing=np.concatenate(X)[::100][:50],
        learn_hyperparameters=False,
        mean=-3.0,
        standardize=False,
        random_state=0,
    ).fit(X, y)
    assert model.elbo_ > -180
    assert roc_auc_score(truth, model.predict_proba(new)[:, 1]) > 0.9


def large_bags(n_bags: int, seed: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Bags of 20 to 99 instances, of which a twentieth is positive in half of the bags."""
    rng = np.random.default_rng(seed)
    bags, y = [], np.arange(n_bags) < n_bags // 2
    for positive in y:
        n = rng.integers(20, 100)
        X = rng.normal(size=(n, 3))
        if positive:
            shifted = rng.random(n) < 0.05
            shifted[rng.integers(n)] = True
            X[shifted] += 2.0
        bags.append(X)
    return bags, y.astype(int)


def test_of_large_bags_the_mode_leads_to_a_higher_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """From N(0, I) the bound of bags of 300 leads to an optimum where nothing is told apart.

    Large fits start at the mode alone.
    """
    digits, rng = load_digits(), np.random.default_rng(0)
    y, positive = np.arange(60) % 2, digits.target == 3
    rows = rng.choice(np.flatnonzero(~positive), (60, 300))
    rows[y == 1, 0] = rng.choice(np.flatnonzero(positive), 30)
    bags = bw.Bags.from_list(list(digits.data[rows]), y=y)
    told = {"n_inducing": 60, "mean": -2.0, "standardize": False, "random_state": 0}
    model = bw.VGPMIL(kernel=bw.kernels.RBF(4.0, 25.0), learn_hyperparameters=False, **told)
    both = clone(model).fit(bags).elbo_
    with monkeypatch.context() as alone:
        alone.setattr("bagwise.core.inference.driver._mode_found", lambda *_, **__: None)
        assert both > clone(model).fit(bags).elbo_ + 5
    monkeypatch.setattr("bagwise.core.inference.passes.FLOAT64_FEATURES", 0)
    assert model.fit(bags).elbo_ == pytest.approx(both, rel=1e-6)


def test_large_features_do_not_lead_astray_where_some_rows_stand_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Rows bend the log joint by |w| |a|^2; with |w| alone these took 200 and 300 steps."""
    monkeypatch.setattr("bagwise.core.inference.passes.FLOAT64_FEATURES", 0)
    for seed in (2, 4):
        rng = np.random.default_rng(seed)
        centres = 6 * rng.normal(size=(60, 5))
        X = centres[rng.integers(0, 60, 480)] + 0.05 * rng.normal(size=(480, 5))
        bags = bw.Bags.from_arrays(X, np.repeat(np.arange(40), 12), np.arange(40) % 2)
        model = bw.VGPMIL(
            inducing="all", kernel=bw.kernels.RBF(1e6, 1.0), learn_hyperparameters=False, mean=-2.0,
            standardize=False, bag_score="joint", instance_score="posterior", random_state=0,
        )  # fmt: skip
        history = model.fit(bags).elbo_history_
        assert model.converged_ and len(history) < 100
        assert np.min(np.diff(history)) > -1e-9 * abs(history[-1])


def test_few_steps_are_not_spent_on_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bagwise.core.inference.passes.FLOAT64_FEATURES", 0)
    stages: list[str] = []
    model = bw.VGPMIL(
        n_inducing=10, learn_hyperparameters=False, mean=-1.0, max_iter=3, random_state=0
    )
    with pytest.warns(ConvergenceWarning, match="max_iter=3"):
        model.fit(separable_bags(60, 4), callbacks=[lambda stage, *_: stages.append(stage)])
    assert stages == ["vi"] * 3


def test_a_model_that_learns_H_predicts_while_it_is_fitted() -> None:
    class Watcher:
        found: ClassVar[list[np.ndarray]] = []

        def __call__(self, *step: Any) -> None:
            """Steps themselves are of no interest."""

        def look(self, model: Any, stage: str, step: int) -> None:
            self.found.append(model.predict_proba(bags[:3]))

    bags = separable_bags(20, 2)
    model = bw.VGPMIL(H="learn", n_inducing=5, learn_hyperparameters=False, random_state=0)
    model.fit(bags, callbacks=[Watcher()])
    assert Watcher.found and np.all(np.isfinite(Watcher.found))
