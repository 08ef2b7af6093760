"""torch's functions with strides in their arguments, and its copies of views.

A copy of a view is its value in memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from svod.base.errors import ShapeError
from svod.tensor.core.tensor_core import axes_of, integer, shape_of, tensor_of
from svod.tensor.ops.creation import arange, empty
from svod.tensor.tensor import Tensor

# Methods that give a view; torch has each as a function whose result is a copy.
_VIEWS = (
    "as_strided detach diagonal expand permute select split split_with_sizes squeeze t transpose "
    "unbind unfold unsqueeze view"
)


def _copy(method: str, name: str) -> Callable[..., Any]:
    def function(input: Tensor, *args: Any, **options: Any) -> Any:
        found = getattr(tensor_of(input), method)(*args, **options)
        if isinstance(found, tuple):
            return tuple([t.clone() for t in found])
        return found.clone()

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"A copy of: {getattr(Tensor, method).__doc__}"
    function.__wrapped__ = getattr(Tensor, method)  # type: ignore[attr-defined]  # its signature
    return function


def as_strided_scatter(
    input: Tensor,
    src: Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> Tensor:
    """input with src written where ``as_strided`` would read."""
    sizes, strides = _strides(size, stride)
    if src.shape != sizes:
        raise ShapeError(f"as_strided_scatter: a source of shape {src.shape} for {sizes}")
    start = integer(storage_offset or 0, "an offset")
    last = start + sum([(n - 1) * s for n, s in zip(sizes, strides, strict=True)])
    if prod(sizes) and not 0 <= last < input.numel():
        raise ShapeError(f"as_strided_scatter: element {last} of {input.numel()}")
    place = arange(1) + start
    for n, s in zip(sizes, strides, strict=True):
        place = place.unsqueeze(-1) + arange(n) * s
    flat = input.ravel().scatter(0, place.ravel(), src.ravel().cast(input.dtype))
    return flat.reshape(input.shape)


def empty_strided(size: Sequence[int], stride: Sequence[int], **options: Any) -> Tensor:
    """A tensor whose values nobody should rely on."""
    return empty(_strides(size, stride)[0], **options)


def empty_permuted(size: Sequence[int], physical_layout: Sequence[int], **options: Any) -> Tensor:
    """A tensor whose values nobody should rely on."""
    sizes, order = shape_of((size,)), shape_of((physical_layout,))
    if len(axes_of(order, len(sizes))) != len(sizes):
        raise ShapeError(f"empty_permuted: {order} is no order of the axes of {sizes}")
    return empty(sizes, **options)


def fill(input: Tensor, value: Any) -> Tensor:
    """One value everywhere, with the shape and dtype of input."""
    found = tensor_of(value, input)
    if found.ndim:
        raise ShapeError(f"fill takes one value, not a tensor of shape {found.shape}")
    return found.cast(input.dtype).expand(input.shape)


def constant_pad_nd(input: Tensor, pad: Sequence[int], value: Any = 0) -> Tensor:
    """A border of one value, from the last axis on."""
    return input.pad(pad, "constant", value)


def _strides(size: Sequence[int], stride: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    sizes, strides = shape_of((size,)), shape_of((stride,))
    if len(sizes) != len(strides) or any(s < 0 for s in strides):
        raise ShapeError(f"sizes {sizes} and strides {strides} do not fit together")
    return sizes, strides


LAYOUTS: dict[str, Callable[..., Any]] = {
    **{f"{name}_copy": _copy(name, f"{name}_copy") for name in _VIEWS.split()},
    "alias_copy": _copy("clone", "alias_copy"),
    "as_strided_scatter": as_strided_scatter,
    "empty_strided": empty_strided,
    "empty_permuted": empty_permuted,
    "fill": fill,
    "constant_pad_nd": constant_pad_nd,
}
