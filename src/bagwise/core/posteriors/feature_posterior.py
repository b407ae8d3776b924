"""Predictions where f = c0 + A v + r: latent moments, instances and bags with their spread."""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from bagwise.bags.rows import blocks
from bagwise.core.inference.passes import bag_cuts, by_chunk, rows_per_chunk
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.likelihoods.bag_scores import Predicted, joined, within_bounds
from bagwise.core.links import LINKS, Link, Moments, log_expm1
from bagwise.core.posteriors.bag_covariances import Covariances, LowRank, Whole
from bagwise.core.posteriors.given_labels import BagDraws, BagLabels, given_labels
from bagwise.core.posteriors.joint import PROPAGATED, STAGES, joint_moments
from bagwise.core.posteriors.points import Draws, Latents, ordered_root, standard_normal
from bagwise.core.posteriors.propagation import bag_moments
from bagwise.core.residuals import Stack, covariances, factor_residuals, rows_that_matter
from bagwise.kernels import Kernel

Array = NDArray[Any]

LABEL_DRAWS = 1024  # of f, for probabilities given labels
OF_VARIANCE = 0.05  # of a bag's P0: what rows that are left out of its covariances may add to it
MOST_LOG_RATIO = 50.0
LOW_RANK = 2  # rows of a bag for each direction of v, from which on these take less time


class LatentMoments(NamedTuple):
    """Mean and variance of each f_n, and A S, of which they are made."""

    mean: Array  # (n,)
    variance: Array  # (n,)
    AS: Array  # (n, M)


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
            found = self.latent_moments(*self.features(X[rows]))
            mean[rows], variance[rows] = found.mean, found.variance
        return mean, variance

    def latent_moments(self, A: Array, kt: Array) -> LatentMoments:
        """Mean and variance of f_n from its features."""
        AS = A @ self._covariance.astype(A.dtype)
        variance = np.maximum(np.einsum("nm,nm->n", AS, A), 0) + kt
        return LatentMoments(self.c0 + A @ self.m.astype(A.dtype), variance, AS)

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
        `stages` are numbers of Sobol points, the first perhaps none (expectation propagation):
        bags that the first leave uncertain go on to more.
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
            alone = of_bags = means = None
            if instances or joint:
                latent = self.latent_moments(A, kt)
                alone = self.instance_moments(A, kt, latent)
            if joint and alone is not None:
                of_bags = self._joint(some, A, kt, latent, starts, alone, second, stages)
            if readout is not None:
                means = np.add.reduceat(A @ readout, starts) / np.diff(own)
            return Predicted(own, alone if instances else None, of_bags, readout=means)

        found = by_chunk(X, offsets, of_chunk, len(self.m))
        return joined(np.asarray(offsets), found)

    def instance_moments(self, A: Array, kt: Array, latent: LatentMoments) -> Moments:
        """P(y_n) averaged over the posterior of f_n."""
        return self.link_function.moments(latent.mean, latent.variance)

    def _joint(
        self,
        X: Array,
        A: Array,
        kt: Array,
        latent: LatentMoments,
        starts: Array,
        alone: Moments,
        second: bool,
        stages: tuple[int, ...],
    ) -> Moments:
        """Moments of P0 = prod_n P(y_n = 0 | f_n), over v and the residuals, of each bag."""
        found = Moments(*(x[starts] for x in alone))  # that of a bag of one
        sizes = np.diff(np.append(starts, len(kt)))
        left, first = sizes > 1, np.zeros(len(sizes), dtype=bool)
        if stages[0] == PROPAGATED:
            stages = stages[1:]
            if self.propagates and np.any(left):
                found, first, too = self._propagated(X, A, kt, latent, starts, alone, second)
                left &= ~(first & (too | (not second)))
        if np.any(left):
            rows, begins = np.repeat(left, sizes), np.cumsum(sizes[left]) - sizes[left]
            own = Moments(*(x[rows] for x in alone))
            part = self._sampled(X[rows], A[rows], kt[rows], begins, own, second, stages)
            # Probabilities are the same with deviations and without.
            kept = (first[left], first[left], np.zeros(left.sum(), dtype=bool))
            for values, of_some, old in zip(found, part, kept, strict=True):
                values[left] = np.where(old, values[left], of_some)
        found = within_bounds(found, alone, starts)
        if bad := int(np.sum(np.isnan(found.log_negative) | np.isnan(found.log_positive))):
            raise FloatingPointError(
                f"{bad} bag probabilities are not numbers; check rows for extreme values"
            )
        return found

    def _propagated(
        self,
        X: Array,
        A: Array,
        kt: Array,
        latent: LatentMoments,
        starts: Array,
        alone: Moments,
        second: bool,
    ) -> tuple[Moments, NDArray[np.bool_], NDArray[np.bool_]]:
        """The moments by expectation propagation; in which bags the first, and the second will do.

        By Cauchy and Schwarz the covariance of two P(y = 0 | f) is at most the product of their
        deviations.
        """
        mean, variance, AS = latent
        kernel, rows, own = self.residual_kernel(X, A)
        left = own - AS  # Cov(f) = K - A A' + A S A'
        few = kernel is None and not np.any(kt)  # directions of v are all that f has

        def of(stack: Stack) -> Covariances:
            if few and stack.own.shape[1] > LOW_RANK * len(self.m):
                return LowRank((A[stack.rows] @ self._S_root) * stack.own[:, :, None])
            return Whole(covariances(kernel, rows, left, A, variance, stack))

        effect = np.exp(0.5 * log_expm1(np.minimum(alone.log_ratio, MOST_LOG_RATIO)))
        return bag_moments(
            self.link_function,
            alone,
            mean,
            starts,
            rows_that_matter(effect, starts, X, OF_VARIANCE),
            of,
            second=second,
        )

    def _sampled(
        self,
        X: Array,
        A: Array,
        kt: Array,
        starts: Array,
        alone: Moments,
        second: bool,
        stages: tuple[int, ...],
    ) -> Moments:
        """The moments by averages over points."""
        p = np.exp(alone.log_positive)
        mean, G, rest = self._shared_latents(X, A, kt, starts)
        return joint_moments(
            Latents(p, p**2 + alone.std**2, mean, A, G, rest, starts),
            self.link_function,
            self.draws,
            self._S_root,
            second=second,
            stages=stages,
        )

    @property
    def propagates(self) -> bool:
        """Whether expectation propagation can be asked."""
        return self.link_function.propagates

    def residual_kernel(self, X: Array, A: Array) -> tuple[Kernel | None, Array, Array]:
        """k, rows and A by which residuals covary, k(rows, rows) - A A'; without k they do not."""
        return None, X, np.zeros_like(A)

    def residuals(
        self, X: Array, A: Array, kt: Array, weight: Array, starts: Array
    ) -> tuple[Array, Array]:
        """G (n, rank) and rest (n,): the residuals of a bag have covariance G G' + diag(rest)."""
        kernel, rows, own = self.residual_kernel(X, A)
        if kernel is None:
            return np.zeros((len(kt), 0)), kt
        return factor_residuals(kernel, rows, own, kt, weight, starts)

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
        mean, variance, _ = self.latent_moments(A, kt)
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
