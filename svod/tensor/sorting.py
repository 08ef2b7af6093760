"""Sorting without data-dependent control: positions first, then the values are gathered.

Every element becomes a 32-bit key whose unsigned order is the wanted order (NaN last), joined
with its position into one 64-bit word, so the sort is stable and moves single words. Up to 256
words are ranked by counting smaller ones; longer axes go through a bitonic network whose stages
each read and write the axis once: O(n) memory, O(n log² n) work. 64-bit elements are
sorted twice, by their low half and then by their high half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from svod.base.errors import ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const
from svod.tensor.core import Core, axis_of, integer, pair, real_axis, tensor_of, wrap
from svod.tensor.elementwise import select
from svod.tensor.pieces import pad_value, slice_axis
from svod.tensor.reductions import fold

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

RANKED = 256  # longest axis that is sorted by counting
FUSED = 2  # network stages between two stores; each doubles the reads of an element


class Ordered(NamedTuple):
    """Values and the places they come from."""

    values: Tensor
    indices: Tensor


# -- keys --------------------------------------------------------------------------------------


def _keys(x: UOp, descending: bool) -> list[UOp]:
    """Unsigned 32-bit keys, the most significant first."""
    kind = x.dtype
    if kind.kind == "f":
        x = x if kind.bits >= 32 else B.cast(x, dt.float32)
        bits = _float_bits(x)
    elif kind.bits == 64:
        bits = B.bitcast(x, dt.uint64)
        if kind.is_signed:
            bits = B.binary(O.XOR, bits, const(1 << 63, dt.uint64))
    elif kind.is_signed:
        bits = B.bitcast(B.cast(x, dt.int32), dt.uint32)
        bits = B.binary(O.XOR, bits, const(1 << 31, dt.uint32))
    else:
        bits = B.cast(x, dt.uint32)
    if descending:
        bits = B.unary(O.NOT, bits)
    if bits.dtype is dt.uint32:
        return [bits]
    high = B.binary(O.SHR, bits, const(32, dt.uint64))
    return [B.cast(high, dt.uint32), B.cast(bits, dt.uint32)]


def _float_bits(x: UOp) -> UOp:
    """Bits in the order of the values: both zeros equal, every NaN above infinity."""
    unsigned = dt.uint32 if x.dtype is dt.float32 else dt.uint64
    top = 1 << (x.dtype.bits - 1)
    zero = const(0.0, x.dtype)
    plain = B.bitcast(B.where(B.binary(O.EQ, x, zero), zero, x), unsigned)
    negative = B.binary(O.NE, B.binary(O.AND, plain, const(top, unsigned)), const(0, unsigned))
    turned = B.unary(O.NOT, plain)
    raised = B.binary(O.OR, plain, const(top, unsigned))
    bits = B.where(negative, turned, raised)
    return B.where(B.binary(O.NE, x, x), const(2 * top - 1, unsigned), bits)


# -- order of the last axis --------------------------------------------------------------------


def order(x: UOp, descending: bool) -> UOp:
    """The positions (int64) that sort the last axis; equal elements keep their order."""
    n = x.shape[-1]
    if n <= 1 or 0 in x.shape:
        return B.full(x.shape, 0, dt.int64)
    keys = _keys(x, descending)
    found = _order_of_key(keys[-1])
    if len(keys) == 1:
        return found
    again = _order_of_key(pick(keys[0], found))
    return pick(found, again)


def pick(x: UOp, positions: UOp) -> UOp:
    """Elements of the last axis at the positions."""
    return wrap(x, None).gather(-1, wrap(positions, None)).uop


def _order_of_key(key: UOp) -> UOp:
    *lead, n = key.shape
    place = B.reshape(B.iota(n, dt.uint64), (*[1] * len(lead), n))
    shifted = B.binary(O.SHL, B.cast(key, dt.uint64), const(32, dt.uint64))
    words = B.binary(O.OR, shifted, place)
    if n <= RANKED:
        return _by_rank(words)
    network = B.binary(O.AND, _network(words), const((1 << 32) - 1, dt.uint64))
    return B.cast(network, dt.int64)


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


def _network(words: UOp) -> UOp:
    """The words of the last axis in ascending order."""
    *lead, n = words.shape
    size = 1 << (n - 1).bit_length()
    x = pad_value(words, (*[(0, 0)] * len(lead), (0, size - n)), (1 << 64) - 1)
    x = B.contiguous(x)
    since = 0
    run = 2
    while run <= size:
        distance = run // 2
        while distance:
            x = _stage(x, run, distance, size)
            since += 1
            if since == FUSED:
                x, since = B.contiguous(x), 0
            distance //= 2
        run *= 2
    return slice_axis(x, len(lead), 0, n)


def _stage(x: UOp, run: int, distance: int, size: int) -> UOp:
    """Compare elements ``distance`` apart; runs go up and down in turn."""
    lead = x.shape[:-1]
    ones = [1] * len(lead)
    groups = size // (2 * distance)
    split = B.reshape(x, (*lead, groups, 2, distance))
    partner = B.flip(split, (len(lead) + 1,))
    low = B.binary(O.EQ, _line(2, (*ones, 1, 2, 1)), const(0, dt.int32))
    if run < size:
        group = _line(groups, (*ones, groups, 1, 1))
        down = B.binary(O.AND, group, const(run // (2 * distance), dt.int32))
        low = B.binary(O.EQ, low, B.binary(O.EQ, down, const(0, dt.int32)))
    smaller = B.binary(O.MIN, split, partner)
    larger = B.binary(O.MAX, split, partner)
    return B.reshape(B.where(low, smaller, larger), x.shape)


def _line(size: int, shape: tuple[int, ...]) -> UOp:
    return B.reshape(B.iota(size, dt.int32), shape)


class Sorting(Core):
    """sort, argsort, topk, median, kthvalue, searchsorted, unique."""

    __slots__ = ()

    def argsort(
        self: Tensor, dim: int = -1, descending: bool = False, stable: bool = True
    ) -> Tensor:
        """The positions that sort an axis; NaN comes last, or first when descending."""
        axis = axis_of(dim, self.ndim)
        if not self.ndim:
            return wrap(B.full((), 0, dt.int64), self._device)
        moved = self.movedim(axis, -1)
        return wrap(order(moved.uop, descending), self._device).movedim(-1, axis)

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
        indices = self.argsort(axis, largest)
        if self.ndim:
            indices = indices.narrow(axis, 0, count)
        return Ordered(self.gather(axis, indices) if self.ndim else self, indices)

    def kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Ordered:
        """The k-th smallest element of an axis, counted from 1, and its position."""
        axis = real_axis(dim, self.shape, "kthvalue")
        if not 1 <= k <= self.shape[axis]:
            raise ShapeError(f"kthvalue: k is {k}, but the axis has {self.shape[axis]} elements")
        found = self.argsort(axis).narrow(axis, k - 1, 1)
        values = self.gather(axis, found)
        return Ordered(values, found) if keepdim else Ordered(
            values.squeeze(axis), found.squeeze(axis)
        )  # fmt: skip

    def median(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        """The lower median: of all elements, or of an axis together with its position."""
        if dim is None:
            return self.ravel().median(0).values
        axis = real_axis(dim, self.shape, "median")
        middle = (self.shape[axis] + 1) // 2
        if self.dtype.kind != "f" or not middle:
            return self.kthvalue(middle, dim, keepdim)
        is_nan = self.isnan()
        places = self.argsort(axis).narrow(axis, middle - 1, 1)
        places = select(is_nan.any(axis, True), is_nan.argmax(axis, True), places)
        values = self.gather(axis, places)
        if keepdim:
            return Ordered(values, places)
        return Ordered(values.squeeze(axis), places.squeeze(axis))

    def searchsorted(
        self: Tensor, values: Any, *, right: bool = False, side: str | None = None
    ) -> Tensor:
        """Where to insert values into this sorted vector so that it stays sorted."""
        if self.ndim != 1:
            raise ShapeError(f"searchsorted needs a vector, not shape {self.shape}")
        goal = tensor_of(values, self)
        x, y, device = pair(self, goal)
        line, wanted = wrap(x, device), wrap(y, device)
        size = self.shape[0]
        is_right = right or side == "right"
        place = wrap(B.full(goal.shape, 0, dt.int64), device)
        step = 1 << max(size.bit_length() - 1, 0)
        while step and size:
            probe = place + step
            there = line[(probe - 1).minimum(size - 1)]
            before = (there <= wanted) if is_right else (there < wanted)
            place = place + ((probe <= size) & before).cast(dt.int64) * step
            step //= 2
        return place

    def unique(
        self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
    ) -> Any:
        """The distinct values, sorted; how many there are is read now."""
        found = np.unique(self.numpy(), return_inverse=return_inverse, return_counts=return_counts)
        if not return_inverse and not return_counts:
            return tensor_of(found)
        parts = [tensor_of(np.asarray(f)) for f in found]
        if return_inverse:
            parts[1] = parts[1].reshape(self.shape)
        return tuple(parts)

    def bincount(self: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
        """How often each whole number occurs, or its weights added up; the largest is read now."""
        if self.ndim != 1 or not self.dtype.is_int:
            raise ShapeError(f"bincount needs a vector of integers, not {self.shape}")
        size = max(minlength, int(self.amax().item()) + 1 if self.numel() else 0)
        if weights is not None and weights.shape != self.shape:
            raise ShapeError(f"bincount: weights of shape {weights.shape} for {self.shape}")
        kind = dt.int64
        if weights is not None:
            kind = dt.float32 if weights.dtype is dt.float32 else dt.float64
        amounts = wrap(B.full(self.shape, 1, kind), self._device)
        amounts = amounts if weights is None else weights.cast(kind)
        return wrap(B.full((size,), 0, kind), self._device).scatter_add(0, self, amounts)
