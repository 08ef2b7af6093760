"""Pooling modules."""

from __future__ import annotations

from typing import Any

from svod.nn import functional
from svod.nn.module import Module
from svod.tensor.tensor import Tensor


class _MaxPool(Module):
    count = 0

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        dilation: Any = 1,
        return_indices: bool = False,
        ceil_mode: bool = False,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.dilation, self.return_indices, self.ceil_mode = dilation, return_indices, ceil_mode

    def forward(self, x: Tensor) -> Any:
        return getattr(x, f"max_pool{self.count}d")(
            self.kernel_size, self.stride, self.padding, self.dilation, self.ceil_mode,
            self.return_indices,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AvgPool(Module):
    count = 0

    def __init__(
        self,
        kernel_size: Any,
        stride: Any = None,
        padding: Any = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> None:
        super().__init__()
        self.kernel_size, self.stride, self.padding = kernel_size, stride, padding
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, x: Tensor) -> Any:
        return getattr(x, f"avg_pool{self.count}d")(
            self.kernel_size, self.stride, self.padding, self.ceil_mode, self.count_include_pad,
            self.divisor_override,
        )  # fmt: skip

    def extra_repr(self) -> str:
        return f"kernel_size={self.kernel_size}, stride={self.stride}, padding={self.padding}"


class _AdaptivePool(Module):
    method = ""

    def __init__(self, output_size: Any) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, x: Tensor) -> Any:
        return getattr(functional, self.method)(x, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class _AdaptiveMaxPool(_AdaptivePool):
    def __init__(self, output_size: Any, return_indices: bool = False) -> None:
        super().__init__(output_size)
        self.return_indices = return_indices

    def forward(self, x: Tensor) -> Any:
        return getattr(functional, self.method)(x, self.output_size, self.return_indices)


class MaxPool1d(_MaxPool):
    """The largest element of windows of (N, C, L)."""

    count = 1


class MaxPool2d(_MaxPool):
    """The largest element of windows of (N, C, H, W)."""

    count = 2


class MaxPool3d(_MaxPool):
    """The largest element of windows of (N, C, D, H, W)."""

    count = 3


class AvgPool1d(_AvgPool):
    """The average of windows of (N, C, L)."""

    count = 1


class AvgPool2d(_AvgPool):
    """The average of windows of (N, C, H, W)."""

    count = 2


class AvgPool3d(_AvgPool):
    """The average of windows of (N, C, D, H, W)."""

    count = 3


class AdaptiveAvgPool1d(_AdaptivePool):
    """The average of as many windows as asked for."""

    method = "adaptive_avg_pool1d"


class AdaptiveAvgPool2d(_AdaptivePool):
    """The average of as many windows as asked for."""

    method = "adaptive_avg_pool2d"


class AdaptiveAvgPool3d(_AdaptivePool):
    """The average of as many windows as asked for."""

    method = "adaptive_avg_pool3d"


class AdaptiveMaxPool1d(_AdaptiveMaxPool):
    """The largest element of as many windows as asked for."""

    method = "adaptive_max_pool1d"


class AdaptiveMaxPool2d(_AdaptiveMaxPool):
    """The largest element of as many windows as asked for."""

    method = "adaptive_max_pool2d"


class AdaptiveMaxPool3d(_AdaptiveMaxPool):
    """The largest element of as many windows as asked for."""

    method = "adaptive_max_pool3d"
