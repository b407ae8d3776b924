"""What a label tells: exact where it can be counted, and batches that do not ask twice."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from scipy import special

from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Logistic, Probit
from bagwise.core.posteriors import information as module
from bagwise.core.posteriors.given_labels import BagDraws
from bagwise.core.posteriors.information import (
    BagStates,
    batch,
    information,
    moved,
    suggested_bags,
    suggested_instances,
)

RNG = np.random.default_rng(0)
EXACT = BagLikelihood(Probit())


def some_draws(sizes: list[int], n_draws: int = 64, seed: int = 0) -> tuple[BagDraws, np.ndarray]:
    """Bags whose instances have random loadings on three directions of v."""
    rng = np.random.default_rng(seed)
    n = sum(sizes)
    points = rng.normal(size=(n_draws, 3))
    draws = BagDraws(Probit(), rng.normal(size=n), rng.normal(size=(n, 3)), points, rng.random(n))
    return draws, np.concatenate([[0], np.cumsum(sizes)])


def probabilities(draws: BagDraws) -> np.ndarray:
    """P(y = 1 | v), (n, draws), by the formula of the probit link."""
    f = draws.base[:, None] + draws.loadings @ draws.points.T
    return special.ndtr(f / np.sqrt(1 + draws.kt[:, None]))


def test_information_is_that_of_the_joint_distribution() -> None:
    p = RNG.random((4, 6))
    joint = np.stack([1 - p, p]) / 6  # of the label and the draw
    of_label = joint.sum(axis=2, keepdims=True)
    expected = np.sum(joint * np.log(joint / (of_label / 6)), axis=(0, 2))
    np.testing.assert_allclose(information(p), expected, rtol=1e-12)


def test_the_first_question_is_the_one_that_leaves_least_variance() -> None:
    """E[Var(p_m | y_j)] by weighing the draws with both answers, in units of Var(y_m)."""
    p = RNG.random((6, 40))
    of_label = p.mean(axis=1) * (1 - p.mean(axis=1))
    left = np.empty(6)
    for j in range(6):
        left[j] = 0.0
        for answer in (p[j], 1 - p[j]):
            weights = answer / answer.sum()
            mean = p @ weights
            left[j] += answer.mean() * np.sum((p**2 @ weights - mean**2) / of_label)
    assert batch(p, p, 1)[0] == np.argmin(left)


def test_the_second_question_counts_what_the_first_has_told() -> None:
    """Labels that are certain given v: conditioning Gaussians is exact for p itself."""
    v = RNG.normal(size=(3, 4000))
    p = 0.5 + 1e-3 * np.vstack([2 * v[0], 1.9 * v[0], v[1], 0.5 * v[2]])
    certain = (p > 0.5).astype(float)  # answers without noise
    assert batch(certain, certain, 3).tolist()[1] in (2, 3)
    # Noise swamps what p differs by: a second look at the same tells nearly as much again.
    assert batch(p, p, 2).tolist() == [0, 1]


def test_a_batch_tells_more_than_the_best_by_themselves() -> None:
    """What is left of the variance of all labels once those of a batch are known (Gaussians)."""
    better = []
    for seed in range(20):
        draws, _ = some_draws([60], seed=seed)
        p = probabilities(draws)
        C, noise = np.cov(p, bias=True), np.diag(np.mean(p * (1 - p), axis=1))
        of_label = np.diag(C + noise)
        alone = np.sum(C**2 / of_label[:, None], axis=0) / of_label

        def left(rows: np.ndarray, C=C, noise=noise, of_label=of_label) -> float:  # type: ignore[no-untyped-def]
            told = np.linalg.solve((C + noise)[np.ix_(rows, rows)], C[rows])
            return float(np.sum(np.diag(C - C[:, rows] @ told) / of_label))

        better.append(left(np.argsort(-alone)[:8]) - left(batch(p, p, 8)))
    assert np.min(better) > -1e-3 and np.mean(better) > 0


@pytest.mark.parametrize("link", [Probit(), Logistic()])
def test_labels_of_bags_count(link: Probit | Logistic) -> None:
    """In a positive bag p is p / (1 - P0); what is settled is never asked."""
    draws, offsets = some_draws([3, 1, 2, 4])
    draws = BagDraws(link, draws.base, draws.loadings, draws.points, draws.kt)
    T = np.array([1.0, 1.0, 0.0, np.nan])
    known = np.full(10, np.nan)
    known[7] = 1
    states = BagStates(offsets, T, known)
    rows = suggested_instances(iter([draws]), states, BagLikelihood(link), 10, 0)
    assert sorted(rows) == [0, 1, 2, 3, 6, 8, 9]  # of the negative bag and the known one none
    parts = list(draws.log_probabilities())
    p = np.exp(np.concatenate([log_p for _, log_p, _ in parts]))
    p[:3] /= 1 - np.prod(1 - p[:3], axis=0)
    p[3] = 1.0  # the only one of a positive bag
    free = [0, 1, 2, 3, 6, 8, 9]
    expected = np.array(free)[batch(p[free], p[free], 10)]
    np.testing.assert_array_equal(rows, expected)
    assert rows[-1] == 3  # of which nothing is to be learned


def test_a_known_positive_settles_its_bag() -> None:
    draws, offsets = some_draws([4])
    known = np.array([1.0, np.nan, np.nan, np.nan])
    rows = suggested_instances(iter([draws]), BagStates(offsets, np.ones(1), known), EXACT, 3, 0)
    p = probabilities(draws)[1:]
    np.testing.assert_array_equal(rows, 1 + batch(p, p, 3))


def test_labels_that_may_be_wrong_are_evidence() -> None:
    draws, offsets = some_draws([3])
    states = BagStates(offsets, np.zeros(1), np.full(3, np.nan))
    assert not len(suggested_instances(iter([draws]), states, EXACT, 3, 0))
    noisy = BagLikelihood(Probit(), H=5)
    rows = suggested_instances(iter([draws]), states, noisy, 3, 0)
    p = probabilities(draws)
    P0 = np.prod(1 - p, axis=0)
    h = 1 / 5
    q = p * h / (h + (1 - h) * P0)  # by Bayes' rule, constants left out
    np.testing.assert_array_equal(rows, batch(q, q, 3))


def test_bags_are_asked_by_what_their_labels_tell() -> None:
    draws, offsets = some_draws([3, 1, 2, 4])
    p = probabilities(draws)
    P0 = np.array([np.prod(1 - p[a:b], axis=0) for a, b in pairwise(offsets)])
    bags = suggested_bags(iter([draws]), offsets, EXACT, 4, 0)
    np.testing.assert_array_equal(bags, batch(1 - P0, 1 - P0, 4))
    noisy = BagLikelihood(Probit(), H=3)
    bags = suggested_bags(iter([draws]), offsets, noisy, 4, 0)
    of_T = 0.25 + 0.5 * (1 - P0)
    np.testing.assert_array_equal(bags, batch(of_T, of_T, 4))


def test_chunks_change_nothing() -> None:
    whole, offsets = some_draws([3, 1, 2, 4, 5])

    def parts() -> Iterator[BagDraws]:
        for rows in (slice(0, 4), slice(4, 10), slice(10, 15)):
            yield BagDraws(
                whole.link, whole.base[rows], whole.loadings[rows], whole.points, whole.kt[rows]
            )

    states = BagStates(offsets, np.full(5, np.nan), np.full(15, np.nan))
    np.testing.assert_array_equal(
        suggested_instances(parts(), states, EXACT, 6, 0),
        suggested_instances(iter([whole]), states, EXACT, 6, 0),
    )


def test_many_questions_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POOL", 5)
    monkeypatch.setattr(module, "OTHERS", 4)
    draws, offsets = some_draws([10, 10])
    states = BagStates(offsets, np.full(2, np.nan), np.full(20, np.nan))
    rows = suggested_instances(iter([draws]), states, EXACT, 3, 0)
    best = np.argsort(-information(probabilities(draws)))[:5]
    assert len(rows) == 3 and set(rows) <= set(best)


def test_levels_move_draws() -> None:
    p = RNG.uniform(0.01, 0.4, size=(5, 100))
    level = np.array([0.02, 0.2, 0.5, 0.9, 1.0])
    found = moved(p, level).mean(axis=1)
    np.testing.assert_allclose(found, level, atol=0.08)
    assert np.all(np.isfinite(moved(np.array([[0.0, 1.0]]), np.array([0.5]))))
