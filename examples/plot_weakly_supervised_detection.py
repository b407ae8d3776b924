"""
Finding digits after training on image labels
=============================================

Each canvas shows digits among fragments of others. For training we know only *which* of the
digits 0 and 6 a canvas shows, not where. A canvas is a bag, its windows are the instances: the
model has to find out by itself which windows make the difference.
"""

# %%
# Canvases. Those for testing show digits of other writers.
import matplotlib.pyplot as plt

import bagwise as bw
from bagwise.datasets import make_digit_canvases
from bagwise.detection import SlidingWindows, WeaklySupervisedDetector, average_precision, corloc
from bagwise.plots import plot_detections

train = make_digit_canvases(150, (0, 6), random_state=0)
test = make_digit_canvases(60, (0, 6), subset="test", random_state=1)

# %%
# Windows of three sizes, sixty per canvas; histograms of gradients; a Gaussian process per class.
detector = WeaklySupervisedDetector(
    bw.ProbitVGPMIL(n_inducing=60),
    proposals=SlidingWindows((16, 20, 24), top=60),
    class_names=train.classes,
    random_state=0,
)
detector.fit(train.images, train.y)

# %%
# CorLoc: in how many training canvases with the digit is the best box on it? Average precision on
# new canvases: are the boxes right, and do right ones come first?
on_train, on_test = detector.detect(train.images), detector.detect(test.images)
for digit in train.classes:
    print(
        f"digit {digit}: CorLoc {corloc(train.boxes, on_train, digit):.2f}, "
        f"AP@0.5 {average_precision(test.boxes, on_test, digit):.2f}"
    )

# %%
# What was found on new canvases, with the probability and its standard deviation. True boxes are
# dashed.
figure = plot_detections(
    test.images[:12],
    on_test[:12],
    test.boxes[:12],
    min_score=0.4,
    title="Digits 0 and 6, found after training on image labels",
)
plt.show()
