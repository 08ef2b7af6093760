"""Normalisation modules: batch, layer, RMS, group, instance."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from svod.base.errors import ShapeError
from svod.dtype import types as dt
from svod.nn import functional, init
from svod.nn.module import Module, Parameter
from svod.tensor.core.tensor_core import shape_of
from svod.tensor.ops.creation import ones, zeros
from svod.tensor.tensor import Tensor


def _start_again(module: Module) -> None:
    """A weight of ones and a bias of zeros."""
    for name, value in (("weight", 1.0), ("bias", 0.0)):
        found = module._parameters.get(name)
        if found is not None:
            init.constant_(found, value)
    module.__dict__["_is_ready"] = False


class _Channels(Module):
    """What batch and instance norm share: parameters and running values per channel."""

    def __init__(
        self,
        num_features: int,
        eps: float,
        momentum: float | None,
        affine: bool,
        track_running_stats: bool,
        device: str | None,
        dtype: Any,
        bias: bool,
    ) -> None:
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        made: dict[str, Any] = {"dtype": dtype, "device": device}
        weight = Parameter(ones(num_features, **made)) if affine else None
        shift = Parameter(zeros(num_features, **made)) if affine and bias else None
        self.register_parameter("weight", weight)
        self.register_parameter("bias", shift)
        tracks = track_running_stats
        mean = zeros(num_features, **made).contiguous() if tracks else None
        variance = ones(num_features, **made).contiguous() if tracks else None
        self.register_buffer("running_mean", mean)
        self.register_buffer("running_var", variance)
        count = Tensor(np.zeros((), np.int64), device=device) if tracks else None
        self.register_buffer("num_batches_tracked", count)

    def reset_running_stats(self) -> None:
        """Running values as at the beginning."""
        if self.track_running_stats:
            for name, value in (("mean", 0.0), ("var", 1.0)):
                init.constant_(getattr(self, f"running_{name}"), value)
            init.constant_(self.num_batches_tracked, 0)
            self.__dict__["_is_ready"] = False

    def reset_parameters(self) -> None:
        """New starting values."""
        self.reset_running_stats()
        _start_again(self)

    def extra_repr(self) -> str:
        return f"{self.num_features}, eps={self.eps}, momentum={self.momentum}"


class _BatchNorm(_Channels):
    axes: tuple[int, ...] = ()

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float | None = 0.1,
        affine: bool = True,
        track_running_stats: bool = True,
        device: str | None = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim not in self.axes or x.shape[1] != self.num_features:
            raise ShapeError(
                f"{type(self).__name__}({self.num_features}) of shape {x.shape}: it has "
                f"{' or '.join(map(str, self.axes))} axes and the channels on axis 1"
            )
        learns = self.training and self.track_running_stats
        momentum: Any = self.momentum
        if learns:
            self.num_batches_tracked.assign(self.num_batches_tracked + 1)
            if momentum is None:  # the average over all batches
                momentum = 1 / self.num_batches_tracked.cast(dt.float32)
        return x.batch_norm(
            self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats, momentum, self.eps,
        )  # fmt: skip


class BatchNorm1d(_BatchNorm):
    """Per channel of (N, C) or (N, C, L)."""

    axes = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Per channel of (N, C, H, W)."""

    axes = (4,)


class BatchNorm3d(_BatchNorm):
    """Per channel of (N, C, D, H, W)."""

    axes = (5,)


class LayerNorm(Module):
    """Over the last axes."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        bias: bool = True,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps = shape_of((normalized_shape,)), eps
        made: dict[str, Any] = {"dtype": dtype, "device": device}
        shape = self.normalized_shape
        weight = Parameter(ones(shape, **made)) if elementwise_affine else None
        shift = Parameter(zeros(shape, **made)) if elementwise_affine and bias else None
        self.register_parameter("weight", weight)
        self.register_parameter("bias", shift)

    def reset_parameters(self) -> None:
        """New starting values."""
        _start_again(self)

    def forward(self, x: Tensor) -> Tensor:
        return x.layer_norm(self.normalized_shape, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class RMSNorm(Module):
    """Divided by the root of the mean square over the last axes."""

    def __init__(
        self,
        normalized_shape: int | Sequence[int],
        eps: float | None = None,
        elementwise_affine: bool = True,
        device: str | None = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.normalized_shape, self.eps = shape_of((normalized_shape,)), eps
        start = ones(self.normalized_shape, dtype=dtype, device=device)
        self.register_parameter("weight", Parameter(start) if elementwise_affine else None)

    def reset_parameters(self) -> None:
        """New starting values."""
        _start_again(self)

    def forward(self, x: Tensor) -> Tensor:
        return x.rms_norm(self.normalized_shape, self.weight, self.eps)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}"


class GroupNorm(Module):
    """Per group of channels."""

    def __init__(
        self,
        num_groups: int,
        num_channels: int,
        eps: float = 1e-5,
        affine: bool = True,
        device: str | None = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if num_groups < 1 or num_channels % num_groups:
            raise ShapeError(f"GroupNorm: {num_channels} channels in {num_groups} groups")
        self.num_groups, self.num_channels, self.eps = num_groups, num_channels, eps
        made: dict[str, Any] = {"dtype": dtype, "device": device}
        weight = Parameter(ones(num_channels, **made)) if affine else None
        shift = Parameter(zeros(num_channels, **made)) if affine and bias else None
        self.register_parameter("weight", weight)
        self.register_parameter("bias", shift)

    def reset_parameters(self) -> None:
        """New starting values."""
        _start_again(self)

    def forward(self, x: Tensor) -> Tensor:
        return x.group_norm(self.num_groups, self.weight, self.bias, self.eps)

    def extra_repr(self) -> str:
        return f"{self.num_groups}, {self.num_channels}, eps={self.eps}"


class _InstanceNorm(_Channels):
    count = 0  # axes of one sample

    def __init__(
        self,
        num_features: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: str | None = None,
        dtype: Any = None,
        *,
        bias: bool = True,
    ) -> None:
        super().__init__(
            num_features, eps, momentum, affine, track_running_stats, device, dtype, bias
        )

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim == self.count:
            return self.forward(x.unsqueeze(0)).squeeze(0)
        if x.ndim != self.count + 1 or (self._has_tensors() and x.shape[1] != self.num_features):
            raise ShapeError(
                f"{type(self).__name__}({self.num_features}) of shape {x.shape}: it has "
                f"{self.count} or {self.count + 1} axes and the channels before the last ones"
            )
        return functional.instance_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias,
            self.training or not self.track_running_stats, self.momentum, self.eps,
        )  # fmt: skip

    def _has_tensors(self) -> bool:
        return self.affine or self.track_running_stats


class InstanceNorm1d(_InstanceNorm):
    """Per sample and channel of (N, C, L)."""

    count = 2


class InstanceNorm2d(_InstanceNorm):
    """Per sample and channel of (N, C, H, W)."""

    count = 3


class InstanceNorm3d(_InstanceNorm):
    """Per sample and channel of (N, C, D, H, W)."""

    count = 4
