"""A kernel, a psi, a bag likelihood, a coupling and a model can be added from outside.

`tests/own_extensions.py` has one of each. Models with them are fitted and saved in one process,
loaded in another that imports that module, and refused with the reason in one that does not.
"""

from __future__ import annotations

import importlib
import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.files import codec
from bagwise.core.likelihoods.at_least_one import BagLikelihood, Targets
from bagwise.core.links import LINKS, Link, Probit
from bagwise.core.posteriors.given_labels import BagDraws, BagLabels, given_labels
from bagwise.densities import Density
from bagwise.kernels import Kernel
from bagwise.models import ALIASES, MODELS
from brute_force import central_difference

TESTS = Path(__file__).resolve().parents[1]
KINDS = ["Cauchy", "HeavyPsi", "LeakyMIL", "Quarter", "Fading"]
WAYS = ("vi", "laplace")

FIT = """
import numpy as np
import own_extensions as own

bags = own.bags()
for name, model in own.models().items():
    model.fit(bags).save(f"{name}.bagwise")
    np.savez(name, *model.predict_proba(bags, return_std=True), model.instance_posterior(bags))
    assert model.score(bags) > 0.9, name
"""
LOAD = """
import numpy as np
import bagwise as bw
import own_extensions as own

bags = own.bags()
for name, model in own.models().items():
    loaded = bw.load(f"{name}.bagwise")
    assert type(loaded) is type(model)
    found = [*loaded.predict_proba(bags, return_std=True), loaded.instance_posterior(bags)]
    for part, before in zip(found, np.load(f"{name}.npz").values(), strict=True):
        np.testing.assert_array_equal(part, before)
"""
STRANGER = """
import bagwise as bw

try:
    bw.load("{kind}.bagwise")
except bw.ModelFileError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of models with each kind of extension, and what they predict."""
    folder = tmp_path_factory.mktemp("extensions")
    run_python(FIT, folder)
    return folder


def run_python(code: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": f"{TESTS.parent / 'src'}{os.pathsep}{TESTS}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_another_process_that_imports_them_predicts_the_same(folder: Path) -> None:
    run_python(LOAD, folder)


@pytest.mark.parametrize("kind", KINDS)
def test_a_process_that_does_not_import_them_says_so(folder: Path, kind: str) -> None:
    name = "wide-probit" if kind == "LeakyMIL" else kind
    said = run_python(STRANGER.format(kind=kind), folder)
    assert f"'{name}', which this program does not know" in said and " import " in said


@pytest.mark.parametrize("base", [Kernel, Link, Density])
def test_what_has_to_be_written_is_documented(base: Any) -> None:
    text = (TESTS.parent / "CONTRIBUTING.md").read_text("utf-8")
    names = getattr(base, "__abstractmethods__", None) or {"log_psi", "theta"}
    missing = [name for name in names if not re.search(rf"`{name}[`(]", text)]
    assert not missing, f"CONTRIBUTING.md does not name {missing} of {base.__name__}"
    undocumented = [name for name in names if not getattr(base, name).__doc__]
    assert not undocumented


def test_a_kernel_says_what_it_needs() -> None:
    assert all(f"`{name}`" in str(Kernel.__doc__) for name in Kernel.__abstractmethods__)


# --- The likelihood against enumeration ----------------------------------------------------------


@pytest.fixture
def own() -> Iterator[Any]:
    """The module, of which nothing is known any more after the test."""
    tables: list[dict[str, Any]] = [MODELS, ALIASES, LINKS, codec._registered]
    before = [dict(table) for table in tables]
    yield importlib.import_module("own_extensions")
    del sys.modules["own_extensions"]
    for table, entries in zip(tables, before, strict=True):
        table.clear()
        table.update(entries)


def enumerated(link: Link, leak: float, z: np.ndarray, T: bool) -> tuple[float, np.ndarray]:
    """P(T | z) and P(y_n = 1 | z, T), from all labels of the instances of one bag."""
    p = np.exp(link.log_negative(-z))
    total, positive = 0.0, np.zeros(len(z))
    for labels in itertools.product([0, 1], repeat=len(z)):
        y = np.array(labels)
        chance = 1.0 if y.any() else leak
        weight = np.prod(np.where(y, p, 1 - p)) * (chance if T else 1 - chance)
        total, positive = total + weight, positive + weight * y
    return total, positive / total


@pytest.mark.parametrize("T", [True, False])
def test_an_own_rule_is_what_enumeration_says(own: Any, T: bool) -> None:
    z, link = np.array([-1.3, 0.4, -0.2, 2.1]), own.WideProbit()
    rule, targets = own.LeakyRule(link, 0.1), Targets(np.array([0]), np.array([4]), np.array([T]))
    probability, positive = enumerated(link, 0.1, z, T)
    np.testing.assert_allclose(np.exp(rule.log_prob(z, targets)), probability, rtol=1e-12)
    slope = central_difference(lambda x: rule.log_prob(x, targets)[0], z)
    np.testing.assert_allclose(rule.gradient(z, targets), slope, rtol=1e-6)
    W = rule.curvature(z, targets).apply(np.eye(4))
    columns = [central_difference(lambda x, n=n: rule.gradient(x, targets)[n], z) for n in range(4)]
    np.testing.assert_allclose(W, -np.array(columns), atol=1e-6)
    draws = BagDraws(link, z, np.zeros((4, 1)), np.zeros((1, 1)), np.zeros(4))
    both, _ = given_labels(draws, BagLabels(T, np.full(4, np.nan)), rule)
    np.testing.assert_allclose(both[:, 1], positive, atol=1e-12)
    np.testing.assert_allclose(both.sum(axis=1), 1, atol=1e-12)


@pytest.mark.parametrize("score", ["joint", "noisy-or", "max", "calibrated"])
def test_an_own_rule_makes_the_predictions(own: Any, score: str) -> None:
    bags = own.bags()
    settings = own.SHARED | {"bag_score": score, "learn_hyperparameters": False}
    sealed, leaky = (own.LeakyMIL(leak=leak, **settings).fit(bags) for leak in (0.0, 0.2))
    for model in (sealed, leaky):
        assert model.score(bags) > 0.9
    if score != "calibrated":
        some, _ = leaky.posterior_.bags(bags.X, bags.offsets, score)
        p = leaky.predict_proba(bags)
        np.testing.assert_allclose(p[:, 0], 0.8 * (1 - some), rtol=1e-9, atol=1e-12)


def test_laplace_and_bound_agree_with_own_sites(own: Any) -> None:
    """Both find the mode of the same log-concave posterior: with f integrated out, its mean."""
    settings = own.SHARED | {"learn_hyperparameters": False, "mean": -1.0}
    bound, mode = (own.LeakyMIL(inference=how, **settings).fit(own.bags()) for how in WAYS)
    np.testing.assert_allclose(bound.posterior_.m, mode.posterior_.m, atol=1e-5)


def test_own_sites_count_bags(own: Any) -> None:
    bags, counts = own.bags(), np.arange(len(own.bags())) % 3
    copies = np.repeat(np.arange(len(bags)), counts)
    repeated = bw.Bags.from_list([np.array(bags[int(b)].X) for b in copies], y=bags.y[copies])
    settings = own.SHARED | {"learn_hyperparameters": False, "standardize": False, "tol": 1e-12}
    settings |= {"kernel": bw.kernels.RBF(4.0, 2.0), "inducing": np.asarray(bags.X[:6])}
    weighted = own.LeakyMIL(**settings).fit(bags, sample_weight=counts)
    copied = own.LeakyMIL(**settings).fit(repeated)
    np.testing.assert_allclose(weighted.posterior_.m, copied.posterior_.m, atol=1e-5)
    assert weighted.elbo_ == pytest.approx(copied.elbo_, rel=1e-6)


@pytest.mark.parametrize("rates", [(0.5, 0.5), (-0.1, 0.0), (0.0, 1.2)])
def test_rates_that_are_none_are_refused(rates: tuple[float, float]) -> None:
    class Odd(BagLikelihood):
        def rates(self) -> tuple[float, float]:
            return rates

    with pytest.raises(ValueError, match="rates must be from 0 and sum to less than 1"):
        Odd(Probit())


def test_two_links_of_one_name_are_refused() -> None:
    with pytest.raises(TypeError, match="is the link 'probit' of model files; choose a new name"):
        type("OtherProbit", (Probit,), {})
    assert LINKS["probit"] is Probit


def test_a_rule_of_neighbours_that_files_cannot_hold_is_refused_by_save(
    own: Any, tmp_path: Path
) -> None:
    rule = own.Fading(1.0)
    model = bw.IsingVGPMIL(neighbors=lambda bags: rule(bags), coupling=0.2, **own.SHARED)
    model.fit(own.bags())
    with pytest.raises(bw.ModelFileError, match=r"neighbors.*register its dataclass"):
        model.save(tmp_path / "m.bagwise")


def test_a_rule_of_neighbours_is_checked(own: Any) -> None:
    model = bw.IsingVGPMIL(neighbors=lambda bags: np.ones((3, 3)), coupling=0.2, **own.SHARED)
    with pytest.raises(ValueError, match="one row and column per instance"):
        model.fit(own.bags())
