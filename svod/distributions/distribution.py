"""What distributions share: parameters of one shape, samples, probabilities.

``sample`` cuts gradients; ``rsample`` is the same draw as a function of the parameters, where a
distribution can be drawn that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import svod
from svod.base.errors import ArgumentError, ShapeError
from svod.dtype.convert import finfo
from svod.tensor.core.tensor_core import tensor_of
from svod.tensor.ops.numpy_interchange import host_array
from svod.tensor.tensor import Tensor


class Distribution:
    """A distribution over elements of ``event_shape``, one for each position of ``batch_shape``."""

    has_rsample = False
    event_dim = 0  # axes of one sample
    parameters: tuple[str, ...] = ()
    positive: tuple[str, ...] = ()  # parameters that are above 0

    def __init__(self, *values: Any, validate_args: bool | None = None) -> None:
        """Parameters in the order of ``parameters``, broadcast to one shape."""
        tensors = [_floats(v) for v in values]
        made = svod.broadcast_tensors(*tensors) if len(tensors) > 1 else tensors
        for name, value in zip(self.parameters, made, strict=True):
            setattr(self, name, value)
            if name in self.positive:
                self._check(name, value, lambda x: x > 0, "above 0", validate_args)
        shape = made[0].shape
        self.batch_shape = shape[: len(shape) - self.event_dim]
        self.event_shape = shape[len(shape) - self.event_dim :]

    def _check(
        self, name: str, value: Tensor, holds: Any, rule: str, is_asked: bool | None
    ) -> None:
        """Refuse a parameter outside its range: where the values are in memory, or on demand."""
        values = None if is_asked is False else host_array(value.uop)
        if values is None and is_asked:
            values = value.numpy()
        if values is not None and not np.all(holds(values)):
            raise ArgumentError(f"{type(self).__name__}: {name} must be {rule}, got {value}")

    def sample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Random values without gradients: ``sample_shape + batch_shape + event_shape``."""
        with svod.no_grad():
            return self._draw(self._shape(sample_shape)).detach()

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Random values whose gradient reaches the parameters."""
        if not self.has_rsample:
            raise ArgumentError(
                f"{type(self).__name__} has no rsample: its samples are no smooth function of the "
                "parameters; use sample() and log_prob()"
            )
        return self._draw(self._shape(sample_shape))

    def _shape(self, sample_shape: Sequence[int]) -> tuple[int, ...]:
        return (*sample_shape, *self.batch_shape, *self.event_shape)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__} cannot be sampled")

    def log_prob(self, value: Any) -> Tensor:
        """The logarithm of the density, or of the probability, at a value."""
        raise NotImplementedError(f"{type(self).__name__} has no log_prob")

    def entropy(self) -> Tensor:
        """The entropy in nats."""
        raise NotImplementedError(f"{type(self).__name__} has no entropy")

    @property
    def mean(self) -> Tensor:
        """The expected value."""
        raise NotImplementedError(f"{type(self).__name__} has no mean")

    @property
    def variance(self) -> Tensor:
        """The expected square of the distance from the mean."""
        raise NotImplementedError(f"{type(self).__name__} has no variance")

    @property
    def stddev(self) -> Tensor:
        """The square root of the variance."""
        return self.variance.sqrt()

    def _noise(self, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """Uniform numbers from above 0 to below 1."""
        tiny = finfo(like.dtype).tiny
        return svod.rand(*shape, dtype=like.dtype, device=like.device).clamp(min=float(tiny))

    def __repr__(self) -> str:
        named = [f"{name}: {getattr(self, name).shape}" for name in self.parameters]
        return f"{type(self).__name__}({', '.join(named)})"


def _floats(value: Any) -> Tensor:
    found = tensor_of(value)
    return found if found.dtype.is_float else found.cast(svod.float32)


def probabilities(name: str, probs: Any, logits: Any) -> tuple[bool, Tensor]:
    """Which of the two forms was given, and its tensor."""
    if (probs is None) == (logits is None):
        raise ArgumentError(f"{name}: give either probs or logits")
    found = _floats(probs if logits is None else logits)
    return logits is not None, found


def summed(x: Tensor, axes: int) -> Tensor:
    """The sum over the last axes."""
    if axes > x.ndim:
        raise ShapeError(f"{axes} axes cannot be summed in a tensor of shape {x.shape}")
    return x.sum(tuple(range(x.ndim - axes, x.ndim))) if axes else x
