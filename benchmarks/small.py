"""What small problems cost: 50 fits of MUSK1, and the time it takes to import bagwise.

    python benchmarks/small.py

Ten folds, five repeats, kernel and mean given, predictions of the bags left out included. Import
times are those of fresh processes, the best of several, without the interpreter's own.
"""

import subprocess
import sys
import time
from typing import Any

import numpy as np
from scale import best
from sklearn.model_selection import RepeatedStratifiedKFold

import bagwise as bw

HEAVY = ("torch", "dask", "pandas", "matplotlib")


def main() -> None:
    bags = bw.datasets.load_musk1()
    for model in (bw.ProbitVGPMIL, bw.VGPMIL):
        for n_inducing in (50, 200):
            start = time.perf_counter()
            fifty_fits(bags, model, n_inducing)
            seconds = time.perf_counter() - start
            print(f"50 fits of {model.__name__}, M = {n_inducing}: {seconds:.1f} s", flush=True)
    nothing = import_time("sys")
    bagwise, sklearn = (import_time(name) - nothing for name in ("bagwise", "sklearn"))
    print(f"import bagwise {bagwise:.2f} s, import sklearn {sklearn:.2f} s")
    print(f"import bagwise loads of {', '.join(HEAVY)}: {loaded_by_import() or 'none'}")


def fifty_fits(bags: bw.Bags, model: Any, n_inducing: int) -> None:
    folds = RepeatedStratifiedKFold(n_splits=10, n_repeats=5, random_state=0)
    settings = {"n_inducing": n_inducing, "mean": -2.0, "random_state": 0}
    for train, test in folds.split(np.zeros(len(bags)), bags.y):
        fitted = model(learn_hyperparameters=False, **settings).fit(bags[train])
        fitted.predict_proba(bags[test])


def import_time(name: str) -> float:
    command = [sys.executable, "-c", f"import {name}"]
    return best(lambda: subprocess.run(command, check=True), time.perf_counter, 5)


def loaded_by_import() -> str:
    code = f"import sys, bagwise; print(*[m for m in {HEAVY!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return found.stdout.strip()


if __name__ == "__main__":
    main()
