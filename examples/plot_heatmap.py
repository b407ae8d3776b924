"""
A slide: where are the positive tiles?
======================================

Tiles of a slide lie on a grid; in positive slides a round region has other features. Labels
of slides are enough to point at it, and the right panel shows where the model is unsure.
"""

import matplotlib.pyplot as plt
import numpy as np

import bagwise as bw
from bagwise.plots import HeatmapDisplay

rng = np.random.default_rng(0)
places = np.array([[x, y] for y in range(14) for x in range(20)]) * 256.0


def make_slide(positive):
    X = rng.normal(size=(len(places), 3))
    centre, radius = rng.uniform([1200, 900], [3800, 2600]), 620
    inside = np.linalg.norm(places - centre, axis=1) < radius
    X[inside & positive] += [2.5, 1.5, 0.0]
    return X


y = np.arange(24) % 2
slides = bw.Bags.from_list([make_slide(bool(label)) for label in y], y, coords=[places] * 24)
model = bw.ProbitVGPMIL(n_inducing=60, random_state=0).fit(slides[:20])
display = HeatmapDisplay.from_estimator(model, slides[23])
plt.show()
