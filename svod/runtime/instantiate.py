"""A pre-schedule over buffers: the schedule of one run.

In: a pre-schedule, the buffers of its inputs by the id of their nodes, values of variables.
Out: one item per invocation, with its buffers in argument order. New buffers are made here and
belong to this schedule alone; their memory is taken later. Invocations of one call share buffers,
so what a loop writes again waits until the turn before is done with it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from svod.base.errors import BufferNotFound, EmptySchedule, GraphError
from svod.device.buffer import Buffer
from svod.device.names import DISK_PREFIX, canonical
from svod.ir import ops as O
from svod.ir.args import LocalArg, VarArg
from svod.ir.node import UOp
from svod.runtime.effects import effect_of, is_check, written_slots
from svod.schedule.loops import KernelInvocation
from svod.schedule.preschedule import PreSchedule, PreScheduleItem, create_pre_schedule

InputBuffers = Mapping[int, Buffer]  # by the id of the BUFFER node


@dataclass(slots=True)
class ScheduleItem:
    """One invocation of a call, with its buffers and values."""

    call: UOp
    body: UOp
    buffers: list[Buffer]  # in argument order
    buffer_ids: list[int]  # ids of the nodes they belong to
    fixedvars: dict[str, int] = field(default_factory=dict)  # of variables the body mentions
    loop_var_names: frozenset[str] = frozenset()  # of these, the ones a loop counts
    dependencies: Sequence[int] = ()  # ids of calls
    instance_dependencies: list[int] = field(default_factory=list)  # places in the schedule
    alias_ids: tuple[int, ...] = ()
    variables: tuple[VarArg, ...] = ()
    written: frozenset[int] = frozenset({0})  # positions in `buffers`

    @property
    def id(self) -> int:
        return self.call.sn


@dataclass(slots=True)
class ScheduleResult:
    """A schedule and where its results are, in the order of the roots."""

    items: list[ScheduleItem]
    output_ids: list[int]
    buffers: dict[int, Buffer]  # every buffer of the schedule by the id of its node
    given: frozenset[int] = frozenset()  # ids of the nodes whose buffers the caller gave
    inputs: InputBuffers = field(default_factory=dict)  # all the caller gave, used or not


def create_schedule(
    graph: UOp, inputs: InputBuffers, values: Mapping[str, int] | None = None
) -> ScheduleResult:
    """The schedule of a graph of calls."""
    return instantiate(create_pre_schedule(graph), inputs, values or {})


def instantiate(
    schedule: PreSchedule, inputs: InputBuffers, values: Mapping[str, int] | None = None
) -> ScheduleResult:
    """Attach buffers and values to every invocation."""
    held: dict[int, Buffer] = {}
    templates = {item.id: _template(item, inputs, held, values or {}) for item in schedule.items}
    repeats = len(schedule.invocations) > len(templates)
    items = [_invoked(templates, invocation, repeats) for invocation in schedule.invocations]
    if not items:
        raise EmptySchedule("there is nothing to compute")
    if repeats:
        _order_repeats(items)
    for output in schedule.outputs:
        if output.sn not in held and output.sn in inputs:
            held[output.sn] = inputs[output.sn]
    outputs = [output.sn for output in schedule.outputs]
    return ScheduleResult(items, outputs, held, frozenset(held.keys() & inputs.keys()), inputs)


def _invoked(
    templates: Mapping[int, ScheduleItem], invocation: KernelInvocation, repeats: bool
) -> ScheduleItem:
    """The template itself, or a copy of it with the loop counters; they share the buffers."""
    template = templates.get(invocation.call)
    if template is None:
        raise GraphError(f"invocation of unknown kernel id {invocation.call}")
    counters = invocation.fixedvars
    if not counters and not repeats:
        return template
    return ScheduleItem(
        template.call, template.body, template.buffers, template.buffer_ids,
        {**template.fixedvars, **counters}, frozenset(counters), template.dependencies, [],
        template.alias_ids, template.variables, template.written,
    )  # fmt: skip


def device_of(buffers: Sequence[Buffer]) -> str:
    """The first device that is not a disk, which runs nothing; else the CPU."""
    for buffer in buffers:
        if not buffer.device.startswith(DISK_PREFIX):
            return buffer.device
    return canonical("CPU")


def _template(
    item: PreScheduleItem, inputs: InputBuffers, held: dict[int, Buffer], values: Mapping[str, int]
) -> ScheduleItem:
    buffers = []
    target = ""  # found when first needed
    for node, is_required in zip(item.arguments, item.required, strict=True):
        key = node.sn
        found = inputs.get(key) or held.get(key)
        if found is None:
            if is_required:
                raise BufferNotFound(key, f"the schedule before call {item.id}")
            target = target or _target_device(item, inputs, held)
            found = _new_buffer(node, target)
        held[key] = found
        buffers.append(found)
    mentioned = {v.name: values[v.name] for v in item.variables if v.name in values}
    return ScheduleItem(
        item.call, item.body, buffers, [a.sn for a in item.arguments], mentioned,
        dependencies=item.dependencies, alias_ids=item.aliases, variables=item.variables,
        written=written_slots(effect_of(item.body)),
    )  # fmt: skip


def _target_device(item: PreScheduleItem, inputs: InputBuffers, held: Mapping[int, Buffer]) -> str:
    known = [inputs.get(a.sn) or held.get(a.sn) for a in item.arguments]
    return device_of([b for b in known if b is not None])


def _new_buffer(node: UOp, target: str) -> Buffer:
    """Memory for an argument that nobody gave: on the device its node names, else on the call's."""
    if node.op == O.DEFINE_LOCAL:
        if type(node.arg) is not LocalArg:
            raise GraphError(f"DEFINE_LOCAL {node.sn} needs LocalArg(size, id), got {node.arg!r}")
        if node.arg.size <= 0 or node.dtype.kind == "v":
            raise GraphError(f"DEFINE_LOCAL {node.sn} of {node.dtype!r} has no size: {node.arg!r}")
        return Buffer.new(target, node.arg.size, node.dtype)
    device = node.src[-1].arg if node.src else target
    size = node.arg.size if node.op == O.BUFFER else _count(node.arg.shape)
    return Buffer.new(device, size, node.dtype)


def _count(shape: Sequence[int]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _order_repeats(items: Sequence[ScheduleItem]) -> None:
    """Dependencies by place between invocations that touch the same buffer, one of them writing."""
    writer: dict[int, int] = {}
    readers: dict[int, list[int]] = {}
    runs = Counter([item.call for item in items])
    storages: dict[int, list[tuple[int, bool]]] = {}  # turns of a call share their buffers
    for place, item in enumerate(items):
        touched = storages.get(id(item.buffers))
        if touched is None:
            touched = [(b.storage_id, p in item.written) for p, b in enumerate(item.buffers)]
            storages[id(item.buffers)] = touched
        before: set[int] = set()
        for key, writes in touched:
            last = writer.get(key)
            if last is not None:
                call = items[last].call
                if runs[call] > 1 or call.sn not in item.dependencies:  # else ordered by id
                    before.add(last)
            if writes:
                before.update(readers.get(key, ()))
        for key, writes in touched:
            if writes:
                writer[key], readers[key] = place, []
            else:
                readers.setdefault(key, []).append(place)
        if before:
            item.instance_dependencies.extend(sorted(before))


def check_before_writing(schedule: ScheduleResult) -> None:
    """Let everything that writes the caller's memory wait for the checks of indices before it.

    So a run that fails leaves weights, optimizer state and donated arguments as they were, unless
    the indices themselves are computed from what the same run writes.
    """
    checks: list[int] = []
    for place, item in enumerate(schedule.items):
        if is_check(item.body):
            checks.append(place)
        elif checks and any(item.buffer_ids[p] in schedule.given for p in item.written):
            item.instance_dependencies.extend(checks)
