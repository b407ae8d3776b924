"""Files appear whole or not at all, and what is there is kept unless it may go."""

import os
from pathlib import Path

import pytest

from bagwise import Bags, ProbitVGPMIL, load
from bagwise.core.files.atomic import atomic_file, check_target, remove_leftovers


def test_any_name_that_the_system_takes_can_be_written(tmp_path: Path) -> None:
    for name in ("b" * 255, "é" * 127):
        target = tmp_path / name
        with atomic_file(target) as file:
            file.write(b"whole")
        assert target.read_bytes() == b"whole"
        start = name.encode()[:233].decode("utf-8", "ignore")
        (tmp_path / f".{start}.0123456789abcdef.tmp").write_bytes(b"")
        remove_leftovers(target)
        assert [path.name for path in tmp_path.iterdir()] == [name]
        target.unlink()


def test_a_failure_leaves_nothing_behind(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")
    with pytest.raises(RuntimeError, match="stop"), atomic_file(target) as file:
        file.write(b"half")
        raise RuntimeError("stop")
    assert target.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [target]


def test_a_file_that_appears_meanwhile_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "a.txt"
    with pytest.raises(FileExistsError), atomic_file(target, overwrite=False) as file:
        file.write(b"mine")
        target.write_bytes(b"theirs")
    assert target.read_bytes() == b"theirs"
    assert list(tmp_path.iterdir()) == [target]


def test_leftovers_of_killed_writers_are_removed(tmp_path: Path) -> None:
    target = tmp_path / "a.ckpt"
    kept = [target, tmp_path / ".a.ckpt.tmp", tmp_path / ".b.ckpt.0123456789abcdef.tmp"]
    for path in (*kept, tmp_path / ".a.ckpt.0123456789abcdef.tmp"):
        path.write_bytes(b"half")
    remove_leftovers(target)
    assert sorted(tmp_path.iterdir()) == sorted(kept)
    remove_leftovers(tmp_path / "nowhere" / "a.ckpt")


def test_models_keep_their_metadata_and_existing_files(tmp_path: Path) -> None:
    bags = Bags.from_list([[[0.0]], [[1.0]], [[0.1]], [[1.1]]], y=[0, 1, 0, 1])
    model = ProbitVGPMIL(random_state=0).fit(bags)
    model.save(tmp_path / "plain.bagwise")
    assert load(tmp_path / "plain.bagwise").metadata_ == {}
    model.metadata_ = {"classes": ["no", "yes"], "seed": 3}
    path = tmp_path / "m.bagwise"
    model.save(path, overwrite=False)
    assert load(path).metadata_ == model.metadata_
    with pytest.raises(FileExistsError, match="overwrite=True"):
        model.save(path, overwrite=False)
    assert model.fit(bags).metadata_ == {}


def test_what_cannot_be_written_is_said_before_the_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="File name too long"):
        check_target(tmp_path / ("b" * 256))
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match=r"may not be written.*another folder for a\.txt"):
        check_target(tmp_path / "a.txt")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no FIFOs")
def test_pipes_and_folders_are_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(FileExistsError, match="device, a pipe"), atomic_file(pipe):
        pass
    assert pipe.is_fifo()
    with pytest.raises(IsADirectoryError, match="name a file"), atomic_file(tmp_path):
        pass


def test_devices_are_not_replaced() -> None:
    with pytest.raises(FileExistsError, match="device"), atomic_file(os.devnull):
        pass


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o444, 0o4755])  # the last would run as another
def test_a_private_file_stays_private(tmp_path: Path, mode: int) -> None:
    target = tmp_path / "a.txt"
    target.write_bytes(b"old")
    target.chmod(mode)
    with atomic_file(target) as file:
        file.write(b"new")
    assert target.read_bytes() == b"new" and target.stat().st_mode & 0o7777 == mode & 0o777
