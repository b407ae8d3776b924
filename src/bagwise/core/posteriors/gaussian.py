"""Predictions from q(v): latent moments, instance and bag probabilities with their spread."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.rows import blocks, scaled_rows
from bagwise.core.features import Whitener, whitener
from bagwise.core.files.codec import ModelFileError
from bagwise.core.inference.passes import bag_cuts, by_chunk, rows_per_chunk
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.bag_scores import Predicted, joined, within_bounds
from bagwise.core.links import LINKS, Link, Moments
from bagwise.core.parameters import check_integer, check_number
from bagwise.core.posteriors.given_labels import BagDraws, BagLabels, given_labels
from bagwise.core.posteriors.joint import STAGES, joint_moments
from bagwise.core.posteriors.points import Draws, Latents, ordered_root, standard_normal
from bagwise.core.residuals import factor_residuals, split_residuals
from bagwise.kernels import Kernel

Array = NDArray[Any]

LABEL_DRAWS = 1024  # of f, for probabilities given labels
LARGEST = 1e100  # of any number in a posterior; squares of larger ones overflow


class FeaturePosterior(ABC):
    """Predictions where f = c0 + A v + r in a bag, v ~ N(m, S), r ~ N(0, R).

    Subclasses are frozen dataclasses that say what the features a_n of an instance are, and the
    residuals' covariance R, whose diagonal is kt.
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
        for rows in blocks(len(X), rows_per_chunk(X.shape[1])):
            mean[rows], variance[rows] = self.latent_moments(*self.features(X[rows]))
        return mean, variance

    def latent_moments(self, A: Array, kt: Array) -> tuple[Array, Array]:
        """Mean and variance of f_n from its features."""
        spread = np.einsum("nm,nm->n", A @ self._covariance.astype(A.dtype), A)
        return self.c0 + A @ self.m.astype(A.dtype), np.maximum(spread, 0) + kt

    def instances(self, X: Array) -> tuple[Array, Array]:
        """P(y_n = 1) and the standard deviation of P(y_n = 1 | f_n) over the posterior of f_n."""
        found = self.predicted(X, np.arange(len(X) + 1), joint=False, instances=True)
        assert found.instances is not None
        return np.exp(found.instances.log_positive), found.instances.std

    def bags(self, X: Array, offsets: Array, score: str) -> tuple[Array, Array]:
        """Probability that a bag holds a positive, and its posterior standard deviation."""
        joint = score == "joint"
        found = self.predicted(X, offsets, joint=joint, instances=not joint).bags(score)
        return np.exp(found.log_positive), found.std

    def predicted(
        self,
        X: Array,
        offsets: Array,
        *,
        joint: bool,
        instances: bool,
        second: bool = True,
        stages: tuple[int, ...] = STAGES,
        readout: Array | None = None,
    ) -> Predicted:
        """Everything that predictions are made of, from one computation of the features.

        Without `second` joint probabilities come without their deviations, which cost more.
        `stages` are numbers of Sobol points: bags that the first leave uncertain go on to more.
        With a `readout` (M,) of the features, also the mean of that over the instances of a bag.
        """
        how: dict[str, Any] = {"joint": joint, "instances": instances, "second": second}
        return self.predicted_from(None, X, offsets, **how, stages=stages, readout=readout)

    def predicted_from(
        self,
        given: tuple[Array, Array] | None,
        X: Array,
        offsets: Array,
        *,
        joint: bool,
        instances: bool,
        second: bool,
        stages: tuple[int, ...],
        readout: Array | None = None,
    ) -> Predicted:
        """The same with features that are `given`, A and kt of all rows, or with None."""

        def of_chunk(some: Array, rows: slice, own: Array) -> Predicted:
            starts = own[:-1]
            A, kt = self.features(some) if given is None else (x[rows] for x in given)
            alone = self.instance_moments(A, kt) if instances or joint else None
            of_bags = means = None
            if joint and alone is not None:
                of_bags = self._joint(some, A, kt, starts, alone, second, stages)
            if readout is not None:
                means = np.add.reduceat(A @ readout, starts) / np.diff(own)
            return Predicted(own, alone if instances else None, of_bags, readout=means)

        return joined(np.asarray(offsets), by_chunk(X, offsets, of_chunk))

    def instance_moments(self, A: Array, kt: Array) -> Moments:
        """P(y_n) averaged over the posterior of f_n."""
        return self.link_function.moments(*self.latent_moments(A, kt))

    def _joint(
        self,
        X: Array,
        A: Array,
        kt: Array,
        starts: Array,
        alone: Moments,
        second: bool,
        stages: tuple[int, ...],
    ) -> Moments:
        """Moments of P0 = prod_n P(y_n = 0 | f_n), over v and the residuals, of each bag."""
        found = Moments(*(x[starts] for x in alone))  # that of a bag of one
        several = np.flatnonzero(np.diff(np.append(starts, len(kt))) > 1)
        if len(several) == 0:
            return found
        p = np.exp(alone.log_positive)
        mean, G, rest = self._shared_latents(X, A, kt, starts)
        part = joint_moments(
            Latents(p, p**2 + alone.std**2, mean, A, G, rest, starts).of(several),
            self.link_function,
            self.draws,
            self._S_root,
            second=second,
            stages=stages,
        )
        for values, of_many in zip(found, part, strict=True):
            values[several] = of_many
        return within_bounds(found, alone, starts)

    def residuals(
        self, X: Array, A: Array, kt: Array, weight: Array, starts: Array
    ) -> tuple[Array, Array]:
        """G (n, rank) and rest (n,): the residuals of a bag have covariance G G' + diag(rest)."""
        return np.zeros((len(kt), 0)), kt

    def _steepness(self, f: Array, kt: Array) -> Array:
        """How fast log P(y = 0) falls as f rises, residuals averaged over."""
        scale = 1 / np.sqrt(1 + self.link_function.residual_weight * kt)
        return self.link_function.hazard(f * scale) * scale

    def draws(self, n: int) -> Draws:
        """n Sobol points; they depend on nothing but the posterior and its seed."""
        if n not in self._draw_cache:
            normal, residual = standard_normal(n, len(self.m), self.seed)
            self._draw_cache[n] = Draws(normal, residual, self._S_root)
        return self._draw_cache[n]

    def __getstate__(self) -> dict[str, Any]:
        """Copies for other processes go without what can be computed anew."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    @cached_property
    def _draw_cache(self) -> dict[int, Draws]:
        return {}

    def given_labels(
        self, X: Array, offsets: Array, labels: Sequence[BagLabels], likelihood: BagLikelihood
    ) -> tuple[Array, Array]:
        """P(y_n | bag label, known labels), (n, 2), and its standard deviation, (n,)."""
        settled = np.array([known.settled for known in labels])
        bags = zip(self.bag_draws(X, offsets, settled), labels, strict=True)
        found = [given_labels(draws, known, likelihood) for draws, known in bags]
        mean, std = (np.concatenate(part) for part in zip(*found, strict=True))
        return mean, std

    def bag_draws(self, X: Array, offsets: Array, settled: Array) -> Iterator[BagDraws]:
        """Draws of the latent values of each bag, over what its instances share.

        Of `settled` bags a positive instance is known, so that P(y = 1 | f) matters too.
        """
        draws = self.draws(LABEL_DRAWS)
        points = np.hstack([draws.v, draws.residual])
        offsets = np.asarray(offsets)
        for first, last in itertools.pairwise(bag_cuts(offsets, rows_per_chunk(X.shape[1]))):
            ends = offsets[first : last + 1] - offsets[first]
            rows = X[offsets[first] : offsets[last]]
            A, kt = self.features(rows)
            known = np.repeat(settled[first:last], np.diff(ends))
            mean, G, rest = self._shared_latents(rows, A, kt, ends[:-1], known)
            loadings = np.hstack([A, G])
            used = points[:, : loadings.shape[1]]
            for a, b in itertools.pairwise(ends):
                yield BagDraws(self.link_function, mean[a:b], loadings[a:b], used, rest[a:b])

    def draws_over_v(self, X: Array, offsets: Array, n: int) -> Iterator[BagDraws]:
        """Consecutive whole bags, over n draws of v; residuals are taken as independent."""
        for a, b in itertools.pairwise(offsets[bag_cuts(offsets, rows_per_chunk(X.shape[1]))]):
            A, kt = self.features(X[a:b])
            yield BagDraws(self.link_function, self.c0 + A @ self.m, A, self.draws(n).v, kt)

    def _shared_latents(
        self, X: Array, A: Array, kt: Array, starts: Array, positive: Array | None = None
    ) -> tuple[Array, Array, Array]:
        """mu (n,), G (n, rank) and rest (n,): f = mu + A (v - m) + G e + r, r_n ~ N(0, rest_n).

        Where `positive` (n,), P(y = 1 | f) is to be known as well as P(y = 0 | f).
        """
        mean, variance = self.latent_moments(A, kt)
        weight = self._steepness(mean + np.sqrt(variance), kt)
        if positive is not None:
            weight = np.where(positive, np.maximum(weight, self._steepness(-mean, kt)), weight)
        return mean, *self.residuals(X, A, kt, weight, starts)

    @cached_property
    def link_function(self) -> Link:
        """The link that `link` names."""
        return LINKS[self.link]()

    @property
    def _covariance(self) -> Array:
        """Cov(v), (M, M)."""
        return self.S

    @cached_property
    def _S_root(self) -> Array:
        """R with R R' = S, the directions of largest variance first."""
        return ordered_root(self.S)


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
        if self.link not in LINKS:
            raise ModelFileError(
                f"its link is {self.link!r:.80}, which this program does not know; if it is your "
                "own, import its module first"
            )
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

    def residuals(
        self, X: Array, A: Array, kt: Array, weight: Array, starts: Array
    ) -> tuple[Array, Array]:
        """K_bb - A_b A_b' of each bag, in low rank plus a diagonal."""
        Xs = np.asarray(self.scaled(X), dtype=np.float64)
        return factor_residuals(self.kernel, Xs, A, kt, weight, starts)

    @property
    def members(self) -> tuple[Posterior, ...]:
        """The posteriors whose logits are averaged: here, this one alone."""
        return (self,)

    @property
    def shares(self) -> Array:
        """The weight of each member in the average."""
        return np.ones(1)

    def pooled_rows(self, X: Array) -> Array:
        """(n, M) what of each instance is averaged over its bag where bags are calibrated."""
        return self.features(X)[0]

    def bag_features(self, X: Array, offsets: Array) -> Iterator[tuple[Array, Array, Array]]:
        """mu (n,), rest (n,) and G (n, rank) bag by bag: Cov(f) = G G' + diag(rest)."""
        offsets = np.asarray(offsets)
        for first, last in itertools.pairwise(bag_cuts(offsets, rows_per_chunk(X.shape[1]))):
            rows = X[offsets[first] : offsets[last]]
            ends = offsets[first : last + 1] - offsets[first]
            A, kt = self.features(rows)
            Xs = np.asarray(self.scaled(rows), dtype=np.float64)
            shared, rest = split_residuals(self.kernel, Xs, A, kt, ends[:-1])
            mu, G = self.c0 + A @ self.m, A @ self._S_root
            for a, b in itertools.pairwise(ends):
                used = np.any(shared[a:b] != 0, axis=0)
                yield mu[a:b], rest[a:b], np.hstack([G[a:b], shared[a:b, used]])

    @cached_property
    def _whitener(self) -> Whitener:
        return whitener(self.kernel, self.Z, self.jitter)

    @cached_property
    def _S_root(self) -> Array:
        """R with R R' = S; its first directions are those that matter at the inducing points."""
        return ordered_root(self.S, self._whitener.L)
