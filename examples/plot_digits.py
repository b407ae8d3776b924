"""
Digits: which instances make a bag positive?
============================================

A bag of ten handwritten digits is positive if it holds a 2 or a 9. The model is told labels of
bags only, and finds the digits.
"""

import matplotlib.pyplot as plt
import numpy as np

import bagwise as bw
from bagwise.plots import ImageBagsDisplay, InstanceProbabilityDisplay

bags, truth = bw.datasets.make_digit_bags(160, random_state=0)
train, test = bags[:80], bags[80:].with_instance_labels(truth[800:])
model = bw.ProbitVGPMIL(random_state=0).fit(train)

# %%
# Two positive and two negative bags that the model has not seen.

shown = test[np.concatenate([np.flatnonzero(test.y == 1)[:2], np.flatnonzero(test.y == 0)[:2]])]
ImageBagsDisplay.from_estimator(model, shown, (8, 8), frame_name="truly a 2 or a 9")

# %%
# The first bag as bars; orange bars are truly positive, lines span one standard deviation.

InstanceProbabilityDisplay.from_estimator(model, shown[0])
plt.show()
