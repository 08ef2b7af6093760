"""Sort, argsort, topk and unique: sorted positions first, then the values are gathered.

Every element becomes a key whose unsigned order is the wanted order (NaN last), above its position
in one 64-bit word, so the sort is stable and moves single words. Up to 64
words are ranked by counting smaller ones, more are a SORT, for which devices have kernels
(`svod/schedule/sorts.py`). 64-bit elements are sorted twice, by their low half and then by their
high half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from svod.base.errors import ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.bounds import within
from svod.ir.node import UOp, const, largest
from svod.tensor.core.slicing import pad_value, slice_axis
from svod.tensor.core.tensor_core import Core, Ordered, axis_of, integer, pair, tensor_of, wrap
from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.index_checks import index_of
from svod.tensor.ops.reductions import fold

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

RANKED = 64  # longest axis that is sorted by counting
_UNSIGNED = {8: dt.uint8, 16: dt.uint16, 32: dt.uint32, 64: dt.uint64}


def middle_of_all(x: Tensor, skips_nan: bool) -> Tensor:
    """The lower median of all elements; those that equal it share its gradient."""
    if x.dtype.kind == "f":
        return _middle(x, skips_nan)  # type: ignore[no-any-return]
    return x.ravel().median(0).values  # type: ignore[no-any-return]


@custom_gradient
def _middle(x: Tensor, skips_nan: bool) -> Tensor:
    found = x.ravel().nanmedian(0) if skips_nan else x.ravel().median(0)
    return found.values  # type: ignore[no-any-return]


@_middle.backward
def _(grad: Tensor, output: Tensor, x: Tensor, skips_nan: bool) -> Tensor:
    is_it = (x == output) | (x.isnan() & output.isnan())
    return select(is_it, grad / is_it.sum().cast(x.dtype), 0.0)


# -- keys --------------------------------------------------------------------------------------


def _key(x: UOp, descending: bool) -> tuple[UOp, int]:
    """Unsigned integers in the order of the values, and how many bits they have."""
    kind = x.dtype
    bits = 1 if kind.kind == "b" else kind.bits
    wide = dt.uint64 if bits > 32 else dt.uint32
    if kind.kind == "f":
        key = B.cast(_float_bits(x), wide)
    elif kind.is_signed and bits >= 32:
        key = B.binary(O.XOR, B.bitcast(x, wide), const(1 << (bits - 1), wide))
    elif kind.is_signed:
        raised = B.binary(O.ADD, B.cast(x, dt.int32), const(1 << (bits - 1), dt.int32))
        key = B.bitcast(raised, dt.uint32)
    else:
        key = B.cast(x, wide)
    if descending:
        key = B.binary(O.XOR, key, const((1 << bits) - 1, wide))
    return key, bits


def _float_bits(x: UOp) -> UOp:
    """Bits in the order of the values: both zeros equal, every NaN above infinity."""
    unsigned = _UNSIGNED[x.dtype.bits]
    top = 1 << (x.dtype.bits - 1)
    zero = const(0.0, x.dtype)
    plain = B.bitcast(B.where(B.binary(O.EQ, x, zero), zero, x), unsigned)
    negative = B.binary(O.NE, B.binary(O.AND, plain, const(top, unsigned)), const(0, unsigned))
    turned = B.unary(O.NOT, plain)
    raised = B.binary(O.OR, plain, const(top, unsigned))
    bits = B.where(negative, turned, raised)
    return B.where(B.binary(O.NE, x, x), const(2 * top - 1, unsigned), bits)


# -- order of the last axis --------------------------------------------------------------------


def order(x: UOp, descending: bool, count: int | None = None) -> UOp:
    """The positions (int64) that sort the last axis, or the first ones of them; equal elements
    keep their order."""
    n = largest(x.shape[-1])
    count = x.shape[-1] if count is None else count
    if n <= 1 or 0 in x.shape or not count:
        return B.full((*x.shape[:-1], count), 0, dt.int64)
    key, bits = _key(x, descending)
    if bits <= 32:
        return _order_of_key(key, bits, count)
    found = _order_of_key(B.cast(key, dt.uint32), 32, x.shape[-1])
    high = B.cast(B.binary(O.SHR, key, const(32, dt.uint64)), dt.uint32)
    again = _order_of_key(pick(high, found), 32, count)
    return within(pick(found, again), 0, n - 1)


def pick(x: UOp, positions: UOp) -> UOp:
    """Elements of the last axis at the positions."""
    return wrap(x, None).gather(-1, wrap(positions, None)).uop


def _order_of_key(key: UOp, bits: int, count: int) -> UOp:
    *lead, length = key.shape
    n = largest(length)
    low = (n - 1).bit_length()
    place = B.reshape(B.iota(length, dt.uint64), (*[1] * len(lead), length))
    shifted = B.binary(O.SHL, B.cast(key, dt.uint64), const(low, dt.uint64))
    words = B.binary(O.OR, shifted, place)
    if isinstance(length, UOp):  # what is missing to the largest size is larger than all
        none: list[tuple[int, int]] = [(0, 0)] * len(lead)
        words = pad_value(words, (*none, (0, n - length)), (1 << (low + bits)) - 1)
    if n <= RANKED:
        return slice_axis(within(_by_rank(words), 0, n - 1), len(lead), 0, count)
    kept = n if isinstance(count, UOp) else count
    found = within(B.sort(words, kept, low, low + bits, shown=low), 0, n - 1)
    return slice_axis(found, len(lead), 0, count)


def _by_rank(words: UOp) -> UOp:
    """An element's place is the number of smaller ones; then find who has each place."""
    *lead, n = words.shape
    full = (*lead, n, n)
    axis = len(lead) + 1
    mine = B.expand(B.reshape(words, (*lead, n, 1)), full)
    other = B.expand(B.reshape(words, (*lead, 1, n)), full)
    smaller = B.cast(B.binary(O.LT, other, mine), dt.int32)
    rank = B.contiguous(fold(smaller, O.ADD, (axis,), False))
    place = B.reshape(B.iota(n, dt.int32), (*[1] * len(lead), n, 1))
    owner = B.reshape(B.iota(n, dt.int32), (*[1] * len(lead), 1, n))
    hit = B.binary(O.EQ, B.expand(B.reshape(rank, (*lead, 1, n)), full), place)
    found = B.where(hit, owner, const(0, dt.int32))
    return B.cast(fold(found, O.ADD, (axis,), False), dt.int64)


def _ordered(x: Tensor, axis: int, descending: bool, count: int | None = None) -> Tensor:
    """The first positions in the order of an axis."""
    if not x.ndim:
        return wrap(B.full((), 0, dt.int64), x._device)
    moved = x.movedim(axis, -1)
    return wrap(order(moved.uop, descending, count), x._device).movedim(-1, axis)


class Sorting(Core):
    """sort, argsort, topk, median, kthvalue, searchsorted, unique."""

    __slots__ = ()

    def argsort(
        self: Tensor, dim: int = -1, descending: bool = False, stable: bool = True
    ) -> Tensor:
        """The positions that sort an axis; NaN comes last, or first when descending."""
        return _ordered(self, axis_of(dim, self.ndim), descending)

    def sort(self: Tensor, dim: int = -1, descending: bool = False, stable: bool = True) -> Ordered:
        """The sorted values of an axis and their positions."""
        indices = self.argsort(dim, descending)
        return Ordered(self.gather(dim, indices) if self.ndim else self, indices)

    def msort(self: Tensor) -> Tensor:
        """The values sorted along axis 0."""
        return self.sort(0).values

    def topk(
        self: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True
    ) -> Ordered:
        """The k largest (or smallest) elements of an axis, in order, and their positions."""
        axis = axis_of(dim, self.ndim)
        count = integer(k, "k")
        size = self.shape[axis] if self.ndim else 1
        if not 0 <= count <= size:
            raise ShapeError(f"topk: k is {count}, but the axis has {size} elements")
        indices = _ordered(self, axis, largest, count)
        return Ordered(self.gather(axis, indices) if self.ndim else self, indices)

    def kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Ordered:
        """The k-th smallest element of an axis, counted from 1, and its position."""
        axis = axis_of(dim, self.ndim)
        if not self.ndim:
            return Ordered(*[part.reshape(()) for part in self.reshape(1).kthvalue(k, 0)])
        if not 1 <= k <= self.shape[axis]:
            raise ShapeError(f"kthvalue: k is {k}, but the axis has {self.shape[axis]} elements")
        found = _ordered(self, axis, False, k).narrow(axis, k - 1, 1)
        values = self.gather(axis, found)
        return Ordered(values, found) if keepdim else Ordered(
            values.squeeze(axis), found.squeeze(axis)
        )  # fmt: skip

    def median(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        """The lower median: of all elements, or of an axis together with its position."""
        if dim is None:
            return middle_of_all(self, False)
        axis = axis_of(dim, self.ndim)
        if not self.ndim:
            return Ordered(*[part.reshape(()) for part in self.reshape(1).median(0)])
        middle = (self.shape[axis] + 1) // 2
        if self.dtype.kind != "f" or not middle:
            return self.kthvalue(middle, dim, keepdim)
        is_nan = self.isnan()
        places = _ordered(self, axis, False, middle).narrow(axis, middle - 1, 1)
        places = select(is_nan.any(axis, True), is_nan.argmax(axis, True), places)
        values = self.gather(axis, places)
        if keepdim:
            return Ordered(values, places)
        return Ordered(values.squeeze(axis), places.squeeze(axis))

    def searchsorted(
        self: Tensor,
        values: Any,
        *,
        right: bool = False,
        side: str | None = None,
        out_int32: bool = False,
    ) -> Tensor:
        """Where to insert values into this sorted vector so that it stays sorted.

        Several vectors along the last axis take values of their own.
        """
        goal = tensor_of(values, self)
        if not self.ndim or (self.ndim > 1 and goal.shape[:-1] != self.shape[:-1]):
            raise ShapeError(f"searchsorted of {goal.shape} in vectors of shape {self.shape}")
        x, y, device = pair(self, goal)
        line, wanted = wrap(x, device), wrap(y, device)
        size = self.shape[-1]
        is_right = right or side == "right"
        place = wrap(B.full(goal.shape, 0, dt.int64), device)
        step = 1 << max(size.bit_length() - 1, 0)
        while step and size:
            probe = place + step
            last = (probe - 1).minimum(size - 1)
            there = line[last] if line.ndim == 1 else line.gather(-1, last)
            before = (there <= wanted) if is_right else (there < wanted)
            place = place + ((probe <= size) & before).cast(dt.int64) * step
            step //= 2
        return place.cast(dt.int32) if out_int32 else place

    def unique(
        self: Tensor,
        sorted: bool = True,
        return_inverse: bool = False,
        return_counts: bool = False,
        dim: int | None = None,
    ) -> Any:
        """The distinct values, or slices of an axis, sorted; the tensor is read now."""
        axis = None if dim is None else axis_of(dim, self.ndim)
        found = np.unique(
            self.numpy(), return_inverse=return_inverse, return_counts=return_counts, axis=axis
        )
        if not return_inverse and not return_counts:
            return tensor_of(found, self)
        parts = [tensor_of(np.asarray(f), self) for f in found]
        if return_inverse:
            parts[1] = parts[1].reshape(self.shape if axis is None else (-1,))
        return tuple(parts)

    def bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
        """How often each whole number occurs, or its weights added up; the largest is read now."""
        if self.ndim != 1 or not self.dtype.is_int:
            raise ShapeError(f"bincount needs a vector of integers, not {self.shape}")
        size = max(minlength, int(self.amax().item()) + 1 if self.numel() else 0)
        places = index_of(self, None, size, "bincount")
        if weights is not None and weights.shape != self.shape:
            raise ShapeError(f"bincount: weights of shape {weights.shape} for {self.shape}")
        if weights is None:
            return counts_of(places, size).cast(dt.int64)
        kind = dt.float32 if weights.dtype is dt.float32 else dt.float64
        start = wrap(B.full((size,), 0, kind), self._device)
        return start.scatter_add(0, places, weights.cast(kind))


def counts_of(place: Tensor, size: int) -> Tensor:
    """How often each place occurs; what is outside is not counted."""
    kind = dt.int32 if place.numel() < 1 << 31 else dt.int64
    start, ones = B.full((size,), 0, kind), B.full(place.shape, 1, kind)
    return wrap(B.scatter(start, ones, [place.uop], "add"), place._device)
