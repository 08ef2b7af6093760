"""Windows that products read are stored for devices whose tiles read plain matrices.

A convolution is a product with overlapping, padded windows of its input. A CPU packs them on the
way; a GPU's tiles copy boxes of memory, so there the windows are written out once, a row per
output, and the product is one of two matrices; but for those it reads in place (`channels`).
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.schedule.operands import TILING_DEVICES, product_factors

KINDS = (dt.float32, dt.bfloat16, dt.float16)
LONG = 2048  # steps from which float32, whose products are slower than copies, is stored too
MOST_BYTES = 1 << 30  # of windows; more are read where they are
MIN_WORK = 1 << 24  # multiplications


def stored_windows(
    order: list[UOp], device_of: Callable[[UOp], str], in_place: frozenset[UOp]
) -> set[UOp]:
    """The values to store: windows that a large product reads, but for those in place."""
    found: set[UOp] = set()
    for node in order:
        factors = () if node in in_place else product_factors(node)
        if not factors or device_of(node).partition(":")[0] not in TILING_DEVICES:
            continue
        if prod(factors[0].shape) < MIN_WORK:
            continue
        steps = prod([factors[0].shape[a] for a in node.arg.axes])
        for factor in factors:
            cut = before_repeats(factor)
            nbytes = prod(cut.shape) * cut.dtype.itemsize
            if cut.dtype not in KINDS or (cut.dtype is dt.float32 and steps < LONG):
                continue
            if nbytes <= MOST_BYTES and has_windows(cut):
                found.add(cut)
    return found


def before_repeats(factor: UOp) -> UOp:
    """A factor without its conversion and the axes along which it is the same again."""
    while factor.op in (O.CAST, O.EXPAND, O.RESHAPE):
        factor = factor.src[0]
    return factor


def has_windows(node: UOp) -> bool:
    """Whether a view of memory has elements that are not there, runs backwards, or has overlapping
    pieces: repeats that are cut. Repeats alone, as of shared heads, are none."""
    seen = set()
    while node.op in O.MOVEMENT:
        seen.add(node.op)
        node = node.src[0]
    return bool({O.PAD, O.FLIP} & seen) or {O.EXPAND, O.SHRINK} <= seen
