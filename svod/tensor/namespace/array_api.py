"""Functions with the array API's signature where that differs from torch's method.

Each has the standard's names, defaults and errors; torch's spelling of keywords (``dim``,
``keepdim``) is accepted too. Several are called like Python builtins, so this file uses none
of those: sum, max, min, all, any, round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from svod.base.errors import DTypeError, ShapeError
from svod.tensor.core.complex_parts import parts
from svod.tensor.core.tensor_core import Axis, axes_of, pair, spelled, tensor_of, wrap
from svod.tensor.ops.joining import concatenate
from svod.tensor.ops.joining import stack as _stack
from svod.tensor.tensor import Tensor

# -- folds -------------------------------------------------------------------------------------


@spelled
def sum(x: Tensor, /, axis: Axis = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum over axes."""
    return tensor_of(x).sum(axis, keepdims, dtype=dtype)


@spelled
def prod(x: Tensor, /, axis: Axis = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """The product over axes."""
    return tensor_of(x).prod(axis, keepdims, dtype=dtype)


@spelled
def mean(x: Tensor, /, axis: Axis = None, keepdims: bool = False, *, dtype: Any = None) -> Tensor:
    """The average over axes."""
    return tensor_of(x).mean(axis, keepdims, dtype=dtype)


@spelled
def max(x: Tensor, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The largest element over axes; NaN wins."""
    return tensor_of(x).amax(axis, keepdims)


@spelled
def min(x: Tensor, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """The smallest element over axes; NaN wins."""
    return tensor_of(x).amin(axis, keepdims)


@spelled
def all(x: Tensor, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether no element is zero."""
    return tensor_of(x).all(axis, keepdims)


@spelled
def any(x: Tensor, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """Whether one element is not zero."""
    return tensor_of(x).any(axis, keepdims)


@spelled
def count_nonzero(x: Tensor, /, axis: Axis = None, keepdims: bool = False) -> Tensor:
    """How many elements are not zero."""
    return tensor_of(x).count_nonzero(axis, keepdims)


@spelled
def argmax(x: Tensor, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The first place of the largest element, in the flattened tensor without an axis."""
    return tensor_of(x).argmax(axis, keepdims)


@spelled
def argmin(x: Tensor, /, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """The first place of the smallest element, in the flattened tensor without an axis."""
    return tensor_of(x).argmin(axis, keepdims)


# -- order -------------------------------------------------------------------------------------


@spelled
def argsort(x: Tensor, /, axis: int = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """The positions that sort an axis; equal elements keep their order."""
    return tensor_of(x).argsort(axis, descending, stable)


@spelled
def searchsorted(
    x1: Tensor,
    x2: Any,
    /,
    *,
    side: str | None = None,
    sorter: Tensor | None = None,
    right: bool = False,
    out_int32: bool = False,
) -> Tensor:
    """Where to insert values into a vector that is sorted, or that ``sorter`` sorts."""
    if side not in (None, "left", "right"):
        raise ShapeError(f"searchsorted: side is 'left' or 'right', not {side!r}")
    x = tensor_of(x1)
    if sorter is not None:
        x = x[sorter] if x.ndim == 1 else x.gather(-1, sorter)
    return x.searchsorted(x2, right=right, side=side, out_int32=out_int32)


# -- shape -------------------------------------------------------------------------------------


@spelled
def reshape(x: Tensor, /, shape: Any, *more: int, copy: bool | None = None) -> Tensor:
    """The elements in row-major order under another shape; with ``copy`` in memory of their own."""
    found = tensor_of(x).reshape(shape, *more)
    return found.clone() if copy else found


@spelled
def broadcast_to(x: Tensor, /, shape: Any, *more: int) -> Tensor:
    """Axes of size 1 stretched; new axes come in front."""
    return tensor_of(x).expand(shape, *more)


def squeeze(x: Tensor, /, axis: Axis = None, *, dim: Axis = None) -> Tensor:
    """Without the axes of size 1. One that ``axis`` names must have size 1; ``dim``, as in
    torch, passes over those that have not."""
    given = tensor_of(x)
    if axis is None:
        return given.squeeze(dim)
    for place in axes_of(axis, given.ndim):
        if given.shape[place] != 1:
            raise ShapeError(f"squeeze: axis {place} of {given.shape} has not size 1")
    return given.squeeze(axis)


@spelled
def expand_dims(x: Tensor, /, axis: Any = 0) -> Tensor:
    """x with a new axis of size 1."""
    return tensor_of(x).unsqueeze(axis)


@spelled
def permute_dims(x: Tensor, /, axes: Any, *more: int) -> Tensor:
    """Axis i of the result is axis ``axes[i]``."""
    return tensor_of(x).permute(axes, *more)


def moveaxis(x: Tensor, source: Any, destination: Any, /) -> Tensor:
    """Axes moved to other places; the rest keep their order."""
    return tensor_of(x).movedim(source, destination)


@spelled
def flip(x: Tensor, /, axis: Axis = None) -> Tensor:
    """The axes in reverse order; all of them when none is named."""
    given = tensor_of(x)
    return given.flip(axes_of(axis, given.ndim))


def roll(
    x: Tensor, /, shift: Any = None, axis: Any = None, *, shifts: Any = None, dims: Any = None
) -> Tensor:
    """Shifted along axes, round the end; without axes, over the flattened elements."""
    amount = shifts if shift is None else shift
    if amount is None:
        raise DTypeError("roll needs a shift")
    return tensor_of(x).roll(amount, dims if axis is None else axis)


def tile(x: Tensor, /, repetitions: Any, *more: int) -> Tensor:
    """Each axis repeated whole; missing counts are 1."""
    return tensor_of(x).tile(repetitions, *more)


@spelled
def repeat(x: Tensor, repeats: Any, /, *, axis: int | None = None) -> Tensor:
    """Each element repeated, as np.repeat; a tensor of counts is read now."""
    return tensor_of(x).repeat_interleave(repeats, axis)


@spelled
def unstack(x: Tensor, /, *, axis: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, without it."""
    return x.unbind(axis)


@spelled
def concat(arrays: Sequence[Tensor], /, axis: int | None = 0) -> Tensor:
    """Tensors one after the other along an axis; None flattens them first."""
    return concatenate(arrays, axis)


@spelled
def stack(arrays: Sequence[Tensor], /, axis: int = 0) -> Tensor:
    """Tensors of one shape along a new axis."""
    return _stack(arrays, axis)


def tril(x: Tensor, /, k: int = 0, *, diagonal: int | None = None) -> Tensor:
    """The lower triangle of matrices, up to the k-th diagonal; zeros above."""
    return tensor_of(x).tril(k if diagonal is None else diagonal)


def triu(x: Tensor, /, k: int = 0, *, diagonal: int | None = None) -> Tensor:
    """The upper triangle of matrices, from the k-th diagonal; zeros below."""
    return tensor_of(x).triu(k if diagonal is None else diagonal)


# -- elements ----------------------------------------------------------------------------------


@spelled
def take(x: Tensor, indices: Any, /, axis: int | None = None) -> Tensor:
    """Slices along an axis at the indices; without an axis, elements of the flattened tensor."""
    return tensor_of(x).take(indices, axis)


@spelled
def take_along_axis(x: Tensor, indices: Tensor, /, axis: int | None = -1) -> Tensor:
    """Elements along an axis, one index for each place of the result."""
    return tensor_of(x).take_along_dim(indices, axis)


@spelled
def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """The places of elements that are not zero, one tensor per axis; x is read now."""
    if not x.ndim:
        raise ShapeError("nonzero needs at least 1 axis")
    return tuple([Tensor(i, device=x.device) for i in np.nonzero(x.numpy())])


@spelled
def isin(x1: Any, x2: Any, /, *, invert: bool = False, assume_unique: bool = False) -> Tensor:
    """Whether each element of x1 is one of x2; ``assume_unique`` changes nothing."""
    first = x1 if isinstance(x1, Tensor) else None
    elements = tensor_of(x1, x2 if isinstance(x2, Tensor) else None)
    a, b, device = pair(elements, x2 if first is not None else tensor_of(x2))
    tests = wrap(b, device).ravel()
    found = (wrap(a, device).unsqueeze(-1) == tests).any(-1)
    return ~found if invert else found


def nextafter(x1: Any, x2: Any, /) -> Tensor:
    """The next float after x1 on the way to x2."""
    start = x1 if isinstance(x1, Tensor) else tensor_of(x2)
    a, b, device = pair(start, x2) if start is x1 else _turned(pair(start, x1))
    return wrap(a, device).nextafter(wrap(b, device))


def _turned(found: Any) -> Any:
    a, b, device = found
    return b, a, device


# -- sets --------------------------------------------------------------------------------------


class UniqueAll(NamedTuple):
    """Distinct values, where each comes first, where each element is among them, how often."""

    values: Tensor
    indices: Tensor
    inverse_indices: Tensor
    counts: Tensor


class UniqueCounts(NamedTuple):
    """Distinct values and how often each occurs."""

    values: Tensor
    counts: Tensor


class UniqueInverse(NamedTuple):
    """Distinct values and where each element is among them."""

    values: Tensor
    inverse_indices: Tensor


@spelled
def unique_all(x: Tensor, /) -> UniqueAll:
    """The distinct values, sorted, with places and counts; every NaN is distinct. x is read now."""
    values, places, inverse, counts = np.unique(
        x.numpy(), return_index=True, return_inverse=True, return_counts=True, equal_nan=False
    )
    parts = [Tensor(p, device=x.device) for p in (values, places, inverse, counts)]
    parts[2] = parts[2].reshape(x.shape)
    return UniqueAll(*parts)


@spelled
def unique_counts(x: Tensor, /) -> UniqueCounts:
    """The distinct values, sorted, and how often each occurs; x is read now."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


@spelled
def unique_inverse(x: Tensor, /) -> UniqueInverse:
    """The distinct values, sorted, and where each element is among them; x is read now."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


@spelled
def unique_values(x: Tensor, /) -> Tensor:
    """The distinct values, sorted; every NaN is distinct. x is read now."""
    return Tensor(np.unique(x.numpy(), equal_nan=False), device=x.device)


# -- parts of numbers --------------------------------------------------------------------------


def conj(x: Tensor, /) -> Tensor:
    """The conjugate; a real number is its own."""
    return tensor_of(x).conj()


def real(x: Tensor, /) -> Tensor:
    """The real part; a real number is its own."""
    return tensor_of(x).real


def imag(x: Tensor, /) -> Tensor:
    """The imaginary part; that of real numbers is zero."""
    return parts(tensor_of(x))[1]


# -- products ----------------------------------------------------------------------------------


@spelled
def tensordot(x1: Tensor, x2: Tensor, /, axes: Any = 2) -> Tensor:
    """The sum of products over pairs of axes: a count, or two lists of axes."""
    return x1.tensordot(x2, axes)


@spelled
def vecdot(x1: Tensor, x2: Tensor, /, axis: int = -1) -> Tensor:
    """The sum of products over one axis, which counts from the back."""
    return x1.vecdot(x2, axis)


STANDARD = {
    name: value
    for name, value in list(globals().items())
    if callable(value)
    and getattr(value, "__module__", "") == __name__
    and not isinstance(value, type)
    and not name.startswith("_")
}
