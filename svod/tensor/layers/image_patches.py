"""Image patches: unfold (im2col) and fold, pixel_shuffle, channel_shuffle."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from svod.base.errors import ShapeError
from svod.ir import build as B
from svod.tensor.core.tensor_core import AxisError, Core, integer, numbers, wrap
from svod.tensor.layers.convolution import Sizes
from svod.tensor.ops.sliding_windows import windows

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def unfold(
    input: Tensor,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """The patches of (batch, channels, height, width) as columns: (batch, patch, places)."""
    if input.ndim not in (3, 4):
        raise AxisError(f"unfold takes 3 or 4 axes, not shape {input.shape}")
    if input.ndim == 3:
        return unfold(input.unsqueeze(0), kernel_size, dilation, padding, stride).squeeze(0)
    kernel, dilations, pads, strides = _settings(kernel_size, dilation, padding, stride)
    padded = B.pad(input.uop, ((0, 0), (0, 0), *[(p, p) for p in pads]))
    cut = windows(padded, kernel, strides, dilations)  # (n, c, oh, ow, kh, kw)
    batch, channels = input.shape[:2]
    places = prod(cut.shape[2:4])
    moved = B.permute(cut, (0, 1, 4, 5, 2, 3))
    return wrap(B.reshape(moved, (batch, channels * prod(kernel), places)), input._device)


def fold(
    input: Tensor,
    output_size: Sizes,
    kernel_size: Sizes,
    dilation: Sizes = 1,
    padding: Sizes = 0,
    stride: Sizes = 1,
) -> Tensor:
    """Columns of patches added up at their places: the transpose of unfold."""
    if input.ndim not in (2, 3):
        raise ShapeError(f"fold takes 2 or 3 axes, not shape {input.shape}")
    if input.ndim == 2:
        given = input.unsqueeze(0)
        return fold(given, output_size, kernel_size, dilation, padding, stride).squeeze(0)
    kernel, dilations, pads, strides = _settings(kernel_size, dilation, padding, stride)
    size = numbers(output_size, 2, "output_size")
    batch, rows, places = input.shape
    grown = [n + 2 * p for n, p in zip(size, pads, strict=True)]
    settings = zip(grown, kernel, strides, dilations, strict=True)
    outer = [(n - d * (k - 1) - 1) // s + 1 for n, k, s, d in settings]
    if rows % prod(kernel) or places != prod(outer) or min(outer) < 1:
        raise ShapeError(
            f"fold of {input.shape} to {size} with kernel {kernel}: {rows} rows are whole patches "
            f"and {prod(outer)} places are needed"
        )
    patches = input.reshape(batch, -1, *kernel, *outer)
    total: Any = None
    for y in range(kernel[0]):
        for x in range(kernel[1]):
            part = patches[:, :, y, x]
            for axis, (place, n, s, d) in enumerate(
                zip((y, x), grown, strides, dilations, strict=True), 2
            ):
                part = _placed(part, axis, place * d, s, n)
            total = part if total is None else total + part
    cuts = [slice(p, p + n) for p, n in zip(pads, size, strict=True)]
    return total[:, :, cuts[0], cuts[1]]  # type: ignore[no-any-return]


def _placed(x: Tensor, axis: int, start: int, step: int, size: int) -> Tensor:
    """An axis spread by a step and put at a place of a longer one."""
    shape = x.shape
    count = shape[axis]
    wide = x.unsqueeze(axis + 1)
    pairs = [(0, 0)] * wide.ndim
    pairs[axis + 1] = (0, step - 1)
    spread = wide.pad(pairs).reshape(*shape[:axis], count * step, *shape[axis + 1 :])
    spread = spread.narrow(axis, 0, (count - 1) * step + 1)
    pairs = [(0, 0)] * x.ndim
    pairs[axis] = (start, size - start - spread.shape[axis])
    return spread.pad(pairs)


def _settings(
    kernel_size: Any, dilation: Any, padding: Any, stride: Any
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    kernel = numbers(kernel_size, 2, "kernel_size")
    dilations, pads = numbers(dilation, 2, "dilation"), numbers(padding, 2, "padding")
    strides = numbers(stride, 2, "stride")
    if min(*kernel, *dilations, *strides) < 1 or min(pads) < 0:
        raise ShapeError(
            f"patches: kernel {kernel}, dilation {dilations}, padding {pads}, stride {strides}"
        )
    return kernel, dilations, pads, strides


class Patches(Core):
    """pixel_shuffle, pixel_unshuffle, channel_shuffle."""

    __slots__ = ()

    def pixel_shuffle(self: Tensor, upscale_factor: int) -> Tensor:
        """Channels turned into pixels: (c r r, h, w) to (c, h r, w r)."""
        r = integer(upscale_factor, "upscale_factor")
        if self.ndim < 3 or r < 1 or self.shape[-3] % (r * r):
            raise ShapeError(f"pixel_shuffle by {r} of shape {self.shape}")
        *lead, c, h, w = self.shape
        n = len(lead)
        x = self.reshape(*lead, c // (r * r), r, r, h, w)
        order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
        return x.permute(order).reshape(*lead, c // (r * r), h * r, w * r)

    def pixel_unshuffle(self: Tensor, downscale_factor: int) -> Tensor:
        """Pixels turned into channels: (c, h r, w r) to (c r r, h, w)."""
        r = integer(downscale_factor, "downscale_factor")
        if self.ndim < 3 or r < 1 or self.shape[-1] % r or self.shape[-2] % r:
            raise ShapeError(f"pixel_unshuffle by {r} of shape {self.shape}")
        *lead, c, h, w = self.shape
        n = len(lead)
        x = self.reshape(*lead, c, h // r, r, w // r, r)
        order = (*range(n), n, n + 2, n + 4, n + 1, n + 3)
        return x.permute(order).reshape(*lead, c * r * r, h // r, w // r)

    def channel_shuffle(self: Tensor, groups: int) -> Tensor:
        """Channels (axis 1) of groups dealt out in turn."""
        count = integer(groups, "groups")
        if self.ndim < 3 or count < 1 or self.shape[1] % count:
            raise ShapeError(f"channel_shuffle of {self.shape} in {count} groups")
        split = self.reshape(self.shape[0], count, self.shape[1] // count, *self.shape[2:])
        return split.transpose(1, 2).reshape(self.shape)
