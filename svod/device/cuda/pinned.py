"""Pinned host memory between arrays of the host and a GPU: a ring of pieces, copied in turn.

The driver copies ordinary memory through a small buffer of its own while the host waits. Here
threads of the host fill pinned pieces while the GPU takes others, and a copy to the GPU
returns as soon as the array has been read. All copies stay in the context's one stream.
"""

from __future__ import annotations

import ctypes
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import numpy as np

from svod.base.locks import reset_lock
from svod.base.threads import thread_budget
from svod.device.allocator import Bytes
from svod.device.cuda.driver import WITHOUT_TIMING, Context, DriverFault

PIECES: Final = 8
PIECE_BYTES: Final = 4 << 20
THREADS: Final = 4  # one thread copies at a third of what the bus takes


class _Piece:
    """Pinned bytes, the event of the last copy by the GPU, and the last copy by a thread."""

    __slots__ = ("address", "bytes", "event", "job")

    def __init__(self, owner: Context) -> None:
        driver = owner.use()
        self.address = driver.handle("cuMemHostAlloc", PIECE_BYTES, 0)
        array = (ctypes.c_uint8 * PIECE_BYTES).from_address(self.address)
        self.bytes: Bytes = np.ctypeslib.as_array(array)
        self.event = driver.handle("cuEventCreate", WITHOUT_TIMING)
        self.job: Future[None] | None = None


class PinnedRing:
    """The pieces of one GPU, made at first use; they stay for the life of the process."""

    def __init__(self, owner: Context) -> None:
        self.context = owner
        self._lock = reset_lock()
        self._pieces: list[_Piece] = []
        self._next = 0
        self._is_refused = False  # the system gives no pinned memory
        self._pool: ThreadPoolExecutor | None = None

    def write(self, address: int, data: Bytes) -> None:
        """Start to copy an array to the GPU; it may be changed when this returns."""
        with self._lock:
            filled: deque[tuple[_Piece, int, int]] = deque()
            for start in range(0, data.nbytes, PIECE_BYTES):
                part = data[start : start + PIECE_BYTES]
                piece = self._piece()
                if piece is None:
                    self._transfer("cuMemcpyHtoDAsync_v2", address + start, part.ctypes.data, part)
                    continue
                self._start(piece, piece.bytes[: part.nbytes], part, data.nbytes)
                filled.append((piece, address + start, part.nbytes))
                if len(filled) > PIECES // 2:
                    self._send(*filled.popleft())
            for each in filled:
                self._send(*each)

    def read(self, address: int, into: Bytes) -> None:
        """Copy from the GPU into an array; the bytes are there when this returns."""
        with self._lock:
            waiting: deque[tuple[_Piece, Bytes]] = deque()
            driver, stream = self.context.use(), self.context.stream
            for start in range(0, into.nbytes, PIECE_BYTES):
                part = into[start : start + PIECE_BYTES]
                piece = self._piece()
                if piece is None:
                    self._transfer("cuMemcpyDtoHAsync_v2", part.ctypes.data, address + start, part)
                    continue
                source = address + start
                driver.call("cuMemcpyDtoHAsync_v2", piece.address, source, part.nbytes, stream)
                driver.call("cuEventRecord", piece.event, stream)
                waiting.append((piece, part))
                if len(waiting) > PIECES // 2:
                    self._take(*waiting.popleft(), into.nbytes)
            for piece, part in waiting:
                self._take(piece, part, into.nbytes)
            for piece in self._pieces:
                self._finish(piece)

    def _transfer(self, call: str, target: int, source: int, part: Bytes) -> None:
        """One copy without a pinned piece, waited for."""
        driver = self.context.use()
        driver.call(call, target, source, part.nbytes, self.context.stream)
        driver.call("cuStreamSynchronize", self.context.stream)

    def _send(self, piece: _Piece, address: int, nbytes: int) -> None:
        self._finish(piece)
        driver, stream = self.context.driver, self.context.stream
        driver.call("cuMemcpyHtoDAsync_v2", address, piece.address, nbytes, stream)
        driver.call("cuEventRecord", piece.event, stream)

    def _take(self, piece: _Piece, part: Bytes, total: int) -> None:
        self.context.driver.call("cuEventSynchronize", piece.event)
        self._start(piece, part, piece.bytes[: part.nbytes], total)

    def _start(self, piece: _Piece, target: Bytes, source: Bytes, total: int) -> None:
        """Copy on the host: by a thread where there is more than one piece of it."""
        if total <= PIECE_BYTES:
            np.copyto(target, source)
            return
        if self._pool is None:
            workers = max(1, min(THREADS, thread_budget().threads))
            self._pool = ThreadPoolExecutor(workers, thread_name_prefix="svod copy")
        piece.job = self._pool.submit(np.copyto, target, source)

    def _finish(self, piece: _Piece) -> None:
        """Wait for the thread that copies this piece."""
        job, piece.job = piece.job, None
        if job is not None:
            job.result()

    def _piece(self) -> _Piece | None:
        """The next piece, once what used it last is done."""
        if not self._pieces and not self._is_refused:
            try:
                self._pieces = [_Piece(self.context) for _ in range(PIECES)]
            except DriverFault:  # a limit on locked memory: copies go through the driver's buffer
                self._is_refused = True
        if self._is_refused:
            return None
        piece = self._pieces[self._next % PIECES]
        self._next += 1
        self._finish(piece)
        self.context.use().call("cuEventSynchronize", piece.event)
        return piece
