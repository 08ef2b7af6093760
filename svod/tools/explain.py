"""`svod.explain`: what a tensor or a plan turns into, kernel by kernel, without running it.

Every kernel is shown as its own device makes it: loops of threads for a GPU, of cores for the CPU.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from svod.base.errors import ArgumentError, EmptySchedule
from svod.codegen.choice import PLAINER, Chosen, compilable, explicit_loops
from svod.codegen.explain import explain_loops
from svod.codegen.pipeline import generate_from
from svod.codegen.target import KernelCode
from svod.codegen.targets.cpu import cpu_target, plain_loops
from svod.device.cpu.host import host_machine
from svod.device.device import Device
from svod.device.names import DISK_PREFIX, base_key
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from svod.runtime.chosen import known_loops
from svod.runtime.config import OptimizerConfig, PrepareConfig
from svod.runtime.plan import ExecutionPlan
from svod.schedule.preschedule import PreScheduleItem
from svod.schedule.sorts import is_sort
from svod.tensor.core.tensor_core import Core
from svod.tensor.core.tensor_registry import buffer_node
from svod.tensor.recording.realize import schedule_of

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


class _Kernel(NamedTuple):
    """A kernel to explain; the opts of its loops where they are chosen already."""

    body: UOp
    device: str
    choice: tuple[tuple[Opt, ...], str] | None = None


def explain(*things: Tensor | ExecutionPlan, code: bool = False, config: Any = None) -> None:
    """Print every kernel that tensors or a plan need: name, opts, estimated work, loops.

    With ``code=True`` also the C-like text. Tensors that share work are best given together. The
    opts are those of the plan; for tensors, those that ``prepare`` with this ``config`` takes: a
    given list, the tuned store, or the heuristics. Nothing is searched for.
    """
    print(explanation(*things, code=code, config=config), end="")


def explanation(*things: Tensor | ExecutionPlan, code: bool = False, config: Any = None) -> str:
    """The text that `explain` prints."""
    settings = PrepareConfig.of(config)
    kernels: list[_Kernel] = []
    unknown: Counter[str] = Counter()  # kernels of saved plans: machine code without a graph
    for plan in [t for t in things if isinstance(t, ExecutionPlan)]:
        for op in plan.prepared_kernels():
            if op.ast.src:
                kernels.append(_Kernel(op.ast, base_key(op.device), op.kernel.choice))
            else:
                unknown[op.kernel.entry_point] += 1
    tensors: list[Any] = [t for t in things if not isinstance(t, ExecutionPlan)]
    for t in tensors:
        if not isinstance(t, Core):
            raise ArgumentError(f"explain takes tensors and plans, not a {type(t).__name__}")
    pending = [t for t in tensors if buffer_node(t.uop) is None]
    if pending:
        schedule, _ = schedule_of(pending, settings)
        items = [item for item in schedule.items if item.body.op == O.SINK]
        kernels += [_Kernel(item.body, base_key(_device_of(item))) for item in items]
    if not kernels and len(pending) < len(tensors):
        raise EmptySchedule("nothing to explain: every tensor is realised")
    parts = []
    for kernel, calls in Counter(kernels).items():  # in the order of the first call
        text = _explained(kernel, settings, code)
        parts.append(text if calls == 1 else f"{calls} calls of\n{text}")
    for name, calls in unknown.items():
        times = "" if calls == 1 else f"{calls} calls of "
        parts.append(
            f"{times}kernel {name}: the saved plan holds its machine code, not its loops\n"
        )
    return "\n".join([_summary([*kernels, *unknown.elements()]), *parts])


def _device_of(item: PreScheduleItem) -> str:
    """The device that computes a call: that of the first argument which is not a file."""
    places = [s.arg for node in item.arguments for s in node.src if s.op == O.DEVICE]
    return next((p for p in places if not p.startswith(DISK_PREFIX)), "CPU")


def _explained(kernel: _Kernel, settings: PrepareConfig, code: bool) -> str:
    """What one kernel turns into on its device; one that no compiler makes is as on this CPU."""
    device = settings.resolve_device(kernel.device)
    if device.runs_programs and device.planning is not None:
        return _planned(device.planning.code(kernel.body), code)
    machine = machine_for(device)
    found = chosen_loops(kernel.body, kernel.choice, machine, settings.optimizer)
    return compilable(kernel.body, found, machine, partial(_text, kernel, machine, code))


def machine_for(device: Device) -> Machine:
    """The machine that a device compiles for; this CPU where it compiles nothing."""
    target = device.target if device.runs_programs else None
    return host_machine() if target is None else target.machine


def _planned(found: KernelCode, code: bool) -> str:
    """A kernel whose loops its device chooses; its text is what the device's compiler gets."""
    text = explain_loops(found.body, found.kernel, found.opts, found.target, with_c=False)
    return f"{text}code\n{found.text().source.rstrip()}\n" if code else text


def _text(kernel: _Kernel, machine: Machine, code: bool, found: Chosen) -> str:
    """What one kernel turns into, if these loops can be lowered."""
    by = "" if found.by == "heuristics" else found.by
    if not code and kernel.choice is None:
        generate_from(kernel.body, found.loops, found.opts, cpu_target(machine))
    return explain_loops(
        kernel.body, found.loops, found.opts, cpu_target(machine), by=by, with_c=code
    )


def chosen_loops(
    body: UOp,
    choice: tuple[tuple[Opt, ...], str] | None,
    machine: Machine,
    config: OptimizerConfig,
) -> Chosen:
    """The loops of a kernel: those of its plan, else those a plan would have now."""
    if choice is None or is_sort(body):
        return known_loops(body, machine, config)
    opts, by = choice
    if by == "nobody" or (by.startswith(PLAINER) and not opts):
        return Chosen(plain_loops(body, machine), opts, by)
    return Chosen(explicit_loops(body, opts, machine), opts, by)


def _summary(kernels: list[_Kernel | str]) -> str:
    distinct = len(set(kernels))
    calls = "1 call" if len(kernels) == 1 else f"{len(kernels)} calls"
    return f"{calls} of {distinct} distinct {'kernel' if distinct == 1 else 'kernels'}\n"
