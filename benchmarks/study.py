"""The study behind the defaults: kernels, means, inducing points and bag scores, as tables.

    python benchmarks/study.py [musk1 ...] [--variants "mean -3" ...]

10 folds with seed 100, which no reported figure uses. Kernel and mean are fixed in each variant,
so that a variant is told from its neighbours by one thing; bags left out of five refits inside each
fold calibrate its scores, as `bag_score="calibrated"` does. To be quick the independent score
("noisy-or") stands for "joint". Needs the shared data folder (BAGWISE_SHARED, or ../shared).
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import special
from shared_data import load
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

import bagwise as bw
from bagwise.core.calibration.bags import calibrate, logits
from bagwise.core.calibration.left_out import kept_off, left_out
from bagwise.kernels import RBF, Kernel, Linear, Matern
from bagwise.metrics import accuracy, log_likelihood, roc_auc

SEED = 100
SETS = ("musk1", "musk2", "elephant", "fox", "tiger")


@dataclass(frozen=True)
class Variant:
    """What is fixed: lengthscale in units of the features' spread, mean, scaling, points."""

    kind: str = "rbf"
    factor: float = 0.5
    mean: float = -2.0
    standardize: bool = False
    n_inducing: int = 200

    def model(self, bags: bw.Bags) -> bw.ProbitVGPMIL:
        X = bags.X / np.maximum(bags.X.std(axis=0), 1e-12) if self.standardize else bags.X
        return bw.ProbitVGPMIL(
            kernel=self.kernel(self.factor * float(np.sqrt(np.sum(X.var(axis=0))))),
            mean=self.mean,
            learn_hyperparameters=False,
            standardize=self.standardize,
            n_inducing=self.n_inducing,
            bag_score="joint",
            tol=1e-6,
            random_state=0,
        )

    def kernel(self, l: float) -> Kernel:  # noqa: E741
        kinds: dict[str, Kernel] = {
            "rbf": RBF(4.0, l),
            "matern 1/2": Matern(0.5, 4.0, l),
            "rbf + linear": RBF(2.0, l) + Linear(2.0 / l**2),
        }
        return kinds[self.kind]


VARIANTS = {f"mean {c}": Variant(mean=float(c)) for c in (-1, -2, -3, -4, -5)} | {
    "lengthscale / 2": Variant(factor=0.25),
    "lengthscale x 2": Variant(factor=1.0),
    "standardised": Variant(standardize=True),
    "standardised, mean -4": Variant(standardize=True, mean=-4.0),
    "standardised, RBF + linear": Variant("rbf + linear", standardize=True),
    "Matern 1/2": Variant("matern 1/2"),
    "500 points": Variant(n_inducing=500),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("sets", nargs="*", default=list(SETS))
    parser.add_argument("--variants", nargs="+", choices=list(VARIANTS), default=list(VARIANTS))
    options = parser.parse_args()
    print("| set | variant | bag score | accuracy | AUC | log-lik. |\n|---|---|---|---|---|---|")
    with threadpool_limits(1, user_api="blas"):
        for name in options.sets:
            for variant in options.variants:
                for line in study(load(name)[0], VARIANTS[variant]):
                    print(f"| {name} | {variant} | {line} |", flush=True)


def study(bags: bw.Bags, variant: Variant) -> Iterator[str]:
    """Scores of the test bags of ten folds, plain and calibrated."""
    y = np.asarray(bags.y)
    p: dict[str, np.ndarray] = {k: np.empty(len(y)) for k in ("noisy-or", "max", "calibrated")}
    tests = []
    for train, test in StratifiedKFold(10, shuffle=True, random_state=SEED).split(y, y):
        kept = bags[train]
        own = variant.model(kept)  # the kernel of the fold, for its refits too
        T = y[train] == 1
        found = left_out(kept, T, SEED, lambda part, own=own, kept=kept: fitted(own, kept[part]))
        calibration = calibrate(found, T)
        scores, _ = fitted(own, kept)(bags[test])
        p["noisy-or"][test], p["max"][test] = special.expit(scores.T)
        p["calibrated"][test] = calibration.probability(scores)
        tests.append(test)
    for score, found in p.items():
        auc = np.mean([roc_auc(y[test], found[test]) for test in tests])
        yield f"{score} | {accuracy(y, found):.3f} | {auc:.3f} | {log_likelihood(y, found):.3f}"


def fitted(model: bw.ProbitVGPMIL, bags: bw.Bags):  # type: ignore[no-untyped-def]
    """The two scores of bags and those of instances of a model fitted to these bags."""
    posterior = model.fit(bags).posterior_

    def score(new: bw.Bags) -> tuple[np.ndarray, np.ndarray]:
        either, best = (posterior.bags(new.X, new.offsets, s)[0] for s in ("noisy-or", "max"))
        return logits(either, best), kept_off(special.logit(posterior.instances(new.X)[0]))

    return score


if __name__ == "__main__":
    main()
