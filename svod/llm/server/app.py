"""The server: OpenAI's interface, health, metrics and the page, as a Starlette application.

Bodies are limited and must be JSON by name, which other pages in a browser cannot send; a host
name that was made to point here is refused. A client that goes away ends its answer. An error is
an object with a message, whatever went wrong.
"""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from svod.llm.errors import RequestError
from svod.llm.model import LanguageModel
from svod.llm.server.answers import ChatForm, CompletionForm, events, gathered
from svod.llm.server.fields import FieldError, Fields
from svod.llm.server.metrics import Metrics
from svod.llm.server.reading import (
    Asked,
    chat_request,
    completion_request,
    response_request,
    texts_or_tokens,
)  # fmt: skip
from svod.llm.server.responses import ResponseForm, response_events
from svod.llm.server.serving_thread import Busy, Worker

BODY = 4 << 20  # bytes of a request
BODY_SECONDS = 30.0  # that a client may take to send it
PAGE = Path(__file__).with_name("page")
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
Handler = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class Settings:
    """Who may ask, and how much."""

    keys: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()  # names by which the server may be called; all, where empty
    queue: int = 64


def application(model: LanguageModel, settings: Settings | None = None) -> Starlette:
    """The application; its thread runs from start-up to shut-down."""
    return _Server(model, settings or Settings()).application()


class _Server:
    def __init__(self, model: LanguageModel, settings: Settings) -> None:
        self.model, self.settings = model, settings
        self.metrics = Metrics()
        self.worker = Worker(model, settings.queue, self.metrics)
        self.started = int(time.time())

    def application(self) -> Starlette:
        routes: Sequence[tuple[str, str, Handler, bool]] = (
            ("/", "GET", self.page, False),
            ("/health", "GET", self.health, False),
            ("/metrics", "GET", self.metrics_text, True),
            ("/v1/models", "GET", self.models, True),
            ("/v1/models/{name:path}", "GET", self.models, True),
            ("/v1/chat/completions", "POST", self.chat, True),
            ("/v1/completions", "POST", self.completions, True),
            ("/v1/responses", "POST", self.responses, True),
            ("/v1/embeddings", "POST", self.embeddings, True),
        )
        return Starlette(
            routes=[
                Route(path, self._guarded(path, handler, is_private), methods=[method])
                for path, method, handler, is_private in routes
            ],
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _http_error, Exception: _unknown_error},
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self.worker.start()
        try:
            yield
        finally:
            self.worker.close()

    def _guarded(self, path: str, handler: Handler, is_private: bool) -> Handler:
        """A handler behind the checks that all share."""

        async def run(request: Request) -> Response:
            try:
                self._check(request, is_private)
                response = await handler(request)
            except BaseException as error:
                response = _error_response(error)
            self.metrics.request(path, response.status_code)
            return response

        return run

    def _check(self, request: Request, is_private: bool) -> None:
        hosts = self.settings.hosts
        if hosts and (request.url.hostname or "") not in hosts:
            raise HTTPException(403, f"the server is not called {request.url.hostname!r:.60}")
        if is_private and self.settings.keys:
            scheme, _, key = request.headers.get("authorization", "").partition(" ")
            given = key.strip().encode("utf-8", "replace") if scheme.lower() == "bearer" else b""
            known = [hmac.compare_digest(given, k.encode()) for k in self.settings.keys]
            if not any(known):
                raise HTTPException(401, "the request brings no key that is known")

    async def page(self, request: Request) -> Response:
        html = await run_in_threadpool(page_html)
        return HTMLResponse(html, headers={"content-security-policy": _POLICY})

    async def health(self, request: Request) -> Response:
        is_well = self.worker.is_alive and not self.worker.is_closing
        state = {"status": "ok" if is_well else "ending", **self.worker.state()}
        return JSONResponse(state, 200 if is_well else 503)

    async def metrics_text(self, request: Request) -> Response:
        text = self.metrics.text(self.worker.state())
        return PlainTextResponse(text, media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        about = {
            "id": self.model.name, "object": "model", "created": self.started,
            "owned_by": "svod", "context": self.model.context,
        }  # fmt: skip
        name = request.path_params.get("name")
        if name is None:
            return JSONResponse({"object": "list", "data": [about]})
        if name != self.model.name:
            raise HTTPException(404, f"there is no model {name!r:.80}, only {self.model.name!r}")
        return JSONResponse(about)

    async def chat(self, request: Request) -> Response:
        asked = await self._asked(request, chat_request)
        form = ChatForm(self.model, asked)
        return await self._answered(request, asked, form)

    async def completions(self, request: Request) -> Response:
        asked = await self._asked(request, completion_request)
        return await self._answered(request, asked, CompletionForm(self.model, asked))

    async def responses(self, request: Request) -> Response:
        asked = await self._asked(request, response_request)
        form = ResponseForm(self.model, asked)
        if asked.is_stream:
            return await _streamed(request, response_events(self.worker, asked, form))
        found = await _unless_gone(request, gathered(self.worker, asked))
        return JSONResponse(form.whole(found))

    async def _answered(
        self, request: Request, asked: Asked, form: ChatForm | CompletionForm
    ) -> Response:
        if asked.is_stream:
            return await _streamed(request, events(self.worker, asked, form))
        return JSONResponse(form.whole(await _unless_gone(request, gathered(self.worker, asked))))

    async def embeddings(self, request: Request) -> Response:
        body = await _json_body(request)

        def made() -> tuple[list[Any], int]:
            fields = Fields(body)
            prompts = texts_or_tokens(fields, "input", self.model)
            kind = fields.text("encoding_format", "float")
            if kind not in ("float", "base64"):
                raise FieldError("encoding_format", f"{kind!r:.40} is not float or base64")
            fields.finish()
            for prompt in prompts:
                self.model.engine.checked(prompt)
            vectors = [np.asarray(self.model.embedding(p), "<f4") for p in prompts]
            found = [
                v.tolist() if kind == "float" else base64.b64encode(v.tobytes()).decode()
                for v in vectors
            ]
            return found, sum(map(len, prompts))

        vectors, count = await run_in_threadpool(made)
        data = [
            {"object": "embedding", "index": n, "embedding": vector}
            for n, vector in enumerate(vectors)
        ]
        used = {"prompt_tokens": count, "total_tokens": count}
        return JSONResponse(
            {"object": "list", "data": data, "model": self.model.name, "usage": used}
        )

    async def _asked(self, request: Request, read: Callable[[Any, LanguageModel], Asked]) -> Asked:
        body = await _json_body(request)
        self.worker.check_room()
        asked = await run_in_threadpool(read, body, self.model)  # long prompts take a while
        self.worker.check_room(len(asked.prompts) * asked.choices)
        return asked


async def _json_body(request: Request) -> Any:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise HTTPException(415, f"the content type is {kind!r:.60}, not application/json")
    body = bytearray()

    async def read() -> None:
        async for part in request.stream():
            body.extend(part)
            if len(body) > BODY:
                raise HTTPException(413, f"the body has more than {BODY} bytes")

    try:
        await asyncio.wait_for(read(), BODY_SECONDS)
    except TimeoutError:
        raise HTTPException(408, f"the body did not come in {BODY_SECONDS:g} seconds") from None
    try:
        return json.loads(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise RequestError(f"the body is no JSON: {error!s:.120}") from None


async def _streamed(request: Request, found: AsyncIterator[str]) -> Response:
    """A stream, once its first event is there: what goes wrong before is an ordinary error."""
    first = await _unless_gone(request, anext(found))

    async def rest() -> AsyncIterator[str]:
        async with aclosing(found) as left:  # type: ignore[type-var]
            yield first
            try:
                async for each in left:
                    yield each
            except Exception as error:
                yield f"data: {json.dumps(_described(error)[1])}\n\n"

    return StreamingResponse(
        rest(), media_type="text/event-stream", headers={"cache-control": "no-cache"}
    )


async def _unless_gone(request: Request, work: Any) -> Any:
    """The result of work, which is cancelled when the client goes."""
    task = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait([task, gone], return_when="FIRST_COMPLETED")
        if not task.done():
            raise ClientDisconnect
        return await task
    except ExceptionGroup as group:
        raise group.exceptions[0] from None
    finally:
        for each in (task, gone):
            each.cancel()
        await asyncio.gather(task, gone, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _described(error: BaseException) -> tuple[int, dict[str, Any]]:
    """The status and the object of an error."""
    kind, status, code = "invalid_request_error", 400, None
    message = str(error)
    if isinstance(error, HTTPException):
        status, message = error.status_code, error.detail
        kind = "authentication_error" if status == 401 else kind
    elif isinstance(error, Busy):
        status, kind = 429, "rate_limit_error"
    elif isinstance(error, RequestError):
        code = "context_length_exceeded" if " in a context of " in message else None
    elif isinstance(error, ClientDisconnect):
        status, message = 499, "the client has gone"
    else:
        status, kind, message = 500, "server_error", f"{type(error).__name__}: {error!s:.300}"
    field = getattr(error, "field", None)
    return status, {"error": {"message": message, "type": kind, "param": field, "code": code}}


def _error_response(error: BaseException) -> Response:
    if not isinstance(error, Exception):
        raise error
    status, body = _described(error)
    return JSONResponse(body, status, headers={"retry-after": "1"} if status == 429 else None)


async def _http_error(request: Request, error: Exception) -> Response:
    return _error_response(error)


async def _unknown_error(request: Request, error: Exception) -> Response:
    return _error_response(error)


def page_html() -> str:
    """The page in one piece."""
    html = (PAGE / "page.html").read_text(encoding="utf-8")
    for name, tag in (("page.css", "style"), ("page.js", "script")):
        content = (PAGE / name).read_text(encoding="utf-8")
        html = html.replace(f"<!-- {name} -->", f"<{tag}>\n{content}</{tag}>")
    return html
