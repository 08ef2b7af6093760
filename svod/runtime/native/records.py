"""What a run consists of: a flat array of launch records, in memory that never moves.

In: kernels, copies and stops with the addresses and values they use, group by group. Out: one
block of words: the records, then each record's buffer addresses and variable values. Once the
first run has frozen it, only addresses and values change, in place. Records of one group must be
independent of each other; groups run one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from svod.base.errors import ExecutionError
from svod.base.locks import held_lock
from svod.runtime.native.layout import Flag, Record, Stamp
from svod.runtime.native.memory import aligned_words

_RECORD_WORDS = Record.SIZE // 8
_SMALL = int(Flag.SMALL)
_freezing = held_lock()  # two threads may run new records at once
_MOST_CORES = 1 << 24  # a group may hold 2^32 items


class Kind(IntEnum):
    """What a record does."""

    KERNEL = 0
    COPY = 1  # buffer 1 to buffer 0, value 0 gives the bytes
    NOTHING = 2  # a view, or a record that is switched off
    PYTHON = 3  # the run stops here, so that Python can do something
    TEST = 4  # the run stops here where the word in buffer 0 is not 0


class RecordArray:
    """The launch records of one plan, built with `append` and then run any number of times."""

    __slots__ = (
        "_columns",
        "_first_buffer",
        "_first_value",
        "_kinds",
        "_last_group",
        "_tail",
        "_words",
        "address",
        "count",
        "words",
    )

    def __init__(self) -> None:
        self._columns: list[int] = []  # function, cores, group and flags of each record in turn
        self._kinds: list[int] = []
        self._last_group = -1
        self._tail: list[int] = []  # addresses and values of all records
        # The words where a record's addresses and values start; until frozen counted in the tail.
        self._first_buffer: list[int] = []
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
        last = self._last_group
        group = last + 1 if group is None else group
        if group < last:
            raise ExecutionError(f"record {self.count} of group {group} comes after group {last}")
        if not 1 <= cores <= _MOST_CORES:
            raise ExecutionError(f"record {self.count} has {cores} cores, not 1 to {_MOST_CORES}")
        if kind == Kind.COPY and (len(buffers) != 2 or len(values) != 1):
            raise ExecutionError(f"copy record {self.count} needs two buffers and a size in bytes")
        if kind == Kind.KERNEL and not function:
            raise ExecutionError(f"kernel record {self.count} has no function address")
        self._last_group = group
        self._columns += (function, cores, group, _SMALL if small else 0)
        self._kinds.append(kind)
        tail = self._tail
        self._first_buffer.append(len(tail))
        tail += buffers
        self._first_value.append(len(tail))
        tail += values
        self.count += 1
        return self.count - 1

    def freeze(self) -> None:
        """Lay everything out in one block; later calls do nothing."""
        with _freezing:
            if not self.address:
                self._lay_out()

    def _lay_out(self) -> None:
        count = self.count
        start = count * _RECORD_WORDS
        words, address = aligned_words(max(start + len(self._tail), _RECORD_WORDS))
        self._first_buffer = [start + b for b in self._first_buffer]
        self._first_value = [start + v for v in self._first_value]
        if count:
            given = np.array(self._columns, dtype=np.int64).reshape(count, 4)
            rows = words[:start].reshape(count, _RECORD_WORDS)
            rows[:, Record.FUNCTION // 8] = given[:, 0]
            rows[:, Record.BUFFERS // 8] = np.array(self._first_buffer) * 8 + address
            rows[:, Record.VALUES // 8] = np.array(self._first_value) * 8 + address
            rows[:, Record.CORES // 8] = given[:, 1]
            rows[:, Record.KIND // 8] = self._kinds
            rows[:, Record.GROUP // 8] = given[:, 2]
            rows[:, Record.FLAGS // 8] = given[:, 3]
            words[start : start + len(self._tail)] = self._tail
        self._words, self.words = words, words.data
        self.address = address  # last: a thread that sees it may run

    def first_words(self) -> list[int]:
        """Per record the index in `words` of its first address; its values follow the addresses."""
        if not self.address:
            self.freeze()
        return self._first_buffer

    def buffer_word(self, record: int, position: int) -> int:
        """The index in `words` of a buffer's address, for callers that patch many at once."""
        if not self.address:
            self.freeze()
        if not 0 <= position < self._first_value[record] - self._first_buffer[record]:
            raise ExecutionError(f"record {record} has no buffer {position}")
        return self._first_buffer[record] + position

    def value_word(self, record: int, position: int) -> int:
        """The index in `words` of a variable's value."""
        if not self.address:
            self.freeze()
        start, after = self._first_value[record], record + 1
        end = self._first_buffer[after] if after < self.count else self._end
        if not 0 <= position < end - start:
            raise ExecutionError(f"record {record} has no value {position}")
        return start + position

    def set_buffer(self, record: int, position: int, address: int) -> None:
        """Bind a buffer of a record to other memory; no run may be under way."""
        self.words[self.buffer_word(record, position)] = address

    def set_val(self, record: int, position: int, value: int) -> None:
        """Give a variable of a record another value; no run may be under way."""
        self.words[self.value_word(record, position)] = value

    def kind(self, record: int) -> Kind:
        return Kind(self._kinds[record])

    @property
    def _end(self) -> int:
        return self.count * _RECORD_WORDS + len(self._tail)

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
