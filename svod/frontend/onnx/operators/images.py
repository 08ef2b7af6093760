"""Images at other sizes and places: Resize, GridSample, AffineGrid, RoiAlign, Col2Im.

A resize of one axis is a weighted sum of a few taps. Their places and weights are numbers that are
known while importing.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor, prod
from typing import Any

import numpy as np

import svod
from svod.base.errors import UnsupportedError, VariableError
from svod.dtype import types as dt
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.limits import check_host
from svod.frontend.onnx.operators.shapes import numbers
from svod.frontend.onnx.registry import Array, Host, Tensor, operator
from svod.ir.node import UOp
from svod.nn import functional as F


def _origins(mode: str, size: int, out: int, scale: float, roi: tuple[float, float]) -> Array:
    """Where each output element lies in the input."""
    check_host(out)
    x = np.arange(out, dtype=np.float64)
    length = scale * size
    if mode == "align_corners":
        return x * (size - 1) / (length - 1) if length != 1 else x * 0
    if mode == "asymmetric":
        return x / scale
    if mode == "pytorch_half_pixel":
        return (x + 0.5) / scale - 0.5 if length > 1 else x * 0 - 0.5
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    if mode == "tf_crop_and_resize":
        first, last = roi
        if out > 1:
            return first * (size - 1) + x * (last - first) * (size - 1) / (out - 1)
        return x * 0 + 0.5 * (first + last) * (size - 1)
    found = (x + 0.5) / scale - 0.5
    if mode == "half_pixel_symmetric":
        return found + size / 2 * (1 - int(length) / length)
    if mode != "half_pixel":
        raise UnsupportedError(f"coordinate_transformation_mode {mode!r} is not supported")
    return found


def _nearest(x: Array, mode: str) -> Array:
    if mode == "floor":
        return np.floor(x)
    if mode == "ceil":
        return np.ceil(x)
    return np.ceil(x - 0.5) if mode == "round_prefer_floor" else np.floor(x + 0.5)


def _kernel(distance: Array, mode: str, a: float) -> Array:
    d = np.abs(distance)
    if mode == "linear":
        return np.clip(1 - d, 0, None)
    near = (a + 2) * d**3 - (a + 3) * d**2 + 1
    far = a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def _resize_axis(
    x: Tensor, axis: int, out: int, scale: float, mode: str, coordinates: str, rounding: str,
    roi: tuple[float, float], a: float, exclude: bool, extrapolation: float, antialias: bool,
) -> Tensor:  # fmt: skip
    size = x.shape[axis]
    lead = (slice(None),) * axis
    places = _origins(coordinates, size, out, scale, roi)
    if mode == "nearest":
        spots = np.clip(_nearest(places, rounding), 0, size - 1).astype(np.int64)
        found = x[(*lead, svod.Tensor(spots))]
    else:
        shrink = min(scale, 1.0) if antialias else 1.0
        reach = ceil((1 if mode == "linear" else 2) / shrink)
        base = np.floor(places)
        taps = base[None, :] + np.arange(-reach, reach + 2)[:, None]
        weights = _kernel((taps - places) * shrink, mode, a)
        if exclude:
            weights = weights * ((taps >= 0) & (taps < size))
        if exclude or antialias:
            weights = weights / weights.sum(0)
        used = [i for i in range(len(taps)) if np.any(weights[i])]
        shape = [1] * axis + [out] + [1] * (x.ndim - 1 - axis)
        wide = x if x.dtype.is_float else x.cast(dt.float32)
        found = None  # type: ignore[assignment]
        for i in used:
            spots = np.clip(taps[i], 0, size - 1).astype(np.int64)
            factor = svod.Tensor(weights[i].astype(np.float32)).cast(wide.dtype).reshape(*shape)
            part = wide[(*lead, svod.Tensor(spots))] * factor
            found = part if found is None else found + part
        if not x.dtype.is_float:
            found = found.round()
            lo, hi = dt.integer_limits(x.dtype)
            found = found.clamp(lo, hi).cast(x.dtype)
    if coordinates == "tf_crop_and_resize":
        outside = (places < 0) | (places > size - 1)
        if outside.any():
            shape = [1] * axis + [out] + [1] * (x.ndim - 1 - axis)
            found = svod.where(svod.Tensor(outside).reshape(*shape), extrapolation, found)
    return found


def resize_to(
    x: Tensor, sizes: list[int], scales: list[float], mode: str, coordinates: str, rounding: str,
    roi: list[tuple[float, float]] | None = None, a: float = -0.75, exclude: bool = False,
    extrapolation: float = 0.0, antialias: bool = False,
) -> Tensor:  # fmt: skip
    """A tensor at other sizes, axis by axis."""
    mode = {"bilinear": "linear", "trilinear": "linear"}.get(mode, mode)
    x = x.contiguous()  # each element is read many times: what makes it runs once
    for axis, (out, scale) in enumerate(zip(sizes, scales, strict=True)):
        where = roi[axis] if roi else (0.0, 1.0)
        is_same = out == x.shape[axis] and isinstance(scale, float) and scale == 1.0
        if is_same and not (coordinates == "tf_crop_and_resize" and where != (0.0, 1.0)):
            continue
        if any(isinstance(n, UOp) for n in (out, x.shape[axis])):
            if antialias or exclude:
                raise VariableError("antialias over a run-time size")
            x = _resize_run_time(x, axis, out, scale, mode, coordinates, rounding)
            continue
        x = _resize_axis(
            x, axis, out, scale, mode, coordinates, rounding, where, a, exclude, extrapolation,
            antialias,
        )  # fmt: skip
    return x


def _ratio(wanted: Any, size: Any) -> Any:
    """How much larger an axis becomes; a tensor where that depends on run-time sizes."""
    if not isinstance(wanted, UOp) and not isinstance(size, UOp):
        return wanted / size
    if isinstance(wanted - size, int) and wanted - size == 0:
        return 1.0
    one = svod.full((), 1.0, dtype=dt.float64)
    return (one * wanted) / size


def _scaled(size: Any, scale: float) -> Any:
    """The whole part of a size times a number."""
    if not isinstance(size, UOp):
        return floor(size * scale)
    exact = Fraction(scale)
    if exact.denominator > 1 << 16:
        raise VariableError(f"a run-time size times {scale} is no fraction of whole numbers")
    return size * exact.numerator // exact.denominator


def _resize_run_time(
    x: Tensor, axis: int, out: Any, scale: Any, mode: str, coordinates: str, rounding: str
) -> Tensor:
    """One axis at another size, where either is known when the plan runs: places are computed."""
    size = x.shape[axis]
    line = svod.arange(out, dtype=dt.int64).cast(dt.float64)
    if coordinates in ("half_pixel", "pytorch_half_pixel"):
        places = (line + 0.5) / scale - 0.5
    elif coordinates == "asymmetric":
        places = line / scale
    elif coordinates == "align_corners":
        places = line * ((line[:1] * 0 + size - 1) / ((line[:1] * 0 + out - 1).clamp(min=1)))
    else:
        raise VariableError(f"{coordinates} over a run-time size")
    shape = [1] * axis + [out] + [1] * (x.ndim - 1 - axis)
    last = (line[:1] * 0 + size - 1).cast(dt.int64)
    lead = (slice(None),) * axis

    def at(spots: Tensor) -> Tensor:
        return x[(*lead, spots.cast(dt.int64).maximum(last * 0).minimum(last))]

    if mode == "nearest":
        rounded = {
            "floor": places.floor(), "ceil": places.ceil(),
            "round_prefer_floor": (places - 0.5).ceil(),
            "round_prefer_ceil": (places + 0.5).floor(),
        }  # fmt: skip
        return at(rounded[rounding])
    if mode != "linear" or not x.dtype.is_float:
        raise VariableError(f"mode {mode} over a run-time size")
    base = places.floor()
    share = (places - base).cast(x.dtype).reshape(*shape)
    return at(base) * (1 - share) + at(base + 1) * share


@operator("Resize", since=11)
def resize(
    x: Tensor, roi: Host | None = None, scales: Host | None = None, sizes: Host | None = None, *,
    antialias: int = 0, axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel", cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0, extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch", mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
) -> Tensor:  # fmt: skip
    chosen = [i % x.ndim for i in axes] if axes is not None else list(range(x.ndim))
    out, factor = list(x.shape), [1.0] * x.ndim
    region = [(0.0, 1.0)] * x.ndim
    if sizes is not None and sizes.size:
        wanted = numbers(sizes)
        ratios = [_ratio(n, x.shape[i]) for i, n in zip(chosen, wanted, strict=True)]
        if keep_aspect_ratio_policy != "stretch":
            if not all(isinstance(r, float) for r in ratios):
                raise VariableError("a kept aspect ratio over a run-time size")
            one = min(ratios) if keep_aspect_ratio_policy == "not_larger" else max(ratios)
            ratios = [one] * len(chosen)
            wanted = [floor(one * x.shape[i] + 0.5) for i in chosen]
        for i, n, ratio in zip(chosen, wanted, ratios, strict=True):
            out[i], factor[i] = n, ratio
    elif scales is not None and scales.size:
        for i, scale in zip(chosen, scales.reshape(-1).tolist(), strict=True):
            out[i], factor[i] = _scaled(x.shape[i], scale), scale
    if roi is not None and roi.size:
        flat = roi.reshape(-1).tolist()
        for place, i in enumerate(chosen):
            region[i] = (flat[place], flat[place + len(chosen)])
    return resize_to(
        x, out, factor, mode, coordinate_transformation_mode, nearest_mode, region, cubic_coeff_a,
        bool(exclude_outside), extrapolation_value, bool(antialias),
    )  # fmt: skip


@operator("Resize")
def resize_first(x: Tensor, scales: Host, *, mode: str = "nearest") -> Tensor:
    factors = [float(f) for f in scales]
    sizes = [_scaled(n, f) for n, f in zip(x.shape, factors, strict=True)]
    return resize_to(x, sizes, factors, mode, "asymmetric", "floor")


@operator("Upsample")
def upsample_first(
    x: Tensor, scales_in: Host | None = None, *, mode: str = "nearest", scales: Any = None,
    height_scale: float = 1.0, width_scale: float = 1.0, node: NodeView,
) -> Tensor:  # fmt: skip
    factors = scales_in if scales_in is not None else scales or [1, 1, height_scale, width_scale]
    factors = [float(f) for f in factors]
    sizes = [int(np.floor(n * f)) for n, f in zip(x.shape, factors, strict=True)]
    return resize_to(x, sizes, factors, mode, "asymmetric", "floor")


@operator("GridSample")
def grid_sample(
    x: Tensor, grid: Tensor, *, align_corners: int = 0, mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:  # fmt: skip
    kind = {"linear": "bilinear", "bilinear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    return F.grid_sample(x, grid, kind, padding_mode, bool(align_corners))


@operator("AffineGrid")
def affine_grid(theta: Tensor, size: Host, *, align_corners: int = 0) -> Tensor:
    return F.affine_grid(theta, numbers(size), bool(align_corners))


@operator("Col2Im")
def col2im(
    x: Tensor, image: Host, block: Host, *, dilations: list[int] | None = None,
    pads: list[int] | None = None, strides: list[int] | None = None,
) -> Tensor:  # fmt: skip
    """Blocks put back where they came from, sums where they overlap."""
    sizes, kernel = numbers(image), numbers(block)
    count = len(sizes)
    dilations, strides = dilations or [1] * count, strides or [1] * count
    pads = pads or [0] * (2 * count)
    full = [n + pads[i] + pads[i + count] for i, n in enumerate(sizes)]
    spots: Any = 0
    for i in range(count):
        windows = (full[i] - (kernel[i] - 1) * dilations[i] - 1) // strides[i] + 1
        check_host(kernel[i], windows)
        place = np.arange(kernel[i])[:, None] * dilations[i] + np.arange(windows) * strides[i]
        shape = [1] * (2 * count)
        shape[i], shape[count + i] = place.shape
        spots = spots * full[i] + place.reshape(shape)
    n, width, _ = x.shape
    channels = width // prod(kernel)
    flat = x.reshape(n, channels, -1)
    index = svod.Tensor(spots.reshape(1, 1, -1)).expand(n, channels, spots.size)
    found = svod.zeros((n, channels, prod(full)), dtype=x.dtype).scatter_add(2, index, flat)
    found = found.reshape(n, channels, *full)
    cut = tuple([slice(pads[i], pads[i] + sizes[i]) for i in range(count)])
    return found[(slice(None), slice(None), *cut)]


@operator("RoiAlign")
def roi_align(
    x: Tensor, rois: Tensor, batch: Tensor, *, coordinate_transformation_mode: str = "",
    mode: str = "avg", output_height: int = 1, output_width: int = 1, sampling_ratio: int = 0,
    spatial_scale: float = 1.0, node: NodeView,
) -> Tensor:  # fmt: skip
    """Means or maxima of samples in a grid of bins over each region."""
    default = "half_pixel" if node.version >= 16 else "output_half_pixel"
    is_half = (coordinate_transformation_mode or default) == "half_pixel"
    height, width = x.shape[2:]
    boxes = rois * spatial_scale - (0.5 if is_half else 0.0)
    size = boxes[:, 2:] - boxes[:, :2]
    size = size if is_half else size.clamp(min=1.0)
    if sampling_ratio <= 0:
        known = node.host(node.inputs[1])
        real = (known[:, 2:] - known[:, :2]) * spatial_scale
        real = real if is_half else np.maximum(real, 1.0)
        counts = np.ceil(real / np.array([output_width, output_height])).astype(int)
        if not (counts == counts[:1]).all():
            parts = [
                roi_align(
                    x, rois[i : i + 1], batch[i : i + 1], mode=mode, output_height=output_height,
                    coordinate_transformation_mode=coordinate_transformation_mode or default,
                    output_width=output_width, spatial_scale=spatial_scale,
                    node=_One(node, known[i : i + 1]),  # type: ignore[arg-type]
                )
                for i in range(rois.shape[0])
            ]  # fmt: skip
            return svod.concat(parts, axis=0)
        across, down = (int(c) for c in np.maximum(counts[0], 1))
    else:
        across = down = sampling_ratio

    def lines(start: Tensor, extent: Tensor, bins: int, samples: int) -> Tensor:
        check_host(bins, samples)
        steps = (np.arange(bins * samples) + 0.5) / samples
        return start + (extent / bins) * svod.Tensor(steps.astype(np.float32)).reshape(1, -1)

    y = lines(boxes[:, 1:2], size[:, 1:2], output_height, down)
    z = lines(boxes[:, 0:1], size[:, 0:1], output_width, across)
    image = x[batch.cast(dt.int64)].reshape(rois.shape[0], x.shape[1], height * width)
    parts = _corners(image, y, z, height, width)
    shape = (rois.shape[0], x.shape[1], output_height, down, output_width, across)
    if mode == "max":
        total = svod.maximum(svod.maximum(parts[0], parts[1]), svod.maximum(parts[2], parts[3]))
        return total.reshape(*shape).amax((3, 5))
    return sum(parts[1:], parts[0]).reshape(*shape).mean((3, 5))


class _One:
    """A node as it is for one region."""

    def __init__(self, node: NodeView, rois: Array) -> None:
        self.version, self.inputs, self.rois = node.version, [None, None], rois

    def host(self, value: Any) -> Array:
        return self.rois


def _corners(image: Tensor, y: Tensor, z: Tensor, height: int, width: int) -> list[Tensor]:
    """The four weighted neighbours of every sample of a grid."""
    rows, columns = y.shape[1], z.shape[1]
    inside = ((y > -1) & (y < height)).unsqueeze(2) & ((z > -1) & (z < width)).unsqueeze(1)
    y, z = y.clamp(0, height - 1), z.clamp(0, width - 1)
    found = []
    for row, wy in ((y.floor(), 1 - (y - y.floor())), (y.floor() + 1, y - y.floor())):
        for column, wz in ((z.floor(), 1 - (z - z.floor())), (z.floor() + 1, z - z.floor())):
            place = row.clamp(0, height - 1).unsqueeze(2) * width
            place = (place + column.clamp(0, width - 1).unsqueeze(1)).cast(dt.int64)
            n, channels = image.shape[:2]
            flat = place.reshape(n, 1, rows * columns).expand(n, channels, rows * columns)
            weight = wy.unsqueeze(2) * wz.unsqueeze(1) * inside
            found.append(image.gather(2, flat) * weight.reshape(n, 1, rows * columns))
    return found
