"""Models register themselves by being defined, also outside of the package."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.likelihoods.at_least_one import BagLikelihood
from bagwise.core.links import Probit
from bagwise.models import ALIASES, MODELS, GaussianProcessMIL, Init, Parts
from bagwise.models.probit import ProbitSites
from bagwise.models.registry import class_name
from toy_bags import separable_bags

HALF = """
import bagwise as bw

class HalfVGPMIL(bw.VGPMIL, alias={alias!r}):
    pass
"""


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    models, aliases = dict(MODELS), dict(ALIASES)
    yield
    for table, before in ((MODELS, models), (ALIASES, aliases)):
        table.clear()
        table.update(before)


def define_own() -> type[GaussianProcessMIL]:
    class OwnMIL(GaussianProcessMIL, alias="own"):
        """A probit model with a kernel of a variance of its own."""

        def __init__(self, *, variance: float = 2.0, **shared: Any) -> None:
            super().__init__(**shared)
            self.variance = variance

        def _parts(self, init: Init = None) -> Parts:
            likelihood = BagLikelihood(Probit())
            return Parts(likelihood, ProbitSites(likelihood), variance=self.variance)

    return OwnMIL


def test_a_model_of_another_package_fits_saves_and_loads(tmp_path: Path) -> None:
    OwnMIL = define_own()
    bags = separable_bags(40, 2)
    model = OwnMIL(variance=3.0, n_inducing=8, random_state=0, bag_score="calibrated").fit(bags)
    assert model.bag_score_ == "calibrated" and model.score(bags) > 0.8
    model.save(tmp_path / "own.bagwise")
    loaded = bw.load(tmp_path / "own.bagwise")
    assert type(loaded) is OwnMIL and loaded.variance == 3.0
    np.testing.assert_array_equal(loaded.predict_proba(bags), model.predict_proba(bags))
    assert class_name("own") == class_name("ownmil") == "OwnMIL"
    many = bw.OneVsRestMIL(OwnMIL(n_inducing=4, random_state=0, bag_score="joint"))
    many.fit(bags, np.array(["a", "b", "c"])[np.arange(40) % 3])
    many.save(tmp_path / "many.bagwise")
    assert type(bw.load(tmp_path / "many.bagwise").estimators_[0]) is OwnMIL


def test_a_file_of_a_model_that_is_not_imported_says_so(tmp_path: Path) -> None:
    model = define_own()(n_inducing=4, random_state=0, bag_score="joint")
    model.fit(separable_bags(20, 2)).save(tmp_path / "own.bagwise")
    del MODELS["OwnMIL"]
    with pytest.raises(bw.ModelFileError, match=r"holds a 'OwnMIL'.*import its module first"):
        bw.load(tmp_path / "own.bagwise")


def run_cell(module: str, alias: str) -> type:
    names: dict[str, Any] = {"__name__": module}
    exec(HALF.format(alias=alias), names)
    return names["HalfVGPMIL"]


def test_a_cell_of_a_notebook_may_run_again() -> None:
    run_cell("__main__", "half")
    again = run_cell("__main__", "half")
    assert MODELS["HalfVGPMIL"] is again and ALIASES["half"] == "HalfVGPMIL"
    run_cell("__main__", "other-half")
    assert "half" not in ALIASES and ALIASES["other-half"] == "HalfVGPMIL"


def test_two_models_of_one_name_are_refused() -> None:
    first = run_cell("one", "half")
    with pytest.raises(TypeError, match=r"'HalfVGPMIL' already, one\.HalfVGPMIL.*another one"):
        run_cell("two", "half")
    assert MODELS["HalfVGPMIL"] is first
    with pytest.raises(TypeError, match="'probit' is the short name of ProbitVGPMIL already"):
        run_cell("one", "probit")
    assert MODELS["HalfVGPMIL"] is first and ALIASES["probit"] == "ProbitVGPMIL"


def test_abstract_classes_are_no_models() -> None:
    bases = set(itertools.chain.from_iterable(cls.__mro__[1:] for cls in MODELS.values()))
    abstract = {cls.__name__ for cls in bases if cls.__name__.endswith("MIL")} - set(MODELS)
    shared = {"BagClassifierMIL", "CalibratedMIL", "DecidingMIL", "GaussianProcessMIL", "LinearMIL"}
    assert abstract == shared | {"LogisticMIL", "RuledMIL"}
