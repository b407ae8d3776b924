"""Clusters of Dask workers in processes of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


def started(n_workers: int) -> Iterator[Any]:
    distributed = pytest.importorskip("distributed")
    with (
        distributed.LocalCluster(
            n_workers=n_workers, threads_per_worker=1, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield client


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    yield from started(2)


@pytest.fixture
def lone_worker() -> Iterator[Any]:
    yield from started(1)
