"""Have the chains of a sampler met, and how many independent draws are they worth?

Split R-hat and effective sample size as in Vehtari, Gelman, Simpson, Carpenter, Buerkner,
"Rank-normalization, folding, and localization: an improved R-hat", Bayesian Analysis 2021,
without the rank transformation: what is sampled here is close to Gaussian.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import fft

Array = NDArray[Any]

MIN_SAMPLES = 4
COLUMNS_PER_BLOCK = 64  # bounds the memory of the Fourier transforms


def split_r_hat(draws: Array) -> Array:
    """Split R-hat of each parameter, from draws of shape (chains, samples, parameters).

    sqrt(var+ / W) with W the variance within half chains and var+ that of all draws; it nears 1
    from above as the chains forget where they started. Above 1.01 they should run longer.

    >>> draws = np.random.default_rng(0).normal(size=(4, 500, 2))
    >>> draws[0, :, 1] += 3  # one chain that is elsewhere
    >>> split_r_hat(draws).round(1)
    array([1. , 1.7])
    """
    halves = _split(_checked(draws))
    within, total = _variances(halves)
    with np.errstate(divide="ignore", invalid="ignore"):  # constant draws: inf, or NaN if all agree
        return np.sqrt(total / within)


def effective_sample_size(draws: Array) -> Array:
    """Number of independent draws with the same error of the mean, for each parameter.

    Autocorrelations of split chains are summed as far as Geyer's initial monotone sequence goes.
    The shape of `draws` is (chains, samples, parameters).

    >>> draws = np.random.default_rng(0).normal(size=(4, 500, 1))
    >>> bool(1500 < effective_sample_size(draws)[0] < 2500)
    True
    """
    halves = _split(_checked(draws))
    columns = range(0, halves.shape[2], COLUMNS_PER_BLOCK)
    return np.concatenate([_ess(halves[..., i : i + COLUMNS_PER_BLOCK]) for i in columns])


def _checked(draws: Array) -> Array:
    draws = np.asarray(draws, dtype=np.float64)
    if draws.ndim != 3 or draws.shape[0] < 1 or draws.shape[1] < MIN_SAMPLES:
        raise ValueError(
            f"draws must have shape (chains, samples, parameters) with at least {MIN_SAMPLES} "
            f"samples, got {draws.shape}"
        )
    return draws


def _split(draws: Array) -> Array:
    """Both halves of each chain as chains; of an odd number of samples the middle one is left."""
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, -half:]])


def _variances(chains: Array) -> tuple[Array, Array]:
    """W and var+ = (n - 1)/n W + B/n [Vehtari et al. 2021, Eq. 1-3]."""
    n = chains.shape[1]
    within = chains.var(axis=1, ddof=1).mean(axis=0)
    between = chains.mean(axis=1).var(axis=0, ddof=1)  # B/n
    return within, (n - 1) / n * within + between


def _ess(chains: Array) -> Array:
    n_chains, n = chains.shape[:2]
    within, total = _variances(chains)
    covariance = _autocovariance(chains).mean(axis=0)  # (n, parameters)
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1 - (within - covariance) / total  # [Vehtari et al. 2021, Eq. 10]
    rho[0] = 1.0
    pairs = rho[: n // 2 * 2].reshape(n // 2, 2, -1).sum(axis=1)
    positive = np.logical_and.accumulate(pairs > 0, axis=0)
    monotone = np.minimum.accumulate(pairs, axis=0)
    tau = -1 + 2 * np.sum(np.where(positive, monotone, 0.0), axis=0)
    # Antithetic chains may beat independent draws, but tau is too noisy to claim much of that.
    size = n_chains * n
    return np.where(total > 0, size / np.maximum(tau, 1 / np.log10(size)), np.nan)


def _autocovariance(chains: Array) -> Array:
    """sum_t x_t x_{t+lag} / n for every lag, by zero-padded Fourier transforms along axis 1."""
    n = chains.shape[1]
    centred = chains - chains.mean(axis=1, keepdims=True)
    padded = fft.next_fast_len(2 * n, real=True)
    spectrum = np.abs(fft.rfft(centred, padded, axis=1)) ** 2
    return fft.irfft(spectrum, padded, axis=1)[:, :n] / n
