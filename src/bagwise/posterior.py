"""Predictions from q(v): latent moments, instance and bag probabilities with their spread."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.stats import qmc

from bagwise.execution import DEFAULT_CHUNK, bag_cuts
from bagwise.features import Whitener, kernel_matrix, whitener
from bagwise.kernels import Kernel
from bagwise.label_posterior import BagDraws, BagLabels, given_labels
from bagwise.labels import BagLikelihood
from bagwise.links import Link, Logistic, Probit
from bagwise.parameters import check_choice, check_integer, check_number
from bagwise.rows import scaled_rows

Array = NDArray[Any]

LINKS: dict[str, type[Link]] = {"logistic": Logistic, "probit": Probit}
BAG_SCORES = ("joint", "noisy-or", "max")
LOG2_DRAWS = 10  # 1024 Sobol points: 3e-4 relative error at rank 15, 1.5e-3 at rank 200
MAX_DIMENSIONS = 2000  # directions sampled per bag; the eigenbasis puts the large ones first
ROWS_PER_BLOCK = 2048
LARGEST = 1e100  # of any number in a posterior; squares of larger ones overflow


class FeaturePosterior(ABC):
    """Predictions where f_n = c0 + a_n'v + r_n, v ~ N(m, S), r_n ~ N(0, kt_n).

    Subclasses are frozen dataclasses that say what the features a_n and kt_n of an instance are.
    """

    m: Array  # (M,)
    S: Array  # (M, M)
    c0: float
    link: str
    seed: int  # of the Sobol points: predictions of one fitted model are deterministic

    @abstractmethod
    def features(self, X: Array) -> tuple[Array, Array]:
        """A (n, M) and kt (n,) of instances in raw units."""

    def latent(self, X: Array) -> tuple[Array, Array]:
        """Mean and variance of f_n: c0 + a_n'm and a_n'S a_n + kt_n."""
        mean, variance = np.empty(len(X)), np.empty(len(X))
        for start in range(0, len(X), DEFAULT_CHUNK):
            rows = slice(start, start + DEFAULT_CHUNK)
            A, kt = self.features(X[rows])
            mean[rows] = self.c0 + A @ self.m.astype(A.dtype)
            spread = np.einsum("nm,nm->n", A @ self.S.astype(A.dtype), A)
            variance[rows] = np.maximum(spread, 0) + kt
        return mean, variance

    def instances(self, X: Array) -> tuple[Array, Array]:
        """P(y_n = 1) and the standard deviation of P(y_n = 1 | f_n) over the posterior of f_n."""
        return self.link_function.positive_moments(*self.latent(X))

    def bags(self, X: Array, offsets: Array, score: str) -> tuple[Array, Array]:
        """Probability that a bag is positive, and its posterior standard deviation.

        ``joint`` integrates over q(v) what all instances of a bag share, ``noisy-or`` takes
        instances as independent [C24, Eq. 34-37], ``max`` is the most probable instance.
        """
        scores = {
            "joint": self._joint_bags,
            "noisy-or": self._noisy_or_bags,
            "max": self._max_bags,
        }
        return scores[check_choice("bag_score", score, BAG_SCORES)](X, offsets)

    def _max_bags(self, X: Array, offsets: Array) -> tuple[Array, Array]:
        return most_probable(*self.instances(X), offsets)

    def _noisy_or_bags(self, X: Array, offsets: Array) -> tuple[Array, Array]:
        return noisy_or(*self.link_function.negative_moments(*self.latent(X)), offsets)

    def _joint_bags(self, X: Array, offsets: Array) -> tuple[Array, Array]:
        logs = [self._joint_bag(mu, kt, G) for mu, kt, G in self.bag_features(X, offsets)]
        log_first, log_second = np.array(logs).T
        return positive_from_logs(log_first, log_second)

    def given_labels(
        self, X: Array, offsets: Array, labels: Sequence[BagLabels], likelihood: BagLikelihood
    ) -> tuple[Array, Array]:
        """P(y_n = 1 | bag label, known labels) and its standard deviation, (n,) each."""
        bags = zip(self.bag_draws(X, offsets), labels, strict=True)
        found = [given_labels(draws, known, likelihood) for draws, known in bags]
        mean, std = (np.concatenate(part) for part in zip(*found, strict=True))
        return mean, std

    def bag_draws(self, X: Array, offsets: Array) -> Iterator[BagDraws]:
        """Draws of the latent values of each bag, over what its instances share."""
        for mu, kt, G in self.bag_features(X, offsets):
            yield self.draws_of(mu, kt, G)

    def draws_of(self, mu: Array, kt: Array, G: Array) -> BagDraws:
        """Sobol draws of f ~ N(mu, G G' + diag(kt)) of one bag in its eigenbasis."""
        U, limit = principal_factor(G), self._draws.shape[1]
        kt = kt + np.sum(U[:, limit:] ** 2, axis=1)  # what is not sampled jointly
        U = U[:, :limit]
        return BagDraws(self.link_function, mu, U, self._draws[:, : U.shape[1]], kt)

    def bag_features(self, X: Array, offsets: Array) -> Iterator[tuple[Array, Array, Array]]:
        """mu (n,), kt (n,) and G (n, M) with Cov(A v) = G G', bag by bag."""
        for A, kt, bags in self._bag_chunks(X, offsets):
            mu, G = self.c0 + A @ self.m, A @ self._S_root
            for rows in bags:
                yield mu[rows], kt[rows], G[rows]

    def _bag_chunks(self, X: Array, offsets: Array) -> Iterator[tuple[Array, Array, list[slice]]]:
        """A (n, M), kt (n,) and the rows of each bag, chunk by chunk."""
        offsets = np.asarray(offsets)
        for first, last in itertools.pairwise(bag_cuts(offsets, DEFAULT_CHUNK)):
            ends = offsets[first : last + 1] - offsets[first]
            A, kt = self.features(X[offsets[first] : offsets[last]])
            yield A, kt, [slice(a, b) for a, b in itertools.pairwise(ends)]

    def _joint_bag(self, mu: Array, kt: Array, G: Array) -> tuple[float, float]:
        """Logs of E[P0] and E[P0^2], P0 = prod_n P(y_n = 0 | f_n), over v (Sobol) and residuals."""
        if len(mu) == 1:
            first, second = self.link_function.negative_moments(mu, kt + np.sum(G**2, axis=1))
            with np.errstate(divide="ignore"):
                return float(np.log(first[0])), float(np.log(second[0]))
        U = principal_factor(G)
        kt = kt + np.sum(U[:, MAX_DIMENSIONS:] ** 2, axis=1)  # what is not sampled jointly
        U = U[:, :MAX_DIMENSIONS]  # (n, r)
        draws = self._draws[:, : U.shape[1]]  # (1024, r)
        logs = np.zeros((2, len(draws)))
        for start in range(0, len(mu), ROWS_PER_BLOCK):
            rows = slice(start, start + ROWS_PER_BLOCK)
            f = mu[rows, None] + U[rows] @ draws.T  # (n, 1024)
            with np.errstate(divide="ignore"):
                moments = np.log(self.link_function.smoothed_negative(f, kt[rows]))
            logs += moments.sum(axis=1)
        first, second = special.logsumexp(logs, axis=1) - np.log(len(draws))
        return float(first), float(second)

    @cached_property
    def link_function(self) -> Link:
        """The link that `link` names."""
        return LINKS[self.link]()

    @cached_property
    def _S_root(self) -> Array:
        """R with R R' = S."""
        values, vectors = np.linalg.eigh(self.S)
        return vectors * np.sqrt(np.maximum(values, 0))

    @cached_property
    def _draws(self) -> Array:
        """Standard normal Sobol points; the number of columns never depends on the bags asked."""
        sobol = qmc.Sobol(min(len(self.m), MAX_DIMENSIONS), scramble=True, seed=self.seed)
        return special.ndtri(np.clip(sobol.random_base2(LOG2_DRAWS), 1e-12, 1 - 1e-12))


def check_part(name: str, value: Any, shape: tuple[int, ...]) -> None:
    """Raise where a part of a posterior is no array of this shape of usable numbers."""
    array = np.asarray(value)
    if array.shape != shape or array.dtype.kind != "f" or not np.all(np.abs(array) < LARGEST):
        raise ValueError(f"posterior: {name} must be numbers below {LARGEST:g} of shape {shape}")


@dataclass(frozen=True)
class Posterior(FeaturePosterior):
    """Everything a prediction needs: q(v), the kernel, the inducing points and the scaling."""

    kernel: Kernel
    Z: Array  # (M, D), scaled
    m: Array  # (M,)
    S: Array  # (M, M)
    c0: float
    link: str
    shift: Array  # (D,)
    scale: Array  # (D,)
    jitter: float
    seed: int  # of the Sobol points: predictions of one fitted model are deterministic

    def __post_init__(self) -> None:
        """Model files come from anywhere: what does not fit together is refused here."""
        M, D = np.shape(self.Z) if np.ndim(self.Z) == 2 else (-1, -1)
        shapes = {"Z": (M, D), "m": (M,), "S": (M, M), "shift": (D,), "scale": (D,)}
        for name, shape in shapes.items():
            check_part(name, getattr(self, name), shape)
        check_choice("posterior: link", self.link, LINKS)
        check_number("posterior: c0", self.c0)
        check_number("posterior: jitter", self.jitter, above=0)
        check_integer("posterior: seed", self.seed, at_least=0)
        if not (isinstance(self.kernel, Kernel) and np.all(self.scale > 1 / LARGEST)):
            raise ValueError("posterior: kernel and scale must be valid")
        self.kernel.check_features(D)

    def scaled(self, X: Array) -> Array:
        """Features in the units the kernel sees, in the dtype of `X`."""
        return scaled_rows(X, self.shift, self.scale, X.dtype)

    def features(self, X: Array) -> tuple[Array, Array]:
        """Whitened kernel features and residual variances."""
        return self._whitener(self.scaled(X))

    def residual_root(self, X: Array) -> Array:
        """R (n, n) with R R' = K_XX - A A', the covariance of the residuals of these instances."""
        Xs = np.asarray(self.scaled(X), dtype=np.float64)
        A, _ = self._whitener(Xs)
        values, vectors = np.linalg.eigh(kernel_matrix(self.kernel, Xs) - A @ A.T)
        return vectors * np.sqrt(np.maximum(values, 0))

    @cached_property
    def _whitener(self) -> Whitener:
        return whitener(self.kernel, self.Z, self.jitter)


def principal_factor(G: Array) -> Array:
    """U with U U' = G G', orthogonal columns by falling length, negligible ones dropped."""
    n, M = G.shape
    if n <= M:
        values, vectors = np.linalg.eigh(G @ G.T)
        U = vectors * np.sqrt(np.maximum(values, 0))
    else:
        U = G @ np.linalg.eigh(G.T @ G)[1]
    lengths = np.einsum("nr,nr->r", U, U)
    order = np.argsort(-lengths, kind="stable")
    order = order[lengths[order] > 1e-12 * max(lengths.max(), 1e-300)]
    U = U[:, order]
    # The sign of an eigenvector is arbitrary; fixing it keeps predictions reproducible.
    top = np.argmax(np.abs(U), axis=0)
    return U * np.where(U[top, np.arange(U.shape[1])] < 0, -1.0, 1.0)


def most_probable(p: Array, std: Array, offsets: Array) -> tuple[Array, Array]:
    """Each bag's largest instance probability with its standard deviation."""
    top = np.array([a + np.argmax(p[a:b]) for a, b in itertools.pairwise(offsets)])
    return p[top], std[top]


def noisy_or(first: Array, second: Array, offsets: Array) -> tuple[Array, Array]:
    """1 - prod_n E[P(y_n = 0)] of each bag and its standard deviation [C24, Eq. 34-37]."""
    with np.errstate(divide="ignore"):
        log_first = np.add.reduceat(np.log(first), offsets[:-1])
        log_second = np.add.reduceat(np.log(second), offsets[:-1])
    return positive_from_logs(log_first, log_second)


def positive_from_logs(log_first: Array, log_second: Array) -> tuple[Array, Array]:
    """1 - P0 and the standard deviation of P0 from the logs of E[P0] and E[P0^2]."""
    variance = np.exp(log_second) - np.exp(2 * log_first)
    # Not -expm1, which is -0.0 where log_first = 0.
    return 0.0 - np.expm1(np.minimum(log_first, 0.0)), np.sqrt(np.maximum(variance, 0))
