"""What a user may add from outside of the package: one small example of each kind.

CONTRIBUTING says how; `tests/contracts/test_extensions.py` fits, saves, loads and predicts with
them. Nothing of the package knows this module.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

import bagwise as bw
from bagwise.core.inference.stats import (
    Chunk,
    ClimbableSites,
    Derivatives,
    FoldedLikelihood,
    Precision,
    Q,
    Stats,
    diagonal_precision,
    diagonal_stats,
    latent_mean,
)
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.rules import BagRule
from bagwise.core.links import Link, Moments, Probit
from bagwise.kernels import RBF, Kernel
from bagwise.models import GaussianProcessMIL, Init, Parts

Array = NDArray[Any]


# --- A kernel ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Cauchy(Kernel):
    """variance / (1 + d^2 / lengthscale^2), d the distance."""

    variance: float = 1.0
    lengthscale: float = 1.0

    def cross(self, X: Array, Z: Array) -> Array:
        return X.dtype.type(self.variance) / (1 + self._r2(X, Z))

    def diag(self, X: Array) -> Array:
        return np.full(len(X), self.variance, dtype=X.dtype)

    def pullback(self, X: Array, Z: Array, G: Array) -> Array:
        K, r2 = self.cross(X, Z), self._r2(X, Z)
        return np.array([np.sum(G * K), np.sum(G * K * 2 * r2 / (1 + r2))])

    def pullback_diag(self, X: Array, g: Array) -> Array:
        return np.array([self.variance * np.sum(g), 0.0])

    def anchored(self, variance: float, lengthscale: float) -> Kernel:
        return replace(self, variance=variance, lengthscale=lengthscale)

    def _r2(self, X: Array, Z: Array) -> Array:
        return (cdist(X, Z, "sqeuclidean") / self.lengthscale**2).astype(X.dtype)


# --- A psi ---------------------------------------------------------------------------------------


@bw.io.register
@dataclass(frozen=True)
class HeavyPsi:
    """psi(x) = (1 + x^2 / scale^2)^-1."""

    scale: float = 3.0

    def log_psi(self, xi: Array) -> Array:
        return -np.log1p((xi / self.scale) ** 2)

    def theta(self, xi: Array) -> Array:
        return 2 / (self.scale**2 + xi**2)


# --- A bag likelihood: a link, and a rule --------------------------------------------------------


class WideProbit(Link):
    """P(y = 1 | z) = Phi(z / 2)."""

    name = "wide-probit"
    residual_weight = 0.25
    probit = Probit()

    def log_negative(self, z: Array) -> Array:
        return self.probit.log_negative(z / 2)

    def log_minus_log_negative(self, z: Array) -> Array:
        return self.probit.log_minus_log_negative(z / 2)

    def log_hazard(self, z: Array) -> Array:
        return self.probit.log_hazard(z / 2) - np.log(2)

    def ratios(self, z: Array, r: Array) -> tuple[Array, Array]:
        kappa, chi = self.probit.ratios(z / 2, 2 * r)
        return kappa / 2, chi / 4

    def moments(self, mean: Array, variance: Array) -> Moments:
        return self.probit.moments(mean / 2, variance / 4)

    def log_smoothed(self, f: Array, kt: Array, *, second: bool) -> tuple[Array, Array | None]:
        return self.probit.log_smoothed(f / 2, kt / 4, second=second)


class LeakyRule(BagLikelihood):
    """A bag without any positive instance is positive all the same with probability `leak`."""

    def __init__(self, link: Link, leak: float) -> None:
        self.leak = leak
        super().__init__(link)

    def rates(self) -> tuple[float, float]:
        return self.leak, 0.0

    def of_bags(self, some_positive: Moments) -> Moments:
        log_negative = np.log1p(-self.leak) + some_positive.log_negative
        return Moments(log_negative, np.log(-np.expm1(log_negative)), some_positive.log_ratio)


@bw.io.register
@dataclass(frozen=True)
class Quarter(BagRule):
    """A bag is positive if at least a quarter of its instances is."""

    def log_label(self, k: Array, n: Array, label: Array, reliability: Array | float) -> Array:
        right = (4 * k >= n) == np.asarray(label, dtype=bool)
        with np.errstate(divide="ignore"):
            return np.log(np.where(right, reliability, 1 - np.asarray(reliability)))


# --- A model -------------------------------------------------------------------------------------


class WideSites(ClimbableSites):
    """m_n ~ N(f_n, 4 + kt_n), a bag of the leaky rule where any m is positive."""

    def __init__(self, likelihood: BagLikelihood) -> None:
        self.folded = FoldedLikelihood(likelihood, likelihood.link.residual_weight)

    def local_step(self, chunk: Chunk, q: Q) -> Stats:
        b, mu = self.folded.scale(chunk.kt), latent_mean(chunk, q)
        log_prob, g = self.folded.likelihood.log_prob_and_gradient(b * mu, chunk.targets)
        eta = (b / 2) ** 2 * mu + b * g  # E[m] / s^2, E[m] = mu + s^2 d log p / d mu, s = 2 / b
        return diagonal_stats(chunk, eta, (b / 2) ** 2, chunk.targets.total_of_bags(log_prob))

    def precision(self, chunk: Chunk) -> Precision:
        lam = chunk.targets.counted_rows((self.folded.scale(chunk.kt) / 2) ** 2)
        return diagonal_precision(chunk.A, lam)

    def constant_bound(self, chunk: Chunk) -> float:
        return 0.0

    def log_prob(self, chunk: Chunk, m: Array, c0: float) -> float:
        return self.folded.log_prob(chunk, m, c0)

    def derivatives(self, chunk: Chunk, m: Array, c0: float) -> Derivatives:
        return self.folded.derivatives(chunk, m, c0)


class LeakyMIL(GaussianProcessMIL, alias="leaky"):
    """Gaussian-process MIL with the wide probit link and the leaky rule."""

    def __init__(self, *, leak: float = 0.05, **shared: Any) -> None:
        super().__init__(**shared)
        self.leak = leak

    def _parts(self, init: Init = None) -> Parts:
        likelihood = LeakyRule(WideProbit(), self.leak)
        return Parts(likelihood, WideSites(likelihood), variance=16.0)


# --- A coupling ----------------------------------------------------------------------------------


@bw.io.register
@dataclass(frozen=True)
class Fading:
    """All instances of a bag are neighbours, by exp(-distance / reach)."""

    reach: float = 1.0

    def __call__(self, bags: bw.Bags) -> Any:
        places = np.split(np.asarray(bags.coords, dtype=np.float64), bags.offsets[1:-1])
        blocks = [np.exp(-cdist(xy, xy) / self.reach) - np.eye(len(xy)) for xy in places]
        return sparse.block_diag(blocks, format="csr")


# --- Models that use them ------------------------------------------------------------------------

SHARED = {"n_inducing": 8, "random_state": 0, "bag_score": "joint"}


def models() -> dict[str, Any]:
    """A model not yet fitted for each kind of extension, by the name that its file knows it by."""
    return {
        "Cauchy": bw.ProbitVGPMIL(kernel=Cauchy(), **SHARED),
        "HeavyPsi": bw.PsiVGPMIL(psi=HeavyPsi(), **SHARED),
        "LeakyMIL": LeakyMIL(**SHARED),
        "Quarter": bw.ProbitVGPMIL(rule=Quarter(), kernel=RBF(4.0, 2.0), **SHARED),
        "Fading": bw.IsingVGPMIL(neighbors=Fading(2.0), coupling=0.3, **SHARED),
    }


def bags() -> bw.Bags:
    """Thirty bags of one to four instances on a line; one of a positive bag lies apart."""
    rng = np.random.default_rng(0)
    y = np.arange(30) % 2
    sizes = rng.integers(1, 5, 30)
    X = rng.normal(size=(sizes.sum(), 2))
    X[(np.cumsum(sizes) - sizes)[y == 1], 0] += 5
    coords = np.concatenate([np.arange(n) for n in sizes])[:, None]
    return bw.Bags.from_arrays(X, np.repeat(np.arange(30), sizes), y=y, coords=coords)
