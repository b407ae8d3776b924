"""`bagwise doctor` says what is there, agrees with pyproject.toml, and never fails."""

from __future__ import annotations

import json
import re
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from bagwise.cli import doctor
from command_line import good

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
NOT_FOR_USERS = {"docs", "dev", "all"}


def test_extras_are_those_of_the_project() -> None:
    extras = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["optional-dependencies"]
    assert set(doctor.EXTRAS) == set(extras) - NOT_FOR_USERS
    for extra, (_, packages) in doctor.EXTRAS.items():
        wanted = {re.split(r"[>=\[]", line)[0] for line in extras[extra]}
        if extra == "dask":  # dask[dataframe,distributed] brings the second
            wanted |= {"distributed"}
        assert set(packages) == wanted, extra


def test_all_is_made_of_extras_that_are_there() -> None:
    extras = tomllib.loads(PROJECT.read_text("utf-8"))["project"]["optional-dependencies"]
    (own,) = (line for line in extras["all"] if line.startswith("bagwise["))
    named = set(own.removeprefix("bagwise[").removesuffix("]").split(","))
    assert named <= set(extras)
    assert set(doctor.EXTRAS) - named == {"scverse", "molecules", "torch", "detection"}


def test_what_is_said() -> None:
    found = json.loads(good("doctor", "--json"))
    assert found["packages"]["numpy"] == metadata.version("numpy") == np.__version__
    assert found["usable_cores"] >= 1 and found["free_memory"] > 0
    assert found["extras"]["cli"]["complete"]
    shown = good("doctor")
    assert f"numpy {np.__version__}" in shown and "cores usable" in shown
    for extra, one in found["extras"].items():
        assert one["complete"] or f'pip install "bagwise[{extra}]"' in shown


def test_a_doctor_does_not_fall_ill(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no such thing")

    for name in ("_blas", "_free_memory", "import_module"):
        monkeypatch.setattr(doctor, name, broken)
    monkeypatch.setattr(doctor.os, "sched_getaffinity", broken, raising=False)
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "1.0")
    shown = good("doctor")
    assert "not found out (RuntimeError: no such thing)" in shown
    assert "rdkit is installed but does not load" in shown
    json.loads(good("doctor", "--json"))
