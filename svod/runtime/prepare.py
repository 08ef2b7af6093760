"""A schedule to a plan: share memory, compile kernels, give everything its place.

In: a schedule with buffers attached, and a configuration. Out: an ExecutionPlan. All that can fail
fails here or in the builder: buffers take their memory, kernels are compiled, arguments are bound.
"""

from __future__ import annotations

from collections.abc import Sequence

from svod.base.errors import EmptySchedule
from svod.base.timing import span
from svod.device.buffer import Buffer
from svod.device.cpu.compiler import object_store
from svod.device.names import base_key
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.runtime.assemble import PortNames, plan_of_kernels
from svod.runtime.caches import compiled_kernels
from svod.runtime.config import PrepareConfig
from svod.runtime.effects import RUNTIME_EFFECTS, effect_of, is_check
from svod.runtime.instantiate import ScheduleItem, ScheduleResult, device_of
from svod.runtime.memory import (
    MemoryItem,
    MemoryReport,
    apply_reuse_dependencies,
    masked_slots,
    plan_memory,
)
from svod.runtime.native import load
from svod.runtime.ops import CompiledKernel
from svod.runtime.plan import ExecutionPlan


def prepare_plan(
    schedule: ScheduleResult,
    config: PrepareConfig | None = None,
    names: PortNames | None = None,
) -> ExecutionPlan:
    """The plan of a schedule."""
    config = config or PrepareConfig.from_environment()
    items = schedule.items
    if not items:
        raise EmptySchedule("there is nothing to compute")
    report = None
    if len(items) > 1:
        with span("plan memory"):
            report = _share_memory(schedule, config)
    kernels = _compile(items, config)
    _load_launcher()
    with span("build plan"):
        return plan_of_kernels(schedule, kernels, config, names, report)


# -- memory and code ------------------------------------------------------------------------------


def _share_memory(schedule: ScheduleResult, config: PrepareConfig) -> MemoryReport:
    """Let intermediates share bytes; outputs and what callers gave keep their memory."""
    items = schedule.items
    wanted = []
    # Turns of a loop share their buffers.
    facts: dict[int, tuple[tuple[Buffer, ...], bool, frozenset[int]]] = {}
    for item in items:
        known = facts.get(id(item.buffers))
        if known is None:
            effect = effect_of(item.body)
            is_kernel = effect.op == O.SINK
            masked = masked_slots(effect) if is_kernel else frozenset()
            known = facts[id(item.buffers)] = (tuple(item.buffers), is_kernel, masked)
        held, is_kernel, masked = known
        waits = item.instance_dependencies
        wanted.append(
            MemoryItem(item.id, held, item.dependencies, item.written, waits, is_kernel, masked)
        )
    stay = [n for n in schedule.output_ids if n in schedule.buffers] + list(schedule.given)
    stay += [n for i in items if is_check(i.body) for n in i.buffer_ids]  # looked at after a run
    plan = plan_memory(wanted, {schedule.buffers[n].id for n in stay}, config.memory)
    if plan.replacements:
        apply_reuse_dependencies(plan.dependencies, [i.instance_dependencies for i in items])
        placed = {
            key: [plan.replacements.get(b.id, b) for b in own] for key, (own, _, _) in facts.items()
        }
        for item in items:
            item.buffers = placed[id(item.buffers)]
    return plan.report


def _compile(items: Sequence[ScheduleItem], config: PrepareConfig) -> list[CompiledKernel | None]:
    """The kernel of each item, None for copies, views and custom functions."""
    known: dict[tuple[UOp, int], str | None] = {}  # turns of a loop share their buffers
    for i in items:
        key = (i.body, id(i.buffers))
        if key not in known:
            is_kernel = effect_of(i.body).op not in RUNTIME_EFFECTS
            known[key] = base_key(device_of(i.buffers)) if is_kernel else None
    kinds = [known[i.body, id(i.buffers)] for i in items]
    bodies: dict[str, list[UOp]] = {}
    for (body, _), kind in known.items():
        if kind is not None:
            bodies.setdefault(kind, []).append(body)
    values = {item.body: item.fixedvars for item in reversed(items)}  # those of the first call
    made = {kind: compiled_kernels(found, kind, config, values) for kind, found in bodies.items()}
    return [
        None if kind is None else made[kind][item.body]
        for kind, item in zip(kinds, items, strict=True)
    ]


def _load_launcher() -> None:
    """The launcher's code is kept beside the kernels', so a warm process never loads LLVM."""
    store = object_store()
    if store is None:
        return

    def put(key: str, binary: bytes) -> None:
        store.put(key, binary)

    load(store.get, put)
