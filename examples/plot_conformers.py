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
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from rdkit import RDConfig
from sklearn.model_selection import GroupKFold

import bagwise as bw

folder = Path(RDConfig.RDContribDir) / "FreeWilson" / "data"
with open(folder / "CHEMBL2321810_act.csv", newline="") as file:
    activity = {row["Name"]: float(row["Act"]) for row in csv.DictReader(file)}
pairs = [line.split() for line in (folder / "CHEMBL2321810.smi").read_text().splitlines() if line]
chosen = np.random.default_rng(0).choice(len(pairs), size=100, replace=False)
smiles = [pairs[i][0] for i in chosen]
values = np.array([activity[pairs[i][1]] for i in chosen])

active = (values > np.median(values)).astype(int)
drugs = bw.io.read_molecules(smiles, y=active, n_conformers=8)
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
with tempfile.TemporaryDirectory() as place:
    drugs.draw(str(best), model, f"{place}/best.png", size=(900, 500))
    picture = plt.imread(f"{place}/best.png")
plt.figure(figsize=(9, 5))
plt.imshow(picture)
plt.axis("off")
plt.show()
