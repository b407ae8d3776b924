"""What the models reach on real data, and what instance labels add, as markdown tables.

    python benchmarks/models.py [--only birds newsgroups colon cq500 mixed gibbs]

All but `mixed` need the shared data folder (BAGWISE_SHARED, or ../shared).
"""

import argparse
import warnings
from collections.abc import Callable

import numpy as np
from shared_data import load
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

import bagwise as bw
from bagwise.kernels import Matern
from bagwise.metrics import average_precision, roc_auc
from bagwise.models._gaussian_process import GaussianProcessMIL

Model = Callable[[], GaussianProcessMIL]
FACTORISED = {"label_posterior": "factorised", "H": 100.0}


def run_studies(studies: dict[str, Callable[[], None]], about: str) -> None:
    """Run the studies that the command line asks for, with one BLAS thread."""
    parser = argparse.ArgumentParser(description=about.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(studies), default=list(studies))
    warnings.simplefilter("ignore", ConvergenceWarning)
    with threadpool_limits(1, user_api="blas"):
        for name in parser.parse_args().only:
            print(f"\n{name}: {studies[name].__doc__}", flush=True)
            studies[name]()


def show(*cells: object) -> None:
    """One row of a table."""
    shown = (f"{c:.3f}" if isinstance(c, float) else str(c) for c in cells)
    print("| " + " | ".join(shown) + " |", flush=True)


def instance_p(model: GaussianProcessMIL, bags: bw.Bags) -> np.ndarray:
    return np.asarray(model.predict_instance_proba(bags))[:, 1]


def birds(splits: int = 10) -> None:
    """Mean instance AUC over 13 classes and 10 half splits, Matern 1/2, 50 inducing points."""
    # Calibrated bag probabilities would cost five more fits and leave instances as they are.
    settings = {"kernel": Matern(0.5), "n_inducing": 50, "bag_score": "joint", "random_state": 0}
    models: dict[str, Model] = {
        "ProbitVGPMIL": lambda: bw.ProbitVGPMIL(**settings),
        "VGPMIL": lambda: bw.VGPMIL(**settings),
        "VGPMIL factorised, mean 0": lambda: bw.VGPMIL(mean=0.0, **FACTORISED, **settings),
    }
    bags, data = bird_bags()
    for name, make in models.items():
        means = [birds_split(make, bags, data, split) for split in range(splits)]
        show(name, float(np.mean(means)), f"{np.std(means):.3f} over splits")


def bird_bags() -> tuple[bw.Bags, dict[str, np.ndarray]]:
    """Only syllables with ground truth, as in [W21]; bag labels follow."""
    _, data = load("birds_hja")
    rows = data["y_inst"] >= 0
    data = {"X": data["X"][rows], "bag": data["bag"][rows], "y_inst": data["y_inst"][rows]}
    return bw.Bags.from_arrays(data["X"].astype(float), data["bag"]), data


def birds_split(make: Model, bags: bw.Bags, data: dict[str, np.ndarray], split: int) -> float:
    order = np.random.default_rng(split).permutation(len(bags))
    train, test = np.sort(order[: len(bags) // 2]), np.sort(order[len(bags) // 2 :])
    in_test = np.isin(bags.bag_index, test)
    scores = []
    for k in range(13):
        truth = data["y_inst"] == k
        T = np.maximum.reduceat(truth, bags.offsets[:-1]).astype(int)
        model = make().fit(bags[train], T[train])
        scores.append(roc_auc(truth[in_test], instance_p(model, bags[test])))
    return float(np.mean(scores))


def cross_validated(make: Model, bags: bw.Bags, folds: int) -> tuple[np.ndarray, np.ndarray]:
    """Instance probabilities of every test bag, and the fold of each instance."""
    y = np.asarray(bags.y)
    p, fold = np.empty(bags.n_instances), np.empty(bags.n_instances, dtype=int)
    splitter = StratifiedKFold(folds, shuffle=True, random_state=0)
    for k, (train, test) in enumerate(splitter.split(y, y)):
        rows = np.isin(bags.bag_index, test)
        p[rows], fold[rows] = instance_p(make().fit(bags[train]), bags[test]), k
    return p, fold


def newsgroups() -> None:
    """Pooled instance average precision, rec.sport.hockey, 10 folds."""
    bags, data = load("newsgroups_hockey")
    for model in (bw.ProbitVGPMIL, bw.VGPMIL):
        p, _ = cross_validated(
            lambda model=model: model(bag_score="joint", random_state=0), bags, 10
        )
        show(model.__name__, average_precision(data["y_inst"], p))


def colon() -> None:
    """Instance AUC, mean over 5 folds and pooled, neighbours from the coordinates of nuclei."""
    bags, data = load("colon_nuclei")
    for lam in (0.0, 0.5, 2.0):
        make = lambda lam=lam: bw.IsingVGPMIL(coupling=lam, random_state=0)  # noqa: E731
        p, fold = cross_validated(make, bags, 5)
        each = [roc_auc(data["y_inst"][fold == k], p[fold == k]) for k in range(5)]
        show(f"lambda = {lam}", float(np.mean(each)), roc_auc(data["y_inst"], p))


def cq500() -> None:
    """Bag AUC of `bag_score="max"` on CQ500 after training on RSNA, two CNN runs."""
    for run in (0, 1):
        train, test = load(f"rsna_cnn8_{run}")[0], load(f"cq500_cnn8_{run}")[0]
        for model in (bw.ProbitVGPMIL, bw.VGPMIL):
            fitted = model(bag_score="max", random_state=0).fit(train)
            p = np.asarray(fitted.predict_proba(test))
            show(run, model.__name__, roc_auc(test.y, p))


def mixed() -> None:
    """Instance AUC on digits without and with 20 % of the instance labels of positive bags."""
    models: dict[str, Model] = {
        "ProbitVGPMIL": bw.ProbitVGPMIL,
        "ProbitVGPMIL, laplace": lambda: bw.ProbitVGPMIL(inference="laplace"),
        "VGPMIL": bw.VGPMIL,
        "VGPMIL, factorised": lambda: bw.VGPMIL(mean=-1.0, **FACTORISED),
        "GammaVGPMIL": lambda: bw.GammaVGPMIL(bag_score="joint"),
        "LargeMarginVGPMIL": bw.LargeMarginVGPMIL,
        "LargeMarginVGPMIL, factorised": lambda: bw.LargeMarginVGPMIL(**FACTORISED),
        "IsingVGPMIL, chain": lambda: bw.IsingVGPMIL(neighbors="chain", coupling=0.1),
    }
    for name, make in models.items():
        scores = np.mean([mixed_pair(make, seed) for seed in range(5)], axis=0)
        show(name, *map(float, scores))


def mixed_pair(make: Model, seed: int) -> tuple[float, float]:
    bags, truth = bw.datasets.make_digit_bags(160, random_state=seed)
    train, test = bags[:80], bags[80:]
    n = train.n_instances
    models = (make().set_params(random_state=seed) for _ in range(2))
    fits = (
        m.fit(b) for m, b in zip(models, (train, reveal(train, truth[:n], 0.2, seed)), strict=True)
    )
    weak, strong = (roc_auc(truth[n:], instance_p(m, test)) for m in fits)
    return weak, strong


def reveal(bags: bw.Bags, truth: np.ndarray, share: float, seed: int) -> bw.Bags:
    """The same bags with a share of the instance labels of positive bags known."""
    rows = np.flatnonzero(np.asarray(bags.y)[bags.bag_index] == 1)
    rng = np.random.default_rng(seed)
    picked = rng.choice(rows, size=round(share * len(rows)), replace=False)
    known = np.full(len(truth), np.nan)
    known[picked] = truth[picked]
    return bw.Bags.from_arrays(bags.X, bags.bag_index, y=bags.y, instance_labels=known)


def gibbs() -> None:
    """Instance AUC of 1000 Gibbs draws and of variational inference, birds, class 0."""
    bags, data = bird_bags()
    truth = data["y_inst"] == 0
    T = np.maximum.reduceat(truth, bags.offsets[:-1]).astype(int)
    order = np.random.default_rng(0).permutation(len(bags))
    train, test = np.sort(order[: len(bags) // 2]), np.sort(order[len(bags) // 2 :])
    in_test = np.isin(bags.bag_index, test)
    for inference in ("vi", "gibbs"):
        model = bw.ProbitVGPMIL(
            kernel=Matern(0.5), n_inducing=50, inference=inference, n_samples=1000, random_state=0
        ).fit(bags[train], T[train])
        show(inference, roc_auc(truth[in_test], instance_p(model, bags[test])))


STUDIES: dict[str, Callable[[], None]] = {
    "birds": birds,
    "newsgroups": newsgroups,
    "colon": colon,
    "cq500": cq500,
    "mixed": mixed,
    "gibbs": gibbs,
}

if __name__ == "__main__":
    run_studies(STUDIES, __doc__)
