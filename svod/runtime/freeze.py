"""Constant memory of a plan: what callers declared frozen is copied or packed once, at build.

In: a schedule with buffers, and the ids of the nodes that stay live. Out: the same schedule over
constants of its own. A kernel that multiplies by a frozen matrix reads it in the panels its inner
loops want; everything else that is frozen is copied. So a run packs nothing, and what the caller
does to the weights later changes nothing here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TypeAlias

from svod.base.knobs import knobs
from svod.codegen.targets.cpu import plain_loops
from svod.device.buffer import Buffer
from svod.device.names import DISK_PREFIX
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import AxisKind, ParamArg, RangeArg
from svod.ir.capabilities import capabilities_of
from svod.ir.evaluate import evaluate
from svod.ir.node import UOp, is_symbolic, largest, make, substitute
from svod.ir.symbolic import TRUE, num
from svod.optimize.machine import Machine
from svod.optimize.panels import Panels, panel_columns, reads_panels
from svod.runtime.caches import optimizer_machine
from svod.runtime.config import PrepareConfig, Strategy
from svod.runtime.effects import effect_of
from svod.runtime.instantiate import ScheduleItem, ScheduleResult, create_schedule, device_of
from svod.schedule.sizes import map_nodes, replace_in_size
from svod.schedule.views import source_indices

COMPILE_BYTES = 32 << 20  # packed in one way, from which compiling that way is quicker than NumPy

Memory: TypeAlias = tuple[int, int, int, object]  # storage, offset, size, dtype


@dataclass(frozen=True, slots=True)
class Packing:
    """How a kernel reads one frozen argument: the kernel over packed memory, and what packs it."""

    slot: int
    body: UOp
    pack: UOp  # the kernel that fills argument 0 from argument 1
    size: int  # elements of the packed memory


@dataclass(frozen=True, slots=True)
class _Place:
    """Packed memory, what it is made of, and how."""

    node: UOp
    source: Buffer
    pack: UOp


@dataclass(frozen=True, slots=True)
class Constants:
    """The nodes whose memory is frozen, and the bytes the plan holds for them."""

    ids: frozenset[int] = frozenset()
    nbytes: int = 0


def freeze_schedule(
    schedule: ScheduleResult, live: Collection[int], own: Sequence[Buffer], config: PrepareConfig
) -> Constants:
    """Give the schedule constants of its own; ``own`` are buffers nobody else has."""
    frozen = _frozen_ids(schedule, live)
    if not frozen:
        return Constants()
    packed = _pack(schedule, frozen, config)
    copies = {_memory(buffer): buffer for buffer in own}
    lists: dict[int, list[Buffer]] = {}  # turns of a loop share their lists
    for item in schedule.items:
        if id(item.buffers) not in lists:
            lists[id(item.buffers)] = [
                _copy(buffer, copies) if node in frozen else buffer
                for node, buffer in zip(item.buffer_ids, item.buffers, strict=True)
            ]
    for item in schedule.items:
        item.buffers = lists[id(item.buffers)]
        for node, buffer in zip(item.buffer_ids, item.buffers, strict=True):
            schedule.buffers[node] = buffer
    schedule.given |= packed.keys()
    constant = frozen | packed.keys()
    held = {
        buffer.storage_id: buffer.nbytes
        for item in schedule.items
        for node, buffer in zip(item.buffer_ids, item.buffers, strict=True)
        if node in constant
    }
    return Constants(frozenset(frozen), sum(held.values()))


def _frozen_ids(schedule: ScheduleResult, live: Collection[int]) -> set[int]:
    """Nodes whose memory the caller gave and nothing writes, without those that stay live."""
    kept = {schedule.buffers[n].storage_id for n in live if n in schedule.buffers}
    kept |= {schedule.buffers[n].storage_id for n in schedule.output_ids if n in schedule.buffers}
    for item in schedule.items:
        kept |= {item.buffers[position].storage_id for position in item.written}
    return {
        node
        for node in schedule.given
        if (found := schedule.buffers[node]).storage_id not in kept
        and not found.device.startswith(DISK_PREFIX)
    }


def _copy(buffer: Buffer, copies: dict[Memory, Buffer]) -> Buffer:
    key = _memory(buffer)
    if key not in copies:
        copies[key] = Buffer.new(buffer.device, buffer.size, buffer.dtype)
        copies[key].copy_from(buffer)
    return copies[key]


def _memory(buffer: Buffer) -> Memory:
    return buffer.storage_id, buffer.offset, buffer.size, buffer.dtype


# -- packing ---------------------------------------------------------------------------------------


def _pack(
    schedule: ScheduleResult, frozen: set[int], config: PrepareConfig
) -> Mapping[int, Buffer]:
    """Let kernels read frozen matrices in panels, and fill these; buffers by new node ids."""
    chosen = config.optimizer
    if chosen.strategy is Strategy.NONE or chosen.opts is not None or not knobs.optimize:
        return {}
    known: dict[tuple[UOp, frozenset[int]], Packing | None] = {}
    places: dict[tuple[Memory, UOp], _Place] = {}  # by source and packing
    lists: dict[int, tuple[list[Buffer], list[int]]] = {}
    for item in schedule.items:
        slots = frozenset([i for i, node in enumerate(item.buffer_ids) if node in frozen])
        if not slots or not capabilities_of(device_of(item.buffers)).packs_operands:
            continue
        key = item.body, slots
        if key not in known:
            known[key] = find_packing(item, slots, config)
        found = known[key]
        if found is None:
            continue
        if id(item.buffers) not in lists:
            source = item.buffers[found.slot]
            key_of_place = _memory(source), found.pack
            if key_of_place not in places:
                node = B.new_buffer(found.size, source.dtype, source.device)
                places[key_of_place] = _Place(node, source, found.pack)
            ids = list(item.buffer_ids)
            ids[found.slot] = places[key_of_place].node.sn
            lists[id(item.buffers)] = list(item.buffers), ids
    if not places:
        return {}
    packed = _filled(list(places.values()), config)
    for item in schedule.items:
        if id(item.buffers) in lists:
            slots = frozenset([i for i, node in enumerate(item.buffer_ids) if node in frozen])
            found = known[item.body, slots]
            assert found is not None
            buffers, ids = lists[id(item.buffers)]
            buffers[found.slot] = packed[ids[found.slot]]
            item.body, item.buffers, item.buffer_ids = found.body, buffers, ids
    return packed


def _filled(places: Sequence[_Place], config: PrepareConfig) -> dict[int, Buffer]:
    """Packed memory by node id. What is packed in one way is little or much: NumPy is slower than
    a kernel, but there is nothing to compile."""
    from svod.runtime.prepare import prepare_plan

    nbytes: dict[UOp, int] = {}
    for place in places:
        nbytes[place.pack] = nbytes.get(place.pack, 0) + place.source.nbytes
    found: dict[int, Buffer] = {}
    sources: dict[int, Buffer] = {}
    calls: list[UOp] = []
    for place in places:
        if nbytes[place.pack] <= COMPILE_BYTES:
            found[place.node.sn] = _packed_by_numpy(place)
            continue
        source = place.source
        given = B.new_buffer(source.size, source.dtype, source.device, source)
        sources[given.sn] = source
        call = make(O.CALL, dt.void, (place.pack, place.node, given))
        calls.append(make(O.AFTER, place.node.dtype, (place.node, call)))
    if calls:
        schedule = create_schedule(make(O.SINK, dt.void, tuple(calls)), sources)
        prepare_plan(schedule, config.here()).execute()
        found |= {p.node.sn: schedule.buffers[p.node.sn] for p in places if p.node.sn not in found}
    return found


def _packed_by_numpy(place: _Place) -> Buffer:
    (store,) = place.pack.src
    (given,) = [n for n in store.src[1].toposort() if n.op == O.PARAM]
    values = place.source.numpy().reshape(given.shape)
    packed = Buffer.new(place.source.device, prod(store.src[1].shape), place.source.dtype)
    packed.copyin(evaluate(store.src[1], {given: values}))
    return packed


def find_packing(
    item: ScheduleItem, slots: Collection[int], config: PrepareConfig | None = None
) -> Packing | None:
    """The packing of the frozen matrix a kernel multiplies by, where there is one."""
    body = item.body
    if effect_of(body).op != O.SINK:
        return None
    machine = optimizer_machine(device_of(item.buffers), config)
    if not isinstance(machine, Machine):
        return None  # panels are what the tiles of a CPU read
    for panels in panel_columns(plain_loops(body, machine), machine):
        operand = _operand(body, panels.slot) if panels.slot in slots else None
        if operand is None or _reads_apart(body, operand.node, panels.slot):
            continue
        packing = _packing(body, operand, panels)
        if reads_panels(plain_loops(packing.body, machine), machine):
            return packing
    return None


@dataclass(frozen=True, slots=True)
class _Operand:
    """A factor of a sum of products that is a view of one argument."""

    node: UOp
    columns: tuple[int, ...]  # axes it moves along that stay
    depth: tuple[int, ...]  # axes it moves along that are summed


def _operand(body: UOp, slot: int) -> _Operand | None:
    sums = [n for n in body.toposort() if n.op == O.REDUCE_AXIS]
    if len(sums) != 1 or sums[0].arg.op != O.ADD or sums[0].src[0].op != O.MUL:
        return None
    axes = sums[0].arg.axes
    for factor in sums[0].src[0].src:
        moving = _moving_axes(factor, slot)
        if moving is not None:
            columns = tuple([a for a in moving if a not in axes])
            return _Operand(factor, columns, tuple([a for a in moving if a in axes]))
    return None


def _moving_axes(node: UOp, slot: int) -> list[int] | None:
    """The axes along which a view of an argument changes; None where it is no such view."""
    shape = node.shape
    loops = [
        make(
            O.RANGE, dt.index, (n if isinstance(n, UOp) else num(n),), RangeArg(axis, AxisKind.LOOP)
        )
        for axis, n in enumerate(shape)
    ]
    indices = tuple(loops)
    while node.op in O.MOVEMENT or node.op == O.CAST:
        if node.op == O.CAST:
            node = node.src[0]
            continue
        indices, gate = source_indices(node, indices)
        if gate is not TRUE:
            return None
        node = node.src[0]
    if node.op != O.PARAM or node.arg.slot != slot:
        return None
    used = frozenset().union(*[i.ranges for i in indices])
    moving = [axis for axis, r in enumerate(loops) if r in used and largest(shape[axis]) > 1]
    return None if is_symbolic(tuple([shape[axis] for axis in moving])) else moving


def _reads_apart(body: UOp, view: UOp, slot: int) -> bool:
    """Whether a kernel reads an argument in another way than through one view."""
    seen = {body, view}
    found = [body]
    for node in found:  # grows while it is read
        if node.op == O.PARAM and node.arg.slot == slot:
            return True
        fresh = [s for s in dict.fromkeys(node.src) if s not in seen]
        seen.update(fresh)
        found += fresh
    return False


def _packing(body: UOp, operand: _Operand, wanted: Panels) -> Packing:
    view, shape = operand.node, operand.node.shape
    slot, tile, parts = wanted.slot, wanted.tile, wanted.parts
    order = (*operand.columns, *operand.depth)
    rest = tuple([a for a in range(len(shape)) if a not in order])
    width = prod([shape[a] for a in operand.columns])
    depth = prod([shape[a] for a in operand.depth])
    panels = -(-width // tile)
    # The matrix alone, columns first, cut in panels; within a panel the depth comes first, but for
    # the parts of a word.
    plain, casts = _without_casts(view)
    part = B.shrink(
        _at_largest(plain), tuple([(0, n if a in order else 1) for a, n in enumerate(shape)])
    )
    matrix = B.reshape(B.permute(part, (*rest, *order)), (width, depth))
    padded = B.pad(matrix, ((0, panels * tile - width), (0, 0)))
    cut = B.permute(B.reshape(padded, (panels, tile, depth // parts, parts)), (0, 2, 1, 3))
    (source,) = [n for n in view.toposort() if n.op == O.PARAM]
    size = panels * depth * tile
    target = B.view_as(make(O.PARAM, plain.dtype, (), ParamArg(0, (size,))), cut.shape)
    moved = make(O.PARAM, source.dtype, (), source.arg._replace(slot=1))
    (value,) = substitute((cut,), {source: moved})
    pack = make(O.SINK, dt.void, (make(O.STORE, dt.void, (target, value)),))
    # The same view, of packed memory.
    memory = make(O.PARAM, source.dtype, (), ParamArg(slot, (size,)))
    back = B.reshape(memory, (panels, depth // parts, tile, parts))
    back = B.permute(back, (0, 2, 1, 3))
    back = B.shrink(B.reshape(back, (panels * tile, depth)), ((0, width), (0, depth)))
    back = B.reshape(back, (*[1] * len(rest), *[shape[a] for a in order]))
    places = (*rest, *order)
    back = B.permute(back, tuple([places.index(a) for a in range(len(shape))]))
    again = B.expand(back, shape)
    for dtype in casts:
        again = make(O.CAST, dtype, (again,))
    (packed,) = substitute((body,), {view: again})
    return Packing(slot, packed, pack, size)


def _without_casts(view: UOp) -> tuple[UOp, list[DType]]:
    """A view as narrow as memory holds it, and the casts of what it reads, first one first."""
    if view.op == O.CAST:
        plain, casts = _without_casts(view.src[0])
        return plain, [*casts, view.dtype]
    if view.op not in O.MOVEMENT:
        return view, []
    plain, casts = _without_casts(view.src[0])
    return make(view.op, plain.dtype, (plain,), view.arg), casts


def _at_largest(view: UOp) -> UOp:
    """A view of an argument, with the run-time sizes it is repeated to at their largest."""
    if view.op not in O.MOVEMENT:
        return view
    return make(view.op, view.dtype, (_at_largest(view.src[0]),), map_nodes(view.arg, _largest))


def _largest(size: UOp) -> int | UOp:
    free = {n: num(n.arg.hi) for n in size.toposort() if n.op == O.DEFINE_VAR}
    return replace_in_size(size, free)
