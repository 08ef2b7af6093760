"""Convolution over 1 to 3 spatial axes and its transpose: the methods, with checked arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from svod.base.errors import ShapeError
from svod.ir import build as B
from svod.ir.capabilities import capabilities_of
from svod.tensor.core.tensor_core import Core, default_device, integer, nodes_of, numbers, wrap
from svod.tensor.layers.convolution_graph import Shape, convolution, transposed

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

Sizes = int | Sequence[int]


def _padding(
    padding: Any, kernel: tuple[int, ...], dilation: tuple[int, ...], stride: tuple[int, ...]
) -> list[tuple[int, int]]:
    if padding == "valid":
        return [(0, 0)] * len(kernel)
    if padding == "same":
        if any(s != 1 for s in stride):
            raise ShapeError(f"padding 'same' needs stride 1, not {stride}")
        totals = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
        return [(t // 2, t - t // 2) for t in totals]
    if isinstance(padding, str):
        raise ShapeError(f"padding is numbers, 'same' or 'valid', not {padding!r}")
    return [(p, p) for p in numbers(padding, len(kernel), "padding")]


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    count: int | None = None,
) -> Tensor:
    """The convolution of (batch, channels, *space) with (outputs, channels / groups, *window)."""
    (node, kernel_node), device = nodes_of([x, weight])
    space = len(kernel_node.shape) - 2
    if count is not None and space != count:
        raise ShapeError(f"conv{count}d needs a weight of {count + 2} axes, not {weight.shape}")
    if space < 1 or len(node.shape) not in (space + 1, space + 2):
        raise ShapeError(f"convolution of {x.shape} with a weight of shape {weight.shape}")
    is_single = len(node.shape) == space + 1
    if is_single:
        node = B.reshape(node, (1, *node.shape))
    outputs, depth, *window = kernel_node.shape
    kernel = tuple(window)
    channels = node.shape[1]
    groups = integer(groups, "groups")
    if groups < 1 or channels != depth * groups or outputs % groups:
        raise ShapeError(
            f"convolution of {x.shape} with {weight.shape} in {groups} groups: "
            f"{channels} channels, {depth} per group"
        )
    strides, dilations = numbers(stride, space, "stride"), numbers(dilation, space, "dilation")
    if min(strides) < 1 or min(dilations) < 1:
        raise ShapeError(f"stride {strides} and dilation {dilations} must be at least 1")
    pads = _padding(padding, kernel, dilations, strides)
    if min(min(p) for p in pads) < 0:
        raise ShapeError(f"padding must be 0 or more, not {pads}")
    shape = Shape(tuple(pads), strides, dilations, groups, _joins_phases(device))
    found = convolution(node, kernel_node, shape)
    result = wrap(found, device)
    if bias is not None:
        result = result + bias.reshape([1, -1, *[1] * space])
    return result.squeeze(0) if is_single else result


def _joins_phases(device: str | None) -> bool:
    """Whether one kernel that multiplies zeros too is faster than some that do not."""
    return capabilities_of(device or default_device()).joins_phases


def convolve_transposed(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    output_padding: Any,
    groups: int,
    dilation: Any,
    count: int,
) -> Tensor:
    """The transpose of a convolution by a weight (channels of x, outputs / groups, *window)."""
    (node, kernel_node), device = nodes_of([x, weight])
    space = len(kernel_node.shape) - 2
    if space != count or len(node.shape) not in (space + 1, space + 2):
        raise ShapeError(f"conv_transpose{count}d of {x.shape} with a weight of {weight.shape}")
    is_single = len(node.shape) == space + 1
    if is_single:
        node = B.reshape(node, (1, *node.shape))
    inputs, _, *kernel = kernel_node.shape
    groups = integer(groups, "groups")
    if groups < 1 or inputs % groups or node.shape[1] != inputs:
        raise ShapeError(f"conv_transpose: {node.shape[1]} channels, weight {weight.shape}")
    strides, pads = numbers(stride, space, "stride"), numbers(padding, space, "padding")
    extra = numbers(output_padding, space, "output_padding")
    dilations = numbers(dilation, space, "dilation")
    if min(strides) < 1 or min(dilations) < 1:
        raise ShapeError(f"stride {strides} and dilation {dilations} must be at least 1")
    if min(kernel) < 1:
        raise ShapeError(f"conv_transpose with a window of no elements: {weight.shape}")
    if min(*pads, *extra) < 0:
        raise ShapeError(f"padding {pads} and output_padding {extra} must be 0 or more")
    each = zip(node.shape[2:], kernel, strides, dilations, pads, extra, strict=True)
    sizes = tuple([(n - 1) * s + d * (k - 1) + 1 - 2 * p + e for n, k, s, d, p, e in each])
    if min(sizes) < 1:
        raise ShapeError(f"conv_transpose of {x.shape} with {weight.shape} has no size: {sizes}")
    borders = tuple([(p, p) for p in pads])
    shape = Shape(borders, strides, dilations, groups, _joins_phases(device))
    result = wrap(transposed(node, kernel_node, shape, sizes), device)
    if bias is not None:
        result = result + bias.reshape([1, -1, *[1] * space])
    return result.squeeze(0) if is_single else result


class Convolution(Core):
    """conv1d-3d and transposed convolution."""

    __slots__ = ()

    def conv1d(
        self: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> Tensor:
        """Convolution over one spatial axis: (N, C, L) with (O, C / groups, k)."""
        return convolve(self, weight, bias, stride, padding, dilation, groups, 1)

    def conv2d(
        self: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> Tensor:
        """Convolution over two spatial axes: (N, C, H, W) with (O, C / groups, kh, kw)."""
        return convolve(self, weight, bias, stride, padding, dilation, groups, 2)

    def conv3d(
        self: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes | str = 0,
        dilation: Sizes = 1,
        groups: int = 1,
    ) -> Tensor:
        """Convolution over three spatial axes."""
        return convolve(self, weight, bias, stride, padding, dilation, groups, 3)

    def conv_transpose1d(
        self: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
    ) -> Tensor:
        """Transposed convolution over one spatial axis."""
        return convolve_transposed(
            self, weight, bias, stride, padding, output_padding, groups, dilation, 1
        )

    def conv_transpose2d(
        self: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
    ) -> Tensor:
        """Transposed convolution over two spatial axes: weight (C, O / groups, kh, kw)."""
        return convolve_transposed(
            self, weight, bias, stride, padding, output_padding, groups, dilation, 2
        )

    def conv_transpose3d(
        self: Tensor,
        weight: Tensor,
        bias: Tensor | None = None,
        stride: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
        groups: int = 1,
        dilation: Sizes = 1,
    ) -> Tensor:
        """Transposed convolution over three spatial axes."""
        return convolve_transposed(
            self, weight, bias, stride, padding, output_padding, groups, dilation, 3
        )
