"""Creation functions: zeros, ones, full, arange, linspace, eye, meshgrid.

They are graphs of constants and IOTA and take no memory until something stores them.
"""

from __future__ import annotations

from math import ceil, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.dtype.casts import pack_const
from svod.dtype.convert import dtype_of
from svod.dtype.promotion import result_type
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, largest
from svod.tensor.core.complex_parts import joined
from svod.tensor.core.tensor_core import (
    Core,
    Scalar,
    device_name,
    integer,
    number_type,
    scalar_node,
    shape_of,
    spelled,
    tensor_of,
    wrap,
)
from svod.tensor.ops.elementwise import select

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def _filled(shape: tuple[Any, ...], value: Scalar, dtype: Any, device: str | None) -> Tensor:
    sizes = shape_of(shape)
    if any(n < 0 for n in sizes):
        raise ShapeError(f"sizes are 0 or more, got {sizes}")
    if any(largest(n) >= 1 << 63 for n in sizes):
        raise ShapeError(f"sizes are below 2**63, got {sizes}")
    kind = number_type(value) if dtype is None else dtype_of(dtype)
    return wrap(B.broadcast_to(scalar_node(value, kind), sizes), device_name(device))


def full(shape: Any, fill_value: Any, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """A tensor with one value everywhere."""
    if isinstance(fill_value, Core):
        found = fill_value if dtype is None else fill_value.cast(dtype)  # type: ignore[attr-defined]
        return found.expand(shape_of((shape,)))
    if isinstance(fill_value, (np.ndarray, np.generic)):
        if fill_value.size != 1:
            raise ShapeError(f"full: one value, not an array of shape {fill_value.shape}")
        fill_value = fill_value.item()
    return _filled((shape,), fill_value, dtype, device)


def zeros(shape: Any = (), *more: int, dtype: Any = None, device: str | None = None) -> Tensor:
    """Zeros: ``zeros(2, 3)`` or ``zeros((2, 3))``, float32 unless told otherwise."""
    return _filled((shape, *more), 0.0, dtype, device)


def ones(shape: Any = (), *more: int, dtype: Any = None, device: str | None = None) -> Tensor:
    """Ones: ``ones(2, 3)`` or ``ones((2, 3))``, float32 unless told otherwise."""
    return _filled((shape, *more), 1.0, dtype, device)


def empty(shape: Any = (), *more: int, dtype: Any = None, device: str | None = None) -> Tensor:
    """A tensor whose values nobody should rely on; they are zeros."""
    return _filled((shape, *more), 0.0, dtype, device)


def _like(x: Tensor, value: Scalar, dtype: Any, device: str | None) -> Tensor:
    kind = x.dtype if dtype is None else dtype_of(dtype)
    where = x._device if device is None else device_name(device)
    return wrap(B.broadcast_to(scalar_node(value, kind), x.shape), where)


@spelled
def full_like(
    x: Tensor, /, fill_value: Scalar, *, dtype: Any = None, device: str | None = None
) -> Tensor:
    """A tensor of the shape, dtype and device of another with one value everywhere."""
    return _like(x, fill_value, dtype, device)


@spelled
def zeros_like(x: Tensor, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Zeros of the shape, dtype and device of another tensor."""
    return _like(x, 0, dtype, device)


@spelled
def ones_like(x: Tensor, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """Ones of the shape, dtype and device of another tensor."""
    return _like(x, 1, dtype, device)


@spelled
def empty_like(x: Tensor, /, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """A tensor like another whose values nobody should rely on; they are zeros."""
    return _like(x, 0, dtype, device)


def _range_node(size: int, start: Scalar, step: Scalar, dtype: DType) -> UOp:
    if dtype.kind == "f":
        wide = dtype if dtype.bits >= 32 else dt.float32
        x = B.cast(B.iota(size, dt.int32 if size < 1 << 31 else dt.int64), wide)
    else:
        wide = dtype
        x = B.iota(size, dtype)
    if step != 1:
        x = B.binary(O.MUL, x, scalar_node(step, wide))
    if start != 0:
        x = B.binary(O.ADD, x, scalar_node(start, wide))
    return B.cast(x, dtype)


def arange(
    start: Scalar | None = None,
    stop: Scalar | None = None,
    step: Scalar = 1,
    *,
    dtype: Any = None,
    device: str | None = None,
) -> Tensor:
    """start, start + step, .. below stop: ``arange(5)``, ``arange(1, 2, 0.25)``."""
    if start is None or stop is None:
        start, stop = 0, start if stop is None else stop
    if isinstance(stop, UOp):
        return _run_time_range(start, stop, step, dtype, device)
    for name, value in (("start", start), ("stop", stop), ("step", step)):
        if not isinstance(value, (int, float)):
            raise DTypeError(f"arange: {name} must be a number, not {value!r:.60}")
        if not isfinite(value):
            raise ShapeError(f"arange: {name} must be finite, not {value}")
    if step == 0:
        raise ShapeError("arange: step must not be 0")
    kind = result_type(start, stop, step) if dtype is None else dtype_of(dtype)
    if isinstance(start, float) or isinstance(stop, float) or isinstance(step, float):
        size = max(0, ceil((stop - start) / step))
    else:
        size = max(0, -(-(stop - start) // step))
    if kind is dt.bool_:
        raise DTypeError("arange gives numbers, not bool")
    return wrap(_range_node(size, start, step, kind), device_name(device))


def _run_time_range(start: Any, stop: UOp, step: Any, dtype: Any, device: str | None) -> Tensor:
    """A range up to a run-time size, from a number on in whole steps upwards."""
    if type(start) is not int or type(step) is not int or step < 1 or stop.dtype.kind != "x":
        raise DTypeError(
            f"arange up to a run-time size goes from a whole number in whole steps upwards, not "
            f"from {start!r:.40} in steps of {step!r:.40}"
        )
    size = -(-(stop - start) // step)
    if size < 0:
        raise ShapeError(f"arange: a run-time size below {start} leaves fewer than no elements")
    kind = result_type(start, step) if dtype is None else dtype_of(dtype)
    if kind is dt.bool_:
        raise DTypeError("arange gives numbers, not bool")
    return wrap(_range_node(size, start, step, kind), device_name(device))


def linspace(
    start: Scalar,
    stop: Scalar,
    num: int,
    *,
    endpoint: bool = True,
    dtype: Any = None,
    device: str | None = None,
) -> Tensor:
    """``num`` values at equal distances from start to stop."""
    count = integer(num, "num")
    for name, value in (("start", start), ("stop", stop)):
        if isinstance(value, Core) and not value.ndim:
            continue
        if not isinstance(value, (int, float, complex)):
            raise DTypeError(f"linspace: {name} must be a number, not {value!r:.60}")
    if count < 0:
        raise ShapeError(f"linspace: num must be 0 or more, not {count}")
    if isinstance(start, complex) or isinstance(stop, complex) or is_complex_dtype(dtype):
        return _complex_line(start, stop, count, endpoint, dtype, device)
    if not endpoint:  # the first values of a line with one more
        whole = linspace(start, stop, count + 1, dtype=dtype, device=device)
        return whole.narrow(0, 0, count)
    kind = dt.float32 if dtype is None else dtype_of(dtype)
    wide = kind if kind.kind == "f" and kind.bits >= 32 else dt.float64
    gaps = count - 1
    first, last = [v.cast(wide) if isinstance(v, Core) else float(v) for v in (start, stop)]  # type: ignore[attr-defined]
    step = (last - first) / gaps if gaps > 0 else 0.0
    line = wrap(B.iota(count, dt.int32), device_name(device))
    x = line.cast(wide)
    # From both ends, so that the last value is exactly stop.
    rising = x * step + first
    if count > 1:
        falling = (x - gaps) * step + last
        rising = select(line * 2 < count, rising, falling)
    if kind.is_int:
        rising = rising.floor()
    return rising.cast(kind)


def is_complex_dtype(dtype: Any) -> bool:
    """Whether a dtype argument names a complex one."""
    return dtype is not None and dtype_of(dtype).kind == "c"


def _complex_line(
    start: Any, stop: Any, count: int, endpoint: bool, dtype: Any, device: str | None
) -> Tensor:
    """Both parts at equal distances."""
    kind = dt.complex64 if dtype is None else dtype_of(dtype)
    if kind.kind != "c":
        raise DTypeError(f"linspace from {start} to {stop} is complex, not {kind.name}")
    first, last = [complex(v.item() if isinstance(v, Core) else v) for v in (start, stop)]  # type: ignore[attr-defined]
    ends = [(first.real, last.real), (first.imag, last.imag)]
    floats = dt.FLOATS_OF[kind]
    return joined(
        *[linspace(a, b, count, endpoint=endpoint, dtype=floats, device=device) for a, b in ends]
    )


def logspace(
    start: Scalar,
    end: Scalar,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Any = None,
    device: str | None = None,
) -> Tensor:
    """``steps`` values from base**start to base**end at equal ratios; integers are cut off."""
    kind = None if dtype is None else dtype_of(dtype)
    wide = dt.float64 if kind is not None and kind.kind in "biu" else kind
    if kind is not None and kind.kind == "f" and kind.bits < 32:
        wide = dt.float32
        start, end = [
            v.cast(kind) if isinstance(v, Core) else pack_const(v, kind)  # type: ignore[attr-defined]
            for v in (start, end)
        ]
    found = float(base) ** linspace(start, end, steps, dtype=wide, device=device)
    return found if kind is None else found.cast(kind)


def eye(
    n: int, m: int | None = None, *, k: int = 0, dtype: Any = None, device: str | None = None
) -> Tensor:
    """A matrix with ones on the k-th diagonal: ``eye(3)``."""
    rows = integer(n, "rows")
    columns = rows if m is None else integer(m, "columns")
    if rows < 0 or columns < 0:
        raise ShapeError(f"eye: sizes are 0 or more, got {rows} and {columns}")
    kind = dt.float32 if dtype is None else dtype_of(dtype)
    row = wrap(B.reshape(B.iota(rows, dt.int32), (rows, 1)), device_name(device))
    column = wrap(B.reshape(B.iota(columns, dt.int32), (1, columns)), None)
    offset = min(max(integer(k, "k"), -rows), columns)  # further away there is no diagonal
    return (row + offset == column).cast(kind)


def meshgrid(*tensors: Any, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinate grids of several vectors; "xy" exchanges the first two axes."""
    if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)):
        tensors = tuple(tensors[0])
    tensors = tuple([tensor_of(t) for t in tensors])
    if not isinstance(indexing, str) or indexing not in ("xy", "ij"):
        raise ShapeError(f"meshgrid: indexing is 'xy' or 'ij', not {indexing!r}")
    for t in tensors:
        if t.ndim > 1:
            raise ShapeError(f"meshgrid takes vectors, not shape {t.shape}")
    sizes = tuple([t.numel() for t in tensors])
    grids = []
    for i, t in enumerate(tensors):
        line = tuple([n if j == i else 1 for j, n in enumerate(sizes)])
        grids.append(t.reshape(line).expand(sizes))
    if indexing == "xy" and len(grids) > 1:
        return tuple([g.transpose(0, 1) for g in grids])
    return tuple(grids)


class Creation(Core):
    """The creators as static methods of Tensor, and their *_like and new_* forms."""

    __slots__ = ()

    full = staticmethod(spelled(full))
    zeros = staticmethod(zeros)
    ones = staticmethod(ones)
    empty = staticmethod(empty)
    arange = staticmethod(arange)
    linspace = staticmethod(linspace)
    eye = staticmethod(eye)

    def full_like(self: Tensor, fill_value: Scalar, **options: Any) -> Tensor:
        """One value everywhere, with the shape, dtype and device of this tensor."""
        return full_like(self, fill_value, **options)

    def zeros_like(self: Tensor, **options: Any) -> Tensor:
        """Zeros with the shape, dtype and device of this tensor."""
        return zeros_like(self, **options)

    def ones_like(self: Tensor, **options: Any) -> Tensor:
        """Ones with the shape, dtype and device of this tensor."""
        return ones_like(self, **options)

    def new_full(
        self: Tensor,
        size: Any,
        fill_value: Scalar,
        *,
        dtype: Any = None,
        device: str | None = None,
    ) -> Tensor:
        """One value everywhere, with the dtype and device of this tensor unless told otherwise."""
        return full(size, fill_value, dtype=dtype or self.dtype, device=device or self._device)

    def new_zeros(self: Tensor, *size: Any, dtype: Any = None, device: str | None = None) -> Tensor:
        """Zeros with the dtype and device of this tensor unless told otherwise."""
        return zeros(*size, dtype=dtype or self.dtype, device=device or self._device)

    def new_ones(self: Tensor, *size: Any, dtype: Any = None, device: str | None = None) -> Tensor:
        """Ones with the dtype and device of this tensor unless told otherwise."""
        return ones(*size, dtype=dtype or self.dtype, device=device or self._device)
