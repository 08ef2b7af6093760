"""Sorts and their steps as GPU kernels: their bodies have no loops to choose, only a text."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from svod.base.log import debug
from svod.base.timing import span
from svod.codegen.naming import kernel_name
from svod.codegen.pipeline import bytes_moved
from svod.codegen.render.nvptx import GpuText, NvptxRenderer, nvptx_module
from svod.codegen.render.nvptx_memory import GLOBAL
from svod.codegen.render.radix import (
    DIGITS,
    add_counts,
    count_digits,
    deal_words,
    sort_rows,
    threads_for,
)
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import VarArg
from svod.ir.node import UOp, const, make
from svod.optimize.opts import Opt


@dataclass(slots=True)
class GpuSort:
    """One kernel ready for the compiler."""

    name: str
    symbol: str
    body: UOp
    kernel: UOp  # the body, and the sizes of its launch
    slots: list[int]
    writes: tuple[int, ...]
    reads: tuple[int, ...]
    threads: int  # of one block
    bytes: int
    flops: int = 0
    opts: tuple[Opt, ...] = ()
    variables: tuple[VarArg, ...] = ()

    def text(self, aligned: bool = True) -> GpuText:
        """The module's text, and what its launch must provide."""
        renderer = NvptxRenderer(aligned)
        with span("render"):
            _emit(renderer, self.body.src[0].src[1])
            parameters = ", ".join(
                [f"{GLOBAL} noalias {'' if s == 0 else 'readonly '}%p{s}" for s in self.slots]
            )
            lines = "\n".join(renderer.lines)
            function = (
                f"define ptx_kernel void @{self.symbol}({parameters}) "
                f'nounwind "nvvm.maxntid"="{self.threads}" {{\nentry:\n{lines}\n  ret void\n}}\n'
            )
        debug(5, function)
        module = nvptx_module([function], renderer.shared, renderer.declarations)
        return GpuText(module, renderer.widest, renderer.dynamic_bytes)


def generate_sort(body: UOp) -> GpuSort:
    """The kernel of a body that sorts."""
    store = body.src[0]
    found = store.src[1]
    shape, arg = found.src[0].shape, found.arg
    rows = prod(shape[:-1])
    if found.op == O.SORT:
        blocks, threads = rows, threads_for(shape[-1])
    elif arg.step == "start":
        blocks, threads = rows, DIGITS
    else:
        blocks = rows * -(-shape[-1] // arg.block)
        threads = DIGITS if arg.step == "count" else threads_for(arg.block)
    sizes = [
        make(O.SPECIAL, dt.index, (const(size, dt.index),), name)
        for name, size in (("gidx0", blocks), ("lidx0", threads))
    ]
    kernel = make(O.SINK, dt.void, (store, *sizes))
    name = kernel_name(body)
    nodes = body.toposort()
    slots = sorted({n.arg.slot for n in nodes if n.op == O.PARAM})
    return GpuSort(
        name, f"{name}_{kernel.content_hash[:10]}", body, kernel, slots, (0,), tuple(slots[1:]),
        threads, bytes_moved(nodes),
    )  # fmt: skip


def _emit(renderer: NvptxRenderer, found: UOp) -> None:
    size, arg = found.src[0].shape[-1], found.arg
    if found.op == O.SORT:
        sort_rows(renderer, size, arg)
    elif arg.step == "count":
        count_digits(renderer, size, arg)
    elif arg.step == "start":
        add_counts(renderer, size)
    else:
        deal_words(renderer, size, arg)
