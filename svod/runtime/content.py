"""Which memory of a plan carries something from before a run: weights, inputs, kept state.

In: prepared ops in an order they may run in, the buffer table, the places of outputs. Out: the
regions of memory the plan uses, and for each whether a run needs what is in it. A region needs
nothing only where that is proven: every byte that is read was written whole by an earlier op.
Overlapping buffers are one region, whoever owns their memory: on the host only addresses tell.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import prod

from svod.device.buffer import Buffer
from svod.ir import ops as O
from svod.ir.guards import CHECK
from svod.ir.node import UOp
from svod.runtime.ops import (
    PreparedBufferView,
    PreparedCopy,
    PreparedKernel,
    PreparedOp,
)

GRAIN = 16  # bytes; regions start at a multiple, so that every dtype keeps its alignment


@dataclass(slots=True)
class Region:
    """Bytes that overlapping buffers use; `start` may lie some bytes before them."""

    start: int
    first: int  # the first byte that is used
    end: int
    places: list[int]  # in the buffer table
    is_needed: bool = False  # a run reads what was there before it

    @property
    def nbytes(self) -> int:
        return self.end - self.start


def find_regions(buffers: Sequence[Buffer]) -> list[Region]:
    """The regions of a buffer table, by address."""
    spans = sorted((b.address, b.address + b.nbytes, place) for place, b in enumerate(buffers))
    regions: list[Region] = []
    for start, end, place in spans:
        last = regions[-1] if regions else None
        if last is not None and start < last.end and end > start:
            last.end = max(last.end, end)
            last.places.append(place)
        else:
            regions.append(Region(start // GRAIN * GRAIN, start, end, [place]))
    return regions


def content_of(region: Region, buffers: Sequence[Buffer]) -> Iterator[bytes | memoryview]:
    """What lies in a region now, piece by piece; 0 where none of its buffers is."""
    if region.first > region.start:
        yield bytes(region.first - region.start)
    at = region.first
    for place in region.places:  # by address
        buffer = buffers[place]
        end = buffer.address + buffer.nbytes
        if end > at:
            base = buffer.storage.address
            yield buffer.storage.host_bytes()[at - base : end - base].data
            at = end


def mark_needed(
    regions: Sequence[Region],
    ops: Iterable[PreparedOp],
    buffers: Sequence[Buffer],
    inputs: Iterable[int],
    outputs: Iterable[int],
) -> None:
    """Say which regions a run needs the content of."""
    home = {place: region for region in regions for place in region.places}
    written = _Written()

    def read(place: int) -> None:
        start = buffers[place].address
        if not written.covers(start, start + buffers[place].nbytes):
            home[place].is_needed = True

    def write(place: int) -> None:
        start = buffers[place].address
        written.add(start, start + buffers[place].nbytes)

    for place in inputs:
        home[place].is_needed = True
    for op in ops:
        if isinstance(op, PreparedBufferView):
            continue
        if isinstance(op, PreparedCopy):
            target, source = op.buffer_indices[:2]
            read(source)
            write(target)
            continue
        if not isinstance(op, PreparedKernel):
            places = op.buffer_indices[1:] if op.kind == CHECK else op.buffer_indices
            for place in places:  # nobody knows what it does with them
                read(place)
            continue
        whole = _overwritten(op, buffers)
        for position, place in enumerate(op.buffer_indices):
            if position not in whole:
                read(place)
        for position in whole:
            write(op.buffer_indices[position])
    for place in outputs:
        read(place)  # somebody looks at all of it after the run


def _overwritten(op: PreparedKernel, buffers: Sequence[Buffer]) -> set[int]:
    """Positions of arguments that a kernel writes whole and does not read."""
    kernel = op.kernel
    slots = kernel.globals
    if len(slots) != len(op.buffer_indices):
        return set()
    stored = _whole_stores(op.ast)
    found = set()
    for position in op.output_indices:
        slot = slots[position]
        size = buffers[op.buffer_indices[position]].size
        if slot not in kernel.ins and stored.get(slot) == size:
            found.add(position)
    return found


def _whole_stores(body: UOp) -> dict[int, int]:
    """Elements stored into each argument slot by one store that covers its shape."""
    found: dict[int, int] = {}
    for node in body.src:
        if node.op == O.STORE and len(node.src) == 2:
            target = node.src[0]
            if target.op == O.PARAM and not target.src:
                found[target.arg.slot] = prod(target.arg.shape)
    return found


class _Written:
    """Sorted ranges of addresses that do not touch."""

    __slots__ = ("_ends", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        if start >= end:
            return
        first = bisect_right(self._ends, start - 1)
        last = first
        while last < len(self._starts) and self._starts[last] <= end:
            start, end = min(start, self._starts[last]), max(end, self._ends[last])
            last += 1
        self._starts[first:last] = [start]
        self._ends[first:last] = [end]

    def covers(self, start: int, end: int) -> bool:
        if start >= end:
            return True
        place = bisect_right(self._starts, start) - 1
        return place >= 0 and self._ends[place] >= end
