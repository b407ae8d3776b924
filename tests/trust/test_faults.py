"""Full disks, read-only folders, killed processes, lost schedulers: nothing is lost or hangs.

`make faults` runs this file with BAGWISE_LONG_TESTS=1: fifty kills in place of three, and a real
scheduler that is killed.
"""

import asyncio
import contextlib
import ctypes
import errno
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bagwise as bw
from bagwise.core.files import atomic
from bagwise.core.inference.checkpoints import previous
from bagwise.distributed import DaskBags, PartError, cluster
from bagwise.distributed.cluster import Cluster
from bagwise.distributed.rounds import total
from bagwise.io import ModelFileError, read_state, write_geojson, write_predictions, write_table
from bagwise.report import write_report
from fuzzing import damaged, small_bags

LONG = bool(os.environ.get("BAGWISE_LONG_TESTS"))
SETTINGS: dict[str, Any] = {"n_inducing": 6, "random_state": 0, "learn_hyperparameters": False}
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
posix_only = pytest.mark.skipif(os.name != "posix", reason="needs signals and limits of POSIX")


@pytest.fixture(scope="module")
def model() -> Any:
    return bw.ProbitVGPMIL(**SETTINGS).fit(small_bags())


Writer = Callable[[Any, Path], object]
WRITERS: dict[str, Writer] = {
    "model": lambda model, path: model.save(path),
    "predictions": lambda model, path: write_predictions(
        model, small_bags(), path, instances=True, rows_at_once=6, overwrite=True
    ),
    "csv": lambda model, path: write_table(
        small_bags().to_frame(), path.with_suffix(".csv"), overwrite=True
    ),
    "parquet": lambda model, path: write_table(
        small_bags().to_frame(), path.with_suffix(".parquet"), overwrite=True
    ),
    "page": lambda model, path: write_report(path, model, small_bags(), overwrite=True),
    "tiles": lambda model, path: write_geojson(
        path, small_bags().X, np.full(36, 0.5), np.full(36, 0.1), 4.0, overwrite=True
    ),
}


class FullDisk:
    """Stands for a file on a disk with room for so many bytes more."""

    def __init__(self, file: Any, room: int) -> None:
        self._file, self._room = file, room

    def write(self, data: Any) -> int:
        self._room -= memoryview(data).nbytes
        if self._room < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return int(self._file.write(data))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> "FullDisk":
        return self

    def __exit__(self, *args: object) -> None:
        self._file.close()


def fill_disk(monkeypatch: pytest.MonkeyPatch, room: int | None) -> None:
    """Let files written atomically have `room` bytes; None: the disk is full when synced."""
    if room is None:

        def fsync(_: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(atomic.os, "fsync", fsync)
    else:
        real = open
        monkeypatch.setattr(atomic, "open", lambda *a: FullDisk(real(*a), room), raising=False)


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("room", [0, 300, None])
def test_a_full_disk_keeps_the_old_file(
    name: str, room: int | None, model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "out.file"
    WRITERS[name](model, path)
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    assert before
    fill_disk(monkeypatch, room)
    with pytest.raises(OSError, match="No space left") as caught:
        WRITERS[name](model, path)
    assert caught.value.errno == errno.ENOSPC
    monkeypatch.undo()
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


@pytest.mark.parametrize("room", [0, 300, None])
def test_a_full_disk_does_not_end_a_fit(
    room: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, bags = tmp_path / "fit.ckpt", small_bags()
    whole = bw.ProbitVGPMIL(**SETTINGS).fit(bags, checkpoint=path, checkpoint_minutes=0)
    before = path.read_bytes(), previous(path).read_bytes()
    fill_disk(monkeypatch, room)
    with pytest.warns(UserWarning, match=r"cannot write the checkpoint .* the fit goes on"):
        found = bw.ProbitVGPMIL(**SETTINGS).fit(bags, checkpoint=path, checkpoint_minutes=0)
    assert found.elbo_ == whole.elbo_
    assert (path.read_bytes(), previous(path).read_bytes()) == before
    monkeypatch.undo()
    assert bw.ProbitVGPMIL(**SETTINGS).fit(bags, resume=path).elbo_ == whole.elbo_
    assert sorted(p.name for p in tmp_path.iterdir()) == ["fit.ckpt", "fit.ckpt.previous"]


LIMITED = """
import resource, signal, sys, warnings
from pathlib import Path
import test_faults as t
path, limit = Path(sys.argv[2]), int(sys.argv[3])
model = t.bw.ProbitVGPMIL(**t.SETTINGS).fit(t.small_bags())
t.WRITERS[sys.argv[1]](model, path)
before = {p.name: p.read_bytes() for p in path.parent.iterdir()}
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
try:
    t.WRITERS[sys.argv[1]](model, path)
except OSError as error:
    print(type(error).__name__, error.errno)
assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == before
"""


def run_child(code: str, *args: object, **options: Any) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, args)],
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return done


def child_environment() -> dict[str, str]:
    here = Path(__file__).parent
    paths = [*sys.path, str(here), str(here.parent)]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


@posix_only
@pytest.mark.parametrize("name", WRITERS if LONG else ["model"])
def test_the_system_refuses_larger_files(name: str, tmp_path: Path) -> None:
    """The same with a limit that the system enforces, in a process of its own."""
    done = run_child(LIMITED, name, tmp_path / "out.file", 512)
    assert done.stdout.split() == ["OSError", str(errno.EFBIG)]


# --- Folders that may not be written ------------------------------------------------------------


def test_a_file_where_a_folder_should_be(model: Any, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    path = tmp_path / "file" / "out.bagwise"
    for name, write in WRITERS.items():
        with pytest.raises(FileNotFoundError, match="no directory"):
            write(model, path)
        assert (tmp_path / "file").read_text() == "x", name
    with pytest.raises(FileNotFoundError, match="make it before saving"):
        bw.ProbitVGPMIL(**SETTINGS).fit(small_bags(), checkpoint=path)


READ_ONLY = """
import os, sys
from pathlib import Path
import test_faults as t
if os.getuid() == 0:
    t.obey_write_permissions()
path = Path(sys.argv[1]) / "out.file"
model = t.bw.ProbitVGPMIL(**t.SETTINGS).fit(t.small_bags())
for name, write in t.WRITERS.items():
    try:
        write(model, path)
    except PermissionError as error:
        print(name, flush=True)
try:
    t.bw.ProbitVGPMIL(**t.SETTINGS).fit(t.small_bags(), checkpoint=path)
except PermissionError as error:
    print("checkpoint" if "choose another folder" in str(error) else error)
assert not os.listdir(sys.argv[1])
"""


def obey_write_permissions() -> None:
    """Give up the superuser's right to write anywhere, and nothing else.

    Another user could not read a checkout or a Python that lies in a private folder. Linux keeps
    the rights of a process as two times three words: effective, permitted, inheritable.
    """
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)  # _LINUX_CAPABILITY_VERSION_3, this process
    rights = (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.capget(header, rights) == 0, os.strerror(ctypes.get_errno())
    for kind in (0, 1):  # effective, and permitted, which access(2) looks at
        rights[kind] &= ~(1 << 1)  # CAP_DAC_OVERRIDE; CAP_DAC_READ_SEARCH is another
    assert libc.capset(header, rights) == 0, os.strerror(ctypes.get_errno())


@posix_only
@pytest.mark.skipif(
    hasattr(os, "getuid") and os.getuid() == 0 and sys.platform != "linux",
    reason="the superuser may write to any folder, and only Linux lets it give that up",
)
def test_a_read_only_folder(tmp_path: Path) -> None:
    folder = tmp_path / "read-only"
    folder.mkdir(mode=0o555)
    done = run_child(READ_ONLY, folder)
    assert done.stdout.split() == [*WRITERS, "checkpoint"]


# --- Damaged checkpoints ------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(200 if LONG else 15))
def test_any_damage_to_a_checkpoint_falls_back(seed: int, checkpoints: Path) -> None:
    path = checkpoints / "fit.ckpt"
    good = (checkpoints / "good").read_bytes()
    rng = np.random.default_rng(seed)
    bad = good
    while bad == good:
        bad = damaged(good, rng)
    path.write_bytes(bad)
    with contextlib.ExitStack() as stack:
        if not is_readable(path):  # bytes that mean nothing, such as dates, may change unnoticed
            stack.enter_context(pytest.warns(UserWarning, match="going on from the one before it"))
        found = bw.ProbitVGPMIL(**SETTINGS).fit(small_bags(), resume=path)
    whole = bw.ProbitVGPMIL(**SETTINGS).fit(small_bags())
    assert found.elbo_ == pytest.approx(whole.elbo_, rel=1e-8)


def is_readable(path: Path) -> bool:
    try:
        read_state(path)
    except ModelFileError:
        return False
    return True


@pytest.fixture
def checkpoints(tmp_path: Path) -> Path:
    path = tmp_path / "fit.ckpt"
    bw.ProbitVGPMIL(**SETTINGS).fit(small_bags(), checkpoint=path, checkpoint_minutes=0)
    shutil.copy(path, tmp_path / "good")
    return tmp_path


# --- Killed fits --------------------------------------------------------------------------------

KILLED_SETTINGS: dict[str, Any] = {"n_inducing": 8, "random_state": 0, "max_iter": 40}
KILLED_MODELS: list[Any] = [bw.LargeMarginVGPMIL, bw.VGPMIL, bw.ProbitVGPMIL]
KILLED = """
import os, sys, time
import bagwise as bw
from fuzzing import small_bags
path, model = sys.argv[1], getattr(bw, sys.argv[2])(n_inducing=8, random_state=0, max_iter=40)
there = os.path.exists(path) or os.path.exists(path + ".previous")
def callback(*args):
    print("step", flush=True)
    time.sleep(0.002)
keep = {"resume": path} if there else {}
model.fit(small_bags(), checkpoint=path, checkpoint_minutes=0, callbacks=[callback], **keep)
"""


def kill_at_random(path: Path, which: int, rng: np.random.Generator) -> bool:
    """Start (or go on with) a fit in a process, kill it at some moment; whether it was killed."""
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", KILLED, str(path), KILLED_MODELS[which].__name__],
        env=child_environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdout is not None and child.stderr is not None
    with child.stdout, child.stderr:
        for _ in range(int(rng.integers(0, 20))):  # so many steps, and a moment more
            if not child.stdout.readline():
                break
        time.sleep(float(rng.exponential(0.004)))
        child.kill()
        error = child.stderr.read().decode()
        code = child.wait()
    assert code in (0, -signal.SIGKILL), error
    return code != 0


@posix_only
def test_fits_killed_at_random_moments_reach_the_same_bound(tmp_path: Path) -> None:
    rng, wanted, kills = np.random.default_rng(0), 50 if LONG else 3, 0
    whole = [m(**KILLED_SETTINGS).fit(small_bags()) for m in KILLED_MODELS]
    path, which, in_a_row = tmp_path / "fit.ckpt", 0, 0
    while kills < wanted:
        kills += kill_at_random(path, which, rng)
        in_a_row += 1
        if in_a_row < 3 and kills < wanted:
            continue  # the next process goes on from what this one left
        if path.exists() or previous(path).exists():
            found = KILLED_MODELS[which](**KILLED_SETTINGS)
            with contextlib.ExitStack() as stack:
                if not path.exists():  # killed between two renames
                    stack.enter_context(pytest.warns(UserWarning, match="the one before it"))
                found.fit(small_bags(), resume=path)
            assert found.elbo_ == pytest.approx(whole[which].elbo_, rel=1e-8)
            names = {p.name for p in tmp_path.iterdir()}
            assert names <= {"fit.ckpt", "fit.ckpt.previous"}, "nothing is left of killed writes"
        for file in tmp_path.iterdir():
            file.unlink()
        which, in_a_row = (which + 1) % len(KILLED_MODELS), 0
    print(f"{kills} kills")


# --- A lost scheduler ---------------------------------------------------------------------------


class FakeClient:
    """Futures of its `gather` never end, or end with an error; `nthreads` has answers in turn."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error
        self.asked = 0

    def sync(self, function: Callable[..., Any], *arguments: Any) -> Any:
        # In a thread of its own, as Dask does it: this one may have a loop already.
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: asyncio.run(function(*arguments))).result()

    async def gather(self, futures: list[Any]) -> None:
        if self.error is not None:
            raise self.error
        await asyncio.Event().wait()

    async def run_on_scheduler(self, function: Callable[..., Any]) -> None:
        raise ValueError("this scheduler runs no functions")

    async def nthreads(self) -> dict[str, int]:
        self.asked += 1
        if self.asked == 3:
            return {"tcp://w": 1}  # one came and went: patience begins anew
        if self.asked == 5:
            raise OSError("no answer")
        return {}


class FakeFuture:
    def __init__(self, status: str, key: str = "") -> None:
        self.status = status
        self.key = key


def test_a_lost_scheduler_is_said() -> None:
    client = FakeClient(RuntimeError("cancelled for reason: lost dependencies"))
    names = ("a.parquet", "b.parquet")
    with pytest.raises(PartError, match=r"part 1 \(b.parquet\) is gone: the scheduler was lost"):
        Cluster(client, names).gather([FakeFuture("finished"), FakeFuture("cancelled")])
    client = FakeClient(ConnectionError("no answer"))
    with pytest.raises(PartError, match=r"part 0 \(a.parquet\) is gone: the scheduler was lost"):
        Cluster(client, names).gather([FakeFuture("finished")])


def test_workers_that_die_over_some_parts_are_said() -> None:
    class KillingClient(FakeClient):
        async def who_has(self, futures: list[Any]) -> dict[str, tuple[str, ...]]:
            return {"a": ("tcp://w",), "b": ("tcp://w",)}

        async def nthreads(self) -> dict[str, int]:
            return {"tcp://w": 1}

        def map(self, function: Any, groups: list[Any], *more: Any, **how: Any) -> list[FakeFuture]:
            return [FakeFuture("error") for _ in groups]

    client = KillingClient(RuntimeError("the worker died"))
    parts = [FakeFuture("finished", key) for key in ("a", "b")]
    with pytest.raises(PartError, match=r"one of part 0 \(x\), part 1 \(y\) failed .* worker died"):
        total(Cluster(client, ("x", "y")), len, parts)


def test_a_fit_without_workers_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "POLL", 0.02)
    monkeypatch.setattr(cluster, "PATIENCE", 0.29)
    client = FakeClient()
    with pytest.raises(PartError, match=r"no Dask worker for .* resume="):
        Cluster(client, ("a.parquet",)).gather([FakeFuture("pending")])
    assert client.asked == 3 + 15


class SilentClient(FakeClient):
    """Its scheduler is stopped: it takes every question and answers none."""

    async def nthreads(self) -> dict[str, int]:
        self.asked += 1
        await asyncio.Event().wait()
        return {}


def test_a_scheduler_that_falls_silent_ends_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "POLL", 0.02)
    monkeypatch.setattr(cluster, "PATIENCE", 0.19)
    client = SilentClient()
    with pytest.raises(PartError, match=r"no scheduler that answers; .* resume="):
        Cluster(client, ("a.parquet",)).gather([FakeFuture("pending")])
    assert client.asked == 5
    with pytest.raises(PartError, match=r"has not answered .* resume="):
        Cluster(client, ("a.parquet",)).deal([lambda: None])


def test_a_client_that_is_closed_is_said() -> None:
    client = pytest.importorskip("distributed").Client(processes=False, dashboard_address=":0")
    client.close()
    with pytest.raises(ValueError, match="client is closed; connect again"):
        bw.MIRVM().fit(DaskBags.from_bags(small_bags(), 2), client=client)


@pytest.mark.parametrize(
    "model",
    [bw.VGPMIL(**SETTINGS), bw.ProbitVGPMIL(n_inducing=6, random_state=0)],
    ids=["given kernel", "chosen kernel"],
)
def test_a_client_that_is_closed_on_the_way_is_said(model: Any) -> None:
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(2, processes=False, dashboard_address=":0") as local:
        client = distributed.Client(local)

        def close(stage: str, step: int, objective: float, seconds: float) -> None:
            client.close()

        with pytest.raises(PartError, match=r"client (was )?closed; connect again"):
            model.fit(DaskBags.from_bags(small_bags(), 2), client=client, callbacks=[close])
        with pytest.raises(PartError, match="client was closed; connect again"):
            Cluster(client, ("a",)).submit(len, ())


@pytest.fixture
def scheduler() -> Iterator[tuple[str, Callable[[], None], Callable[[], None]]]:
    """Address of a scheduler with one worker, and how to kill it and start it again."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    address, running = f"tcp://127.0.0.1:{port}", []

    def start(*command: str) -> None:
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        line = [sys.executable, "-m", *command, "--no-dashboard"]
        running.append(subprocess.Popen(line, env=child_environment(), **quiet))

    def start_scheduler() -> None:
        start("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", str(port))

    def kill() -> None:
        running[0].kill()
        running[0].wait()

    start_scheduler()
    start("distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny")
    yield address, kill, start_scheduler
    for process in running:
        process.kill()
        process.wait()


@pytest.mark.skipif(not LONG, reason="part of make faults: waits for Dask to give up")
@pytest.mark.parametrize("again", [False, True], ids=["killed", "restarted"])
@pytest.mark.filterwarnings("ignore")
def test_a_lost_scheduler_ends_the_fit(scheduler: Any, again: bool, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    from distributed import Client

    address, kill, start = scheduler
    client = Client(address, timeout=20)
    client.wait_for_workers(1, timeout=60)
    bags, path = small_bags(), tmp_path / "fit.ckpt"

    def lose(stage: str, step: int, objective: float, seconds: float) -> None:
        if stage == "vi" and step == 3:
            kill()
            if again:
                start()

    begun = time.monotonic()
    with pytest.raises(PartError, match="the scheduler was lost or restarted"):
        bw.VGPMIL(**KILLED_SETTINGS).fit(
            DaskBags.from_bags(bags, 2),
            client=client,
            checkpoint=path,
            checkpoint_minutes=0,
            callbacks=[lose],
        )
    assert time.monotonic() - begun < 120
    with contextlib.suppress(Exception):
        client.close(timeout=5)
    found = bw.VGPMIL(**KILLED_SETTINGS).fit(bags, resume=path)  # nothing is lost
    whole = bw.VGPMIL(**KILLED_SETTINGS).fit(bags)
    assert found.elbo_ == pytest.approx(whole.elbo_, rel=1e-8)
