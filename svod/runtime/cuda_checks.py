"""Checks of indices on a GPU: words are kept in the order of the stream and looked at later.

A run on a GPU returns before it has happened, so nothing can stop it at a bad index. After each
run the words of its checks are copied aside, on the GPU. When bytes next come from that GPU to
the host, or after so many runs, all words kept since are read, and one that is not 0 is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from svod.device.buffer import Buffer
from svod.device.cuda.driver import Context
from svod.dtype import types as dt
from svod.runtime.failures import with_line
from svod.runtime.index_checks import range_error
from svod.runtime.ops import PreparedCustomFunction

RUNS: Final = 64  # whose words are kept before somebody waits for the GPU to read them
WORD: Final = 8  # bytes


class DeviceChecks:
    """The checks of one plan on one GPU, and the words of its latest runs."""

    __slots__ = ("_checks", "_context", "_kept", "_runs")

    def __init__(
        self,
        context: Context,
        checks: Sequence[PreparedCustomFunction],
        buffers: Sequence[Buffer],
    ) -> None:
        self._context = context
        self._checks = [(check, [buffers[p] for p in check.buffer_indices]) for check in checks]
        device = self._checks[0][1][1].device
        self._kept = Buffer.new(device, RUNS * len(checks), dt.uint64).allocate()
        self._runs = 0

    def keep(self) -> None:
        """Copy the words of a run that was started aside; they are in place when it has ended."""
        context = self._context
        if self._runs == RUNS:
            self.look()
        at = self._kept.address + self._runs * len(self._checks) * WORD
        for _, held in self._checks:
            context.driver.call("cuMemcpyDtoDAsync_v2", at, held[1].address, WORD, context.stream)
            at += WORD
        self._runs += 1
        context.unread[id(self)] = self.look

    def look(self) -> None:
        """Wait for the runs, and raise where an index of one of them was out of range."""
        count, self._runs = self._runs * len(self._checks), 0
        self._context.unread.pop(id(self), None)
        for place, word in enumerate(self._kept.view(0, count).copyout().tolist()):
            if word:
                check, held = self._checks[place % len(self._checks)]
                size = int(held[2].copyout()[0]) if len(held) > 2 else None
                raise with_line(range_error(check.attrs, word, size), check.origin)
