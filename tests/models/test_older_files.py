"""Model files that an earlier state of the library wrote are still read."""

from pathlib import Path

import numpy as np
import pytest

import bagwise as bw

FILES = Path(__file__).parent / "files"
ROWS = [0, 17, 123, 299]
# What the models said of these instances when they were saved.
P = {
    "probit": [0.5266902, 0.0005193581, 0.03348563, 0.03374532],
    "gamma": [0.4466597, 0.1184474, 0.3814137, 0.3381016],
    "mirvm": [0.6978498, 0.00302238, 0.00970674, 0.003129811],
    "gibbs": [0.5033952, 0.0001055978, 0.03212123, 0.02949299],
}


@pytest.mark.parametrize("name", P)
def test_older_models_say_the_same(name: str) -> None:
    bags, _ = bw.datasets.make_bags(30, random_state=0)
    model = bw.load(FILES / f"{name}.bagwise")
    p = model.predict_instance_proba(bags)[ROWS, 1]
    np.testing.assert_allclose(p, P[name], rtol=1e-5, atol=1e-9)
    assert np.all(np.isfinite(model.predict_proba(bags)))


def test_older_pipelines_are_read() -> None:
    bags, _ = bw.datasets.make_bags(30, random_state=0)
    assert bw.load(FILES / "pipeline.bagwise").predict_proba(bags).shape == (30, 2)


def test_older_models_have_no_range() -> None:
    bags, _ = bw.datasets.make_bags(30, random_state=0)
    model = bw.load(FILES / "probit.bagwise")
    assert model.instance_score_ == "posterior" and model.instance_calibration_ is None
    with pytest.raises(ValueError, match="of a version that did not calibrate instances"):
        model.predict_instance_range(bags)
