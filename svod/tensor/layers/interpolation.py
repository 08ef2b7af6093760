"""Interpolation of images: interpolate, grid_sample, affine_grid.

Resizing works axis by axis: every output is a weighted sum of a few inputs, whose places and
weights depend on the sizes alone. Sampling at given places reads the corners around each place.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import numpy as np

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.tensor.core.tensor_core import accumulator, integer, tensor_of, wrap
from svod.tensor.ops.elementwise import select

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]
_AXES = {"linear": 1, "bilinear": 2, "bicubic": 2, "trilinear": 3}
_CUBIC = -0.75  # slope of the cubic at its outer points, as in torch
_CUBIC_SMOOTH = -0.5  # and with antialias


# -- places and weights of one axis ------------------------------------------------------------


def _sources(size: int, out: int, scale: float | None, align_corners: bool, clamp: bool) -> Array:
    """Where each output lies on the input, as a fraction of its elements."""
    place = np.arange(out, dtype=np.float64)
    if align_corners:
        return place * ((size - 1) / (out - 1) if out > 1 else 0.0)
    ratio = size / out if scale is None else 1 / scale
    found = (place + 0.5) * ratio - 0.5
    return np.maximum(found, 0) if clamp else found


def _nearest(size: int, out: int, scale: float | None, exact: bool) -> tuple[Array, Array]:
    ratio = np.float32(size / out if scale is None else 1 / scale)
    place = np.arange(out, dtype=np.float32) + np.float32(0.5 if exact else 0)
    index = np.minimum(np.floor(place * ratio).astype(np.int64), size - 1)
    return index[None], np.ones((1, out))


def _linear(size: int, out: int, scale: float | None, align: bool) -> tuple[Array, Array]:
    place = _sources(size, out, scale, align, True)
    low = np.minimum(place.astype(np.int64), size - 1)
    weight = np.clip(place - low, 0, 1)
    return np.stack([low, np.minimum(low + 1, size - 1)]), np.stack([1 - weight, weight])


def _cubic_weights(t: Array) -> Array:
    """The four weights of a cubic through neighbours, t after the second of them."""
    a = _CUBIC

    def near(x: Array) -> Array:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Array) -> Array:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return np.stack([far(t + 1), near(t), near(1 - t), far(2 - t)])


def _cubic(size: int, out: int, scale: float | None, align: bool) -> tuple[Array, Array]:
    place = _sources(size, out, scale, align, False)
    low = np.floor(place)
    index = low.astype(np.int64) + np.arange(-1, 3)[:, None]
    return np.clip(index, 0, size - 1), _cubic_weights(place - low)


def _smooth(
    size: int, out: int, scale: float | None, align: bool, mode: str
) -> tuple[Array, Array]:
    """Weights of a filter as wide as the step, so that nothing is skipped on the way down."""
    if align:
        ratio = (size - 1) / (out - 1) if out > 1 else 0.0
    else:
        ratio = size / out if scale is None else 1 / scale
    reach = {"linear": 2, "cubic": 4}[mode] * 0.5
    support = reach * ratio if ratio >= 1 else reach
    stretch = 1 / ratio if ratio >= 1 else 1.0
    taps = ceil(support) * 2 + 1
    index, weight = np.zeros((taps, out), np.int64), np.zeros((taps, out))
    for i in range(out):
        centre = ratio * (i + 0.5)
        first = max(int(centre - support + 0.5), 0)
        count = min(int(centre + support + 0.5), size) - first
        offsets = np.abs((np.arange(count) + first - centre + 0.5) * stretch)
        value = _tent(offsets) if mode == "linear" else _bump(offsets)
        total = value.sum()
        weight[:count, i] = value / total if total else value
        index[:, i] = np.minimum(first + np.arange(taps), size - 1)
    return index, weight


def _tent(x: Array) -> Array:
    return np.maximum(1 - x, 0)


def _bump(x: Array) -> Array:
    a = _CUBIC_SMOOTH
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, inner, np.where(x < 2, outer, 0))


def _along(x: Tensor, axis: int, index: Array, weight: Array) -> Tensor:
    """The weighted sum of a few places of an axis."""
    total: Any = None
    line = [-1 if i == axis else 1 for i in range(x.ndim)]
    for places, factors in zip(index, weight, strict=True):
        if not factors.any():
            continue
        picked = x.index_select(axis, tensor_of(places, x))
        if (factors != 1).any():
            scale = tensor_of(factors.astype(np.float64), x).cast(x.dtype)
            picked = picked * scale.reshape(line)
        total = picked if total is None else total + picked
    assert total is not None, "every output has a source"
    return total  # type: ignore[no-any-return]


# -- interpolate -------------------------------------------------------------------------------


def _sizes(
    x: Tensor, size: Any, scale_factor: Any, recompute: bool | None
) -> tuple[list[int], list[float | None]]:
    """The wanted sizes, and the scales that stand for them."""
    space = x.ndim - 2
    if (size is None) == (scale_factor is None):
        what = "either" if size is None else "only one of"
        raise ShapeError(f"interpolate: give {what} size or scale_factor")
    if size is not None:
        wanted = list(size) if isinstance(size, Sequence) else [size] * space
        if len(wanted) != space:
            raise ShapeError(f"interpolate: size {size} for the {space} spatial axes of {x.shape}")
        if recompute:
            raise ShapeError("interpolate: recompute_scale_factor needs scale_factor")
        return [integer(n, "size") for n in wanted], [None] * space
    scales = list(scale_factor) if isinstance(scale_factor, Sequence) else [scale_factor] * space
    if len(scales) != space:
        raise ShapeError(f"interpolate: scales {scales} for the {space} spatial axes of {x.shape}")
    wanted = [floor(n * float(s)) for n, s in zip(x.shape[2:], scales, strict=True)]
    return wanted, [None] * space if recompute else [float(s) for s in scales]


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Tensor:
    """The spatial axes of (batch, channels, *space) at another size.

    Modes: nearest, nearest-exact, linear, bilinear, trilinear, bicubic, area.
    """
    plain = ("nearest", "nearest-exact", "area")
    if mode not in plain and mode not in _AXES:
        raise ShapeError(f"interpolate: mode {mode!r} is not one of {', '.join([*plain, *_AXES])}")
    if mode in plain and align_corners is not None:
        raise ShapeError(f"interpolate: align_corners is not for mode {mode!r}")
    space = input.ndim - 2
    if space not in (1, 2, 3) or _AXES.get(mode, space) != space:
        raise ShapeError(f"interpolate: mode {mode!r} for shape {input.shape}")
    wanted, scales = _sizes(input, size, scale_factor, recompute_scale_factor)
    if min(wanted) < 1:
        raise ShapeError(f"interpolate: sizes are at least 1, not {wanted}")
    if antialias and mode not in ("bilinear", "bicubic"):
        raise ShapeError(f"interpolate: antialias is for bilinear and bicubic, not {mode!r}")
    if mode == "area":
        return getattr(input, f"adaptive_avg_pool{space}d")(wanted)  # type: ignore[no-any-return]
    is_byte = input.dtype is dt.uint8
    if mode not in plain and input.dtype.kind != "f" and not is_byte:
        raise DTypeError(f"interpolate in mode {mode!r} takes floats, not {input.dtype.name}")
    align = bool(align_corners)
    x = input if mode in plain else input.cast(dt.float32 if is_byte else accumulator(input.dtype))
    steps = list(enumerate(zip(wanted, scales, strict=True), 2))
    rounds = is_byte and mode not in plain  # after each axis, the last one first, as in torch
    for axis, (out, scale) in reversed(steps) if rounds else steps:
        n = input.shape[axis]
        if mode in plain:
            taps = _nearest(n, out, scale, mode == "nearest-exact")
        elif antialias:
            taps = _smooth(n, out, scale, align, "cubic" if mode == "bicubic" else "linear")
        elif mode == "bicubic":
            taps = _cubic(n, out, scale, align)
        else:
            taps = _linear(n, out, scale, align)
        x = _along(x, axis, *taps)
        x = (x + 0.5).floor().clamp(0, 255) if rounds else x
    return x.cast(input.dtype)


# -- sampling at given places ------------------------------------------------------------------


def affine_grid(theta: Tensor, size: Sequence[int], align_corners: bool | None = None) -> Tensor:
    """The places, from -1 to 1, that affine maps send a regular grid to."""
    if theta.dtype.kind != "f":
        raise ShapeError(f"affine_grid: theta holds floats, not {theta.dtype.name}")
    space = len(size) - 2
    if space not in (2, 3):
        raise ShapeError(f"affine_grid: a size of 4 or 5 numbers, not {tuple(size)}")
    if theta.ndim != 3 or theta.shape[1:] != (space, space + 1):
        raise ShapeError(f"affine_grid: theta of shape {theta.shape} for size {tuple(size)}")
    if min(size) < 1:
        raise ShapeError(f"affine_grid: sizes are at least 1, not {tuple(size)}")
    if theta.shape[0] != size[0]:
        raise ShapeError(f"affine_grid: {theta.shape[0]} maps for a batch of {size[0]}")
    lines = []
    for n in size[2:]:
        line = np.linspace(-1, 1, n) if n > 1 else np.zeros(1)
        lines.append(line if align_corners else line * ((n - 1) / n))
    grids = [*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(tuple(size[2:]))]
    base = tensor_of(np.stack(grids, -1).reshape(-1, space + 1), theta).cast(theta.dtype)
    return (base @ theta.mT).reshape(size[0], *size[2:], space)


def _unnormalized(place: Tensor, size: int, align_corners: bool) -> Tensor:
    if align_corners:
        return (place + 1) * ((size - 1) / 2)
    return ((place + 1) * size - 1) / 2


def _reflected(x: Tensor, low2: int, high2: int) -> Tensor:
    """x mirrored at low2 / 2 and high2 / 2 until it lies between them."""
    if low2 == high2:
        return x * 0
    start, span = low2 / 2, (high2 - low2) / 2
    away = (x - start).abs()
    rest = away.fmod(span)
    turns = (away.detach() / span).floor()
    return select(turns.remainder(2) == 0, rest + start, span - rest + start)


def _placed(x: Tensor, size: int, padding_mode: str, align_corners: bool) -> Tensor:
    """A place on an axis, brought inside as the padding mode says."""
    if padding_mode == "zeros":
        return x
    if padding_mode == "reflection":
        edges = (0, 2 * (size - 1)) if align_corners else (-1, 2 * size - 1)
        x = _reflected(x, *edges)
    return x.clamp(0, size - 1)


def grid_sampler(
    input: Tensor,
    grid: Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
) -> Tensor:
    """grid_sample with numbers for its modes, in the order in which it names them."""
    modes = ("bilinear", "nearest", "bicubic")[interpolation_mode]
    return grid_sample(
        input, grid, modes, ("zeros", "border", "reflection")[padding_mode], align_corners
    )


def grid_sample(
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Tensor:
    """Values of (batch, channels, *space) at places between -1 and 1, x first."""
    if mode not in ("bilinear", "nearest", "bicubic"):
        raise ShapeError(f"grid_sample: mode is bilinear, nearest or bicubic, not {mode!r}")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise ShapeError(f"grid_sample: padding is zeros, border or reflection: {padding_mode!r}")
    space = input.ndim - 2
    if space not in (2, 3) or grid.ndim != input.ndim or grid.shape[-1] != space:
        raise ShapeError(f"grid_sample of {input.shape} at places of shape {grid.shape}")
    if input.shape[0] != grid.shape[0] or 0 in input.shape[2:]:
        raise ShapeError(f"grid_sample of {input.shape} at places of shape {grid.shape}")
    if mode == "bicubic" and space == 3:
        raise ShapeError("grid_sample: bicubic is for two spatial axes")
    if input.dtype is not grid.dtype or input.dtype.kind != "f":
        raise DTypeError(f"grid_sample of {input.dtype.name} at places of {grid.dtype.name}")
    align = bool(align_corners)
    sizes = input.shape[2:]
    places = [_unnormalized(grid[..., space - 1 - i], n, align) for i, n in enumerate(sizes)]
    first = input.movedim(1, -1)
    if mode == "bicubic":
        return _bicubic_sample(first, places, sizes, padding_mode, align).movedim(-1, 1)
    places = [_placed(p, n, padding_mode, align) for p, n in zip(places, sizes, strict=True)]
    if mode == "nearest":
        return _at(first, [p.detach().round() for p in places]).movedim(-1, 1)
    lows = [p.detach().floor() for p in places]
    total: Any = None
    for corner in range(1 << space):
        weight: Any = None
        where = []
        for i, (p, low) in enumerate(zip(places, lows, strict=True)):
            side = corner >> i & 1
            part = p - low if side else low + 1 - p
            where.append(low + side)
            weight = part if weight is None else weight * part
        part = _at(first, where) * weight.unsqueeze(-1)
        total = part if total is None else total + part
    return total.movedim(-1, 1)  # type: ignore[no-any-return]


def _at(x: Tensor, places: Sequence[Tensor]) -> Tensor:
    """Elements of (batch, *space, channels) at whole places; 0 outside."""
    shape = places[0].shape
    batch = B.reshape(B.iota(x.shape[0], dt.int64), (x.shape[0], *[1] * (len(shape) - 1)))
    indices = [B.broadcast_to(batch, shape)]
    for p, n in zip(places, x.shape[1:], strict=False):
        inside = select((p > -1) & (p < n), p, -1.0)  # NaN and what an integer cannot hold
        indices.append(inside.cast(dt.int64).uop)
    return wrap(B.gather(x.uop, indices), x._device)


def _bicubic_sample(
    x: Tensor, places: list[Tensor], sizes: Sequence[int], padding_mode: str, align: bool
) -> Tensor:
    lows = [p.detach().floor() for p in places]
    weights = [_cubic_factors(p - low) for p, low in zip(places, lows, strict=True)]
    total: Any = None
    for i in range(4):
        row: Any = None
        y = _placed(lows[0] + (i - 1), sizes[0], padding_mode, align)
        for j in range(4):
            z = _placed(lows[1] + (j - 1), sizes[1], padding_mode, align)
            part = _at(x, [y, z]) * weights[1][j].unsqueeze(-1)
            row = part if row is None else row + part
        part = row * weights[0][i].unsqueeze(-1)
        total = part if total is None else total + part
    return total  # type: ignore[no-any-return]


def _cubic_factors(t: Tensor) -> list[Tensor]:
    a = _CUBIC

    def near(x: Tensor) -> Tensor:
        return ((a + 2) * x - (a + 3)) * x * x + 1

    def far(x: Tensor) -> Tensor:
        return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a

    return [far(t + 1), near(t), near(1 - t), far(2 - t)]
