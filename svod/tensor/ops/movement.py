"""Shapes: the same elements in another arrangement. Nothing here computes or copies.

Every method is a few RESHAPE, EXPAND, PERMUTE, PAD, SHRINK and FLIP nodes; the scheduler turns
them into index arithmetic of the kernels that read them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from svod.base.errors import ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir.node import UOp, is_symbolic, largest
from svod.ir.symbolic import shape_text, size_text
from svod.tensor.core import tensor_registry
from svod.tensor.core.slicing import bounds, diagonal_of, slice_axis, swapped, tile
from svod.tensor.core.tensor_core import (
    AxisError,
    Core,
    Scalar,
    axes_of,
    axis_of,
    fresh,
    integer,
    numbers,
    real_axis,
    shape_of,
    tensor_of,
    wrap,
)
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.padding import pad_modes, pad_pairs
from svod.tensor.ops.sliding_windows import windows_of
from svod.tensor.views.aliases import view

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def resolve_shape(shape: tuple[int, ...], have: tuple[int, ...]) -> tuple[int, ...]:
    """A shape with at most one -1, which stands for what is left."""
    if -1 not in shape:
        return shape
    if shape.count(-1) > 1:
        raise ShapeError(f"a shape may have one -1, got {shape}")
    rest, total = -prod(shape), prod(have)
    if rest != 0 and is_symbolic(have) and is_symbolic(shape):
        rest, total = _without_common(shape, have)
    if rest == 0 or total % rest:
        raise ShapeError(
            f"cannot reshape {shape_text(have)} ({size_text(total)} elements) to "
            f"{shape_text(shape)}"
        )
    return tuple([total // rest if n == -1 else n for n in shape])


def _without_common(shape: tuple[Any, ...], have: tuple[Any, ...]) -> tuple[Any, Any]:
    """What is left of the elements of two shapes without the run-time sizes that both have."""
    left = list(have)
    kept = []
    for size in shape:
        if isinstance(size, UOp) and size in left:
            left.remove(size)
        else:
            kept.append(size)
    return -prod(kept), prod(left)


class Movement(Core):
    """Reshaping, permuting, stretching, padding, cutting, flipping."""

    __slots__ = ()

    # -- shape ---------------------------------------------------------------------------------

    def reshape(self: Tensor, *shape: Any) -> Tensor:
        """The elements in row-major order under another shape; one size may be -1."""
        wanted = resolve_shape(shape_of(shape), self.shape)
        if any(n < 0 for n in wanted):
            raise ShapeError(f"a shape has sizes from 0 up, or one -1: {wanted}")
        return view(self, (B.reshape, wanted))

    view = reshape

    def view_as(self: Tensor, other: Tensor) -> Tensor:
        """Reshaped like another tensor."""
        return self.reshape(other.shape)

    def reshape_as(self: Tensor, other: Tensor) -> Tensor:
        """Reshaped like another tensor."""
        return self.reshape(other.shape)

    def flatten(self: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
        """The axes from start_dim to end_dim as one."""
        shape = self.shape
        if not shape:
            return self.reshape(1)
        a, b = axis_of(start_dim, len(shape)), axis_of(end_dim, len(shape))
        if a > b:
            raise ShapeError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim}")
        return self.reshape((*shape[:a], prod(shape[a : b + 1]), *shape[b + 1 :]))

    def ravel(self: Tensor) -> Tensor:
        """All elements along one axis."""
        return self.reshape((prod(self.shape),))

    def unflatten(self: Tensor, dim: int, sizes: Sequence[int]) -> Tensor:
        """One axis cut into several: ``x.unflatten(-1, (heads, -1))``."""
        shape = self.shape
        axis = real_axis(dim, shape, "unflatten")
        inner = resolve_shape(shape_of((sizes,)), (shape[axis],))
        return self.reshape(shape[:axis] + inner + shape[axis + 1 :])

    def squeeze(self: Tensor, dim: int | Sequence[int] | None = None) -> Tensor:
        """Without the axes of size 1, or without those of ``dim`` that have size 1."""
        axes = axes_of(dim, self.ndim)
        shape = tuple([n for i, n in enumerate(self.shape) if n != 1 or i not in axes])
        return view(self, (B.reshape, shape))

    def unsqueeze(self: Tensor, dim: int | Sequence[int]) -> Tensor:
        """With a new axis of size 1 at ``dim``."""
        shape = list(self.shape)
        if isinstance(dim, Iterable):
            for axis in sorted(axes_of(dim, len(shape) + len(tuple(dim)))):
                shape.insert(axis, 1)
        else:
            shape.insert(axis_of(dim, len(shape) + 1), 1)
        return view(self, (B.reshape, tuple(shape)))

    def expand(self: Tensor, *shape: Any) -> Tensor:
        """Axes of size 1 stretched; -1 keeps a size, new axes come in front."""
        wanted = shape_of(shape)
        have = self.shape
        missing = len(wanted) - len(have)
        if missing < 0:
            raise ShapeError(f"cannot expand {have} to {wanted}, which has fewer axes")
        full = (1,) * missing + have
        target = tuple([f if n == -1 else n for n, f in zip(wanted, full, strict=True)])
        if not all(_is_size(n) for n in target) or -1 in wanted[:missing]:
            raise ShapeError(f"cannot expand {have} to {wanted}")
        return view(self, (B.broadcast_to, target))

    broadcast_to = expand

    def expand_as(self: Tensor, other: Tensor) -> Tensor:
        """Stretched to the shape of another tensor."""
        return self.expand(other.shape)

    # -- order of axes -------------------------------------------------------------------------

    def permute(self: Tensor, *dims: Any) -> Tensor:
        """Axis i of the result is axis ``dims[i]``."""
        wanted = shape_of(dims)
        ndim = self.ndim
        axes = tuple([axis_of(d, ndim) for d in wanted]) if ndim else wanted
        return view(self, (B.permute, axes))

    def transpose(self: Tensor, dim0: int = 1, dim1: int = 0) -> Tensor:
        """Two axes exchanged."""
        ndim = self.ndim
        if not ndim:
            return self
        return view(self, (B.permute, swapped(ndim, axis_of(dim0, ndim), axis_of(dim1, ndim))))

    swapaxes = transpose
    swapdims = transpose

    def t(self: Tensor) -> Tensor:
        """The transpose of a matrix; a vector stays."""
        if self.ndim > 2:
            raise ShapeError(f"t() takes at most 2 axes, not shape {self.shape}")
        return self if self.ndim < 2 else self.transpose(0, 1)

    @property
    def T(self: Tensor) -> Tensor:
        """All axes in reverse order."""
        return view(self, (B.permute, tuple(range(self.ndim))[::-1]))

    @property
    def mT(self: Tensor) -> Tensor:
        """The last two axes exchanged."""
        if self.ndim < 2:
            raise ShapeError(f"mT needs at least 2 axes, not shape {self.shape}")
        return self.transpose(-2, -1)

    def movedim(self: Tensor, source: Any, destination: Any) -> Tensor:
        """Axes moved to other places; the others keep their order."""
        ndim = self.ndim
        old, new = axes_of(source, ndim), axes_of(destination, ndim)
        if len(old) != len(new):
            raise ShapeError(f"movedim: {len(old)} axes cannot go to {len(new)} places")
        order = [a for a in range(ndim) if a not in old]
        for place, axis in sorted(zip(new, old, strict=True)):
            order.insert(place, axis)
        return view(self, (B.permute, tuple(order)))

    moveaxis = movedim

    # -- parts and borders ---------------------------------------------------------------------

    def shrink(self: Tensor, arg: Sequence[tuple[int, int] | None]) -> Tensor:
        """The part between (start, stop) of each axis; None keeps an axis."""
        if not isinstance(arg, (list, tuple)) or len(arg) != self.ndim:
            raise ShapeError(f"shrink needs a pair or None for each axis of {self.shape}: {arg!r}")
        pairs = zip(arg, self.shape, strict=True)
        cuts = [(0, n) if p is None else numbers(p, 2, "a pair of shrink") for p, n in pairs]
        return view(self, (B.shrink, tuple([(a, b) for a, b in cuts])))

    def narrow(self: Tensor, dim: int, start: int, length: int) -> Tensor:
        """``length`` elements of one axis from ``start``."""
        axis = real_axis(dim, self.shape, "narrow")
        first, size = integer(start, "start"), self.shape[axis]
        if isinstance(first, int) and isinstance(size, int) and not -size <= first <= size:
            raise AxisError(f"narrow: start {first} is out of range for an axis of {size}")
        first += size if first < 0 else 0
        return view(self, (B.shrink, bounds(self.shape, axis, first, first + length)))

    def pad(self: Tensor, pad: Any, mode: str = "constant", value: Scalar | None = None) -> Tensor:
        """Borders as in torch: (left, right) of the last axis first; or a pair for each axis.

        Modes: constant, reflect, replicate, circular. Negative sizes cut.
        """
        pairs = pad_pairs(pad, self.ndim)
        return fresh(pad_modes(self.uop, pairs, mode, 0 if value is None else value), self._device)

    def flip(self: Tensor, *dims: Any) -> Tensor:
        """The axes in reverse order; all of them when none is named."""
        given = dims[0] if len(dims) == 1 else (dims or None)
        return fresh(B.flip(self.uop, axes_of(given, self.ndim)), self._device)

    def fliplr(self: Tensor) -> Tensor:
        """Axis 1 reversed."""
        return self.flip(1)

    def flipud(self: Tensor) -> Tensor:
        """Axis 0 reversed."""
        return self.flip(real_axis(0, self.shape, "flipud"))

    def rot90(self: Tensor, k: int = 1, dims: Sequence[int] = (0, 1)) -> Tensor:
        """Turned by k quarter turns in the plane of two axes."""
        axes = axes_of(dims, self.ndim)
        if len(axes) != 2:
            raise ShapeError(f"rot90 turns in the plane of 2 axes, not {dims}")
        a, b = axes
        turns = integer(k, "k") % 4
        if turns == 0:
            return fresh(self.uop, self._device)
        if turns == 2:
            return self.flip(a, b)
        return self.flip(b).transpose(a, b) if turns == 1 else self.flip(a).transpose(a, b)

    def roll(self: Tensor, shifts: Any, dims: Any = None) -> Tensor:
        """Shifted along axes, round the end; without axes, over the flattened elements."""
        if dims is None:
            return self.ravel().roll(shifts, 0).reshape(self.shape)
        given = tuple(dims) if isinstance(dims, Iterable) else (dims,)
        axes = [real_axis(d, self.shape, "roll") for d in given]
        amounts = shape_of((shifts,))
        if len(amounts) != len(axes):
            raise ShapeError(f"roll: {len(amounts)} shifts for {len(axes)} axes")
        cuts = {}
        for axis, shift in zip(axes, amounts, strict=True):
            cuts[axis] = (cuts.get(axis, 0) - shift) % (self.shape[axis] or 1)
        if not any(cuts.values()):
            return fresh(self.uop, self._device)
        x = (
            self.uop
            if tensor_registry.buffer_node(self.uop) is not None
            else B.contiguous(self.uop)
        )
        for axis, cut in cuts.items():
            # Every shift is an offset into the axis twice: the shape is that of any other shift.
            x = slice_axis(B.cat((x, x), axis), axis, cut, cut + self.shape[axis])
        return wrap(x, self._device)

    # -- repetition ----------------------------------------------------------------------------

    def repeat(self: Tensor, *repeats: Any) -> Tensor:
        """Each axis repeated whole, as np.tile: ``Tensor([1, 2]).repeat(2)`` is [1, 2, 1, 2]."""
        counts = shape_of(repeats)
        shape = self.shape
        if len(counts) < len(shape):
            raise ShapeError(f"repeat needs a count for each axis of {shape}, got {counts}")
        if not all(_is_size(n) for n in counts):
            raise ShapeError(f"counts are 0 or more and below 2**63, got {counts}")
        shape = (1,) * (len(counts) - len(shape)) + shape
        return fresh(tile(B.reshape(self.uop, shape), counts), self._device)

    def tile(self: Tensor, *repeats: Any) -> Tensor:
        """Each axis repeated whole; missing counts are 1."""
        counts = shape_of(repeats)
        return self.repeat((1,) * (self.ndim - len(counts)) + counts)

    def repeat_interleave(
        self: Tensor, repeats: Any, dim: int | None = None, *, output_size: int | None = None
    ) -> Tensor:
        """Each element repeated: ``Tensor([1, 2]).repeat_interleave(2)`` is [1, 1, 2, 2].

        A tensor or list has a count for each element of the axis; it is read now.
        """
        x = self.ravel() if dim is None else self
        axis = real_axis(0 if dim is None else dim, x.shape, "repeat_interleave")
        if isinstance(repeats, (Core, list, tuple, np.ndarray)):
            found = _repeat_each(x, tensor_of(repeats).numpy(), axis)
            if output_size is not None and found.shape[axis] != output_size:
                raise ShapeError(f"output_size is {output_size}, repeats make {found.shape[axis]}")
            return found
        count = integer(repeats, "repeats")
        if not _is_size(count):
            raise ShapeError(f"repeats are 0 or more and below 2**63, not {count}")
        shape = x.shape
        wide = B.reshape(x.uop, (*shape[: axis + 1], 1, *shape[axis + 1 :]))
        wide = B.expand(wide, (*shape[: axis + 1], count, *shape[axis + 1 :]))
        merged = (*shape[:axis], shape[axis] * count, *shape[axis + 1 :])
        return fresh(B.reshape(wide, merged), self._device)

    # -- triangles and diagonals ---------------------------------------------------------------

    def tril(self: Tensor, diagonal: int = 0) -> Tensor:
        """Zero above the diagonal of the last two axes."""
        return select(_triangle(self, diagonal), self, 0).to(self.dtype)

    def triu(self: Tensor, diagonal: int = 0) -> Tensor:
        """Zero below the diagonal of the last two axes."""
        return select(_triangle(self, diagonal - 1), 0, self).to(self.dtype)

    def diagonal(self: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
        """The diagonal of two axes, as a new last axis."""
        a, b = axes_of((dim1, dim2), self.ndim)
        rest = [i for i in range(self.ndim) if i not in (a, b)]
        return view(self, (B.permute, (*rest, a, b)), (diagonal_of, offset))

    def diag(self: Tensor, diagonal: int = 0) -> Tensor:
        """A matrix with this diagonal, or the diagonal of a matrix."""
        if self.ndim == 1:
            return self.diag_embed(diagonal)
        if self.ndim != 2:
            raise ShapeError(f"diag takes 1 or 2 axes, not shape {self.shape}")
        found = self.diagonal(diagonal)
        return wrap(found.uop, found._device)  # a copy, as in torch

    def diag_embed(self: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Tensor:
        """Matrices, in two new axes, with the last axis on a diagonal."""
        if not self.ndim:
            raise ShapeError("diag_embed needs at least 1 axis")
        if (a := axis_of(dim1, self.ndim + 1)) == (b := axis_of(dim2, self.ndim + 1)):
            raise ShapeError(f"diag_embed: dim1 and dim2 are both {dim1}")
        *lead, size = self.shape
        none = [(0, 0)] * len(lead)
        x = B.pad(B.reshape(self.uop, (*lead, size, 1)), (*none, (0, 0), (0, size)))
        x = B.reshape(x, (*lead, size * (size + 1)))
        x = B.shrink(x, (*[(0, n) for n in lead], (0, size * size)))
        x = B.reshape(x, (*lead, size, size))
        up, down = max(0, offset), max(0, -offset)
        found = wrap(B.pad(x, (*none, (down, up), (up, down))), self._device)
        return found.movedim((-2, -1), (a, b)) if (a, b) != (self.ndim - 1, self.ndim) else found

    def unfold(self: Tensor, dim: int, size: int, step: int) -> Tensor:
        """Windows of one axis as a new last axis."""
        axis = axis_of(dim, self.ndim)
        length = self.shape[axis] if self.ndim else 1
        if not 0 <= size <= length or step < 1:
            raise ShapeError(f"unfold: size {size}, step {step} on an axis of {length}")
        if not self.ndim:
            return self.reshape(1)[:size]
        x = self.movedim(axis, -1)
        if size == 0:
            shape = (*x.shape[:-1], length // step + 1, 0)
            return wrap(B.full(shape, 0, self.dtype), self._device).movedim(-2, axis)
        return view(x, (windows_of, (size, step))).movedim(-2, axis)


def _is_size(n: Any) -> bool:
    """Whether a number can be the size of an axis; run-time sizes can."""
    return not isinstance(n, int) or 0 <= n < 1 << 63


def _repeat_each(x: Tensor, counts: Any, axis: int) -> Tensor:
    size = x.shape[axis]
    if counts.dtype.kind not in "iu" or counts.ndim > 1 or counts.size not in (1, size):
        raise ShapeError(f"repeats are whole numbers, 1 or {size} of them, not {counts!r:.60}")
    if counts.size and counts.min() < 0:
        raise ShapeError(f"repeats are 0 or more, not {counts!r:.60}")
    places = np.repeat(np.arange(size), counts.reshape(-1))
    return x.index_select(axis, tensor_of(places, x))


def _triangle(x: Tensor, diagonal: int) -> Tensor:
    if x.ndim < 2:
        raise ShapeError(f"tril and triu need at least 2 axes, not shape {x.shape}")
    rows, columns = x.shape[-2:]
    offset = integer(diagonal, "diagonal")
    if isinstance(offset, int):  # further away there is no diagonal
        offset = min(max(offset, -largest(rows)), largest(columns))
    row = wrap(B.reshape(B.iota(rows, dt.int32), (rows, 1)), None)
    column = wrap(B.reshape(B.iota(columns, dt.int32), (1, columns)), None)
    return column <= (row + offset if offset else row)
