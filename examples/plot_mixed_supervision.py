"""
What a few instance labels are worth
====================================

Bag labels are cheap, instance labels are not. All models of bagwise take both: instances whose
label is known are marked in `instance_labels`, the others are NaN. Here a growing share of the
digits in positive bags is labelled, as in the experiment of Haussmann, Hamprecht and Kandemir
(CVPR 2017, Fig. 4) with patches of images.
"""

import matplotlib.pyplot as plt
import numpy as np

import bagwise as bw

# %%
# Eighty bags of ten digits train, eighty others test. A bag is positive if it holds a
# 2 or a 9. `reveal` marks a random share of the instances of positive bags with their true
# labels; those of negative bags are known to be negative anyway.


def reveal(bags: bw.Bags, truth: np.ndarray, share: float, seed: int) -> bw.Bags:
    candidates = np.flatnonzero(np.asarray(bags.y)[bags.bag_index] == 1)
    picked = np.random.default_rng(seed).permutation(candidates)[: round(share * len(candidates))]
    known = np.full(len(truth), np.nan)
    known[picked] = truth[picked]
    return bags.with_instance_labels(known)


# %%
# The score is the AUC of the instances of test bags, for two draws of the bags.

shares = [0.0, 0.2, 0.5, 1.0]
models = {"ProbitVGPMIL": bw.ProbitVGPMIL, "VGPMIL": bw.VGPMIL}
scores = {name: np.empty((2, len(shares))) for name in models}
for seed in range(2):
    bags, truth = bw.datasets.make_digit_bags(160, random_state=seed)
    train, test = bags[:80], bags[80:]
    n = train.n_instances
    for name, model in models.items():
        for k, share in enumerate(shares):
            labelled = reveal(train, truth[:n], share, seed)
            fitted = model(random_state=seed).fit(labelled)
            p = fitted.predict_instance_proba(test)[:, 1]
            scores[name][seed, k] = bw.metrics.roc_auc(truth[n:], p)

# %%
# Bag labels alone (left) come close to full supervision (right), and labels close the gap step by
# step. A handful of labels buys little where bag labels already do well.

figure, ax = plt.subplots(figsize=(6, 4), layout="constrained")
places = np.arange(len(shares))
for name, marker, color in (("ProbitVGPMIL", "o", "#0072B2"), ("VGPMIL", "s", "#D55E00")):
    ax.plot(places, scores[name].mean(axis=0), marker=marker, color=color, label=name)
    low, high = scores[name].min(axis=0), scores[name].max(axis=0)
    ax.fill_between(places, low, high, color=color, alpha=0.15, linewidth=0)
ax.set_xticks(places, [f"{100 * s:.0f} %" for s in shares])
ax.set_xlabel("labelled instances of positive bags")
ax.set_ylabel("instance AUC on test bags")
ax.spines[["top", "right"]].set_visible(False)
ax.legend(frameon=False, title="mean and range of 2 draws")
print({name: found.mean(axis=0).round(3).tolist() for name, found in scores.items()})
plt.show()
