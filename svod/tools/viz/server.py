"""The page on the loopback address: for this process's plans, for as long as the process lives.

Every address begins with a token that only the opener knows; requests by another host name (a name
that was made to point here) or from another page are refused. Details of kernels are made when they
are asked for, so a large plan opens at once.
"""

from __future__ import annotations

import hmac
import json
import secrets
import socket
import threading
import webbrowser
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from svod.base.errors import ArgumentError
from svod.base.locks import reset_lock
from svod.runtime.plan import ExecutionPlan
from svod.tools.viz.kernel_json import kernel_details
from svod.tools.viz.plan_json import plan_data
from svod.tools.viz.report import page_data, page_html
from svod.tools.viz.shown import Shown

HOST = "127.0.0.1"
INSIDE = (  # what the page itself says; who may frame it only the header may say
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'"
)
SERVED = f"{INSIDE}; frame-ancestors 'none'"


class Viewer:
    """A page that is served; `close` ends it, and so does the end of the process."""

    def __init__(
        self,
        plan: ExecutionPlan | Sequence[Shown],
        *,
        before: ExecutionPlan | None = None,
        title: str = "plan",
        runs: int = 3,
    ) -> None:
        self._shown: Sequence[Shown] = (  # a list that a program still adds to, perhaps
            plan if not isinstance(plan, ExecutionPlan) else [Shown(plan, title)]
        )
        self._before = None if before is None else Shown(before, "before")
        self._runs = runs
        self._held: dict[tuple[int, int], bytes] = {}  # of plans, and of their kernels
        self._lock = reset_lock()
        self.token = secrets.token_urlsafe(24)
        self._title = title
        self.connections: set[socket.socket] = set()
        self._server = ThreadingHTTPServer((HOST, 0), _handler(self))
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="svod viz", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/{self.token}/"

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        for connection in tuple(self.connections):  # those that browsers keep open
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __repr__(self) -> str:
        return f"Viewer({self.url})"

    def answer(self, path: str) -> tuple[str, bytes] | None:
        """The kind and the bytes of what an address below the token names; None for nothing."""
        if path == "":
            held = '<script type="application/octet-stream" id="data" data-from="data"></script>'
            return "text/html; charset=utf-8", page_html(self._title, INSIDE, held).encode()
        if path == "data":
            rows = [one.summary() for one in self._plans()]
            return "application/json", _json(page_data(rows, self._before is not None))
        kind, *numbers = path.split("/")
        if not all(n.isascii() and n.isdigit() and len(n) < 10 for n in numbers):
            return None
        if len(numbers) != {"plan": 1, "kernel": 2}.get(kind):
            return None
        wanted, kernel = int(numbers[0]), int(numbers[1]) if kind == "kernel" else -1
        shown = next((one for one in self._plans() if one.number == wanted), None)
        if shown is None or kernel >= len(shown.first_calls()):
            return None
        return "application/json", self._kept(shown, kernel)

    def _plans(self) -> list[Shown]:
        found = list(self._shown)
        return found if self._before is None else [*found[:1], self._before, *found[1:]]

    def _kept(self, shown: Shown, kernel: int) -> bytes:
        """A plan (kernel -1) or the details of one of its kernels, made when first asked for."""
        with self._lock:
            found = self._held.get((shown.number, kernel))
            if found is None:
                made = (
                    plan_data(
                        shown.plan, shown.title, runs=self._runs, profiles=shown.profiles(),
                        paths=True, details=False,
                    )
                    if kernel < 0
                    else kernel_details(shown.first_calls()[kernel])
                )  # fmt: skip
                found = self._held[shown.number, kernel] = _json(made)
            return found


def view(
    plan: ExecutionPlan | Sequence[Shown],
    *,
    before: ExecutionPlan | None = None,
    title: str = "plan",
    runs: int = 3,
    browser: bool = True,
) -> Viewer:
    """Serve a page about one plan or several, and open it in the browser."""
    found = Viewer(plan, before=before, title=title, runs=runs)
    if browser:
        webbrowser.open(found.url)
    return found


def view_result(result: Any, *, title: str, runs: int = 3, browser: bool = True) -> Viewer:
    """Serve a page about the plan of what a model returned: tensors in any containers."""
    from svod.tensor.recording.realize import prepare_batch

    tensors = list(_tensors(result))
    if not tensors:
        raise ArgumentError(f"{title} returned no tensor but {type(result).__name__}")
    return view(prepare_batch(tensors), title=title, runs=runs, browser=browser)


def _tensors(value: Any) -> Iterator[Any]:
    from svod.tensor.tensor import Tensor

    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def _json(made: dict[str, Any]) -> bytes:
    return json.dumps(made, separators=(",", ":")).encode()


def _handler(viewer: Viewer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        server_version, sys_version = "svod", ""
        protocol_version = "HTTP/1.1"
        timeout = 30  # seconds that a connection may say nothing

        def setup(self) -> None:
            super().setup()
            viewer.connections.add(self.connection)

        def handle_one_request(self) -> None:
            try:
                super().handle_one_request()
            except ConnectionError:  # the reader has left
                self.close_connection = True

        def finish(self) -> None:
            viewer.connections.discard(self.connection)
            with suppress(ConnectionError):
                super().finish()

        def do_GET(self) -> None:
            if not self._is_ours():
                self._send(403, "text/plain; charset=utf-8", b"refused\n")
                return
            _, token, path = urlsplit(self.path).path.split("/", 2)
            del token
            found = viewer.answer(path)
            if found is None:
                self._send(404, "text/plain; charset=utf-8", b"nothing is here\n")
            else:
                self._send(200, *found)

        def _is_ours(self) -> bool:
            """Asked under our own name, by our own page, by somebody who knows the token."""
            own = f"{HOST}:{viewer.port}"
            if self.headers.get_all("Host", []) != [own]:
                return False
            if self.headers.get("Origin", f"http://{own}") != f"http://{own}":
                return False
            if self.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
                return False
            parts = urlsplit(self.path).path.split("/", 2)
            token = parts[1] if len(parts) == 3 else ""
            return hmac.compare_digest(token.encode(), viewer.token.encode())

        def _send(self, status: int, kind: str, content: bytes) -> None:
            self.send_response(status)
            for name, value in {
                "Content-Type": kind,
                "Content-Length": str(len(content)),
                "Cache-Control": "no-store",
                "X-Content-Type-Options": "nosniff",
                "Referrer-Policy": "no-referrer",
                "Cross-Origin-Resource-Policy": "same-origin",
                "Content-Security-Policy": SERVED,
            }.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            """Requests are nobody's business, and hold the token."""

    return Handler
