"""From one kernel's tensor graph to its text: the passes of a target, run in order."""

from __future__ import annotations

from typing import TypeVar

from svod.base.knobs import knobs
from svod.base.timing import span
from svod.codegen.linearize import Loop, linearize
from svod.codegen.naming import kernel_name
from svod.codegen.target import Choices, KernelCode, Target
from svod.ir import ops as O
from svod.ir.node import UOp, elements
from svod.ir.passes import run_passes, tensors_hold
from svod.optimize.dots import PARTS
from svod.optimize.graph import evaluations
from svod.optimize.opts import CORE, Opt
from svod.schedule.sorts import is_sort

M = TypeVar("M")


def generate(
    body: UOp,
    target: Target[M],
    is_plain: bool = False,
    given: tuple[Opt, ...] | None = None,
) -> KernelCode:
    """All passes for one kernel, with opts that are given or chosen; a plain one takes no loops
    that could be refused."""
    choices = Choices(target.machine, given=given, is_plain=is_plain)
    return _lowered(body, _chosen(body, target, choices), target, choices)


def optimized(body: UOp, target: Target[M]) -> tuple[UOp, tuple[Opt, ...]]:
    """The loop nest of a kernel after the opts, and the opts."""
    choices = Choices(target.machine)
    return _chosen(body, target, choices), choices.opts


def generate_from(
    body: UOp, kernel: UOp, opts: tuple[Opt, ...], target: Target[M], symbol: str = ""
) -> KernelCode:
    """The passes after the opts have been chosen; ``symbol`` is another name for the function."""
    return _lowered(body, kernel, target, Choices(target.machine, opts), symbol)


def machine_operations(kernel: UOp, target: Target[M], choices: Choices[M]) -> UOp:
    """What is left to do after the opts, up to the graph that is put in order."""
    return kernel if is_sort(kernel) else run_passes(target.lowering, kernel, choices)


def in_order(lowered: UOp) -> Loop:
    """The tree of loops that a renderer reads."""
    if is_sort(lowered):
        return Loop(None, items=[lowered.src[0]])
    with span("linearize"):
        return linearize(lowered)


def _chosen(body: UOp, target: Target[M], choices: Choices[M]) -> UOp:
    if knobs.verify:
        tensors_hold(body, "cut")
    return run_passes(target.sorting if is_sort(body) else target.choosing, body, choices)


def _lowered(
    body: UOp, kernel: UOp, target: Target[M], choices: Choices[M], symbol: str = ""
) -> KernelCode:
    name = symbol or kernel_name(body)
    lowered = machine_operations(kernel, target, choices)
    code = KernelCode(
        target, name, symbol or f"{name}_{kernel.content_hash[:10]}", body, kernel, choices.opts,
        lowered, in_order(lowered),
    )  # fmt: skip
    if choices.unaligned is not None:
        code.unaligned = in_order(machine_operations(choices.unaligned, target, choices))
    return code


def work_of(body: UOp, kernel: UOp) -> tuple[int, int]:
    """Arithmetic operations on all cores, and the bytes of every buffer touched once."""
    flops = 0
    cores = 1
    for n in kernel.toposort():
        if n.op == O.DEFINE_VAR and n.arg.name == CORE:
            cores = n.arg.hi + 1
        elif n.op in O.ALU and n.dtype.kind == "f" and n.op != O.WHERE:
            flops += evaluations(n)
        elif n.op == O.DOT:  # and one more in the sum, where sums are counted
            flops += evaluations(n) * (2 * PARTS[n.arg] - (n.dtype.kind == "f"))
        elif n.op == O.REDUCE and n.dtype.kind == "f":
            flops += evaluations(n.src[0])
    return flops * cores, bytes_moved(body.toposort())


def bytes_moved(nodes: list[UOp]) -> int:
    """The bytes of all arguments."""
    return sum([elements(n.arg.shape) * n.dtype.itemsize for n in nodes if n.op == O.PARAM])
