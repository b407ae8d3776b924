"""Fits over several machines with Dask: workers keep their bags, only sums travel.

    from dask.distributed import Client
    bags = DaskBags.from_parquet(["a.parquet", "b.parquet"])
    client = Client("tcp://scheduler:8786")
    model.fit(bags, client=client)
    bags.predict(model, client, "predictions")

A part is some whole bags. Its worker reads it, computes its features once and keeps them; a
pass sends the current q to every part and gets sums back: the very step of a local fit. If a
worker is lost, Dask reads its parts again elsewhere.
"""

from bagwise.distributed.bags import DaskBags, connected, helped_by_workers
from bagwise.distributed.faults import PartError
from bagwise.distributed.passes import DistributedData, training_data
from bagwise.distributed.rows import DaskRows

__all__ = [
    "DaskBags",
    "DaskRows",
    "DistributedData",
    "PartError",
    "connected",
    "helped_by_workers",
    "training_data",
]
