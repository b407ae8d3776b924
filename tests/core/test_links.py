"""Links: derivatives, tails and Gaussian averages of P(y = 0 | z)."""

import numpy as np
import pytest
from scipy import integrate, special

from bagwise.core.links import Link, Logistic, Probit

LINKS = [Logistic(), Probit()]
MIDDLE = np.linspace(-6, 6, 41)
WIDE = np.concatenate([np.linspace(-1e3, 1e3, 2001), [-37.5, -30.0, -5.0, -1e-300, 0.0, 1e-300]])

each_link = pytest.mark.parametrize("link", LINKS, ids=lambda k: type(k).__name__)


def slope(f, z: np.ndarray, step: float = 1e-3) -> np.ndarray:
    """Derivative by Richardson's extrapolation of central differences (error of order step^4)."""

    def central(h: float) -> np.ndarray:
        return (f(z + h) - f(z - h)) / (2 * h)

    return (4 * central(step / 2) - central(step)) / 3


@each_link
def test_the_two_labels_share_the_probability(link: Link) -> None:
    both = np.exp(link.log_negative(MIDDLE)) + np.exp(link.log_negative(-MIDDLE))
    np.testing.assert_allclose(both, 1, atol=1e-15)


def test_log_negative_is_the_textbook_link() -> None:
    z = np.linspace(-5, 5, 11)
    np.testing.assert_allclose(np.exp(Logistic().log_negative(z)), 1 / (1 + np.exp(z)), rtol=1e-13)
    expected = 0.5 * special.erfc(z / np.sqrt(2))
    np.testing.assert_allclose(np.exp(Probit().log_negative(z)), expected, rtol=1e-13)


@each_link
def test_hazard_is_minus_the_slope_of_log_negative(link: Link) -> None:
    np.testing.assert_allclose(link.hazard(MIDDLE), -slope(link.log_negative, MIDDLE), atol=1e-9)


@each_link
def test_kappa_is_the_log_slope_of_the_hazard(link: Link) -> None:
    np.testing.assert_allclose(link.kappa(MIDDLE), slope(link.log_hazard, MIDDLE), atol=1e-9)


@each_link
def test_chi_is_the_third_derivative_over_the_first(link: Link) -> None:
    second = slope(lambda z: link.kappa(z) * link.hazard(z), MIDDLE)
    np.testing.assert_allclose(link.chi(MIDDLE), second / link.hazard(MIDDLE), rtol=1e-7, atol=1e-7)


@each_link
def test_log_minus_log_negative(link: Link) -> None:
    np.testing.assert_allclose(
        link.log_minus_log_negative(MIDDLE), np.log(-link.log_negative(MIDDLE)), atol=1e-9
    )


@each_link
@pytest.mark.parametrize("seam", [-30.0, -5.0])
def test_branches_meet_without_a_step(link: Link, seam: float) -> None:
    left, right = np.nextafter(seam, -np.inf), np.nextafter(seam, np.inf)
    for f in (link.log_minus_log_negative, link.log_hazard):
        values = f(np.array([left, right]))
        np.testing.assert_allclose(values[0], values[1], rtol=1e-12)


@each_link
@pytest.mark.parametrize(
    "name",
    ["log_negative", "log_minus_log_negative", "log_hazard", "hazard", "kappa", "chi"],
)
def test_extremes_are_finite(link: Link, name: str) -> None:
    assert np.all(np.isfinite(getattr(link, name)(WIDE)))


@each_link
def test_hazard_and_kappa_keep_their_sign_everywhere(link: Link) -> None:
    assert np.all(link.hazard(WIDE) >= 0)
    assert np.all(link.kappa(WIDE) >= 0)


def test_probit_tails_follow_the_asymptotic_series() -> None:
    # Mills ratio: r(z) = z + 1/z - 2/z^3 + 10/z^5 - ... for large z.
    z = np.array([50.0, 200.0, 1000.0])
    series = 1 / z - 2 / z**3 + 10 / z**5
    np.testing.assert_allclose(Probit().kappa(z), series, rtol=1e-6)
    low = np.array([-45.0, -1000.0])
    np.testing.assert_allclose(
        Probit().log_minus_log_negative(low), special.log_ndtr(low), rtol=1e-13
    )


def quadrature_moments(link: Link, mean: float, variance: float) -> tuple[float, float]:
    """E[p] and E[p^2], p = P(y = 0 | f), by adaptive quadrature over the standardised f."""
    sd = np.sqrt(variance)

    def integrand(t: float, power: int) -> float:
        log_weight = -0.5 * t**2 - 0.5 * np.log(2 * np.pi)
        return float(np.exp(power * link.log_negative(np.array(mean + sd * t)) + log_weight))

    centre = np.clip(-mean / sd, -9, 9)  # where the link bends
    return tuple(
        integrate.quad(
            integrand, -12, 12, args=(k,), points=[centre, 0], limit=200, epsabs=1e-14, epsrel=1e-11
        )[0]
        for k in (1, 2)
    )


@each_link
@pytest.mark.parametrize("mean", [-8.0, -2.5, 0.0, 1.0, 5.0, 9.0])
@pytest.mark.parametrize("variance", [1e-6, 0.1, 1.0, 2.2, 2.3, 5.0, 25.0, 100.0])
def test_moments_match_quadrature(link: Link, mean: float, variance: float) -> None:
    found = link.moments(np.array([mean]), np.array([variance]))
    first, second = quadrature_moments(link, mean, variance)
    np.testing.assert_allclose(np.exp(found.log_negative), first, rtol=1e-6, atol=1e-8)
    square = np.exp(2 * found.log_negative + found.log_ratio)
    np.testing.assert_allclose(square, second, rtol=1e-5, atol=1e-8)


def log_quadrature(link: Link, mean: float, variance: float) -> tuple[float, float, float]:
    """log P(y = 0), log P(y = 1) and the standard deviation, all positive terms in logs."""
    t = np.linspace(-38, 38, 40_001)
    log_density = -0.5 * t**2 - 0.5 * np.log(2 * np.pi) + np.log(t[1] - t[0])
    f = mean + np.sqrt(variance) * t
    logs = [special.logsumexp(link.log_negative(s * f) + log_density) for s in (1, -1)]
    rare = int(np.argmin(logs))
    logs[1 - rare] = np.log1p(-np.exp(logs[rare]))
    p = np.exp(link.log_negative((1 - 2 * rare) * f) - logs[rare])
    return *logs, float(np.exp(logs[rare]) * np.sqrt(np.sum((p - 1) ** 2 * np.exp(log_density))))


@each_link
@pytest.mark.parametrize("mean", [-25.0, -11.0, 8.5, 20.0])
@pytest.mark.parametrize("variance", [0.01, 0.5, 1.5, 6.0, 20.0, 70.0])
def test_rare_labels_keep_their_digits(link: Link, mean: float, variance: float) -> None:
    found = link.moments(np.array([mean]), np.array([variance]))
    negative, positive, std = log_quadrature(link, mean, variance)
    np.testing.assert_allclose(found.log_negative, negative, rtol=1e-6)
    np.testing.assert_allclose(found.log_positive, positive, rtol=1e-6)
    np.testing.assert_allclose(found.std, std, rtol=1e-5)


@pytest.mark.parametrize(
    ("mean", "variance", "log_p"),
    [(-2000.0, 400.0, -1800.0), (-3000.0, 900.0, -2550.0), (-2000.0, 2500.0, -803.164)],
)
def test_labels_rarer_than_any_number(mean: float, variance: float, log_p: float) -> None:
    """E e^f where the sigmoid's tail decides, P(f > 0) where the Gaussian's does (a nat or two)."""
    found = Logistic().moments(np.array([mean]), np.array([variance]))
    assert found.log_positive[0] == pytest.approx(log_p, rel=2e-3)
    found = Logistic().moments(np.array([-mean]), np.array([variance]))
    assert found.log_negative[0] == pytest.approx(log_p, rel=2e-3)


@each_link
@pytest.mark.parametrize("p", [1e-9, 1e-12])
def test_deviations_of_confident_labels(link: Link, p: float) -> None:
    mean = -np.log(1 / p) if isinstance(link, Logistic) else float(special.ndtri(p)) * np.sqrt(1.4)
    for sign in (1, -1):
        found = link.moments(np.array([sign * mean]), np.array([0.4]))
        assert found.std[0] == pytest.approx(log_quadrature(link, sign * mean, 0.4)[2], rel=1e-6)


@each_link
def test_moments_broadcast_and_vanish_to_a_point(link: Link) -> None:
    mean, variance = MIDDLE[:, None], np.array([0.0, 0.5, 4.0])
    found = link.moments(mean, variance)
    assert all(x.shape == (len(MIDDLE), 3) for x in found)
    np.testing.assert_allclose(found.log_negative[:, 0], link.log_negative(MIDDLE), rtol=1e-10)
    np.testing.assert_allclose(found.std[:, 0], 0, atol=1e-12)


@each_link
def test_moments_are_mirrored(link: Link) -> None:
    mean, variance = np.array([-7.0, -1.0, 0.0, 1.0, 7.0]), np.full(5, 1.7)
    found = link.moments(mean, variance)
    np.testing.assert_allclose(found.log_positive, found.log_negative[::-1], rtol=1e-9)
    both = np.exp(found.log_positive) + np.exp(found.log_negative)
    np.testing.assert_allclose(both, 1, atol=1e-12)
    np.testing.assert_allclose(found.std, found.std[::-1], rtol=1e-8)


@each_link
def test_moments_at_extremes_are_probabilities(link: Link) -> None:
    mean = np.array([-1e3, -40.0, 0.0, 40.0, 1e3])[:, None]
    found = link.moments(mean, np.array([0.0, 1e-6, 1.0, 100.0, 1e4]))
    for logs in (found.log_negative, found.log_positive):
        assert np.all(logs <= 0) and np.all(np.isfinite(logs))
    assert np.all((found.std >= 0) & (found.std <= 0.5))


@pytest.mark.parametrize("kt", [0.0, 1e-6, 0.01, 0.1, 1.0, 4.0, 30.0, 150.0, 3e3, 1e12])
@each_link
def test_smoothing_averages_over_the_residual(link: Link, kt: float) -> None:
    f = np.linspace(-20, 20, 81)[None]
    log_first, log_ratio = link.log_smoothed(f, np.array([kt]), second=True)
    expected = link.moments(f, np.array([[kt]]))
    np.testing.assert_allclose(log_first, expected.log_negative, rtol=1e-3, atol=1e-9)
    np.testing.assert_allclose(log_ratio, expected.log_ratio, rtol=0.03, atol=1e-5)
    alone, nothing = link.log_smoothed(f, np.array([kt]), second=False)
    assert nothing is None
    np.testing.assert_array_equal(alone, log_first)


@each_link
def test_rows_of_any_width_are_smoothed_each_by_itself(link: Link) -> None:
    f, kt = np.linspace(-9, 9, 36).reshape(4, 9), np.array([0.01, 9.0, 1e5, 5.0])
    together = link.log_smoothed(f, kt, second=True)
    for i in range(4):
        alone = link.log_smoothed(f[i : i + 1], kt[i : i + 1], second=True)
        np.testing.assert_array_equal([m[i] for m in together], [m[0] for m in alone])


@each_link
def test_what_is_certain_stays_certain_under_any_residual(link: Link) -> None:
    kt = np.array([0.0, 0.5, 4.0, 5.0, 30.0])
    for logs in link.log_smoothed(np.full((5, 1), -60.0), kt, second=True):
        np.testing.assert_allclose(logs, 0, atol=1e-14)


@pytest.mark.parametrize("parent", [Logistic, Probit])
def test_links_of_others_compute_their_own(
    parent: type[Link], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bagwise.core.links.LINKS", {})

    class Steep(parent):  # type: ignore[misc, valid-type]
        name = "steep"

        def log_minus_log_negative(self, z: np.ndarray) -> np.ndarray:
            return super().log_minus_log_negative(2 * z)

        def log_hazard(self, z: np.ndarray) -> np.ndarray:
            return super().log_hazard(2 * z) + np.log(2)

    for link in (parent(), Steep()):
        cost, hazard = link.log_cost_and_hazard(MIDDLE)
        np.testing.assert_allclose(cost, link.log_minus_log_negative(MIDDLE), rtol=1e-13)
        np.testing.assert_allclose(hazard, link.log_hazard(MIDDLE), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("z", [np.array([-np.inf, np.inf]), np.array([-20, 0.5, 20], np.float32)])
def test_logs_of_infinite_and_short_numbers(z: np.ndarray) -> None:
    cost, hazard = Probit().log_cost_and_hazard(z)
    exact = Probit().log_cost_and_hazard(z.astype(np.float64))
    np.testing.assert_array_equal([cost, hazard], exact)
    assert np.all(np.diff(cost) > 0) and np.all(np.diff(hazard) > 0)


def test_probabilities_at_the_end_of_the_numbers_have_deviations() -> None:
    """About 1e-308: their inverse is no number."""
    found = Logistic().moments(np.linspace(37_000, 38_600, 50), np.full(50, 1e6))
    assert np.all(np.isfinite(found.log_ratio)) and np.all(np.isfinite(found.std))
    assert np.all(np.diff(found.log_positive) > -1e-9) and np.all(np.diff(found.log_negative) < 0)
