"""Modules that learn from their first input how many inputs they have: ``LazyLinear(10)``.

A lazy module keeps the arguments of its constructor. The first call, or a state dict, says how many
inputs there are; it is then made anew as the module it stands for and is one from then on.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from svod.base.errors import ArgumentError, ShapeError
from svod.nn.convolution import (
    Conv1d,
    Conv2d,
    Conv3d,
    ConvTranspose1d,
    ConvTranspose2d,
    ConvTranspose3d,
)
from svod.nn.layers import Linear
from svod.nn.module import Module
from svod.nn.normalization import (
    BatchNorm1d,
    BatchNorm2d,
    BatchNorm3d,
    InstanceNorm1d,
    InstanceNorm2d,
    InstanceNorm3d,
)
from svod.tensor.tensor import Tensor


class Lazy(Module):
    """What all lazy modules share; ``becomes`` is the module in the end."""

    _is_lazy = True
    becomes: type[Module]
    arguments: inspect.Signature  # of the constructor, without self and the number of inputs

    def __init__(self, *args: Any, **options: Any) -> None:
        Module.__init__(self)
        try:
            given = self.arguments.bind(*args, **options)
            given.apply_defaults()
        except TypeError as error:
            raise ArgumentError(f"{type(self).__name__}(): {error}") from None
        self.__dict__["_given"] = given.arguments

    def __call__(self, *inputs: Any, **options: Any) -> Any:
        if not inputs or not isinstance(inputs[0], Tensor):
            raise ArgumentError(f"{type(self).__name__} takes a tensor")
        return self._grown(self._size_of(inputs[0]))(*inputs, **options)

    def _size_of(self, x: Tensor) -> int:
        """How many inputs there are, by the first one."""
        raise NotImplementedError

    def _size_in(self, state: Mapping[str, Any], lead: str) -> int | None:
        """How many inputs there are, by a state dict."""
        raise NotImplementedError

    def learn_size(self, state: Mapping[str, Any], lead: str) -> None:
        """Become what the state dict of the surrounding module holds under ``lead``."""
        size = self._size_in(state, lead)
        if size is not None:
            self._grown(size)

    def _grown(self, size: int) -> Module:
        given, training, hooks = self._given, self.training, self._hooks
        becomes = self.becomes
        self.__dict__.clear()
        object.__setattr__(self, "__class__", becomes)
        becomes.__init__(self, size, **given)  # type: ignore[misc]
        self.__dict__.update(training=training, _hooks=hooks)
        return self

    def extra_repr(self) -> str:
        told = {k: v for k, v in self._given.items() if k not in ("device", "dtype")}
        return ", ".join([f"{k}={v}" for k, v in told.items()])


def _shape(state: Mapping[str, Any], *names: str) -> tuple[int, ...] | None:
    for name in names:
        if name in state:
            return tuple(state[name].shape)
    return None


class _LazyLinear(Lazy):
    def _size_of(self, x: Tensor) -> int:
        if not x.ndim:
            raise ShapeError(f"{type(self).__name__} takes at least one axis")
        return int(x.shape[-1])

    def _size_in(self, state: Mapping[str, Any], lead: str) -> int | None:
        shape = _shape(state, f"{lead}weight")
        return None if shape is None else shape[1]


class _LazyConvolution(Lazy):
    count = 0

    def _size_of(self, x: Tensor) -> int:
        if x.ndim not in (self.count + 1, self.count + 2):
            raise ShapeError(
                f"{type(self).__name__} takes {self.count + 1} or {self.count + 2} axes, "
                f"not shape {x.shape}"
            )
        return int(x.shape[-self.count - 1])

    def _size_in(self, state: Mapping[str, Any], lead: str) -> int | None:
        shape = _shape(state, f"{lead}weight")
        if shape is None:
            return None
        is_transposed = getattr(self.becomes, "is_transposed", False)
        return shape[0] if is_transposed else shape[1] * int(self._given["groups"])


class _LazyNorm(Lazy):
    count = 0
    has_batch = True  # whether the first axis is always the batch

    def _size_of(self, x: Tensor) -> int:
        single = not self.has_batch and x.ndim == self.count + 1
        if x.ndim < (1 if single else 2):
            raise ShapeError(f"{type(self).__name__} takes more axes than shape {x.shape}")
        return int(x.shape[0 if single else 1])

    def _size_in(self, state: Mapping[str, Any], lead: str) -> int | None:
        shape = _shape(state, f"{lead}running_mean", f"{lead}weight")
        return None if shape is None else shape[0]


_INSTANCE = {"affine": True, "track_running_stats": True}  # as in torch, other than InstanceNorm


def _lazy(
    base: type[Lazy], becomes: type[Module], defaults: Mapping[str, Any] = {}, **members: Any
) -> type[Lazy]:
    function: Callable[..., Any] = becomes.__init__  # type: ignore[misc]
    signature = inspect.signature(function)
    kept = [
        p.replace(default=defaults.get(p.name, p.default))
        for p in list(signature.parameters.values())[2:]
    ]
    arguments = signature.replace(parameters=kept)
    name = f"Lazy{becomes.__name__}"
    text = f"{becomes.__name__} that learns from its first input how many inputs it has."
    found = type(base)(name, (base, becomes), {
        "becomes": becomes, "arguments": arguments, "__signature__": arguments,
        "__doc__": text, "__module__": __name__, "__init__": Lazy.__init__, **members,
    })  # fmt: skip
    result: type[Lazy] = found
    return result


LazyLinear = _lazy(_LazyLinear, Linear)
LazyConv1d = _lazy(_LazyConvolution, Conv1d, count=1)
LazyConv2d = _lazy(_LazyConvolution, Conv2d, count=2)
LazyConv3d = _lazy(_LazyConvolution, Conv3d, count=3)
LazyConvTranspose1d = _lazy(_LazyConvolution, ConvTranspose1d, count=1)
LazyConvTranspose2d = _lazy(_LazyConvolution, ConvTranspose2d, count=2)
LazyConvTranspose3d = _lazy(_LazyConvolution, ConvTranspose3d, count=3)
LazyBatchNorm1d = _lazy(_LazyNorm, BatchNorm1d, count=1)
LazyBatchNorm2d = _lazy(_LazyNorm, BatchNorm2d, count=2)
LazyBatchNorm3d = _lazy(_LazyNorm, BatchNorm3d, count=3)
LazyInstanceNorm1d = _lazy(_LazyNorm, InstanceNorm1d, _INSTANCE, count=1, has_batch=False)
LazyInstanceNorm2d = _lazy(_LazyNorm, InstanceNorm2d, _INSTANCE, count=2, has_batch=False)
LazyInstanceNorm3d = _lazy(_LazyNorm, InstanceNorm3d, _INSTANCE, count=3, has_batch=False)

__all__ = [name for name in globals() if name.startswith("Lazy") and name != "Lazy"]
