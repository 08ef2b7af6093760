"""The thread that runs the engine's steps, and answers as asynchronous pieces.

The event loop only waits: tokens are computed in the thread and handed over one by one. An answer
that nobody waits for any more is cancelled, and the next step gives its slot away.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from svod.base.errors import SvodError
from svod.llm.errors import RequestError
from svod.llm.grammar import Form
from svod.llm.model import LanguageModel, Piece
from svod.llm.sampling import Sampling
from svod.llm.server.metrics import Metrics


class Busy(SvodError):
    """No more requests are taken now."""


class Worker:
    """Runs the model for as long as the server lives."""

    def __init__(self, model: LanguageModel, queue: int, metrics: Metrics) -> None:
        self.model, self.queue, self.metrics = model, queue, metrics
        self.is_closing = False
        self._work = threading.Event()
        self._thread = threading.Thread(target=self._run, name="svod-llm", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Take nothing more, and end when the running requests have."""
        self.is_closing = True
        self._work.set()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def _run(self) -> None:
        engine = self.model.engine
        while True:
            try:
                is_busy = engine.step()
            except Exception as error:  # whatever a run raises ends the requests, not the server
                engine.fail(error)
                is_busy = False
            if not is_busy and not engine.waiting:
                if self.is_closing:
                    return
                self._work.wait(1.0)
                self._work.clear()

    def check_room(self, count: int = 1) -> None:
        """Raise where a request would have to be turned away."""
        if self.is_closing:
            raise Busy("the server is about to end")
        if len(self.model.engine.waiting) + count > self.queue + self.model.engine.decoder.slots:
            raise Busy(f"{len(self.model.engine.waiting)} requests wait already; try again later")

    async def pieces(
        self,
        tokens: Sequence[int],
        sampling: Sampling,
        max_tokens: int | None,
        stop: Sequence[str],
        form: Form | None,
    ) -> AsyncIterator[Piece]:
        """The pieces of one answer."""
        self.check_room()
        loop = asyncio.get_running_loop()
        found: asyncio.Queue[Piece | None] = asyncio.Queue()

        def hand_over(piece: Piece | None) -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(found.put_nowait, piece)

        request = self.model.submit(
            tokens, hand_over, sampling, max_tokens, stop, form, lambda: hand_over(None)
        )
        self._work.set()
        self.metrics.began(len(tokens))
        start = time.monotonic()
        count = 0
        try:
            while (piece := await found.get()) is not None:
                if not count:
                    self.metrics.first_token(time.monotonic() - start)
                count += 1
                yield piece
                if piece.finish is not None:
                    return
            if request.failure is not None:
                if isinstance(request.failure, RequestError):
                    raise request.failure
                raise RequestError(f"the model failed: {request.failure!r:.200}")
        finally:
            is_cut = not request.is_done
            request.cancel()
            self._work.set()
            self.metrics.ended(count, request.shared_length, time.monotonic() - start, is_cut)

    def state(self) -> dict[str, Any]:
        """What is going on, for metrics and health."""
        engine = self.model.engine
        return {
            "slots": engine.decoder.slots, "running": len(engine.active),
            "waiting": len(engine.waiting), "pages": engine.pool.count - 1,
            "pages_used": engine.pool.used,
        }  # fmt: skip
