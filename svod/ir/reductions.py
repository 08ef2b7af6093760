"""Facts about reductions: their neutral element and the dtype they accumulate in.

Every stage that starts an accumulator, pads a reduced axis or folds an empty one asks here.
"""

from __future__ import annotations

from functools import cache

from svod.base.errors import GraphError
from svod.dtype import types as dt
from svod.dtype.convert import finfo
from svod.dtype.types import DType
from svod.ir import ops as O


@cache
def identity(op: int, dtype: DType) -> bool | int | float:
    """The value that changes nothing when folded in, and the result of folding nothing.

    float8_e4m3 has no infinity: its MAX starts at the lowest finite value, MIN at the largest.
    """
    if op not in O.REDUCTIONS or not takes_reduction(op, dtype):
        raise GraphError(f"{O.NAMES.get(op, op)} is no reduction over {dtype.name}")
    kind = dtype.kind
    if kind in "fc":
        if op == O.ADD or op == O.MUL:
            return float(op == O.MUL)
        largest = finfo(dtype).max if dtype.scalar is dt.float8_e4m3 else float("inf")
        return -largest if op == O.MAX else largest
    lo, hi = dt.integer_limits(dtype)
    value = {
        O.ADD: 0, O.OR: 0, O.XOR: 0, O.MUL: 1, O.MAX: lo, O.MIN: hi,
        O.AND: -1 if lo < 0 else hi,
    }[op]  # fmt: skip
    return bool(value) if kind == "b" else value


def takes_reduction(op: int, dtype: DType) -> bool:
    """Whether the reduction exists for the dtype."""
    kind = dtype.kind
    if op in (O.AND, O.OR, O.XOR):
        return kind in "buix"
    if op == O.ADD or kind == "c":
        return kind in "uixf" or (kind == "c" and op in (O.ADD, O.MUL))
    return op in (O.MUL, O.MAX, O.MIN) and kind in "buixf"


def accumulator_dtype(op: int, dtype: DType) -> DType:
    """Sums and products of 16 and 8-bit floats run in float32 and round once, at the end."""
    if dtype.kind == "f" and dtype.bits < 32 and op in (O.ADD, O.MUL):
        return dt.float32.vec(dtype.lanes)
    return dtype
