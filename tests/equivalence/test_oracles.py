"""Fits agree with the outputs of the authors' published programs."""

from __future__ import annotations

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.features import kernel_matrix

FILES = ["peers_a", "peers_b"]
Arrays = dict[str, np.ndarray]


@pytest.fixture(params=FILES)
def oracle(request: pytest.FixtureRequest, load_oracle) -> Arrays:
    return load_oracle(request.param)


@pytest.fixture
def model(oracle: Arrays) -> bw.ProbitVGPMIL:
    """The paper's model: zero mean, fixed kernel, raw features, residual in the bound."""
    bags = bw.Bags.from_arrays(oracle["X"], oracle["bag"], y=oracle["y"])
    return bw.ProbitVGPMIL(
        kernel=bw.kernels.RBF(float(oracle["variance"]), float(oracle["lengthscale"])),
        inducing=oracle["Z"],
        mean=0.0,
        learn_hyperparameters=False,
        standardize=False,
        approximation="vfe",
        tol=1e-12,
        max_iter=5000,
    ).fit(bags)


def whitening(model: bw.ProbitVGPMIL, Z: np.ndarray) -> np.ndarray:
    """L of u = L v."""
    K = kernel_matrix(model.kernel_, Z)
    return np.linalg.cholesky(K + 1e-6 * np.eye(len(Z)))


def asked(oracle: Arrays) -> bw.Bags:
    return bw.Bags.from_arrays(oracle["Xt"], oracle["bagt"], y=oracle["yt"])


def test_posterior_of_inducing_values(oracle: Arrays, model: bw.ProbitVGPMIL) -> None:
    """q(u) = N(L m, L S L') [W21, Eq. 17-18]."""
    L = whitening(model, oracle["Z"])
    m, S = model.posterior_.m, model.posterior_.S
    np.testing.assert_allclose(L @ m, oracle["pr0.0_m"], atol=1e-3)
    np.testing.assert_allclose(L @ S @ L.T, oracle["pr0.0_S"], atol=1e-3)


def test_latent_mean_on_new_bags(oracle: Arrays, model: bw.ProbitVGPMIL) -> None:
    bags = asked(oracle)
    mean, _ = model.latent(bags)
    np.testing.assert_allclose(mean, oracle["pr0.0_fmean"][bags.row_index], atol=1e-3)


def test_instance_probabilities_on_new_bags(oracle: Arrays, model: bw.ProbitVGPMIL) -> None:
    bags = asked(oracle)
    p = model.predict_instance_proba(bags)[:, 1]
    np.testing.assert_allclose(p, oracle["pr0.0_inst"][bags.row_index], atol=2e-3)


def test_augmented_means_on_training_bags(oracle: Arrays, model: bw.ProbitVGPMIL) -> None:
    """E[m_n] at the optimum satisfies m = S A'E[m], and is the paper's [W21, Eq. 21-23]."""
    bags = bw.Bags.from_arrays(oracle["X"], oracle["bag"], y=oracle["y"])
    A, _ = model.posterior_._whitener(bags.X)
    Em = oracle["pr0.0_Em"][bags.row_index]
    np.testing.assert_allclose(model.posterior_.S @ (A.T @ Em), model.posterior_.m, atol=1e-3)


def test_the_oracle_tells_approximations_apart(oracle: Arrays, model: bw.ProbitVGPMIL) -> None:
    """fitc is another model: agreeing to 1e-3 means something."""
    bags = bw.Bags.from_arrays(oracle["X"], oracle["bag"], y=oracle["y"])
    other = model.set_params(approximation="fitc").fit(bags)
    mean, _ = other.latent(asked(oracle))
    assert np.abs(mean - oracle["pr0.0_fmean"]).max() > 1e-2
