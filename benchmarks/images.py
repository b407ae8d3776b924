"""Figures of the image pipelines: detection from image labels, features of attention networks.

    python benchmarks/images.py [--only detection attention]

Needs nothing but scikit-learn's digits; "attention" needs PyTorch (the extra `torch`).
"""

import argparse
import time
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

import bagwise as bw
from bagwise import metrics
from bagwise.datasets import make_digit_bags, make_digit_canvases
from bagwise.detection import (
    SlidingWindows,
    WeaklySupervisedDetector,
    average_precision,
    corloc,
)

CLASSES = (0, 6)
HARD = (3, 6)  # parts of a 3 occur in 2, 5, 8 and 9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    chosen = parser.parse_args().only
    warnings.simplefilter("ignore", ConvergenceWarning)  # one class may want more sweeps
    with threadpool_limits(1, user_api="blas"):
        for name in chosen:
            PARTS[name]()


def detection() -> None:
    """300 training canvases with image labels; test canvases show digits of other writers."""
    print("| classes | supervision | CorLoc (training) | AP@0.5 (test) | 11-point AP | s per fit |")
    print("|---|---|---|---|---|---|")
    detect(CLASSES, "image labels", 0)
    detect(CLASSES, "image labels, 10 % of images boxed", 10)
    detect(HARD, "image labels", 0)
    detect(HARD, "image labels, 10 % of images boxed", 10)


def detect(classes: tuple[int, ...], supervision: str, every: int) -> None:
    train = make_digit_canvases(300, classes, random_state=0)
    test = make_digit_canvases(150, classes, subset="test", random_state=1)
    boxes = [b if i % every == 0 else None for i, b in enumerate(train.boxes)] if every else None
    detector = WeaklySupervisedDetector(
        bw.ProbitVGPMIL(n_inducing=100),
        proposals=SlidingWindows((16, 20, 24), top=60),
        class_names=classes,
        random_state=0,
    )
    start = time.perf_counter()
    detector.fit(train.images, train.y, boxes=boxes)
    seconds = time.perf_counter() - start
    on_train, on_test = detector.detect(train.images), detector.detect(test.images)
    cells = [
        ", ".join(map(str, classes)),
        supervision,
        each(corloc(train.boxes, on_train, c) for c in classes),
        each(average_precision(test.boxes, on_test, c) for c in classes),
        each(average_precision(test.boxes, on_test, c, method="11-point") for c in classes),
        f"{seconds:.0f}",
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


def each(values: Any) -> str:
    return ", ".join(f"{v:.3f}" for v in values)


def attention() -> None:
    """200 training bags of 5 digits, 100 test bags; 5 seeds; the network sees bag labels only."""
    from bagwise.deep import AttentionMIL

    print("| seed | instances by | bag AUC | instance AUC | instance log-lik. |")
    print("|---|---|---|---|---|")
    for seed in range(5):
        bags, truth = make_digit_bags(300, bag_size=5, witness=(1, 2), random_state=seed)
        train, test = bags[:200], bags[200:]
        truth = truth[-test.n_instances :]
        network = AttentionMIL(image_shape=(8, 8), random_state=seed).fit(train)
        bag_p = network.predict_proba(test)[:, 1]
        for name, p in rescalings(network.attention(test), bag_p, test).items():
            show(seed, name, bag_p, p, test, truth)
        head = bw.ProbitVGPMIL(random_state=seed).fit(network.transform(train))
        features = network.transform(test)
        p = np.asarray(head.predict_instance_proba(features))[:, 1]
        show(seed, "features + ProbitVGPMIL", head.predict_proba(features)[:, 1], p, test, truth)


def rescalings(
    weight: NDArray[np.float64], bag_p: NDArray[np.float64], bags: bw.Bags
) -> dict[str, NDArray[np.float64]]:
    """Ways to read attention weights as probabilities, kept off 0 and 1."""
    starts, bag = bags.offsets[:-1], bags.bag_index
    top = np.maximum.reduceat(weight, starts)[bag]
    low = np.minimum.reduceat(weight, starts)[bag]
    ways = {
        "attention, 0 to 1 in each bag": (weight - low) / (top - low),
        "attention x bag probability": bag_p[bag] * weight / top,
    }
    return {name: np.clip(p, 1e-3, 1 - 1e-3) for name, p in ways.items()}


def show(seed: int, name: str, bag_p: Any, p: Any, bags: bw.Bags, truth: Any) -> None:
    cells = [
        str(seed),
        name,
        f"{metrics.roc_auc(bags.y, bag_p):.3f}",
        f"{metrics.roc_auc(truth, p):.3f}",
        f"{metrics.log_likelihood(truth, p):.3f}",
    ]
    print("| " + " | ".join(cells) + " |", flush=True)


PARTS = {"detection": detection, "attention": attention}

if __name__ == "__main__":
    main()
