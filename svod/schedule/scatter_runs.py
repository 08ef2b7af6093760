"""Sums of many numbers at places that data choose, for devices that sort: runs side by side.

Words of place and step are sorted, so the steps of a place stand beside each other, in order.
Places are split into parts, and each part has the steps between two bounds; along the parts nothing
meets. The result is that of the SCATTER, addition by addition.
"""

from __future__ import annotations

from math import prod

from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const
from svod.schedule.costs_gpu import GPU

FEWEST = GPU.scatter_sort_from  # steps from which sorting pays
PART = GPU.scatter_part  # steps of a part, about
WORD = 32  # bits of a step's number
WIDE = GPU.scatter_wide  # neighbours that threads side by side write better


def sums_by_runs(node: UOp) -> UOp | None:
    """An adding SCATTER of single numbers, by a sort; None where it is small or adds whole rows."""
    if node.dtype.is_int and node.dtype.bits >= 32:
        return None  # memory adds these by itself
    x, values, *indices = node.src
    rest = x.shape[len(indices) :]
    steps, places = prod(values.shape), prod(x.shape)
    if prod(rest) >= WIDE or not FEWEST <= steps < 1 << WORD:
        return None
    indices = _all_axes(indices, rest)
    parts = min(places, -(-steps // PART))
    each = -(-places // parts)
    limit = parts * each
    if limit >= 1 << (63 - WORD):
        return None
    words = _words(x, indices, limit)
    ordered = B.sort(words, low=WORD, high=WORD + limit.bit_length())
    place = B.cast(B.binary(O.SHR, ordered, const(WORD, dt.uint64)), dt.int64)
    step = B.cast(B.binary(O.AND, ordered, const((1 << WORD) - 1, dt.uint64)), dt.int64)
    bounds = B.contiguous(_first_from(place, parts, each))
    part = B.expand(B.reshape(B.iota(parts, dt.int64), (parts, 1)), (parts, steps))
    line = B.reshape(B.iota(steps, dt.int64), (1, steps))
    start, stop = (B.reshape(B.shrink(bounds, ((i, parts + i),)), (parts, 1)) for i in (0, 1))
    is_own = B.binary(O.AND, B.binary(O.LE, start, line), B.binary(O.LT, line, stop))
    first = B.binary(O.MUL, part, const(each, dt.int64))
    own = B.binary(O.SUB, B.expand(B.reshape(place, (1, steps)), (parts, steps)), first)
    own = B.where(is_own, own, const(-1, dt.int64))
    table = B.reshape(_ended(B.reshape(x, (places,)), limit), (parts, each))
    amounts = B.gather(B.reshape(values, (steps,)), [step])
    wide = B.expand(B.reshape(amounts, (1, steps)), (parts, steps))
    found = B.reshape(B.scatter(table, wide, [part, own], "add"), (limit,))
    return B.reshape(B.shrink(found, ((0, places),)), x.shape)


def _all_axes(indices: list[UOp], rest: tuple[int, ...]) -> list[UOp]:
    """Indices for all axes: those after the indexed ones are positions."""
    lead = indices[0].shape
    full = (*lead, *rest)
    found = [B.expand(B.reshape(i, (*lead, *[1] * len(rest))), full) for i in indices]
    for axis, size in enumerate(rest, len(lead)):
        line = tuple([size if a == axis else 1 for a in range(len(full))])
        found.append(B.expand(B.reshape(B.iota(size, dt.int64), line), full))
    return found


def _words(x: UOp, indices: list[UOp], limit: int) -> UOp:
    """The place of each step, above its number; ``limit`` for those outside."""
    place = const(0, dt.int64)
    inside: UOp | None = None
    for index, size in zip(indices, x.shape, strict=True):
        wide = B.cast(index, dt.int64)
        low = B.binary(O.LE, const(0, dt.int64), wide)
        test = B.binary(O.AND, low, B.binary(O.LT, wide, const(size, dt.int64)))
        inside = test if inside is None else B.binary(O.AND, inside, test)
        place = B.binary(O.ADD, B.binary(O.MUL, place, const(size, dt.int64)), wide)
    assert inside is not None
    found = B.cast(B.where(inside, place, const(limit, dt.int64)), dt.uint64)
    steps = prod(indices[0].shape)
    high = B.binary(O.SHL, B.reshape(found, (steps,)), const(WORD, dt.uint64))
    return B.binary(O.OR, high, B.iota(steps, dt.uint64))


def _first_from(places: UOp, parts: int, each: int) -> UOp:
    """Where the places of each part begin, and where those of the last one end."""
    size = places.shape[0]
    wanted = B.binary(O.MUL, B.iota(parts + 1, dt.int64), const(each, dt.int64))
    found = B.full((parts + 1,), 0, dt.int64)
    step = 1 << (size.bit_length() - 1)
    while step:
        probe = B.binary(O.ADD, found, const(step, dt.int64))
        there = B.gather(places, [B.binary(O.SUB, probe, const(1, dt.int64))])
        is_there = B.binary(O.LE, probe, const(size, dt.int64))
        is_before = B.binary(O.AND, is_there, B.binary(O.LT, there, wanted))
        found = B.where(is_before, probe, found)
        step //= 2
    return found


def _ended(x: UOp, size: int) -> UOp:
    return B.pad(x, ((0, size - x.shape[0]),))
