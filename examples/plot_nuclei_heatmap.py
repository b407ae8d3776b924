"""
Which nuclei are epithelial? A heatmap with uncertainty
=======================================================

Images of colon tissue are bags, their nuclei instances with features and a place. Training knows
only whether an image holds epithelial nuclei. The data set is not part of bagwise: the example
looks for ``data/colon_nuclei.npz`` in the folder that ``BAGWISE_SHARED`` names.
"""

# %%
import os
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

import bagwise as bw
from bagwise.plots import plot_slide_heatmap

path = Path(os.environ["BAGWISE_SHARED"]) / "data" / "colon_nuclei.npz"

# %%
# The first 80 images train, the last one that holds epithelial nuclei is shown.
with np.load(path, allow_pickle=False) as data:
    bags = bw.Bags.from_arrays(
        data["X"].astype(np.float64), data["bag"], y=data["y_bag"], coords=data["coords"]
    )
    truth = data["y_inst"]
train, test = bags[:80], bags[80:]
model = bw.ProbitVGPMIL(n_inducing=100, random_state=0).fit(train)
p, std = model.predict_instance_proba(test, return_std=True)
print(f"instance AUC {bw.metrics.roc_auc(truth[-test.n_instances :], p[:, 1]):.3f}")

# %%
# One picture: the probability of each nucleus, and beside it how sure the model is of it.
last = int(np.flatnonzero(test.y == 1)[-1])
rows = slice(int(test.offsets[last]), int(test.offsets[last + 1]))
figure = plot_slide_heatmap(
    test.coords[rows] - 6,  # coords are the nuclei's centres
    p[rows],
    std[rows],
    patch_size=12,
    top=None,
    title=f"Image {test.ids[last]}: probability of an epithelial nucleus",
)
plt.show()
