"""The server of the page: FastAPI behind a guard, on a loopback address alone."""

from __future__ import annotations

import json
import math
import secrets
import socket
from contextlib import suppress
from importlib.resources import files
from typing import Any

from bagwise.cli.labelling.guard import App, Guard
from bagwise.cli.labelling.opinions import opinion_frame
from bagwise.cli.labelling.session import Session
from bagwise.cli.labelling.store import LabelStorageError, RefusedEventError
from bagwise.core.files.reading import UnreadableFileError
from bagwise.io.requirements import require
from bagwise.io.write_tables import frame_bytes

HOST = "127.0.0.1"
TOKEN_BYTES = 24
OWN, REPORT = "bagwise.cli.labelling", "bagwise.report"
ASSETS = {  # the colours and drawings of reports, and what is the page's own
    "label.css": ("text/css", ((REPORT, "page.css"), (OWN, "label.css"))),
    "label.js": (
        "text/javascript",
        ((REPORT, "charts.js"), (OWN, "views.js"), (OWN, "label.js")),
    ),
    "icon.svg": ("image/svg+xml", ((OWN, "icon.svg"),)),
}
EXPORTS = {"csv": "text/csv", "parquet": "application/vnd.apache.parquet"}


def asset(room: str, name: str) -> str:
    """The text of a file that belongs to the package."""
    return (files(room) / "assets" / name).read_text(encoding="utf-8")


def new_token() -> str:
    """A secret that nobody guesses."""
    return secrets.token_urlsafe(TOKEN_BYTES)


def bound_socket(port: int) -> socket.socket:
    """A socket on the loopback address, at a port, or with 0 at any that is free."""
    bound = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((HOST, port))
        bound.listen()  # who comes before the server is up waits for it
    except OSError as error:
        bound.close()
        raise OSError(
            f"port {port} of {HOST} cannot be had ({error.strerror}); choose another with --port, "
            "or leave it out"
        ) from error
    return bound


def build_server(session: Session, token: str, port: int) -> App:
    """The application: a guard around what answers."""
    fastapi = require("fastapi", what="bagwise label", extra="label")
    app = fastapi.FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    _add_page(app, fastapi)
    _add_answers(app, fastapi, session)
    _add_events(app, fastapi, session)
    _add_errors(app, fastapi)
    return Guard(app, token, port)


def _json(fastapi: Any, value: Any, status: int = 200) -> Any:
    text = json.dumps(_finite(value), allow_nan=False)
    return fastapi.Response(text, status, media_type="application/json")


def _finite(value: Any) -> Any:
    """Numbers that JSON does not have as null."""
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _add_page(app: Any, fastapi: Any) -> None:
    @app.get("/")
    def page() -> Any:
        return fastapi.Response(asset(OWN, "page.html"), media_type="text/html")

    @app.get("/{name}")
    def part(name: str) -> Any:
        if name not in ASSETS:
            raise fastapi.HTTPException(404, "there is nothing of that name")
        kind, parts = ASSETS[name]
        return fastapi.Response("\n".join(asset(*p) for p in parts), media_type=kind)


def _add_answers(app: Any, fastapi: Any, session: Session) -> None:
    @app.get("/api/session")
    def about() -> Any:
        return _json(fastapi, session.about())

    @app.get("/api/state")
    def state(annotator: str, second: bool = False) -> Any:
        return _json(fastapi, session.state(annotator, second=second))

    @app.get("/api/instance/{row}")
    def instance(row: int, annotator: str, second: bool = False) -> Any:
        return _json(fastapi, session.instance(row, annotator, second=second))

    @app.get("/api/picture/{row}")
    def picture(row: int, kind: int = 0) -> Any:
        there = 0 <= row < session.bags.n_instances and 0 <= kind < len(session.pictures.kinds)
        if not there or not session.pictures.has(row):
            raise fastapi.HTTPException(404, "there is no picture of this instance")
        return fastapi.Response(session.pictures.png(row, kind), media_type="image/png")

    @app.get("/api/export.{ending}")
    def export(ending: str) -> Any:
        if ending not in EXPORTS:
            raise fastapi.HTTPException(404, f"labels are exported as {' or '.join(EXPORTS)}")
        frame = opinion_frame(session.store, session.bags, session.name)
        name = f"labels.{ending}"
        headers = {"content-disposition": f'attachment; filename="{name}"'}
        return fastapi.Response(
            frame_bytes(frame, name), media_type=EXPORTS[ending], headers=headers
        )


def _add_events(app: Any, fastapi: Any, session: Session) -> None:
    pydantic = require("pydantic", what="bagwise label", extra="label")

    class Sent(pydantic.BaseModel):  # type: ignore[name-defined]
        """An event as the page sends it."""

        model_config = pydantic.ConfigDict(extra="forbid", strict=True)
        event: str
        annotator: str
        action: str
        row: int | None = None
        undoes: str | None = None

    def record(sent: Any) -> Any:
        kept = session.record(sent.event, sent.annotator, sent.action, sent.row, sent.undoes)
        return _json(fastapi, {"event": kept.event, "number": kept.number})

    # A name of a class that is made here would be text, which FastAPI looks for in this module.
    record.__annotations__["sent"] = Sent
    app.post("/api/events")(record)

    @app.post("/api/refit")
    def refit() -> Any:
        session.refit()
        return _json(fastapi, {})


def _add_errors(app: Any, fastapi: Any) -> None:
    def told(status: int) -> Any:
        async def answer(request: Any, error: Exception) -> Any:
            return _json(fastapi, {"detail": str(error)}, status)

        return answer

    app.add_exception_handler(RefusedEventError, told(409))
    app.add_exception_handler(UnreadableFileError, told(422))
    app.add_exception_handler(LabelStorageError, told(507))


def serve(session: Session, bound: socket.socket, token: str) -> None:
    """Answer until Ctrl-C."""
    uvicorn = require("uvicorn", what="bagwise label", extra="label")
    app = build_server(session, token, bound.getsockname()[1])
    config = uvicorn.Config(
        app, log_level="warning", access_log=False, lifespan="off", timeout_graceful_shutdown=2,
        server_header=False, ws="none",
    )  # fmt: skip
    with suppress(KeyboardInterrupt):  # it has ended as it was asked to
        uvicorn.Server(config).run(sockets=[bound])
