"""The output of SVOD_DEBUG=1..3: cache hits, kernels with their time, schedules.

The levels above are printed where they happen: 4 (the graph after each pass) and 5 (LLVM IR) by
the pipeline, 6 (assembly) by the compiler. Loaded only when the knob is set.
"""

from __future__ import annotations

from functools import cache
from time import perf_counter_ns
from typing import Any

from svod.base.knobs import knobs
from svod.base.log import debug
from svod.codegen.naming import kernel_name
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.runtime.plan import ExecutionPlan
from svod.schedule.schedule import PreSchedule


class Watch:
    """Clocks and cache counters around one preparation and its run."""

    def __init__(self, word: str, tensors: int) -> None:
        self.what = f"{word} {tensors} {'tensor' if tensors == 1 else 'tensors'}"
        _say_device()
        self.before = _counts()
        self.start_ns = perf_counter_ns()

    def prepared(self, plan: ExecutionPlan) -> None:
        """Say what preparation took and what the caches gave."""
        took = perf_counter_ns() - self.start_ns
        found = {name: after - self.before[name] for name, after in _counts().items()}
        caches = ", ".join([f"{name} {count}" for name, count in found.items() if count])
        debug(
            1,
            f"{self.what}: prepared in {took / 1e6:.3f} ms, {_ops(plan)}; "
            f"{caches or 'no cache used'}",
        )

    def execute(self, plan: ExecutionPlan) -> None:
        """Run, and say how long it took: in all, or from level 2 on per kernel."""
        if knobs.debug >= 2:
            from svod.runtime.roofline import measured_roofline

            debug(2, f"kernels\n{plan.profile(roofline=measured_roofline())}")
            return
        start_ns = perf_counter_ns()
        plan.execute()
        debug(1, f"{self.what}: ran in {(perf_counter_ns() - start_ns) / 1e6:.3f} ms")


def _ops(plan: ExecutionPlan) -> str:
    count = len(plan.prepared_ops())
    return f"{count} {'op' if count == 1 else 'ops'}"


def say_schedule(schedule: PreSchedule) -> None:
    """One line per call: what runs, what it writes and reads, which calls it waits for."""
    numbers = {item.call.sn: i for i, item in enumerate(schedule.items)}
    count = len(schedule.items)
    lines = [f"schedule of {count} {'call' if count == 1 else 'calls'}"]
    for number, item in enumerate(schedule.items):
        shapes = _shapes(item.body)
        target, *sources = [
            f"{_name(a, schedule)} {a.dtype!r}[{','.join(map(str, shapes.get(slot, a.shape)))}]"
            for slot, a in enumerate(item.arguments)
        ]
        waits = ", ".join([str(numbers[d]) for d in item.dependencies if d in numbers])
        lines.append(
            f"  {number}: {_role(item.body)}  {target} <- {', '.join(sources) or 'nothing'}"
            + (f"  after {waits}" if waits else "")
        )
    debug(3, "\n".join(lines))


def _role(body: UOp) -> str:
    if body.op == O.COPY:
        return f"copy to {body.src[1].arg}"
    if body.op == O.CUSTOM_FUNCTION:
        return f"function {body.arg.kind}"
    return kernel_name(body)


def _shapes(body: UOp) -> dict[int, tuple[Any, ...]]:
    """The shapes under which a kernel sees its buffers, by slot."""
    found: dict[int, tuple[Any, ...]] = {}
    for node in body.toposort():
        inner = node.src[0] if node.op == O.RESHAPE else node
        if inner.op == O.PARAM and (node is not inner or len(node.shape) > 1):
            found.setdefault(inner.arg.slot, node.shape)
    return found


def _name(node: UOp, schedule: PreSchedule) -> str:
    """An input, an output, or a buffer between calls: ``in0``, ``out0``, ``tmp3``."""
    if node.op == O.PARAM:
        return f"in{node.arg.slot}"
    if node in schedule.outputs:
        return f"out{schedule.outputs.index(node)}"
    if node.src and node.src[0].op == O.LUNIQUE:
        return f"tmp{node.src[0].arg}"
    return O.NAMES[node.op].lower()


@cache
def _say_device() -> None:
    from svod.base.threads import thread_budget
    from svod.device.cpu.host import host_machine

    machine = host_machine()
    debug(
        1,
        f"device CPU: vectors of {machine.vector_bytes} bytes, {thread_budget().threads} threads; "
        f"default device {knobs.device}",
    )


def _counts() -> dict[str, int]:
    from svod.device.cpu.compiler import counters
    from svod.runtime import caches
    from svod.schedule import schedule

    found: dict[str, int] = {}
    for word, module in (("schedule", schedule), ("kernel", caches)):
        hits, misses = _hits_and_misses(module)
        found |= {f"{word} hits": hits, f"{word} misses": misses}
    return found | {
        "objects loaded": counters["loaded"],
        "objects compiled": counters["compiled"],
    }


def _hits_and_misses(module: Any) -> tuple[int, int]:
    counted = getattr(module, "statistics", None)
    if isinstance(counted, dict):
        return counted["hits"], counted["misses"]
    cache = module.schedules if hasattr(module, "schedules") else module.kernels
    return cache.hits, cache.misses
