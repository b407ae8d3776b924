"""
Which shape of a molecule is active?
====================================

RDKit carries a table of about a thousand molecules with measured activities (ChEMBL document
CHEMBL2321810). Here some of them become bags of conformers, and a model that was fitted on some
scaffolds is tested on others. It needs ``pip install "bagwise[molecules,plot]"``.
"""

# %%
# Molecules and their activities
# ------------------------------
# Activities are logarithms of concentrations; a molecule counts as active above the median. A
# hundred molecules are enough to see how it goes.

import csv
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from rdkit import RDConfig
from sklearn.model_selection import GroupKFold

import bagwise as bw

folder = Path(RDConfig.RDContribDir) / "FreeWilson" / "data"
with open(folder / "CHEMBL2321810_act.csv", newline="") as file:
    activity = {row["Name"]: float(row["Act"]) for row in csv.DictReader(file)}
lines = (folder / "CHEMBL2321810.smi").read_text().split("\n")
lines = [line for line in lines if line.strip()]
chosen = np.random.default_rng(0).choice(len(lines), size=100, replace=False)
Path("some.smi").write_text("\n".join(lines[i] for i in chosen) + "\n")

names = [lines[i].split()[1] for i in chosen]
values = np.array([activity[name] for name in names])
active = (values > np.median(values)).astype(int)
drugs = bw.io.read_molecules("some.smi", y=active, n_conformers=8)
print(drugs.bags)
print(len(np.unique(drugs.bags.groups)), "scaffolds")

# %%
# Test on scaffolds that were not in the fit
# ------------------------------------------

p = np.zeros(len(drugs.bags))
for train, test in GroupKFold(4).split(p, active, drugs.bags.groups):
    model = bw.VGPMIL(n_inducing=50, random_state=0).fit(drugs.bags[train])
    p[test] = model.predict_proba(drugs.bags[test])[:, 1]
print(f"ROC AUC on new scaffolds: {bw.metrics.roc_auc(active, p):.2f}")

# %%
# The most probable conformer
# ---------------------------
# of the molecule that is active with the greatest probability.

model = bw.VGPMIL(n_inducing=50, random_state=0).fit(drugs.bags)
best = drugs.bags.ids[np.argmax(np.where(active == 1, p, 0))]
drugs.draw(str(best), model, "best.png", size=(600, 400), overwrite=True)
plt.figure(figsize=(6, 4))
plt.imshow(plt.imread("best.png"))
plt.axis("off")
plt.show()
