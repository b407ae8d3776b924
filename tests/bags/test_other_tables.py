"""Tables of polars and pyarrow, and the dtypes that pandas has beside numpy's."""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from bagwise import Bags

DATA: dict[str, Any] = {
    "bag_id": ["s2", "s1", "s2"],
    "label": [0, 1, 0],
    "area": [0.5, 1.5, 2.5],
    "count": [7, None, 9],
}


@pytest.mark.parametrize("package", ["pyarrow", "polars"])
def test_tables_of_other_packages_are_read_as_those_of_pandas(package: str) -> None:
    module = pytest.importorskip(package)
    make = module.table if package == "pyarrow" else module.DataFrame
    found, wanted = Bags.from_frame(make(DATA)), Bags.from_frame(pd.DataFrame(DATA))
    np.testing.assert_array_equal(found.X, wanted.X)
    assert found.ids.tolist() == ["s1", "s2"] and found.y is not None
    assert found.y.tolist() == [1, 0] and found.feature_names == ("area", "count")


def test_arrays_of_polars_keep_names_and_precision() -> None:
    pl = pytest.importorskip("polars")
    table = pl.DataFrame(DATA)
    X = table.select(pl.col("area", "count").cast(pl.Float32))
    bags = Bags.from_arrays(X, table["bag_id"], table["label"])
    assert bags.dtype == np.float32 and bags.feature_names == ("area", "count")
    np.testing.assert_array_equal(bags.X, np.float32([[1.5, np.nan], [0.5, 7], [2.5, 9]]))


def test_what_is_no_table_is_refused() -> None:
    with pytest.raises(TypeError, match="pandas, polars or pyarrow; got list"):
        Bags.from_frame([1, 2])  # type: ignore[arg-type]
    pl = pytest.importorskip("polars")
    with pytest.raises(TypeError, match=r"collect it first, df\.collect\(\)"):
        Bags.from_frame(pl.DataFrame(DATA).lazy())


@pytest.mark.parametrize("backend", ["numpy_nullable", "pyarrow"])
def test_nullable_columns_are_numbers_with_gaps(backend: Any) -> None:
    frame = pd.DataFrame(DATA).convert_dtypes(dtype_backend=backend)
    bags = Bags.from_frame(frame)
    np.testing.assert_array_equal(bags.X, [[1.5, np.nan], [0.5, 7], [2.5, 9]])
    assert bags.y is not None and bags.y.tolist() == [1, 0]


def test_categories_are_ids_and_labels_but_no_features() -> None:
    frame = pd.DataFrame(DATA).astype({"bag_id": "category", "label": "category"})
    assert Bags.from_frame(frame).ids.tolist() == ["s1", "s2"]
    with pytest.raises(ValueError, match=r"'count' has dtype category.*pandas\.get_dummies"):
        Bags.from_frame(frame.astype({"count": "category"}))


def test_half_precision_becomes_single() -> None:
    X = np.array([[0.5], [1.5]], dtype=np.float16)
    bags = Bags.from_arrays(X, ["a", "b"])
    assert bags.dtype == np.float32
    np.testing.assert_array_equal(bags.X, X)
