"""What the default model reaches on scans, images, text and generators, as Markdown tables.

    python benchmarks/defaults.py [--only kernels rsna cq500 instances mnist fashion generators]

kernels, rsna, cq500 and instances need the shared data folder (BAGWISE_SHARED, or ../shared);
mnist and fashion fetch their images (see docs/datasets.md). `VGPMIL-V17` is factorised VGPMIL with
the settings of its authors' program.
"""

import time
from collections.abc import Callable, Iterator

import numpy as np
from shared_data import load
from sklearn.model_selection import StratifiedKFold

import bagwise as bw
from bagwise.baselines import BASELINES
from bagwise.benchmark import make_model
from bagwise.benchmark.registry import published_vgpmil
from bagwise.core.calibration.candidates import JudgedKernel
from bagwise.metrics import accuracy, expected_calibration_error, log_likelihood, roc_auc
from models import bird_bags, run_studies, show

FRESH = (1001, 1002, 1003)  # seeds of generators that no choice was made with
Truth = np.ndarray
Split = tuple[bw.Bags, Truth, np.ndarray, np.ndarray]  # bags, truth (-1: unknown), train, test


def folds(name: str, n_folds: int) -> Iterator[Split]:
    bags, data = load(name)
    y = np.asarray(bags.y)
    for train, test in StratifiedKFold(n_folds, shuffle=True, random_state=0).split(y, y):
        yield bags, data["y_inst"], train, test


def rsna() -> None:
    """5 folds: run, bag AUC (pooled, mean over folds), log-lik., accuracy; instance AUC."""
    for run in (0, 1):
        bags, data = load(f"rsna_cnn8_{run}")
        p, q, each = np.empty(len(bags)), np.empty(bags.n_instances), []
        for _, _, train, test in folds(f"rsna_cnn8_{run}", 5):
            model = bw.ProbitVGPMIL(random_state=0).fit(bags[train])
            p[test] = model.predict_proba(bags[test])[:, 1]
            q[np.isin(bags.bag_index, test)] = model.predict_instance_proba(bags[test])[:, 1]
            each.append(roc_auc(np.asarray(bags.y)[test], p[test]))
        scores = (roc_auc(bags.y, p), float(np.mean(each)), log_likelihood(bags.y, p))
        show(run, *scores, accuracy(bags.y, p), roc_auc(data["y_inst"], q))


def cq500() -> None:
    """Bag AUC after training on RSNA; slices coupled in their order at prediction only."""
    show("run", "bag score", *(f"coupling {lam}" for lam in (0, 0.05, 0.1, 0.2, 0.5, 1.0)))
    for run in (0, 1):
        train, test = load(f"rsna_cnn8_{run}")[0], load(f"cq500_cnn8_{run}")[0]
        model = bw.IsingVGPMIL(coupling=0.0, neighbors="chain", bag_score="calibrated")
        model.set_params(random_state=0).fit(train)
        for score in ("max", "joint", "calibrated"):
            model.set_params(bag_score=score)
            cells = []
            for lam in (0, 0.05, 0.1, 0.2, 0.5, 1.0):
                model.coupling_ = float(lam)  # the fit, on slices without order, has none
                cells.append(roc_auc(test.y, model.predict_proba(test)))
            show(run, score, *cells)


def instances() -> None:
    """Instance AUC, log-likelihood and ECE on held-out bags, pooled over folds."""
    sets: dict[str, Callable[[], Iterator[Split]]] = {
        "RSNA, run 0, 5 folds": lambda: folds("rsna_cnn8_0", 5),
        "RSNA, run 1, 5 folds": lambda: folds("rsna_cnn8_1", 5),
        "newsgroups, 10 folds": lambda: folds("newsgroups_hockey", 10),
        "colon nuclei, 5 folds": lambda: folds("colon_nuclei", 5),
        "digits, 5 seeds": digits,
        "birdsong, 13 species, a half split": birds,
    }
    for name, splits in sets.items():
        truth: dict[str, list[np.ndarray]] = {}
        p: dict[str, list[np.ndarray]] = {}
        for bags, labels, train, test in splits():
            rows = np.isin(bags.bag_index, test)
            known = labels[rows] >= 0
            for kind, model in both(bags.n_features).items():
                found = model.fit(bags[train]).predict_instance_proba(bags[test])[:, 1]
                p.setdefault(kind, []).append(found[known])
                truth.setdefault(kind, []).append(labels[rows][known])
        for kind in p:
            t, q = np.concatenate(truth[kind]), np.concatenate(p[kind])
            scores = roc_auc(t, q), log_likelihood(t, q), expected_calibration_error(t, q)
            show(name, kind, *scores)


def both(n_features: int) -> dict[str, bw.VGPMIL | bw.ProbitVGPMIL]:
    """The two models; calibration of bags leaves instances as they are and is left out."""
    published = published_vgpmil(n_features).set_params(random_state=0)
    default = bw.ProbitVGPMIL(bag_score="joint", random_state=0)
    return {"ProbitVGPMIL": default, "VGPMIL-V17": published}


def digits() -> Iterator[Split]:
    for seed in range(5):
        bags, truth = bw.datasets.make_digit_bags(160, random_state=seed)
        yield bags, truth, np.arange(80), np.arange(80, 160)


def birds() -> Iterator[Split]:
    bags, data = bird_bags()
    order = np.random.default_rng(0).permutation(len(bags))
    train, test = np.sort(order[: len(bags) // 2]), np.sort(order[len(bags) // 2 :])
    for k in range(13):
        truth = (data["y_inst"] == k).astype(int)
        T = np.maximum.reduceat(truth, bags.offsets[:-1])
        yield bags.with_labels(T), truth, train, test


def mnist() -> None:
    """MNIST bags, PCA 30, 5600 training bags: accuracy, bag AUC, log-lik., instance AUC, s."""
    images(bw.datasets.fetch_mnist_bags)


def fashion() -> None:
    """Fashion-MNIST bags, the same: run once, after the defaults were fixed."""
    images(bw.datasets.fetch_fashion_mnist_bags)


def images(fetch: Callable) -> None:  # type: ignore[type-arg]
    train, _ = fetch("train", random_state=0)
    test, truth = fetch("test", random_state=1)
    for name in ("ProbitVGPMIL", "VGPMIL-V17"):
        start = time.process_time()
        model = make_model(name, train, 0).fit(train)
        seconds = time.process_time() - start
        p, q = model.predict_proba(test)[:, 1], model.predict_instance_proba(test)[:, 1]
        scores = accuracy(test.y, p), roc_auc(test.y, p), log_likelihood(test.y, p)
        show(name, getattr(model, "bag_score_", ""), *scores, roc_auc(truth, q), f"{seconds:.0f}")


def generators() -> None:
    """Accuracy and AUC of test bags, mean of three fresh seeds, 100 training bags."""
    make = bw.datasets.make_bags
    kinds: dict[str, dict[str, object]] = {
        "as it is": {},
        "few witnesses": {"witness_rate": 0.05, "bag_size": 30},
        "many witnesses": {"witness_rate": 0.6},
        "bags of 2 to 60": {"bag_size": (2, 60)},
        "overlap": {"overlap": 0.3},
        "10 % wrong labels": {"label_noise": 0.1},
        "one in four positive": {"positive_share": 0.25},
    }
    models = ("ProbitVGPMIL", "VGPMIL-V17", *BASELINES)
    show("bags", *models)
    for kind, settings in kinds.items():
        cells: dict[str, list[tuple[float, float]]] = {m: [] for m in models}
        for seed in FRESH:
            bags, _ = make(400, random_state=seed, **settings)
            clean = bags[100:]
            for m in models:
                p = np.asarray(make_model(m, bags, 0).fit(bags[:100]).predict_proba(clean))[:, 1]
                cells[m].append((accuracy(clean.y, p), roc_auc(clean.y, p)))
        means = (np.mean(cells[m], axis=0) for m in models)
        show(kind, *(f"{a:.2f}, {auc:.3f}" for a, auc in means))


KERNEL_SETS = ("musk1", "elephant", "fox", "tiger", "rsna_cnn8_0", "rsna_cnn8_1", "musk2")
POOLED = ("MeanPoolLogistic", "MaxPoolLogistic", "MILR")


def kernels() -> None:
    """3 folds: mean bag AUC, log-lik. and accuracy of the choice, each candidate, and baselines."""
    show("bags", "kernel", "folds that chose it", "AUC", "log-lik.", "accuracy")
    for name in KERNEL_SETS:
        p: dict[str, list[np.ndarray]] = {}
        chosen: list[str] = []
        y = np.concatenate([np.asarray(bags.y)[test] for bags, _, _, test in folds(name, 3)])
        for bags, _, train, test in folds(name, 3):
            model = bw.ProbitVGPMIL(random_state=0).fit(bags[train])
            chosen += [row.name for row in model.candidates_ if row.chosen]
            fits: dict[str, object] = {"the choice": model}
            fits |= {row.name: alone(row).fit(bags[train]) for row in model.candidates_}
            fits |= {m: make_model(m, bags, 0).fit(bags[train]) for m in POOLED}
            for kind, fitted in fits.items():
                found = np.asarray(fitted.predict_proba(bags[test]))[:, 1]  # type: ignore[attr-defined]
                p.setdefault(kind, []).append(found)
        cuts = np.cumsum([len(part) for part in p["the choice"]])[:-1]
        for kind, parts in p.items():
            q = np.concatenate(parts)
            each = [roc_auc(t, part) for t, part in zip(np.split(y, cuts), parts, strict=True)]
            scores = float(np.mean(each)), log_likelihood(y, q), accuracy(y, q)
            show(name, kind, chosen.count(kind), *scores)


def alone(row: JudgedKernel) -> bw.ProbitVGPMIL:
    """The model with the kernel of one candidate, calibrated as the choice is."""
    return bw.ProbitVGPMIL(
        kernel=row.kernel,
        standardize=row.standardized,
        learn_hyperparameters=False,
        bag_score="calibrated",
        random_state=0,
    )


STUDIES: dict[str, Callable[[], None]] = {
    "kernels": kernels,
    "rsna": rsna,
    "cq500": cq500,
    "instances": instances,
    "mnist": mnist,
    "fashion": fashion,
    "generators": generators,
}

if __name__ == "__main__":
    run_studies(STUDIES, __doc__)
