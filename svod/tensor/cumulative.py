"""Running sums, products and extremes along an axis.

Short axes: every place folds all places up to it, in one reduction. Long axes: blocks of 32 are
scanned like that, the block totals are scanned in turn, and each block takes in the total of
those before it: about 32 n steps for n elements, and as many levels as n has digits to base 32.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svod.base.errors import ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import dtype_of
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.ir.reductions import identity
from svod.tensor.core import Core, accumulator, axis_of, float_node, scalar_node, wrap
from svod.tensor.elementwise import select
from svod.tensor.pieces import pad_value, slice_axis
from svod.tensor.reductions import fold, sum_dtype

if TYPE_CHECKING:
    from svod.tensor.sorting import Ordered
    from svod.tensor.tensor import Tensor

BLOCK = 32


def scan(x: UOp, op: int) -> UOp:
    """Folds of the last axis up to and including each place."""
    *lead, n = x.shape
    if n <= 1 or 0 in lead:
        return x
    if n <= 2 * BLOCK:
        return _scan_short(x, op)
    neutral = identity(op, x.dtype)
    none: list[tuple[int, int]] = [(0, 0)] * len(lead)
    blocks = -(-n // BLOCK)
    padded = pad_value(x, (*none, (0, blocks * BLOCK - n)), neutral)
    inner = _scan_short(B.reshape(padded, (*lead, blocks, BLOCK)), op)
    totals = slice_axis(inner, len(lead) + 1, BLOCK - 1, BLOCK)
    sums = scan(B.reshape(totals, (*lead, blocks)), op)
    before = slice_axis(sums, len(lead), 0, blocks - 1)
    before = pad_value(before, (*none, (1, 0)), neutral)
    wide = B.expand(B.reshape(before, (*lead, blocks, 1)), (*lead, blocks, BLOCK))
    joined = B.reshape(B.binary(op, wide, inner), (*lead, blocks * BLOCK))
    return slice_axis(joined, len(lead), 0, n)


def _scan_short(x: UOp, op: int) -> UOp:
    *lead, n = x.shape
    wide = B.expand(B.reshape(x, (*lead, 1, n)), (*lead, n, n))
    ones = [1] * len(lead)
    here = B.reshape(B.iota(n, dt.int32), (*ones, n, 1))
    source = B.reshape(B.iota(n, dt.int32), (*ones, 1, n))
    counted = B.binary(O.LE, source, here)
    masked = B.where(counted, wide, scalar_node(identity(op, x.dtype), x.dtype))
    return fold(masked, op, (len(lead) + 1,), False)


def _along(x: Tensor, node: UOp, dim: int, op: int) -> UOp:
    axis = axis_of(dim, x.ndim)
    if not x.ndim:
        return node
    last = wrap(node, None).movedim(axis, -1).uop
    return wrap(scan(last, op), None).movedim(-1, axis).uop


class Cumulative(Core):
    """cumsum, cumprod, cummax, cummin, logcumsumexp."""

    __slots__ = ()

    def cumsum(self: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        """The sum up to each place along an axis."""
        return _running(self, dim, O.ADD, dtype)

    def cumprod(self: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        """The product up to each place along an axis."""
        return _running(self, dim, O.MUL, dtype)

    def cummax(self: Tensor, dim: int) -> Ordered:
        """The largest element up to each place, and where its last occurrence is."""
        return _running_extreme(self, dim, O.MAX)

    def cummin(self: Tensor, dim: int) -> Ordered:
        """The smallest element up to each place, and where its last occurrence is."""
        return _running_extreme(self, dim, O.MIN)

    def logcumsumexp(self: Tensor, dim: int) -> Tensor:
        """log of the running sum of exp, scaled by the largest element of the axis."""
        x = wrap(float_node(self.uop), self._device)
        if not x.ndim or 0 in x.shape:
            return x
        top = x.amax(axis_of(dim, x.ndim), True)
        top = select(top.isfinite(), top, 0.0)
        return (x - top).exp().cumsum(dim).log() + top


def _running(x: Tensor, dim: int, op: int, dtype: Any) -> Tensor:
    target = sum_dtype(x.dtype) if dtype is None else dtype_of(dtype)
    wide = B.cast(x.uop, accumulator(target))
    return wrap(B.cast(_along(x, wide, dim, op), target), x._device)


def _running_extreme(x: Tensor, dim: int, op: int) -> Ordered:
    from svod.tensor.sorting import Ordered

    if x.dtype.kind == "b":
        raise ShapeError("cummax and cummin take numbers, not bool")
    values = wrap(_along(x, x.uop, dim, op), x._device)
    if not x.ndim:
        return Ordered(values, wrap(B.full((), 0, dt.int64), x._device))
    axis = axis_of(dim, x.ndim)
    line = [x.shape[axis] if i == axis else 1 for i in range(x.ndim)]
    place = wrap(B.reshape(B.iota(x.shape[axis], dt.int64), tuple(line)), None)
    found = (x == values) | x.isnan()
    places = select(found, place, wrap(B.full((), 0, dt.int64), None))
    return Ordered(values, wrap(_along(x, places.uop, dim, O.MAX), x._device))
