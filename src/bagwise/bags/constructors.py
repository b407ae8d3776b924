"""The ways to build `Bags`: from arrays, lists, tables, cells, and candidates with marks."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, cast

import numpy as np
from numpy.typing import ArrayLike

from bagwise.bags import cells, inputs
from bagwise.bags import checks as check
from bagwise.bags.checks import Array
from bagwise.bags.frame_columns import (
    BY_NAME,
    LeftOut,
    choose_features,
    recognise,
    say_columns,
    warn_of_labels,
)
from bagwise.bags.labels import from_rows, refuse_other_row_order
from bagwise.bags.subsets import offsets_of

if TYPE_CHECKING:
    import pandas as pd


class BagSources:
    """The constructors of `Bags`; `_checked` puts the parts together."""

    __slots__ = ()

    @classmethod
    def _checked(
        cls, X: Array, offsets: Array, ids: Array, order: Array | None, **more: Any
    ) -> Self:
        raise NotImplementedError

    @classmethod
    def from_arrays(
        cls,
        X: Any,
        bag_ids: ArrayLike,
        y: ArrayLike | None = None,
        *,
        instance_labels: ArrayLike | None = None,
        coords: ArrayLike | None = None,
        groups: ArrayLike | None = None,
        instance_ids: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
        positive: Any = None,
    ) -> Self:
        """Build bags from one row per instance and the bag id of each row, in any order.

        Bags come in the order of `np.unique(bag_ids)`; `y` and `groups` have one entry per bag
        in that order, or are pandas Series whose index (or dicts whose keys) are the bag ids, in
        any order. They may also have one entry per row, the same for all rows of a bag. Rows keep
        their order inside a bag; X is not copied if `bag_ids` is sorted.

        `positive` is the label that a bag has when at least one of its instances is positive:
        `bags.y` is then 1 for it and 0 for the other. Two ordered categories of pandas are 0 and 1
        by themselves. Other labels stay as they are.

        >>> from bagwise import Bags
        >>> bags = Bags.from_arrays([[1.0], [2.0], [3.0]], [7, 5, 7], y=["no", "yes"])
        >>> bags.ids, bags.row_index
        (array([5, 7]), array([1, 0, 2]))
        >>> Bags.from_arrays(np.eye(2), ["s1", "s2"], ["healthy", "cancer"], positive="cancer").y
        array([0, 1])
        """
        rows = {"bag_ids": bag_ids, "instance_labels": instance_labels}
        rows |= {"coords": coords, "instance_ids": instance_ids}
        for name, values in rows.items():
            refuse_other_row_order(X, values, name)
            refuse_other_row_order(bag_ids, values, name, rows="bag_ids")
        table = X
        names = feature_names if feature_names is not None else inputs.names_of(X)
        X = check.check_features(X)
        ids, bag_of_row = check.check_bag_ids(bag_ids, len(X))
        y = from_rows(y, table, bag_ids, ids, bag_of_row, "y")
        groups = from_rows(groups, table, bag_ids, ids, bag_of_row, "groups")
        in_order = bool((np.diff(bag_of_row) >= 0).all())
        return cls._checked(
            X,
            offsets_of(np.bincount(bag_of_row, minlength=len(ids))),
            ids,
            None if in_order else np.argsort(bag_of_row, kind="stable"),
            y=y,
            positive=positive,
            instance_labels=instance_labels,
            coords=coords,
            groups=groups,
            instance_ids=instance_ids,
            feature_names=names,
        )

    @classmethod
    def from_list(
        cls,
        arrays: Sequence[Any],
        y: ArrayLike | None = None,
        *,
        ids: ArrayLike | None = None,
        instance_labels: Any = None,
        coords: Any = None,
        groups: ArrayLike | None = None,
        instance_ids: Any = None,
        feature_names: Sequence[str] | None = None,
        positive: Any = None,
    ) -> Self:
        """Build bags from a list of (n_b, D) arrays, one per bag.

        `instance_labels`, `coords` and `instance_ids` are lists of arrays too, or one array over
        all rows; None in the list of `instance_labels` means that none of that bag is known.
        `y`, `groups` and `positive` are those of `from_arrays`.

        >>> from bagwise import Bags
        >>> Bags.from_list([[[1.0, 2.0]], [[3.0, 4.0], [5.0, 6.0]]], y=[0, 1]).sizes
        array([1, 2])
        """
        if not hasattr(arrays, "__len__") or isinstance(arrays, Mapping):
            raise TypeError(
                f"from_list takes a list of (n, D) arrays; got {type(arrays).__name__}; of a dict "
                "pass from_list(list(bags.values()), ids=list(bags))"
            )
        if len(arrays) == 0:
            raise ValueError(
                "from_list needs at least one bag; got an empty list; pass (n, D) arrays"
            )
        n_bags = len(arrays)
        bag_ids = np.arange(n_bags) if ids is None else check.check_per_bag(ids, n_bags, -1, "ids")
        X, offsets = inputs.stack_bags(arrays, bag_ids)
        sizes = np.diff(offsets)
        rows = {"instance_labels": instance_labels, "coords": coords, "instance_ids": instance_ids}
        for name, values in rows.items():
            if values is not None:
                rows[name] = inputs.flatten_rows(values, arrays, sizes, bag_ids, name)
        names = feature_names if feature_names is not None else inputs.shared_names(arrays, bag_ids)
        more = {"y": y, "positive": positive, "groups": groups, "feature_names": names}
        return cls._checked(X, offsets, bag_ids, None, **more, **rows)

    @classmethod
    def from_frame(
        cls,
        df: pd.DataFrame,
        bag: str = "bag_id",
        label: str | None = "label",
        instance_label: str | None = BY_NAME,
        coords: str | Sequence[str] | None = BY_NAME,
        *,
        features: Sequence[str] | None = None,
        group: str | None = BY_NAME,
        instance_id: str | None = BY_NAME,
        positive: Any = None,
    ) -> Self:
        """Build bags from a table with one row per instance, of pandas, polars or pyarrow.

        `label` and `group` name columns that are constant inside a bag (`label=None`: no labels).
        Columns that `to_frame` writes (`instance_label`, `group`, `instance_id`, `coord_0`, ...)
        are recognised by their names, with a warning that says so; None means no such column.
        `features` defaults to all columns not named otherwise, without row numbers and ids, by
        their names (`index`, `PatientID`, `image_number`, `Unnamed: 0`, ...) or since they count
        the rows of the table or of each bag: these are left out with a warning. Features that look
        like labels are warned of. `positive` is the label of bags with a
        positive instance, see `from_arrays`. Bags come in the order of `np.unique` of the bag
        column.

        >>> from bagwise import Bags
        >>> import pandas as pd
        >>> df = pd.DataFrame({"bag_id": ["s1", "s1", "s2"], "label": [1, 1, 0], "area": [3, 4, 5]})
        >>> bags = Bags.from_frame(df)
        >>> bags.ids.tolist(), bags.y, bags.feature_names
        (['s1', 's2'], array([1, 0]), ('area',))
        """
        asked = {"instance_label": instance_label, "coords": coords, "group": group}
        asked |= {"instance_id": instance_id, "bag": bag, "label": label}
        df = inputs.as_pandas(df)
        inputs.check_is_frame(df, features)
        found, guessed = recognise(df, asked, features)
        used = [c for role, c in found.items() if c is not None and role != "coords"]
        chosen, left = choose_features(df, [*used, *found["coords"]], bag)
        if features is not None:
            chosen, left = list(features), LeftOut([], [])
        inputs.check_frame(df, [*used, *found["coords"]], chosen, found["coords"])
        say_columns(guessed, left)
        names = [str(c) for c in chosen]
        bags: Any = cls._from_columns(df, df[chosen], names, positive=positive, **found)
        warn_of_labels(bags.X, bags.offsets, bags.y, bags.feature_names)
        return cast(Self, bags)

    @classmethod
    def _from_columns(
        cls,
        df: pd.DataFrame,
        X: Any,
        names: list[str],
        *,
        bag: Any,
        label: Any,
        instance_label: Any,
        coords: list[Any],
        group: Any,
        instance_id: Any,
        positive: Any = None,
    ) -> Self:
        """Build bags from features and the columns beside them, which are known and checked."""
        ids = inputs.frame_column(df, bag)
        return cls.from_arrays(
            X,
            ids,
            y=None if label is None else inputs.frame_labels(df, label, ids),
            groups=None if group is None else inputs.frame_per_bag(df, group, ids),
            instance_labels=None if instance_label is None else df[instance_label].to_numpy(),
            coords=df[coords].to_numpy(dtype=float, na_value=np.nan) if coords else None,
            instance_ids=None if instance_id is None else inputs.frame_column(df, instance_id),
            feature_names=names,
            positive=positive,
        )

    @classmethod
    def from_anndata(
        cls,
        adata: Any,
        bag: str,
        label: str | None = None,
        *,
        rep: str | None = None,
        instance_label: str | None = None,
        coords: str | Sequence[str] | None = None,
        groups: str | None = None,
        positive: Any = None,
    ) -> Self:
        """Build bags from an AnnData object: a cell is an instance, e.g. a donor is a bag.

        `bag`, `label`, `groups` and `instance_label` name columns of `adata.obs`; labels and
        groups must be the same in all cells of a bag. Features are `adata.X` (sparse matrices stay
        sparse), or with `rep` an entry of `obsm` ("X_pca") or of `layers`. `coords` names an entry
        of `obsm` ("spatial") or columns of obs. `instance_ids` are `adata.obs_names`, and
        `bags.row_index` is the row of each cell in `adata`. Objects in backed mode are read as far
        as they are needed. `positive` is the label of bags with a positive cell, see `from_arrays`.

        >>> import pandas as pd
        >>> from types import SimpleNamespace
        >>> from bagwise import Bags
        >>> obs = pd.DataFrame({"donor": ["d2", "d1", "d2"], "disease": ["no", "yes", "no"]})
        >>> pca = np.array([[0.0, 1.0], [5.0, 1.0], [0.5, 2.0]])
        >>> adata = SimpleNamespace(obs=obs, obs_names=["c0", "c1", "c2"], var_names=[], X=None,
        ...                         obsm={"X_pca": pca}, layers={})  # or anndata.read_h5ad(...)
        >>> bags = Bags.from_anndata(adata, bag="donor", label="disease", rep="X_pca")
        >>> bags.ids.tolist(), bags.y.tolist(), bags.instance_ids.tolist(), bags.feature_names
        (['d1', 'd2'], ['yes', 'no'], ['c1', 'c0', 'c2'], ('X_pca[0]', 'X_pca[1]'))
        """
        named = [c for c in (bag, label, instance_label, groups) if c is not None]
        obs = cells.check_cells(adata, named)
        X, names = cells.representation(adata, rep)
        ids = inputs.frame_column(obs, bag)
        return cls.from_arrays(
            X,
            ids,
            y=None if label is None else inputs.frame_labels(obs, label, ids),
            groups=None if groups is None else inputs.frame_per_bag(obs, groups, ids),
            instance_labels=None if instance_label is None else obs[instance_label].to_numpy(),
            coords=cells.places(adata, obs, coords),
            instance_ids=np.asarray(adata.obs_names, dtype=str),
            feature_names=names,
            positive=positive,
        )

    @classmethod
    def from_candidates(
        cls,
        X: Any,
        coords: ArrayLike,
        marks: ArrayLike,
        radius: float,
        *,
        groups: ArrayLike | None = None,
        mark_groups: ArrayLike | None = None,
        instance_labels: ArrayLike | None = None,
        instance_ids: ArrayLike | None = None,
        feature_names: Sequence[str] | None = None,
    ) -> Self:
        """Build bags from detected candidates and a radiologist's marks [R08, Sec. 10.1].

        The candidates within `radius` of a mark (of the nearest, if of several) form its positive
        bag; every other candidate is a negative bag of its own. First come the marks in the order
        given ("mark_3"), then the single candidates in row order ("candidate_17"). If there are
        several scans, give the scan or patient of each candidate (`groups`) and of each mark
        (`mark_groups`): only those of the same group are matched, and groups are kept.

        >>> from bagwise import Bags
        >>> coords = [[0, 9], [5, 5], [5, 6]]
        >>> bags = Bags.from_candidates([[1.0], [2.0], [3.0]], coords, marks=[[5, 5]], radius=2)
        >>> bags.ids.tolist(), bags.y, bags.sizes
        (['mark_0', 'candidate_0'], array([1, 0]), array([2, 1]))
        """
        names = feature_names if feature_names is not None else inputs.names_of(X)
        X = check.check_features(X)
        xy = check.check_coords(coords, len(X))
        targets = inputs.check_marks(marks, radius, xy.shape[1])
        scans = inputs.check_scans(groups, mark_groups, len(X), len(targets))
        nearest = inputs.nearest_mark(xy, targets, radius, scans)
        n_marks, n_lost = len(targets), len(targets) - len(np.unique(nearest[nearest >= 0]))
        if n_lost:
            warnings.warn(
                f"{n_lost} of {n_marks} marks have no candidate within radius {radius} and form "
                "no bag: count them as missed, or raise radius (in the units of coords)",
                UserWarning,
                stacklevel=2,
            )
        key = np.where(nearest >= 0, nearest, n_marks + np.arange(len(X)))
        keys, first, sizes = np.unique(key, return_index=True, return_counts=True)
        ids = [f"mark_{k}" if k < n_marks else f"candidate_{k - n_marks}" for k in keys]
        return cls._checked(
            X,
            offsets_of(sizes),
            np.array(ids),
            np.argsort(key, kind="stable"),
            y=(keys < n_marks).astype(np.int64),
            groups=None if scans is None else scans[0][first],
            instance_labels=instance_labels,
            coords=xy,
            instance_ids=instance_ids,
            feature_names=names,
        )
