"""
Attention features with a Gaussian process head
===============================================

A convolutional network with attention learns from bag labels which digits matter. Its attention
weights say what it looked at, but they are no probabilities: they sum to 1 in negative bags too.
A Gaussian process on the network's features gives each digit a probability and its uncertainty.
Needs PyTorch: ``pip install ".[torch]"`` in a clone.
"""

# %%
# Bags of five digits; a bag is positive if it holds a 2 or a 9.
import matplotlib.pyplot as plt
import numpy as np

import bagwise as bw
from bagwise.deep import AttentionMIL
from bagwise.plots import ImageBagsDisplay

bags, truth = bw.datasets.make_digit_bags(300, bag_size=5, witness=(1, 2), random_state=1)
train, test = bags[:200], bags[200:]
truth = truth[-test.n_instances :]

# %%
# First the network, then the head on its features. ``AttentionFeatures`` does the same in a
# pipeline.
network = AttentionMIL(image_shape=(8, 8), random_state=1).fit(train)
print(f"{network.n_iter_} epochs, epoch {network.best_epoch_ + 1} kept")
head = bw.ProbitVGPMIL(random_state=1).fit(network.transform(train))

# %%
# Attention, scaled by the largest weight of the bag and the bag's probability, against the head.
features = network.transform(test)
p, std = head.predict_instance_proba(features, return_std=True)
weight = network.attention(test)
top = np.maximum.reduceat(weight, test.offsets[:-1])[test.bag_index]
attention = np.clip(network.predict_proba(test)[test.bag_index, 1] * weight / top, 1e-3, 1 - 1e-3)
for name, values in (("attention", attention), ("Gaussian process", p[:, 1])):
    print(
        f"{name}: instance AUC {bw.metrics.roc_auc(truth, values):.3f}, "
        f"log-likelihood {bw.metrics.log_likelihood(truth, values):.3f}"
    )

# %%
# Six bags with the head's probabilities.
few = slice(0, 30)
bag_p, bag_std = head.predict_proba(features[:6], return_std=True)
ImageBagsDisplay.from_predictions(
    test[:6],
    (8, 8),
    p[few],
    std[few],
    truth=truth[few],
    bag_p=bag_p,
    bag_std=bag_std,
    title="Attention features, Gaussian process head",
)
plt.show()
