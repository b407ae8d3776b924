"""Bag likelihoods: what bag labels (and known instance labels) say about latent values.

One object serves posterior, bound and prediction. For the free instances of a bag let
l(z) = log P(y = 0 | z) and L_b = sum_n l(z_n) = log P0, the log-probability that all are
negative. A rule says how often T is the other label: alpha = P(T = 1 | all are negative) and
beta = P(T = 0 | one is positive). With h = alpha / (1 - beta) where T = 1, beta / (1 - alpha) where
T = 0, and c = 1 - h,

    log p(T_b | z_b) = F(L_b) + log(1 - beta),   F = log(1 - c e^L)  (T = 1),
                       F(L_b) + log(1 - alpha),  F = log(h + c e^L)  (T = 0),

and every update is a derivative of it: E[y_n] = p_n + d/dz_n for the logistic link,
E[m_n] = mu_n + s_n d/dz_n for the probit link. Known instance labels contribute
log P(y_n | z_n) by themselves and leave the product; a known positive settles its bag. Where
known labels contradict the bag's, the bag is mislabelled and counts log h.
The noisy maximum of [V17, Eq. 3] has alpha = beta = 1 / (1 + H), h = 1 / H; H = inf is the exact
"at least one positive" rule.

Rows that stand for others carry a weight w_n: it multiplies l(z_n), or log P(y_n | z_n) where the
label is known, so that a weight of 3 is a row that is there three times.

Bags have counts c_b besides: c_b log p(T_b | z_b) is what as many copies of a bag would say. All
functions here are of one bag each; whoever sums over bags or rows counts them (`total_of_bags`,
`total_of_rows`, `SecondOrder.counted`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.core.likelihoods.targets import Curvature, SecondOrder, Targets
from bagwise.core.links import Link, Moments

Array = NDArray[Any]
__all__ = ["BagLikelihood", "Curvature", "SecondOrder", "Targets"]


class BagLikelihood:
    """log p(T_b | z_b) of the noisy maximum over a link, with three derivatives, and predictions.

    Another rule is a subclass that says how often labels are the other one (`rates`) and, where
    that is more than a mistake of who wrote the label down, what to predict (`of_bags`).

    >>> from bagwise.core.links import Logistic
    >>> t = Targets(np.array([0]), np.array([2]), np.array([True]))
    >>> like = BagLikelihood(Logistic(), H=np.inf)
    >>> like.log_prob(np.zeros(2), t).round(4)  # log(1 - 1/4)
    array([-0.2877])
    """

    takes_weights = True  # rows may stand for others
    fewest = 1  # positives that make a bag positive
    highest = 0.0  # what log p(T_b | z_b) may be at most

    def __init__(self, link: Link, H: float = np.inf) -> None:
        if not isinstance(H, int | float | np.number) or not H > 1:
            raise ValueError(f"H must be greater than 1 (inf is the exact MIL rule), got {H!r}")
        self.link = link
        self.H = float(H)
        alpha, beta = self.rates()
        if not (alpha >= 0 and beta >= 0 and alpha + beta < 1):
            raise ValueError(f"rates must be from 0 and sum to less than 1, got {alpha}, {beta}")
        self.h = (beta / (1 - alpha), alpha / (1 - beta))  # of T = 0 and of T = 1
        self._log_right = (float(np.log1p(-alpha)), float(np.log1p(-beta)))
        self._log_c = tuple(float(np.log1p(-h)) for h in self.h)
        self._log_h = tuple(-np.inf if h == 0 else float(np.log(h)) for h in self.h)
        self._log_contradiction = self._log_h

    def rates(self) -> tuple[float, float]:
        """alpha = P(T = 1 | no positive instance) and beta = P(T = 0 | some), alpha + beta < 1."""
        return 1 / (1 + self.H), 1 / (1 + self.H)

    def of_bags(self, some_positive: Moments) -> Moments:
        """P(T_b) to predict, averaged over the posterior, from that of a positive instance.

        H is about labels that were written down wrongly: what is predicted is the right one.
        """
        return some_positive

    def with_H(self, H: float) -> BagLikelihood:
        """The same link with another reliability of bag labels."""
        return BagLikelihood(self.link, H)

    def as_exact_rule(self) -> BagLikelihood:
        """The H = inf likelihood from which a fit with finite H starts.

        A bag that known labels contradict keeps its constant: it says nothing about the rest.
        """
        exact = self.with_H(np.inf)
        exact._log_contradiction = self._log_contradiction
        return exact

    def log_all_negative(self, z: Array, targets: Targets) -> Array:
        """log P(no instance of the bag is positive | z), shape (B,); known labels included."""
        return np.where(targets.settled, -np.inf, -np.exp(self._log_minus_L(z, targets)))

    def log_prob(self, z: Array, targets: Targets) -> Array:
        """log p(T_b, known y | z_b) for each bag, shape (B,), every constant kept."""
        return self._log_prob(z, self._log_minus_L(z, targets), targets)

    def gradient(self, z: Array, targets: Targets) -> Array:
        """d log p(T | z) / d z_n, shape (n,)."""
        return self._gradient(z, *self._logs(z, targets), targets)

    def log_prob_and_gradient(self, z: Array, targets: Targets) -> tuple[Array, Array]:
        """Both of the above for one pass over the bags' products."""
        x_log, log_r = self._logs(z, targets)
        return self._log_prob(z, x_log, targets), self._gradient(z, x_log, log_r, targets)

    def _log_prob(self, z: Array, x_log: Array, targets: Targets) -> Array:
        value = np.where(targets.T, self._F_positive(x_log), self._F_negative(x_log))
        if targets.known is not None:
            agrees = targets.settled == targets.T
            fixed = np.where(agrees, 0.0, by_label(self._log_contradiction, targets.T))
            value = np.where(targets.decided, fixed, value)
            sign = np.where(targets.known == 1, -1.0, 1.0)
            own = np.where(targets.free, 0.0, self.link.log_negative(sign * z))
            value = value + targets.sum_bags(targets.weighed(own))
        return value + by_label(self._log_right, targets.T)

    def _gradient(self, z: Array, x_log: Array, log_r: Array, targets: Targets) -> Array:
        u, _ = self._slopes(targets.log_weighed(log_r), x_log, targets)
        g = np.where(targets.spread(targets.T), u, -u)
        if targets.known is None:
            return g
        positive = targets.known == 1
        own = targets.weighed(self.link.hazard(np.where(positive, -z, z)))
        return np.where(targets.free, g, np.where(positive, own, -own))

    def log_label(self, x_log: Array, T: bool) -> tuple[Array, Array]:
        """log P(T | P0) and log P(T | y_n = 1) - log P(T | P0), constants left out, x = -log P0.

        The sum of the second and log P(y_n = 1) is log P(y_n = 1 | T): [C24, Alg. 1]'s q(y_n).
        """
        log_prob = self._F_positive(x_log) if T else self._F_negative(x_log)
        return log_prob, (0.0 if T else self._log_h[0]) - log_prob

    def curvature(self, z: Array, targets: Targets) -> Curvature:
        """Second derivatives, with what the third ones need."""
        return self._curvature(z, *self._logs(z, targets), targets)

    def log_prob_and_curvature(self, z: Array, targets: Targets) -> tuple[Array, Curvature]:
        """Both for one pass over the bags' products."""
        x_log, log_r = self._logs(z, targets)
        return self._log_prob(z, x_log, targets), self._curvature(z, x_log, log_r, targets)

    def _curvature(self, z: Array, x_log: Array, log_r: Array, targets: Targets) -> Curvature:
        u, omega = self._slopes(targets.log_weighed(log_r), x_log, targets)
        T = targets.spread(targets.T)
        g = np.where(T, u, -u)
        r = np.exp(log_r)
        kappa, chi = self.link.ratios(z, r)
        wr = targets.weighed(r)
        w = np.where(T, -u * kappa, u * kappa)
        third = np.where(T, -u * chi, u * chi)
        rank_one = np.where(T, -(wr + 2 * u), wr - 2 * u)
        if targets.known is not None:
            g, w, third = self._with_known(z, targets, g, w, third)
            rank_one = np.where(targets.free, rank_one, 0.0)
        sign = np.where(targets.T, 1.0, -1.0)
        return Curvature(targets, g, w, omega, sign, kappa, third, rank_one)

    def _with_known(self, z: Array, targets: Targets, *free: Array) -> tuple[Array, ...]:
        """Replace gradient, curvature and third derivative of known rows by their own terms."""
        positive = targets.known == 1
        flipped = np.where(positive, -z, z)
        r = self.link.hazard(flipped)
        sign = np.where(positive, 1.0, -1.0)
        kappa, chi = self.link.ratios(flipped, r)
        wr = targets.weighed(r)
        own = (sign * wr, wr * kappa, -sign * wr * chi)
        return tuple(np.where(targets.free, f, o) for f, o in zip(free, own, strict=True))

    def _log_minus_L(self, z: Array, targets: Targets) -> Array:
        """log(-L_b) over free instances; -inf where a bag has none."""
        return self._log_sum(self.link.log_minus_log_negative(z), targets)

    def _logs(self, z: Array, targets: Targets) -> tuple[Array, Array]:
        """The same, and log r of each instance."""
        log_cost, log_r = self.link.log_cost_and_hazard(z)
        return self._log_sum(log_cost, targets), log_r

    def _log_sum(self, log_cost: Array, targets: Targets) -> Array:
        terms = targets.log_weighed(log_cost)
        if targets.known is not None:
            terms = np.where(targets.free, terms, -np.inf)
        top = np.maximum.reduceat(terms, targets.starts)
        shift = np.where(np.isfinite(top), top, 0.0)
        with np.errstate(divide="ignore"):
            return shift + np.log(targets.sum_bags(np.exp(terms - targets.spread(shift))))

    def _slopes(self, log_wr: Array, x_log: Array, targets: Targets) -> tuple[Array, Array]:
        """u = |F'| w r and omega = sqrt|F''| w r of each row, zero if known or in decided bags."""
        log_F1, log_F2 = self._log_F_derivatives(x_log, targets.T)
        if targets.known is not None:
            log_F1 = np.where(targets.decided, -np.inf, log_F1)
            log_F2 = np.where(targets.decided, -np.inf, log_F2)
            log_wr = np.where(targets.free, log_wr, -np.inf)
        u = np.exp(targets.spread(log_F1) + log_wr)
        return u, np.exp(0.5 * targets.spread(log_F2) + log_wr)

    def _log_F_derivatives(self, x_log: Array, T: Array) -> tuple[Array, Array]:
        """log|F'| and log|F''| as functions of log(-L)."""
        # Positive bags: |F'| = rho = c P0 / (1 - c P0), |F''| = rho (1 + rho).
        y_log = self._log_minus_log_cP0(x_log, T)
        y = np.exp(y_log)
        log_1m = _log_one_minus_exp_minus(y_log)
        log_rho, log_1p_rho = -y - log_1m, -log_1m
        # Negative bags: F' = tau = c P0 / (h + c P0), F'' = tau (1 - tau).
        logit = -y - self._log_h[0]
        log_tau, log_1m_tau = special.log_expit(logit), special.log_expit(-logit)
        return (
            np.where(T, log_rho, log_tau),
            np.where(T, log_rho + log_1p_rho, log_tau + log_1m_tau),
        )

    def _F_positive(self, x_log: Array) -> Array:
        return _log_one_minus_exp_minus(self._log_minus_log_cP0(x_log, True))

    def _F_negative(self, x_log: Array) -> Array:
        return np.logaddexp(self._log_h[0], self._log_c[0] - np.exp(x_log))

    def _log_minus_log_cP0(self, x_log: Array, T: Array | bool) -> Array:
        """log(-log(c P0))."""
        if not any(self._log_c):
            return x_log
        with np.errstate(divide="ignore"):  # c = 1
            return np.logaddexp(x_log, np.log(-by_label(self._log_c, T)))


def by_label(pair: tuple[float, ...], T: Array | bool) -> Array:
    """The first value where T = 0, the second where T = 1."""
    return np.where(T, pair[1], pair[0])


def _log_one_minus_exp_minus(y_log: Array) -> Array:
    """log(1 - exp(-y)) as a function of log y, for y from 1e-300 to 1e300 and inf."""
    y = np.exp(np.minimum(y_log, 700.0))
    tiny, large = y_log < -35, y > 0.7
    middle = np.where(tiny | large, 0.5, y)
    near_zero = np.where(tiny, y_log, np.log(-np.expm1(-middle)))
    return np.where(large, np.log1p(-np.exp(-np.where(large, y, 1.0))), near_zero)
