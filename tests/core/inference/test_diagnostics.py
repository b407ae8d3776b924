"""Split R-hat and effective sample size against processes whose values are known."""

import numpy as np
import pytest
from scipy import signal

from bagwise.core.inference.diagnostics import (
    COLUMNS_PER_BLOCK,
    _autocovariance,
    effective_sample_size,
    split_r_hat,
)


def autoregressive(rho: float, shape: tuple[int, int, int], seed: int = 0) -> np.ndarray:
    """x_t = rho x_{t-1} + noise, stationary with variance 1."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(0, np.sqrt(1 - rho**2), size=shape)
    noise[:, 0] = rng.normal(size=(shape[0], shape[2]))
    return signal.lfilter([1.0], [1.0, -rho], noise, axis=1)


@pytest.mark.parametrize("rho", [-0.3, 0.0, 0.5, 0.9, 0.97])
def test_ess_of_an_autoregressive_process(rho: float) -> None:
    ess = effective_sample_size(autoregressive(rho, (4, 20_000, 40)))
    exact = 80_000 * (1 - rho) / (1 + rho)
    assert np.std(ess) < 0.1 * exact
    assert np.mean(ess) == pytest.approx(exact, rel=0.08)  # five standard errors of 40 estimates


def test_r_hat_of_mixed_chains_is_one() -> None:
    np.testing.assert_allclose(split_r_hat(autoregressive(0.5, (4, 5000, 3))), 1, atol=3e-3)


def test_r_hat_of_shifted_chains() -> None:
    draws = autoregressive(0.0, (2, 50_000, 1))
    draws[1] += 2.0  # the four halves have means 0, 0, 2, 2, whose variance is 4/3
    assert split_r_hat(draws)[0] == pytest.approx(np.sqrt(1 + 4 / 3), rel=0.012)


def test_splitting_sees_a_trend_within_one_chain() -> None:
    draws = autoregressive(0.0, (1, 2000, 1)) + np.linspace(0, 3, 2000)[None, :, None]
    assert split_r_hat(draws)[0] > 1.2
    assert effective_sample_size(draws)[0] < 20


def test_ess_is_small_where_chains_disagree() -> None:
    draws = autoregressive(0.0, (4, 1000, 1))
    draws[0] += 5
    assert effective_sample_size(draws)[0] < 20


def test_ess_of_antithetic_draws_is_bounded() -> None:
    draws = autoregressive(-0.95, (4, 1000, 1))
    assert 4000 < effective_sample_size(draws)[0] <= 4000 * np.log10(4000)


def test_autocovariance_is_the_plain_sum() -> None:
    x = np.random.default_rng(0).normal(size=(2, 37, 3))
    covariance = _autocovariance(x)
    centred = x - x.mean(axis=1, keepdims=True)
    for lag in range(37):
        direct = np.sum(centred[:, : 37 - lag] * centred[:, lag:], axis=1) / 37
        np.testing.assert_allclose(covariance[:, lag], direct, atol=1e-12)


def test_parameters_do_not_mix() -> None:
    draws = autoregressive(0.7, (3, 101, COLUMNS_PER_BLOCK + 5))
    for statistic in (split_r_hat, effective_sample_size):
        whole = statistic(draws)
        assert whole.shape == (COLUMNS_PER_BLOCK + 5,)
        np.testing.assert_allclose(whole[-3:], statistic(draws[..., -3:]), rtol=1e-10)


def test_units_do_not_matter() -> None:
    draws = autoregressive(0.7, (4, 500, 2))
    for statistic in (split_r_hat, effective_sample_size):
        np.testing.assert_allclose(statistic(1e-5 * draws + 3), statistic(draws), rtol=1e-6)


def test_constant_draws_have_no_value() -> None:
    draws = np.zeros((2, 10, 1))
    assert np.isnan(split_r_hat(draws)[0]) and np.isnan(effective_sample_size(draws)[0])


@pytest.mark.parametrize("shape", [(10,), (4, 10), (4, 3, 2), (0, 10, 2)])
def test_wrong_shapes_are_rejected(shape: tuple[int, ...]) -> None:
    for statistic in (split_r_hat, effective_sample_size):
        with pytest.raises(ValueError, match="at least 4 samples"):
            statistic(np.zeros(shape))
