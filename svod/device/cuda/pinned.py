"""Pinned host memory between arrays of the host and a GPU: a ring of pieces, copied in turn.

The driver copies ordinary memory through a small buffer of its own while the host waits. Here
the host fills one pinned piece while the GPU takes another, and a copy to the GPU returns
as soon as the array has been read. All copies stay in the context's one stream.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Final

import numpy as np

from svod.device.allocator import Bytes
from svod.device.cuda.driver import WITHOUT_TIMING, Context, DriverFault

PIECES: Final = 4
PIECE_BYTES: Final = 4 << 20


class _Piece:
    """Pinned bytes, and the event of the last copy that used them."""

    __slots__ = ("address", "bytes", "event")

    def __init__(self, owner: Context) -> None:
        driver = owner.use()
        self.address = driver.handle("cuMemHostAlloc", PIECE_BYTES, 0)
        array = (ctypes.c_uint8 * PIECE_BYTES).from_address(self.address)
        self.bytes: Bytes = np.ctypeslib.as_array(array)
        self.event = driver.handle("cuEventCreate", WITHOUT_TIMING)


class PinnedRing:
    """The pieces of one GPU, made at first use; they stay for the life of the process."""

    def __init__(self, owner: Context) -> None:
        self.context = owner
        self._lock = threading.Lock()
        self._pieces: list[_Piece] = []
        self._next = 0
        self._is_refused = False  # the system gives no pinned memory

    def write(self, address: int, data: Bytes) -> None:
        """Start to copy an array to the GPU; it may be changed when this returns."""
        with self._lock:
            driver, stream = self.context.use(), self.context.stream
            for start in range(0, data.nbytes, PIECE_BYTES):
                part = data[start : start + PIECE_BYTES]
                piece = self._piece()
                if piece is None:
                    source = part.ctypes.data
                    driver.call(
                        "cuMemcpyHtoDAsync_v2", address + start, source, part.nbytes, stream
                    )
                    driver.call("cuStreamSynchronize", stream)
                    continue
                piece.bytes[: part.nbytes] = part
                place = piece.address
                driver.call("cuMemcpyHtoDAsync_v2", address + start, place, part.nbytes, stream)
                driver.call("cuEventRecord", piece.event, stream)

    def read(self, address: int, into: Bytes) -> None:
        """Copy from the GPU into an array; the bytes are there when this returns."""
        with self._lock:
            waiting: list[tuple[_Piece, Bytes]] = []
            driver, stream = self.context.use(), self.context.stream
            for start in range(0, into.nbytes, PIECE_BYTES):
                part = into[start : start + PIECE_BYTES]
                if len(waiting) == PIECES - 1:
                    self._take(*waiting.pop(0))
                piece = self._piece()  # not one of those that wait
                if piece is None:
                    target = part.ctypes.data
                    driver.call(
                        "cuMemcpyDtoHAsync_v2", target, address + start, part.nbytes, stream
                    )
                    driver.call("cuStreamSynchronize", stream)
                    continue
                place = piece.address
                driver.call("cuMemcpyDtoHAsync_v2", place, address + start, part.nbytes, stream)
                driver.call("cuEventRecord", piece.event, stream)
                waiting.append((piece, part))
            for piece, part in waiting:
                self._take(piece, part)

    def _take(self, piece: _Piece, part: Bytes) -> None:
        self.context.driver.call("cuEventSynchronize", piece.event)
        part[:] = piece.bytes[: part.nbytes]

    def _piece(self) -> _Piece | None:
        """The next piece, once the copy that used it last is done."""
        if not self._pieces and not self._is_refused:
            try:
                self._pieces = [_Piece(self.context) for _ in range(PIECES)]
            except DriverFault:  # a limit on locked memory: copies go through the driver's buffer
                self._is_refused = True
        if self._is_refused:
            return None
        piece = self._pieces[self._next % PIECES]
        self._next += 1
        self.context.driver.call("cuEventSynchronize", piece.event)
        return piece
