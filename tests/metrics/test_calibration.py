"""Probabilities mean what they say on bags that the model itself generates."""

import numpy as np
import pytest
from scipy.special import ndtr

import bagwise as bw
from bagwise.kernels import RBF

KERNEL, MEAN = RBF(1.0, 1.0), -1.5
N_BAGS, BAG_SIZE, N_TEST, N_DRAWS = 400, 5, 1000, 5


def draw(seed: int) -> tuple[bw.Bags, np.ndarray, np.ndarray]:
    """Training bags, test instances and their labels from one draw of the Gaussian process."""
    rng = np.random.default_rng(seed)
    n_train = N_BAGS * BAG_SIZE
    X = rng.uniform(-3, 3, size=(n_train + N_TEST, 2))
    L = np.linalg.cholesky(KERNEL.cross(X, X) + 1e-8 * np.eye(len(X)))
    y = rng.random(len(X)) < ndtr(MEAN + L @ rng.standard_normal(len(X)))
    bag_labels = y[:n_train].reshape(N_BAGS, BAG_SIZE).any(axis=1).astype(int)
    ids = np.repeat(np.arange(N_BAGS), BAG_SIZE)
    return bw.Bags.from_arrays(X[:n_train], ids, bag_labels), X[n_train:], y[n_train:].astype(int)


# All test instances of one draw share its posterior's error, so several draws are pooled.
@pytest.mark.parametrize("inference", ["laplace", "vi"])
def test_instance_probabilities_are_calibrated(inference: str) -> None:
    truth, predicted = [], []
    for seed in range(N_DRAWS):
        bags, X, y = draw(seed)
        model = bw.ProbitVGPMIL(
            kernel=KERNEL,
            mean=MEAN,
            learn_hyperparameters=False,
            standardize=False,
            inference=inference,
            random_state=0,
        ).fit(bags)
        truth.append(y)
        predicted.append(model.predict_instance_proba(X)[:, 1])
    error = bw.metrics.expected_calibration_error(np.concatenate(truth), np.concatenate(predicted))
    assert error <= 0.025
