"""Sorts as kernels that a device has.

Rows up to a size are one kernel, which sorts them digit by digit. Longer ones take three kernels
for each digit, O(n) work: blocks count the digits of their words, the counts are added up, and
blocks put their words into place. Where few of many words are kept, they are found piece by piece
first. Rows whose number is known at run time alone go through a bitonic network, whose stages each
read and write the axis once: O(n log² n).
"""

from __future__ import annotations

from math import prod
from typing import Final, NamedTuple

from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import DIGIT_BITS, ParamArg, RadixArg, SortArg
from svod.ir.capabilities import Capabilities, Capable, capabilities_of
from svod.ir.node import UOp, const, elements, is_symbolic, make
from svod.schedule.costs_cpu import CPU
from svod.schedule.costs_gpu import GPU
from svod.schedule.cut import devices

JOINED = GPU.joined_sort_words  # words of a block that short rows share
FEWER = CPU.sort_kept_part  # few are kept where it is at most this part
FUSED = 2  # network stages between two stores; each doubles the reads of an element


class SortSizes(NamedTuple):
    """What kernels of a device sort, in words."""

    share: int  # the longest row that one kernel sorts
    dealt: int  # of a block where several work on a row
    piece: int  # of a piece where few are kept
    short: int  # rows up to here share a block


BY_CORES: Final = SortSizes(CPU.sort_words, CPU.sort_dealt_words, CPU.sort_words, 0)
BY_BLOCKS: Final = SortSizes(
    GPU.sort_words, GPU.sort_dealt_words, GPU.sort_dealt_words, GPU.short_sort_words
)


def is_sort(body: UOp) -> bool:
    """Whether a kernel is a sort or a step of one: its text is not made of loops."""
    store = body.src[0]
    return store.op == O.STORE and store.src[1].op in (O.SORT, O.RADIX)


def lowered_sorts(sink: UOp, device: str, capable: Capable = capabilities_of) -> UOp:
    """The graph with every SORT as kernels that its device has."""
    order = sink.toposort()
    if not any(n.op == O.SORT for n in order):
        return sink
    where = devices(order)
    done: dict[UOp, UOp] = {}
    for node in order:
        src = tuple([done[s] for s in node.src])
        if node.op == O.SINK:  # its sources are stored
            pairs = zip(node.src, src, strict=True)
            src = tuple([B.contiguous(new) if old.op == O.SORT else new for old, new in pairs])
        new = node.with_sources(src)
        if node.op == O.SORT:
            able = capable(where.get(node, device))
            if not able.evaluates_sorts:
                new = _lowered(new.src[0], new.arg, _sizes(able))
        done[node] = new
    return done[sink]


def _sizes(able: Capabilities) -> SortSizes:
    """What the device sorts; the longest row may be too long for the memory of its blocks."""
    sizes = BY_BLOCKS if able.runs_blocks else BY_CORES
    if able.takes is None or able.takes(body_of(sizes.share)):
        return sizes
    return sizes._replace(share=sizes.dealt)


def body_of(size: int) -> UOp:
    """A kernel that sorts a row of so many words."""
    source, target = (make(O.PARAM, dt.uint64, (), ParamArg(slot, (size,))) for slot in (1, 0))
    return make(O.SINK, dt.void, (make(O.STORE, dt.void, (target, B.sort(source))),))


def _lowered(x: UOp, arg: SortArg, sizes: SortSizes) -> UOp:
    size = x.shape[-1]
    if is_symbolic(x.shape):
        return _shown(_network(x, arg.high), arg)
    if arg.kept * FEWER <= sizes.piece < size:
        return _lowered(_pieces(x, arg, sizes.piece), arg, sizes)
    if size <= sizes.short and elements(x.shape) > size and arg.high + DIGIT_BITS <= 64:
        return _shown(_together(x, arg), arg)
    if size <= sizes.share:
        return B.sort(x, *arg)
    return _shown(_dealt(x, arg, sizes.dealt), arg)


def _shown(x: UOp, arg: SortArg) -> UOp:
    """What is wanted of words in order."""
    x = _first(x, arg.kept)
    if arg.shown == 64:
        return x
    return B.bitcast(B.binary(O.AND, x, const((1 << arg.shown) - 1, dt.uint64)), dt.int64)


def _pieces(x: UOp, arg: SortArg, piece: int) -> UOp:
    """The smallest words of each piece of an axis. Among those alike, earlier pieces come first."""
    *lead, size = x.shape
    parts = -(-size // piece)
    split = B.reshape(_filled(x, parts * piece, arg.high), (*lead, parts, piece))
    kept = B.sort(split, arg.kept, arg.low, arg.high)
    return B.reshape(kept, (*lead, parts * arg.kept))


def _together(x: UOp, arg: SortArg) -> UOp:
    """Short rows that share a block: their numbers are one more digit, above all others."""
    *lead, size = x.shape
    rows = prod(lead)
    shared = min(1 << DIGIT_BITS, JOINED // size, rows)
    blocks = -(-rows // shared)
    flat = B.pad(B.reshape(x, (rows, size)), ((0, blocks * shared - rows), (0, 0)))
    number = B.binary(O.SHL, B.iota(shared, dt.uint64), const(arg.high, dt.uint64))
    words = B.reshape(flat, (blocks, shared, size))
    words = B.binary(O.OR, words, B.expand(B.reshape(number, (1, shared, 1)), words.shape))
    joined = B.reshape(words, (blocks, shared * size))
    found = B.sort(joined, None, arg.low, arg.high + DIGIT_BITS)
    found = B.binary(O.AND, found, const((1 << arg.high) - 1, dt.uint64))
    return B.reshape(_first(B.reshape(found, (blocks * shared, size)), size, rows), x.shape)


def _first(x: UOp, count: int, rows: int | None = None) -> UOp:
    """The first words, perhaps of the first rows."""
    lead = x.shape[:-1] if rows is None else (rows,)
    return B.shrink(x, (*[(0, n) for n in lead], (0, count)))


def _filled(x: UOp, size: int, high: int) -> UOp:
    """The last axis with words that no other is above, up to a size."""
    *lead, given = x.shape
    if given == size:
        return x
    most = const((1 << high) - 1, dt.uint64)
    padded = B.pad(B.binary(O.XOR, x, most), (*[(0, 0)] * len(lead), (0, size - given)))
    return B.binary(O.XOR, padded, most)


# -- digit by digit ----------------------------------------------------------------------------


def _dealt(x: UOp, arg: SortArg, block: int) -> UOp:
    """Every step turns the words by a digit, so that all are the same kernels."""
    steps = -(-(arg.high - arg.low) // DIGIT_BITS)
    low = min(arg.low, 64 - steps * DIGIT_BITS)  # more bits that are in order change nothing
    for _ in range(steps):
        x = B.contiguous(x)
        counts = make(O.RADIX, dt.uint32, (x,), RadixArg("count", low, block))
        starts = make(O.RADIX, dt.uint32, (counts,), RadixArg("start", low, block))
        x = make(O.RADIX, dt.uint64, (x, starts), RadixArg("deal", low, block))
    turned = steps * DIGIT_BITS
    if turned == 64:
        return x
    back = B.binary(O.SHL, x, const(turned, dt.uint64))
    return B.binary(O.OR, back, B.binary(O.SHR, x, const(64 - turned, dt.uint64)))


# -- the network -------------------------------------------------------------------------------


def _network(words: UOp, high: int) -> UOp:
    """The words of the last axis in ascending order."""
    n = words.shape[-1]
    size = 1 << (n - 1).bit_length()
    x = B.contiguous(_filled(words, size, high))
    since = 0
    run = 2
    while run <= size:
        distance = run // 2
        while distance:
            x = _stage(x, run, distance, size)
            since += 1
            if since == FUSED:
                x, since = B.contiguous(x), 0
            distance //= 2
        run *= 2
    return _first(x, n)


def _stage(x: UOp, run: int, distance: int, size: int) -> UOp:
    """Compare elements ``distance`` apart; runs go up and down in turn."""
    lead = x.shape[:-1]
    ones = [1] * len(lead)
    groups = size // (2 * distance)
    split = B.reshape(x, (*lead, groups, 2, distance))
    partner = B.flip(split, (len(lead) + 1,))
    low = B.binary(O.EQ, _line(2, (*ones, 1, 2, 1)), const(0, dt.int32))
    if run < size:
        group = _line(groups, (*ones, groups, 1, 1))
        down = B.binary(O.AND, group, const(run // (2 * distance), dt.int32))
        low = B.binary(O.EQ, low, B.binary(O.EQ, down, const(0, dt.int32)))
    smaller = B.binary(O.MIN, split, partner)
    larger = B.binary(O.MAX, split, partner)
    return B.reshape(B.where(low, smaller, larger), x.shape)


def _line(size: int, shape: tuple[int, ...]) -> UOp:
    return B.reshape(B.iota(size, dt.int32), shape)
