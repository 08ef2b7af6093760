"""Scatters on a GPU: stores whose order counts, made by many threads.

The last write to a place wins and sums are made in the order of the loops, so all that goes to one
place is done by one thread, in that order: results are those of a single thread, bit by bit. Places
are split into parts. The threads of a warp look at 32 steps at once and take those of their part
(the renderer's `vote`); nothing is read for the rest.
"""

from __future__ import annotations

from math import gcd, isqrt, prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.ir.symbolic import ZERO, add, and_, eq, from_terms, idiv, mod, mul, terms_of
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_threads import special
from svod.optimize.opts import Opt

STEPS_PER_PART = 8  # at least
STEP_COST = 18000  # of a step, in looks at one of another part, times the multiprocessors


def by_parts(store: UOp, serial: list[UOp], machine: GpuMachine, applied: list[Opt]) -> UOp | None:
    """The store with a warp for each part, where no loop can be spread; None for one part."""
    parts = count_parts(store, serial, 1)
    if parts == 1:
        return None
    warps = min(parts, machine.block // machine.warp)
    thread = special("l0", warps * machine.warp)
    applied.append(Opt("LOCAL", serial[-1].arg.id, warps * machine.warp))
    part = add(mul(special("g0", parts // warps), warps), idiv(thread, machine.warp))
    index, value = store.src
    first = eq(mod(thread, machine.warp), ZERO)
    test = and_(index.src[2], first) if len(index.src) > 2 else first
    place = make(O.INDEX, index.dtype, (*index.src[:2], test), index.arg)
    return shared_out(make(O.STORE, dt.void, (place, value), store.arg), serial, part, parts)


def count_parts(store: UOp, serial: list[UOp], threads: int) -> int:
    """Into how many parts the places are split, each of so many threads; 1 where no data chooses.

    With more parts each has fewer steps to do one after the other, and all have more to look at.
    """
    index, value = store.src
    chosen = {n.op for t in _moving(index, serial) for n in t.toposort()}
    if O.LOAD not in chosen or O.REDUCE in chosen:  # a loop cannot be asked about 32 steps at once
        return 1
    for node in value.toposort():
        if node.op == O.INDEX and node.src[0] is index.src[0] and node.src[1] is not index.src[1]:
            return 1  # another part may just be writing what this one reads
    steps = prod([int(r.src[0].vmax) for r in serial])
    best = isqrt(STEP_COST * 32 // -(-threads // 32))
    return 1 << max(0, min(best, steps // STEPS_PER_PART).bit_length() - 1)


def shared_out(store: UOp, serial: list[UOp], part: UOp, parts: int) -> UOp:
    """The store where the place is one of this part.

    What moves a place with the thread does not choose the part: equal places are equal in the rest.
    """
    if parts == 1:
        return store
    terms = _moving(store.src[0], serial)
    common = gcd(*terms.values())
    place = from_terms({t: f // common for t, f in terms.items()}, 0)
    gate = make(O.BARRIER, dt.bool_, (eq(mod(place, parts), part),), ("vote",))
    before = set(gate.toposort())
    done: dict[UOp, UOp] = {}
    for node in store.toposort():
        src = tuple([done[s] for s in node.src])
        if node.op == O.INDEX and node not in before:
            test = and_(src[2], gate) if len(src) > 2 else gate
            done[node] = make(O.INDEX, node.dtype, (src[0], src[1], test), node.arg)
        else:
            done[node] = node if src == node.src else make(node.op, node.dtype, src, node.arg)
    return done[store]


def _moving(index: UOp, serial: list[UOp]) -> dict[UOp, int]:
    """The terms of an offset that steps change, and threads do not."""
    terms, _ = terms_of(index.src[1])
    return {
        t: f
        for t, f in terms.items()
        if t.ranges <= set(serial) and not any(n.op == O.SPECIAL for n in t.toposort())
    }
