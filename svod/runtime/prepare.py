"""A pre-schedule and buffers to an ExecutionPlan: instantiate, plan memory, compile, build."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from svod.base.errors import BufferNotFound, EmptySchedule
from svod.base.timing import span
from svod.device.buffer import Buffer
from svod.device.cpu.compiler import object_store
from svod.device.names import DISK_PREFIX, base_key, canonical
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.runtime.builder import ExecutionPlanBuilder
from svod.runtime.caches import compiled_kernels
from svod.runtime.memory import MemoryItem, MemoryMode, plan_memory
from svod.runtime.native import load
from svod.runtime.ops import CompiledKernel, PreparedCopy, PreparedCustomFunction, PreparedKernel
from svod.runtime.plan import ExecutionPlan
from svod.schedule.schedule import PreSchedule, PreScheduleItem


@dataclass(slots=True)
class ScheduleItem:
    """A call with its buffers."""

    item: PreScheduleItem
    buffers: list[Buffer]
    ids: list[int]  # graph ids of the buffers


def instantiate(schedule: PreSchedule, inputs: Sequence[Buffer]) -> tuple[list[ScheduleItem], list[Buffer], list[int]]:
    """Buffers for every call: the given inputs, and new ones for what is made on the way."""
    local: dict[UOp, Buffer] = {}

    def buffer_for(node: UOp) -> Buffer:
        if node.op == O.PARAM:
            if node.arg.slot >= len(inputs):
                raise BufferNotFound(node.arg.slot, "instantiate")
            return inputs[node.arg.slot]
        found = local.get(node)
        if found is None:
            device = node.src[-1].arg
            found = local[node] = Buffer.new(device, node.arg.size, node.dtype)
        return found

    items = [
        ScheduleItem(i, [buffer_for(a) for a in i.arguments], [a.sn for a in i.arguments])
        for i in schedule.items
    ]
    outputs = [buffer_for(o) for o in schedule.outputs]
    return items, outputs, [o.sn for o in schedule.outputs]


def device_of(buffers: Sequence[Buffer]) -> str:
    """The first device that is not a disk."""
    for buffer in buffers:
        if not buffer.device.startswith(DISK_PREFIX):
            return buffer.device
    return canonical("CPU")


def prepare_plan(
    schedule: PreSchedule, inputs: Sequence[Buffer], memory: MemoryMode | None = None
) -> ExecutionPlan:
    """The plan of a schedule over these inputs."""
    items, outputs, output_ids = instantiate(schedule, inputs)
    if not items and not outputs:
        raise EmptySchedule("there is nothing to compute")
    instance: list[list[int]] = [[] for _ in items]
    report = None
    if len(items) > 1:
        with span("plan memory"):
            report = _share_memory(items, inputs, outputs, instance, memory)
    kernels = _kernels(items)
    _load_launcher()
    with span("build plan"):
        return _build(items, outputs, output_ids, instance, kernels, report)


def _load_launcher() -> None:
    """The launcher's code is kept beside the kernels', so a warm process never loads LLVM."""
    store = object_store()
    if store is not None:
        load(store.get, store.put)


def _share_memory(items, inputs, outputs, instance, mode):  # type: ignore[no-untyped-def]
    memory_items = []
    for index, item in enumerate(items):
        body = item.item.body
        memory_items.append(
            MemoryItem(
                item.item.call.sn, tuple(item.buffers), item.item.dependencies, frozenset({0}),
                instance[index], is_kernel=body.op == O.SINK,
            )  # fmt: skip
        )
    keep = {b.id for b in outputs} | {b.id for b in inputs}
    plan = plan_memory(memory_items, keep, mode)
    if plan.replacements:
        from svod.runtime.memory import apply_reuse_dependencies

        apply_reuse_dependencies(plan.dependencies, instance)
        for item in items:
            item.buffers = [plan.replacements.get(b.id, b) for b in item.buffers]
    return plan.report


def _kernels(items: list[ScheduleItem]) -> list[CompiledKernel | None]:
    by_kind: dict[str, list[UOp]] = {}
    kinds: list[str | None] = []
    for item in items:
        if item.item.body.op != O.SINK:
            kinds.append(None)
            continue
        kind = base_key(device_of(item.buffers))
        kinds.append(kind)
        by_kind.setdefault(kind, []).append(item.item.body)
    compiled = {kind: compiled_kernels(bodies, kind) for kind, bodies in by_kind.items()}
    return [
        None if kind is None else compiled[kind][item.item.body]
        for kind, item in zip(kinds, items, strict=True)
    ]


def _build(items, outputs, output_ids, instance, kernels, report) -> ExecutionPlan:  # type: ignore[no-untyped-def]
    primary = device_of([b for i in items for b in i.buffers] + list(outputs))
    builder = ExecutionPlanBuilder(primary)
    places: dict[tuple[int, int, int, object], int] = {}

    def place(node_id: int, buffer: Buffer) -> int:
        key = (buffer.storage.id, buffer.offset, buffer.size, buffer.dtype)
        found = places.get(key)
        if found is None:
            found = places[key] = builder.add_buffer(node_id, buffer)
        else:
            builder.map_buffer(node_id, found)
        return found

    for index, (item, kernel) in enumerate(zip(items, kernels, strict=True)):
        where = [place(i, b) for i, b in zip(item.ids, item.buffers, strict=True)]
        call, body = item.item.call, item.item.body
        waits = list(item.item.dependencies)
        if body.op == O.COPY:
            op = PreparedCopy(call.sn, where, waits)
        elif body.op == O.CUSTOM_FUNCTION:
            op = PreparedCustomFunction(call.sn, body.arg.kind, body.arg.attrs, where, {}, waits)
        else:
            assert kernel is not None
            chosen = [where[slot] for slot in kernel.globals]
            written = [kernel.globals.index(slot) for slot in kernel.outs]
            op = PreparedKernel(
                call.sn, body, kernel, device_of(item.buffers), chosen, written,
                vals=[0] * len(kernel.var_names), dependencies=waits,
            )  # fmt: skip
        builder.add_op_with_instance_dependencies(op, instance[index])
    builder.set_output_buffers([place(i, b) for i, b in zip(output_ids, outputs, strict=True)])
    if report is not None:
        builder.set_memory_report(report)
    return builder.build()
