"""Convolution and pooling over 1 to 3 spatial axes.

``windows`` makes the sliding windows a set of new axes with movement ops alone; a convolution
is then a product with the weight under a sum, a pooling is a reduction of the window axes.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from svod.base.errors import ShapeError
from svod.ir import build as B
from svod.ir.node import UOp, is_symbolic
from svod.tensor.core import Core, integer, nodes_of, numbers, wrap
from svod.tensor.gradient import Mark, custom_rules, gradient, mark
from svod.tensor.linear import multiply_sum
from svod.tensor.pieces import tile

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

Sizes = int | Sequence[int]


def windows(
    x: UOp, kernel: tuple[int, ...], stride: tuple[int, ...], dilation: tuple[int, ...]
) -> UOp:
    """The last axes (i..) as (o.., k..): output positions and places in the window.

    Repeating an axis of size i and cutting it into rows of length i + d makes row r start d
    further than row r - 1: element (r, c) is x[r * d + c]. A stride keeps every s-th column.
    """
    count = len(kernel)
    lead, inner = x.shape[:-count], x.shape[-count:]
    outer = []
    for i, k, s, d in zip(inner, kernel, stride, dilation, strict=True):
        if i < d * (k - 1) + 1:
            raise ShapeError(f"a window of {d * (k - 1) + 1} does not fit an axis of {i}")
        outer.append(-(-(i - d * (k - 1)) // s))
    whole = [(0, n) for n in lead]
    if all(k == 1 and s == 1 for k, s in zip(kernel, stride, strict=True)):
        return B.reshape(x, (*lead, *outer, *kernel))
    if all(k <= s and d == 1 for k, s, d in zip(kernel, stride, dilation, strict=True)):
        cuts = list(zip(inner, outer, stride, strict=True))
        x = B.shrink(x, (*whole, *[(0, min(i, o * s)) for i, o, s in cuts]))
        pads = [(0, max(0, o * s - i)) for i, o, s in cuts]
        x = B.pad(x, (*[(0, 0)] * len(lead), *pads))
        x = B.reshape(x, (*lead, *[n for _, o, s in cuts for n in (o, s)]))
        first = [p for o, k in zip(outer, kernel, strict=True) for p in ((0, o), (0, k))]
        x = B.shrink(x, (*whole, *first))
        order = [*range(0, 2 * count, 2), *range(1, 2 * count, 2)]
    else:
        grown = []  # a longer row where the strided columns would run past its end
        for i, k, s, d, o in zip(inner, kernel, stride, dilation, outer, strict=True):
            grown.append(i * (1 + int(o * s > i - d * (k - 1))) + d)
        repeats = [-(-k * g // i) for k, g, i in zip(kernel, grown, inner, strict=True)]
        x = tile(x, (*[1] * len(lead), *repeats))
        x = B.shrink(x, (*whole, *[(0, k * g) for k, g in zip(kernel, grown, strict=True)]))
        x = B.reshape(x, (*lead, *[n for kg in zip(kernel, grown, strict=True) for n in kg]))
        sizes = list(zip(kernel, outer, stride, strict=True))
        x = B.shrink(x, (*whole, *[p for k, o, s in sizes for p in ((0, k), (0, o * s))]))
        x = B.reshape(x, (*lead, *[n for k, o, s in sizes for n in (k, o, s)]))
        x = B.shrink(x, (*whole, *[p for k, o, _ in sizes for p in ((0, k), (0, o), (0, 1))]))
        x = B.reshape(x, (*lead, *[n for k, o, _ in sizes for n in (k, o)]))
        order = [*range(1, 2 * count, 2), *range(0, 2 * count, 2)]
    base = len(lead)
    return B.permute(x, (*range(base), *[base + a for a in order]))


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
    found = _with_gradient(node, kernel_node, Shape(tuple(pads), strides, dilations, groups))
    result = wrap(found, device)
    if bias is not None:
        result = result + bias.reshape([1, -1, *[1] * space])
    return result.squeeze(0) if is_single else result


class Shape(NamedTuple):
    """How windows lie."""

    pads: tuple[tuple[int, int], ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int


def _product(x: UOp, weight: UOp, shape: Shape) -> UOp:
    """Windows of x times the weight, summed over channels and window."""
    outputs, depth, *kernel = weight.shape
    batch, groups, space = x.shape[0], shape.groups, len(kernel)
    padded = B.pad(x, ((0, 0), (0, 0), *shape.pads))
    cut = windows(padded, tuple(kernel), shape.strides, shape.dilations)
    outer = cut.shape[2 : 2 + space]
    per_group = outputs // groups
    # (batch, group, output, o.., channel, k..)
    cut = B.reshape(cut, (batch, groups, 1, depth, *outer, *kernel))
    order = (0, 1, 2, *range(4, 4 + space), 3, *range(4 + space, 4 + 2 * space))
    full = (batch, groups, per_group, *outer, depth, *kernel)
    left = B.expand(B.permute(cut, order), full)
    row = (1, groups, per_group, *[1] * space, depth, *kernel)
    right = B.expand(B.reshape(weight, row), full)
    found = multiply_sum(left, right, tuple(range(3 + space, len(full))))
    return B.reshape(found, (batch, outputs, *outer))


# -- the gradient of the input is a convolution too -----------------------------------------------

_NAME = "convolution"  # of its gradient


def _has_own_gradient(x: UOp, weight: UOp, shape: Shape) -> bool:
    """Derived step by step it would be windows of products, added up."""
    if is_symbolic(x.shape) or is_symbolic(weight.shape) or 0 in (*x.shape, *weight.shape):
        return False
    if max(shape.strides) > 1 and max(shape.dilations) > 1:
        return False
    return x.dtype.kind == weight.dtype.kind == "f" and prod(weight.shape[2:]) > 1


def _with_gradient(x: UOp, weight: UOp, shape: Shape) -> UOp:
    if not _has_own_gradient(x, weight, shape):
        return _product(x, weight, shape)
    inputs = [mark(n, Mark(_NAME, "input", i)) for i, n in enumerate((x, weight))]
    return mark(_product(inputs[0], inputs[1], shape), Mark(_NAME, "output", 0, shape))


def _gradients(output: UOp, grad: UOp, inputs: Sequence[UOp]) -> list[UOp | None]:
    x, weight = (n.src[0] for n in inputs)
    shape = Shape(*output.arg.options)
    target = mark(weight, Mark(_NAME, "argument"))
    (by_weight,) = gradient(_product(x, target, shape), grad, [target])
    if max(shape.strides) == 1:
        spans = [d * (k - 1) for k, d in zip(weight.shape[2:], shape.dilations, strict=True)]
        borders = [(n - a, n - b) for n, (a, b) in zip(spans, shape.pads, strict=True)]
        by_x = _into(grad, weight, shape, borders)
    else:
        by_x = _by_phases(x, weight, grad, shape)
    return [B.cast(by_x, x.dtype), by_weight]


def _into(grad: UOp, weight: UOp, shape: Shape, borders: list[tuple[int, int]]) -> UOp:
    """Every output goes where its window was: a product with the windows of outputs that an input
    went into, of outputs with borders, or without some of them."""
    whole = [(0, n) for n in grad.shape[:2]]
    cuts = [(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(grad.shape[2:], borders, strict=True)]
    pads = tuple([(max(0, a), max(0, b)) for a, b in borders])
    ones = tuple([1] * len(pads))
    turned = _turned(weight, shape.groups)
    return _with_gradient(
        B.shrink(grad, (*whole, *cuts)), turned, shape._replace(pads=pads, strides=ones)
    )


def _by_phases(x: UOp, weight: UOp, grad: UOp, shape: Shape) -> UOp:
    """The same with strides. Inputs a stride apart meet the same taps of a window: each such phase
    is a convolution with these taps, and the phases lie between each other."""
    strides, space = shape.strides, len(shape.strides)
    padded = [n + a + b for n, (a, b) in zip(x.shape[2:], shape.pads, strict=True)]
    counts = [-(-n // s) for n, s in zip(padded, strides, strict=True)]
    lead = x.shape[:2]

    def phase(first: tuple[int, ...]) -> UOp:
        taps = [-(-(k - r) // s) for k, r, s in zip(weight.shape[2:], first, strides, strict=True)]
        if min(taps) < 1:
            return B.full((*lead, *counts), 0, grad.dtype)
        part = weight
        for axis, (r, s, n) in enumerate(zip(first, strides, taps, strict=True), 2):
            part = _every(part, axis, r, s, n)
        sizes = zip(taps, counts, grad.shape[2:], strict=True)
        return _into(grad, part, shape, [(n - 1, count - o) for n, count, o in sizes])

    def joined(first: tuple[int, ...]) -> UOp:
        """All phases that begin with these places, side by side: (n, c, o.., stride..)."""
        axis = len(first)
        if axis == space:
            return B.reshape(phase(first), (*lead, *counts, *[1] * space))
        return B.cat([joined((*first, r)) for r in range(strides[axis])], 2 + space + axis)

    order = [0, 1, *[a for i in range(space) for a in (2 + i, 2 + space + i)]]
    found = B.permute(joined(()), tuple(order))
    full = [n * s for n, s in zip(counts, strides, strict=True)]
    found = B.reshape(found, (*lead, *full))
    inner = [(a, a + n) for (a, _), n in zip(shape.pads, x.shape[2:], strict=True)]
    return B.shrink(found, (*[(0, n) for n in lead], *inner))


def _every(x: UOp, axis: int, first: int, step: int, count: int) -> UOp:
    """``count`` places of an axis, a step apart."""
    shape = x.shape
    pads = [(0, 0)] * len(shape)
    pads[axis] = (0, max(0, first + count * step - shape[axis]))
    cuts = [(0, n) for n in shape]
    cuts[axis] = (first, first + count * step)
    wide = (*shape[:axis], count, step, *shape[axis + 1 :])
    parts = B.reshape(B.shrink(B.pad(x, tuple(pads)), tuple(cuts)), wide)
    taken = [(0, n) for n in wide]
    taken[axis + 1] = (0, 1)
    return B.reshape(B.shrink(parts, tuple(taken)), (*shape[:axis], count, *shape[axis + 1 :]))


custom_rules[_NAME] = _gradients


def _turned(weight: UOp, groups: int) -> UOp:
    """A weight whose inputs and outputs change places, per group, and whose windows are flipped."""
    outputs, depth, *kernel = weight.shape
    rest = range(3, 3 + len(kernel))
    found = B.reshape(weight, (groups, outputs // groups, depth, *kernel))
    found = B.reshape(
        B.permute(found, (0, 2, 1, *rest)), (groups * depth, outputs // groups, *kernel)
    )
    return B.flip(found, tuple(range(2, 2 + len(kernel))))


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
    """The transpose of a convolution: x spread by the stride, then convolved with the flip."""
    space = weight.ndim - 2
    if space != count or x.ndim not in (space + 1, space + 2):
        raise ShapeError(f"conv_transpose{count}d of {x.shape} with a weight of {weight.shape}")
    if x.ndim == space + 1:
        single = convolve_transposed(
            x.unsqueeze(0), weight, bias, stride, padding, output_padding, groups, dilation, count
        )
        return single.squeeze(0)
    inputs, _, *kernel = weight.shape
    if groups < 1 or inputs % groups or x.shape[1] != inputs:
        raise ShapeError(f"conv_transpose: {x.shape[1]} channels, weight {weight.shape}")
    strides, pads = numbers(stride, space, "stride"), numbers(padding, space, "padding")
    extra = numbers(output_padding, space, "output_padding")
    dilations = numbers(dilation, space, "dilation")
    turned = wrap(_turned(weight.uop, groups), weight._device)
    spread = _spread(x.uop, strides)
    sizes = zip(kernel, pads, extra, dilations, strict=True)
    borders = [(d * (k - 1) - p, d * (k - 1) - p + e) for k, p, e, d in sizes]
    padded = wrap(spread, x._device).pad([(0, 0), (0, 0), *borders])
    return convolve(padded, turned, bias, 1, 0, dilations, groups)


def _spread(x: UOp, strides: tuple[int, ...]) -> UOp:
    """stride - 1 zeros between the elements of the last axes."""
    space = len(strides)
    lead, inner = x.shape[:-space], x.shape[-space:]
    split = [m for n in inner for m in (n, 1)]
    pads = [p for s in strides for p in ((0, 0), (0, s - 1))]
    x = B.pad(B.reshape(x, (*lead, *split)), (*[(0, 0)] * len(lead), *pads))
    x = B.reshape(x, (*lead, *[n * s for n, s in zip(inner, strides, strict=True)]))
    cuts = [(0, (n - 1) * s + 1) for n, s in zip(inner, strides, strict=True)]
    return B.shrink(x, (*[(0, n) for n in lead], *cuts))


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
