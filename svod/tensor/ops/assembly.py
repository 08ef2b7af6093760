"""Stacks, blocks, Cartesian products, triangles and other rearrangements of several tensors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations as _choices
from itertools import combinations_with_replacement as _choices_again
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from svod.base.errors import DTypeError, IndexingError, ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import dtype_of
from svod.tensor.core.tensor_core import (
    Core,
    axis_of,
    device_name,
    fresh,
    integer,
    real_axis,
    shape_of,
    tensor_of,
)
from svod.tensor.ops.creation import arange, full, meshgrid
from svod.tensor.ops.joining import concatenate, stack
from svod.tensor.ops.reductions import sum_dtype
from svod.tensor.views.aliases import view
from svod.tensor.views.as_strided import strided_of

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def _each(tensors: Any, change: Any) -> Any:
    """One tensor changed, or a tuple of several."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        return tuple([change(t) for t in _tensors(tensors[0], "atleast")])
    found = [change(t) for t in _tensors(tensors, "atleast")]
    return found[0] if len(found) == 1 else tuple(found)


def _tensors(values: Any, what: str) -> list[Tensor]:
    for value in values:
        if not isinstance(value, Core):
            raise DTypeError(f"{what} takes tensors, not a {type(value).__name__}: {value!r:.60}")
    return list(values)


def atleast_1d(*tensors: Any) -> Any:
    """Tensors with at least one axis."""
    return _each(tensors, lambda t: t if t.ndim else t.reshape(1))


def atleast_2d(*tensors: Any) -> Any:
    """Tensors with at least two axes; new ones come first."""
    return _each(tensors, lambda t: t.reshape([1] * (2 - t.ndim) + list(t.shape)))


def atleast_3d(*tensors: Any) -> Any:
    """Tensors with at least three axes; a matrix gets a new last one."""

    def change(t: Tensor) -> Tensor:
        if t.ndim < 2:
            return t.reshape(1, -1, 1)
        return t.unsqueeze(-1) if t.ndim == 2 else t

    return _each(tensors, change)


def _sequence(tensors: Any, what: str) -> list[Tensor]:
    if isinstance(tensors, Core) or not isinstance(tensors, (list, tuple)):
        raise DTypeError(f"{what} takes a sequence of tensors, not a {type(tensors).__name__}")
    if not tensors:
        raise ShapeError(f"{what} needs at least one tensor")
    return _tensors(tensors, what)


def hstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors side by side: along axis 1, vectors along axis 0."""
    parts = [atleast_1d(t) for t in _sequence(tensors, "hstack")]
    return concatenate(parts, 0 if parts[0].ndim == 1 else 1)


def vstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors below each other, along axis 0; vectors are rows."""
    return concatenate([atleast_2d(t) for t in _sequence(tensors, "vstack")], 0)


row_stack = vstack


def dstack(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors behind each other, along axis 2."""
    return concatenate([atleast_3d(t) for t in _sequence(tensors, "dstack")], 2)


def column_stack(tensors: Sequence[Tensor]) -> Tensor:
    """Vectors as columns of a matrix; matrices side by side."""
    parts = _sequence(tensors, "column_stack")
    return concatenate([t.reshape(-1, 1) if t.ndim < 2 else t for t in parts], 1)


def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of a larger one, zeros elsewhere."""
    parts = [atleast_2d(t) for t in _tensors(tensors, "block_diag")] or [full((1, 0), 0.0)]
    for t in parts:
        if t.ndim > 2:
            raise ShapeError(f"block_diag takes at most 2 axes, not shape {t.shape}")
    columns = sum([t.shape[1] for t in parts])
    rows, before = [], 0
    for t in parts:
        rows.append(t.pad((before, columns - before - t.shape[1])))
        before += t.shape[1]
    return concatenate(rows, 0)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Every choice of one element of each vector, a row each."""
    for t in _tensors(tensors, "cartesian_prod"):
        if t.ndim != 1:
            raise ShapeError(f"cartesian_prod takes vectors, not shape {t.shape}")
    if len(tensors) == 1:
        return tensors[0]
    return stack([g.ravel() for g in meshgrid(*tensors, indexing="ij")], 1)


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """Every choice of r elements of a vector, a row each."""
    if input.ndim != 1:
        raise ShapeError(f"combinations takes a vector, not shape {input.shape}")
    count = integer(r, "r")
    if count < 0:
        raise ShapeError(f"combinations: r is 0 or more, not {count}")
    if not count:
        return full((0,), 0, dtype=input.dtype)
    choose = _choices_again if with_replacement else _choices
    rows = np.array(list(choose(range(input.shape[0]), count)), np.int64).reshape(-1, count)
    return input[tensor_of(rows, input)]


def tril_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: str | None = None
) -> Tensor:
    """Rows and columns of the lower triangle of a matrix."""
    return _triangle(np.tril, row, col, offset, dtype, device)


def triu_indices(
    row: int, col: int, offset: int = 0, *, dtype: Any = None, device: str | None = None
) -> Tensor:
    """Rows and columns of the upper triangle of a matrix."""
    return _triangle(np.triu, row, col, offset, dtype, device)


def _triangle(cut: Any, row: int, col: int, offset: int, dtype: Any, device: str | None) -> Tensor:
    rows, columns = integer(row, "row"), integer(col, "col")
    if rows < 0 or columns < 0:
        raise ShapeError(f"a triangle of {rows} rows and {columns} columns")
    places = np.nonzero(cut(np.ones((rows, columns), bool), integer(offset, "offset")))
    kind = dt.int64 if dtype is None else dtype_of(dtype)
    found = tensor_of(np.stack(places).astype(np.int64))
    return found.to(device=device_name(device)).cast(kind)


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """The powers of a vector as columns, the highest first unless told otherwise."""
    if x.ndim != 1:
        raise ShapeError(f"vander takes a vector, not shape {x.shape}")
    count = x.shape[0] if N is None else integer(N, "N")
    if count < 0:
        raise ShapeError(f"vander: N is 0 or more, not {count}")
    kind = x.dtype if x.dtype.kind == "f" else sum_dtype(x.dtype)
    columns = [full((x.shape[0], 1), 1, dtype=kind)] if count else []
    for _ in range(count - 1):
        columns.append(columns[-1] * x.cast(kind).unsqueeze(1))
    if not columns:
        return full((x.shape[0], 0), 0, dtype=kind)
    return concatenate(columns if increasing else columns[::-1], 1)


def unravel_index(indices: Tensor, shape: Any) -> tuple[Tensor, ...]:
    """Flat positions as one index per axis of a shape."""
    if not indices.dtype.is_int:
        raise DTypeError(f"unravel_index takes integers, not {indices.dtype.name}")
    sizes = shape_of((shape,))
    if any(n < 0 for n in sizes):
        raise ShapeError(f"unravel_index: sizes are 0 or more, not {sizes}")
    found, rest = [], indices
    for n in reversed(sizes):
        found.append(rest % n)
        rest = rest // n
    return tuple(found[::-1])


def range_(start: Any = 0, end: Any = None, step: Any = 1, *, dtype: Any = None) -> Tensor:
    """start, start + step, .. up to and including end."""
    if end is None:
        start, end = 0, start
    if not step or (end - start) / step < 0:
        raise ShapeError(f"range from {start} to {end} by {step}")
    count = int((end - start) / step) + 1
    kind = dt.float32 if dtype is None else dtype_of(dtype)
    return (arange(count).double() * step + start).cast(kind)


def scalar_tensor(s: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """A number as a tensor without axes."""
    return full((), s, dtype=dt.float32 if dtype is None else dtype, device=device)


class Assembly(Core):
    """hsplit, vsplit, dsplit, select, diagflat and relatives."""

    __slots__ = ()

    def hsplit(self: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
        """Parts along axis 1; of a vector, along axis 0."""
        if not self.ndim:
            raise ShapeError("hsplit needs at least 1 axis")
        return _even_split(self, indices_or_sections, 0 if self.ndim == 1 else 1)

    def vsplit(self: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
        """Parts along axis 0 of a tensor with at least two axes."""
        if self.ndim < 2:
            raise ShapeError(f"vsplit needs at least 2 axes, not shape {self.shape}")
        return _even_split(self, indices_or_sections, 0)

    def dsplit(self: Tensor, indices_or_sections: Any) -> tuple[Tensor, ...]:
        """Parts along axis 2."""
        if self.ndim < 3:
            raise ShapeError(f"dsplit needs at least 3 axes, not shape {self.shape}")
        return _even_split(self, indices_or_sections, 2)

    def split_with_sizes(
        self: Tensor, split_sizes: Sequence[int], dim: int = 0
    ) -> tuple[Tensor, ...]:
        """Parts of the given sizes."""
        return self.split(list(split_sizes), dim)

    def select(self: Tensor, dim: int, index: int) -> Tensor:
        """One slice of an axis, without it."""
        if not self.ndim:
            raise IndexingError("select needs at least 1 axis, this tensor is a scalar")
        axis = axis_of(dim, self.ndim)
        return self[(*[slice(None)] * axis, integer(index, "index"))]

    def narrow_copy(self: Tensor, dim: int, start: int, length: int) -> Tensor:
        """``length`` elements of one axis from ``start``."""
        return self.narrow(dim, start, length).clone()

    def diagflat(self: Tensor, offset: int = 0) -> Tensor:
        """A matrix with all elements on a diagonal."""
        return self.ravel().diag_embed(offset)

    def diff(
        self: Tensor, n: int = 1, dim: int = -1, prepend: Any = None, append: Any = None
    ) -> Tensor:
        """Differences of neighbours along an axis, taken n times."""
        times = integer(n, "n")
        if times < 0:
            raise ShapeError(f"diff: n must be 0 or more, not {times}")
        axis = real_axis(dim, self.shape, "diff")
        parts = [p for p in (prepend, self, append) if p is not None]
        found = self if len(parts) == 1 else concatenate(parts, axis)
        for _ in range(min(times, found.shape[axis])):
            rest = max(found.shape[axis] - 1, 0)
            after = found.narrow(axis, found.shape[axis] - rest, rest)
            before = found.narrow(axis, 0, rest)
            found = after ^ before if found.dtype is dt.bool_ else after - before
        return found if found is not self else fresh(self.uop, self._device)

    def adjoint(self: Tensor) -> Tensor:
        """The last two axes exchanged."""
        return self.mT

    @property
    def H(self: Tensor) -> Tensor:
        """The transpose of a matrix."""
        if self.ndim not in (0, 2):
            raise ShapeError(f"H takes a matrix, not shape {self.shape}")
        return self.T

    @property
    def mH(self: Tensor) -> Tensor:
        """The last two axes exchanged."""
        return self.mT

    def sum_to_size(self: Tensor, *size: Any) -> Tensor:
        """The sum that a tensor of another shape, stretched to this one, would receive."""
        wanted = shape_of(size)
        extra = self.ndim - len(wanted)
        pairs = zip(self.shape[max(extra, 0) :], wanted, strict=False)
        if extra < 0 or any(n != m and m != 1 for n, m in pairs):
            raise ShapeError(f"sum_to_size: {wanted} does not stretch to {self.shape}")
        axes = [i for i, n in enumerate(self.shape) if i < extra or wanted[i - extra] != n]
        found = self.sum(tuple(axes), True) if axes or not wanted else self
        return found.reshape(wanted)

    def as_strided(
        self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int = 0
    ) -> Tensor:
        """The row-major elements read with other strides."""
        sizes, strides = shape_of((size,)), shape_of((stride,))
        if len(sizes) != len(strides):
            raise ShapeError(f"as_strided: sizes {sizes} and strides {strides}")
        return view(self, (strided_of, (sizes, strides, integer(storage_offset, "offset"))))

    def resize(self: Tensor, *sizes: Any) -> Tensor:
        """The row-major elements under another shape; those beyond the present ones are zero."""
        wanted, flat = shape_of(sizes), self.ravel()
        if any(n < 0 for n in wanted):
            raise ShapeError(f"resize: sizes are 0 or more, got {wanted}")
        size, more = prod(wanted), prod(wanted) - self.numel()
        return (flat.pad((0, more)) if more > 0 else flat.narrow(0, 0, size)).reshape(wanted)

    def resize_as(self: Tensor, other: Tensor) -> Tensor:
        """The row-major elements under the shape of another tensor."""
        return self.resize(other.shape)

    def new_empty_strided(self: Tensor, size: Any, stride: Any, **options: Any) -> Tensor:
        """A tensor of this dtype and device whose values nobody should rely on."""
        return self.new_zeros(size, **options)

    def new_empty(self: Tensor, *size: Any, **options: Any) -> Tensor:
        """A tensor of this dtype and device whose values nobody should rely on."""
        return self.new_zeros(*size, **options)

    def new_tensor(
        self: Tensor, data: Any, *, dtype: Any = None, device: str | None = None
    ) -> Tensor:
        """A copy of data as a tensor of this dtype and device unless told otherwise."""
        return tensor_of(data, self).to(dtype=dtype or self.dtype, device=device, copy=True)


def _even_split(x: Tensor, how: Any, axis: int) -> tuple[Tensor, ...]:
    if hasattr(how, "__index__") and (integer(how, "sections") < 1 or x.shape[axis] % how):
        raise ShapeError(f"axis {axis} of {x.shape} has no {how} equal parts")
    return x.tensor_split(how, axis)
