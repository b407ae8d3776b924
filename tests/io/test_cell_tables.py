"""Files of cells as tables of commands: columns of obs, features by name, coordinates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bagwise.io import Columns, TableError
from bagwise.io.cell_tables import read_cell_table
from cell_files import N_CELLS, write_h5ad


@pytest.fixture
def path(tmp_path: Path) -> Path:
    write_h5ad(tmp_path / "c.h5ad")
    return tmp_path / "c.h5ad"


def test_rows_are_the_cells_in_their_order(path: Path) -> None:
    table = read_cell_table(path, Columns(bag="donor", label="disease", rep="X_pca"))
    assert table.rows["obs_name"].tolist() == [f"cell{i}" for i in range(N_CELLS)]
    assert table.columns.coords == ("spatial[0]", "spatial[1]")
    assert table.columns.rep == "X_pca" and table.columns.instance_id == "obs_name"
    assert "coords" in str(table.notes[0])
    bags = table.bags
    assert bags.coords is not None and bags.y is not None
    np.testing.assert_array_equal(
        bags.coords[:, 0], table.rows["spatial[0]"].to_numpy()[bags.row_index]
    )
    assert set(bags.y.tolist()) == {"healthy", "sick"}


@pytest.mark.parametrize("rep", [None, "counts", "X_pca"])
def test_features_of_a_model_are_found_by_name(path: Path, rep: str | None) -> None:
    whole = read_cell_table(path, Columns(bag="donor", rep=rep)).bags
    names = whole.feature_names
    assert names is not None
    wanted = [names[2], names[0]]
    some = read_cell_table(
        path, Columns(bag="donor"), feature_names=wanted, remembered=Columns(rep=rep)
    ).bags
    assert some.feature_names == tuple(wanted)
    np.testing.assert_array_equal(some.X[:], whole.X[:][:, [2, 0]])
    with pytest.raises(TableError, match=r"lacks 1 of the 2 features .* 'nobody'"):
        read_cell_table(path, Columns(bag="donor", rep=rep), feature_names=[names[0], "nobody"])


def test_what_cannot_be(path: Path) -> None:
    with pytest.raises(TableError, match="no column that looks like bag ids"):
        read_cell_table(path)
    with pytest.raises(TableError, match="representation as a whole"):
        read_cell_table(path, Columns(bag="donor", features=("g*",)))
    with pytest.raises(TableError, match="column 'batch' must be constant inside a bag"):
        read_cell_table(path, Columns(bag="donor", label="batch"))
    with pytest.raises(TableError, match="has no column 'who'"):
        read_cell_table(path, Columns(bag="who"))
