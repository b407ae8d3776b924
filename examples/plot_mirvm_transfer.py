"""
Learning from a related task
============================

Two detection tasks often need the same measurements with other weights. `MultiTaskMIRVM` learns
them together: which features matter is shared, the weights are not. What that is worth depends
on how little data the task of interest has.

The tasks are **synthetic**: 50 features, of which the same 5 matter in both.
"""

# %%
# One task has 200 bags; the target task has fewer and fewer.
import matplotlib.pyplot as plt
import numpy as np

import bagwise as bw
from bagwise.metrics import roc_auc

SIZES = (60, 40, 25, 15)
SEEDS = range(5)
N_TEST = 200


def bag_auc(n_target: int, seed: int) -> tuple[float, float]:
    """AUC on new bags of the target task, learned alone and together with the large task."""
    bags, tasks, _ = bw.datasets.make_related_tasks((200, n_target + N_TEST), random_state=seed)
    target = np.flatnonzero(tasks == 1)
    few, test = target[:n_target], target[n_target:]
    alone = bw.MIRVM(random_state=0).fit(bags[few])
    both = np.concatenate([np.flatnonzero(tasks == 0), few])
    together = bw.MultiTaskMIRVM(random_state=0).fit(bags[both], tasks=tasks[both])
    truth = bags.y[test]
    return (
        roc_auc(truth, alone.predict_proba(bags[test])),
        roc_auc(truth, together.predict_proba(bags[test], task=1)),
    )


# %%
# The fewer bags the target task has, the more it gains.
auc = np.array([[bag_auc(n, seed) for seed in SEEDS] for n in SIZES])  # (sizes, seeds, 2)
mean, error = auc.mean(axis=1), auc.std(axis=1, ddof=1) / np.sqrt(len(SEEDS))
for n, (single, multi) in zip(SIZES, mean, strict=True):
    print(f"{n:3d} target bags: alone {single:.3f}, with the other task {multi:.3f}")

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for j, (label, color) in enumerate((("MIRVM alone", "#D55E00"), ("MultiTaskMIRVM", "#0072B2"))):
    axes.errorbar(SIZES, mean[:, j], yerr=error[:, j], fmt="o-", color=color, label=label)
axes.invert_xaxis()
axes.set(xlabel="bags of the target task", ylabel="bag AUC on new bags", xticks=SIZES)
axes.legend(frameon=False)
plt.show()
