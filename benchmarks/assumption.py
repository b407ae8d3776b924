"""Which models respect the multiple instance assumption, as a Markdown table of test AUCs.

python benchmarks/assumption.py
"""

import warnings
from functools import partial

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from bagwise.baselines import BASELINES
from bagwise.benchmark import make_model
from bagwise.datasets import make_false_frequency, make_multi_concept, make_single_concept
from bagwise.metrics import roc_auc

TESTS = {
    "single concept": make_single_concept,
    "two concepts, any": make_multi_concept,
    "two concepts, all": partial(make_multi_concept, rule="all"),
    "false frequency": make_false_frequency,
}


def main() -> None:
    warnings.simplefilter("ignore", ConvergenceWarning)
    print("| model | " + " | ".join(TESTS) + " |")
    print("|" + " --- |" * (len(TESTS) + 1))
    for name in ("ProbitVGPMIL", "VGPMIL", *BASELINES):
        cells = [
            f"{np.mean([auc(name, make, s) for s in range(3)]):.2f}" for make in TESTS.values()
        ]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def auc(name: str, make, seed: int) -> float:  # type: ignore[no-untyped-def]
    train, _ = make(random_state=2 * seed)
    test, _ = make(part="test", random_state=2 * seed + 1)
    model = make_model(name, train, seed=0).fit(train)
    return roc_auc(test, model.predict_proba(test))


if __name__ == "__main__":
    main()
