"""
Digits: which instances make a bag positive?
============================================

A bag of ten handwritten digits is positive if it holds a 2 or a 9. The model is told labels of
bags only, and finds the digits.
"""

import matplotlib.pyplot as plt

import bagwise as bw
from bagwise.plots import ImageBagsDisplay, InstanceProbabilityDisplay

bags, truth = bw.datasets.make_digit_bags(80, random_state=0)
train, test, truth = bags[:50], bags[50:], truth[500:]
model = bw.ProbitVGPMIL(random_state=0).fit(train)

ImageBagsDisplay.from_estimator(
    model, test[:4], (8, 8), truth=truth[:40], frame_name="truly a 2 or a 9"
)

# %%
# The same bag as bars; orange bars are truly positive, lines span one standard deviation.

positive = int(test.y.argmax())
bag = test.with_instance_labels(truth)[positive]
InstanceProbabilityDisplay.from_estimator(model, bag)
plt.show()
