"""A schedule and its compiled kernels to a plan: places for buffers, arguments for kernels.

In: a schedule with buffers attached, a kernel for each call, the names of inputs and outputs. Out:
an ExecutionPlan. Equal buffers share a place in the plan's table, views are made of their bases,
and every input and output that was asked for by name becomes a port.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from svod.base.errors import BufferNotFound, GraphError
from svod.device.buffer import Buffer
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.runtime.builder import ExecutionPlanBuilder
from svod.runtime.config import PrepareConfig
from svod.runtime.effects import effect_of
from svod.runtime.instantiate import ScheduleItem, ScheduleResult, device_of
from svod.runtime.memory import MemoryReport
from svod.runtime.ops import (
    CompiledKernel,
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    PreparedOp,
    RuntimeVar,
    collect_runtime_vars,
)
from svod.runtime.plan import ExecutionPlan
from svod.runtime.ports import Shape

StorageKey: TypeAlias = tuple[int, int, int, object]


@dataclass(frozen=True, slots=True)
class PortNames:
    """Names and shapes for the inputs and outputs of a plan, by the ids of their buffers' nodes."""

    inputs: Mapping[int, tuple[str, Shape | None]] = field(default_factory=dict)
    outputs: Sequence[tuple[str, Shape | None]] = ()  # one per output, in order
    complex: frozenset[str] = frozenset()  # names of those whose floats are complex numbers
    empty: Mapping[int, Buffer] = field(default_factory=dict)  # outputs without elements, by place
    memory: Mapping[int, Buffer] = field(default_factory=dict)  # of inputs that nothing may read
    # Every input is a port, also one that nothing reads, and every output has memory of its own.
    # Else the plan has only inputs that are read, and outputs of one value share their memory.
    is_whole: bool = True


def plan_of_kernels(
    schedule: ScheduleResult,
    kernels: Sequence[CompiledKernel | None],
    config: PrepareConfig,
    names: PortNames | None = None,
    report: MemoryReport | None = None,
) -> ExecutionPlan:
    """The plan of a schedule whose kernels are there; a search binds its candidates by it too."""
    return _Build(schedule, config).plan(kernels, names or PortNames(), report)


def resolve_buffer_indices(item: ScheduleItem, places: Mapping[int, int]) -> list[int]:
    """Places in the plan's buffer table, in the order of the call's arguments."""
    for node in item.buffer_ids:
        if node not in places:
            raise BufferNotFound(node, f"the plan, for call {item.id}")
    return [places[node] for node in item.buffer_ids]


def bind_arguments(item: ScheduleItem, indices: Sequence[int], slots: Sequence[int]) -> list[int]:
    """What a kernel is passed: each of its slots is a position among the call's arguments."""
    for position in slots:
        if not 0 <= position < len(indices):
            raise GraphError(
                f"ProgramSpec.globals position {position} is out of range for call {item.id} with "
                f"{len(indices)} buffers (buffer ids {list(item.buffer_ids)})"
            )
    return [indices[position] for position in slots]


def output_positions(slots: Sequence[int], outs: Sequence[int], count: int) -> list[int]:
    """Positions among the passed buffers that a kernel writes, ascending, each once."""
    if count == 0:
        raise GraphError("cannot map outputs for a kernel with zero buffers")
    if not slots:
        raise GraphError("ProgramSpec.globals is empty")
    if not outs:
        raise GraphError("ProgramSpec.outs is empty")
    place = {slot: position for position, slot in enumerate(slots)}
    found = set()
    for slot in outs:
        if slot not in place:
            raise GraphError(f"ProgramSpec.outs slot {slot} is not in globals={list(slots)}")
        if place[slot] >= count:
            raise GraphError(
                f"ProgramSpec output position {place[slot]} (slot {slot}) is out of range for "
                f"{count} buffers"
            )
        found.add(place[slot])
    return sorted(found)


# -- building -------------------------------------------------------------------------------------


def _turn(first: PreparedKernel, item: ScheduleItem) -> PreparedKernel:
    """A further turn of a kernel in a loop: all but the counters is shared with the first."""
    values, counted = item.fixedvars, item.loop_var_names
    names = first.kernel.var_names
    vals = [values[n] if n in counted else v for n, v in zip(names, first.vals, strict=True)]
    return PreparedKernel(
        first.id, first.ast, first.kernel, first.device, first.buffer_indices,
        first.output_indices, vals, {n: values[n] for n in counted}, first.dependencies,
        runtime_vars=first.runtime_vars,
    )  # fmt: skip


class _Build:
    """The builder of a plan, and where each buffer of the schedule went."""

    def __init__(self, schedule: ScheduleResult, config: PrepareConfig) -> None:
        self.schedule = schedule
        buffers = [b for i in schedule.items for b in i.buffers]
        device = config.resolve_device(device_of(buffers))
        self.builder = ExecutionPlanBuilder(device.name)
        self.places: dict[int, int] = {}  # by the id of a node
        self.shared: dict[StorageKey, int] = {}
        # A view's place gets another buffer later, so it is never merged with others.
        self.views = {
            i.buffer_ids[0]
            for i in schedule.items
            if effect_of(i.body).op == O.BUFFER_VIEW and i.buffer_ids
        }

    def plan(
        self,
        kernels: Sequence[CompiledKernel | None],
        names: PortNames,
        report: MemoryReport | None,
    ) -> ExecutionPlan:
        schedule, builder = self.schedule, self.builder
        seen: set[int] = set()
        for item in schedule.items:
            if item.id in seen:  # a further turn of a loop
                continue
            seen.add(item.id)
            for node, buffer in zip(item.buffer_ids, item.buffers, strict=True):
                if node not in self.places:
                    self._place(node, buffer)
            builder.add_alias_ids(item.alias_ids)
        variables: dict[UOp, tuple[RuntimeVar, ...]] = {}
        first: dict[int, PreparedOp] = {}
        for item, kernel in zip(schedule.items, kernels, strict=True):
            known = first.get(item.id)
            if isinstance(known, PreparedKernel) and kernel is known.kernel:
                op: PreparedOp = _turn(known, item)
            else:
                op = self._op(item, kernel, variables)
                first.setdefault(item.id, op)
            builder.add_op_with_instance_dependencies(op, item.instance_dependencies)
        outputs = [self._output(node) for node in schedule.output_ids]
        if not outputs:
            raise GraphError("a plan needs at least one output")
        for position, buffer in sorted(names.empty.items()):
            outputs.insert(position, builder.append_buffer(buffer))
        if names.is_whole:
            outputs[: len(names.outputs)] = self._apart(outputs[: len(names.outputs)])
        builder.set_output_buffers(outputs)
        for node, (name, shape) in names.inputs.items():
            if names.is_whole and node not in self.places:  # simplification left no reader
                held = schedule.inputs.get(node) or names.memory.get(node)
                if held is None:
                    continue
                self._place(node, held)
            if node in self.places:
                builder.name_input(name, self.places[node], shape, name in names.complex)
        for (name, shape), place in zip(names.outputs, outputs, strict=False):
            builder.name_output(name, place, shape, name in names.complex)
        if report is not None:
            builder.set_memory_report(report)
        return builder.build()

    def _place(self, node: int, buffer: Buffer) -> None:
        if node not in self.views:  # those get memory of their base
            buffer.allocate()
        key = (buffer.storage.id, buffer.offset, buffer.size, buffer.dtype)
        place = None if node in self.views else self.shared.get(key)
        if place is None:
            place = self.builder.add_buffer(node, buffer)
            if node not in self.views:
                self.shared[key] = place
        else:
            self.builder.map_buffer(node, place)
        self.places[node] = place

    def _output(self, node: int) -> int:
        if node not in self.places:
            buffer = self.schedule.buffers.get(node)
            if buffer is None:
                raise BufferNotFound(node, "the plan, as an output")
            self._place(node, buffer)
        return self.places[node]

    def _apart(self, outputs: Sequence[int]) -> list[int]:
        """The outputs with a copy for each further one of a value, so that all can be bound."""
        found: list[int] = []
        for place in outputs:
            found.append(self.builder.add_copy(place) if place in found else place)
        return found

    def _op(
        self,
        item: ScheduleItem,
        kernel: CompiledKernel | None,
        variables: dict[UOp, tuple[RuntimeVar, ...]],
    ) -> PreparedOp:
        effect = effect_of(item.body)
        indices = resolve_buffer_indices(item, self.places)
        waits = list(item.dependencies)
        if effect.op == O.COPY:
            return PreparedCopy(item.id, indices, waits)
        if effect.op == O.BUFFER_VIEW:
            return self._view(item, effect, indices, waits)
        counters = {name: item.fixedvars[name] for name in item.loop_var_names}
        if effect.op == O.CUSTOM_FUNCTION:
            return PreparedCustomFunction(
                item.id, effect.arg.kind, effect.arg.attrs, indices, counters, waits,
                collect_runtime_vars(effect.arg.attrs), dict(item.fixedvars),
            )  # fmt: skip
        assert kernel is not None
        found = variables.get(item.body)
        if found is None:
            found = tuple([RuntimeVar(*v) for v in item.variables])
            variables[item.body] = found
        lowest = {v.name: v.min_val for v in found}
        chosen = bind_arguments(item, indices, kernel.globals)
        return PreparedKernel(
            item.id, item.body, kernel, device_of(item.buffers), chosen,
            self._outputs_of(item, kernel, len(chosen)),
            [item.fixedvars.get(n, lowest.get(n, 0)) for n in kernel.var_names],
            counters, waits, runtime_vars=found,
        )  # fmt: skip

    def _outputs_of(self, item: ScheduleItem, kernel: CompiledKernel, count: int) -> list[int]:
        try:
            return output_positions(kernel.globals, kernel.outs, count)
        except GraphError as problem:
            raise GraphError(
                f"invalid output metadata for kernel id {item.id} "
                f"(globals={list(kernel.globals)}, outs={list(kernel.outs)}, "
                f"buffers={count}): {problem}"
            ) from problem

    def _view(
        self, item: ScheduleItem, effect: UOp, indices: list[int], waits: list[int]
    ) -> PreparedBufferView:
        if len(indices) < 2:
            raise GraphError(
                f"BUFFER_VIEW call {item.id} needs a view and its base, got {len(indices)} buffers"
            )
        base = self.builder.buffer_at(indices[1])
        offset = effect.arg.offset * base.dtype.itemsize
        size = effect.arg.size * effect.dtype.itemsize
        try:
            view = base.view(offset, effect.arg.size, effect.dtype)
        except ValueError as problem:
            raise GraphError(
                f"BUFFER_VIEW failed for call {item.id}: base buffer {base.id}, "
                f"byte offset {offset}, byte size {size}: {problem}"
            ) from problem
        self.builder.replace_buffer(indices[0], view)
        return PreparedBufferView(item.id, indices, offset, size, waits)
