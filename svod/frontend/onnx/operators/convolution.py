"""Convolutions and their transposes."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

import svod
from svod.base.errors import UnsupportedError, VariableError
from svod.dtype import types as dt
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.operators import integer
from svod.frontend.onnx.operators.linear import _shifted
from svod.frontend.onnx.registry import Tensor, Value, operator
from svod.ir.node import UOp


def borders(
    sizes: Any, kernel: list[int], strides: list[int], dilations: list[int],
    pads: list[int] | None, auto_pad: str,
) -> list[tuple[Any, Any]]:  # fmt: skip
    """What is added before and after each spatial axis."""
    count = len(kernel)
    if auto_pad in ("NOTSET", ""):
        pads = pads or [0] * (2 * count)
        return list(zip(pads[:count], pads[count:], strict=True))
    if auto_pad == "VALID":
        return [(0, 0)] * count
    found = []
    for n, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        if isinstance(n, UOp) and s != 1:
            raise VariableError("auto_pad SAME over a run-time size needs a stride of 1")
        total = (k - 1) * d if s == 1 else max((-(-n // s) - 1) * s + (k - 1) * d + 1 - n, 0)
        less = total // 2
        found.append((less, total - less) if auto_pad == "SAME_UPPER" else (total - less, less))
    return found


def padded(x: Tensor, amounts: list[tuple[Any, Any]], value: Any = None) -> Tensor:
    """Borders around the last axes."""
    if not any(a or b for a, b in amounts):
        return x
    flat = [n for pair in reversed(amounts) for n in pair]
    return x.pad(flat) if value is None else x.pad(flat, value=value)


@operator("Conv")
def conv_node(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, auto_pad: str = "NOTSET",
    dilations: list[int] | None = None, group: int = 1, kernel_shape: Any = None,
    pads: list[int] | None = None, strides: list[int] | None = None, node: NodeView,
) -> Tensor:  # fmt: skip
    options: dict[str, Any] = {
        "auto_pad": auto_pad, "dilations": dilations, "group": group, "pads": pads,
        "strides": strides,
    }  # fmt: skip
    made = integer.operands(node, x, weight, prod(weight.shape[1:]))
    if made is None or made[1].axis not in (None, 0):
        return conv(x, weight, bias, **options)
    first, second = made
    total = integer_conv(first.whole, first.zero, second.whole, second.zero, node, **options)
    scale = first.scale.reshape(()) * second.scale.reshape(-1, *[1] * (x.ndim - 2))
    found = total.cast(dt.float32) * scale
    return found if bias is None else found + bias.reshape(-1, *[1] * (x.ndim - 2))


def integer_conv(
    x: Tensor, x_zero: Value, weight: Tensor, w_zero: Value, node: NodeView, *, auto_pad: str,
    dilations: list[int] | None, group: int, pads: list[int] | None, strides: list[int] | None,
) -> Tensor:  # fmt: skip
    """A convolution of whole numbers less their zero points, in int32.

    Bytes are multiplied as they are where the weights have no zero point: the border is filled
    with that of the input, which the sums of the weights take off again.
    """
    count = x.ndim - 2
    is_known = x_zero is None or (isinstance(x_zero, np.ndarray) and x_zero.size == 1)
    is_bytes = x.dtype in integer.BYTES and weight.dtype in integer.BYTES
    if not is_known or not is_bytes or not integer.is_zero(w_zero):
        points = [None if z is None else node.tensor(z) for z in (x_zero, w_zero)]
        return conv(
            _shifted(x, points[0]), _shifted(weight, points[1], 0), auto_pad=auto_pad,
            dilations=dilations, group=group, pads=pads, strides=strides,
        )  # fmt: skip
    zero = 0 if x_zero is None else int(x_zero.reshape(-1)[0])
    edges = borders(
        x.shape[2:], list(weight.shape[2:]), strides or [1] * count, dilations or [1] * count,
        pads, auto_pad,
    )  # fmt: skip
    wide = weight.cast(dt.int32)
    total = conv(
        padded(x, edges, zero).cast(dt.int32), wide, dilations=dilations, group=group,
        strides=strides,
    )  # fmt: skip
    if not zero:
        return total
    sums = wide.sum(tuple(range(1, weight.ndim)), dtype=dt.int32)
    return total - zero * sums.reshape(-1, *[1] * count)


def conv(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, auto_pad: str = "NOTSET",
    dilations: list[int] | None = None, group: int = 1, kernel_shape: Any = None,
    pads: list[int] | None = None, strides: list[int] | None = None,
) -> Tensor:  # fmt: skip
    count = x.ndim - 2
    if count not in (1, 2, 3):
        raise UnsupportedError(f"a convolution over {count} axes is not supported")
    kernel = list(weight.shape[2:])
    strides, dilations = strides or [1] * count, dilations or [1] * count
    edges = borders(x.shape[2:], kernel, strides, dilations, pads, auto_pad)
    is_even = all(a == b for a, b in edges)
    padding = [a for a, _ in edges] if is_even else [0] * count
    x = x if is_even else padded(x, edges)
    method = getattr(x, f"conv{count}d")
    found: Tensor = method(weight, bias, strides, padding, dilations, group)
    return found


@operator("ConvTranspose")
def conv_transpose(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, auto_pad: str = "NOTSET",
    dilations: list[int] | None = None, group: int = 1, kernel_shape: Any = None,
    output_padding: list[int] | None = None, output_shape: list[int] | None = None,
    pads: list[int] | None = None, strides: list[int] | None = None,
) -> Tensor:  # fmt: skip
    count = x.ndim - 2
    kernel = list(weight.shape[2:])
    strides, dilations = strides or [1] * count, dilations or [1] * count
    extra = output_padding or [0] * count
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    full = [(n - 1) * s + k for n, s, k in zip(x.shape[2:], strides, spans, strict=True)]
    if output_shape is not None or auto_pad.startswith("SAME"):
        shape = (output_shape or [n * s for n, s in zip(x.shape[2:], strides, strict=True)])[
            -count:
        ]
        edges = []
        for length, more, wanted in zip(full, extra, shape, strict=True):
            total = length + more - wanted
            half = total // 2
            edges.append((total - half, half) if auto_pad != "SAME_UPPER" else (half, total - half))
    else:
        edges = borders(x.shape[2:], kernel, strides, dilations, pads, auto_pad)
    method = getattr(x, f"conv_transpose{count}d")
    found: Tensor = method(weight, None, strides, 0, 0, group, dilations)
    amounts = [(-a, -b + e) for (a, b), e in zip(edges, extra, strict=True)]
    for axis, (before, after) in enumerate(amounts, 2):
        lead = (slice(None),) * axis
        stop = found.shape[axis] + min(after, 0)
        found = found[(*lead, slice(max(-before, 0), stop))]
    found = padded(found, [(max(a, 0), max(b, 0)) for a, b in amounts])
    if bias is not None:
        found = found + bias.reshape(1, -1, *[1] * count)
    return found


@operator("ConvInteger")
def conv_of_integers(
    x: Tensor, weight: Tensor, x_zero: Value = None, w_zero: Value = None, *,
    auto_pad: str = "NOTSET", dilations: list[int] | None = None, group: int = 1,
    kernel_shape: Any = None, pads: list[int] | None = None, strides: list[int] | None = None,
    node: NodeView,
) -> Tensor:  # fmt: skip
    return integer_conv(
        x, x_zero, weight, w_zero, node, auto_pad=auto_pad, dilations=dilations, group=group,
        pads=pads, strides=strides,
    )  # fmt: skip


@operator("CausalConvWithState")
def causal_conv(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, past: Tensor | None = None, *,
    activation: str = "none",
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """A depthwise convolution over time that starts from the last inputs of the call before."""
    keep = weight.shape[-1] - 1
    if past is None:
        past = svod.zeros((*x.shape[:-1], keep), dtype=x.dtype)
    whole = svod.concat([past, x], axis=-1)
    found = whole.conv1d(weight, bias, groups=x.shape[1])
    if activation in ("silu", "swish"):
        found = found * found.sigmoid()
    elif activation != "none":
        raise UnsupportedError(f"activation {activation!r} is not supported")
    return found, whole[..., whole.shape[-1] - keep :]


@operator("DeformConv")
def deform_conv(
    x: Tensor, weight: Tensor, offset: Tensor, bias: Tensor | None = None,
    mask: Tensor | None = None, *, dilations: list[int] | None = None, group: int = 1,
    kernel_shape: Any = None, offset_group: int = 1, pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:  # fmt: skip
    """Each tap of the kernel reads the image at an offset from its place, between pixels."""
    n, channels, height, width = x.shape
    outs, _, kh, kw = weight.shape
    dh, dw = dilations or [1, 1]
    sh, sw = strides or [1, 1]
    top, left = (pads or [0] * 4)[:2]
    oh, ow = offset.shape[2:]
    shifts = offset.reshape(n, offset_group, kh * kw, 2, oh, ow)
    tap = svod.arange(kh * kw, dtype=dt.int64)
    rows = svod.arange(oh, dtype=dt.float32).reshape(1, oh, 1) * sh - top
    columns = svod.arange(ow, dtype=dt.float32).reshape(1, 1, ow) * sw - left
    y = rows + ((tap // kw) * dh).reshape(-1, 1, 1) + shifts[:, :, :, 0]
    z = columns + ((tap % kw) * dw).reshape(-1, 1, 1) + shifts[:, :, :, 1]
    image = x.reshape(n, offset_group, channels // offset_group, height * width)
    taken: Any = None
    for dy in (0, 1):
        for dx in (0, 1):
            row, column = y.floor() + dy, z.floor() + dx
            share = (1 - (y - row).abs()) * (1 - (z - column).abs())
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            place = row.clamp(0, height - 1) * width + column.clamp(0, width - 1)
            place = place.cast(dt.int64).reshape(n, offset_group, 1, kh * kw * oh * ow)
            place = place.expand(n, offset_group, channels // offset_group, kh * kw * oh * ow)
            part = image.gather(3, place) * (share * inside).reshape(n, offset_group, 1, -1)
            taken = part if taken is None else taken + part
    taken = taken.reshape(n, offset_group, channels // offset_group, kh * kw, oh * ow)
    if mask is not None:
        taken = taken * mask.reshape(n, offset_group, 1, kh * kw, oh * ow)
    columns_ = taken.reshape(n, group, channels // group * kh * kw, oh * ow)
    found = weight.reshape(1, group, outs // group, -1) @ columns_
    found = found.reshape(n, outs, oh, ow)
    return found if bias is None else found + bias.reshape(1, -1, 1, 1)
