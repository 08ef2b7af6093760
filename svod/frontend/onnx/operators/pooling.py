"""Pooling: windows of spatial axes, folded."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

import svod
from svod.base.errors import VariableError
from svod.dtype import types as dt
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.limits import check_host
from svod.frontend.onnx.operators.convolution import borders, padded
from svod.frontend.onnx.operators.shapes import numbers
from svod.frontend.onnx.registry import Host, Tensor, operator
from svod.ir.node import UOp


def _geometry(
    x: Tensor, kernel: list[int], strides: list[int] | None, dilations: list[int] | None,
    pads: list[int] | None, auto_pad: str, ceil_mode: int,
) -> tuple[list[int], list[int], list[tuple[int, int]], list[int]]:  # fmt: skip
    """Strides, dilations, borders, and what a rounded-up count of windows adds at the end."""
    count = len(kernel)
    strides, dilations = strides or [1] * count, dilations or [1] * count
    edges = borders(x.shape[2:], kernel, strides, dilations, pads, auto_pad)
    extra = [0] * count
    if ceil_mode and auto_pad in ("NOTSET", ""):
        for i, (n, k, s, d, (a, b)) in enumerate(
            zip(x.shape[2:], kernel, strides, dilations, edges, strict=True)
        ):
            span = (k - 1) * d + 1
            windows = -(-(n + a + b - span) // s) + 1
            if (windows - 1) * s >= n + a:  # the last window must start inside
                windows -= 1
            missing = (windows - 1) * s + span - n - a - b
            extra[i] = missing if missing >= 0 else 0
    return strides, dilations, edges, extra


def _taps(x: Tensor, kernel: list[int], strides: list[int], dilations: list[int]) -> list[Tensor]:
    """The elements at each place of the kernel, for all windows."""
    taps = [x]
    for axis, (k, s, d) in enumerate(zip(kernel, strides, dilations, strict=True), 2):
        windows = (x.shape[axis] - (k - 1) * d - 1) // s + 1
        lead = (slice(None),) * axis
        taps = [
            t[(*lead, slice(i * d, i * d + (windows - 1) * s + 1, s))]
            for t in taps
            for i in range(k)
        ]
    return taps


def _least(x: Tensor) -> Any:
    return float("-inf") if x.dtype.is_float else dt.integer_limits(x.dtype)[0]


@operator("MaxPool")
def max_pool(
    x: Tensor, *, kernel_shape: list[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: list[int] | None = None, pads: list[int] | None = None, storage_order: int = 0,
    strides: list[int] | None = None, node: NodeView,
) -> Any:  # fmt: skip
    count = len(kernel_shape)
    strides, dilations, edges, extra = _geometry(
        x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    full = [(a, b + e) for (a, b), e in zip(edges, extra, strict=True)]
    whole = padded(x, full, _least(x))
    options = {"stride": strides, "dilation": dilations}
    method = getattr(whole, f"max_pool{count}d")
    if not node.wants(1):
        return method(kernel_shape, **options)
    found, places = method(kernel_shape, return_indices=True, **options)
    flat, rest = None, places.cast(dt.int64)
    sizes, lengths = list(whole.shape[2:]), list(x.shape[2:])
    steps = [prod(lengths[i + 1 :]) for i in range(count)]
    if storage_order:
        steps = [prod(lengths[:i]) for i in range(count)]
    for axis in reversed(range(count)):
        part = (rest % sizes[axis] - full[axis][0]) * steps[axis]
        flat = part if flat is None else flat + part
        rest = rest // sizes[axis]
    planes = svod.arange(x.shape[0] * x.shape[1], dtype=dt.int64) * prod(lengths)
    return found, flat + planes.reshape(x.shape[0], x.shape[1], *[1] * count)


@operator("AveragePool")
def average_pool(
    x: Tensor, *, kernel_shape: list[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    count_include_pad: int = 0, dilations: list[int] | None = None,
    pads: list[int] | None = None, strides: list[int] | None = None,
) -> Tensor:  # fmt: skip
    count = len(kernel_shape)
    strides, dilations, edges, extra = _geometry(
        x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    full = [(a, b + e) for (a, b), e in zip(edges, extra, strict=True)]
    whole = padded(x, full)
    total = prod(kernel_shape)
    if all(d == 1 for d in dilations):
        mean = getattr(whole, f"avg_pool{count}d")(kernel_shape, strides)
    else:
        taps = _taps(whole, kernel_shape, strides, dilations)
        mean = sum(taps[1:], taps[0]) / total
    if not any(map(any, full)):
        return mean
    shares: Any = 1.0
    for axis, (k, s, d, (a, b), e) in enumerate(
        zip(kernel_shape, strides, dilations, edges, extra, strict=True)
    ):
        if isinstance(x.shape[2 + axis], UOp):
            raise VariableError("an AveragePool with borders over a run-time size")
        check_host(x.shape[2 + axis] + abs(a) + abs(b) + abs(e))
        inside = np.ones(x.shape[2 + axis])
        inside = np.pad(inside, (a, b), constant_values=bool(count_include_pad))
        inside = np.pad(inside, (0, e))
        starts = np.arange((inside.size - (k - 1) * d - 1) // s + 1) * s
        check_host(starts.size, k)
        counted = inside[starts[:, None] + np.arange(k) * d].sum(1)
        shares = shares * counted.reshape(-1, *[1] * (count - 1 - axis))
    if (shares == total).all():
        return mean
    factor = svod.Tensor((total / shares).astype(np.float32)).cast(x.dtype)
    return mean * factor


@operator("LpPool")
def lp_pool(
    x: Tensor, *, kernel_shape: list[int], auto_pad: str = "NOTSET", ceil_mode: int = 0,
    dilations: list[int] | None = None, p: Any = 2, pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:  # fmt: skip
    strides, dilations, edges, extra = _geometry(
        x, kernel_shape, strides, dilations, pads, auto_pad, ceil_mode
    )
    whole = padded(x, [(a, b + e) for (a, b), e in zip(edges, extra, strict=True)])
    taps = _taps(whole.abs() ** p, kernel_shape, strides, dilations)
    return sum(taps[1:], taps[0]) ** (1 / p)


def _spatial(x: Tensor) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@operator("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return x.mean(_spatial(x), keepdim=True)


@operator("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return x.amax(_spatial(x), keepdim=True)


@operator("GlobalLpPool")
def global_lp_pool(x: Tensor, *, p: Any = 2) -> Tensor:
    return (x.abs() ** p).sum(_spatial(x), keepdim=True) ** (1 / p)


@operator("MaxUnpool")
def max_unpool(
    x: Tensor, places: Tensor, shape: Host | None = None, *, kernel_shape: list[int],
    pads: list[int] | None = None, strides: list[int] | None = None,
) -> Tensor:  # fmt: skip
    count = len(kernel_shape)
    strides, pads = strides or [1] * count, pads or [0] * (2 * count)
    spatial = [
        (n - 1) * s + k - a - b
        for n, s, k, a, b in zip(
            x.shape[2:], strides, kernel_shape, pads[:count], pads[count:], strict=True
        )
    ]
    natural = [*x.shape[:2], *spatial]
    wanted = numbers(shape) if shape is not None else natural
    places = places.reshape(-1)
    if wanted != natural:  # positions count in the smaller image
        spots, rest, step = None, places, 1
        for own, other in zip(reversed(natural), reversed(wanted), strict=True):
            part = (rest % own) * step
            spots = part if spots is None else spots + part
            rest, step = rest // own, step * other
        places = spots  # type: ignore[assignment]
    flat = svod.zeros(prod(wanted), dtype=x.dtype)
    return flat.scatter(0, places, x.reshape(-1)).reshape(*wanted)
