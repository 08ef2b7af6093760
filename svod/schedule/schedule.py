"""A graph to a pre-schedule: calls in order, with no buffers attached; cached by structure."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

from svod.base.errors import EmptySchedule
from svod.base.knobs import knobs
from svod.base.timing import span
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.ir.rewrite import rewrite
from svod.ir.rules import VALUES
from svod.schedule.cut import base_of, calls_before, cut
from svod.schedule.split_reduce import split_reductions

CACHE_ENTRIES = 512


@dataclass(frozen=True, slots=True)
class PreScheduleItem:
    """One call: what it runs, what it is given, what it waits for."""

    call: UOp
    body: UOp
    arguments: tuple[UOp, ...]  # PARAM placeholders and local BUFFERs, output first
    dependencies: tuple[int, ...]  # ids of calls


@dataclass(frozen=True, slots=True)
class PreSchedule:
    """Everything about a run but its buffers."""

    items: tuple[PreScheduleItem, ...]
    outputs: tuple[UOp, ...]  # in SINK order


_cache: OrderedDict[tuple[UOp, str], PreSchedule] = OrderedDict()
_lock = threading.Lock()
statistics = {"hits": 0, "misses": 0}


def pre_schedule(sink: UOp, device: str, cached: bool = True) -> PreSchedule:
    """The schedule of a normalised sink."""
    cached = cached and not knobs.disable_schedule_cache
    key = (sink, device)
    if cached:
        found = _cache.get(key)
        if found is not None:
            statistics["hits"] += 1
            return found
    statistics["misses"] += 1
    with span("schedule"):
        made = _make(sink, device)
    if cached:
        with _lock:
            _cache[key] = made
            while len(_cache) > CACHE_ENTRIES:
                _cache.popitem(last=False)
    return made


def clear_schedule_cache() -> None:
    with _lock:
        _cache.clear()


def _make(sink: UOp, device: str) -> PreSchedule:
    _verify(sink, "normalize")
    (sink,) = rewrite((sink,), VALUES)
    sink = split_reductions(_stored_sources(sink))
    _verify(sink, "split reductions")
    result = cut(sink, device)
    items = []
    for call in result.calls:
        body, arguments = call.src[0], call.src[1:]
        waits: dict[int, None] = {}
        for argument in arguments:
            for before in calls_before(argument):
                waits[before.sn] = None
        bases = tuple([base_of(a) for a in arguments])
        items.append(PreScheduleItem(call, body, bases, tuple(sorted(waits))))
    if not items and not result.outputs:
        raise EmptySchedule("there is nothing to compute")
    return PreSchedule(tuple(items), tuple([base_of(o) for o in result.outputs]))


def _verify(sink: UOp, stage: str) -> None:
    if knobs.verify:
        from svod.ir.verify import verify_tensor_graph  # loaded only where something is checked

        verify_tensor_graph(sink, stage)


def _stored_sources(sink: UOp) -> UOp:
    """COPY and CUSTOM_FUNCTION read whole buffers: other sources are stored first."""
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        src = tuple([done[s] for s in node.src])
        if node.op in (O.COPY, O.CUSTOM_FUNCTION):
            src = tuple([s if s.op == O.DEVICE or _is_stored(s) else _stored(s) for s in src])
        elif node.op == O.ASSIGN and not _is_elementwise_safe(src[0], src[1]):
            src = (src[0], _stored(src[1]))
        done[node] = node if src == node.src else make(node.op, node.dtype, src, node.arg)
    return done[sink]


def _stored(node: UOp) -> UOp:
    return make(O.CONTIGUOUS, node.dtype, (node,))


def _is_stored(node: UOp) -> bool:
    while node.op == O.RESHAPE:
        node = node.src[0]
    return node.op in (O.BUFFER, O.PARAM, O.CONTIGUOUS, O.COPY, O.SCATTER, O.CUSTOM_FUNCTION)


def _is_elementwise_safe(target: UOp, value: UOp) -> bool:
    """Whether the value reads the target's memory only at the element being written."""
    view = target
    while view.op in O.MOVEMENT or view.op == O.ASSIGN:
        view = view.src[0]
    base = view
    seen: set[UOp] = set()
    found = [value]
    for node in found:
        if node is target or node in seen:
            continue
        seen.add(node)
        if node is base:
            return False
        if node.op in O.ELEMENTWISE:
            found.extend(node.src)
        elif base in node.toposort():
            return False
    return True


def kernel_bodies(schedule: PreSchedule) -> list[UOp]:
    """The distinct kernels, in order of first use."""
    return list(dict.fromkeys([i.body for i in schedule.items if i.body.op == O.SINK]))
