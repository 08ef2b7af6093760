"""Reductions over axes: sum, prod, max, min, mean, variance, norm, argmax.

Sums of bools and signed integers are int64, of unsigned ones uint64; 16-bit and narrower floats
are added up in float32. NaN wins in max and min, as in NumPy.
"""

from __future__ import annotations

from math import inf, prod
from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import dtype_of
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.bounds import within
from svod.ir.node import UOp, const, largest
from svod.tensor.core.tensor_core import (
    Axis,
    AxisError,
    Core,
    Ordered,
    Scalar,
    accumulator,
    axes_of,
    axis_of,
    computed_once,
    float_node,
    size_node,
    wrap,
)
from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.ops.elementwise import select, truth

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def fold(x: UOp, op: int, axes: tuple[int, ...], keepdim: bool) -> UOp:
    """x reduced over the axes."""
    found = B.reduce(x, op, axes)
    if keepdim or not axes:
        return found
    shape = found.shape
    return B.reshape(found, tuple([n for i, n in enumerate(shape) if i not in axes]))


def sum_dtype(dtype: DType) -> DType:
    """The dtype of a sum or product when none is asked for."""
    if dtype.kind in "bi":
        return dt.int64
    return dt.uint64 if dtype.kind == "u" else dtype


def total(x: UOp, axes: tuple[int, ...], keepdim: bool, dtype: Any = None) -> UOp:
    """The sum over the axes."""
    target = sum_dtype(x.dtype) if dtype is None else dtype_of(dtype)
    wide = accumulator(target)
    return B.cast(fold(B.cast(x, wide), O.ADD, axes, keepdim), target)


def extreme_position(x: UOp, op: int, axis: int, keepdim: bool) -> UOp:
    """The first place of the maximum or minimum; the first NaN counts as one."""
    shape = x.shape
    size = shape[axis]
    if size == 0:
        raise AxisError(f"argmax and argmin of axis {axis} of {shape}: it has no elements")
    x = computed_once(x)
    best = B.expand(B.reduce(x, op, (axis,)), shape)
    found = B.binary(O.EQ, x, best)
    if x.dtype.kind == "f":
        found = B.binary(O.OR, found, B.binary(O.NE, x, x))
    kind = dt.int32 if largest(size) < 1 << 31 else dt.int64
    line = tuple([size if i == axis else 1 for i in range(len(shape))])
    places = B.reshape(B.iota(size, kind), line)
    first = fold(B.where(found, places, size_node(size, kind)), O.MIN, (axis,), keepdim)
    return within(B.cast(first, dt.int64), 0, largest(size) - 1)


def first_extreme(x: Tensor, op: int, axis: int) -> Tensor:
    """The extreme of an axis, which stays; its gradient goes to the first place that has it."""
    return _first_extreme(x, op, axis)  # type: ignore[no-any-return]


@custom_gradient
def _first_extreme(x: Tensor, op: int, axis: int) -> Tensor:
    return wrap(fold(x.uop, op, (axis,), True), x._device)


@_first_extreme.backward
def _to_first_extreme(grad: Tensor, output: Tensor, x: Tensor, op: int, axis: int) -> Tensor:
    place = wrap(extreme_position(x.uop, op, axis, True), x._device)
    line = tuple([n if i == axis else 1 for i, n in enumerate(x.shape)])
    here = wrap(B.reshape(B.iota(x.shape[axis], dt.int64), line), None) == place
    return select(here, grad, 0.0)


class Reductions(Core):
    """sum, prod, max, min, any, all, mean, var, std, argmax, norm and relatives."""

    __slots__ = ()

    def sum(self: Tensor, dim: Axis = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
        """The sum over axes: ``x.sum(0)``, ``x.sum(axis=(1, 2), keepdims=True)``."""
        x = self.uop
        return wrap(total(x, axes_of(dim, len(x.shape)), keepdim, dtype), self._device)

    def prod(self: Tensor, dim: Axis = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
        """The product over axes."""
        x = self.uop
        target = sum_dtype(x.dtype) if dtype is None else dtype_of(dtype)
        wide = B.cast(x, accumulator(target))
        folded = fold(wide, O.MUL, axes_of(dim, len(x.shape)), keepdim)
        return wrap(B.cast(folded, target), self._device)

    def max(self: Tensor, dim: Axis = None, keepdim: bool = False) -> Any:
        """The largest element; with one axis, as in torch, a pair (values, indices)."""
        return _extreme(self, O.MAX, dim, keepdim)

    def min(self: Tensor, dim: Axis = None, keepdim: bool = False) -> Any:
        """The smallest element; with one axis, as in torch, a pair (values, indices)."""
        return _extreme(self, O.MIN, dim, keepdim)

    def amax(self: Tensor, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """The largest element over axes; NaN wins."""
        return _amount(self, O.MAX, dim, keepdim)

    def amin(self: Tensor, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """The smallest element over axes; NaN wins."""
        return _amount(self, O.MIN, dim, keepdim)

    def aminmax(self: Tensor, dim: Axis = None, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        """Both the smallest and the largest element."""
        return self.amin(dim, keepdim), self.amax(dim, keepdim)

    def any(self: Tensor, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """Whether one element is not zero."""
        x = truth(self.uop)
        return wrap(fold(x, O.OR, axes_of(dim, len(x.shape)), keepdim), self._device)

    def all(self: Tensor, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """Whether no element is zero."""
        x = truth(self.uop)
        return wrap(fold(x, O.AND, axes_of(dim, len(x.shape)), keepdim), self._device)

    def count_nonzero(self: Tensor, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """How many elements are not zero."""
        return self.bool().sum(dim, keepdim)

    def mean(self: Tensor, dim: Axis = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
        """The average over axes; integers give float32."""
        x = self.uop
        x = float_node(x) if dtype is None else B.cast(x, dtype_of(dtype))
        return wrap(_mean(x, axes_of(dim, len(x.shape)), keepdim), self._device)

    def var(
        self: Tensor,
        dim: Axis = None,
        correction: float | None = 1,
        keepdim: bool = False,
        *,
        unbiased: bool | None = None,
    ) -> Tensor:
        """The variance over axes; the divisor is n - correction."""
        dim, correction = _moment(dim, correction, unbiased)
        x = float_node(self.uop)
        axes = axes_of(dim, len(x.shape))
        return wrap(_variance(x, axes, correction, keepdim), self._device)

    def std(
        self: Tensor,
        dim: Axis = None,
        correction: float | None = 1,
        keepdim: bool = False,
        *,
        unbiased: bool | None = None,
    ) -> Tensor:
        """The standard deviation over axes; the divisor is n - correction."""
        return _root(self.var(dim, correction, keepdim, unbiased=unbiased))

    def var_mean(
        self: Tensor,
        dim: Axis = None,
        correction: float | None = 1,
        keepdim: bool = False,
        *,
        unbiased: bool | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Variance and mean."""
        dim, correction = _moment(dim, correction, unbiased)
        return self.var(dim, correction, keepdim), self.mean(dim, keepdim)

    def std_mean(
        self: Tensor,
        dim: Axis = None,
        correction: float | None = 1,
        keepdim: bool = False,
        *,
        unbiased: bool | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Standard deviation and mean."""
        dim, correction = _moment(dim, correction, unbiased)
        return self.std(dim, correction, keepdim), self.mean(dim, keepdim)

    def argmax(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """The first place of the largest element, in the flattened tensor without ``dim``."""
        return _position(self, O.MAX, dim, keepdim)

    def argmin(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
        """The first place of the smallest element, in the flattened tensor without ``dim``."""
        return _position(self, O.MIN, dim, keepdim)

    def logsumexp(self: Tensor, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """log(sum(exp(x))) without overflow."""
        x = wrap(float_node(self.uop), self._device)
        top = top_of(x, dim)
        top = select(top.isfinite(), top, 0.0)
        found = (x - top).exp().sum(dim, True).log() + top
        if keepdim:
            return found
        axes = axes_of(dim, self.ndim)
        shape = tuple([n for i, n in enumerate(self.shape) if i not in axes])
        return wrap(B.reshape(found.uop, shape), self._device)

    def norm(self: Tensor, p: Scalar | str = 2, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """The p-norm of the elements over axes; p may be inf, -inf, 0 or "fro"."""
        x = wrap(float_node(self.uop), self._device)
        if p in (2, "fro"):
            return _root((x * x).sum(dim, keepdim))
        if p == "nuc":
            return x._nuclear_norm(dim, keepdim)
        if not isinstance(p, (int, float)):
            raise ShapeError(f"norm: p is a number, inf or 'fro', not {p!r}")
        size = x.abs()
        if p == 1:
            return size.sum(dim, keepdim)
        if p == float("inf"):
            return size.amax(dim, keepdim)
        if p == float("-inf"):
            return size.amin(dim, keepdim)
        if p == 0:
            return (x != 0).cast(x.dtype).sum(dim, keepdim)
        is_zero = size == 0  # where a power has no slope
        powers = select(is_zero, 0.0, select(is_zero, 1.0, size) ** p) if p > 0 else size**p
        total = powers.sum(dim, keepdim)
        if p < 0:
            return total ** (1.0 / p)
        is_zero = total == 0
        return select(is_zero, 0.0, select(is_zero, 1.0, total) ** (1.0 / p))

    def nansum(self: Tensor, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """The sum of the elements that are not NaN."""
        return select(self.isnan(), 0, self).cast(self.dtype).sum(dim, keepdim)

    def nanmean(self: Tensor, dim: Axis = None, keepdim: bool = False) -> Tensor:
        """The average of the elements that are not NaN."""
        count = (~self.isnan()).sum(dim, keepdim)
        return self.nansum(dim, keepdim) / count.cast(float_node(self.uop).dtype)


def _moment(dim: Any, correction: float | None, unbiased: bool | None) -> tuple[Axis, float]:
    """Axes and correction; torch's older forms give ``unbiased`` first or second."""
    correction = 1 if correction is None else correction
    if isinstance(dim, bool):  # x.var(False): over all axes
        dim, unbiased = None, dim
    if isinstance(correction, bool):
        correction = int(correction)
    return dim, correction if unbiased is None else int(unbiased)


def top_of(x: Tensor, dim: Axis) -> Tensor:
    """The largest element over axes, which stay; -inf where there is none, and no gradient."""
    node = x.real.uop  # of complex numbers, by their real parts
    axes = axes_of(dim, len(node.shape))
    if 0 in [node.shape[a] for a in axes]:
        shape = tuple([1 if i in axes else n for i, n in enumerate(node.shape)])
        return wrap(B.broadcast_to(const(-inf, node.dtype), shape), x._device)
    return wrap(fold(node, O.MAX, axes, True), x._device).detach()


def _root(x: Tensor) -> Tensor:
    """The square root with a slope of 0 at 0."""
    is_zero = x == 0
    return select(is_zero, 0.0, select(is_zero, 1.0, x).sqrt())


def _amount(x: Tensor, op: int, dim: Axis, keepdim: bool) -> Tensor:
    node = x.uop
    if dim is not None and 0 in [node.shape[a] for a in axes_of(dim, len(node.shape))]:
        raise AxisError(f"a maximum or minimum over axes {dim} of {node.shape} has no elements")
    if node.dtype.kind == "b":
        op = O.OR if op == O.MAX else O.AND
        if 0 in node.shape and dim is None:
            raise ShapeError(f"the maximum or minimum of shape {node.shape} has no elements")
    return wrap(fold(node, op, axes_of(dim, len(node.shape)), keepdim), x._device)


def _extreme(x: Tensor, op: int, dim: Any, keepdim: bool) -> Any:
    if isinstance(dim, Core):  # x.max(other), as in torch
        return x.maximum(dim) if op == O.MAX else x.minimum(dim)
    if dim is None or not hasattr(dim, "__index__"):
        return _amount(x, op, dim, keepdim)
    axis = axis_of(dim, x.ndim)
    if x.dtype.kind == "f" and x.ndim and x.shape[axis]:
        values = first_extreme(x, op, axis)
        values = values if keepdim else values.squeeze(axis)
    else:
        values = _amount(x, op, dim, keepdim)

    return Ordered(values, _position(x, op, dim, keepdim))


def _position(x: Tensor, op: int, dim: int | None, keepdim: bool) -> Tensor:
    node = x.uop
    ndim = len(node.shape)
    if node.dtype.kind == "b":
        node = B.cast(node, dt.uint8)
    if dim is None or not ndim:
        if dim is not None:
            axis_of(dim, ndim)
        flat = B.reshape(node, (prod(node.shape),))
        found = B.reshape(extreme_position(flat, op, 0, False), ())
        return wrap(B.reshape(found, (1,) * ndim if keepdim else ()), x._device)
    return wrap(extreme_position(node, op, axis_of(dim, ndim), keepdim), x._device)


def _mean(x: UOp, axes: tuple[int, ...], keepdim: bool) -> UOp:
    if x.dtype.kind not in "fc":
        raise DTypeError(f"a mean is a float, not {x.dtype.name}")
    count = prod([x.shape[a] for a in axes])
    wide = B.cast(x, accumulator(x.dtype))
    folded = fold(wide, O.ADD, axes, keepdim)
    if isinstance(count, int) and count == 0:
        return B.cast(B.binary(O.MUL, folded, const(float("nan"), wide.dtype)), x.dtype)
    return B.cast(B.binary(O.DIV, folded, size_node(count, wide.dtype)), x.dtype)


def _variance(x: UOp, axes: tuple[int, ...], correction: float, keepdim: bool) -> UOp:
    count = prod([x.shape[a] for a in axes])
    wide = B.cast(x, accumulator(x.dtype))
    apart = B.binary(O.SUB, wide, _mean(wide, axes, True))
    folded = fold(B.binary(O.MUL, apart, apart), O.ADD, axes, keepdim)
    if not isinstance(count, int):
        left = B.binary(O.SUB, size_node(count, wide.dtype), const(correction, wide.dtype))
        left = B.binary(O.MAX, left, const(0, wide.dtype))
        return B.cast(B.binary(O.DIV, folded, left), x.dtype)
    rest = max(0.0, count - correction)
    scale = 1.0 / rest if rest else float("inf")  # 0 * inf: no variance of a single element
    if count == 0:
        scale = float("nan")
    return B.cast(B.binary(O.MUL, folded, const(scale, wide.dtype)), x.dtype)
