"""psi and kernel learned by the bound minus log Z: what is climbed, and where it may not go."""

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.inference.monitor import Monitor
from bagwise.core.inference.passes import TrainingData
from bagwise.core.inference.psi_search import NormalisedBound, PsiKernel, learn_psi
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Logistic
from bagwise.densities import FunctionDensity, Gamma, PolyaGamma
from bagwise.models.vgpmil import LogisticSites

START = PsiKernel(Gamma(2.0, 6.0), bw.kernels.RBF(0.3, 2.0))


@pytest.fixture(scope="module")
def bags() -> bw.Bags:
    return bw.datasets.make_bags(12, 3, 2, random_state=0)[0]


@pytest.fixture(scope="module")
def bound(bags: bw.Bags) -> NormalisedBound:
    data = TrainingData(bags.X, bags.offsets, np.asarray(bags.y) == 1, None)
    rule = BagLikelihood(Logistic())
    return NormalisedBound(data, bags.X[::6], 1e-6, -1.0, 0, lambda psi: LogisticSites(rule, psi))


def test_numbers_go_there_and_back() -> None:
    assert np.exp(START.theta) == pytest.approx([2.0, 6.0, 0.3, 2.0])
    again = START.with_theta(START.theta)
    assert np.allclose(again.theta, START.theta) and isinstance(again.psi, Gamma)


def test_a_pair_of_functions_has_nothing_to_learn_but_its_kernel() -> None:
    psi = FunctionDensity(lambda x: -np.log(4 + x**2 / 2), lambda x: -x / (4 + x**2 / 2))
    setting = PsiKernel(psi, START.kernel)
    assert np.exp(setting.theta) == pytest.approx([0.3, 2.0])
    assert setting.with_theta(setting.theta).psi is psi


def test_the_logistic_likelihood_has_its_own_bound(bags: bw.Bags, bound: NormalisedBound) -> None:
    model = bw.VGPMIL(
        kernel=START.kernel, mean=-1.0, inducing=bound.Z, learn_hyperparameters=False,
        standardize=False, bag_score="max",
    ).fit(bags)  # fmt: skip
    found = bound(PsiKernel(PolyaGamma(1.0), START.kernel))
    assert found == pytest.approx(model.elbo_, abs=1e-4)


def test_the_search_climbs(bound: NormalisedBound) -> None:
    start = PsiKernel(PolyaGamma(1.4), START.kernel)
    steps: list[float] = []
    found = learn_psi(bound, start, Monitor([lambda *step: steps.append(step[2])]))
    assert bound(found) > bound(start) + 1
    # What callbacks hear is the bound and the prior, which takes something away.
    assert bound(start) < max(steps) <= bound(found)


def test_an_unknown_normaliser_ends_the_search_before_it_begins(bound: NormalisedBound) -> None:
    heavy = PsiKernel(Gamma(1.0, 1.0), bw.kernels.RBF(50.0, 2.0))
    with pytest.raises(ValueError, match="log Z of this psi and kernel cannot be estimated"):
        learn_psi(bound, heavy)
