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
from bagwise.plots import FrocDisplay, RelevanceDisplay

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
# bootstrap over scans; the legend has the mean sensitivity over the axis.
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for (name, model), colour in zip(models.items(), ("#0072B2", "#D55E00"), strict=True):
    display = FrocDisplay.from_estimator(
        model,
        data.bags[test],
        name=name,
        max_false_positives=5,
        n_resamples=300,
        ax=axes,
        colour=colour,
    )

# %%
# The weights of the scaled features with their standard deviations. Features that truly matter
# are in bold.
display = RelevanceDisplay.from_estimator(models["MIRVM"])
for label in display.ax_.get_yticklabels():
    if int(label.get_text().split()[-1]) in data.relevant:
        label.set_fontweight("bold")
plt.show()
