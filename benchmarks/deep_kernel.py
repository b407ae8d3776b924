"""A deep kernel beside its two stages: instance AUC and calibration on bags of digit images.

    python benchmarks/deep_kernel.py [--seeds 5] [--bags 200] [--mnist FOLDER]

Needs PyTorch (the extra `torch`). Without --mnist the images are scikit-learn's 8x8 digits; FOLDER
holds MNIST's four idx files (train-images-idx3-ubyte, ...), unpacked.
"""

import argparse
import sys
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

import bagwise as bw
from bagwise import metrics
from bagwise.datasets import make_digit_bags
from bagwise.datasets.digits import draw_bags

Data = tuple[bw.Bags, bw.Bags, NDArray[np.int64]]  # training bags, test bags, truth of the latter
TEST_BAGS = 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--bags", type=int, default=200, help="bags to train on")
    parser.add_argument("--folds", type=int, default=5, help="calibration_folds of DeepProbitMIL")
    parser.add_argument("--mnist", type=Path)
    asked = parser.parse_args()
    if find_spec("torch") is None:
        print('this benchmark needs PyTorch: pip install "bagwise[torch]"')
        return 0
    warnings.simplefilter("ignore", ConvergenceWarning)
    shape = (8, 8) if asked.mnist is None else (28, 28)
    print("| seed | model | bag AUC | instance AUC | instance ECE | instance log-lik. | s |")
    print("|---|---|---|---|---|---|---|")
    rows: dict[str, list[list[float]]] = {}
    with threadpool_limits(1, user_api="blas"):
        for seed in range(asked.first_seed, asked.first_seed + asked.seeds):
            data = of_digits(asked.bags, seed)
            if asked.mnist is not None:
                data = of_mnist(asked.mnist, asked.bags, seed)
            for name, fit in (("two stages", two_stages), ("DeepProbitMIL", deep)):
                scores = scored(fit, data, seed, shape, asked.folds)
                rows.setdefault(name, []).append(scores)
                show(str(seed), name, scores)
    for name, scores in rows.items():
        show("mean", name, np.mean(scores, axis=0).tolist())
    return 0


def of_digits(n_bags: int, seed: int) -> Data:
    """Bags of 5 digits; 1 or 2 of a positive bag are a 2 or a 9. Each image is used once."""
    bags, truth = make_digit_bags(n_bags + TEST_BAGS, bag_size=5, witness=(1, 2), random_state=seed)
    test = bags[n_bags:]
    return bags[:n_bags], test, truth[-test.n_instances :]


def of_mnist(folder: Path, n_bags: int, seed: int) -> Data:
    """Bags of 10 images; 1 to 3 of a positive bag are a 9. Test images are MNIST's own."""
    rng = np.random.default_rng(seed)
    train, _ = mnist_bags(folder, "train", n_bags, rng)
    return train, *mnist_bags(folder, "t10k", TEST_BAGS, rng)


def mnist_bags(
    folder: Path, part: str, n: int, rng: np.random.Generator
) -> tuple[bw.Bags, NDArray[np.int64]]:
    images = np.fromfile(folder / f"{part}-images-idx3-ubyte", np.uint8)[16:].reshape(-1, 784)
    digits = np.fromfile(folder / f"{part}-labels-idx1-ubyte", np.uint8)[8:]
    rows, y, truth = draw_bags(digits == 9, n, 10, (1, 3), rng)
    X = images[rows].astype(np.float32) / 255
    return bw.Bags.from_arrays(X, np.repeat(np.arange(n), 10), y=y), truth


def two_stages(bags: bw.Bags, seed: int, shape: Any, folds: int) -> Any:
    """Features of an attention network, then a model on them."""
    from sklearn.pipeline import make_pipeline

    from bagwise.deep import AttentionFeatures, AttentionMIL

    network = AttentionMIL(image_shape=shape, random_state=seed)
    pipe = make_pipeline(AttentionFeatures(network), bw.ProbitVGPMIL(random_state=seed))
    return pipe.fit(bags, bags.y)


def deep(bags: bw.Bags, seed: int, shape: Any, folds: int) -> Any:
    """Both together."""
    from bagwise.deep import AttentionMIL, DeepProbitMIL

    network = AttentionMIL(image_shape=shape)
    return DeepProbitMIL(network, calibration_folds=folds, random_state=seed).fit(bags)


def scored(fit: Callable[..., Any], data: Data, seed: int, shape: Any, folds: int) -> list[float]:
    train, test, truth = data
    start = time.perf_counter()
    model = fit(train, seed, shape, folds)
    seconds = time.perf_counter() - start
    if hasattr(model, "steps"):
        test, model = model[0].transform(test), model[-1]
    p = np.asarray(model.predict_instance_proba(test))[:, 1]
    return [
        metrics.roc_auc(test.y, np.asarray(model.predict_proba(test))[:, 1]),
        metrics.roc_auc(truth, p),
        metrics.expected_calibration_error(truth, p),
        metrics.log_likelihood(truth, p),
        seconds,
    ]


def show(seed: str, name: str, scores: list[float]) -> None:
    cells = [seed, name, *(f"{s:.4f}" for s in scores[:4]), f"{scores[4]:.0f}"]
    print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
