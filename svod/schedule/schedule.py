"""A graph to a pre-schedule: calls in order, with no buffers attached; cached by structure.

``SCHEDULE_PASSES`` is the only list of steps from a normalised tensor graph to kernel calls.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

from svod.base.knobs import knobs
from svod.base.timing import span
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.capabilities import Capabilities, Capable, capabilities_of
from svod.ir.node import UOp, make
from svod.ir.passes import Pass, calls_hold, run_passes, tensors_hold
from svod.ir.rewrite import rewrite
from svod.ir.rules import VALUES
from svod.schedule.cache import Cache
from svod.schedule.channels import channels_last
from svod.schedule.cut import cut
from svod.schedule.files import only_parts
from svod.schedule.normalize import Normalization, restore_variables
from svod.schedule.offsets import without_offsets
from svod.schedule.plain import plain_operands
from svod.schedule.preschedule import (
    PreSchedule,
    PreScheduleItem,
    create_pre_schedule,
    kernel_bodies,
)
from svod.schedule.reasons import CallFacts
from svod.schedule.reshapes import reshape_last
from svod.schedule.scatters import choices_for_scatters
from svod.schedule.sorts import lowered_sorts
from svod.schedule.split_reduce import split_reductions
from svod.schedule.stored_sources import stored_sources

CACHE_ENTRIES = 512

# The normalised sink stands for its content: equal structure is the same node. Keeping the node
# in the key also keeps it interned, so that normalising the next graph finds it.
schedules: Cache[tuple[UOp, str, str], PreSchedule] = Cache("schedules", lambda: CACHE_ENTRIES)


def pre_schedule(
    graph: Normalization | UOp,
    device: str,
    cached: bool = True,
    compiler: str = "",
    capable: Capable = capabilities_of,
) -> PreSchedule:
    """The schedule of a normalised graph.

    ``device`` is where values go that no buffer places, ``compiler`` the identity of the compiler
    that its kernels are for, ``capable`` says what kernels of a device can do.
    """
    found = graph if isinstance(graph, Normalization) else Normalization(graph, (), ())
    if not cached or knobs.disable_schedule_cache:
        return _make(found, device, capable)
    key = (found.sink, device, compiler)
    known = schedules.get(key)
    return known if known is not None else schedules.insert(key, _make(found, device, capable))


def clear_schedule_cache() -> None:
    """Forget every schedule."""
    schedules.clear()


# -- passes ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Scheduling:
    """What the passes know beside the graph."""

    device: str  # where values go that no buffer places
    capable: Capable = capabilities_of  # what kernels of a device can do, by its name
    in_place: frozenset[UOp] = frozenset()  # products that read windows of their factors in place
    facts: dict[UOp, CallFacts] = field(default_factory=dict)  # of the calls, once there are some
    _ordered: tuple[UOp, list[UOp]] | None = field(default=None, init=False)

    @property
    def able(self) -> Capabilities:
        """What the device by default can do."""
        return self.capable(self.device)

    def order(self, sink: UOp) -> list[UOp]:
        """The nodes of a graph, sources first; those of the latest graph are kept."""
        if self._ordered is None or self._ordered[0] is not sink:
            self._ordered = (sink, sink.toposort())
        return self._ordered[1]


def _simplify(sink: UOp, at: Scheduling) -> UOp:
    return rewrite((sink,), VALUES)[0]


def _scatters(sink: UOp, at: Scheduling) -> UOp:
    return choices_for_scatters(sink, at.device, at.capable)


def _sorts(sink: UOp, at: Scheduling) -> UOp:
    return lowered_sorts(sink, at.device, at.capable)


def _files(sink: UOp, at: Scheduling) -> UOp:
    return only_parts(sink, at.order(sink))


def _reshapes(sink: UOp, at: Scheduling) -> UOp:
    return reshape_last(sink, at.order(sink))


def _sources(sink: UOp, at: Scheduling) -> UOp:
    return stored_sources(sink, at.order(sink))


def _reductions(sink: UOp, at: Scheduling) -> UOp:
    return split_reductions(sink, at.order(sink), at.able.runs_blocks)


def _channels(sink: UOp, at: Scheduling) -> UOp:
    sink, at.in_place = channels_last(sink, at.able)
    return sink


def _offsets(sink: UOp, at: Scheduling) -> UOp:
    sink, at.in_place = without_offsets(sink, at.able, at.in_place)
    return sink


def _operands(sink: UOp, at: Scheduling) -> UOp:
    sink, at.in_place = plain_operands(sink, at.able, at.in_place)
    return sink


def _cut(sink: UOp, at: Scheduling) -> UOp:
    found = cut(sink, at.device, at.capable, at.in_place)
    at.facts.update(found.facts)
    return make(O.SINK, dt.void, tuple(found.outputs))


SCHEDULE_PASSES: tuple[Pass[Scheduling], ...] = (
    Pass(
        "simplify", _simplify, tensors_hold, "algebra that holds for every input, bit for bit",
        rewrite,
    ),
    Pass(
        "scatters", _scatters, tensors_hold,
        "scatters become choices, or sums after a sort, where that is faster",
        choices_for_scatters,
    ),
    Pass("sorts", _sorts, tensors_hold, "sorts become kernels that the device has", lowered_sorts),
    Pass("files", _files, tensors_hold, "of files only what is used is read", only_parts),
    Pass(
        "reshapes", _reshapes, tensors_hold,
        "reshapes of rows go behind what is computed per element", reshape_last,
    ),
    Pass(
        "sources", _sources, tensors_hold, "what reads whole buffers has its sources stored",
        stored_sources,
    ),
    Pass(
        "reductions", _reductions, tensors_hold,
        "large reductions in two stages, so that every core has work", split_reductions,
    ),
    Pass(
        "channels", _channels, tensors_hold,
        "operands of convolutions are stored with channels last, where they are read in place",
        channels_last,
    ),
    Pass(
        "offsets", _offsets, tensors_hold,
        "zero points are taken out of products, so that bytes are what is multiplied",
        without_offsets,
    ),
    Pass(
        "operands", _operands, tensors_hold,
        "operands that tiles cannot copy are stored as matrices", plain_operands,
    ),
    Pass("cut", _cut, calls_hold, "every stored value becomes a call of a kernel", cut),
)  # fmt: skip


def kernel_graph(sink: UOp, device: str, capable: Capable = capabilities_of) -> UOp:
    """The graph cut into kernel calls: a SINK of the buffers of its roots, after their calls."""
    return _cut_into_calls(sink, Scheduling(device, cache(capable)))


def _cut_into_calls(sink: UOp, at: Scheduling) -> UOp:
    if knobs.verify:
        tensors_hold(sink, "normalize")
    return run_passes(SCHEDULE_PASSES, sink, at)


def _make(found: Normalization, device: str, capable: Capable) -> PreSchedule:
    with span("schedule"):
        at = Scheduling(device, cache(capable))
        graph = _cut_into_calls(restore_variables(found), at)
        return create_pre_schedule(graph, at.facts)


__all__ = [
    "SCHEDULE_PASSES",
    "PreSchedule",
    "PreScheduleItem",
    "clear_schedule_cache",
    "kernel_bodies",
    "kernel_graph",
    "pre_schedule",
    "schedules",
]
