"""``svod.fft``: the Fourier transforms of the array API standard, and those torch has beyond it.

``axis`` may be spelled ``dim``, and ``axes`` too. float64 gives complex128, any other real dtype
is computed in float32. Transforms are graphs like any other (``dft_graph.py``), with gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod, sqrt
from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.dtype.convert import dtype_of
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, is_symbolic
from svod.tensor.core.public_functions import guard
from svod.tensor.core.slicing import slice_axis
from svod.tensor.core.tensor_core import Axis, AxisError, Core, axes_of, integer, real_axis, wrap
from svod.tensor.fft.real_transforms import complex_transform, half_transform, real_transform
from svod.tensor.ops.creation import arange
from svod.tensor.ops.elementwise import select

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

__all__ = [
    "fft", "fft2", "fftfreq", "fftn", "fftshift", "hfft", "hfft2", "hfftn", "ifft", "ifft2",
    "ifftn", "ifftshift", "ihfft", "ihfft2", "ihfftn", "irfft", "irfft2", "irfftn", "rfft", "rfft2",
    "rfftfreq", "rfftn",
]  # fmt: skip

Norm = str | None
_LAST = (-2, -1)


def fft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The transform along an axis, cut or filled with zeros to n points."""
    return _complex("fft", x, *_one("fft", x, n, axis), norm, -1)


def ifft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of `fft`."""
    return _complex("ifft", x, *_one("ifft", x, n, axis), norm, 1)


def fftn(
    x: Tensor,
    /,
    s: Sequence[int] | None = None,
    axes: Axis = None,
    norm: Norm = "backward",
) -> Tensor:
    """The transform along several axes, all of them if none are named, to sizes s."""
    return _complex("fftn", x, *_several("fftn", x, s, axes), norm, -1)


def ifftn(
    x: Tensor,
    /,
    s: Sequence[int] | None = None,
    axes: Axis = None,
    norm: Norm = "backward",
) -> Tensor:
    """The inverse of `fftn`."""
    return _complex("ifftn", x, *_several("ifftn", x, s, axes), norm, 1)


def rfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The first n // 2 + 1 numbers of the transform of real values; the others mirror them."""
    return _real("rfft", x, *_one("rfft", x, n, axis), norm, -1)


def irfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of `rfft`: n real values, 2 * (m - 1) of m numbers unless told otherwise."""
    return _half("irfft", x, *_one("irfft", x, n, axis, True), norm, 1)


def rfftn(
    x: Tensor,
    /,
    s: Sequence[int] | None = None,
    axes: Axis = None,
    norm: Norm = "backward",
) -> Tensor:
    """`rfft` along the last of several axes, `fft` along the others."""
    return _real("rfftn", x, *_several("rfftn", x, s, axes), norm, -1)


def irfftn(
    x: Tensor,
    /,
    s: Sequence[int] | None = None,
    axes: Axis = None,
    norm: Norm = "backward",
) -> Tensor:
    """The inverse of `rfftn`."""
    return _half("irfftn", x, *_several("irfftn", x, s, axes, True), norm, 1)


def hfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The real transform of values whose other half are the conjugates of these."""
    return _half("hfft", x, *_one("hfft", x, n, axis, True), norm, -1)


def ihfft(x: Tensor, /, n: int | None = None, axis: int = -1, norm: Norm = "backward") -> Tensor:
    """The inverse of `hfft`."""
    return _real("ihfft", x, *_one("ihfft", x, n, axis), norm, 1)


def hfftn(
    x: Tensor,
    /,
    s: Sequence[int] | None = None,
    axes: Axis = None,
    norm: Norm = "backward",
) -> Tensor:
    """`hfft` along the last of several axes, after `fft` along the others."""
    return _half("hfftn", x, *_several("hfftn", x, s, axes, True), norm, -1)


def ihfftn(
    x: Tensor,
    /,
    s: Sequence[int] | None = None,
    axes: Axis = None,
    norm: Norm = "backward",
) -> Tensor:
    """The inverse of `hfftn`."""
    return _real("ihfftn", x, *_several("ihfftn", x, s, axes), norm, 1)


def fft2(
    x: Tensor, /, s: Sequence[int] | None = None, axes: Axis = _LAST, norm: Norm = "backward"
) -> Tensor:
    """`fftn` along the last two axes."""
    return _complex("fft2", x, *_several("fft2", x, s, axes), norm, -1)


def ifft2(
    x: Tensor, /, s: Sequence[int] | None = None, axes: Axis = _LAST, norm: Norm = "backward"
) -> Tensor:
    """The inverse of `fft2`."""
    return _complex("ifft2", x, *_several("ifft2", x, s, axes), norm, 1)


def rfft2(
    x: Tensor, /, s: Sequence[int] | None = None, axes: Axis = _LAST, norm: Norm = "backward"
) -> Tensor:
    """`rfftn` along the last two axes."""
    return _real("rfft2", x, *_several("rfft2", x, s, axes), norm, -1)


def irfft2(
    x: Tensor, /, s: Sequence[int] | None = None, axes: Axis = _LAST, norm: Norm = "backward"
) -> Tensor:
    """The inverse of `rfft2`."""
    return _half("irfft2", x, *_several("irfft2", x, s, axes, True), norm, 1)


def hfft2(
    x: Tensor, /, s: Sequence[int] | None = None, axes: Axis = _LAST, norm: Norm = "backward"
) -> Tensor:
    """`hfftn` along the last two axes."""
    return _half("hfft2", x, *_several("hfft2", x, s, axes, True), norm, -1)


def ihfft2(
    x: Tensor, /, s: Sequence[int] | None = None, axes: Axis = _LAST, norm: Norm = "backward"
) -> Tensor:
    """The inverse of `hfft2`."""
    return _real("ihfft2", x, *_several("ihfft2", x, s, axes), norm, 1)


# -- frequencies -----------------------------------------------------------------------------------


def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """The frequencies of `fft` of n samples at distance d: 0, 1, .. and the negative ones."""
    place = arange(_samples("fftfreq", n), device=device)
    return _frequencies(select(place * 2 < n, place, place - n), n, d, dtype)


def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: str | None = None) -> Tensor:
    """The frequencies of `rfft` of n samples at distance d, 0 and up."""
    place = arange(_samples("rfftfreq", n) // 2 + 1, device=device)
    return _frequencies(place, n, d, dtype)


def _samples(name: str, n: int) -> int:
    if (count := integer(n, "n")) < 1:
        raise ShapeError(f"{name} needs 1 sample or more, not {count}")
    return count


def _frequencies(place: Tensor, n: int, d: float, dtype: Any) -> Tensor:
    if not isinstance(d, (int, float)):
        raise DTypeError(f"d is the distance of two samples, a number, not {d!r:.60}")
    if d == 0:
        raise ShapeError("samples at distance 0 have no frequencies")
    kind = dt.float32 if dtype is None else dtype_of(dtype)
    if kind.kind != "f":
        raise DTypeError(f"frequencies are floats, not {kind.name}")
    return (place.cast(dt.float64) * (1.0 / (n * d))).cast(kind)


def fftshift(x: Tensor, /, axes: Axis = None) -> Tensor:
    """The number for frequency 0 moved to the middle of the axes, all if none are named."""
    return _shifted("fftshift", x, axes, lambda n: n // 2)


def ifftshift(x: Tensor, /, axes: Axis = None) -> Tensor:
    """The inverse of `fftshift`."""
    return _shifted("ifftshift", x, axes, lambda n: -(n // 2))


def _shifted(name: str, x: Tensor, axes: Axis, distance: Any) -> Tensor:
    _check_tensor(name, x)
    found = axes_of(axes, x.ndim)
    if not found or 0 in x.shape:
        return x
    return x.roll([distance(x.shape[a]) for a in found], found)


# -- transforms of pairs ---------------------------------------------------------------------------


def _complex(
    name: str, x: Tensor, axes: Sequence[int], sizes: Sequence[int], norm: Norm, sign: int
) -> Tensor:
    scale = _scale(name, sizes, norm, sign)
    if x.dtype.kind != "c" and axes and 0 not in x.shape:
        return _of_real(x, axes, sizes, scale, sign)
    return _made_complex(_turned(_pairs_of(x), axes, sizes, scale, sign, x.device))


def _of_real(
    x: Tensor, axes: Sequence[int], sizes: Sequence[int], scale: float, sign: int
) -> Tensor:
    """The last axis by half of it, the other half from the conjugates; the rest as they come."""
    *others, last = axes
    n = sizes[-1]
    half = _floats(_real_along(_float_of(x), last, n, scale, sign))
    stop = n // 2 + n % 2
    mirrored = _conjugate(B.flip(slice_axis(half, last, 1, max(stop, 1)), (last,)))
    whole = wrap(B.contiguous(B.cat([half, mirrored], last)), x.device)
    return _made_complex(_turned(whole, others, sizes[:-1], 1.0, sign, x.device))


def _real(
    name: str, x: Tensor, axes: Sequence[int], sizes: Sequence[int], norm: Norm, sign: int
) -> Tensor:
    if x.dtype.kind == "c":
        raise DTypeError(f"{name} takes real numbers, not {x.dtype.name}")
    _need_axes(name, axes)
    scale = _scale(name, sizes, norm, sign)
    found = _real_along(_float_of(x), axes[-1], sizes[-1], scale, sign)
    return _made_complex(_turned(found, axes[:-1], sizes[:-1], 1.0, sign, x.device))


def _half(
    name: str, x: Tensor, axes: Sequence[int], sizes: Sequence[int], norm: Norm, sign: int
) -> Tensor:
    _need_axes(name, axes)
    scale = _scale(name, sizes, norm, sign)
    axis, n = axes[-1], sizes[-1]
    pairs = _turned(_pairs_of(x), axes[:-1], sizes[:-1], 1.0, sign, x.device)
    node = _resized(pairs.uop, axis, n // 2 + 1)
    if sign < 0:
        node = _conjugate(node)
    shape = (*node.shape[:axis], n, *node.shape[axis + 1 : -1])
    if 0 in shape:
        return wrap(B.full(shape, 0, node.dtype), x.device)
    lead, rest = prod(shape[:axis]), prod(shape[axis + 1 :])
    flat = wrap(B.reshape(node, (lead, n // 2 + 1, rest, 2)), x.device)
    found = half_transform(flat, n, scale, x.device)
    return wrap(B.reshape(found.uop, shape), x.device)


def _turned(
    pairs: Tensor,
    axes: Sequence[int],
    sizes: Sequence[int],
    scale: float,
    sign: int,
    device: str,
) -> Tensor:
    """Complex transforms along axes, the last one first; the scale is applied once."""
    node = pairs.uop
    if not axes and scale != 1:
        node = B.binary(O.MUL, node, B.full((), scale, node.dtype))
    for axis, n in zip(reversed(axes), reversed(sizes), strict=True):
        node = _resized(node, axis, n)
        shape = node.shape
        if 0 not in shape:
            lead, rest = prod(shape[:axis]), prod(shape[axis + 1 : -1])
            flat = wrap(B.reshape(node, (lead, n, rest, 2)), device)
            node = B.reshape(complex_transform(flat, sign, scale, device).uop, shape)
        scale = 1.0
    return wrap(node, device)


def _real_along(x: Tensor, axis: int, n: int, scale: float, sign: int) -> Tensor:
    node = _resized(x.uop, axis, n)
    shape = node.shape
    lead, rest = prod(shape[:axis]), prod(shape[axis + 1 :])
    wide = (*shape[:axis], n // 2 + 1, *shape[axis + 1 :], 2)
    if 0 in shape:
        return wrap(B.full(wide, 0, node.dtype), x.device)
    flat = wrap(B.reshape(node, (lead, n, rest)), x.device)
    found = B.reshape(real_transform(flat, scale, x.device).uop, wide)
    return wrap(_conjugate(found) if sign > 0 else found, x.device)


def _resized(node: UOp, axis: int, n: int) -> UOp:
    """An axis cut, or filled with zeros, to n elements."""
    have = node.shape[axis]
    if have > n:
        return slice_axis(node, axis, 0, n)
    pairs = [(0, 0)] * len(node.shape)
    pairs[axis] = (0, n - have)
    return B.pad(node, tuple(pairs))


def _conjugate(node: UOp) -> UOp:
    axis = len(node.shape) - 1
    re, im = slice_axis(node, axis, 0, 1), slice_axis(node, axis, 1, 2)
    return B.cat([re, B.unary(O.NEG, im)], axis)


# -- arguments -------------------------------------------------------------------------------------


def _check_tensor(name: str, x: Any) -> None:
    if not isinstance(x, Core):
        raise DTypeError(f"{name} takes a tensor, not a {type(x).__name__}: {x!r:.60}")
    if is_symbolic(x.shape):
        raise ShapeError(f"{name} needs sizes that are known, not {x.shape}")


def _one(
    name: str, x: Tensor, n: int | None, axis: int, is_half: bool = False
) -> tuple[list[int], list[int]]:
    _check_tensor(name, x)
    place = real_axis(axis, x.shape, name)
    default = _default_size(x, place, is_half)
    size = default if n is None else integer(n, "n")
    return [place], [_points(name, size)]


def _several(
    name: str, x: Tensor, s: Sequence[int] | None, axes: Axis, is_half: bool = False
) -> tuple[list[int], list[int]]:
    _check_tensor(name, x)
    given = None if s is None else [integer(v, "a size") for v in s]
    if axes is None and given is not None:
        if len(given) > x.ndim:
            raise ShapeError(f"{name}: {len(given)} sizes for a tensor with {x.ndim} axes")
        axes = tuple(range(x.ndim - len(given), x.ndim))
    places = list(axes_of(axes, x.ndim)) if x.ndim or axes is None else _no_axes(name, axes)
    if given is None:
        given = [-1] * len(places)
    if len(given) != len(places):
        raise ShapeError(f"{name}: sizes {tuple(given)} for axes {tuple(places)}")
    sizes = [
        _default_size(x, a, is_half and a is places[-1]) if v == -1 else v
        for a, v in zip(places, given, strict=True)
    ]
    return places, [_points(name, v) for v in sizes]


def _no_axes(name: str, axes: Any) -> list[int]:
    if isinstance(axes, Sequence) and not axes:
        return []
    raise AxisError(f"{name}: a scalar has no axes {axes!r:.60}")


def _default_size(x: Tensor, axis: int, is_half: bool) -> int:
    return 2 * (x.shape[axis] - 1) if is_half else x.shape[axis]


def _points(name: str, n: int) -> int:
    if n < 1:
        raise ShapeError(f"{name} needs 1 point or more along an axis, not {n}")
    return n


def _need_axes(name: str, axes: Sequence[int]) -> None:
    if not axes:
        raise ShapeError(f"{name} needs at least 1 axis")


def _scale(name: str, sizes: Sequence[int], norm: Norm, sign: int) -> float:
    """What results are multiplied by; forward transforms turn by -1."""
    count = prod(sizes)
    if norm == "ortho":
        return 1 / sqrt(count)
    if norm not in (None, "backward", "forward"):
        raise ShapeError(f"{name}: norm is 'backward', 'ortho' or 'forward', not {norm!r:.60}")
    is_divided = (norm == "forward") == (sign < 0)
    return 1 / count if is_divided else 1.0


# -- complex tensors and their floats --------------------------------------------------------------


def _float_of(x: Tensor) -> Tensor:
    """Real numbers as float32 or float64."""
    return x if x.dtype is dt.float64 else x.cast(dt.float32)


def _pairs_of(x: Tensor) -> Tensor:
    """The floats of shape (.., 2) that a complex tensor is a view of."""
    if x.dtype.kind == "c":
        return wrap(B.floats_of(x.uop), x._device)
    node = B.reshape(_float_of(x).uop, (*x.shape, 1))
    return wrap(B.cat([node, B.full(node.shape, 0, node.dtype)], len(x.shape)), x._device)


def _floats(pairs: Tensor) -> UOp:
    return pairs.uop


def _made_complex(pairs: Tensor) -> Tensor:
    return wrap(B.complex_view(pairs.uop), pairs._device)


guard(globals(), __all__)
