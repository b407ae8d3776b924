"""
Neighbours share their label
============================

Tiles of a slide lie on a grid, and a tumour is a region, not a scatter of tiles. `IsingVGPMIL`
lets neighbouring tiles of a bag pull each other towards the same label [M24]; `coupling` says how
strongly. Tiles here are noisy: without a coupling single tiles of healthy tissue look ill, and
tiles inside of the tumour look well.
"""

import matplotlib.pyplot as plt
import numpy as np

import bagwise as bw

rng = np.random.default_rng(0)
side = 12
places = np.array([[x, y] for y in range(side) for x in range(side)], dtype=float)


def make_slide(positive):
    X = rng.normal(size=(len(places), 4))
    inside = np.linalg.norm(places - rng.uniform(3, side - 4, 2), axis=1) < 2.6
    X[inside & positive, :2] += 1.2
    return X, inside & positive


y = np.arange(30) % 2
drawn = [make_slide(bool(label)) for label in y]
slides = bw.Bags.from_list([X for X, _ in drawn], y, coords=[places] * len(y))
train, test = slides[:24], slides[24:]
truth = np.concatenate([inside for _, inside in drawn[24:]])

# %%
# The same model with and without a coupling, both trained on labels of slides alone.

p = {}
for coupling in (0.0, 0.5, 2.0):
    model = bw.IsingVGPMIL(coupling=coupling, n_inducing=40, bag_score="joint", random_state=0)
    p[coupling] = model.fit(train).predict_instance_proba(test)[:, 1]
    auc = bw.metrics.roc_auc(truth, p[coupling])
    spread = bw.metrics.within_bag_variability(p[coupling], test).mean()
    print(f"coupling {coupling}: AUC of tiles {auc:.3f}, spread inside of slides {spread:.3f}")

# %%
# One positive slide: the region, and what each model makes of it.

rows = slice(test.offsets[1], test.offsets[2])
figure, axes = plt.subplots(1, 4, figsize=(9, 2.6), layout="constrained")
axes[0].imshow(truth[rows].reshape(side, side), cmap="gray")
axes[0].set_title("truth")
for ax, (coupling, found) in zip(axes[1:], p.items(), strict=True):
    ax.imshow(found[rows].reshape(side, side), vmin=0, vmax=1)
    ax.set_title(f"coupling {coupling}")
for ax in axes:
    ax.set_axis_off()
plt.show()
