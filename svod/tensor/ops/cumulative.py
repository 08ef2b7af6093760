"""Cumulative sums, products and extremes (prefix scans) along an axis.

Short axes: every place folds all places up to it, in one reduction. Long axes: blocks of 32 are
scanned like that, the block totals are scanned in turn, and each block takes in the total of
those before it: about 32 n steps for n elements, and as many levels as n has digits to base 32.
On a GPU blocks of threads scan rows of thousands (``svod.optimize.gpu_scan``), and longer axes are
such rows.
"""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from svod.dtype import types as dt
from svod.dtype.convert import dtype_of
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.capabilities import capabilities_of
from svod.ir.node import UOp, largest
from svod.ir.reductions import identity
from svod.tensor.core.slicing import pad_value, slice_axis
from svod.tensor.core.tensor_core import (
    Core,
    Ordered,
    accumulator,
    axis_of,
    default_device,
    float_node,
    scalar_node,
    wrap,
)
from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.reductions import fold, sum_dtype

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

BLOCK = 32
WIDE = 16  # neighbours behind an axis from which they are the lanes of its scan
LOG_BLOCK = 8  # where every step of a block is an exponential
ROW, LEAST_ROW = 8192, 1024  # places that one block of a GPU scans, and that are worth one
ROW_OPS = frozenset({O.ADD, O.MAX, O.MIN})  # whose gradients are no reductions of n * n products


def scan(x: UOp, op: int, axis: int) -> UOp:
    """Folds of an axis up to and including each place."""
    n = x.shape[axis]
    if largest(n) <= 1 or 0 in (*x.shape[:axis], *x.shape[axis + 1 :]):
        return x
    if largest(n) <= 2 * BLOCK:
        return _scan_short(x, op, axis)
    inner = _scan_short(_in_blocks(x, BLOCK, op, axis), op, axis + 1)
    totals = slice_axis(inner, axis + 1, BLOCK - 1, BLOCK)
    sums = scan(B.reshape(totals, _without(inner.shape, axis + 1)), op, axis)
    return _joined(_after_others(inner, sums, op, axis), n, axis)


def scan_rows(x: UOp, op: int, dtype: DType) -> UOp:
    """The same for a GPU, in a dtype: results are stored, so that each scan is a kernel."""
    *lead, n = x.shape
    axis = len(lead)
    if isinstance(n, UOp) or n <= 2 * BLOCK or 0 in lead:
        return B.cast(scan(x, op, axis), dtype)
    if n <= ROW:
        return B.contiguous(B.cast(_scan_short(x, op, axis), dtype))
    rows = _in_blocks(x, _row_length(n), op, axis)
    sums = scan_rows(fold(rows, op, (axis + 1,), False), op, x.dtype)
    joined = _after_others(_scan_short(rows, op, axis + 1), sums, op, axis)
    return _joined(B.contiguous(B.cast(joined, dtype)), n, axis)


def _row_length(n: int) -> int:
    """The places of a row: so many that rows divide the axis, where there is such a number."""
    lengths = [length for length in range(ROW, LEAST_ROW - 1, -1) if n % length == 0]
    return max(lengths, key=lambda length: (length % 4 == 0, -abs(length - ROW // 2)), default=4096)


def _without(shape: tuple[Any, ...], axis: int) -> tuple[Any, ...]:
    return (*shape[:axis], *shape[axis + 1 :])


def _padding(x: UOp, axis: int, before: int, after: Any) -> tuple[tuple[Any, Any], ...]:
    return tuple([(before, after) if i == axis else (0, 0) for i in range(len(x.shape))])


def _in_blocks(x: UOp, size: int, op: int, axis: int) -> UOp:
    """An axis as blocks of a size, the last one filled up."""
    n = x.shape[axis]
    blocks = -(-n // size)
    padded = pad_value(x, _padding(x, axis, 0, blocks * size - n), identity(op, x.dtype))
    return B.reshape(padded, (*x.shape[:axis], blocks, size, *x.shape[axis + 1 :]))


def _joined(blocks: UOp, n: int, axis: int) -> UOp:
    """The first n places of blocks as one axis."""
    count, size = blocks.shape[axis : axis + 2]
    shape = (*blocks.shape[:axis], count * size, *blocks.shape[axis + 2 :])
    return slice_axis(B.reshape(blocks, shape), axis, 0, n)


def _after_others(inner: UOp, sums: UOp, op: int, axis: int) -> UOp:
    """Scans of blocks, each with the total of the blocks before it; ``sums`` scans the totals."""
    before = slice_axis(sums, axis, 0, inner.shape[axis] - 1)
    before = pad_value(before, _padding(before, axis, 1, 0), identity(op, inner.dtype))
    single = (*inner.shape[: axis + 1], 1, *inner.shape[axis + 2 :])
    return B.binary(op, B.expand(B.reshape(before, single), inner.shape), inner)


def _scan_short(x: UOp, op: int, axis: int) -> UOp:
    n, lead, tail = x.shape[axis], x.shape[:axis], x.shape[axis + 1 :]
    wide = B.expand(B.reshape(x, (*lead, 1, n, *tail)), (*lead, n, n, *tail))
    left, right = [1] * len(lead), [1] * len(tail)
    here = B.reshape(B.iota(n, dt.int32), (*left, n, 1, *right))
    source = B.reshape(B.iota(n, dt.int32), (*left, 1, n, *right))
    counted = B.binary(O.LE, source, here)
    masked = B.where(counted, wide, scalar_node(identity(op, x.dtype), x.dtype))
    return fold(masked, op, (axis + 1,), False)


def _along(x: Tensor, node: UOp, dim: int, op: int, dtype: DType | None = None) -> UOp:
    """The scan of a node along an axis of x, perhaps in another dtype."""
    axis, dtype = axis_of(dim, x.ndim), dtype or node.dtype
    if not x.ndim:
        return B.cast(node, dtype)
    last = x.ndim - 1
    able = capabilities_of(x._device or default_device())
    if able.scans_rows and axis == last and op in ROW_OPS:
        return scan_rows(node, op, dtype)
    if axis == last or prod([largest(m) for m in x.shape[axis + 1 :]]) >= WIDE:
        return B.cast(scan(node, op, axis), dtype)
    moved = B.cast(scan(wrap(node, None).movedim(axis, -1).uop, op, last), dtype)
    return wrap(moved, None).movedim(-1, axis).uop


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
    if largest(n) <= 2 * LOG_BLOCK:
        top = wrap(scan(x.uop, O.MAX, len(lead)), x._device).detach()
        top = select(top.isfinite(), top, 0.0)
        line = wrap(B.iota(n, dt.int32), None)
        counted = line.reshape(1, n) <= line.reshape(n, 1)
        terms = select(counted, x.unsqueeze(-2), float("-inf")) - top.unsqueeze(-1)
        return terms.exp().sum(-1).log() + top
    blocks = -(-n // LOG_BLOCK)
    padded = x.pad((0, blocks * LOG_BLOCK - n), value=float("-inf"))
    inner = _log_sums(padded.reshape(*lead, blocks, LOG_BLOCK))
    before = _log_sums(inner[..., -1])[..., :-1].pad((1, 0), value=float("-inf"))
    joined = before.unsqueeze(-1).logaddexp(inner)
    return joined.reshape(*lead, blocks * LOG_BLOCK)[..., :n]


def _running(x: Tensor, dim: int, op: int, dtype: Any) -> Tensor:
    target = sum_dtype(x.dtype) if dtype is None else dtype_of(dtype)
    wide = B.cast(x.uop, accumulator(target))
    return wrap(_along(x, wide, dim, op, target), x._device)


def _running_extreme(x: Tensor, dim: int, op: int) -> Ordered:

    if x.dtype.kind == "b":
        values, places = _running_extreme(x.cast(dt.uint8), dim, op)
        return Ordered(values.bool(), places)
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
