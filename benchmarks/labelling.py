"""Refits while people label, and how long the page waits for answers meanwhile.

    OPENBLAS_NUM_THREADS=1 python benchmarks/labelling.py [--bags 5000] [--size 8] [--labels 20]

A model of many small bags is refitted after labels, as `bagwise label` does it (kernel, mean,
points and calibration kept, begun where the last fit ended), in seconds of the processor and of the
clock. Then the page's requests are sent to a server that refits after every label: their median and
longest time while it does. On a machine with other work the clock counts that too.
"""

import argparse
import http.client
import json
import secrets
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np

import bagwise as bw
from bagwise.models.quick_refits import QuickRefits

FEATURES = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--bags", type=int, default=5000)
    parser.add_argument("--size", type=int, default=8)
    parser.add_argument("--labels", type=int, default=20)
    options = parser.parse_args()
    bags, truth = many_bags(options.bags, options.size)
    model = bw.ProbitVGPMIL(kernel=bw.kernels.RBF(2.0, 3.0), random_state=0, bag_score="joint")
    model.fit(bags)
    refits(model, bags, truth, options.labels)
    answers(model, bags, options.labels)


def many_bags(n_bags: int, size: int) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    y = np.arange(n_bags) % 2
    X = rng.normal(size=(n_bags, size, FEATURES))
    X[y == 1, 0] += 1.0
    truth = np.zeros((n_bags, size))
    truth[y == 1, 0] = 1
    return bw.Bags.from_list(list(X), y), truth.ravel()


def refits(model: Any, bags: Any, truth: Any, n_labels: int) -> None:
    again = QuickRefits(model, bags)
    known = np.full(bags.n_instances, np.nan)
    again(known)  # features are computed once
    clock, processor = [], []
    for row in model.suggest_instances(bags, n_labels):
        known[row] = truth[row]
        start = time.perf_counter(), time.process_time()
        again(known)
        clock.append(time.perf_counter() - start[0])
        processor.append(time.process_time() - start[1])
    print(f"refit after a label, {len(bags)} bags, {bags.n_instances} instances:", flush=True)
    for name, seconds in (("processor", processor), ("clock", clock)):
        print(f"  {name}: median {np.median(seconds):.2f} s, longest {np.max(seconds):.2f} s")


def answers(model: Any, bags: Any, n_labels: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        bags.to_frame().to_parquet(Path(folder) / "t.parquet")
        model.save(Path(folder) / "m.bagwise")
        command = ("label", "m.bagwise", "t.parquet", "--no-browser", "--refit-every", "1")
        server = subprocess.Popen(
            [sys.executable, "-m", "bagwise", *command],
            cwd=folder,
            stdout=subprocess.PIPE,
            text=True,
        )
        try:
            assert server.stdout is not None
            found = asked(server.stdout.readline().strip(), n_labels)
        finally:
            server.kill()
            server.wait()
    for kind, seconds in found.items():
        if seconds:
            late = 1000 * np.array(seconds)
            print(
                f"answers during refits, {kind}: {len(late)}, median {np.median(late):.0f} ms, "
                f"95 % within {np.quantile(late, 0.95):.0f} ms, longest {late.max():.0f} ms"
            )


def asked(address: str, n_labels: int) -> dict[str, list[float]]:
    """Seconds of each kind of request while the server refits."""
    parts = urlsplit(address)
    link = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=600)

    def ask(path: str, sent: Any = None) -> tuple[Any, float]:
        start = time.perf_counter()
        body = None if sent is None else json.dumps(sent)
        headers = {} if sent is None else {"Content-Type": "application/json"}
        link.request("GET" if sent is None else "POST", parts.path + path, body, headers)
        answer = link.getresponse()
        text = answer.read()
        assert answer.status == 200, text
        return json.loads(text), time.perf_counter() - start

    found: dict[str, list[float]] = {"state": [], "instance": [], "label": []}
    while (state := ask("api/state?annotator=ann")[0])["next"] is None:
        time.sleep(0.5)
    for _ in range(n_labels):
        sent = {"event": secrets.token_hex(16), "annotator": "ann", "row": state["next"]}
        seconds = ask("api/events", {**sent, "action": "negative"})[1]
        if state["refit"]["state"] == "refitting":
            found["label"].append(seconds)
        state, seconds = ask("api/state?annotator=ann")
        if state["refit"]["state"] == "refitting":
            found["state"].append(seconds)
            found["instance"].append(ask(f"api/instance/{state['next'] or 0}?annotator=ann")[1])
        time.sleep(0.3)
    return found


if __name__ == "__main__":
    main()
