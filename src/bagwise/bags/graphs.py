"""Neighbour graphs: which instances of a bag lie next to each other.

A graph is a symmetric sparse matrix W (N, N) of non-negative weights without edges across bags;
its Laplacian R = diag(W 1) - W couples the latent values of neighbours [M24, Eq. 8-10].
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.spatial import cKDTree

from bagwise.bags.sparse_rows import checked_sparse

Array = NDArray[Any]

AUTO_NEIGHBORS = 4  # where the instances lie on no grid: as many as a cell has on a grid
STRAY_SHARE = 0.05  # of the points may lie off the grid
MAX_STRIDES = 8  # gaps that are tried as strides
CELL_TOLERANCE = 0.05  # of a stride: how far from its cell's centre a point may lie
RULES = '"auto", "chain", ("radius", r), ("knn", k), a function or a sparse (N, N) matrix'


def neighbor_graph(
    coords: ArrayLike | None, offsets: ArrayLike, neighbors: Any = "auto"
) -> sparse.csr_array:
    """Return the graph (N, N) that links neighbouring instances of the same bag.

    ``"auto"`` links cells of a regular grid at one stride in L1 distance [M24, Eq. 8] if the
    coordinates form one (the stride is found from them), otherwise each instance to its four
    nearest; ``"chain"`` links consecutive rows; ``("radius", r)`` links instances not farther
    than r from each other, ``("knn", k)`` each one to its k nearest (in either direction); a
    matrix is checked and used as it is.

    >>> neighbor_graph([[0, 0], [0, 5], [5, 5], [9, 0]], [0, 3, 4]).toarray()
    array([[0., 1., 0., 0.],
           [1., 0., 1., 0.],
           [0., 1., 0., 0.],
           [0., 0., 0., 0.]])
    """
    cuts = np.asarray(offsets, dtype=np.int64)
    if sparse.issparse(neighbors) or isinstance(neighbors, np.ndarray):
        return check_graph(neighbors, cuts)
    rule, value = _parse_rule(neighbors)
    if rule == "chain":
        return _chain(cuts)
    xy = _check_coords(coords, int(cuts[-1]), neighbors)
    if rule == "radius":
        return _radius(xy, cuts, value)
    if rule == "knn":
        return _nearest(xy, cuts, int(value))
    grid = _grid(xy, cuts)
    return _nearest(xy, cuts, AUTO_NEIGHBORS) if grid is None else grid


def check_neighbors(neighbors: Any) -> None:
    """Raise unless `neighbors` is a rule by name, a function or a matrix."""
    given = callable(neighbors) or sparse.issparse(neighbors) or isinstance(neighbors, np.ndarray)
    if not given:
        _parse_rule(neighbors)


def check_graph(W: Any, offsets: ArrayLike) -> sparse.csr_array:
    """Return W as a csr_array of floats, or raise if it is no neighbour graph of these bags.

    Self-loops are dropped: they cancel in the Laplacian.

    >>> check_graph(np.array([[0, 2], [2, 0]]), [0, 2]).toarray()
    array([[0., 2.],
           [2., 0.]])
    """
    cuts = np.asarray(offsets, dtype=np.int64)
    n = int(cuts[-1])
    if np.shape(W) != (n, n):
        raise ValueError(
            f"the neighbour graph needs one row and column per instance, shape {(n, n)}; got "
            f"{np.shape(W)}; build it on the rows of bags.X, in their order"
        )
    graph = sparse.coo_array(checked_sparse(W) if sparse.issparse(W) else W).astype(np.float64)
    off = graph.row != graph.col
    graph = sparse.csr_array((graph.data[off], (graph.row[off], graph.col[off])), shape=(n, n))
    graph.eliminate_zeros()
    _check_weights(graph)
    _check_within_bags(graph, cuts)
    return graph


def laplacian(W: sparse.csr_array) -> sparse.csr_array:
    """R = diag(W 1) - W [M24, Eq. 10].

    >>> laplacian(sparse.csr_array([[0.0, 1.0], [1.0, 0.0]])).toarray()
    array([[ 1., -1.],
           [-1.,  1.]])
    """
    return sparse.csr_array(sparse.diags_array(W.sum(axis=1)) - W)


def _check_weights(graph: sparse.csr_array) -> None:
    if not np.all(np.isfinite(graph.data)):
        raise ValueError(
            "the neighbour graph's weights must be finite; got NaN or infinity; "
            "leave out edges whose weight is unknown"
        )
    if graph.nnz and graph.data.min() < 0:
        raise ValueError(
            "the neighbour graph's weights must not be negative; got "
            f"{graph.data.min():.6g}; neighbours that repel each other are outside the model"
        )
    asymmetry = abs(graph - graph.T)
    worst = asymmetry.max() if asymmetry.nnz else 0.0
    if worst > 1e-9 * max(graph.max() if graph.nnz else 0.0, 1e-300):
        raise ValueError(
            f"the neighbour graph must be symmetric; W and its transpose differ by {worst:.6g}; "
            "use W.maximum(W.T) or (W + W.T) / 2"
        )


def _check_within_bags(graph: sparse.csr_array, cuts: NDArray[np.int64]) -> None:
    bag = _bag_index(cuts)
    coo = graph.tocoo()
    across = bag[coo.row] != bag[coo.col]
    if np.any(across):
        i, j = int(coo.row[across][0]), int(coo.col[across][0])
        raise ValueError(
            f"the neighbour graph must not link different bags; {int(across.sum()) // 2} edges "
            f"do, e.g. rows {i} and {j} of bags {bag[i]} and {bag[j]}; drop those edges"
        )


def _parse_rule(neighbors: Any) -> tuple[str, float]:
    if isinstance(neighbors, str) and neighbors in ("auto", "chain"):
        return neighbors, 0.0
    pair = isinstance(neighbors, tuple | list) and len(neighbors) == 2
    if not pair or neighbors[0] not in ("radius", "knn"):
        raise ValueError(f"neighbors must be {RULES}; got {neighbors!r}")
    rule, value = neighbors
    number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not number or not 0 < value < np.inf:
        raise ValueError(f"neighbors=({rule!r}, value) needs a positive number; got {value!r}")
    if rule == "knn" and value != int(value):
        raise ValueError(f"neighbors=('knn', k) needs a whole number k; got {value!r}")
    return rule, float(value)


def _check_coords(coords: ArrayLike | None, n: int, neighbors: Any) -> Array:
    if coords is None:
        raise ValueError(
            f"neighbors={neighbors!r} needs the instances' coordinates; the bags have none; build "
            'them with coords=..., or use neighbors="chain" (consecutive rows) or a graph'
        )
    xy = np.asarray(coords, dtype=np.float64)
    xy = xy[:, None] if xy.ndim == 1 else xy
    if xy.ndim != 2 or len(xy) != n:
        raise ValueError(f"coords need one row per instance, {n}; got shape {xy.shape}")
    if not np.all(np.isfinite(xy)):
        raise ValueError(
            "coords must be finite; got NaN or infinity; "
            'drop those instances or use neighbors="chain"'
        )
    return xy


def _bag_index(cuts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.repeat(np.arange(len(cuts) - 1), np.diff(cuts))


def _symmetric(i: Array, j: Array, n: int) -> sparse.csr_array:
    """Unit weights on the edges i-j, in both directions, each counted once."""
    rows, cols = np.concatenate([i, j]), np.concatenate([j, i])
    graph = sparse.csr_array((np.ones(len(rows)), (rows, cols)), shape=(n, n))
    graph.data[:] = 1.0  # the constructor has summed repeated edges
    return graph


def _chain(cuts: NDArray[np.int64]) -> sparse.csr_array:
    bag = _bag_index(cuts)
    i = np.flatnonzero(bag[1:] == bag[:-1])
    return _symmetric(i, i + 1, len(bag))


def _radius(xy: Array, cuts: NDArray[np.int64], radius: float) -> sparse.csr_array:
    pairs = [
        a + cKDTree(xy[a:b]).query_pairs(radius, output_type="ndarray").reshape(-1, 2)
        for a, b in itertools.pairwise(cuts)
    ]
    edges = np.concatenate(pairs) if pairs else np.empty((0, 2), dtype=np.int64)
    return _symmetric(edges[:, 0], edges[:, 1], len(xy))


def _nearest(xy: Array, cuts: NDArray[np.int64], k: int) -> sparse.csr_array:
    parts = [a + _bag_nearest(xy[a:b], k) for a, b in itertools.pairwise(cuts) if b - a > 1]
    edges = np.concatenate(parts) if parts else np.empty((0, 2), dtype=np.int64)
    return _symmetric(edges[:, 0], edges[:, 1], len(xy))


def _bag_nearest(xy: Array, k: int) -> NDArray[np.int64]:
    """(edges, 2) from each point to its k nearest others."""
    n = len(xy)
    k = min(k, n - 1)
    found = cKDTree(xy).query(xy, k=k + 1)[1]  # (n, k + 1), itself among them
    other = found != np.arange(n)[:, None]
    other[np.all(other, axis=1), -1] = False  # more than k others at the very same place
    return np.column_stack([np.repeat(np.arange(n), k), found[other]])


def _grid(xy: Array, cuts: NDArray[np.int64]) -> sparse.csr_array | None:
    """Cells at one stride in L1 distance, or None where the points form no grid."""
    bag = _bag_index(cuts)
    cells, off_grid = _cells(xy, cuts, bag)
    if np.mean(off_grid) > STRAY_SHARE * xy.shape[1]:
        return None
    graph = _cell_graph(cells, bag)
    # Whole pixel numbers are a grid of stride one, on which hardly anything has a neighbour.
    shared = np.diff(cuts)[bag] > 1
    isolated = np.diff(graph.indptr) == 0
    return graph if not np.any(shared) or np.mean(isolated[shared]) < 0.5 else None


def _cells(
    xy: Array, cuts: NDArray[np.int64], bag: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Cell numbers (N, d) counted from each bag's corner, and which points lie off the grid."""
    cells = np.zeros(xy.shape, dtype=np.int64)
    off_grid = np.zeros(len(xy), dtype=bool)
    for axis, x in enumerate(xy.T):
        position = _positions(x, cuts, bag)
        cells[:, axis] = np.rint(position)
        off_grid |= np.abs(position - cells[:, axis]) > CELL_TOLERANCE
    return cells - cells.min(axis=0), off_grid


def _positions(x: Array, cuts: NDArray[np.int64], bag: NDArray[np.int64]) -> Array:
    """Coordinates in units of the smallest gap that puts nearly all points on a grid."""
    position = np.zeros(len(x))
    for stride in _gaps(x, bag):
        position = (x - np.minimum.reduceat(x, cuts[:-1])[bag]) / stride
        position -= _phase(position, cuts)[bag]
        if np.mean(np.abs(position - np.rint(position)) > CELL_TOLERANCE) <= STRAY_SHARE:
            break
    return position


def _phase(position: Array, cuts: NDArray[np.int64]) -> Array:
    """(B,) common remainder of most positions: a bag's corner may itself lie off the grid."""
    turns = np.add.reduceat(np.exp(2j * np.pi * position), cuts[:-1])
    return np.angle(turns) / (2 * np.pi)


def _gaps(x: Array, bag: NDArray[np.int64]) -> Array:
    """The most frequent gaps between neighbouring values of an axis inside bags, rising."""
    order = np.lexsort((x, bag))
    gaps = np.diff(x[order])[np.diff(bag[order]) == 0]
    gaps = np.sort(gaps[gaps > 1e-9 * max(float(np.max(np.abs(x))), 1e-300)])
    if len(gaps) == 0:
        return gaps
    fresh = np.flatnonzero(np.concatenate([[True], np.diff(gaps) > CELL_TOLERANCE * gaps[:-1]]))
    counts = np.diff(np.append(fresh, len(gaps)))
    frequent = np.argsort(-counts, kind="stable")[:MAX_STRIDES]
    return np.sort([float(np.median(gaps[fresh[i] : fresh[i] + counts[i]])) for i in frequent])


def _cell_graph(cells: NDArray[np.int64], bag: NDArray[np.int64]) -> sparse.csr_array:
    """Links between all instances of adjacent cells."""
    extent = cells.max(axis=0) + 2  # a free cell at each border keeps rows apart
    if np.prod(extent.astype(np.float64)) * (bag[-1] + 1) > 2.0**62:
        return sparse.csr_array((len(bag), len(bag)))
    strides = np.concatenate([np.cumprod(extent[::-1])[::-1][1:], [1]])
    key = bag * np.prod(extent) + cells @ strides
    cell_keys, cell = np.unique(key, return_inverse=True)
    members = sparse.csr_array(
        (np.ones(len(key)), (np.arange(len(key)), cell)), shape=(len(key), len(cell_keys))
    )
    lower, upper = [], []
    for step in strides:
        position = np.minimum(np.searchsorted(cell_keys, cell_keys + step), len(cell_keys) - 1)
        hit = np.flatnonzero(cell_keys[position] == cell_keys + step)
        lower.append(hit)
        upper.append(position[hit])
    links = _symmetric(np.concatenate(lower), np.concatenate(upper), len(cell_keys))
    return sparse.csr_array(members @ links @ members.T)
