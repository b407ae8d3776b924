"""
Computer-aided detection with few features
==========================================

A detection system proposes candidates in a scan; several of them may point to one lesion, and it
is found if any of them is called. Candidates of a lesion are a positive bag, every other candidate
is a negative bag of its own. `MIRVM` learns from that and picks the features that matter.

The data are **synthetic**: they have the shape of the pulmonary-embolism set of Raykar et al.
(2008), but are drawn from Gaussians, and no patient is behind them. In exchange, the relevant
features are known.
"""

# %%
# Data: 60 features, of which 8 tell lesions from other candidates. Whole volumes are held out.
import matplotlib.pyplot as plt
import numpy as np

import bagwise as bw
from bagwise import metrics

data = bw.datasets.make_cad_bags(n_volumes=80, random_state=0)
train, test = data.volume < 30, data.volume >= 30
print(data.bags)
print(f"{train.sum()} bags train, {test.sum()} test; relevant: {data.relevant.tolist()}")

# %%
# `MIRVM` against `RVM`, which takes every candidate of a lesion for a positive one. A lesion's
# score is that of its most probable candidate (`bag_score="max"`): a detection system does not
# know which candidates belong together, so their number must not count.
models = {
    name: model_class(bag_score="max", random_state=0).fit(data.bags[train])
    for name, model_class in (("MIRVM", bw.MIRVM), ("RVM", bw.RVM))
}
for name, model in models.items():
    support = model.get_support(indices=True)
    found = np.intersect1d(support, data.relevant)
    print(
        f"{name}: {len(model.selected_features_)} features kept, {len(support)} supported, "
        f"{len(found)} of {len(data.relevant)} relevant ones among them"
    )

# %%
# Free-response ROC: the share of lesions found, against false positives per scan. The band is a
# bootstrap over scans.
colors = {"MIRVM": "#0072B2", "RVM": "#D55E00"}
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
truth, volume = data.bags.y[test], data.volume[test]
for name, model in models.items():
    score = model.predict_proba(data.bags[test])[:, 1]
    band = metrics.froc_band(truth, score, volume, max_false_positives=5, n_bootstrap=300)
    area, low, high = band.area
    label = f"{name}: mean sensitivity {area:.3f} ({low:.3f} to {high:.3f})"
    left.plot(band.false_positives, band.sensitivity, color=colors[name], label=label)
    left.fill_between(band.false_positives, band.lower, band.upper, color=colors[name], alpha=0.2)
    print(label)
left.set(xlabel="false positives per volume", ylabel="sensitivity (lesions)", ylim=(0, 1.02))
left.legend(loc="lower right", frameon=False)

# %%
# The weights with their standard deviations. Rings mark the features that truly matter.
model = models["MIRVM"]
features = np.arange(data.bags.n_features)
right.axhline(0, color="#BBBBBB", linewidth=0.8)
right.errorbar(
    features,
    model.coef_,
    yerr=2 * model.coef_std_,
    fmt="o",
    markersize=3,
    linewidth=1,
    color=colors["MIRVM"],
    label="weight ± 2 standard deviations",
)
right.plot(
    data.relevant,
    model.coef_[data.relevant],
    "o",
    markersize=10,
    fillstyle="none",
    color="#222222",
    label="truly relevant",
)
right.set(xlabel="feature", ylabel="weight")
right.legend(frameon=False)
plt.show()
