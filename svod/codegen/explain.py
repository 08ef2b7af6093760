"""Everything a person may want to know of one kernel, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from svod.codegen.naming import kernel_name
from svod.codegen.pipeline import in_order, machine_operations, optimized, work_of
from svod.codegen.render.c import render_c
from svod.codegen.render.nest import render_nest
from svod.codegen.target import Choices, Target
from svod.codegen.targets.cpu import cpu_target
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.optimize.graph import renumber
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from svod.optimize.untiled import why_plain
from svod.schedule.rangeify import rangeify
from svod.schedule.sorts import is_sort

ANY_TARGET = cpu_target(Machine())


def explain(body: UOp, target: Target[Any] = ANY_TARGET, *, with_c: bool = True) -> str:
    """Name, opts, work, loop nest and C text of the kernel that computes ``body``."""
    return explain_loops(body, *optimized(body, target), target, with_c=with_c)


def explain_loops(
    body: UOp,
    kernel: UOp,
    opts: Sequence[Opt],
    target: Target[Any] = ANY_TARGET,
    *,
    by: str = "",
    with_c: bool = True,
) -> str:
    """The same for loops that opts made of the body; ``by`` says whose choice they are."""
    grid = sorted({n for n in kernel.toposort() if n.op == O.SPECIAL}, key=lambda n: str(n.arg))
    flops, moved = work_of(body, rangeify(body) if grid else kernel)  # of all threads
    name = kernel_name(body)
    parts = [
        f"kernel {name}",
        f"opts   {', '.join(map(str, opts)) or 'none'}{f' ({by})' if by else ''}",
        f"work   {flops:,} flops, {moved:,} bytes at least",
    ]
    if is_sort(kernel):
        return "\n".join(parts) + "\n"
    if reason := why_plain(renumber(rangeify(body)), kernel, opts, target.machine):
        parts.append(reason)
    if grid:
        parts.append(f"grid   {', '.join([f'{n.arg}:{n.src[0].arg}' for n in grid])}")
    parts += [
        "loops",
        "\n".join([f"  {line}" for line in render_nest(kernel).split("\n")]),
    ]
    if with_c:
        lowered = machine_operations(kernel, target, Choices(target.machine, tuple(opts)))
        parts += ["code", render_c(name, lowered, in_order(lowered)).rstrip()]
    return "\n".join(parts) + "\n"
