"""`Bags`: labelled groups of instances, the one container that every model takes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bagwise.bags import checks as check
from bagwise.bags import inputs
from bagwise.bags.checks import Array
from bagwise.bags.constructors import BagSources
from bagwise.bags.frame_columns import own_columns
from bagwise.bags.labels import bag_labels, in_bag_order
from bagwise.bags.messages import in_words
from bagwise.bags.pictured import as_html
from bagwise.bags.subsets import check_concat, held_out, offsets_of, resolve_key, taken

if TYPE_CHECKING:
    import pandas as pd

PER_ROW = ("X", "instance_labels", "coords", "instance_ids", "row_index")
_PER_BAG = ("y", "ids", "groups")
_OPTIONAL = ("y", "instance_labels", "coords", "instance_ids", "groups", "feature_names")


class Bags(BagSources):
    """Bags of instances with one label per bag; immutable, indexed by bag.

    Build it with `Bags.from_arrays`, `from_list`, `from_frame` or `from_candidates`.

    Attributes
    ----------
    X : (N, D) features, float32 or float64; the rows of a bag are adjacent. Those of a sparse
        matrix stay sparse, in `X.matrix`. NaN is a missing value, which no model takes: fill it
        in, e.g. by `InstanceTransformer(SimpleImputer())` before the model.
    offsets : (B + 1,) int64; bag b has the rows `offsets[b]:offsets[b + 1]`.
    y : (B,) bag labels of any type, or None.
    ids : (B,) bag ids; they may repeat after `bags[[0, 0]]` or `concat`.
    instance_labels : (N,) float64, 0 or 1, NaN where unknown, or None.
    coords : (N, k) positions of the instances, or None.
    instance_ids : (N,) or None.
    groups : (B,) what must stay together in a split, e.g. the patient, or None.
    feature_names : tuple of D str, or None.
    row_index : (N,) the row of the original input that each row of `X` came from.

    The arrays are read-only views: input that is already in order is not copied, so do not
    change it afterwards.

    >>> bags = Bags.from_arrays([[1.0], [2.0], [3.0]], ["b", "a", "b"], y=[0, 1])
    >>> bags
    Bags(2 bags: 1 positive, 1 negative; 3 instances x 1 feature, 1-2 per bag; float64)
    >>> bags[1].X.ravel()
    array([1., 3.])
    """

    __slots__ = (*PER_ROW, *_PER_BAG, "__weakref__", "feature_names", "offsets")

    X: Array
    offsets: NDArray[np.int64]
    y: Array | None
    ids: Array
    instance_labels: NDArray[np.float64] | None
    coords: Array | None
    instance_ids: Array | None
    groups: Array | None
    feature_names: tuple[str, ...] | None
    row_index: NDArray[np.int64]

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise TypeError(
            "Bags are not built by Bags(...); use Bags.from_arrays(X, bag_ids, y), "
            "Bags.from_list([X1, X2], y) or Bags.from_frame(df)"
        )

    @classmethod
    def _build(cls, **fields: Any) -> Bags:
        """Make a Bags of parts that are valid already."""
        self = object.__new__(cls)
        for name in (*PER_ROW, *_PER_BAG, "offsets", "feature_names"):
            object.__setattr__(self, name, _read_only(fields.get(name)))
        return self

    @classmethod
    def _checked(
        cls, X: Array, offsets: Array, ids: Array, order: Array | None, **more: Any
    ) -> Bags:
        """Check the optional parts, put rows in `order`, and look for infinities."""
        n_rows, n_bags = len(X), len(offsets) - 1
        rows: dict[str, Any] = {"X": X, "row_index": np.arange(n_rows, dtype=np.int64)}
        if more.get("instance_labels") is not None:
            rows["instance_labels"] = check.check_instance_labels(more["instance_labels"], n_rows)
        if more.get("coords") is not None:
            rows["coords"] = check.check_coords(more["coords"], n_rows)
        if more.get("instance_ids") is not None:
            rows["instance_ids"] = inputs.check_instance_ids(more["instance_ids"], n_rows)
        if order is not None:
            check.check_sortable(X)
            rows = {name: taken(values, order) for name, values in rows.items()}
        per_bag: dict[str, Any] = {}
        if more.get("y") is not None:
            per_bag["y"] = bag_labels(more["y"], ids, n_rows, more.get("positive"), building=True)
        if more.get("groups") is not None:
            groups = in_bag_order(more["groups"], ids, "groups", building=True)
            per_bag["groups"] = check.check_per_bag(groups, n_bags, n_rows, "groups")
        names = inputs.check_feature_names(more.get("feature_names"), X.shape[1])
        check.refuse_infinities(rows["X"], offsets, ids, rows["row_index"], names)
        return cls._build(**rows, **per_bag, offsets=offsets, ids=ids, feature_names=names)

    @classmethod
    def concat(cls, parts: Sequence[Bags]) -> Bags:
        """Put several Bags after each other; optional parts must be in all of them or in none.

        `row_index` counts the rows of the result; ids are kept, even if they repeat.

        >>> bags = Bags.from_list([[[1.0]], [[2.0], [3.0]]], y=[0, 1])
        >>> Bags.concat([bags, bags]).sizes
        array([1, 2, 1, 2])
        """
        parts = list(parts)
        if not all(isinstance(p, Bags) for p in parts):
            found = sorted({type(p).__name__ for p in parts})
            raise TypeError(f"concat takes a list of Bags; got {found}; see Bags.from_list")
        check_concat(parts, _OPTIONAL)
        fields: dict[str, Any] = {"feature_names": parts[0].feature_names}
        for name in (*PER_ROW, *_PER_BAG):
            if getattr(parts[0], name) is not None:
                fields[name] = inputs.joined([getattr(p, name) for p in parts])
        fields["row_index"] = np.arange(len(fields["X"]), dtype=np.int64)
        return cls._build(**fields, offsets=offsets_of(np.concatenate([p.sizes for p in parts])))

    def split(
        self, test_size: float | int = 0.25, random_state: Any = None, stratify: bool = True
    ) -> tuple[Bags, Bags]:
        """Divide the bags into (train, test) at random, both in their present order.

        `stratify` keeps the proportions of the labels, if there are any. If there are `groups`,
        whole groups go to one side and `test_size` counts groups.

        >>> bags = Bags.from_arrays(np.eye(8), range(8), y=[0, 1] * 4)
        >>> train, test = bags.split(0.5, random_state=0)
        >>> train.y.sum(), test.y.sum()
        (np.int64(2), np.int64(2))
        """
        units = np.arange(len(self)) if self.groups is None else self.groups
        in_test = held_out(self.y if stratify else None, units, test_size, random_state)
        return self[~in_test], self[in_test]

    def with_labels(self, y: ArrayLike | None, *, positive: Any = None) -> Bags:
        """Return the same bags with other labels (None: without).

        A pandas Series whose index holds the bag ids is put in their order. With `positive`
        labels become 1 where they are that value and 0 elsewhere.

        >>> Bags.from_list([[[1.0]]], y=[0]).with_labels(["healthy"]).y
        array(['healthy'], dtype='<U7')
        """
        if y is not None:
            y = bag_labels(y, self.ids, self.n_instances, positive)
        return self._replace(y=y)

    def with_instance_labels(self, labels: ArrayLike | None) -> Bags:
        """Return the same bags with other instance labels: 0, 1, or NaN/-1 for unknown.

        >>> Bags.from_list([[[1.0], [2.0]]]).with_instance_labels([1, -1]).instance_labels
        array([ 1., nan])
        """
        if labels is not None:
            inputs.refuse_table_of_other_rows(labels, self.row_index, "with_instance_labels")
            labels = check.check_instance_labels(labels, self.n_instances)
        return self._replace(instance_labels=labels)

    def with_X(self, X: Any, feature_names: Sequence[str] | None = None) -> Bags:
        """Return the same bags with other features of the same rows.

        >>> bags = Bags.from_list([[[1.0], [2.0]]])
        >>> bags.with_X(bags.X[:, [0, 0]]).shape
        (1, 2)
        """
        inputs.refuse_table_of_other_rows(X, self.row_index, "with_X")
        X = check.check_features(X)
        if len(X) != self.n_instances:
            raise ValueError(
                f"with_X needs one row per instance: {self.n_instances}; got {len(X)}; "
                "to drop instances build new Bags"
            )
        names = inputs.check_feature_names(feature_names, X.shape[1])
        check.refuse_infinities(X, self.offsets, self.ids, self.row_index, names)
        return self._replace(X=X, feature_names=names)

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas table with one row per instance, as `from_frame` reads it.

        Columns: bag_id, then label, group, instance_id, instance_label, coord_0... where the
        bags have them, then the features (x0... if they have no names). Features that
        `from_frame` would take for something else by their names (`label`, `id`) are refused.

        >>> Bags.from_list([[[1.0], [2.0]]], y=[1], ids=["s1"]).to_frame().values.tolist()
        [['s1', 1, 1.0], ['s1', 1, 2.0]]
        """
        import pandas as pd

        if len(np.unique(self.ids)) < len(self):
            raise ValueError(
                "a table tells bags apart by their ids, which must be distinct; got repeated ids; "
                "build the bags anew with distinct ids, e.g. Bags.from_list(..., ids=range(n))"
            )
        return pd.DataFrame(own_columns(self))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(B,) number of instances of each bag."""
        return np.diff(self.offsets)

    @property
    def bag_index(self) -> NDArray[np.int64]:
        """(N,) position of the bag of each row; computed at each call."""
        return np.repeat(np.arange(len(self)), self.sizes)

    @property
    def n_instances(self) -> int:
        """Number of instances N."""
        return len(self.X)

    @property
    def n_features(self) -> int:
        """Number of features D."""
        return self.X.shape[1]

    @property
    def shape(self) -> tuple[int, int]:
        """(B, D): with it scikit-learn takes Bags for a container of B samples."""
        return len(self), self.n_features

    @property
    def ndim(self) -> int:
        """Always 2, the length of `shape`."""
        return 2

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of X."""
        return self.X.dtype

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Bags]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, key: Any) -> Bags:
        chosen = resolve_key(key, self.ids)
        rows: slice | Array
        if isinstance(chosen, slice):  # rows of adjacent bags are adjacent: all views
            rows = slice(int(self.offsets[chosen.start]), int(self.offsets[chosen.stop]))
            offsets = self.offsets[chosen.start : chosen.stop + 1] - rows.start
        else:
            offsets = offsets_of(self.sizes[chosen])
            shift = self.offsets[chosen] - offsets[:-1]
            rows = np.arange(offsets[-1]) + np.repeat(shift, np.diff(offsets))
        fields = {k: taken(getattr(self, k), rows) for k in PER_ROW}
        fields |= {k: taken(getattr(self, k), chosen) for k in _PER_BAG}
        return self._build(**fields, offsets=offsets, feature_names=self.feature_names)

    def __setattr__(self, name: str, value: Any) -> NoReturn:
        raise AttributeError(
            f"Bags are immutable; tried to set {name!r}; use with_labels, with_instance_labels or "
            "with_X, which return new Bags"
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Bags are immutable; tried to delete {name!r}")

    def __array__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise TypeError(
            "Bags are not one array; use bags.X for the instances, bags.y for labels; to apply a "
            "scikit-learn transformer, wrap it: bagwise.InstanceTransformer(StandardScaler()); "
            "BaggingClassifier and AdaBoostClassifier make arrays too: use VotingClassifier"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self._fields(),)

    def __repr__(self) -> str:
        extras = [k for k in _OPTIONAL[1:] if getattr(self, k) is not None]
        return f"Bags({'; '.join(in_words(self))}{'; with ' + ', '.join(extras) if extras else ''})"

    def _repr_html_(self) -> str:
        return as_html(self)

    def _fields(self) -> dict[str, Any]:
        return {k: getattr(self, k) for k in (*PER_ROW, *_PER_BAG, "offsets", "feature_names")}

    def _replace(self, **changes: Any) -> Bags:
        return self._build(**{**self._fields(), **changes})


def as_bags(X: Any, *, estimator_name: str | None = None) -> Bags:
    """Make Bags of whatever a user gives to an estimator.

    Bags pass through; a list of 2-D arrays is a list of bags (a list of Bags is joined); any
    other array-like (2-D array, nested list, table) is one instance per bag.

    >>> as_bags([[1.0, 2.0], [3.0, 4.0]])
    Bags(2 bags, unlabelled; 2 instances x 2 features, 1 per bag; float64)
    >>> len(as_bags([np.ones((3, 2)), np.zeros((1, 2))]))
    2
    """
    if isinstance(X, Bags):
        if len(X) == 0:
            whom = f" by {estimator_name}" if estimator_name else ""
            raise ValueError(f"Found Bags with 0 bags while a minimum of 1 is required{whom}.")
        return X
    if is_bagged(X):
        return Bags.concat(X) if all(isinstance(x, Bags) for x in X) else Bags.from_list(X)
    names = inputs.names_of(X)
    X = check.check_features(X, estimator_name=estimator_name)
    n = np.arange(len(X) + 1, dtype=np.int64)
    return Bags._checked(X, n, n[:-1], None, feature_names=names)


def is_bagged(X: Any) -> bool:
    """Whether rows come in bags: Bags, or a list with 2-D arrays in it.

    >>> is_bagged([np.ones((3, 2))]), is_bagged([[1.0, 2.0]])
    (True, False)
    """
    several = isinstance(X, list | tuple) and any(getattr(x, "ndim", 0) == 2 for x in X)
    return isinstance(X, Bags) or several


def _rebuild(fields: dict[str, Any]) -> Bags:
    return Bags._build(**fields)


def _read_only(values: Any) -> Any:
    """A read-only view of an array, of class ndarray even for a memmap; others as they are."""
    if not isinstance(values, np.ndarray):
        return values
    view = np.asarray(values).view()
    view.flags.writeable = False
    return view
