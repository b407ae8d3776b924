"""Thinned bags say on average, and nearly always, what whole bags say."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import special

import bagwise as bw
from bagwise.bags.rows import ScaledRows
from bagwise.core.features import whitener
from bagwise.core.inference import thinning
from bagwise.core.inference.hyper import EvidenceObjective, Hyperparameters, learn
from bagwise.core.inference.passes import TrainingData
from bagwise.core.inference.stats import FoldedLikelihood
from bagwise.core.inference.thinning import (
    Sample,
    Scorer,
    Thinning,
    draw,
    inclusion,
    indispensable,
    rows_per_bag,
    systematic,
    thin,
    water_level,
)
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Logistic, Probit
from bagwise.kernels import RBF
from brute_force import make_targets

Array = np.ndarray


def uniform_numbers(pi: Array, order: Array) -> tuple[Array, Array]:
    """One number for each of the samples there are, and the probability of each sample."""
    rest = order[pi[order] < 1]
    ends = np.unique(np.concatenate([[0.0], np.cumsum(pi[rest]) % 1, [1.0]]))
    return (ends[1:] + ends[:-1]) / 2, np.diff(ends)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("n", "k"), [(5, 3), (40, 7), (300, 25), (300, 299)])
class TestOneBag:
    def sizes(self, n: int, seed: int) -> tuple[Array, Array]:
        rng = np.random.default_rng(seed)
        return np.exp(rng.normal(0, 3, n)), np.arange(n) == rng.integers(n)

    def test_inclusion(self, n: int, k: int, seed: int) -> None:
        size, sure = self.sizes(n, seed)
        pi = inclusion(size, k, sure)
        assert pi.sum() == pytest.approx(k) and pi.max() <= 1 and pi.min() > 0
        assert pi[sure] == 1
        ratio = pi[pi < 1] / size[pi < 1]
        np.testing.assert_allclose(ratio, ratio[0])
        assert np.all(size[(pi == 1) & ~sure] * ratio[0] >= 1 - 1e-9)

    def test_every_row_is_drawn_with_its_probability(self, n: int, k: int, seed: int) -> None:
        size, sure = self.sizes(n, seed)
        pi, order = inclusion(size, k, sure), np.argsort(size)
        found = np.zeros(n)
        for u, probability in zip(*uniform_numbers(pi, order), strict=True):
            rows = systematic(pi, order, u)
            assert len(np.unique(rows)) == len(rows) == k
            found[rows] += probability
        np.testing.assert_allclose(found, pi, atol=1e-9)

    def test_sums_are_unbiased_for_any_values(self, n: int, k: int, seed: int) -> None:
        cost, sure = np.log(self.sizes(n, seed)[0]), self.sizes(n, seed)[1]
        values = np.random.default_rng(seed + 10).normal(size=n)
        size = np.exp(cost - cost.max())
        pi = inclusion(0.5 * size / size.sum() + 0.5 / n, k, sure)
        mean = 0.0
        for u, probability in zip(*uniform_numbers(pi, np.argsort(cost)), strict=True):
            rows, p = draw(cost, sure, k, u)
            mean += probability * float(np.sum(values[rows] / p))
        assert mean == pytest.approx(values.sum(), abs=1e-8)


@pytest.mark.parametrize("seed", range(20))
def test_water_level(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 60, rng.integers(1, 12))
    max_rows = int(rng.integers(len(sizes), sizes.sum() + 1))
    k = water_level(sizes, max_rows)
    assert np.minimum(sizes, k).sum() <= max_rows
    assert np.minimum(sizes, k + 1).sum() > max_rows or k >= sizes.max()


def empty_data(sizes: Any, T: Any) -> TrainingData:
    """Bags of these sizes whose rows take no memory."""
    offsets = np.concatenate([[0], np.cumsum(sizes)])
    return TrainingData(np.broadcast_to(0.0, (int(offsets[-1]), 1)), offsets, np.asarray(T))


@pytest.mark.parametrize(
    ("sizes", "bags", "rows"),
    [
        ([5000] * 400, 400, 10_000),  # slides
        ([10**6, 100], 2, 10_000),
        ([10**6, 10**6, 50, 50], 4, 10_000),
        ([5] * 20_000, 2000, 10_000),  # small bags stay whole
        ([1000] * 20_000, 2000, 10_000),
        ([1] * 50_000, 10_000, 10_000),
    ],
)
def test_many_bags_stay(sizes: list[int], bags: int, rows: int) -> None:
    data = empty_data(sizes, np.arange(len(sizes)) % 2 == 0)
    k = rows_per_bag(data, 10_000, np.random.default_rng(0))
    assert np.count_nonzero(k) == bags
    assert 0.99 * rows <= k.sum() <= rows
    assert np.mean(data.T[k > 0]) == pytest.approx(0.5)


def test_one_large_bag_is_thinned_evenly_first() -> None:
    data = empty_data([30_000, 7], [True, False])
    k = rows_per_bag(data, 1000, np.random.default_rng(0))
    sample = Thinning(data.offsets, k, np.array([0.3, 0.6])).evenly(data)
    np.testing.assert_array_equal(sample.rows[-7:], np.arange(30_000, 30_007))
    np.testing.assert_array_equal(sample.weights[-7:], 1.0)
    assert len(sample.rows) == 1000 and sample.weights.sum() == pytest.approx(30_007)
    assert np.diff(sample.rows[:-7]).max() < 60, "the even rows are spread over the bag"


def test_what_a_bag_cannot_lose_stays() -> None:
    # A positive bag with one row of unknown label, and one that known positives settle.
    known = np.concatenate([np.zeros(99), [np.nan], [1.0, 1.0], np.full(98, np.nan)])
    targets = make_targets([100, 100], [True, True], known)
    cost = np.concatenate([np.ones(99), [-50.0], [-60.0, -55.0], np.ones(98)])
    sure = indispensable(targets, cost)
    np.testing.assert_array_equal(np.flatnonzero(sure), [99, 101, 102])
    rule = Thinning(np.array([0, 100, 200]), np.array([5, 5]), np.array([0.9, 0.1]))
    sample = rule.of_bags(targets, cost, 0)
    assert {99, 101, 102} <= set(sample.rows.tolist()) and len(sample.rows) == 10


def test_a_fit_that_knows_the_positives_keeps_them_all() -> None:
    X = np.linspace(-1, 1, 3000)[:, None]
    data = TrainingData(X, np.array([0, 1000, 3000]), np.array([False, True]))
    features = whitener(RBF(4.0, 0.1), np.array([[0.0], [0.9]]), 1e-6)
    scorer = Scorer(FoldedLikelihood(BagLikelihood(Probit()), 0.0), np.array([0.0, 6.0]), -6.0)
    rule = Thinning(data.offsets, np.array([50, 400]), np.array([0.5, 0.5]))
    sample = data.one_pass(features, partial(rule.of_chunk, scorer=scorer))
    hot = np.flatnonzero(np.abs(X[:, 0] - 0.9) < 0.03)
    assert set(hot.tolist()) <= set(sample.rows.tolist())
    A, _ = features(X)
    z = -6.0 + A @ scorer.v
    values = special.log_ndtr(-z)
    cuts = np.searchsorted(sample.rows, 1000)
    for rows, part in ((slice(0, 1000), slice(0, cuts)), (slice(1000, 3000), slice(cuts, None))):
        found = np.sum(sample.weights[part] * values[sample.rows[part]])
        assert found == pytest.approx(values[rows].sum(), rel=0.02)


# --- Bags drawn from the model -------------------------------------------------------------------

B, SIZE, MAX_ROWS = 60, 80, 600
LIKELIHOODS = {"probit": BagLikelihood(Probit()), "logistic": BagLikelihood(Logistic())}


def drawn_from_the_model(seed: int, link: str = "probit") -> TrainingData:
    """Half of the bags positive, with some rows in a hundred positive in those."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(B, 3, 2))
    X = centres[np.arange(B)[:, None], rng.integers(0, 3, (B, SIZE))]
    X = (X + 0.3 * rng.normal(size=X.shape)).reshape(-1, 2)
    # Random Fourier features of RBF(9, 1).
    omega, phase = rng.normal(size=(2, 500)), rng.uniform(0, 2 * np.pi, 500)
    f = 3 * np.sqrt(2 / 500) * np.cos(X @ omega + phase) @ rng.normal(size=500)
    noise = rng.normal(size=len(f)) if link == "probit" else rng.logistic(size=len(f))
    top = (f + noise).reshape(B, SIZE).max(axis=1)
    return TrainingData(X, np.arange(0, B * SIZE + 1, SIZE), top > np.median(top))


def make_objective(data: TrainingData, Z: Array, link: str = "probit") -> EvidenceObjective:
    start = Hyperparameters(RBF(4.0, 0.7), -1.0)
    return EvidenceObjective(data, LIKELIHOODS[link], Z, 1e-6, start, start, True, True, 0.2)


def thinned(data: TrainingData, Z: Array, seed: int, link: str = "probit") -> TrainingData:
    features = whitener(RBF(4.0, 0.7), Z, 1e-6)
    rng = np.random.default_rng(seed)
    sample = thin(data, LIKELIHOODS[link], features, None, MAX_ROWS, rng)
    assert len(sample.rows) == MAX_ROWS
    return data.of_rows(sample.rows, sample.weights)


def few_bags(data: TrainingData) -> TrainingData:
    """What was done before: as many rows, in whole bags."""
    n = MAX_ROWS // SIZE // 2
    bags = [np.flatnonzero(t == data.T)[:n] for t in (True, False)]
    return data.of_bags(np.sort(np.concatenate(bags)))


@pytest.mark.parametrize("link", list(LIKELIHOODS))
@pytest.mark.parametrize("seed", range(2))
def test_kernel_and_mean_are_those_of_all_rows(link: str, seed: int) -> None:
    data = drawn_from_the_model(seed, link)
    Z = data.X[:: len(data.X) // 10]
    full = make_objective(data, Z, link)
    parts = (data, thinned(data, Z, seed, link), few_bags(data))
    everything, sample, few = (full.pack(learn(make_objective(p, Z, link))) for p in parts)

    def nats_lost(x: Array) -> float:
        full.v = np.zeros(len(Z))
        return full(x)[0] - full(everything)[0]

    # Logarithms of variance and lengthscale, and c0, whose priors have deviations of 0.2 and 1.
    assert np.all(np.abs(sample - everything) < [0.15, 0.15, 0.4])
    assert nats_lost(sample) < 0.3
    assert few[-1] > everything[-1] + 0.4, "large bags need a lower mean than few bags show"
    assert nats_lost(few) > 3


def sample_of(data: TrainingData, seed: int = 0) -> Sample:
    features = whitener(RBF(4.0, 0.7), data.X[:8], 1e-6)
    return thin(data, LIKELIHOODS["probit"], features, None, MAX_ROWS, np.random.default_rng(seed))


def test_samples_depend_on_the_seed_alone(tmp_path: Path) -> None:
    data = drawn_from_the_model(0)
    whole = sample_of(data)
    np.save(tmp_path / "X.npy", data.X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    scaled = ScaledRows(mapped, np.zeros(2), np.ones(2))
    for X in (data.X, mapped, scaled):
        for chunk_size in (SIZE, 1000, None):
            found = sample_of(TrainingData(X, data.offsets, data.T, None, chunk_size))
            np.testing.assert_array_equal(found.rows, whole.rows)
            np.testing.assert_allclose(found.weights, whole.weights, rtol=1e-9)
    assert np.any(sample_of(data, seed=1).rows != whole.rows)


def test_small_bags_stay_whole_without_a_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thinning, "fitted", None)  # calling it would fail
    data = empty_data([5] * 300, np.arange(300) % 3 == 0)
    sample = thin(
        data, LIKELIHOODS["probit"], whitener(RBF(), np.zeros((1, 1)), 1e-6), None, 500,
        np.random.default_rng(0),
    )  # fmt: skip
    part = data.of_rows(sample.rows, sample.weights)
    assert len(part.T) == 100 and np.all(np.diff(part.offsets) == 5) and part.T.mean() == 0.33
    np.testing.assert_array_equal(sample.weights, 1.0)


def as_bags(data: TrainingData, known: Array | None = None) -> bw.Bags:
    ids = np.repeat(np.arange(B), SIZE)
    return bw.Bags.from_arrays(data.X, ids, y=data.T.astype(int), instance_labels=known)


@pytest.mark.parametrize("cls", [bw.VGPMIL, bw.ProbitVGPMIL])
def test_fits_to_many_rows_learn_what_fits_to_all_rows_learn(
    cls: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    bags = as_bags(drawn_from_the_model(1))
    model = partial(cls, n_inducing=10, bag_score="joint", tol=1e-3, random_state=0)
    with monkeypatch.context() as patched:
        patched.setattr("bagwise.core.inference.driver.thin", None)  # few rows are not thinned
        everything = model().fit(bags)
    monkeypatch.setattr("bagwise.core.inference.driver.LEARNING_ROWS", MAX_ROWS)
    sample = model().fit(bags)
    # Ten rows of each bag; the search for kernel and mean ends within 0.1 nats of its optimum.
    np.testing.assert_allclose(sample.kernel_.theta, everything.kernel_.theta, atol=0.4)
    assert sample.mean_ == pytest.approx(everything.mean_, abs=0.8)


def test_known_labels_of_large_bags(monkeypatch: pytest.MonkeyPatch) -> None:
    data = drawn_from_the_model(0)
    rng = np.random.default_rng(0)
    known = np.where(data.T.repeat(SIZE), np.nan, 0.0)  # all labels of negative bags
    settled = np.flatnonzero(data.T)[:10] * SIZE
    known[settled] = 1.0
    known[settled + 1] = 0.0
    bags = as_bags(data, np.where(rng.random(len(known)) < 0.5, known, np.nan))
    monkeypatch.setattr("bagwise.core.inference.driver.LEARNING_ROWS", MAX_ROWS)
    model = bw.VGPMIL(n_inducing=8, tol=1e-3, random_state=0).fit(bags)
    assert model.converged_ and np.isfinite(model.elbo_) and np.isfinite(model.mean_)


class Stop(Exception):
    """Raised on the way."""


def test_an_interrupted_search_goes_on_with_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bagwise.core.inference.driver.LEARNING_ROWS", MAX_ROWS)
    bags = as_bags(drawn_from_the_model(0))
    model = partial(bw.ProbitVGPMIL, kernel=None, n_inducing=8, bag_score="joint", random_state=0)
    whole = model().fit(bags)

    def stop(stage: str, step: int, objective: float, seconds: float) -> None:
        if (stage, step) == ("hyperparameters", 1):
            raise Stop

    path = tmp_path / "fit.checkpoint"
    with pytest.raises(Stop):
        model().fit(bags, checkpoint=path, checkpoint_minutes=0, callbacks=[stop])
    monkeypatch.setattr(
        "bagwise.core.inference.driver.thin", None
    )  # the rows are in the checkpoint
    resumed = model().fit(bags, resume=path)
    np.testing.assert_array_equal(resumed.kernel_.theta, whole.kernel_.theta)
    assert resumed.elbo_ == whole.elbo_
