"""Packing blocks with lifetimes into one range of bytes.

In: blocks of a size, alive from one level to another, both included. Out: an offset for each, so
that blocks alive together do not overlap, and the length of the range.
Greedy placement in a few good orders comes within a few percent of the lower bound; where it does
not reach it, the block that lies highest is placed earlier and the greedy step is tried again.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

RETRIES = 64  # of the improvement step; each costs one greedy placement, about 5 us per block
SMALL = 600  # blocks; above it a few retries must do
CLOSE = 1.01  # times the lower bound: near enough
SHORT = 16  # levels; neighbours of a block that lives no longer are looked up level by level

_Spot: TypeAlias = tuple[int, int, int, int, int]  # offset, end, first, last, key


class Block(NamedTuple):
    key: int
    size: int
    first: int  # level
    last: int


def lower_bound(blocks: Iterable[Block]) -> int:
    """The largest sum of living bytes over the levels: no packing is shorter."""
    return max(_living(blocks), default=0)


def pack(blocks: Sequence[Block]) -> tuple[dict[int, int], int]:
    """Offsets by key, and the length of the range."""
    bound = lower_bound(blocks)
    living = _living(blocks)
    orders = (
        sorted(blocks, key=lambda b: (-b.size, b.first, b.key)),
        sorted(blocks, key=lambda b: (-b.size * (b.last - b.first + 1), b.key)),
        sorted(blocks, key=lambda b: (-max(living[b.first : b.last + 1]), -b.size, b.key)),
        sorted(blocks, key=lambda b: (b.first, -b.size, b.key)),
    )
    best: tuple[dict[int, int], int] | None = None
    for order in orders:
        found = _place(order)
        if best is None or found[1] < best[1]:
            best, best_order = found, order
        if best[1] <= CLOSE * bound:
            return best
    if best is None:
        return {}, 0
    return _improve(best, best_order, bound)


def successions(blocks: Sequence[Block], offsets: dict[int, int]) -> set[tuple[int, int]]:
    """Pairs (earlier, later) of keys where the later block is the next owner of some bytes."""
    borders = sorted({at for b in blocks for at in (offsets[b.key], offsets[b.key] + b.size)})
    place = {at: number for number, at in enumerate(borders)}
    owners: list[list[Block]] = [[] for _ in borders]
    for block in sorted(blocks, key=lambda b: b.first):
        start = offsets[block.key]
        for number in range(place[start], place[start + block.size]):
            owners[number].append(block)
    return {(before.key, after.key) for row in owners for before, after in pairwise(row)}


def _living(blocks: Iterable[Block]) -> list[int]:
    """Living bytes per level."""
    found = list(blocks)
    change = [0] * (max((b.last for b in found), default=-1) + 2)
    for block in found:
        change[block.first] += block.size
        change[block.last + 1] -= block.size
    total, living = 0, []
    for step in change[:-1]:
        total += step
        living.append(total)
    return living


def _place(order: Sequence[Block]) -> tuple[dict[int, int], int]:
    """Put each block into the tightest gap between the placed blocks that live with it."""
    offsets: dict[int, int] = {}
    placed: list[_Spot] = []  # by offset
    at_level: dict[int, list[_Spot]] = {}
    length = 0
    for block in order:
        size, first, last = block.size, block.first, block.last
        levels = range(first, last + 1)
        neighbours: Sequence[_Spot] = placed
        if len(levels) <= SHORT:
            neighbours = sorted({spot for level in levels for spot in at_level.get(level, ())})
        at, tightest, top = -1, -1, 0
        for offset, end, other_first, other_last, _ in neighbours:
            if other_last < first or last < other_first:
                continue
            gap = offset - top
            if gap >= size and (tightest < 0 or gap < tightest):
                at, tightest = top, gap
            if end > top:
                top = end
        if at < 0:
            at = top
        offsets[block.key] = at
        spot = (at, at + size, first, last, block.key)
        insort(placed, spot)
        for level in levels:
            at_level.setdefault(level, []).append(spot)
        length = max(length, at + size)
    return offsets, length


def _improve(
    best: tuple[dict[int, int], int], order: Sequence[Block], bound: int
) -> tuple[dict[int, int], int]:
    """Move the block that ends highest to the front, again and again, and keep the best."""
    current, offsets = list(order), best[0]
    for _ in range(RETRIES if len(current) <= SMALL else RETRIES // 8):
        if best[1] <= CLOSE * bound:
            break
        placed = offsets
        highest = max(current, key=lambda b: (placed[b.key] + b.size, b.size))
        current.remove(highest)
        current.insert(0, highest)
        offsets, length = _place(current)
        if length < best[1]:
            best = (offsets, length)
    return best
