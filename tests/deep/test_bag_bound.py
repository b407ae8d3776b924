"""The bound in torch is that of `ProbitVGPMIL`, and its gradients are right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.features import whitener
from bagwise.core.inference.stats import Chunk, Q, trace_bound
from bagwise.core.likelihoods.at_least_one import BagLikelihood, Targets
from bagwise.core.links import Probit
from bagwise.kernels import RBF, Linear
from bagwise.models.probit import ProbitSites

torch = pytest.importorskip(
    "torch", reason='networks need PyTorch: pip install "bagwise[torch]", or make test-torch'
)

from bagwise.deep.bag_bound import (  # noqa: E402
    BagTargets,
    Moments,
    SparseFeatures,
    bag_bound,
    log_prob_of_bags,
    site_stats,
)

KERNEL = RBF(2.0, 1.5) + Linear(0.3)
SIZES = np.array([3, 1, 4, 2, 1])
T = np.array([True, False, True, True, False])


@pytest.fixture
def problem() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    n, M = int(SIZES.sum()), 4
    L = np.tril(0.3 * rng.normal(size=(M, M))) + np.eye(M)
    S = L @ L.T
    known = np.full(n, np.nan)
    known[4], known[5] = 0.0, 1.0  # of the third bag
    return {
        "h": rng.normal(size=(n, 2)),
        "Z": rng.normal(size=(M, 2)),
        "known": known,
        "q": Q(rng.normal(size=M), S, -0.4, float(np.linalg.slogdet(S)[1])),
    }


def targets_of(known: Any) -> BagTargets:
    bag = np.repeat(np.arange(len(SIZES)), SIZES)
    return BagTargets(torch.from_numpy(bag), torch.from_numpy(T), torch.from_numpy(known))


def numpy_stats(problem: dict[str, Any], known: Any) -> tuple[float, Any]:
    """Bound without -KL, and statistics, as a fit of `ProbitVGPMIL` has them."""
    A, kt = whitener(KERNEL, problem["Z"], 1e-6)(problem["h"])
    offsets = np.concatenate([[0], np.cumsum(SIZES)])
    chunk = Chunk(problem["h"], A, kt, Targets(offsets[:-1], SIZES, T, known))
    sites = ProbitSites(BagLikelihood(Probit()))
    stats = sites.local_step(chunk, problem["q"])
    return stats.bound + trace_bound(problem["q"], stats.precision), stats


@pytest.mark.parametrize("told", [False, True], ids=["bag labels", "some instance labels"])
def test_bound_and_sites_are_those_of_the_head(problem: dict[str, Any], told: bool) -> None:
    known = problem["known"] if told else np.full(len(problem["h"]), np.nan)
    wanted, stats = numpy_stats(problem, known if told else None)
    features = SparseFeatures(problem["Z"], KERNEL, 1e-6)
    A, kt = features(torch.from_numpy(problem["h"]))
    bound, mu, slope = bag_bound(A, kt, targets_of(known), Moments.of(problem["q"], "cpu"))
    assert bound.item() == pytest.approx(wanted, abs=1e-8)
    own = site_stats(A.detach(), kt.detach(), mu.detach(), slope, bound.item())
    np.testing.assert_allclose(own.as_vector(), stats.as_vector(), rtol=1e-7, atol=1e-8)


def test_bound_of_a_fitted_model_is_its_elbo() -> None:
    rng = np.random.default_rng(1)
    bags = bw.Bags.from_list([rng.normal(size=(3, 2)) + 2 * (b % 2) for b in range(12)])
    T = np.arange(12) % 2 == 1
    Z = bags.X[:6]
    settings = {"learn_hyperparameters": False, "standardize": False, "bag_score": "joint"}
    head = bw.ProbitVGPMIL(kernel=KERNEL, inducing=Z, tol=1e-14, **settings).fit(bags, T)
    post = head.posterior_
    q = Q(post.m, post.S, post.c0, float(np.linalg.slogdet(post.S)[1]))
    A, kt = SparseFeatures(Z, KERNEL, head.jitter)(torch.tensor(bags.X))
    nothing = torch.full((len(bags.X),), torch.nan)
    told = BagTargets(torch.tensor(bags.bag_index), torch.from_numpy(T), nothing)
    bound, _, _ = bag_bound(A, kt, told, Moments.of(q, "cpu"))
    assert bound.item() - q.kl() == pytest.approx(head.elbo_, abs=1e-6)


def test_gradients_are_those_of_finite_differences(problem: dict[str, Any]) -> None:
    features = SparseFeatures(problem["Z"], KERNEL, 1e-6)
    told, q = targets_of(problem["known"]), Moments.of(problem["q"], "cpu")

    def value(h: Any, Z: Any, theta: Any) -> Any:
        named = {"Z": Z, "theta": theta}
        A, kt = torch.func.functional_call(features, named, (h,))
        return bag_bound(A, kt, told, q)[0]

    at = (torch.from_numpy(problem["h"]), features.Z.detach(), features.theta.detach())
    at = tuple(x.clone().requires_grad_() for x in at)
    assert torch.autograd.gradcheck(value, at, eps=1e-6, atol=1e-6)


def test_bags_far_from_their_label_have_finite_gradients() -> None:
    z = torch.tensor([-30.0, -30.0, 30.0, -20.0, 25.0], dtype=torch.float64, requires_grad=True)
    told = BagTargets(
        torch.tensor([0, 0, 1, 2, 2]),
        torch.tensor([True, False, True]),
        torch.full((5,), torch.nan),
    )
    log_prob = log_prob_of_bags(z, told)
    log_prob.sum().backward()
    wanted, slope = BagLikelihood(Probit()).log_prob_and_gradient(
        z.detach().numpy(), Targets(np.array([0, 2, 3]), np.array([2, 1, 2]), told.T.numpy())
    )
    np.testing.assert_allclose(log_prob.detach().numpy(), wanted, rtol=1e-8)
    np.testing.assert_allclose(z.grad.numpy(), slope, rtol=1e-8)
