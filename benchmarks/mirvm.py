"""What is asked of the MI-RVM family, measured: features found, transfer, real data, seconds.

    python benchmarks/mirvm.py [--only features transfer real time]

Real data are read from the shared data folder (the environment variable BAGWISE_SHARED, or
../shared); without it use `--only features transfer`.
"""

import argparse
import time
from collections.abc import Callable, Iterator

import numpy as np
from shared_data import load
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

import bagwise as bw
from bagwise import metrics

Cells = tuple[str, ...]

# [R08, Tables 2 and 3]: pooled AUC and number of features of MI RVM.
PUBLISHED = {
    "musk1": (0.942, 14),
    "musk2": (0.987, 17),
    "elephant": (0.962, 16),
    "tiger": (0.980, 19),
}


N_SEEDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(BENCHMARKS), default=list(BENCHMARKS))
    # One BLAS thread: the matrices are small, and more threads suffer more from other programs.
    with threadpool_limits(1, user_api="blas"):
        for name in parser.parse_args().only:
            headings, rows = BENCHMARKS[name]
            print("\n| " + " | ".join(headings) + " |\n|" + "---|" * len(headings))
            for row in rows():
                print("| " + " | ".join(row) + " |", flush=True)


def features() -> Iterator[Cells]:
    """200 bags, 100 features of which 5 matter, 20 seeds."""
    for model_class in (bw.MIRVM, bw.RVM):
        found, spurious, kept = [], [], []
        for seed in range(20):
            bags, _, relevant = bw.datasets.make_related_tasks(
                n_bags=(200,), n_features=100, similarity=1.0, random_state=seed
            )
            model = model_class(random_state=0).fit(bags)
            support = model.get_support(indices=True)
            found.append(len(np.intersect1d(support, relevant)))
            spurious.append(len(np.setdiff1d(support, relevant)))
            kept.append(len(model.selected_features_))
        yield (
            model_class.__name__,
            f"{np.sum(np.array(found) == 5)} of 20",
            f"{np.mean(found):.2f}",
            f"{np.mean(spurious):.2f}",
            f"{np.mean(kept):.1f}",
        )


def transfer() -> Iterator[Cells]:
    """20 pairs of tasks: bag AUC of the target task on 400 new bags, with and without the other."""
    for n_target in (60, 30, 15):
        single, multi = np.array([transfer_pair(n_target, seed) for seed in range(20)]).T
        gain = multi - single
        yield (
            str(n_target),
            f"{single.mean():.3f}",
            f"{multi.mean():.3f}",
            f"{gain.mean():+.3f} ± {gain.std(ddof=1) / np.sqrt(20):.3f}",
            f"{np.sum(gain > 0)} of 20",
        )


def transfer_pair(n_target: int, seed: int) -> tuple[float, float]:
    """AUC of the target task alone, and together with a task of 200 bags."""
    bags, tasks, _ = bw.datasets.make_related_tasks(n_bags=(200, n_target + 400), random_state=seed)
    target = np.flatnonzero(tasks == 1)
    both = two_classes_first(np.asarray(bags.y)[target], n_target)
    train, test = target[both], np.delete(target, both)
    alone = bw.MIRVM(random_state=0).fit(bags[train])
    rows = np.concatenate([np.flatnonzero(tasks == 0), train])
    together = bw.MultiTaskMIRVM(random_state=0).fit(bags[rows], tasks=tasks[rows])
    truth = np.asarray(bags.y)[test]
    return (
        metrics.roc_auc(truth, np.asarray(alone.predict_proba(bags[test]))),
        metrics.roc_auc(truth, np.asarray(together.predict_proba(bags[test], task=1))),
    )


def two_classes_first(y: np.ndarray, n: int) -> np.ndarray:
    """Places of the first n bags, half of them positive."""
    return np.sort(
        np.concatenate([np.flatnonzero(y == 1)[: n // 2], np.flatnonzero(y == 0)[: n - n // 2]])
    )


def real() -> Iterator[Cells]:
    """10 stratified folds, default arguments, every bag scored once."""
    for name, (published_auc, published_features) in PUBLISHED.items():
        bags, _ = load(name)
        for model_class in (bw.MIRVM, bw.RVM, bw.MILogisticRegression):
            is_mirvm = model_class is bw.MIRVM
            seeds = range(N_SEEDS if is_mirvm else 1)
            scores = [cross_validate(model_class, bags, seed) for seed in seeds]
            auc, pooled, kept, supported, seconds = np.array(scores).T
            yield (
                name,
                model_class.__name__,
                f"{auc[0]:.3f}",
                f"{auc.mean():.3f} ± {auc.std(ddof=1):.3f}" if is_mirvm else "—",
                f"{pooled.mean():.3f}" + (f" ({published_auc})" if is_mirvm else ""),
                f"{kept.mean():.1f}" + (f" ({published_features})" if is_mirvm else ""),
                f"{supported.mean():.1f}",
                f"{seconds.mean():.2f}",
            )


def cross_validate(
    model_class: type[bw.MIRVM | bw.MILogisticRegression], bags: bw.Bags, seed: int
) -> tuple[float, float, float, float, float]:
    """Bag AUC, the paper's pooled AUC, features kept and supported per fold, seconds per fit."""
    y = np.asarray(bags.y)
    p_bag, p_instance = np.empty(len(bags)), np.empty(bags.n_instances)
    kept, supported, seconds = [], [], []
    folds = StratifiedKFold(10, shuffle=True, random_state=seed)
    for train, test in folds.split(np.zeros(len(y)), y):
        start = time.process_time()
        model = model_class(random_state=0).fit(bags[train])
        seconds.append(time.process_time() - start)
        kept.append(len(model.selected_features_))
        supported.append(int(model.get_support().sum()))
        p_bag[test] = np.asarray(model.predict_proba(bags[test]))[:, 1]
        rows = np.isin(bags.bag_index, test)
        p_instance[rows] = np.asarray(model.predict_instance_proba(bags[test]))[:, 1]
    pooled = metrics.bag_tpr_instance_fpr_auc(y, p_instance, bags.offsets)
    return metrics.roc_auc(y, p_bag), pooled, *map(np.mean, (kept, supported, seconds))


def seconds() -> Iterator[Cells]:
    """One fit each, default arguments."""
    yield timed("musk2", load("musk2")[0])
    yield timed("100,000 x 100", synthetic(100_000, 100))
    yield timed("1,000 x 5,000", synthetic(1000, 5000))


def synthetic(n_rows: int, n_features: int) -> bw.Bags:
    bags, _, _ = bw.datasets.make_related_tasks(
        n_bags=(n_rows // 5,), n_features=n_features, random_state=0
    )
    return bags


def timed(name: str, bags: bw.Bags) -> Cells:
    start, cpu_start = time.perf_counter(), time.process_time()
    model = bw.MIRVM(random_state=0).fit(bags)
    elapsed, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    return (
        name,
        f"{elapsed:.1f}",
        f"{cpu:.1f}",
        str(model.n_iter_),
        str(len(model.selected_features_)),
    )


BENCHMARKS: dict[str, tuple[tuple[str, ...], Callable[[], Iterator[Cells]]]] = {
    "features": (
        ("model", "all 5 found", "found", "spurious", "not pruned"),
        features,
    ),
    "transfer": (
        ("target bags", "MIRVM", "MultiTaskMIRVM", "gain", "gain > 0"),
        transfer,
    ),
    "real": (
        (
            "data",
            "model",
            "bag AUC, folds of seed 0",
            f"bag AUC, {N_SEEDS} seeds",
            "pooled AUC (published)",
            "features (published)",
            "supported",
            "CPU s per fit",
        ),
        real,
    ),
    "time": (("data", "s", "CPU s", "updates of alpha", "features"), seconds),
}

if __name__ == "__main__":
    main()
