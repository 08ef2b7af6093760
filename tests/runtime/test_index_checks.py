"""Words of checks on a GPU are kept run by run, and looked at when bytes come back; and how the
native run tests words."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from svod.base.errors import IndexRangeError
from svod.device.buffer import Buffer
from svod.device.cuda.allocator import CudaAllocator
from svod.dtype import types as dt
from svod.ir.guards import CHECK, CheckAttrs, bad_index
from svod.runtime.cuda_checks import RUNS, DeviceChecks
from svod.runtime.native import Kind, RecordArray, launcher
from svod.runtime.ops import PreparedCustomFunction


class Driver:
    """Copies on the host, at once."""

    def call(self, name: str, target: int, source: int, nbytes: int, stream: int) -> None:
        assert name == "cuMemcpyDtoDAsync_v2"
        ctypes.memmove(target, source, nbytes)


class Context:
    def __init__(self) -> None:
        self.driver, self.stream = Driver(), 0
        self.unread: dict[int, Callable[[], None]] = {}


def checks(context: Any) -> tuple[DeviceChecks, list[Buffer]]:
    """Two checks, of axes of 4 and 6, and the buffers of their words."""
    words = [Buffer.from_numpy(np.zeros(1, np.uint64)) for _ in range(2)]
    table = [Buffer.new("CPU", 1, dt.uint64), *words]
    ops = [
        PreparedCustomFunction(
            number, CHECK, tuple(CheckAttrs(name, size, False, 64, True)), [0, number], {},
            origin=("model.py", number),
        )
        for number, (name, size) in enumerate([("gather", 4), ("embedding", 6)], 1)
    ]  # fmt: skip
    return DeviceChecks(context, ops, table), words


def test_a_bad_index_is_remembered_over_later_runs() -> None:
    context = Context()
    kept, words = checks(context)
    for word in (0, 9, 0):
        words[1].numpy()[0] = word
        kept.keep()
    assert list(context.unread.values()) == [kept.look]
    with pytest.raises(IndexRangeError, match=r"embedding: 9 .* size 6.* \(model.py, line 2\)"):
        kept.look()
    assert not context.unread
    kept.keep()
    kept.look()  # the next one works


def test_words_are_looked_at_before_there_are_too_many() -> None:
    kept, words = checks(Context())
    words[0].numpy()[0] = np.uint64(2**64 - 1)
    kept.keep()
    words[0].numpy()[0] = 0
    for _ in range(RUNS - 1):
        kept.keep()
    with pytest.raises(IndexRangeError, match="gather: -1 is out of range"):
        kept.keep()


def test_reading_memory_of_a_gpu_looks_at_the_words() -> None:
    seen: list[str] = []

    class Ring:
        def read(self, address: int, into: object) -> None:
            seen.append("read")

    allocator = CudaAllocator.__new__(CudaAllocator)
    context: Any = Context()
    context.look = lambda: seen.append("look")
    allocator.context, allocator._ring = context, Ring()  # type: ignore[assignment]
    allocator.read(0, np.zeros(1, np.uint8))
    context.unread[1] = context.look
    allocator.read(0, np.zeros(1, np.uint8))
    assert seen == ["read", "read", "look"]


@pytest.mark.parametrize("bits, dtype", [(32, np.int8), (32, np.int32), (64, np.int64)])
def test_words_give_the_index_back(bits: int, dtype: type) -> None:
    limits = np.iinfo(dtype)
    for takes_negative in (False, True):
        for index in (limits.min, -8, -1, 100, limits.max):
            attrs = CheckAttrs("f", 7, takes_negative, bits, True)
            word = (index + 7 * takes_negative) % (1 << bits)
            assert bad_index(attrs, word) == index


def test_a_native_run_stops_at_a_word_that_is_not_zero() -> None:
    words = np.zeros(3, np.uint64)
    records = RecordArray()
    for place in range(3):
        records.append(0, (words.ctypes.data + 8 * place,), (), 1, Kind.TEST)
    run = launcher().run
    assert run(records) == 3
    words[1] = 1 << 63
    assert run(records) == 1
    assert run(records, 2) == 3
    stamps = launcher().stamps_for(records)
    assert run(records, 0, stamps) == 1
