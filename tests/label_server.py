"""A server of `bagwise label` in a process of its own, as tests start, kill and start it again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pandas as pd

import bagwise as bw

SRC = Path(__file__).resolve().parent.parent / "src"
HOSTILE_BAG = "<img src=x onerror=\"document.title='owned'\">"
HOSTILE_INSTANCE = "</script><script>document.title='owned'</script>.png"


def labelled_frame(hostile: bool = False, n_bags: int = 12) -> pd.DataFrame:
    """Bags of nine tiles on a grid, of which positive ones have one that stands out."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n_bags, 9, 3))
    X[1::2, 4] += 3
    frame = pd.DataFrame(X.reshape(-1, 3), columns=["area", "shade", "edge"])
    ids = [f"s{b:02d}" for b in range(n_bags)]
    if hostile:
        ids[1::2] = [f"{HOSTILE_BAG}{b}" for b in range(1, n_bags, 2)]
    frame.insert(0, "slide", np.repeat(ids, 9))
    frame["diagnosis"] = np.repeat(np.where(np.arange(n_bags) % 2, "tumour", "healthy"), 9)
    frame["x"], frame["y"] = np.tile(np.arange(9) % 3, n_bags), np.tile(np.arange(9) // 3, n_bags)
    if hostile:
        frame["instance_id"] = [f"{i % 9} {HOSTILE_INSTANCE}" for i in range(len(frame))]
    return frame


def fitted_model(frame: pd.DataFrame, **how: Any) -> Any:
    """A small model of these bags that knows the columns of their table."""
    features = ["area", "shade", "edge"]
    bags = bw.Bags.from_frame(frame[["slide", *features]], bag="slide", label=None)
    y = frame.groupby("slide")["diagnosis"].first().loc[bags.ids].eq("tumour").astype(int)
    settings = {"n_inducing": 10, "random_state": 0, "kernel": bw.kernels.RBF(2.0, 2.0)}
    model = bw.ProbitVGPMIL(
        **{**settings, "mean": -2.0, "learn_hyperparameters": False, **how}
    ).fit(bags, y.to_numpy())
    model.metadata_ = {
        "columns": {"bag": "slide", "label": "diagnosis", "coords": ["x", "y"]},
        "classes": ["healthy", "tumour"],
    }
    return model


class LabelServer:
    """`bagwise label` as a process; the address is known once it is up."""

    def __init__(self, folder: Path, *more: str) -> None:
        self.folder, self.more = folder, more
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> str:
        env = {**os.environ, "PYTHONPATH": str(SRC), "OMP_NUM_THREADS": "1"}
        command = ("label", "m.bagwise", "cells.csv", "--no-browser", "--annotator", "ann")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bagwise", *command, *self.more],
            cwd=self.folder, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.address = self.process.stdout.readline().strip()
        assert self.address.startswith("http://127.0.0.1:"), self.process.communicate()
        self.wait_until_up()
        return self.address

    @property
    def base(self) -> str:
        return self.address.partition("?")[0]

    @property
    def origin(self) -> str:
        parts = urlsplit(self.address)
        return f"{parts.scheme}://{parts.netloc}"

    def wait_until_up(self) -> None:
        import httpx

        for _ in range(600):
            try:
                httpx.get(f"{self.base}api/session", timeout=60)
                return
            except httpx.TransportError:
                time.sleep(0.1)
        raise AssertionError("the server did not come up")

    def kill(self) -> None:
        """As kill -9 does."""
        assert self.process is not None
        self.process.kill()
        self.process.communicate()

    def interrupt(self) -> tuple[int, str]:
        """As Ctrl-C does; exit code and what was said."""
        import signal

        assert self.process is not None
        self.process.send_signal(signal.SIGINT)
        _, said = self.process.communicate(timeout=120)
        return self.process.returncode, said

    def __enter__(self) -> LabelServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.process is not None and self.process.poll() is None:
            self.kill()


def folder_with_model(folder: Path, *, hostile: bool = False) -> Path:
    """A folder with cells.csv and m.bagwise."""
    frame = labelled_frame(hostile)
    frame.to_csv(folder / "cells.csv", index=False)
    fitted_model(frame).save(folder / "m.bagwise")
    return folder
