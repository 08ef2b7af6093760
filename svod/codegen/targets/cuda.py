"""NVIDIA GPUs: their passes, and LLVM IR for a kernel as one thread sees it.

The passes are those of the CPU with other loop choices and other arithmetic.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial

from svod.base.log import debug
from svod.base.timing import span
from svod.codegen.expand import expand
from svod.codegen.gpu_arithmetic import narrow_divisions, with_roundings
from svod.codegen.gpu_sort import sort_function, spread_sort
from svod.codegen.lanes import vectorize
from svod.codegen.lower import lower
from svod.codegen.order import order_offsets, separate_loops
from svod.codegen.render.nvptx import NvptxRenderer, nvptx_module
from svod.codegen.render.radix import shared_bytes
from svod.codegen.target import Choices, KernelCode, KernelText, Target
from svod.ir.capabilities import BY_KIND
from svod.ir.needs import Needs
from svod.ir.node import UOp
from svod.ir.passes import Pass, graph_only, loops_hold, tensors_hold
from svod.optimize.actions import merge_adjacent
from svod.optimize.gpu import optimize_gpu, plan_with, planned_whole
from svod.optimize.gpu_boxes import strided_outputs
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.gpu_tile import is_tile
from svod.optimize.graph import renumber
from svod.schedule.rangeify import rangeify
from svod.schedule.sorts import is_sort


def _rangeify(body: UOp, choices: Choices[GpuMachine]) -> UOp:
    return renumber(rangeify(body))


def _optimize(plain: UOp, choices: Choices[GpuMachine]) -> UOp:
    if choices.given is not None:
        kernel, choices.opts = plan_with(plain, choices.given, choices.machine), choices.given
    else:
        kernel, choices.opts = optimize_gpu(plain, choices.machine, choices.is_plain)
    if any(is_tile(n) and n.arg[1].startswith("boxes") for n in kernel.toposort()):
        choices.unaligned = strided_outputs(merge_adjacent(plain), kernel)
    return kernel


def _round(kernel: UOp, choices: Choices[GpuMachine]) -> UOp:
    return with_roundings(kernel) if choices.machine.rounds_to_bfloat16 else kernel


def _sorts(kernel: UOp, stage: str) -> None:
    """A sort is a tensor graph still; beside it are the sizes of its launch."""
    tensors_hold(kernel.src[0], stage)


_threads = loops_hold(shared_loops=True, rules="THREADS")
_divided = loops_hold(shared_loops=True, rules="DIVIDED")
_machine_ops = loops_hold(shared_loops=True, rules="LOWERED_THREADS")

CHOOSING: tuple[Pass[Choices[GpuMachine]], ...] = (
    Pass("rangeify", _rangeify, loops_hold(), "movement ops become index arithmetic over loops",
         rangeify),
    Pass("optimize", _optimize, _threads, "the first planner that has a plan takes it",
         optimize_gpu),
)  # fmt: skip
LOWERING: tuple[Pass[Choices[GpuMachine]], ...] = (
    Pass("expand", graph_only(expand), _threads, "UPCAST and UNROLL axes become copies", expand),
    Pass("vectorize", graph_only(vectorize), _threads, "the LANE axis becomes real vectors",
         vectorize),
    Pass("separate", graph_only(separate_loops), _threads, "one loop is at one place",
         separate_loops),
    Pass("order", graph_only(order_offsets), _threads,
         "offsets add outer loops first, so loops hoist what they can", order_offsets),
    Pass("divide", graph_only(narrow_divisions), _divided,
         "numbers below 2**32 are divided in 32 bits", narrow_divisions),
    Pass("lower", graph_only(lower), _machine_ops,
         "accumulators, sized indices, functions as arithmetic", lower),
    Pass("round", _round, _machine_ops,
         "roundings to bfloat16 are conversions, where there is an instruction", with_roundings),
)  # fmt: skip
SORTING: tuple[Pass[Choices[GpuMachine]], ...] = (
    Pass("blocks", graph_only(spread_sort), _sorts,
         "a sort gets a block for each row or each part of one", spread_sort),
)  # fmt: skip


@cache
def cuda_target(machine: GpuMachine) -> Target[GpuMachine]:
    """The target of GPUs like this one."""
    able = replace(
        BY_KIND["CUDA"],
        takes=partial(takes_whole, machine=machine),
        fuses_attention_gradient=machine.has_wgmma,
    )
    return Target("CUDA", machine, able, CHOOSING, LOWERING, SORTING, render)


def takes_whole(body: UOp, machine: GpuMachine) -> bool:
    """Whether there is a tile for attention, or for a convolution where its input is; of a sort,
    whether its rows fit into shared memory."""
    if is_sort(body):
        return shared_bytes(body.src[0].src[1].src[0].shape[-1]) <= machine.most_shared_bytes
    return planned_whole(merge_adjacent(renumber(rangeify(body))), machine)


# -- text -----------------------------------------------------------------------------------------


def render(code: KernelCode, aligned: bool = True) -> KernelText:
    """The function of a kernel, its shared memory, and what its launch must provide."""
    renderer = NvptxRenderer(aligned)
    loops = code.unaligned if code.unaligned is not None and not aligned else code.loops
    slots, variables, writes, _ = code.arguments()
    threads = code.threads
    with span("render"):
        if is_sort(code.kernel):
            function = sort_function(renderer, code.symbol, code.kernel, slots, threads)
        else:
            names = [v.name for v in variables]
            function = renderer.render_kernel(code.symbol, loops, slots, names, writes, threads)
    debug(5, function)
    # Maps name buffers by their place among the arguments.
    maps = tuple([t._replace(slot=slots.index(t.slot)) for t in renderer.maps])
    needs = Needs(renderer.widest, renderer.dynamic_bytes, maps)
    declarations = frozenset(renderer.declarations)
    return KernelText(function, declarations, join, tuple(renderer.shared), needs)


def join(texts: Sequence[KernelText]) -> str:
    """Kernels as one module."""
    declarations = set[str]().union(*[t.declarations for t in texts])
    memory = [line for t in texts for line in t.memory]
    return nvptx_module([t.function for t in texts], memory, declarations)
