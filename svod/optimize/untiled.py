"""Why a contraction has no tile: what `explain` says of a kernel that plain loops compute.

In: a kernel as rangeify made it, and the opts that were chosen for it. Out: a sentence, or nothing
where the kernel is no contraction or has its tile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from svod.ir import ops as O
from svod.ir.node import UOp
from svod.optimize.actions import merge_adjacent
from svod.optimize.block_sums import find_block_sums, plan_block_sums
from svod.optimize.contraction import plan_contraction
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_tile import is_tile, plan_tile, split_depth
from svod.optimize.graph import extent
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from svod.schedule.products import Product, product_from

LEAST = 4  # rows, columns and steps of what counts as a contraction
# opts of kernels whose operands are packed, or lie in words for the lanes that read them
STAGED = frozenset({"STAGE", "WINDOW", "BAND", "WORDS"})


def products_in(kernel: UOp) -> Iterator[Product[UOp]]:
    """The sums of products of a kernel, whatever else it computes, that have rows and columns."""
    for node in kernel.toposort():
        if node.op != O.REDUCE or node.arg != O.ADD:
            continue
        value = node.src[0]
        while value.op == O.CAST:
            value = value.src[0]
        if value.op != O.MUL:
            continue
        summed = node.src[1:]
        axes = sorted(value.ranges.difference(summed), key=lambda r: r.arg.id)
        found = product_from(
            node, (value.src[0], value.src[1]), axes, summed, lambda f, r: r in f.ranges, extent
        )
        if min(found.sizes[1:]) >= LEAST:
            yield found


def why_plain(kernel: UOp, tiled: UOp, opts: Sequence[Opt], machine: Machine | GpuMachine) -> str:
    """The line that says why plain loops compute a contraction; ``tiled`` is the kernel with the
    loops that the opts made. Nothing where it is none, or has its tile."""
    if isinstance(machine, GpuMachine):
        what, reason = "tile", why_untiled(kernel, tiled, machine)
    elif find_block_sums(merge_adjacent(kernel)) is not None:
        what, reason = "words", why_no_words(kernel, opts, machine)
    else:
        what, reason = "panels", why_unpacked(kernel, opts, machine)
    return f"{what:<6} none: {reason}" if reason else ""


def why_unpacked(kernel: UOp, opts: Sequence[Opt], machine: Machine) -> str:
    """Why a contraction on a CPU is not a register tile over packed panels."""
    if any(opt.name in STAGED for opt in opts) or not any(products_in(kernel)):
        return ""
    if not machine.vector_bytes:
        return "the machine has no vectors"
    planned = plan_contraction(merge_adjacent(kernel), machine)
    return planned if isinstance(planned, str) else "other loops were asked for"


def why_no_words(kernel: UOp, opts: Sequence[Opt], machine: Machine) -> str:
    """Why the sums inside of a sum multiply numbers one by one."""
    if any(opt.name == "WORDS" for opt in opts):
        return ""
    planned = plan_block_sums(merge_adjacent(kernel), machine)
    if isinstance(planned, str):
        return planned
    if all(opt.name != "WORDS" for opt in planned):
        return "no instruction of the machine multiplies words of bytes as these lie"
    return "other loops were asked for"


def why_untiled(kernel: UOp, tiled: UOp, machine: GpuMachine) -> str:
    """Why a contraction on a GPU is no tile; ``tiled`` is the kernel with the loops it got."""
    if any(is_tile(n) for n in tiled.toposort()) or not any(products_in(kernel)):
        return ""
    planned = plan_tile(split_depth(merge_adjacent(kernel)), machine)
    return planned if isinstance(planned, str) else "other loops were asked for"
