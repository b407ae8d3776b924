"""Average precision and CorLoc: hand-computed cases, and a slow reference on random boxes."""

from __future__ import annotations

import numpy as np
import pytest

from bagwise.detection import (
    Box,
    Detection,
    average_precision,
    corloc,
    iou,
    mean_average_precision,
    precision_recall,
)

HERE, THERE, NOWHERE = (0, 0, 10, 10), (20, 20, 30, 30), (50, 50, 60, 60)


def found(box: tuple, score: float, label: str = "dog") -> Detection:
    return Detection(label, box, score, 0.1)


@pytest.fixture
def by_hand() -> tuple[list, list]:
    """Three dogs in two images; hits at ranks 1 and 3, misses at 2 and 4, one dog never found."""
    truth = [[Box("dog", HERE), Box("dog", THERE)], [Box("dog", HERE)]]
    detections = [
        [found(HERE, 0.9), found(HERE, 0.8), found(THERE, 0.7)],
        [found(NOWHERE, 0.6)],
    ]
    return truth, detections


def test_precision_and_recall_by_hand(by_hand: tuple) -> None:
    recall, precision = precision_recall(*by_hand, "dog")
    np.testing.assert_allclose(recall, [1 / 3, 1 / 3, 2 / 3, 2 / 3])
    np.testing.assert_allclose(precision, [1, 1 / 2, 2 / 3, 2 / 4])


def test_average_precision_by_hand(by_hand: tuple) -> None:
    # Precision made monotone: 1 up to recall 1/3, 2/3 up to recall 2/3, 0 beyond.
    assert average_precision(*by_hand, "dog") == pytest.approx(1 / 3 * 1 + 1 / 3 * 2 / 3)
    # Recalls 0, .1, .2, .3 have 1; .4, .5, .6 have 2/3; .7 and above 0.
    eleven = average_precision(*by_hand, "dog", method="11-point")
    assert eleven == pytest.approx((4 * 1 + 3 * 2 / 3) / 11)


def test_eleven_points_include_exact_recalls() -> None:
    truth = [[Box("dog", HERE)] for _ in range(10)]
    detections = [[found(HERE, 0.9)] if i < 7 else [] for i in range(10)]
    assert average_precision(truth, detections, "dog", method="11-point") == pytest.approx(8 / 11)


def test_a_second_hit_on_the_same_box_is_wrong() -> None:
    truth = [[Box("dog", HERE)]]
    _, precision = precision_recall(truth, [[found(HERE, 0.5), found(HERE, 0.9)]], "dog")
    np.testing.assert_allclose(precision, [1.0, 0.5])


def test_a_detection_belongs_to_the_box_it_overlaps_most() -> None:
    # As in the VOC kit: the second detection overlaps the first box most, which is taken.
    truth = [[Box("dog", (0, 0, 10, 10)), Box("dog", (0, 0, 10, 14))]]
    detections = [[found((0, 0, 10, 10), 0.9), found((0, 0, 10, 11), 0.8)]]
    recall, _ = precision_recall(truth, detections, "dog")
    np.testing.assert_allclose(recall, [0.5, 0.5])


def test_difficult_boxes_count_neither_way() -> None:
    truth = [[Box("dog", HERE, difficult=True), Box("dog", THERE)]]
    recall, precision = precision_recall(truth, [[found(HERE, 0.9), found(THERE, 0.8)]], "dog")
    np.testing.assert_allclose(recall, [1.0])
    np.testing.assert_allclose(precision, [1.0])


def test_overlap_of_exactly_the_limit_is_a_hit() -> None:
    truth = [[Box("dog", (0, 0, 10, 10))]]
    detections = [[found((0, 0, 10, 5), 0.9)]]
    assert average_precision(truth, detections, "dog", overlap=0.5) == 1
    assert average_precision(truth, detections, "dog", overlap=0.51) == 0


def test_corloc_by_hand() -> None:
    truth = [[Box("dog", HERE)], [Box("dog", HERE)], [Box("cat", HERE)], [Box("dog", THERE)]]
    detections = [
        [found(NOWHERE, 0.4), found(HERE, 0.9)],  # the best one counts
        [found(HERE, 0.4), found(NOWHERE, 0.9)],
        [found(NOWHERE, 0.9)],  # no dog here: not asked
        [],  # nothing found is wrong
    ]
    assert corloc(truth, detections, "dog") == pytest.approx(1 / 3)


def test_mean_over_classes() -> None:
    truth = [[Box("dog", HERE), Box("cat", THERE)]]
    detections = [[found(HERE, 0.9), found(NOWHERE, 0.9, "cat")]]
    assert mean_average_precision(truth, detections) == pytest.approx(0.5)


# --- a slow reference on random boxes ------------------------------------------------------------


def slow_average_precision(truth: list, detections: list, overlap: float, method: str) -> float:
    """Walk through all detections one by one, and integrate by looking at every recall level."""
    ranked = sorted(
        ((d, i, k) for i, ds in enumerate(detections) for k, d in enumerate(ds)),
        key=lambda t: (-t[0].score, t[1], t[2]),
    )
    total = sum(len(t) for t in truth)
    taken, points, hits = set(), [], 0
    for rank, (d, i, _) in enumerate(ranked, start=1):
        overlaps = [float(iou([d.box], [b.box])[0, 0]) for b in truth[i]]
        best = max(range(len(overlaps)), key=overlaps.__getitem__, default=None)
        if best is not None and overlaps[best] >= overlap and (i, best) not in taken:
            taken.add((i, best))
            hits += 1
        points.append((hits / total, hits / rank))
    if method == "11-point":
        levels = [k / 10 for k in range(11)]
        return sum(max([p for r, p in points if r >= t - 1e-9], default=0) for t in levels) / 11
    return sum(max([p for r, p in points if r >= (k + 1) / total - 1e-9], default=0)
               for k in range(total)) / total  # fmt: skip


@pytest.mark.parametrize("method", ["continuous", "11-point"])
@pytest.mark.parametrize("seed", range(5))
def test_average_precision_equals_a_slow_reference(seed: int, method: str) -> None:
    rng = np.random.default_rng(seed)

    def box() -> tuple:
        x, y = rng.integers(0, 12, 2)
        return (x, y, x + rng.integers(4, 10), y + rng.integers(4, 10))

    truth = [[Box("dog", box()) for _ in range(rng.integers(0, 4))] for _ in range(12)]
    detections = [
        # Shifted copies of true boxes, so that there are hits, and boxes anywhere.
        [found(tuple(np.add(b.box, rng.integers(-2, 3))), float(rng.random())) for b in objects]
        + [found(box(), float(rng.random())) for _ in range(rng.integers(0, 5))]
        for objects in truth
    ]
    for overlap in (0.3, 0.5):
        expected = slow_average_precision(truth, detections, overlap, method)
        got = average_precision(truth, detections, "dog", overlap=overlap, method=method)
        assert got == pytest.approx(expected)
        assert 0 < got < 1


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="no box of class 'cat'"):
        average_precision([[Box("dog", HERE)]], [[]], "cat")
    with pytest.raises(ValueError, match="one list per image; got 1 and 2"):
        corloc([[Box("dog", HERE)]], [[], []], "dog")
    with pytest.raises(ValueError, match="method must be one of"):
        average_precision([[Box("dog", HERE)]], [[]], "dog", method="mean")
