"""A graph to a pre-schedule: calls in order, with no buffers attached; cached by structure."""

from __future__ import annotations

from collections.abc import Iterator

from svod.base.knobs import knobs
from svod.base.timing import span
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.ir.rewrite import rewrite
from svod.ir.rules import VALUES
from svod.schedule.attention import Takes
from svod.schedule.cache import Cache
from svod.schedule.channels import channels_last
from svod.schedule.cut import cut
from svod.schedule.files import only_parts
from svod.schedule.normalize import Normalization, restore_variables
from svod.schedule.operands import TILING_DEVICES
from svod.schedule.plain import plain_operands
from svod.schedule.preschedule import (
    PreSchedule,
    PreScheduleItem,
    create_pre_schedule,
    kernel_bodies,
)
from svod.schedule.reshapes import reshape_last
from svod.schedule.scatters import choices_for_scatters
from svod.schedule.sorts import lowered_sorts
from svod.schedule.split_reduce import split_reductions
from svod.schedule.work import EFFECTS, LEAVES

CACHE_ENTRIES = 512

# The normalised sink stands for its content: equal structure is the same node. Keeping the node
# in the key also keeps it interned, so that normalising the next graph finds it.
schedules: Cache[tuple[UOp, str, str], PreSchedule] = Cache("schedules", lambda: CACHE_ENTRIES)


def pre_schedule(
    graph: Normalization | UOp,
    device: str,
    cached: bool = True,
    compiler: str = "",
    takes: Takes | None = None,
) -> PreSchedule:
    """The schedule of a normalised graph.

    ``device`` is where values go that no buffer places, ``compiler`` the identity of the compiler
    that its kernels are for, ``takes`` what that compiler has one kernel for.
    """
    found = graph if isinstance(graph, Normalization) else Normalization(graph, (), ())
    if not cached or knobs.disable_schedule_cache:
        return _make(found, device, takes)
    key = (found.sink, device, compiler)
    known = schedules.get(key)
    return known if known is not None else schedules.insert(key, _make(found, device, takes))


def clear_schedule_cache() -> None:
    """Forget every schedule."""
    schedules.clear()


def kernel_graph(sink: UOp, device: str, takes: Takes | None = None) -> UOp:
    """The graph cut into kernel calls: a SINK of the buffers of its roots, after their calls."""
    _verify(sink, "normalize")
    (sink,) = rewrite((sink,), VALUES)
    sink = lowered_sorts(choices_for_scatters(sink, device), device, takes)
    _verify(sink, "scatters and sorts")
    order = sink.toposort()
    parts = only_parts(sink, order)
    if parts is not sink:
        sink, order = parts, parts.toposort()
    reshaped = reshape_last(sink, order)
    if reshaped is not sink:
        sink, order = reshaped, reshaped.toposort()
    stored = _stored_sources(sink, order)
    is_gpu = device.partition(":")[0] in TILING_DEVICES
    sink = split_reductions(stored, order if stored is sink else None, is_gpu)
    _verify(sink, "split reductions")
    sink, in_place = channels_last(sink, device, takes)
    sink, in_place = plain_operands(sink, device, in_place)
    _verify(sink, "orders of operands")
    return make(O.SINK, dt.void, tuple(cut(sink, device, takes, in_place).outputs))


def _make(found: Normalization, device: str, takes: Takes | None) -> PreSchedule:
    with span("schedule"):
        return create_pre_schedule(kernel_graph(restore_variables(found), device, takes))


def _verify(sink: UOp, stage: str) -> None:
    if knobs.verify:
        from svod.ir.verify import verify_tensor_graph  # loaded only where something is checked

        verify_tensor_graph(sink, stage)


_WHOLE = frozenset({O.COPY, O.CUSTOM_FUNCTION, O.SORT, O.RADIX})
_READERS = _WHOLE | {O.SCAN, O.ASSIGN}


def _stored_sources(sink: UOp, order: list[UOp]) -> UOp:
    """Copies, custom functions, sorts and loops read whole buffers: these are stored first."""
    if not any(node.op in _READERS for node in order):
        return sink
    done: dict[UOp, UOp] = {}
    for node in order:
        src = tuple([done[s] for s in node.src])
        if node.op in _WHOLE:
            src = tuple([s if s.op == O.DEVICE or _is_stored(s) else _stored(s) for s in src])
        elif node.op == O.SCAN:
            first = 2 + node.arg.carries
            src = (*src[:first], *[_stored_below(s) for s in src[first:]])
        elif node.op == O.ASSIGN and not _is_elementwise_safe(src[0], src[1]):
            src = (src[0], _stored(src[1]))
        done[node] = node if src == node.src else make(node.op, node.dtype, src, node.arg)
    return done[sink]


def _stored(node: UOp) -> UOp:
    return make(O.CONTIGUOUS, node.dtype, (node,))


def _stored_below(node: UOp) -> UOp:
    """The same movement of a stored value."""
    if node.op in O.MOVEMENT:
        below = _stored_below(node.src[0])
        return node if below is node.src[0] else make(node.op, node.dtype, (below,), node.arg)
    is_light = node.op in LEAVES or (node.op in EFFECTS and node.op != O.ASSIGN)
    return node if is_light else _stored(node)


def _is_stored(node: UOp) -> bool:
    while node.op == O.RESHAPE:
        node = node.src[0]
    return node.op in _WHOLE or node.op in (O.BUFFER, O.PARAM, O.CONTIGUOUS, O.SCATTER)


def _is_elementwise_safe(target: UOp, value: UOp) -> bool:
    """Whether the value reads the target's memory only at the element being written.

    What is stored first, by a kernel of its own, may read all of it.
    """
    base = _memory(target)
    here: dict[UOp, None] = {value: None}  # nodes read at the element being written
    elsewhere: dict[UOp, None] = {}
    for node in _growing(here):
        if node.op in O.ELEMENTWISE:
            here.update(dict.fromkeys(node.src))
        elif node is not target:
            elsewhere[node] = None
    for node in _growing(elsewhere):
        if node is base or (node.op == O.ASSIGN and _memory(node) is base):
            return False
        if node.op not in _APART:
            elsewhere.update(dict.fromkeys(node.src))
    return True


def _growing(nodes: dict[UOp, None]) -> Iterator[UOp]:
    """The nodes in order, also those added on the way."""
    done = 0
    while done < len(nodes):
        for node in list(nodes)[done:]:
            done += 1
            yield node


_APART = EFFECTS - {O.SCAN}


def _memory(view: UOp) -> UOp:
    """The memory behind a view and what was assigned to it."""
    while view.op in O.MOVEMENT or view.op in (O.ASSIGN, O.AFTER):
        view = view.src[0]
    return view


__all__ = [
    "PreSchedule",
    "PreScheduleItem",
    "clear_schedule_cache",
    "kernel_bodies",
    "kernel_graph",
    "pre_schedule",
    "schedules",
]
