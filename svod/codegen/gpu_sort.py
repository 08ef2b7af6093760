"""Sorts and their steps as GPU kernels: their bodies have no loops to choose, only a text."""

from __future__ import annotations

from math import prod

from svod.codegen.render.nvptx import NvptxRenderer
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
from svod.ir.node import UOp, const, make


def spread_sort(body: UOp) -> UOp:
    """A body that sorts, with the sizes of its launch."""
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
    return make(O.SINK, dt.void, (store, *sizes))


def sort_function(
    renderer: NvptxRenderer, symbol: str, kernel: UOp, slots: list[int], threads: int
) -> str:
    """The text of a kernel that sorts."""
    _emit(renderer, kernel.src[0].src[1])
    parameters = ", ".join(
        [f"{GLOBAL} noalias {'' if s == 0 else 'readonly '}%p{s}" for s in slots]
    )
    lines = "\n".join(renderer.lines)
    return (
        f"define ptx_kernel void @{symbol}({parameters}) "
        f'nounwind "nvvm.maxntid"="{threads}" {{\nentry:\n{lines}\n  ret void\n}}\n'
    )


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
