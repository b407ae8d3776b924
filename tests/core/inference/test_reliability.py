"""A finite H: fits do not mistake bags for wrong labels, H is learned, contradictions are noise."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import optimize

import bagwise as bw
from bagwise.core.inference.reliability import LOWEST_H, best_H
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Logistic, Probit
from bagwise.metrics import roc_auc
from brute_force import enumerated_labels, enumerated_log_prob, make_targets
from toy_bags import separable_bags

FIXED = {
    "kernel": bw.kernels.RBF(4.0, 3.0),
    "learn_hyperparameters": False,
    "n_inducing": 20,
    "mean": 0.0,
    "random_state": 0,
}


@pytest.fixture(scope="module")
def large_bags() -> tuple[bw.Bags, np.ndarray]:
    """Bags of 40: at f = 0 an all-negative bag has probability 2^-40, far below 1 / H."""
    return bw.datasets.make_bags(40, 40, 3, overlap=0.01, random_state=0)


@pytest.mark.parametrize("inference", ["vi", "laplace"])
def test_finite_H_does_not_collapse(inference: str, large_bags: tuple[bw.Bags, np.ndarray]) -> None:
    bags, truth = large_bags
    noisy = bw.VGPMIL(H=100.0, inference=inference, **FIXED).fit(bags)
    exact = bw.VGPMIL(inference=inference, **FIXED).fit(bags)
    assert roc_auc(truth, noisy.predict_instance_proba(bags)[:, 1]) > 0.95
    assert abs(noisy.elbo_ - exact.elbo_) < 5  # the collapse has half of the bags at log 1/101
    assert noisy.elbo_history_.size >= 2


def test_learned_hyperparameters_do_not_collapse_either(
    load_shared: Callable[[str], dict[str, np.ndarray]],
) -> None:
    data = load_shared("rsna_cnn8_0")
    bags = bw.Bags.from_arrays(data["X"].astype(float), data["bag"], y=data["y_bag"])
    model = bw.VGPMIL(H=100.0, mean=0.0, n_inducing=40, random_state=0).fit(bags)
    assert roc_auc(data["y_inst"], model.predict_instance_proba(bags)[:, 1]) > 0.95
    assert model.elbo_ > -90


@pytest.fixture(scope="module")
def larger_bags() -> tuple[bw.Bags, np.ndarray]:
    """Bags of 200, ten positive instances in each positive one, which lie apart."""
    rng = np.random.default_rng(0)
    truth = (np.arange(20 * 200) % 400) >= 390
    X = rng.normal(size=(len(truth), 4)) + 2.5 * truth[:, None] * np.array([1, 1, 1, 0])
    bags = bw.Bags.from_arrays(X, np.arange(len(X)) // 200, y=np.arange(20) % 2)
    return bags, truth


@pytest.mark.parametrize("H", [np.inf, 100.0, "learn"])
def test_hyperparameters_are_learned_from_large_bags(
    H: float | str, larger_bags: tuple[bw.Bags, np.ndarray]
) -> None:
    """At the start of the search all negative bags look mislabelled to a finite H."""
    bags, truth = larger_bags
    model = bw.VGPMIL(H=H, n_inducing=30, random_state=0).fit(bags[:14])
    assert model.mean_ < -1.5  # it starts at -1
    new = bags[14:]
    assert roc_auc(truth[new.row_index], model.predict_instance_proba(new)[:, 1]) > 0.95
    p = model.predict_proba(new)[:, 1]
    assert p[np.asarray(new.y) == 1].min() > p[np.asarray(new.y) == 0].max()


def test_the_better_start_is_kept() -> None:
    """On small bags N(0, I) may lead higher than the exact rule; the bound is never below both."""
    bags, _ = bw.datasets.make_bags(40, 4, 2, label_noise=0.2, random_state=1)
    for H in (3.0, 30.0):
        model = bw.VGPMIL(H=H, **FIXED)
        seen: dict[str, float] = {}

        def note(stage: str, step: int, objective: float, seconds: float, seen=seen) -> None:
            seen[stage.removesuffix(", Newton")] = objective

        model.fit(bags, callbacks=[note])
        starts = {"vi", "vi, plain start", "vi, from the mode"}
        assert set(seen) == starts | {"warm start", "laplace"}
        assert model.elbo_ == pytest.approx(max(seen[start] for start in starts), abs=1e-6)


def test_constant_f_warns(large_bags: tuple[bw.Bags, np.ndarray]) -> None:
    flat = FIXED | {"kernel": bw.kernels.RBF(1e-8, 3.0), "mean": -2.0}
    with pytest.warns(UserWarning, match="f is constant over the training instances"):
        bw.VGPMIL(**flat).fit(large_bags[0])


class TestLearnedH:
    def test_it_is_the_maximum(self) -> None:
        s = np.random.default_rng(0).uniform(size=40) ** 0.1

        def neg_log_posterior(eps: float) -> float:
            label = np.sum(np.log((1 - eps) * s + eps * (1 - s)))
            return -(label + 0.1 * np.log(eps) + 10 * np.log1p(-eps))

        found = optimize.minimize_scalar(
            neg_log_posterior, bounds=(1e-9, 0.4), method="bounded", options={"xatol": 1e-10}
        )
        assert best_H(s) == pytest.approx(1 / found.x - 1, rel=1e-4)

    def test_its_ends(self) -> None:
        assert best_H(np.zeros(50)) == LOWEST_H
        grown = [best_H(np.ones(n)) for n in (10, 1000, 100_000)]
        assert np.all(np.diff(grown) > 0) and np.isfinite(grown[-1])

    def test_wrong_labels_lower_it(self) -> None:
        learned = []
        for noise in (0.0, 0.1):
            bags, _ = bw.datasets.make_bags(
                120, 5, 2, overlap=0.002, label_noise=noise, random_state=0
            )
            model = bw.VGPMIL(H="learn", **FIXED | {"mean": -2.0}).fit(bags)
            learned.append(model.H_)
            fixed = bw.VGPMIL(H=model.H_, **FIXED | {"mean": -2.0}).fit(bags)
            assert model.elbo_ == pytest.approx(fixed.elbo_, abs=0.05)
        assert learned[0] > 500  # no label is wrong
        assert 5 < learned[1] < 25  # one in ten is: H = 9

    def test_it_is_saved(self, tmp_path: Path) -> None:
        model = bw.VGPMIL(H="learn", **FIXED).fit(separable_bags(20, 2))
        model.save(tmp_path / "m.bagwise")
        same = bw.load(tmp_path / "m.bagwise")
        assert same.H_ == model.H_ and same.H == "learn"

    @pytest.mark.parametrize(
        "model",
        [
            bw.VGPMIL(H="learn", inference="laplace"),
            bw.VGPMIL(H="learn", label_posterior="factorised"),
            bw.LargeMarginVGPMIL(H="learn"),
        ],
    )
    def test_where_it_cannot_be(self, model: bw.VGPMIL) -> None:
        with pytest.raises(ValueError, match="H='learn' needs"):
            model.fit(separable_bags(10, 2))

    @pytest.mark.parametrize("H", ["Learn", 1.0, np.nan])
    def test_bad_H(self, H: object) -> None:
        with pytest.raises(ValueError, match="H must be"):
            bw.VGPMIL(H=H).fit(separable_bags(10, 2))


class TestContradictions:
    """Known labels against the label of their bag: noise under a finite H."""

    @pytest.mark.parametrize("link", ["logistic", "probit"])
    def test_likelihood_by_enumeration(self, link: str) -> None:
        nan = np.nan
        known = np.array([1, nan, nan, 0, 0, nan, nan, 1, 0])
        targets = make_targets([3, 2, 2, 2], [False, True, False, True], known)
        z = np.random.default_rng(0).normal(size=9)
        like = BagLikelihood({"logistic": Logistic(), "probit": Probit()}[link], 20.0)
        exact = enumerated_log_prob(link, z, targets, 20.0)
        np.testing.assert_allclose(like.log_prob(z, targets), exact, atol=1e-12)
        if link == "logistic":
            labels = like.link.hazard(z) + like.gradient(z, targets)
            expected = enumerated_labels(link, z, targets, 20.0)
            np.testing.assert_allclose(labels, expected, atol=1e-12)
        start = like.as_exact_rule()
        for value in (start.log_prob(z, targets), *vars(start.curvature(z, targets)).values()):
            if isinstance(value, np.ndarray):
                assert np.all(np.isfinite(value))

    @pytest.mark.parametrize("settings", [{}, {"inference": "laplace"}, {"H": "learn"}])
    @pytest.mark.parametrize("flip", [0, 1])
    def test_fits_take_them(self, settings: dict[str, object], flip: int) -> None:
        bags = separable_bags(20, 2)
        known = np.full(bags.n_instances, np.nan)
        known[bags.offsets[flip] : bags.offsets[flip + 1]] = 1 - flip
        labelled = bw.Bags.from_arrays(bags.X, bags.bag_index, y=bags.y, instance_labels=known)
        model = bw.VGPMIL(**{"H": 50.0} | FIXED | settings).fit(labelled)
        assert np.all(np.isfinite(model.predict_proba(bags)))
        with pytest.raises(ValueError, match="bag labels may be wrong"):
            bw.VGPMIL(**FIXED).fit(labelled)
