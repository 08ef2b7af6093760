"""gather, scatter and their relatives: element access by index tensors, with torch's names.

Each is one GATHER or SCATTER node; axes that are not addressed are carried along or indexed by
their own position, which costs nothing after scheduling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.capabilities import capabilities_of
from svod.ir.node import UOp, elements
from svod.ir.reductions import identity
from svod.tensor.core.tensor_core import (
    AxisError,
    Core,
    Scalar,
    axis_of,
    common_device,
    integer,
    real_axis,
    scalar_node,
    tensor_of,
    wrap,
)
from svod.tensor.ops.elementwise import ON_BOOL, arithmetic, select
from svod.tensor.ops.index_checks import checked, index_of
from svod.tensor.ops.indexing import Inside, read, wrap_negative, write
from svod.tensor.ops.reductions import fold
from svod.tensor.ops.scalar_axes import as_vectors, raised

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def _index_node(index: Any, like: Tensor, axis: int, what: str) -> tuple[UOp, str | None]:
    """An index into an axis of a tensor, checked, and the device of both."""
    size = like.shape[axis] if like.ndim else 1
    found = index_of(index, like, size, what)
    return found.uop, common_device(like._device, found._device)


def _all_axes(x: UOp, index: UOp, axis: int, what: str) -> list[UOp]:
    """One index tensor per axis: the given one for ``axis``, positions for the others."""
    shape = index.shape
    if len(shape) != len(x.shape):
        raise ShapeError(f"{what}: index of shape {shape} for a tensor of shape {x.shape}")
    found = []
    for i, (n, size) in enumerate(zip(shape, x.shape, strict=True)):
        if i == axis:
            found.append(index)
            continue
        if n > size:
            raise ShapeError(f"{what}: index of shape {shape} exceeds {x.shape} on axis {i}")
        line = tuple([n if j == i else 1 for j in range(len(shape))])
        found.append(B.expand(B.reshape(B.iota(n, dt.int64), line), shape))
    return found


def _indexed_axis(x: UOp, axis: int) -> tuple[UOp, tuple[int, ...]]:
    """x with ``axis`` first, and the permutation that moves it back."""
    order = (axis, *[a for a in range(len(x.shape)) if a != axis])
    return B.permute(x, order), tuple(np.argsort(order).tolist())


class Indexed(Core):
    """gather, scatter, take, index_select, one_hot, embedding and relatives."""

    __slots__ = ()

    # -- reading -------------------------------------------------------------------------------

    def gather(self: Tensor, dim: int, index: Tensor) -> Tensor:
        """``out[i][j] = x[index[i][j]][j]`` for dim 0, and so on; index has x's rank."""
        axis = axis_of(dim, self.ndim)
        node, device = _index_node(index, self, axis, "gather")
        if not self.ndim:
            return wrap(B.broadcast_to(self.uop, node.shape), device)
        if 0 in node.shape:  # of any rank, as in torch
            return wrap(B.full(node.shape, 0, self.dtype), device)
        if self.ndim == 1 and not node.shape:
            return self.gather(axis, raised(index)).reshape(())
        return wrap(B.gather(self.uop, _all_axes(self.uop, node, axis, "gather")), device)

    def take_along_dim(self: Tensor, indices: Tensor, dim: int | None = None) -> Tensor:
        """Values picked along an axis; the other axes of the index broadcast."""
        if dim is None:
            flat = index_of(indices, self, self.numel(), "take_along_dim", takes_negative=True)
            return self.ravel()[Inside(_from_front(flat.ravel(), self.numel()))]
        if not self.ndim:
            axis_of(dim, 0)
            index = tensor_of(indices, self)
            return self.reshape(1).take_along_dim(raised(index), 0).reshape(index.shape)
        axis = real_axis(dim, self.shape, "take_along_dim")
        size = self.shape[axis]
        index = index_of(indices, self, size, "take_along_dim", takes_negative=True)
        index = _from_front(index, size)
        if index.ndim != self.ndim:
            raise ShapeError(f"take_along_dim: shapes {self.shape} and {index.shape}")
        ones = [1 if i == axis else n for i, n in enumerate(index.shape)]
        mine = [1 if i == axis else n for i, n in enumerate(self.shape)]
        common = B.broadcast_shapes(tuple(ones), tuple(mine))
        at = [index.shape[axis] if i == axis else n for i, n in enumerate(common)]
        wide = [self.shape[axis] if i == axis else n for i, n in enumerate(common)]
        there = _all_axes(self.expand(wide).uop, index.expand(at).uop, axis, "take_along_dim")
        device = common_device(self._device, index._device)
        return wrap(B.gather(self.expand(wide).uop, there), device)

    @as_vectors
    def index_select(self: Tensor, dim: int, index: Tensor) -> Tensor:
        """The slices of an axis that a vector of indices names."""
        axis = real_axis(dim, self.shape, "index_select")
        node, device = _index_node(index, self, axis, "index_select")
        if len(node.shape) > 1:
            raise AxisError(f"index_select takes a vector of indices, not {node.shape}")
        node = B.reshape(node, (elements(node.shape),))
        first, back = _indexed_axis(self.uop, axis)
        return wrap(B.permute(B.gather(first, [node]), back), device)

    def take(self: Tensor, indices: Any, dim: int | None = None) -> Tensor:
        """Elements of the flattened tensor, or slices along an axis."""
        if dim is not None:
            found = tensor_of(indices, self)
            axis = real_axis(dim, self.shape, "take")
            return read(self, (*[slice(None)] * axis, found), "take")
        found = index_of(indices, self, self.numel(), "take", takes_negative=True)
        return read(self.ravel(), Inside(_from_front(found, self.numel())))

    def masked_select(self: Tensor, mask: Tensor) -> Tensor:
        """The elements where the mask holds, as a vector; the mask is read now."""
        shape = B.broadcast_shapes(self.shape, mask.shape)
        return self.expand(shape)[mask.expand(shape)]

    def nonzero(self: Tensor, *, as_tuple: bool = False) -> Any:
        """The places of elements that are not zero, one row each; the tensor is read now, of one
        on a GPU only how many there are."""
        if self.ndim and not capabilities_of(self.device).is_on_host:
            there = self.bool()
            count = int(there.sum().item())
            rows = there.nonzero_static(size=count).realize()
            return tuple([rows[:, i] for i in range(self.ndim)]) if as_tuple else rows
        found = np.nonzero(np.atleast_1d(self.numpy()))
        if as_tuple:
            return tuple([tensor_of(i, self) for i in found])
        rows = np.stack(found, 1) if self.ndim else np.zeros((len(found[0]), 0), np.int64)
        return tensor_of(rows, self)

    argwhere = nonzero

    def nonzero_static(self: Tensor, *, size: int, fill_value: int = -1) -> Tensor:
        """The first ``size`` places of elements that are not zero, filled up; nothing is read."""
        count = integer(size, "size")
        if count < 0:
            raise ShapeError(f"nonzero_static: size is 0 or more, not {count}")
        is_set = self.bool().ravel()
        rows = wrap(B.full((count,), -1, dt.int64), self._device)
        if is_set.shape[0] and count:
            line = wrap(B.iota(is_set.shape[0], dt.int64), self._device)
            kind = dt.int32 if is_set.shape[0] < 1 << 31 else dt.int64
            order = is_set.cumsum(0, dtype=kind) - 1
            place = select(is_set, order, count)  # what is outside is dropped
            rows = wrap(B.scatter(rows.uop, line.uop, [place.uop], "set"), self._device)
        found = []
        rest = rows
        for n in reversed(self.shape):
            found.append(select(rows < 0, fill_value, rest.remainder(max(n, 1))))
            rest = rest // max(n, 1)
        if not found:
            return wrap(B.full((count, 0), 0, dt.int64), self._device)
        return found[-1].stack(*found[-2::-1], dim=1)

    def embedding(self: Tensor, weight: Tensor, padding_idx: int | None = None) -> Tensor:
        """Rows of ``weight`` at these indices; torch's functional.embedding."""
        if weight.ndim != 2:
            raise ShapeError(f"embedding needs a matrix of rows, not {weight.shape}")
        rows = weight.shape[0]
        at = Inside(index_of(self, weight, rows, "embedding"))
        if padding_idx is None:
            return read(weight, at)
        row = axis_of(padding_idx, rows)  # its gradient is 0
        is_row = wrap(B.reshape(B.iota(rows, dt.int64), (rows, 1)), None) == row
        return read(select(is_row, weight.detach(), weight), at)

    def one_hot(self: Tensor, num_classes: int = -1) -> Tensor:
        """A new last axis that is 1 at the index and 0 elsewhere."""
        if not self.dtype.is_int:
            raise DTypeError(f"one_hot takes integers, not {self.dtype.name}")
        count = integer(num_classes, "num_classes")
        if count < 0:
            if not self.numel():
                raise ShapeError("one_hot of no elements needs num_classes")
            count = int(self.amax().item()) + 1
        places = index_of(self, None, count, "one_hot")
        classes = wrap(B.iota(count, self.dtype), None)
        return (places.unsqueeze(-1) == classes).cast(dt.int64)

    # -- writing -------------------------------------------------------------------------------

    @as_vectors
    def scatter(
        self: Tensor, dim: int, index: Tensor, src: Tensor | Scalar, *, reduce: str | None = None
    ) -> Tensor:
        """x with ``src`` written where ``index`` points along an axis; the last one wins."""
        if reduce in ("add", "sum"):
            return _scatter(self, dim, index, src, "add", "scatter")
        if reduce == "multiply":
            values = tensor_of(src, self)
            values = values if values.ndim else values.expand(index.shape)
            return self.scatter_reduce(dim, index, values, "prod")
        if reduce is not None:
            raise ShapeError(f"scatter: reduce is 'add' or 'multiply', not {reduce!r}")
        return _scatter(self, dim, index, src, "set", "scatter")

    @as_vectors
    def scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Tensor:
        """x with ``src`` added where ``index`` points along an axis."""
        return _scatter(self, dim, index, src, "add", "scatter_add")

    @as_vectors
    def scatter_reduce(
        self: Tensor,
        dim: int,
        index: Tensor,
        src: Tensor,
        reduce: str,
        *,
        include_self: bool = True,
    ) -> Tensor:
        """x with ``src`` combined into it where ``index`` points: sum, mean, prod, amax, amin."""
        return scatter_reduced(self, dim, index, src, reduce, include_self, "scatter_reduce")

    @as_vectors
    def index_add(
        self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Scalar = 1
    ) -> Tensor:
        """x with slices added at the places of a vector of indices."""
        values = source if alpha == 1 else source * alpha
        return _index_write(self, dim, index, values, "add", "index_add")

    @as_vectors
    def index_copy(self: Tensor, dim: int, index: Tensor, source: Tensor) -> Tensor:
        """x with slices written at the places of a vector of indices."""
        return _index_write(self, dim, index, source, "set", "index_copy")

    @as_vectors
    def index_fill(self: Tensor, dim: int, index: Tensor, value: Scalar) -> Tensor:
        """x with a number written at the places of a vector of indices."""
        return _index_write(self, dim, index, value, "set", "index_fill")

    def index_put(
        self: Tensor, indices: tuple[Any, ...], values: Any, accumulate: bool = False
    ) -> Tensor:
        """x after ``x[indices] = values``, or with the values added."""
        _same_dtype(self, values, "index_put")
        mode = "add" if accumulate else "set"
        node = write(self, tuple(indices), values, mode, "index_put")
        return wrap(node, self._device)

    def masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Tensor:
        """x with the elements of ``source``, in order, where the mask holds."""
        _same_dtype(self, source, "masked_scatter")
        if mask.dtype is not dt.bool_:
            raise DTypeError(f"masked_scatter: a mask is bool, not {mask.dtype.name}")
        shape = B.broadcast_shapes(self.shape, mask.shape)
        where, x = mask.expand(shape), self.expand(shape)
        place = where.ravel().cast(dt.int64).cumsum(0) - 1
        at = place.clamp(0).uop
        at = checked(at, source.numel(), "masked_scatter") if source.numel() else at
        found = wrap(B.gather(source.ravel().uop, [at]), source._device)
        return select(where, found.reshape(shape), x)


def _same_dtype(x: Tensor, source: Any, what: str) -> None:
    """Values written by index keep their dtype: a conversion is the caller's to ask for."""
    if isinstance(source, Core) and source.dtype is not x.dtype:
        raise DTypeError(f"{what} of {source.dtype.name} into {x.dtype.name}: convert one of them")


def _from_front(index: Tensor, size: int) -> Tensor:
    return wrap(wrap_negative(index.uop, size), index._device)


def _scatter(x: Tensor, dim: int, index: Any, src: Any, mode: str, what: str) -> Tensor:
    _same_dtype(x, src, what)
    if x.ndim == 1:
        index, src = raised(index), raised(src)
    axis = real_axis(dim, x.shape, what)
    node, device = _index_node(index, x, axis, what)
    if isinstance(src, (int, float)):
        values = B.broadcast_to(scalar_node(src, x.dtype), node.shape)
    else:
        source = tensor_of(src, x)
        device = common_device(device, source._device)
        if len(source.shape) != len(node.shape):
            raise ShapeError(f"{what}: index {node.shape} and source {source.shape} differ")
        values = B.cast(source.uop, x.dtype)
        values = B.shrink(values, tuple([(0, n) for n in node.shape]))
    indices = _all_axes(x.uop, node, axis, what)
    return wrap(B.scatter(x.uop, values, indices, mode), device)


def _index_write(x: Tensor, dim: int, index: Any, source: Any, mode: str, what: str) -> Tensor:
    _same_dtype(x, source, what)
    axis = real_axis(dim, x.shape, what)
    size = x.shape[axis]
    takes_negative = what == "index_fill"
    at = index_of(raised(index), x, size, what, takes_negative)
    node = wrap_negative(at.uop, size) if takes_negative else at.uop
    device = common_device(x._device, at._device)
    if len(node.shape) != 1:
        raise ShapeError(f"{what}: a vector of indices is needed, not shape {node.shape}")
    first, back = _indexed_axis(x.uop, axis)
    shape = node.shape + first.shape[1:]
    if isinstance(source, (int, float)):
        values = B.broadcast_to(scalar_node(source, x.dtype), shape)
    else:
        given = tensor_of(source, x)
        wanted = tuple([node.shape[0] if i == axis else n for i, n in enumerate(x.shape)])
        if given.ndim and given.shape != wanted:
            raise AxisError(f"a source of shape {given.shape} for a part of shape {wanted}")
        part = B.broadcast_to(B.cast(given.uop, x.dtype), wanted)
        values, _ = _indexed_axis(part, axis)
    found = B.scatter(first, values, [node], mode)
    return wrap(B.permute(found, back), device)


_FOLDS = {"sum": O.ADD, "mean": O.ADD, "prod": O.MUL, "amax": O.MAX, "amin": O.MIN}


def scatter_reduced(
    x: Tensor, dim: int, index: Any, source: Any, reduce: str, include_self: bool, what: str
) -> Tensor:
    """``scatter_reduce``, for the function that is called ``what``.

    Every place looks at all values that point at it: no order, no write conflicts.
    """
    axis = real_axis(dim, x.shape, what)
    _same_dtype(x, source, what)
    if reduce == "sum" and include_self:
        return _scatter(x, axis, index, source, "add", what)
    src = tensor_of(source, x)
    if reduce not in _FOLDS:
        raise ShapeError(f"{what}: {reduce!r} is not one of {', '.join(_FOLDS)}")
    op = _FOLDS[reduce]
    if x.dtype.is_complex and op != O.ADD:
        raise DTypeError(f"{what}: {reduce!r} takes real numbers, not {x.dtype.name}")
    at, device = _index_node(index, x, axis, what)
    if len(at.shape) != x.ndim or len(src.shape) != x.ndim:
        raise ShapeError(f"{what}: shapes {x.shape}, {at.shape} and {src.shape}")
    values = B.shrink(B.cast(src.uop, x.dtype), tuple([(0, n) for n in at.shape]))
    # (.., places, .., sources): the sources of each line as a new last axis
    lines = [n if i == axis else at.shape[i] for i, n in enumerate(x.shape)]
    wide_at = wrap(at, device).movedim(axis, -1).unsqueeze(axis)
    wide_values = wrap(values, device).movedim(axis, -1).unsqueeze(axis)
    place = wrap(B.iota(x.shape[axis], at.dtype), None)
    place = place.reshape([-1 if i == axis else 1 for i in range(x.ndim + 1)])
    hit = wide_at == place
    folding = ON_BOOL[op] if x.dtype is dt.bool_ else op
    start = wrap(scalar_node(identity(folding, x.dtype), x.dtype), device)
    folded = wrap(fold(select(hit, wide_values, start).uop, folding, (x.ndim,), False), device)
    count = hit.sum(-1)
    inside = x.shrink([(0, n) for n in lines])
    if include_self:
        found, count = arithmetic(op, inside, folded), count + 1
    else:
        found = folded
    if reduce == "mean":
        total = found / count.clamp(1) if x.dtype.kind in "fc" else found // count.clamp(1)
        found = total.cast(x.dtype)
    found = select(hit.any(-1), found, inside)
    if tuple(lines) == x.shape:
        return found
    return wrap(write(x, tuple([slice(0, n) for n in lines]), found), device)
