"""Features that are too large to compute with are refused in words of ours."""

from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.baselines import BASELINES
from bagwise.io import Hdf5Rows
from bagwise.models import MODELS
from bagwise.models.inputs import check_magnitude
from toy_bags import separable_bags

ALL = {**MODELS, **BASELINES}


def make(name: str) -> Any:
    known = ALL[name]().get_params()
    small = {"n_inducing": 5, "max_iter": 3, "random_state": 0, "n_estimators": 2}
    return ALL[name](**{k: v for k, v in small.items() if k in known})


def bags_of(seed: int = 0) -> bw.Bags:
    bags = separable_bags(12, 3, seed)
    return bw.Bags.from_arrays(bags.X, bags.bag_index, y=bags.y, coords=np.arange(bags.n_instances))


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(
    "name, size",
    [*((name, 1e150) for name in sorted(ALL)), *(("MIRVM", x) for x in (1e100, -1e200, 1e308))],
)
def test_huge_values_are_refused(name: str, size: float) -> None:
    bags = bags_of()
    X = bags.X.copy()
    X[4, 1] = size
    huge = bags.with_X(X, feature_names=["a", "area", "c"])
    message = r"features must be below 1e\+100 in size .* feature 1 \('area'\) has .*input row 4"
    with pytest.raises(ValueError, match=message):
        make(name).fit(huge)
    fitted = make(name).fit(bags)
    with pytest.raises(ValueError, match="divide the feature by a power of ten"):
        fitted.predict_proba(bags.with_X(X))
    p = fitted.predict_proba(bags.with_X(np.where(np.abs(X) > 1e30, 1e99, X)))
    assert np.isfinite(p).all()


def test_one_against_the_rest_refuses_them_too() -> None:
    bags = bags_of()
    with pytest.raises(ValueError, match=r"below 1e\+100"):
        bw.OneVsRestMIL(make("VGPMIL")).fit(bags.with_X(bags.X * 1e150))


@pytest.mark.parametrize("model", [{"dtype": "float32"}, {}])
def test_in_single_precision_the_limit_is_lower(model: dict[str, Any]) -> None:
    bags = bags_of()
    X = bags.X * 1e36
    huge = bags.with_X(X if model else X.astype(np.float32))
    with pytest.raises(ValueError, match=r"below 1e\+30 in size \(float32\)"):
        bw.VGPMIL(n_inducing=5, **model).fit(huge)


def test_rows_of_a_file_are_looked_at_too(tmp_path: Any) -> None:
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["features"] = np.array([[1.0], [1e120]])
    bags = bw.Bags.from_arrays(Hdf5Rows(tmp_path / "x.h5"), [0, 1], y=[0, 1])
    with pytest.raises(ValueError, match=r"feature 0 has 1e\+120; correct"):
        check_magnitude(bags, None)


@pytest.mark.parametrize("name", sorted(ALL))
def test_features_whose_squares_are_zero_are_refused(name: str) -> None:
    bags = bags_of()
    with pytest.raises(ValueError, match="multiply them by a power of ten"):
        make(name).fit(bags.with_X(1e-300 * bags.X))


def test_small_features_are_fitted_as_large_ones() -> None:
    bags = bags_of()
    settings = {"n_inducing": 5, "random_state": 0, "bag_score": "joint"}
    one, small = (
        bw.ProbitVGPMIL(**settings).fit(bags.with_X(c * bags.X)) for c in (1.0, 2.0**-100)
    )
    p = small.predict_proba(bags.with_X(2.0**-100 * bags.X))
    np.testing.assert_allclose(p, one.predict_proba(bags), rtol=1e-6)
