"""
Cells from shares: when every bag is positive
=============================================

A pathologist estimates the share of tumour cells on a slide (its purity), and nobody marks single
cells. Every slide has some, so that "at least one cell is positive" is true of all and says
nothing. The shares themselves do: `bagwise.Share` learns which cells they are about.
"""

# %%
# Sixty samples of fifty cells. Shares are known to five per cent.

import matplotlib.pyplot as plt
import numpy as np

import bagwise as bw


def samples(n_bags, seed):
    rng = np.random.default_rng(seed)
    tumour = rng.random((n_bags, 50)) < rng.beta(2, 3, (n_bags, 1))
    X = rng.normal(size=(n_bags, 50, 5))
    X[..., 0] += 2.5 * tumour
    X[..., 1] += 1.25 * tumour
    share = tumour.mean(axis=1)
    told = np.clip(share + 0.05 * rng.normal(size=n_bags), 0, 1)
    return bw.Bags.from_list(list(X), told), tumour.ravel(), share


train, _, _ = samples(60, 0)
test, tumour, share = samples(40, 1)
print(f"{np.mean(train.y > 0):.0%} of the samples have tumour cells")

# %%
# The rule is an argument of the model; labels are numbers from 0 to 1.

kernel = bw.kernels.RBF(4.0, 4.0)
settings = {"kernel": kernel, "learn_hyperparameters": False, "n_inducing": 30, "random_state": 0}
model = bw.ProbitVGPMIL(rule=bw.Share(std=0.05), **settings).fit(train)
p = model.predict_instance_proba(test)[:, 1]
print(f"AUC of cells {bw.metrics.roc_auc(tumour, p):.3f}")

# %%
# The usual rule needs two classes, so shares have to be cut somewhere: a bag is called positive
# above the median. That is no statement about single cells, and the level of their probabilities
# is lost.

cut = (train.y > np.median(train.y)).astype(int)
usual = bw.ProbitVGPMIL(**settings).fit(train, cut)
p_usual = usual.predict_instance_proba(test)[:, 1]
for name, found in (("share", p), ("at least one", p_usual)):
    error = bw.metrics.expected_calibration_error(tumour, found)
    print(f"{name}: AUC {bw.metrics.roc_auc(tumour, found):.3f}, calibration error {error:.3f}")

# %%
# New samples get an expected share with its deviation.

expected, std = model.predict_share(test, return_std=True)
fig, (left, right) = plt.subplots(1, 2, figsize=(9, 4))
left.errorbar(share, expected, yerr=std, fmt="o", ms=4)
left.plot([0, 1], [0, 1], color="0.6")
left.set(xlabel="share of tumour cells", ylabel="expected share")
bins = np.linspace(0, 1, 21)
right.hist([p[tumour], p[~tumour]], bins, stacked=True, label=["tumour", "other"])
right.set(xlabel="probability of a cell", ylabel="cells")
right.legend()
plt.show()
