"""Scatters on a GPU: stores whose order counts, made by many threads.

The last write to a place wins and sums are made in the order of the loops: results are those of a
single thread, bit by bit. Where loops have places of their own, a warp makes the steps of each, 32
at once but for those that meet (`svod.codegen.render.turns`). Elsewhere places are split into
parts, each for one thread: a warp looks at 32 steps at once and takes those of its part (the
renderer's `vote`); nothing is read for the rest. Where the order does not count, the memory adds,
that of a block first where there are few places.
"""

from __future__ import annotations

from math import gcd, isqrt, prod
from typing import NamedTuple

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, RangeArg, TurnArg
from svod.ir.node import UOp, make
from svod.ir.symbolic import (
    ONE,
    TRUE,
    ZERO,
    add,
    and_,
    conjuncts,
    eq,
    from_terms,
    idiv,
    lt,
    mod,
    mul,
    num,
    sub,
    terms_of,
)
from svod.optimize.apart import reach
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_threads import gated_store, power_above, product, special, unflatten
from svod.optimize.graph import extent, new_range, replace_all, stride
from svod.optimize.opts import Opt
from svod.schedule.costs_gpu import GPU

WARPS = GPU.scatter_warps  # of a block, each with places of its own
MANY_WARPS = GPU.scatter_many_warps
ROW_BYTES = GPU.scatter_row  # of the rows of a block, which shared memory holds meanwhile
LONG_ROW = GPU.scatter_long_row
TALLIERS, TALLIED = 512, 4  # threads of a block that counts together, steps of each at once
TALLY_BYTES = GPU.histogram_bytes  # of shared memory
STEPS_PER_PART = GPU.scatter_steps  # at least
# of a step, in looks at one of another part, times the multiprocessors
STEP_COST = GPU.scatter_step


_ATOMIC = {O.ADD: "add", O.MAX: "max"}


def unordered(store: UOp) -> UOp | None:
    """The store as one that the memory itself combines, in any order; None where that counts.

    Sums of whole numbers, and the larger of two, are the same in every order.
    """
    index, value = store.src
    if value.op not in _ATOMIC or not value.dtype.is_int or value.dtype.bits < 32:
        return None
    amounts = [s for s in value.src if not (s.op == O.LOAD and s.src[0] is index)]
    if len(amounts) != 1:
        return None
    reads = [n for n in amounts[0].toposort() if n.op == O.INDEX]
    if any(n.src[0] is index.src[0] for n in reads):
        return None
    return make(O.STORE, dt.void, (index, amounts[0]), _ATOMIC[value.op])


def by_tallies(
    sink: UOp, store: UOp, loops: list[UOp], machine: GpuMachine, applied: list[Opt]
) -> UOp | None:
    """Blocks that add up in shared memory first; None where places are many, or steps few."""
    memory = store.src[0].src[0]
    size = prod(memory.arg.shape)
    steps = product([r.src[0] for r in loops])
    has_loops = any(n.op == O.REDUCE for n in store.toposort())
    if store.arg != "add" or size * memory.dtype.itemsize > TALLY_BYTES or has_loops:
        return None
    blocks = min(machine.multiprocessors * 4, int(steps.vmax) // (TALLIERS * 8 + 4 * size))
    if steps.op != O.CONST or blocks < 2:
        return None
    count = -(-steps.arg // (TALLIERS * blocks * TALLIED))
    outer = new_range(sink, count, AxisKind.LOOP)
    copy = make(O.RANGE, dt.index, (num(TALLIED),), RangeArg(outer.arg.id + 1, AxisKind.UPCAST))
    block = add(mul(add(mul(outer, TALLIED), copy), blocks), special("g0", blocks))
    place = add(mul(block, TALLIERS), special("l0", TALLIERS))
    inside = lt(place, steps)
    if inside is not TRUE:
        place = make(O.MIN, dt.index, (place, sub(steps, ONE)))
    applied += [Opt("LOCAL", loops[-1].arg.id, TALLIERS), Opt("UPCAST", loops[-1].arg.id, TALLIED)]
    index, value = gated_store(replace_all(store, unflatten(place, loops)), inside).src
    tally = make(O.STORE, dt.void, (index, value), ("tally", size, TALLIERS))
    return make(O.END, dt.void, (tally, outer, copy))


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


def takes_warps(store: UOp, serial: list[UOp], free: list[UOp]) -> bool:
    """Whether a warp for each step of the free loops is better than a thread."""
    index = store.src[0]
    data = [n for n in index.toposort() if n.op == O.LOAD]
    has_reductions = any(n.op == O.REDUCE for n in store.toposort())
    if not data or has_reductions or any(r.src[0].op != O.CONST for r in serial):
        return False
    own = [r for r in free if any(r in n.ranges for n in data)]
    if any(stride(index, r) == 1 and extent(r) >= 32 for r in free if r not in own):
        return False  # threads side by side write side by side
    return bool(own) or prod([extent(r) for r in free]) >= MANY_WARPS


def by_warps(
    sink: UOp,
    store: UOp,
    serial: list[UOp],
    free: list[UOp],
    machine: GpuMachine,
    applied: list[Opt],
) -> UOp:
    """The store with a warp for each step of the free loops, which makes the others: 32 at once,
    but for those that meet."""
    total = product([r.src[0] for r in free])
    steps = new_range(sink, prod([extent(r) for r in serial]), AxisKind.LOOP)
    store = replace_all(store, unflatten(steps, serial))
    row = _row(store, steps)
    warps = min(WARPS, power_above(total.vmax))
    nbytes = row.size * store.src[0].src[0].dtype.itemsize
    while warps > 1 and nbytes * warps > ROW_BYTES:
        warps //= 2
    if total.op != O.CONST or total.arg % warps or nbytes > ROW_BYTES:
        row, warps = row._replace(size=0), min(WARPS, power_above(total.vmax))
    thread = special("l0", warps * machine.warp)
    applied.append(Opt("LOCAL", serial[-1].arg.id, warps * machine.warp))
    blocks = idiv(add(total, num(warps - 1)), warps)
    number = add(mul(special("g0", blocks), warps), idiv(thread, machine.warp))
    inside = lt(number, total)
    if inside is not TRUE:
        number = make(O.MIN, dt.index, (number, sub(total, ONE)))
    mapping = unflatten(number, free)
    store = replace_all(store, mapping)
    index, value = store.src
    gate = and_(index.src[2], inside) if len(index.src) > 2 else inside
    reads = any(n.op == O.LOAD and n.src[0].src[0] is index.src[0] for n in value.toposort())
    place, start = replace_all(row.place, mapping), replace_all(row.start, mapping)
    how = TurnArg("turn", reads, row.bits, row.size, warps)
    turn = make(O.BARRIER, dt.bool_, (place, gate, start, *_bounds(gate, steps)), how)
    target = make(O.INDEX, index.dtype, (*index.src[:2], turn), index.arg)
    return make(O.END, dt.void, (make(O.STORE, dt.void, (target, value), store.arg), steps))


class _Row(NamedTuple):
    """The places of one row."""

    place: UOp  # which moves with the steps
    start: UOp  # what does not
    bits: int  # in which places differ
    size: int  # of a row whose places lie side by side, or 0


def _row(store: UOp, steps: UOp) -> _Row:
    index = store.src[0]
    terms, constant = terms_of(index.src[1])
    moving = {t: f for t, f in terms.items() if steps in t.ranges}
    fixed = {t: f for t, f in terms.items() if t not in moving}
    common = gcd(*moving.values()) or 1
    far = reach(index, {t: f // common for t, f in moving.items()})
    is_plain = all(f > 0 and (t.op == O.CAST or t.vmin == 0) for t, f in moving.items())
    is_alone = not fixed or gcd(*fixed.values()) > far  # no other row begins inside
    is_used = far < LONG_ROW and far < 2 * extent(steps)
    size = int(far) + 1 if common == 1 and is_plain and is_alone and is_used else 0
    bits = int(far).bit_length() if far < 1 << 32 else 64
    place = from_terms({t: f // common for t, f in moving.items()}, 0)
    return _Row(place, from_terms(fixed, constant), bits, size)


def _bounds(gate: UOp, steps: UOp) -> tuple[UOp, ...]:
    """Between which steps a gate can be open, where it says so: of sorted places, say.

    A place that is -1 but for steps from one number to another is inside for these alone.
    """
    for test in conjuncts(gate):
        place = test.src[-1]
        if test.op != O.LE or test.src[0].op != O.CONST or place.op != O.WHERE:
            continue
        if test.src[0].arg < 0 or place.src[2].op != O.CONST or place.src[2].arg >= 0:
            continue
        tests = conjuncts(place.src[0])
        first = [t.src[0] for t in tests if t.op == O.LE and _is_counter(t.src[1], steps)]
        after = [t.src[1] for t in tests if t.op == O.LT and _is_counter(t.src[0], steps)]
        if first and after and not any(steps in n.ranges for n in (*first, *after)):
            return first[0], after[0]
    return ()


def _is_counter(node: UOp, r: UOp) -> bool:
    return node is r or (node.op == O.CAST and node.src[0] is r)


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
