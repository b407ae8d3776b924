"""Learning the coupling lambda: do neighbours share their label more than strangers do?

The bound cannot say. In m ~ N(Sigma f, Sigma) a larger lambda means less noise whatever the graph,
and a bag whose instances all agree explains its label best, so that the bound rises with lambda
on any graph, a random one too. What is asked here does not change with the noise. Let
r_n = P(y_n = 1 | T_b) be what the model without coupling says of the instances of a positive bag,
and pi_b their mean. If neighbours i, j had labels with covariance kappa, what r_i and r_j rest on
would be more probable by the factor

    1 + kappa (r_i - pi)(r_j - pi) / (pi (1 - pi))^2

than if they had not. A coupling lambda gives neighbours a correlation, hence kappa; the sum of the
logarithms over all neighbours is its gain in nats, a likelihood of pairs. With nothing but the
places of instances exchanged inside their bags the product of deviations has the mean
-v_b / (n - 1), which is taken off: without structure no gain is expected, on any graph.

A coupled model takes the mean of f that was learned without the coupling in other units
(`coupled_mean`), and is compared with the model without coupling (`agreement`).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, special
from scipy.stats import rankdata

from bagwise.core.inference.passes import Sweeper
from bagwise.core.inference.stats import Chunk, Q, latent_mean
from bagwise.core.likelihoods.at_least_one import Targets
from bagwise.core.likelihoods.coupled.blocks import Coupling, predictive_variance

Array = NDArray[Any]

# Beyond 1 bags were told apart worse than without a coupling [M24, Table 2].
COUPLINGS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.0)


def coupling_gains(sweeper: Sweeper, q: Q) -> Array:
    """Rows (lambda, gain, standard error of the gain over bags), from the q(v) at lambda = 0."""
    return _with_errors(sweeper.total(partial(_chunk_gains, q=q)))


def _with_errors(sums: Array) -> Array:
    """Rows (lambda, gain, standard error) from what `_chunk_gains` adds up."""
    count, total, squares = sums
    spread = np.maximum(squares - total**2 / np.maximum(count, 1), 0)
    error = np.sqrt(spread * count / np.maximum(count - 1, 1))
    return np.column_stack([COUPLINGS, total, error])


def group_gains(sweeper: Sweeper, q: Q, group: Array, n_groups: int) -> Array:
    """(groups, couplings, 3) rows of `coupling_gains` of each group; `group` (N,) is by row."""
    sums = sweeper.total(partial(_chunk_group_gains, q=q, group=group, n_groups=n_groups))
    return np.array([_with_errors(part) for part in sums])


def chosen_coupling(gains: Array) -> float:
    """The smallest lambda whose gain is within one standard error of the largest gain.

    >>> chosen_coupling(np.array([[0.0, 0.0, 0.0], [0.5, 2.0, 1.0], [1.0, 2.5, 1.5]]))
    0.5
    >>> chosen_coupling(np.array([[0.0, 0.0, 0.0], [0.5, 0.8, 1.0], [1.0, 0.5, 1.5]]))
    0.0
    """
    lam, gain, error = gains.T
    best = int(np.argmax(gain))
    return float(lam[np.argmax(gain >= gain[best] - error[best])])


def next_coupling(lam: float) -> float:
    """The largest lambda that is tried below this one.

    >>> next_coupling(0.5), next_coupling(0.05)
    (0.3, 0.0)
    """
    return max(smaller for smaller in COUPLINGS if smaller < lam)


def coupled_mean(sweeper: Sweeper, c0: float, lam: float) -> float:
    """c0 in units of m's deviation: as many of them from 0 with the coupling as without it.

    A priori m_n has the variance 1 + k(x_n, x_n) without a coupling and [Sigma + Sigma K Sigma]_nn,
    which is smaller, with one; its mean is c0 either way. The same c0 would make positives so rare
    that f has to rise in whole bags, most where instances are usual ones: backwards.
    """
    alone, coupled = sweeper.total(partial(_prior_variances, lam=lam))
    return c0 * float(np.sqrt(coupled / alone))


def _prior_variances(chunk: Chunk, lam: float) -> Array:
    """Sums of the prior variances of m without and with a coupling."""
    A, kt = (np.asarray(x, dtype=np.float64) for x in (chunk.A, chunk.kt))
    alone = 1 + kt + np.einsum("nm,nm->n", A, A)
    coupled = predictive_variance(Coupling(chunk.graph, lam), kt, A)
    return np.array([chunk.targets.total_of_rows(x) for x in (alone, coupled)])


def agreement(sweeper: Sweeper, q: Q, other: Q) -> float:
    """Rank correlation of E f under two q inside positive bags; NaN where one has no ranking."""
    both, one, two = sweeper.total(partial(_rank_products, q=q, other=other))
    return float(both / np.sqrt(one * two)) if one * two > 0 else np.nan


def _rank_products(chunk: Chunk, q: Q, other: Q) -> Array:
    """Sums over positive bags of products of ranks, each between -1/2 and 1/2 of its bag."""
    targets, total = chunk.targets, np.zeros(3)
    mu, nu = latent_mean(chunk, q), latent_mean(chunk, other)
    for b in np.flatnonzero(targets.T):
        n = targets.sizes[b]
        rows = slice(targets.starts[b], targets.starts[b] + n)
        r, s = ((rankdata(f[rows]) - (n + 1) / 2) / n for f in (mu, nu))
        count = 1.0 if targets.counts is None else targets.counts[b]
        total += count * np.array([r @ s, r @ r, s @ s])
    return total


def _chunk_gains(chunk: Chunk, q: Q) -> Array:
    """(3, couplings): how many bags tell, the sum of their gains and that of the squares."""
    return np.asarray(_bag_gains(chunk, q).sum(axis=2))


def _chunk_group_gains(chunk: Chunk, q: Q, group: Array, n_groups: int) -> Array:
    """(groups, 3, couplings): the same of the bags of each group."""
    own = group[chunk.start + chunk.targets.starts]
    found = _bag_gains(chunk, q)
    return np.array([found[:, :, own == g].sum(axis=2) for g in range(n_groups)])


def _bag_gains(chunk: Chunk, q: Q) -> Array:
    """(3, couplings, B): whether a bag tells, its gain and the square of that, as it counts."""
    targets = chunk.targets
    z = latent_mean(chunk, q) / np.sqrt(1 + np.asarray(chunk.kt, dtype=np.float64))
    r = instance_posterior(z, targets)
    gains = np.array([pair_gains(r, chunk.graph, targets, lam) for lam in COUPLINGS])
    count = np.full(gains.shape, _telling(r, targets))
    return np.array([targets.counted_bags(x) for x in (count, gains, gains**2)])


def instance_posterior(z: Array, targets: Targets) -> Array:
    """P(y_n = 1 | T_b, known labels) = Phi(z_n) / (1 - P0) in positive bags without coupling.

    >>> bag = Targets(np.array([0]), np.array([2]), np.array([True]))
    >>> instance_posterior(np.zeros(2), bag).round(4)
    array([0.6667, 0.6667])
    """
    log_P0 = targets.sum_bags(np.where(targets.free, special.log_ndtr(-z), 0.0))
    with np.errstate(divide="ignore"):
        log_some = np.where(targets.settled, 0.0, np.log(-np.expm1(log_P0)))
    possible = targets.spread(targets.T & np.isfinite(log_some))
    log_r = special.log_ndtr(z) - targets.spread(np.where(np.isfinite(log_some), log_some, 0.0))
    r = np.where(possible, np.exp(np.minimum(log_r, 0.0)), 0.0)
    return r if targets.known is None else np.where(targets.free, r, targets.known == 1)


def pair_gains(r: Array, graph: sparse.csr_array, targets: Targets, lam: float) -> Array:
    """(B,) nats by which a coupling makes what is known of each bag's neighbours more probable."""
    pi = targets.sum_bags(r) / targets.sizes
    telling = _telling(r, targets)
    deviation = r - targets.spread(pi)
    by_chance = -targets.sum_bags(deviation**2) / targets.sizes / np.maximum(targets.sizes - 1, 1)
    pairs = sparse.triu(graph, k=1).tocoo()
    bag = targets.bag_index[pairs.row]
    product = deviation[pairs.row] * deviation[pairs.col] - by_chance[bag]
    safe = np.where(telling, pi, 0.5)
    kappa = label_covariance(safe, neighbor_correlation(Coupling(graph, lam), targets))
    ratio = np.where(telling, kappa / (safe * (1 - safe)) ** 2, 0.0)
    nats = pairs.data * np.log1p(ratio[bag] * product)
    return np.bincount(bag, nats, minlength=len(pi))


def _telling(r: Array, targets: Targets) -> NDArray[np.bool_]:
    """Bags whose instances differ: two have one pair, and negative bags have no positive."""
    pi = targets.sum_bags(r) / targets.sizes
    inside = (pi > 1e-12) & (pi < 1 - 1e-9)
    return np.asarray(targets.T & (targets.sizes > 2) & inside, dtype=bool)


def neighbor_correlation(coupling: Coupling, targets: Targets) -> Array:
    """(B,) mean correlation of neighbours under Sigma: 1 - tr(R Sigma) / sum_n R_nn Sigma_nn.

    >>> pair = Coupling(sparse.csr_array([[0.0, 1.0], [1.0, 0.0]]), lam=1.0)
    >>> neighbor_correlation(pair, Targets(np.array([0]), np.array([2]), np.array([True])))
    array([0.5])
    """
    if coupling.diagonal:
        return np.zeros(len(targets.sizes))
    variance = coupling.diag()
    trace = targets.sum_bags(1 - variance) / coupling.lam  # lam R Sigma = I - Sigma
    scale = targets.sum_bags(coupling.R.diagonal() * variance)
    return np.where(scale > 0, 1 - trace / np.where(scale > 0, scale, 1.0), 0.0)


def label_covariance(pi: Array, rho: Array) -> Array:
    """Cov(y_i, y_j) for y = 1[m > 0], P(y = 1) = pi and m_i, m_j of correlation rho.

    P(both) = Phi(h) - 2 T(h, sqrt((1 - rho) / (1 + rho))), h = Phi^-1(pi), with Owen's T.

    >>> label_covariance(np.array([0.5]), np.array([0.5])).round(6)  # 1/3 - 1/4
    array([0.083333])
    """
    h = special.ndtri(pi)
    both = pi - 2 * special.owens_t(h, np.sqrt((1 - rho) / (1 + rho)))
    return np.where(rho > 0, np.maximum(both - pi**2, 0.0), 0.0)
