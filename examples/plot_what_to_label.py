"""
What to label next
==================

Bag labels are cheap, labels of instances are not: somebody has to look at each. Which ones are
worth the look? `suggest_instances` asks about those whose labels would tell most of all others, ten
at a time here, and after every ten the model is fitted again. Beside it: instances whose
probability is nearest 1/2, and random ones of positive bags (those of negative bags are known to be
negative).
"""

import matplotlib.pyplot as plt
import numpy as np

import bagwise as bw

# %%
# Sixty bags of ten digits train, seventy others test; a bag is positive if it holds a 2 or a 9.
# Answers come from the true labels.

STEPS = (10, 20, 30, 40)


def fitted(train: bw.Bags, truth: np.ndarray, rows: list[int]) -> tuple[bw.ProbitVGPMIL, bw.Bags]:
    known = np.full(train.n_instances, np.nan)
    known[rows] = truth[rows]
    labelled = train.with_instance_labels(known)
    return bw.ProbitVGPMIL(n_inducing=50, random_state=0).fit(labelled), labelled


def asked(way: str, model: bw.ProbitVGPMIL, bags: bw.Bags, rng: np.random.Generator) -> np.ndarray:
    if way == "suggested":
        return model.suggest_instances(bags, 10)
    inside = np.asarray(bags.y)[bags.bag_index] == 1
    candidates = np.flatnonzero(inside & np.isnan(bags.instance_labels))
    if way == "random":
        return rng.permutation(candidates)[:10]
    p = model.predict_instance_proba(bags)[candidates, 1]
    return candidates[np.argsort(np.abs(p - 0.5))[:10]]


# %%
# The score is the log-likelihood of the instances of test bags, for two draws of the bags.

ways = ("suggested", "nearest 1/2", "random")
scores = {way: np.empty((2, 1 + len(STEPS))) for way in ways}
for seed in range(2):
    bags, truth = bw.datasets.make_digit_bags(130, random_state=seed)
    train, test = bags[:60], bags[60:]
    n = train.n_instances
    start = fitted(train, truth, [])
    for way in ways:
        rng, rows, (model, labelled) = np.random.default_rng(seed), [], start
        for step in range(1 + len(STEPS)):
            if step:
                rows += asked(way, model, labelled, rng).tolist()
                model, labelled = fitted(train, truth, rows)
            p = model.predict_instance_proba(test)
            scores[way][seed, step] = bw.metrics.log_likelihood(truth[n:], p)

# %%
# All begin where bag labels alone lead. Questions that are chosen get further with the same number
# of answers than random ones.

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
for way, marker, color in zip(ways, "os^", ("#0072B2", "#D55E00", "#999999"), strict=True):
    ax.plot((0, *STEPS), scores[way].mean(axis=0), marker=marker, color=color, label=way)
ax.set_xlabel("labelled instances")
ax.set_ylabel("log-likelihood of test instances")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, title="mean of 2 draws")
print({way: found.mean(axis=0).round(3).tolist() for way, found in scores.items()})
plt.show()
