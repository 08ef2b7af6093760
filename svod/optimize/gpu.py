"""Loop choices for GPUs: which axes are blocks, which are threads, which are vectors.

In: a kernel as rangeify made it. Out: the same kernel with SPECIAL indices in place of parallel
loops, and the opts that say what was done. ``PLANNERS`` are asked in order, and the first plan is
taken; where there is none, a thread computes a vector of outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.optimize.actions import OptimizeError, chain, merge_adjacent
from svod.optimize.gpu_attention import optimize_attention
from svod.optimize.gpu_attention_gradient import optimize_gradient
from svod.optimize.gpu_boxes import optimize_boxes
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_outputs import spread_outputs
from svod.optimize.gpu_rows import shared_reduction
from svod.optimize.gpu_scan import optimize_scan
from svod.optimize.gpu_tile import optimize_tile
from svod.optimize.gpu_windows import optimize_windows
from svod.optimize.graph import renumber
from svod.optimize.opts import Opt


class Planner(NamedTuple):
    """One way to run a kernel."""

    name: str
    plan: Callable[[UOp, GpuMachine, list[Opt]], UOp | None]  # notes its opts; None has no plan
    is_whole: bool  # whether the scheduler keeps kernels together for it
    why: str


PLANNERS: tuple[Planner, ...] = (
    Planner("attention", optimize_attention, True, "scores stay in registers, keys in a ring"),
    Planner("attention gradient", optimize_gradient, True, "scores are computed again per block"),
    Planner("boxes", optimize_boxes, True, "the copy engine brings windows of channels"),
    Planner("tile", optimize_tile, False, "a product in tiles, on tensor cores where it can be"),
    Planner("windows", optimize_windows, True, "a float32 product with windows, read in place"),
    Planner("scan", optimize_scan, False, "threads of a block share a running sum"),
    Planner("rows", shared_reduction, False, "threads of a block share a reduction"),
)


def optimize_gpu(
    sink: UOp, machine: GpuMachine, is_plain: bool = False
) -> tuple[UOp, tuple[Opt, ...]]:
    """Choose and apply a plan; a plain one has a thread per output and shares nothing."""
    sink = merge_adjacent(sink)
    applied: list[Opt] = []
    if not is_plain and len(sink.src) == 1 and sink.src[0].src[0].arg != "ordered":
        for planner in PLANNERS:
            planned = planner.plan(sink, machine, applied)
            if planned is not None:
                return renumber(planned), tuple(applied)
    ends = [spread_outputs(sink, end, machine, applied) for end in sink.src]
    return renumber(make(O.SINK, dt.void, tuple(ends))), tuple(applied)


def plan_with(sink: UOp, opts: Sequence[Opt], machine: GpuMachine) -> UOp:
    """The kernel of the plan that these opts are those of, with whichever amounts it has them."""
    wanted = tuple(opts)
    for amounts in (machine, *machine.variants()):
        for is_plain in (False, True):
            kernel, made = optimize_gpu(sink, amounts, is_plain)
            if made == wanted:
                return kernel
    _, usual = optimize_gpu(sink, machine)
    raise OptimizeError(f"no plan has the opts {chain(opts)}: the usual one has {chain(usual)}")


def planned_whole(sink: UOp, machine: GpuMachine) -> bool:
    """Whether a kernel that could be several has a plan as one."""
    return any(p.is_whole and p.plan(sink, machine, []) is not None for p in PLANNERS)
