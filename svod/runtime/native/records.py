"""What a run consists of: a flat array of launch records, in memory that never moves.

In: kernels, copies and stops with the addresses and values they use, group by group. Out: one
block of words: the records, then each record's buffer addresses and variable values. Once the
first run has frozen it, only addresses and values change, in place. Records of one group must be
independent of each other; groups run one after the other.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from svod.base.errors import ExecutionError
from svod.runtime.native.layout import Flag, Record, Stamp
from svod.runtime.native.memory import aligned_words

_RECORD_WORDS = Record.SIZE // 8
_MOST_CORES = 1 << 24  # a group may hold 2^32 items


class Kind(IntEnum):
    """What a record does."""

    KERNEL = 0
    COPY = 1  # buffer 1 to buffer 0, value 0 gives the bytes
    NOTHING = 2  # a view, or a record that is switched off
    PYTHON = 3  # the run stops here, so that Python can do something


class _Entry(NamedTuple):
    function: int
    buffers: tuple[int, ...]
    values: tuple[int, ...]
    cores: int
    kind: int
    group: int
    flags: int


class RecordArray:
    """The launch records of one plan, built with `append` and then run any number of times."""

    __slots__ = (
        "_entries",
        "_first_buffer",
        "_first_value",
        "_freezing",
        "_words",
        "address",
        "count",
        "words",
    )

    def __init__(self) -> None:
        self._freezing = threading.Lock()  # two threads may run new records at once
        self._entries: list[_Entry] = []
        self._first_buffer: list[int] = []  # the word where the record's addresses start
        self._first_value: list[int] = []
        self.count = 0
        self.address = 0  # of the first record; 0 until frozen
        self._words: NDArray[np.int64] | None = None
        self.words: memoryview = memoryview(b"")  # the whole block as 64-bit words, once frozen

    def append(
        self,
        function: int,
        buffers: Sequence[int],
        values: Sequence[int] = (),
        cores: int = 1,
        kind: int = Kind.KERNEL,
        group: int | None = None,
        *,
        small: bool = False,
    ) -> int:
        """Add a record, by default in a group of its own; returns its number.

        `small` marks work so short that handing it to another thread would cost more.
        """
        if self.address:
            raise ExecutionError("records cannot be added after the first run: build a new array")
        last = self._entries[-1].group if self._entries else -1
        group = last + 1 if group is None else group
        if group < last:
            raise ExecutionError(f"record {self.count} of group {group} comes after group {last}")
        if not 1 <= cores <= _MOST_CORES:
            raise ExecutionError(f"record {self.count} has {cores} cores, not 1 to {_MOST_CORES}")
        if kind == Kind.COPY and (len(buffers) != 2 or len(values) != 1):
            raise ExecutionError(f"copy record {self.count} needs two buffers and a size in bytes")
        if kind == Kind.KERNEL and not function:
            raise ExecutionError(f"kernel record {self.count} has no function address")
        flags = Flag.SMALL if small else 0
        self._entries.append(
            _Entry(function, tuple(buffers), tuple(values), cores, int(kind), group, flags)
        )
        self.count += 1
        return self.count - 1

    def freeze(self) -> None:
        """Lay everything out in one block; later calls do nothing."""
        with self._freezing:
            if not self.address:
                self._lay_out()

    def _lay_out(self) -> None:
        entries, cursor = self._entries, self.count * _RECORD_WORDS
        for entry in entries:
            self._first_buffer.append(cursor)
            self._first_value.append(cursor + len(entry.buffers))
            cursor += len(entry.buffers) + len(entry.values)
        words, address = aligned_words(max(cursor, _RECORD_WORDS))
        starts = zip(entries, self._first_buffer, self._first_value, strict=True)
        rows = [
            (e.function, address + b * 8, address + v * 8, e.cores, e.kind, e.group, e.flags, 0)
            for e, b, v in starts
        ]
        if rows:
            words[: self.count * _RECORD_WORDS] = np.array(rows, dtype=np.int64).ravel()
            tail = [word for entry in entries for word in (*entry.buffers, *entry.values)]
            words[self.count * _RECORD_WORDS : cursor] = tail
        self._words, self.words = words, words.data
        self.address = address  # last: a thread that sees it may run

    def buffer_word(self, record: int, position: int) -> int:
        """The index in `words` of a buffer's address, for callers that patch many at once."""
        if not self.address:
            self.freeze()
        if not 0 <= position < len(self._entries[record].buffers):
            raise ExecutionError(f"record {record} has no buffer {position}")
        return self._first_buffer[record] + position

    def value_word(self, record: int, position: int) -> int:
        """The index in `words` of a variable's value."""
        if not self.address:
            self.freeze()
        if not 0 <= position < len(self._entries[record].values):
            raise ExecutionError(f"record {record} has no value {position}")
        return self._first_value[record] + position

    def set_buffer(self, record: int, position: int, address: int) -> None:
        """Bind a buffer of a record to other memory; no run may be under way."""
        self.words[self.buffer_word(record, position)] = address

    def set_val(self, record: int, position: int, value: int) -> None:
        """Give a variable of a record another value; no run may be under way."""
        self.words[self.value_word(record, position)] = value

    def kind(self, record: int) -> Kind:
        return Kind(self._entries[record].kind)

    def __len__(self) -> int:
        return self.count


class Slice(NamedTuple):
    """The time one lane spent in one record, in nanoseconds of `time.perf_counter_ns`."""

    record: int
    lane: int
    start: int
    end: int


class Stamps:
    """Times of one run, per record and lane, in ticks; a slot stays 0 where a lane had no part.

    The items of a record that one lane runs follow each other, so slices of a lane never overlap.
    """

    __slots__ = ("_words", "address", "lanes", "ticks")

    def __init__(self, count: int, lanes: int) -> None:
        header = Stamp.SLOTS // 8
        self._words, self.address = aligned_words(header + count * lanes * Stamp.SLOT_SIZE // 8)
        self._words[Stamp.LANES // 8] = lanes
        self.lanes = lanes
        self.ticks: NDArray[np.int64] = self._words[header:].reshape(count, lanes, 2)

    def clear(self) -> None:
        """Forget the last run; needed before the next one."""
        self.ticks.fill(0)
