"""Tensors with a part replaced: slice_scatter, diagonal_scatter, put, index_reduce."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.tensor.core.tensor_core import (
    AxisError,
    Core,
    IndexKindError,
    Scalar,
    axes_of,
    integer,
    real_axis,
    tensor_of,
    wrap,
)
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.gather_scatter import scatter_reduced
from svod.tensor.ops.indexing import write
from svod.tensor.ops.scalar_axes import as_vectors

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_REDUCED = ("prod", "mean", "amax", "amin")


def _written(x: Tensor, axis: int, entry: Any, source: Any) -> Tensor:
    key = (*[slice(None)] * axis, entry)
    have = x[key].shape
    values = tensor_of(source, x)
    if values.shape != have:
        raise ShapeError(f"a source of shape {values.shape} for a part of shape {have}")
    return wrap(write(x, key, values.cast(x.dtype)), x._device)


class Scattering(Core):
    """select_scatter, slice_scatter, diagonal_scatter, put, index_reduce and relatives."""

    __slots__ = ()

    def select_scatter(self: Tensor, src: Tensor, dim: int, index: int) -> Tensor:
        """x with one slice of an axis replaced."""
        axis = real_axis(dim, self.shape, "select_scatter")
        return _written(self, axis, integer(index, "index"), src)

    def slice_scatter(
        self: Tensor,
        src: Tensor,
        dim: int = 0,
        start: int | None = None,
        end: int | None = None,
        step: int = 1,
    ) -> Tensor:
        """x with a range of an axis replaced."""
        axis = real_axis(dim, self.shape, "slice_scatter")
        if integer(step, "step") < 1:
            raise ShapeError(f"slice_scatter: step is at least 1, not {step}")
        return _written(self, axis, slice(start, end, step), src)

    def diagonal_scatter(
        self: Tensor, src: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
    ) -> Tensor:
        """x with a diagonal of two axes replaced."""
        a, b = axes_of((dim1, dim2), self.ndim)
        have = self.diagonal(offset, dim1, dim2).shape
        if src.shape != have:
            raise ShapeError(f"a source of shape {src.shape} for a diagonal of shape {have}")
        rest = [i for i in range(self.ndim) if i not in (a, b)]
        moved = self.permute(*rest, a, b)
        top, left, size = max(0, -offset), max(0, offset), have[-1]
        line = wrap(B.iota(size, dt.int64), None)
        first = moved.movedim((-2, -1), (0, 1))
        values = src.cast(self.dtype).movedim(-1, 0)
        node = B.scatter(first.uop, values.uop, [(line + top).uop, (line + left).uop], "set")
        found = wrap(node, self._device).movedim((0, 1), (-2, -1))
        order = [0] * self.ndim
        for place, axis in enumerate((*rest, a, b)):
            order[axis] = place
        return found.permute(*order) if self.ndim > 2 or a > b else found

    def fill_diagonal_(self: Tensor, fill_value: Scalar, wrap: bool = False) -> Tensor:
        """In place: one value on the main diagonal; ``wrap`` starts again in tall matrices."""
        if self.ndim < 2:
            raise ShapeError(f"fill_diagonal_ needs at least 2 axes, not shape {self.shape}")
        if self.ndim > 2 and len(set(self.shape)) > 1:
            raise ShapeError(f"fill_diagonal_: the axes of {self.shape} differ")
        places = [_line(n, i, self.ndim) for i, n in enumerate(self.shape)]
        first = places[0]
        if wrap and self.ndim == 2:
            first = first % (self.shape[1] + 1)
        hit = first == places[1]
        for place in places[2:]:
            hit = hit & (first == place)
        return self.become(select(hit, fill_value, self).cast(self.dtype))

    def put(self: Tensor, index: Tensor, source: Tensor, accumulate: bool = False) -> Tensor:
        """x with values written, or added, at places of the flattened tensor."""
        if not index.dtype.is_int:
            raise IndexKindError(f"put: an index holds integers, not {index.dtype.name}")
        if source.dtype is not self.dtype:
            raise DTypeError(f"put of {source.dtype.name} into {self.dtype.name}")
        if index.numel() != source.numel():
            raise AxisError(f"put: {index.numel()} places for {source.numel()} values")
        mode = "add" if accumulate else "set"
        node = write(self.ravel(), (index.ravel(),), source.ravel(), mode, "put")
        return wrap(node, self._device).reshape(self.shape)

    @as_vectors
    def index_reduce(
        self: Tensor,
        dim: int,
        index: Tensor,
        source: Tensor,
        reduce: str,
        *,
        include_self: bool = True,
    ) -> Tensor:
        """x with slices combined into the places of a vector of indices."""
        if reduce not in _REDUCED:
            raise ShapeError(f"index_reduce: {reduce!r} is not one of {', '.join(_REDUCED)}")
        axis = real_axis(dim, self.shape, "index_reduce")
        if index.ndim > 1 or index.numel() != source.shape[axis]:
            raise ShapeError(f"index_reduce: index {index.shape} for a source of {source.shape}")
        line = index.reshape([-1 if i == axis else 1 for i in range(self.ndim)])
        wide = line.expand(source.shape)
        return scatter_reduced(self, axis, wide, source, reduce, include_self, "index_reduce")


def _line(size: int, axis: int, ndim: int) -> Tensor:
    shape = tuple([size if i == axis else 1 for i in range(ndim)])
    return wrap(B.reshape(B.iota(size, dt.int64), shape), None)
