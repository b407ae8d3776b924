"""The Ising-coupled model: limits, oracles, learning, prediction and bad input."""

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from scipy import sparse, special, stats
from scipy.stats import multivariate_normal

import bagwise as bw
from bagwise.core.features import kernel_matrix
from bagwise.core.inference.coupling import chosen_coupling
from bagwise.kernels import RBF

Oracle = dict[str, np.ndarray]
SETTINGS = {
    "bag_score": "joint",
    "instance_score": "posterior",
    "n_inducing": 15,
    "random_state": 0,
}


def grid_bags(n_bags: int = 12, side: int = 4, seed: int = 0) -> tuple[bw.Bags, np.ndarray]:
    """Grids whose left half is positive in every other bag; features are noisy."""
    rng = np.random.default_rng(seed)
    xy = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)
    truth = np.concatenate([(b % 2) * (xy[:, 0] < side / 2) for b in range(n_bags)])
    X = rng.normal(size=(len(truth), 2))
    X[:, 0] += 2.0 * truth
    ids = np.repeat(np.arange(n_bags), side**2)
    coords = np.tile(xy, (n_bags, 1)).astype(float)
    return bw.Bags.from_arrays(X, ids, np.arange(n_bags) % 2, coords=coords), truth


@pytest.mark.parametrize("approximation", ["fitc", "vfe"])
def test_no_coupling_is_the_probit_model(approximation: str) -> None:
    bags, _ = grid_bags()
    same = SETTINGS | {"kernel": None, "approximation": approximation}
    ising = bw.IsingVGPMIL(coupling=0.0, **same).fit(bags)
    probit = bw.ProbitVGPMIL(**same).fit(bags)
    np.testing.assert_allclose(ising.predict_proba(bags), probit.predict_proba(bags), atol=1e-8)
    np.testing.assert_allclose(ising.elbo_, probit.elbo_, rtol=1e-9)


@pytest.mark.parametrize("approximation", ["fitc", "vfe"])
def test_a_vanishing_coupling_tends_to_the_probit_model(approximation: str) -> None:
    bags, _ = grid_bags()
    ising = bw.IsingVGPMIL(coupling=1e-6, approximation=approximation, **SETTINGS).fit(bags)
    probit = bw.ProbitVGPMIL(kernel=None, approximation=approximation, **SETTINGS).fit(bags)
    p, q = ising.predict_instance_proba(bags), probit.predict_instance_proba(bags)
    np.testing.assert_allclose(p, q, atol=1e-3)


@pytest.mark.parametrize("lam", [0.5, 2.0])
@pytest.mark.parametrize("file", ["peers_a", "peers_b"])
def test_published_model(file: str, lam: float, load_oracle: Callable[[str], Oracle]) -> None:
    oracle = load_oracle(file)
    train = bw.Bags.from_arrays(oracle["X"], oracle["bag"], oracle["y"], coords=oracle["coords"])
    test = bw.Bags.from_arrays(oracle["Xt"], oracle["bagt"], coords=oracle["coords_t"])
    kernel = RBF(float(oracle["variance"]), float(oracle["lengthscale"]))
    model = bw.IsingVGPMIL(
        coupling=lam,
        moments="diagonal",
        approximation="vfe",
        kernel=kernel,
        inducing=oracle["Z"],
        mean=0.0,
        learn_hyperparameters=False,
        standardize=False,
        tol=1e-12,
        max_iter=2000,
    ).fit(train)
    L = np.linalg.cholesky(kernel.cross(oracle["Z"], oracle["Z"]) + 1e-6 * np.eye(15))
    q = model.posterior_
    np.testing.assert_allclose(L @ q.m, oracle[f"pr{lam}_m"], atol=1e-3)
    np.testing.assert_allclose(L @ q.S @ L.T, oracle[f"pr{lam}_S"], atol=1e-3)
    np.testing.assert_allclose(model.latent(test)[0], oracle[f"pr{lam}_fmean"], atol=1e-3)
    p = model.predict_instance_proba(test)[:, 1]
    np.testing.assert_allclose(p, oracle[f"pr{lam}_inst"], atol=1e-3)


@pytest.mark.parametrize("approximation", ["fitc", "vfe"])
@pytest.mark.parametrize("lam", [0.3, 3.0])
def test_the_ep_objective_never_falls(approximation: str, lam: float) -> None:
    bags, _ = grid_bags()
    history = (
        bw.IsingVGPMIL(coupling=lam, approximation=approximation, **SETTINGS)
        .fit(bags)
        .elbo_history_
    )
    assert np.all(np.diff(history) >= -1e-6 * np.abs(history[1:]))


def test_coupling_helps_where_neighbours_agree() -> None:
    train, _ = grid_bags(20, seed=1)
    test, truth = grid_bags(20, seed=2)
    auc = [
        bw.metrics.roc_auc(
            truth,
            bw.IsingVGPMIL(coupling=lam, **SETTINGS).fit(train).predict_instance_proba(test)[:, 1],
        )
        for lam in (0.0, 1.0)
    ]
    assert auc[1] > auc[0] + 0.02


FAR = np.array([[5.0, 5.0]] * 3 + [[5.2, 4.9]])  # copies, far from all inducing points


@pytest.mark.parametrize("approximation", ["fitc", "vfe"])
@pytest.mark.parametrize("far", [False, True])
def test_bag_probability_is_the_orthant_of_the_joint_gaussian(
    approximation: str, far: bool
) -> None:
    bags, _ = grid_bags(8, side=2)
    model = bw.IsingVGPMIL(coupling=0.7, approximation=approximation, **SETTINGS).fit(bags)
    post = model.posterior_
    bag = bw.Bags.from_list([FAR], coords=[bags[0].coords]) if far else bags[0]
    X = post.scaled(bag.X)
    A, _ = post._whitener(X)
    laplacian = np.array([[2, -1, -1, 0], [-1, 2, 0, -1], [-1, 0, 2, -1], [0, -1, -1, 2]], float)
    sigma = np.linalg.inv(np.eye(4) + 0.7 * laplacian)
    R = kernel_matrix(post.kernel, X) - A @ A.T
    C = sigma + sigma @ (R + A @ post.S @ A.T) @ sigma
    mean = sigma @ (post.c0 + A @ post.m)
    negative = multivariate_normal(mean, C, abseps=1e-8, maxpts=10**6).cdf(np.zeros(4))
    p, std = model.predict_proba(bag, return_std=True)
    assert abs(p[0, 0] - negative) < 3e-3
    assert 0 < std[0] < 0.5
    alone = special.ndtr(mean / np.sqrt(np.diagonal(C)))
    np.testing.assert_allclose(model.predict_instance_proba(bag)[:, 1], alone, atol=1e-4)


def shuffled_places(bags: bw.Bags, seed: int) -> bw.Bags:
    """The same bags, the instances of each at places of each other."""
    rng, coords = np.random.default_rng(seed), bags.coords.copy()
    for a, b in itertools.pairwise(bags.offsets):
        coords[a:b] = rng.permutation(coords[a:b])
    return bw.Bags.from_arrays(bags.X, bags.bag_index, bags.y, coords=coords)


FIXED = SETTINGS | {"learn_hyperparameters": False, "bag_score": "joint", "coupling": "learn"}


# Diagonal moments have no bound, and their sweeps need not settle.
@pytest.mark.filterwarnings("ignore:the fit stopped after max_iter=30")
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "way",
    [{}, {"approximation": "vfe"}, {"moments": "diagonal", "max_iter": 30}, {"neighbors": "chain"}],
    ids=["fitc", "vfe", "diagonal", "chain"],
)
def test_a_learned_coupling_tells_structure_from_none(seed: int, way: dict) -> None:
    bags, _ = grid_bags(30, seed=seed)
    if "neighbors" in way:  # rows in the order of columns: the left half comes first
        order = np.lexsort((bags.coords[:, 1], bags.coords[:, 0], bags.bag_index))
        bags = bw.Bags.from_arrays(bags.X[order], bags.bag_index, bags.y)
        mixed = np.concatenate(
            [np.random.default_rng(seed).permutation(16) + 16 * b for b in range(30)]
        )
        other = bw.Bags.from_arrays(bags.X[mixed], bags.bag_index, bags.y)
    else:
        other = shuffled_places(bags, seed)
    model = bw.IsingVGPMIL(**FIXED | way).fit(bags)
    assert model.coupling_ >= 0.2
    assert bw.IsingVGPMIL(**FIXED | way).fit(other).coupling_ <= 0.1
    given = bw.IsingVGPMIL(**FIXED | way | {"coupling": 0.3}).fit(bags)
    assert given.coupling_gains_ is None and given.coupling_ == 0.3
    lam, gain, error = model.coupling_gains_.T
    assert lam[0] == gain[0] == error[0] == 0 and model.coupling_ in lam


def test_no_coupling_learned_is_the_probit_model() -> None:
    bags = shuffled_places(grid_bags()[0], 0)
    model = bw.IsingVGPMIL(**FIXED).fit(bags)
    assert model.coupling_ == 0
    probit = bw.ProbitVGPMIL(**{k: v for k, v in FIXED.items() if k != "coupling"}).fit(bags)
    np.testing.assert_allclose(model.predict_proba(bags), probit.predict_proba(bags), atol=1e-8)


def test_a_learned_coupling_is_stored(tmp_path) -> None:
    bags, _ = grid_bags(30)
    model = bw.IsingVGPMIL(**FIXED).fit(bags)
    model.save(tmp_path / "m.bagwise")
    loaded = bw.load(tmp_path / "m.bagwise")
    assert loaded.coupling_ == model.coupling_ > 0
    np.testing.assert_array_equal(loaded.predict_proba(bags), model.predict_proba(bags))


def slides(n_slides: int = 12, seed: int = 0) -> tuple[bw.Bags, np.ndarray]:
    """Grids of patches with many features, a disc of positives in every other one."""
    rng = np.random.default_rng(seed)
    xy = np.stack(np.meshgrid(np.arange(12.0), np.arange(10.0)), axis=-1).reshape(-1, 2)
    W, X, truth = rng.normal(size=(30, 256)), [], []
    for s in range(n_slides):
        z = rng.normal(size=(len(xy), 30))
        near = np.hypot(*(xy - xy[rng.integers(len(xy))]).T) < 2.6
        truth.append(near & (s % 2 == 1))
        z[truth[-1], :6] += 2.0
        X.append(0.2 * z @ W + 0.5 * rng.normal(size=(len(xy), 256)))
    coords = [xy] * n_slides
    y = np.arange(n_slides) % 2
    return bw.Bags.from_list(X, y, coords=coords), np.concatenate(truth)


WIDE = {"n_inducing": 20, "bag_score": "joint", "random_state": 0}


@pytest.mark.parametrize("approximation", ["fitc", "vfe"])
@pytest.mark.parametrize("coupling", [1.0, "learn"])
def test_wide_slides_are_not_ranked_backwards(coupling: float | str, approximation: str) -> None:
    bags, truth = slides()
    train, test, told = bags[:6], bags[6:], truth[720:]
    model = bw.IsingVGPMIL(coupling=coupling, approximation=approximation, **WIDE).fit(train)
    assert model.coupling_ >= 0.2
    assert bw.metrics.roc_auc(told, model.predict_instance_proba(test)[:, 1]) > 0.9
    assert bw.metrics.roc_auc(test.y, model.predict_proba(test)[:, 1]) == 1


def test_a_coupling_that_turns_the_ranking_round_warns_and_is_not_learned() -> None:
    train = slides()[0][:6]
    alone = bw.IsingVGPMIL(coupling=0.0, **WIDE).fit(train)
    given = WIDE | {
        "kernel": alone.kernel_,
        "inducing": alone.inducing_points_,
        "mean": alone.mean_,  # suits no coupled model
        "learn_hyperparameters": False,
    }
    with pytest.warns(UserWarning, match=r"rank correlation is -0.*mean='learn', a smaller coupl"):
        bw.IsingVGPMIL(coupling=1.0, **given).fit(train)
    learned = bw.IsingVGPMIL(coupling="learn", **given).fit(train)
    wanted = chosen_coupling(learned.coupling_gains_)
    assert learned.coupling_ < wanted
    f, g = (m.latent(train[1::2])[0] for m in (alone, learned))
    assert stats.spearmanr(f, g)[0] > 0


def test_known_labels_are_used() -> None:
    bags, truth = grid_bags()
    labels = np.where(np.arange(len(truth)) % 5 == 0, truth, np.nan)
    plain = bw.IsingVGPMIL(**SETTINGS).fit(bags).predict_instance_proba(bags)[:, 1]
    told = bags.with_instance_labels(labels)
    p = bw.IsingVGPMIL(**SETTINGS).fit(told).predict_instance_proba(bags)[:, 1]
    assert bw.metrics.roc_auc(truth, p) > bw.metrics.roc_auc(truth, plain)


def cross_bag_graph(n: int) -> sparse.csr_array:
    return sparse.csr_array((np.ones(2), ([0, n - 1], [n - 1, 0])), shape=(n, n))


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"coupling": -1.0}, "coupling"),
        ({"coupling": np.nan}, "coupling"),
        ({"moments": "exact"}, "moments must be one of"),
        ({"neighbors": sparse.csr_array((3, 3))}, r"192"),
        ({"neighbors": cross_bag_graph(192)}, "bag"),
    ],
)
def test_bad_input(settings: dict, match: str) -> None:
    bags, _ = grid_bags()
    with pytest.raises(ValueError, match=match):
        bw.IsingVGPMIL(**settings).fit(bags)


def test_missing_coordinates() -> None:
    bags, _ = grid_bags()
    bare = bw.Bags.from_arrays(bags.X, bags.bag_index, bags.y)
    with pytest.raises(ValueError, match="coords"):
        bw.IsingVGPMIL().fit(bare)
