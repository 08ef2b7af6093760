"""Typed argument records of nodes. Equal records are equal keys; all are hashable."""

from __future__ import annotations

from enum import IntEnum
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from svod.ir.placement import Placed


class AxisKind(IntEnum):
    """What a RANGE becomes. The order is the order of the loops, outermost first."""

    OUTER = 0  # schedule loop
    THREAD = 1  # core axis: split over workers
    GLOBAL = 2  # GPU grid
    LOCAL = 3  # GPU workgroup
    LOOP = 4  # plain loop over outputs
    REDUCE = 5  # plain loop over a reduction
    UNROLL = 6  # unrolled copies of a reduction axis
    UPCAST = 7  # unrolled copies of an output axis: the register tile
    LANE = 8  # one vector


class BufferRef:
    """Identity of a buffer and the owner of its memory: when the node goes, the memory goes."""

    __slots__ = ("__weakref__", "alike", "buffer", "id", "local", "placed", "size")
    _ids = count(1)

    def __init__(self, size: int, buffer: object = None) -> None:
        self.id = next(BufferRef._ids)
        self.size = size  # elements
        self.buffer = buffer  # a device Buffer once there is one
        self.placed: Placed | None = None  # how memory of a mesh holds the value
        self.local: BufferRef | None = None  # the same memory as the host counts its elements
        self.alike: object = None  # those that show the same memory until one of them is written

    def __repr__(self) -> str:
        return f"BufferRef(id={self.id}, size={self.size})"


class BufferArg(NamedTuple):
    size: int  # elements


class ViewArg(NamedTuple):
    size: int  # elements
    offset: int  # elements of the view's dtype


class ParamArg(NamedTuple):
    slot: int
    shape: tuple[int, ...]


class RangeArg(NamedTuple):
    id: int
    kind: AxisKind


class ReduceArg(NamedTuple):
    op: int
    axes: tuple[int, ...]


class VarArg(NamedTuple):
    name: str
    lo: int
    hi: int


class LocalArg(NamedTuple):
    size: int
    id: int


class ScanArg(NamedTuple):
    length: int  # how many steps
    carries: int  # how many inputs are what the first step starts from
    sequences: int  # how many inputs after them give one slice to each step
    is_reverse: bool  # from the last time to the first
    is_last: bool  # the carry after the last step, not the value of every step


class SortArg(NamedTuple):
    kept: int  # how many words, the smallest
    low: int  # words alike in the bits from low to high are in order already
    high: int  # bits from here on are zero
    shown: int = 64  # how many of the lowest bits are given, as int64; 64 gives the words


DIGIT_BITS = 8


class RadixArg(NamedTuple):
    step: str  # "count": how often each digit is in each block, [.., digits, blocks];
    #   "start": sums of those before, and of all, [.., digits, blocks + 1];
    #   "deal": words in the order of their digits, those alike in the order they had, turned by
    #   a digit: their lowest bits become the highest
    low: int  # the first bit of a digit, of which there are 256
    block: int  # words of one block; the last one may have fewer


class CustomArg(NamedTuple):
    kind: str
    attrs: tuple[object, ...]
    shape: tuple[int, ...]


class IndexCheck(NamedTuple):
    """The argument of a BITCAST to its own dtype: whole numbers that must lie inside an axis."""

    what: str  # the public function that was given them
    size: int  # of the axis; -1: a run-time size, which is the second source
    takes_negative: bool  # those from -size on count from the end
    ignored: int | None = None  # a number that stands for no index


class TurnArg(NamedTuple):
    kind: str  # "turn": a BARRIER that opens for the threads of a warp whose place no other has
    reads: bool  # those with the same place go one after the other; else only the last one goes
    bits: int  # in which places differ
    size: int  # of the part of memory that a warp keeps in shared memory meanwhile, or 0
    warps: int  # of a block
