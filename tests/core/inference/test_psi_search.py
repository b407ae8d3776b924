"""psi and kernel learned by the bound minus log Z: what is climbed, and where it may not go."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.inference.monitor import Monitor
from bagwise.core.inference.passes import TrainingData
from bagwise.core.inference.psi_search import NormalisedBound, PsiKernel, learn_psi
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Logistic
from bagwise.densities import FunctionDensity, Gamma, PolyaGamma, StudentT
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


@pytest.mark.parametrize("kind", ["psi", "student", "gamma"])
def test_models_learn_by_the_bound(bags: bw.Bags, kind: str, tmp_path: Path) -> None:
    settings = {"kernel": START.kernel, "n_inducing": 6, "bag_score": "max", "random_state": 0}
    make: Any = {
        "psi": lambda **more: bw.PsiVGPMIL(psi=PolyaGamma(1.4), **settings, **more),
        "student": lambda **more: bw.PsiVGPMIL(
            psi=StudentT(3.0, 2.0), mean=0.0, **settings, **more
        ),
        "gamma": lambda **more: bw.GammaVGPMIL(alpha=2.0, beta=6.0, **settings, **more),
    }[kind]
    fixed = make(learn_hyperparameters=False).fit(bags)
    model = make(learn_hyperparameters="bound").fit(bags)
    assert model.normalised_elbo(bags) > fixed.normalised_elbo(bags) + 0.5
    if kind == "student":
        assert isinstance(model.psi_, StudentT) and model.kernel_ != START.kernel
        assert model.psi_.df != 3.0 and model.psi_.scale != 2.0
    elif kind == "psi":
        assert model.psi_ != model.psi and model.kernel_ != START.kernel
    else:
        assert (model.alpha_, model.beta_) != (2.0, 6.0)
    model.save(tmp_path / "m.bagwise")
    same = bw.load(tmp_path / "m.bagwise")
    np.testing.assert_array_equal(same.predict_proba(bags), model.predict_proba(bags))
    assert same.normalised_elbo(bags) == pytest.approx(model.normalised_elbo(bags))


def test_students_t_is_a_gamma_mixture_for_the_normalised_bound_too(bags: bw.Bags) -> None:
    """Its constant is in log Z as well, so that nothing is left of it."""
    settings = {"kernel": START.kernel, "n_inducing": 6, "bag_score": "max", "random_state": 0}
    student = bw.PsiVGPMIL(psi=StudentT(3.0, 2.0), mean=0.0, **settings).fit(bags)
    gamma = bw.GammaVGPMIL(alpha=2.0, beta=6.0, **settings).fit(bags)
    assert student.elbo_ != pytest.approx(gamma.elbo_)
    assert student.normalised_elbo(bags) == pytest.approx(gamma.normalised_elbo(bags), abs=1e-6)


def test_a_fit_whose_normaliser_is_unknown_says_so(bags: bw.Bags) -> None:
    kernel = bw.kernels.RBF(50.0, 2.0)
    model = bw.GammaVGPMIL(alpha=1.0, beta=1.0, kernel=kernel, learn_hyperparameters="bound")
    with pytest.raises(ValueError, match="log Z of this psi and kernel cannot be estimated"):
        model.fit(bags)
    with pytest.raises(ValueError, match="learn_hyperparameters"):
        bw.VGPMIL(learn_hyperparameters="bound").fit(bags)
