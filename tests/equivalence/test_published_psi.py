"""`GammaVGPMIL` against Algorithm 1 of [C24], written out instance by instance.

The paper's symbols: u at the inducing points, not whitened; E max in Eq. 25 is taken as the
largest pi, as [V17, Eq. 14] and the authors' program do.
"""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import bagwise as bw

ALPHA, BETA, H, JITTER = 0.9, 2.5, 100.0, 1e-6
KERNEL = bw.kernels.RBF(0.5, 2.0)


def algorithm_1(
    X: np.ndarray,
    bag: np.ndarray,
    T: np.ndarray,
    Z: np.ndarray,
    pi: np.ndarray,
    c: np.ndarray,
    iterations: int,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """m, S and pi after some iterations, from pi and c."""
    K_ZZ = KERNEL.cross(Z, Z) + JITTER * np.mean(KERNEL.diag(Z)) * np.eye(len(Z))
    K_inv = np.linalg.inv(K_ZZ)
    K_XZ = KERNEL.cross(X, Z)
    projection = K_XZ @ K_inv
    K_tilde = KERNEL.diag(X) - np.sum(projection * K_XZ, axis=1)
    for _ in range(iterations):
        theta = ALPHA / (BETA + c**2 / 2)  # Eq. 28 for the Gamma density, Section 5
        S = np.linalg.inv(projection.T @ np.diag(theta) @ projection + K_inv)  # Eq. 27
        m = S @ projection.T @ (pi - 0.5)  # Eq. 26
        mu = projection @ m
        old = pi.copy()
        for n in range(len(X)):  # Eq. 25
            others = [old[j] for j in range(len(X)) if bag[j] == bag[n] and j != n]
            push = np.log(H) * (2 * T[bag[n]] - 1) * (1 - max(others, default=0.0))
            pi[n] = 1 / (1 + np.exp(-(mu[n] + push)))
            variance = K_tilde[n] + projection[n] @ S @ projection[n]
            c[n] = np.sqrt(mu[n] ** 2 + variance)
    return m, S, pi


@pytest.mark.parametrize("iterations", [1, 20])
def test_gamma_updates(iterations: int) -> None:
    rng = np.random.default_rng(0)
    X, bag = rng.normal(size=(60, 3)), np.repeat(np.arange(15), 4)
    T = np.arange(15) % 2
    X[::4][T == 1] += 2.0
    Z, pi, c = X[rng.choice(60, 8, replace=False)], rng.uniform(size=60), rng.uniform(1, 2, 60)
    model = bw.GammaVGPMIL(
        alpha=ALPHA,
        beta=BETA,
        kernel=KERNEL,
        inducing=Z,
        standardize=False,
        jitter=JITTER,
        init={"pi": pi, "xi": c},
        max_iter=iterations,
        tol=0.0,
        bag_score="joint",
    )
    with pytest.warns(ConvergenceWarning):
        model.fit(bw.Bags.from_arrays(X, bag, y=T))
    m, S, _ = algorithm_1(X, bag, T, Z, pi.copy(), c.copy(), iterations)
    q = model.posterior_
    K_ZZ = KERNEL.cross(Z, Z) + JITTER * np.mean(KERNEL.diag(Z)) * np.eye(len(Z))
    L = np.linalg.cholesky(K_ZZ)
    np.testing.assert_allclose(L @ q.m, m, atol=1e-8)
    np.testing.assert_allclose(L @ q.S @ L.T, S, atol=1e-8)
