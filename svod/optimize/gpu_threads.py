"""Threads of a GPU as nodes: their numbers, what they tell each other, axes spread over them.

Threads past the end of an axis work on its last element and do not store, so loads need no gates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.ir.symbolic import ONE, TRUE, ZERO, add, and_, divide, idiv, lt, modulo, mul, num, sub


def special(name: str, size: UOp | int) -> UOp:
    """A hardware index below ``size``; the constant 0 where there is only one value."""
    size = num(size) if isinstance(size, int) else size
    return ZERO if size is ONE else make(O.SPECIAL, dt.index, (size,), name)


# Arguments of a BARRIER, which is a value of another thread. A shuffle takes it from the thread of
# the same warp whose number differs in one bit. An exchange goes through shared memory: "warp" is
# what warp ``slot`` has, the same in all its threads; "group" what the thread with the same l0 and
# with l1 = ``slot`` has. ``parts`` is how many slots there are, ``width`` the threads along l0.
def shuffle(value: UOp, offset: int) -> UOp:
    """What a thread of the same warp has."""
    return make(O.BARRIER, value.dtype, (value,), ("shuffle", offset))


def exchange(value: UOp, kind: str, slot: int, parts: int, width: int) -> UOp:
    """What a thread of the same block has."""
    return make(O.BARRIER, value.dtype, (value,), (kind, slot, parts, width))


def spread(total: UOp, grid: str, block: str, threads: int) -> tuple[UOp, UOp]:
    """A number below ``total`` for each thread, and whether the thread is the first to have it."""
    blocks = idiv(add(total, num(threads - 1)), threads)
    place = add(mul(special(grid, blocks), threads), special(block, threads))
    if total.op == O.CONST and total.arg % threads == 0:
        return place, TRUE
    inside = lt(place, total)
    if inside is TRUE:
        return place, TRUE
    return make(O.MIN, dt.index, (place, sub(total, ONE))), inside


def unflatten(
    place: UOp, axes: Sequence[UOp], sizes: Mapping[UOp, UOp] = MappingProxyType({})
) -> dict[UOp, UOp]:
    """The values of axes whose row-major number is ``place``; ``sizes`` where theirs are others."""
    values: dict[UOp, UOp] = {}
    for r in reversed(axes[1:]):
        size = sizes.get(r, r.src[0])
        values[r] = modulo(place, size)
        place = divide(place, size)
    return {axes[0]: place, **values} if axes else values


def product(sizes: list[UOp]) -> UOp:
    """How many steps loops of these sizes make."""
    total = ONE
    for size in sizes:
        total = mul(total, size)
    return total


def gated_store(store: UOp, gate: UOp) -> UOp:
    """The store where the gate is open."""
    if gate is TRUE:
        return store
    index, value = store.src
    test = and_(index.src[2], gate) if len(index.src) > 2 else gate
    place = make(O.INDEX, index.dtype, (index.src[0], index.src[1], test), index.arg)
    return make(O.STORE, dt.void, (place, value), store.arg)


def power_above(value: int) -> int:
    """The smallest power of two that is not below a number."""
    return 1 << max(0, int(value) - 1).bit_length()
