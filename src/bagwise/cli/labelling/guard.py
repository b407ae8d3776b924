"""Who may speak to the server: the page that was opened with its secret address, on this machine.

Any site that is open in the browser can send requests to this machine, and a name of its own can
lead here (DNS rebinding). So a request must have the secret in its path, the address that was
bound in its Host, and no other origin.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any

Scope = dict[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]
App = Callable[[Scope, Any, Send], Awaitable[None]]

LARGEST_BODY = 4096  # bytes; an event has a few hundred
HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cache-control": "no-store",
}


class Guard:
    """Refuses requests before anything else sees them, and takes the secret off their path."""

    def __init__(self, app: App, token: str, port: int) -> None:
        self._app, self._token = app, token
        self._hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}

    async def __call__(self, scope: Scope, receive: Any, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # nothing here speaks over web sockets
            await send({"type": "websocket.close", "code": 1008})
            return
        reason = self._reason(scope)
        if reason is not None:
            await refuse(send, *reason)
            return

        token, slash, rest = scope["path"].removeprefix("/").partition("/")
        if not slash:  # the parts of the page are found from its folder
            await refuse(send, 308, "the page is one slash further", {"location": f"/{token}/"})
            return

        async def sealed(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_encoded(HEADERS)]
            await send(message)

        path = f"/{rest}"
        await self._app({**scope, "path": path, "raw_path": path.encode()}, receive, sealed)

    def _reason(self, scope: Scope) -> tuple[int, str] | None:
        """Why a request is refused, or None."""
        headers: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            headers.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
        host = headers.get("host", [])
        if len(host) != 1 or host[0] not in self._hosts:
            return 421, "this server answers to the address that it printed alone"
        if any(origin != f"http://{host[0]}" for origin in headers.get("origin", [])):
            return 403, "requests of other sites are refused"
        token, _, rest = scope["path"].removeprefix("/").partition("/")
        if not secrets.compare_digest(token.encode(), self._token.encode()):
            return 403, "open the address that `bagwise label` printed: it has a secret in it"
        sites = headers.get("sec-fetch-site", ["none"])
        if rest and any(site not in ("none", "same-origin") for site in sites):
            return 403, "requests of other sites are refused"
        return self._body_reason(headers) if scope["method"] == "POST" else None

    @staticmethod
    def _body_reason(headers: dict[str, list[str]]) -> tuple[int, str] | None:
        if headers.get("content-type") != ["application/json"]:
            return 415, "events are sent as application/json"
        length = headers.get("content-length", [""])[0]
        if not length.isdecimal() or int(length) > LARGEST_BODY:
            return 413, f"events have at most {LARGEST_BODY} bytes"
        return None


async def refuse(send: Send, status: int, why: str, more: dict[str, str] | None = None) -> None:
    """Answer with a reason in plain text, and `more` headers."""
    headers = {**HEADERS, "content-type": "text/plain; charset=utf-8", **(more or {})}
    await send({"type": "http.response.start", "status": status, "headers": _encoded(headers)})
    await send({"type": "http.response.body", "body": f"{why}\n".encode()})


def _encoded(headers: dict[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in headers.items()]
