"""Loop choices for GPUs: which axes are blocks, which are threads, which are vectors.

In: a kernel as rangeify made it. Out: the same kernel with SPECIAL indices in place of parallel
loops, and the opts that say what was done. The first plan that fits is taken: attention or a
product by tensor cores or in tiles, a scan or reductions that threads share, a thread per vector of
outputs.
"""

from __future__ import annotations

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.optimize.actions import merge_adjacent
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


def optimize_gpu(
    sink: UOp, machine: GpuMachine, is_plain: bool = False
) -> tuple[UOp, tuple[Opt, ...]]:
    """Choose and apply a plan; a plain one has a thread per output and shares nothing."""
    sink = merge_adjacent(sink)
    applied: list[Opt] = []
    if not is_plain and len(sink.src) == 1 and sink.src[0].src[0].arg != "ordered":
        planned = optimize_attention(sink, machine.has_wgmma, applied)
        if planned is None:
            planned = optimize_gradient(sink, machine.has_wgmma, applied)
        if planned is None:
            planned = optimize_boxes(sink, machine, applied)
        if planned is None:
            planned = optimize_tile(sink, machine, applied)
        if planned is None:
            planned = optimize_windows(sink, machine, applied)
        if planned is None:
            planned = optimize_scan(sink, machine, applied)
        if planned is None:
            planned = shared_reduction(sink, machine, applied)
        if planned is not None:
            return renumber(planned), tuple(applied)
    ends = [spread_outputs(sink, end, machine, applied) for end in sink.src]
    return renumber(make(O.SINK, dt.void, tuple(ends))), tuple(applied)
