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
from svod.tensor.autograd import custom_gradient
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
        """log of the running sum of exp, each place scaled by the largest up to it."""
        x = wrap(float_node(self.uop), self._device)
        axis = axis_of(dim, x.ndim)
        if not x.ndim or 0 in x.shape:
            return x
        wide = x.cast(accumulator(x.dtype))
        return _log_sums(wide.movedim(axis, -1)).movedim(-1, axis).cast(x.dtype)


def _log_sums(x: Tensor) -> Tensor:
    """The running logsumexp of the last axis, in blocks like ``scan``."""
    *lead, n = x.shape
    if n <= 2 * BLOCK:
        top = wrap(scan(x.uop, O.MAX), x._device).detach()
        top = select(top.isfinite(), top, 0.0)
        line = wrap(B.iota(n, dt.int32), None)
        counted = line.reshape(1, n) <= line.reshape(n, 1)
        terms = select(counted, x.unsqueeze(-2), float("-inf")) - top.unsqueeze(-1)
        return terms.exp().sum(-1).log() + top
    blocks = -(-n // BLOCK)
    padded = x.pad((0, blocks * BLOCK - n), value=float("-inf"))
    inner = _log_sums(padded.reshape(*lead, blocks, BLOCK))
    before = _log_sums(inner[..., -1])[..., :-1].pad((1, 0), value=float("-inf"))
    joined = before.unsqueeze(-1).logaddexp(inner)
    return joined.reshape(*lead, blocks * BLOCK)[..., :n]


def _running(x: Tensor, dim: int, op: int, dtype: Any) -> Tensor:
    target = sum_dtype(x.dtype) if dtype is None else dtype_of(dtype)
    wide = B.cast(x.uop, accumulator(target))
    return wrap(B.cast(_along(x, wide, dim, op), target), x._device)


def _running_extreme(x: Tensor, dim: int, op: int) -> Ordered:
    from svod.tensor.sorting import Ordered

    if x.dtype.kind == "b":
        raise ShapeError("cummax and cummin take numbers, not bool")
    values = wrap(_along(x, x.uop, dim, op), x._device)
    if x.dtype.kind == "f" and x.ndim:
        values = _running_best(x, op, axis_of(dim, x.ndim))
    if not x.ndim:
        return Ordered(values, wrap(B.full((), 0, dt.int64), x._device))
    return Ordered(values, _last_places(x, values, axis_of(dim, x.ndim)))


def _last_places(x: Tensor, values: Tensor, axis: int) -> Tensor:
    """Where the running extreme was met last."""
    line = [x.shape[axis] if i == axis else 1 for i in range(x.ndim)]
    place = wrap(B.reshape(B.iota(x.shape[axis], dt.int64), tuple(line)), None)
    found = (x == values) | x.isnan()
    places = select(found, place, wrap(B.full((), 0, dt.int64), None))
    return wrap(_along(x, places.uop, axis, O.MAX), x._device)


@custom_gradient
def _running_best(x: Tensor, op: int, axis: int) -> Tensor:
    return wrap(_along(x, x.uop, axis, op), x._device)


@_running_best.backward
def _to_last_places(grad: Tensor, output: Tensor, x: Tensor, op: int, axis: int) -> Tensor:
    places = _last_places(x, output, axis)
    return wrap(B.full(x.shape, 0, grad.dtype), grad._device).scatter_add(axis, places, grad)
