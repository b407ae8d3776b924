"""Kernels judged by bags that were left out of a fit: which of a few suits these data.

The evidence of a kernel says how well it explains the bags it was fitted to under the model's own
assumptions, which in hundreds of features it does for lengthscales at which no bag tells anything
of another. Bags that were left out have no such bias: every candidate is fitted without a fifth of
the bags at a time, and its calibrated probabilities of the others are what it is judged by. Kernels
are as they are given; only the mean is learned, along with the mode of v.

Some dozen bags seldom tell the best candidate from the next. So none is chosen alone: predictions
are averages of the logits of all that are about as good, with weights by how probable left-out bags
are under each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from bagwise.bags.rows import scaled_rows
from bagwise.core.calibration.bags import calibrate
from bagwise.core.calibration.judged import JudgedBags, JudgedKernel, weights_of
from bagwise.core.calibration.left_out import LeftOut, averaged_scores, scores_of
from bagwise.core.calibration.ranking import auc
from bagwise.core.features import common_features, whitener
from bagwise.core.inference.newton import Expansion, climb
from bagwise.core.inference.newton_probit import LogJoint
from bagwise.core.inference.stats import Chunk, FoldedLikelihood, diagonal_precision
from bagwise.core.inference.thinning import START_MEAN
from bagwise.core.likelihoods.at_least_one import BagLikelihood, Targets
from bagwise.core.likelihoods.count_rule import CountRule
from bagwise.core.likelihoods.targets import halves
from bagwise.core.linalg import BREAKDOWNS, cholesky, inverse_from_cholesky
from bagwise.core.posteriors.gaussian import Posterior
from bagwise.core.posteriors.joint import PROPAGATED
from bagwise.core.posteriors.ruled import RulePredictor, share_scores
from bagwise.core.threads import at_once
from bagwise.kernels import Kernel

Array = NDArray[Any]
Flags = NDArray[np.bool_]

MEAN_SCALE = 3.0  # of the prior of c0, about START_MEAN
STEPS = 30  # of Newton's method
TOL = 1e-6  # of the same, which keeps curvature: with 1e-4, .6 of 177 nats are lost
STAGES = (PROPAGATED, 64, 256)  # Sobol points of joint bag probabilities
# Nats by which standardised features have to be better than raw ones of the same unit, and raw ones
# than standardised ones of different units: left-out bags tell kernels apart to about as much.
HANDICAP = 4.0


@dataclass(frozen=True)
class Candidate:
    """A kernel, the scaling in whose units it is, and its inducing points in these."""

    name: str
    kernel: Kernel
    shift: Array  # (D,)
    scale: Array  # (D,)
    Z: Array  # (M, D)
    handicap: float = 0.0  # nats

    @property
    def standardized(self) -> bool:
        """Whether features are scaled."""
        return bool(np.any(self.scale != 1))


@dataclass(frozen=True)
class Features:
    """Features of whole bags, computed once; folds take the bags that they keep."""

    A: Array  # (n, M), and a column for the mean where that is learned
    kt: Array  # (n,)
    sizes: NDArray[np.int64]  # (B,)
    T: Flags
    known: Array | None
    counts: Array | None = None  # (B,)
    reliability: Array | None = None  # (B,)

    @property
    def targets(self) -> Targets:
        """What is known of the bags."""
        starts = np.cumsum(self.sizes) - self.sizes
        told = (None, self.counts, self.reliability)
        return Targets(starts, self.sizes, self.T, self.known, *told)

    def of(self, bags: Flags) -> Features:
        """Some of the bags."""
        rows = np.repeat(bags, self.sizes)
        known = None if self.known is None else self.known[rows]
        counts = None if self.counts is None else self.counts[bags]
        sure = None if self.reliability is None else self.reliability[bags]
        labels = (self.sizes[bags], self.T[bags], known, counts, sure)
        return Features(self.A[rows], self.kt[rows], *labels)

    def total(self, step: Callable[[Chunk], Any]) -> Any:
        """What a pass over one chunk finds."""
        return step(Chunk(None, self.A, self.kt, self.targets))


@dataclass(frozen=True)
class OtherFolds:
    """Features of the bags of some folds."""

    folds: Sequence[Features]

    def total(self, step: Callable[[Chunk], Any]) -> Any:
        """What a pass over all of them finds."""
        return reduce(add, (own.total(step) for own in self.folds))


@dataclass(frozen=True)
class Fitting:
    """How candidates are fitted: what bag labels say, and the mean, where it is given."""

    likelihood: BagLikelihood  # with the probit link
    mean: float | None
    jitter: float
    seed: int

    @property
    def folded(self) -> FoldedLikelihood:
        """The likelihood with residuals integrated out."""
        return FoldedLikelihood(self.likelihood.as_exact_rule(), 1.0)

    def features(self, candidate: Candidate, judged: JudgedBags) -> Features:
        """Whitened features of all bags; the last one is the mean's, in units of its prior."""
        A, kt = self._of_rows(candidate, judged.bags.X)
        if self.mean is None:
            A = np.column_stack([A, np.full(len(A), MEAN_SCALE)])
        labels = (judged.T, judged.known, judged.counts, judged.reliability)
        return Features(A, kt, judged.bags.sizes, *labels)

    def _of_rows(self, candidate: Candidate, X: Array) -> tuple[Array, Array]:
        """A and kt, which fits of other classes to these rows have in common."""
        scaling = (candidate.shift, candidate.scale)
        features = whitener(candidate.kernel, candidate.Z, self.jitter)

        def compute() -> tuple[Array, Array]:
            return features(scaled_rows(X, *scaling, np.float64))

        common, told = common_features(), np.dtype(np.float64)
        if common is None:
            return compute()
        return common(X, scaling, features, told, 8 * len(X) * len(features), compute)

    def log_joint(self, features: Features | OtherFolds) -> LogJoint:
        """log p(T, v), with the mean's standardised deviation from its prior at the end of v."""
        c0 = START_MEAN if self.mean is None else self.mean
        # A pass over given features is all that the log joint asks of its sweeper.
        return LogJoint(self.folded, features, c0)  # type: ignore[arg-type]

    def mode(self, target: LogJoint, start: Array, begun: Expansion | None = None) -> Array:
        """The most probable v, climbed to from a start about which the log joint may be known."""
        how: dict[str, Any] = {"max_iter": STEPS, "tol": TOL, "curvature": False, "rough": True}
        return climb(target, start, **how, slope=target.slope, begun=begun).v

    def precision(self, features: Features) -> Array:
        """A' Lambda A of the model with the probit link, which labels do not change."""
        A = features.A if self.mean is not None else features.A[:, :-1]
        lam = features.targets.counted_rows(self.folded.scale(features.kt) ** 2)
        return diagonal_precision(A, lam).AtLA

    def posterior(self, candidate: Candidate, v: Array, precision: Array) -> Posterior:
        """q(v) and what predictions need."""
        m, c0 = (v, self.mean) if self.mean is not None else (v[:-1], _mean_of(v))
        L = cholesky(np.eye(len(m)) + precision, name="P = I + A' Lambda A")
        return Posterior(
            kernel=candidate.kernel,
            Z=candidate.Z,
            m=m,
            S=inverse_from_cholesky(L),
            c0=c0,
            link=self.likelihood.link.name,
            shift=candidate.shift,
            scale=candidate.scale,
            jitter=self.jitter,
            seed=self.seed,
        )


def _mean_of(v: Array) -> float:
    """c0 whose standardised deviation from its prior is the last entry of v."""
    return START_MEAN + MEAN_SCALE * float(v[-1])


def left_out_of(candidate: Candidate, judged: JudgedBags, fitting: Fitting) -> LeftOut:
    """Scores of all bags by fits of a candidate to the others, begun at the fit to all.

    What is known of the others there is what is known of all bags, less what is of those left out.
    """
    everything = fitting.features(candidate, judged)
    parts = [everything.of(judged.folds == k) for k in range(int(judged.folds.max()) + 1)]
    start = fitting.mode(fitting.log_joint(everything), np.zeros(everything.A.shape[1]))
    own = [fitting.log_joint(part).derivatives(start) for part in parts]
    precisions = [fitting.precision(part) for part in parts]
    bag_scores = np.empty((len(judged.T), 2))
    instance_logits = np.empty(judged.bags.n_instances)
    for k, left in enumerate(parts):
        out, others = judged.folds == k, [i for i in range(len(parts)) if i != k]
        target = fitting.log_joint(OtherFolds([parts[i] for i in others]))
        about = target.expansion(start, reduce(add, (own[i] for i in others)))
        v = fitting.mode(target, start, about)
        without = reduce(add, (precisions[i] for i in others))
        posterior, bags = fitting.posterior(candidate, v, without), judged.bags[out]
        rule, rows = fitting.likelihood, (bags.X, bags.offsets)
        asked: dict[str, Any] = {"joint": True, "instances": True, "second": False}
        if isinstance(rule, CountRule):
            found = RulePredictor(posterior, rule).predicted(*rows, **asked)
        else:
            given = (left.A[:, : len(posterior.m)], left.kt)
            found = posterior.predicted_from(given, *rows, **asked, stages=STAGES)
        scores = scores_of(found) if judged.T.dtype == bool else share_scores(found, judged.T[out])
        bag_scores[out], instance_logits[np.repeat(out, judged.bags.sizes)] = scores
    return LeftOut(bag_scores, instance_logits, judged.folds, judged.bags.sizes)


def judge(
    candidates: Sequence[Candidate],
    judged: JudgedBags,
    fitting: Fitting,
    keep: Callable[[str, Callable[[], LeftOut]], LeftOut] = lambda stage, work: work(),
    *,
    alone: bool = False,
) -> tuple[list[JudgedKernel], LeftOut | None]:
    """What was found of each candidate, with its weight, and the scores by their average.

    `keep(stage, work)` does the work of one candidate, or has done it in a fit that goes on. One
    whose fit breaks down has no weight; where all do, none has, and there are no scores. With
    `alone` the best one has all the weight.
    """
    found: list[LeftOut | None] = []
    told = (judged, fitting)
    works = at_once(left_out_of, candidates, told, BREAKDOWNS, effort=lambda c: len(c.Z))
    for i, work in enumerate(works):
        stage = f"candidate {i + 1} of {len(candidates)}"
        try:
            found.append(keep(stage, work))
        except BREAKDOWNS:
            found.append(None)
    table = [_verdict(c, f, judged) for c, f in zip(candidates, found, strict=True)]
    n_counted = len(judged.T) if judged.counts is None else float(judged.counts.sum())
    heights = np.array([n_counted * row.log_likelihood for row in table])
    weights = weights_of(heights - [c.handicap for c in candidates], alone=alone)
    if weights is None:
        return table, None
    best = int(np.argmax(weights))
    table = [
        replace(row, weight=float(w), chosen=i == best)
        for i, (row, w) in enumerate(zip(table, weights, strict=True))
    ]
    used = [f for f, w in zip(found, weights, strict=True) if f is not None and w > 0]
    parts = [(f.bag_scores, f.instance_logits) for f in used]
    scores = averaged_scores(parts, weights[weights > 0], judged.bags.offsets)
    return table, LeftOut(*scores, judged.folds, judged.bags.sizes)


def _verdict(candidate: Candidate, found: LeftOut | None, judged: JudgedBags) -> JudgedKernel:
    """How probable the labels of left-out bags are by a candidate, once it is calibrated."""
    height, area = (-np.inf, 0.5) if found is None else height_and_area(found, judged)
    return JudgedKernel(
        candidate.name, candidate.kernel, candidate.standardized, height, area, len(judged.T)
    )


def height_and_area(found: LeftOut, judged: JudgedBags) -> tuple[float, float]:
    """Average log-probability of left-out labels, and the AUC of their bags (of shares: halves)."""
    T, counts = judged.T, judged.counts
    if T.dtype != bool:
        log_density, expected = found.bag_scores.T
        return float(np.average(log_density, weights=counts)), auc(expected, halves(T))
    return log_likelihood(found, T, counts), auc(left_out_logits(found, T, counts), T)


def log_likelihood(found: LeftOut, T: Flags, counts: Array | None = None) -> float:
    """Average of log P(T_b) over left-out bags as they count, once their scores are calibrated.

    >>> scores = np.array([[-9.0, -9.0], [9.0, 9.0]] * 5)
    >>> found = LeftOut(scores, scores[:, 1], np.arange(10) // 2)
    >>> round(log_likelihood(found, scores[:, 0] > 0), 3) + 0
    0.0
    """
    return _mean_log_prob(left_out_logits(found, T, counts), T, counts)


def _mean_log_prob(logit: Array, T: Flags, counts: Array | None) -> float:
    log_prob = special.log_expit(np.where(T, logit, -logit))
    return float(np.average(log_prob, weights=counts))


def left_out_logits(found: LeftOut, T: Flags, counts: Array | None = None) -> Array:
    """Calibrated logits of left-out bags, without their mean features: no kernel changes these."""
    return calibrate(found, T, counts=counts).left_out_logit(found)
