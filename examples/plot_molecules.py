"""
Molecules: how good are the probabilities?
==========================================

MUSK1: a bag is a molecule, an instance one of its shapes. Fit on 70 % of the molecules, look at
the rest.
"""

import matplotlib.pyplot as plt

import bagwise as bw
from bagwise.plots import ElboDisplay, ReliabilityDisplay, RocDisplay

bags = bw.datasets.load_musk1()
train, test = bags.split(test_size=0.3, random_state=0)
model = bw.ProbitVGPMIL(random_state=0, bag_score="max").fit(train)

figure, axes = plt.subplots(1, 3, figsize=(12, 3.9), layout="constrained")
ElboDisplay.from_estimator(model, ax=axes[0])
RocDisplay.from_estimator(model, test, ax=axes[1])
ReliabilityDisplay.from_estimator(model, test, n_bins=5, ax=axes[2])
plt.show()

# %%
# The band of the ROC curve and the bars of the reliability diagram are 95 % intervals: 28
# molecules do not say more.
