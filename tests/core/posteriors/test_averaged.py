"""Averages of logits: instances, bags, deviations, files, and who takes part."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

import bagwise as bw
from bagwise.core.calibration.left_out import averaged_scores, kept_off
from bagwise.core.likelihoods.bag_scores import log_odds
from bagwise.core.links import Moments, Probit
from bagwise.core.posteriors.averaged import AveragedPosterior, averaged_logits
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.kernels import RBF, Linear
from bagwise.models._refits import GaussianRefits
from toy_bags import separable_bags

ALL = {"joint": True, "instances": True}


def posterior(kernel: Any, seed: int, M: int = 6) -> Posterior:
    rng = np.random.default_rng(seed)
    return Posterior(
        kernel=kernel,
        Z=rng.normal(size=(M, 2)),
        m=rng.normal(size=M),
        S=0.3 * np.eye(M),
        c0=-1.0,
        link="probit",
        shift=np.zeros(2),
        scale=np.ones(2),
        jitter=1e-6,
        seed=3,
    )


MEMBERS = (posterior(RBF(2.0, 1.0), 0), posterior(Linear(1.0), 1, M=4), posterior(RBF(1.0, 3.0), 2))
WEIGHTS = np.array([0.5, 0.3, 0.2])
BAGS = separable_bags(15, 2)


def averaged() -> AveragedPosterior:
    return AveragedPosterior.of(MEMBERS, WEIGHTS)


def test_logits_are_weighted_means() -> None:
    found = averaged().predicted(BAGS.X, BAGS.offsets, **ALL)
    parts = [member.predicted(BAGS.X, BAGS.offsets, **ALL) for member in MEMBERS]
    for name in ("instances", "joint"):
        expected = sum(
            w * log_odds(getattr(part, name)) for w, part in zip(WEIGHTS, parts, strict=True)
        )
        np.testing.assert_allclose(log_odds(getattr(found, name)), expected, rtol=1e-9, atol=1e-9)


def test_no_instance_is_more_probable_than_its_bag() -> None:
    found = averaged().predicted(BAGS.X, BAGS.offsets, **ALL)
    best = np.maximum.reduceat(log_odds(found.instances), BAGS.offsets[:-1])  # type: ignore[arg-type]
    assert np.all(log_odds(found.joint) >= best - 1e-9)  # type: ignore[arg-type]


def test_readouts_are_means_of_the_features_side_by_side() -> None:
    model = averaged()
    readout = np.random.default_rng(0).normal(size=sum(len(q.m) for q in MEMBERS))
    found = model.predicted(BAGS.X, BAGS.offsets, joint=False, instances=False, readout=readout)
    rows = model.pooled_rows(BAGS.X) @ readout
    expected = np.add.reduceat(rows, BAGS.offsets[:-1]) / BAGS.sizes
    np.testing.assert_allclose(found.readout, expected, rtol=1e-10)


def test_chunks_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    readout = np.ones(sum(len(q.m) for q in MEMBERS))
    whole = averaged().predicted(BAGS.X, BAGS.offsets, **ALL, readout=readout)
    monkeypatch.setattr("bagwise.core.inference.passes.rows_per_chunk", lambda n: 4)
    cut = averaged().predicted(BAGS.X, BAGS.offsets, **ALL, readout=readout)
    np.testing.assert_allclose(cut.readout, whole.readout, rtol=1e-12)
    for a, b in ((cut.joint, whole.joint), (cut.instances, whole.instances)):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("mean", [-5.0, -1.0, 0.0, 2.0])
def test_the_average_of_equals_is_as_wide_as_each(mean: float) -> None:
    one = Probit().moments(np.full(3, mean), np.array([0.0, 0.5, 4.0]))
    found = averaged_logits([one, one], np.array([0.4, 0.6]))
    np.testing.assert_allclose(found.log_positive, one.log_positive, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.std, one.std, rtol=1e-6, atol=1e-100)


def test_logits_are_as_wide_as_theirs_on_average() -> None:
    p, std = np.array([0.2, 0.7]), np.array([1e-4, 3e-4])
    parts = [
        Moments(np.log([1 - a]), np.log([a]), np.log1p([(s / (1 - a)) ** 2]))
        for a, s in zip(p, std, strict=True)
    ]
    w = np.array([0.25, 0.75])
    found = averaged_logits(parts, w)
    width = w @ (std / (p * (1 - p)))  # of the logit, where it is narrow
    q = special.expit(w @ special.logit(p))
    np.testing.assert_allclose(found.std, q * (1 - q) * width, rtol=1e-5)


def test_what_cannot_be_averaged_is_refused() -> None:
    with pytest.raises(ValueError, match="weights must be positive"):
        AveragedPosterior.of(MEMBERS, np.array([0.5, 0.5, 0.5]))
    with pytest.raises(ValueError, match="weights must be"):
        AveragedPosterior.of(MEMBERS, np.ones(2) / 2)
    with pytest.raises(ValueError, match="what is averaged must be posteriors"):
        AveragedPosterior.of(MEMBERS[:1], np.ones(1))


def fitted(**settings: Any) -> bw.ProbitVGPMIL:
    return bw.ProbitVGPMIL(n_inducing=15, random_state=0, **settings).fit(separable_bags(24, 3))


def test_a_fit_averages_what_left_out_bags_do_not_tell_apart(tmp_path: Path) -> None:
    model = fitted()
    used = [row for row in model.candidates_ if row.weight > 0]
    assert isinstance(model.posterior_, AveragedPosterior) and len(used) > 1
    assert sum(row.weight for row in used) == pytest.approx(1)
    assert len(model.posterior_.members) == len(used)
    (best,) = [row for row in used if row.chosen]
    assert best.weight == max(row.weight for row in used) == model.posterior_.weights[0]
    assert model.kernel_ == best.kernel
    new = separable_bags(10, 3, seed=5)
    model.save(tmp_path / "m.bagwise")
    one, other = model.predict_all(new), bw.load(tmp_path / "m.bagwise").predict_all(new)
    for name in ("bag_p", "bag_std", "p", "std", "low", "high"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_members_are_the_fits_of_their_kernels() -> None:
    """Each member is what a model with that kernel alone would have come to."""
    model, new = fitted(), separable_bags(6, 3, seed=9)
    members = [q for q in model.posterior_.members if isinstance(q.kernel, RBF)]  # no centre
    assert members
    for member in members:
        own = fitted(
            kernel=member.kernel,
            learn_hyperparameters=False,
            inducing=member.Z * member.scale + member.shift,
            standardize=bool(np.any(member.scale != 1)),
        )
        mean, variance = own.posterior_.latent(new.X)
        np.testing.assert_allclose(mean, member.latent(new.X)[0], atol=1e-3)
        np.testing.assert_allclose(variance, member.latent(new.X)[1], rtol=1e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_samplers_take_the_best_alone() -> None:
    model = fitted(inference="gibbs", n_samples=8, burn_in=4, n_chains=1)
    assert not isinstance(model.posterior_, AveragedPosterior)
    assert [row.weight for row in model.candidates_ if row.weight > 0] == [1.0]


def test_a_fit_beside_that_breaks_down_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = fitted()
    assert len(whole.posterior_.members) > 1
    fit = GaussianRefits.fit

    def broken(self: GaussianRefits, refit: Any, kept: Any, **how: Any) -> None:
        if len(kept) == len(self.bags):
            raise FloatingPointError("not a number")
        fit(self, refit, kept, **how)

    monkeypatch.setattr(GaussianRefits, "fit", broken)
    with pytest.warns(UserWarning, match="left out of the average: its fit broke down"):
        model = fitted()
    assert model.posterior_.members == (model.posterior_,)
    assert [row.weight for row in model.candidates_ if row.weight > 0] == [1.0]
    assert model.bag_score_ == "calibrated"


def test_logits_are_kept_off_as_those_of_left_out_bags() -> None:
    far = Moments(np.array([-60.0]), np.array([-1e-26]), np.zeros(1))
    near = Moments(np.log([0.95]), np.log([0.05]), np.zeros(1))
    w = np.array([0.5, 0.5])
    found = averaged_logits([far, near], w)
    logits = [kept_off(log_odds(part)) for part in (far, near)]
    parts = [(np.column_stack([z, z]), z) for z in logits]
    (scores, instances) = averaged_scores(parts, w, np.array([0, 1]))
    np.testing.assert_allclose(log_odds(found), scores[:, 0], rtol=1e-9)
    np.testing.assert_allclose(log_odds(found), instances, rtol=1e-9)
