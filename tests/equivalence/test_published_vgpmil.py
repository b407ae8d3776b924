"""The factorised models reproduce the authors' programs sweep by sweep."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.special import expit
from sklearn.exceptions import ConvergenceWarning

import bagwise as bw
from bagwise.kernels import RBF

Oracle = dict[str, np.ndarray]
FILES = ["peers_a", "peers_b"]
# One sweep is a handful of equations; twenty let rounding grow.
TOLERANCE = {1: 1e-6, 20: 1e-4}


def fitted(model: Any, oracle: Oracle) -> Any:
    bags = bw.Bags.from_arrays(oracle["X"], oracle["bag"], oracle["y"])
    with pytest.warns(ConvergenceWarning):
        return model.fit(bags)


def published(cls: Any, oracle: Oracle, prefix: str, sweeps: int) -> Any:
    names = ("pi", "tau", "xi", "phi") if prefix == "lm" else ("pi", "xi")
    return cls(
        kernel=RBF(float(oracle["variance"]), float(oracle["lengthscale"])),
        inducing=oracle["Z"],
        mean=0.0,
        learn_hyperparameters=False,
        standardize=False,
        jitter=float(oracle["jitter"]),
        H=100.0,
        label_posterior="factorised",
        init={name: oracle[f"{prefix}_{name}0"] for name in names},
        max_iter=sweeps,
        tol=0.0,
    )


def inducing_values(model: Any, oracle: Oracle) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of u = L v."""
    q = model.posterior_
    K = model.kernel_.cross(oracle["Z"], oracle["Z"])
    L = np.linalg.cholesky(K + float(oracle["jitter"]) * np.eye(len(K)))
    return L @ q.m, L @ q.S @ L.T


@pytest.mark.parametrize("sweeps", [1, 20])
@pytest.mark.parametrize("file", FILES)
def test_vgpmil(file: str, sweeps: int, load_oracle: Callable[[str], Oracle]) -> None:
    oracle = load_oracle(file)
    model = fitted(published(bw.VGPMIL, oracle, "vg", sweeps), oracle)
    m, S = inducing_values(model, oracle)
    np.testing.assert_allclose(m, oracle[f"vg_m{sweeps}"], atol=TOLERANCE[sweeps])
    np.testing.assert_allclose(S, oracle[f"vg_S{sweeps}"], atol=TOLERANCE[sweeps])
    if sweeps == 20:
        mean, _ = model.latent(oracle["Xt"])
        np.testing.assert_allclose(expit(mean), oracle["vg_pred"], atol=1e-4)


@pytest.mark.parametrize("sweeps", [1, 20])
@pytest.mark.parametrize("file", FILES)
def test_large_margin(file: str, sweeps: int, load_oracle: Callable[[str], Oracle]) -> None:
    oracle = load_oracle(file)
    model = fitted(published(bw.LargeMarginVGPMIL, oracle, "lm", sweeps), oracle)
    m, S = inducing_values(model, oracle)
    np.testing.assert_allclose(m, oracle[f"lm_m{sweeps}"], atol=TOLERANCE[sweeps])
    if sweeps == 1:
        np.testing.assert_allclose(S, oracle["lm_S1"], atol=1e-6)
    else:
        mean, _ = model.latent(oracle["Xt"])
        np.testing.assert_allclose(expit(mean), oracle["lm_pred"], atol=1e-4)
