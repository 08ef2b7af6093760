"""Convolution modules over one to three axes, and their transposes."""

from __future__ import annotations

from math import prod, sqrt
from typing import Any

from svod.base.errors import ShapeError
from svod.nn.layers import draw_again, parameter
from svod.nn.module import Module
from svod.tensor.core.tensor_core import numbers
from svod.tensor.tensor import Tensor


class _Convolution(Module):
    count = 0
    is_transposed = False

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if groups < 1 or in_channels % groups or out_channels % groups:
            raise ShapeError(f"{in_channels} and {out_channels} channels in {groups} groups")
        if padding_mode not in ("zeros", "reflect", "replicate", "circular"):
            raise ShapeError(f"padding_mode {padding_mode!r} is unknown")
        if isinstance(padding, str):
            if padding not in ("same", "valid"):
                raise ShapeError(f"padding {padding!r} is not a size, 'same' or 'valid'")
            strides = numbers(stride, self.count, "stride")
            if padding == "same" and max(strides) > 1:
                raise ShapeError(f"padding 'same' needs stride 1, not {strides}")
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = numbers(kernel_size, self.count, "kernel_size")
        self.stride, self.padding, self.dilation = stride, padding, dilation
        self.output_padding, self.groups, self.padding_mode = output_padding, groups, padding_mode
        first, second = (
            (in_channels, out_channels) if self.is_transposed else (out_channels, in_channels)
        )
        inputs = second // groups * prod(self.kernel_size)
        bound = 1 / sqrt(inputs) if inputs > 0 else 0.0
        made: dict[str, Any] = {"bound": bound, "dtype": dtype, "device": device}
        self.weight = parameter(first, second // groups, *self.kernel_size, **made)
        self.register_parameter("bias", parameter(out_channels, **made) if bias else None)

    def reset_parameters(self) -> None:
        """New starting values."""
        draw_again(self, prod(self.weight.shape[1:]))

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, "
            f"stride={self.stride}, padding={self.padding}"
        )


class _Forward(_Convolution):
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, 0, dilation, groups, bias,
            padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            if isinstance(padding, str):
                raise ShapeError(f"padding {padding!r} goes with padding_mode 'zeros' only")
            sizes = numbers(padding, self.count, "padding")
            borders = [n for p in reversed(sizes) for n in (p, p)]  # last axis first, as in torch
            x, padding = x.pad(borders, mode=self.padding_mode), 0
        convolve = getattr(x, f"conv{self.count}d")
        found: Tensor = convolve(
            self.weight, self.bias, self.stride, padding, self.dilation, self.groups
        )
        return found


class _Transposed(_Convolution):
    is_transposed = True

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        groups: int = 1,
        bias: bool = True,
        dilation: Any = 1,
        padding_mode: str = "zeros",
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        if padding_mode != "zeros":
            raise ShapeError("a transposed convolution pads with zeros only")
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, output_padding, dilation,
            groups, bias, padding_mode, device, dtype,
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        convolve = getattr(x, f"conv_transpose{self.count}d")
        found: Tensor = convolve(
            self.weight, self.bias, self.stride, self.padding, self.output_padding, self.groups,
            self.dilation,
        )  # fmt: skip
        return found


class Conv1d(_Forward):
    """Convolution over (N, C, L)."""

    count = 1


class Conv2d(_Forward):
    """Convolution over (N, C, H, W)."""

    count = 2


class Conv3d(_Forward):
    """Convolution over (N, C, D, H, W)."""

    count = 3


class ConvTranspose1d(_Transposed):
    """Transposed convolution over (N, C, L)."""

    count = 1


class ConvTranspose2d(_Transposed):
    """Transposed convolution over (N, C, H, W)."""

    count = 2


class ConvTranspose3d(_Transposed):
    """Transposed convolution over (N, C, D, H, W)."""

    count = 3
