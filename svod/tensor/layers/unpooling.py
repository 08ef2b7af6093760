"""Unpooling, p-norm and fractional pooling, local response normalisation, embedding bags."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING, Any

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.tensor.core.tensor_core import Core, integer, numbers, tensor_of, wrap
from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.layers.convolution import Sizes
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.index_checks import index_of
from svod.tensor.ops.indexing import Inside, read
from svod.tensor.ops.matrix_products import einsum
from svod.tensor.random.threefry import rand

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor


def lp_pool(
    x: Tensor, count: int, norm_type: float, kernel_size: Sizes, stride: Any, ceil_mode: bool
) -> Tensor:
    """The p-norm of each window."""
    size = prod(numbers(kernel_size, count, "kernel_size"))
    powers = x**norm_type
    pool = getattr(powers, f"avg_pool{count}d")
    found = pool(kernel_size, stride, 0, ceil_mode)
    return (found.sign() * found.abs().relu() * size) ** (1.0 / norm_type)


def max_unpool(
    x: Tensor,
    indices: Tensor,
    count: int,
    kernel_size: Sizes,
    stride: Any,
    padding: Any,
    output_size: Any,
) -> Tensor:
    """Maxima put back at their places, zeros elsewhere."""
    if x.ndim not in (count + 1, count + 2):
        raise ShapeError(f"max_unpool{count}d of shape {x.shape}")
    if not indices.dtype.is_int:
        raise DTypeError(f"max_unpool{count}d: indices are integers, not {indices.dtype.name}")
    if indices.shape != x.shape:
        raise ShapeError(f"max_unpool{count}d: indices {indices.shape} for {x.shape}")
    kernel = numbers(kernel_size, count, "kernel_size")
    strides = kernel if stride is None or stride == [] else numbers(stride, count, "stride")
    pads = numbers(padding, count, "padding")
    settings = list(zip(x.shape[-count:], kernel, strides, pads, strict=True))
    natural = [(n - 1) * s + k - 2 * p for n, k, s, p in settings]
    if output_size is None:
        size = natural
    else:
        size = [integer(n, "output_size") for n in list(output_size)[-count:]]
        if len(output_size) not in (count, count + 2):
            raise ShapeError(f"max_unpool{count}d: output_size has {count} numbers: {output_size}")
        for got, n, s in zip(size, natural, strides, strict=True):
            if not n - s < got < n + s:
                raise ShapeError(f"max_unpool{count}d: output_size {size} is far from {natural}")
    lead = x.shape[:-count]
    flat = wrap(B.full((*lead, prod(size)), 0, x.dtype), x._device)
    rows = (*lead, prod(x.shape[-count:]))
    places = index_of(indices.reshape(rows), x, prod(size), f"max_unpool{count}d")
    found = _put_back(flat, places, x.reshape(rows))
    return found.reshape(*lead, *size)  # type: ignore[no-any-return]


@custom_gradient
def _put_back(flat: Tensor, indices: Tensor, values: Tensor) -> Tensor:
    return flat.scatter(-1, indices, values)


@_put_back.backward
def _(
    grad: Tensor, output: Tensor, flat: Tensor, indices: Tensor, values: Tensor
) -> tuple[None, None, Tensor]:
    return None, None, grad.gather(-1, indices)  # as in torch, also of values that others replaced


def fractional_max_pool(
    x: Tensor,
    count: int,
    kernel_size: Sizes,
    output_size: Any,
    output_ratio: Any,
    return_indices: bool,
    samples: Tensor | None,
) -> Any:
    """The largest element of windows whose distances vary at random between whole numbers."""
    if (output_size is None) == (output_ratio is None):
        raise ShapeError(f"fractional_max_pool{count}d: give output_size or output_ratio")
    if x.ndim not in (count + 1, count + 2):
        raise ShapeError(f"fractional_max_pool{count}d of shape {x.shape}")
    if x.ndim == count + 1:
        found = fractional_max_pool(
            x.unsqueeze(0), count, kernel_size, output_size, output_ratio, return_indices, samples
        )
        return tuple([f.squeeze(0) for f in found]) if return_indices else found.squeeze(0)
    kernel = numbers(kernel_size, count, "kernel_size")
    space = x.shape[-count:]
    if output_size is None:
        ratios = output_ratio if isinstance(output_ratio, (list, tuple)) else [output_ratio] * count
        wanted = [int(n * r) for n, r in zip(space, ratios, strict=True)]
    else:
        wanted = list(numbers(output_size, count, "output_size"))
    for n, k, o in zip(space, kernel, wanted, strict=True):
        if k < 1 or o < 1 or o + k - 1 > n:
            raise ShapeError(f"fractional_max_pool{count}d of {x.shape}: {wanted} of {kernel}")
    batch, channels = x.shape[:2]
    if samples is None:
        samples = rand(batch, channels, count, dtype=x.dtype, device=x._device)
    if samples.shape != (batch, channels, count):
        raise ShapeError(f"fractional_max_pool{count}d: samples of shape {samples.shape}")
    place: Any = None  # of every element of every window, in the flattened space
    for axis, (n, k, o) in enumerate(zip(space, kernel, wanted, strict=True)):
        # torch draws the last axis first in a plane, and the first axis first in space
        draw = axis if count == 3 else count - 1 - axis
        start = _starts(samples[:, :, draw], n, k, o)
        spots = start.unsqueeze(-1) + wrap(B.iota(k, dt.int64), None)
        shape = [batch, channels]
        for i in range(count):
            shape += [o if i == axis else 1]
        shape += [k if i == axis else 1 for i in range(count)]
        spots = spots.reshape(shape)
        place = spots if place is None else place * n + spots
    outer = (batch, channels, *wanted, *kernel)
    line = place.expand(outer).reshape(batch, channels, prod(wanted) * prod(kernel))
    picked = x.reshape(batch, channels, prod(space)).gather(-1, line.clamp(0, prod(space) - 1))
    rows = picked.reshape(batch, channels, *wanted, prod(kernel))
    values, best = rows.max(-1)
    if not return_indices:
        return values
    where = line.reshape(rows.shape).gather(-1, best.unsqueeze(-1)).squeeze(-1)
    return values, where


def _starts(sample: Tensor, size: int, kernel: int, out: int) -> Tensor:
    """Where the windows of one axis begin: (batch, channels, out)."""
    line = wrap(B.iota(out, dt.int64), None)
    last = size - kernel
    if out == 1:
        return (sample.unsqueeze(-1) * 0).cast(dt.int64) + last
    alpha = last / (out - 1)
    u = sample.unsqueeze(-1)
    steps = ((u + line.cast(sample.dtype)) * alpha).cast(dt.int64) - (u * alpha).cast(dt.int64)
    return select(line == out - 1, last, steps)


class Unpooling(Core):
    """local_response_norm and pooling with adaptive positions."""

    __slots__ = ()

    def local_response_norm(
        self: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
    ) -> Tensor:
        """x over the power of the mean square of neighbouring channels."""
        if self.ndim < 3:
            raise ShapeError(f"local_response_norm takes at least 3 axes, not {self.shape}")
        count = integer(size, "size")
        if not self.numel():
            return self
        rows = (self * self).reshape(self.shape[0], 1, self.shape[1], -1)
        padded = rows.pad((0, 0, count // 2, (count - 1) // 2))
        mean = padded.avg_pool2d((count, 1), stride=1).reshape(self.shape)
        return self / (mean * alpha + k) ** beta


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of rows of a matrix: of each row of indices, or of runs of a vector."""
    if mode not in ("sum", "mean", "max"):
        raise ShapeError(f"embedding_bag: mode is sum, mean or max, not {mode!r}")
    if weight.ndim != 2 or input.ndim not in (1, 2):
        raise ShapeError(f"embedding_bag: indices {input.shape} into {weight.shape}")
    if per_sample_weights is not None and (
        mode != "sum" or per_sample_weights.shape != input.shape
    ):
        raise ShapeError(f"embedding_bag: per_sample_weights are for mode 'sum', not {mode!r}")
    if max_norm is not None:
        weight = weight.renorm(norm_type, 0, max_norm)
    if input.ndim == 2:
        if offsets is not None:
            raise ShapeError("embedding_bag: offsets are for a vector of indices")
        bags, size = input.shape
        line = wrap(B.iota(bags, dt.int64), None).reshape(bags, 1).expand(bags, size).ravel()
    else:
        if offsets is None or offsets.ndim != 1:
            raise ShapeError("embedding_bag: a vector of indices needs a vector of offsets")
        bags = offsets.shape[0] - int(include_last_offset)
        places = wrap(B.iota(input.shape[0], dt.int64), None)
        line = (offsets[:bags].unsqueeze(0) <= places.unsqueeze(1)).sum(1) - 1
        line = index_of(line, None, bags, "embedding_bag: the first offset is not 0")
    flat = index_of(input, weight, weight.shape[0], "embedding_bag").ravel()
    counts = wrap(B.full(flat.shape, True, dt.bool_), weight._device)
    if padding_idx is not None:
        rows = weight.shape[0]
        counts = flat != (padding_idx if padding_idx >= 0 else padding_idx + rows)
    values = read(weight, Inside(flat))
    if per_sample_weights is not None:
        values = values * per_sample_weights.ravel().unsqueeze(1)
    start = wrap(B.full((bags, weight.shape[1]), 0, weight.dtype), weight._device)
    if mode == "max":
        low = select(counts.unsqueeze(1), values, float("-inf"))
        wide = line.unsqueeze(1).expand(low.shape)
        found = start.scatter_reduce(0, wide, low, "amax", include_self=False)
        return select(found == float("-inf"), 0.0, found)
    total = start.index_add(0, line, select(counts.unsqueeze(1), values, 0.0))
    if mode == "sum":
        return total
    number = wrap(B.full((bags,), 0, weight.dtype), weight._device)
    number = number.index_add(0, line, counts.cast(weight.dtype))
    return total / number.clamp(1).unsqueeze(1)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x1 @ weight[k] @ x2 for every k."""
    if weight.ndim != 3 or not input1.ndim or input1.shape[:-1] != input2.shape[:-1]:
        raise ShapeError(f"bilinear of {input1.shape} and {input2.shape} by {weight.shape}")
    if (input1.shape[-1], input2.shape[-1]) != weight.shape[1:]:
        raise ShapeError(f"bilinear of {input1.shape} and {input2.shape} by {weight.shape}")
    found = einsum("...i,kij,...j->...k", input1, weight, input2)
    return found if bias is None else found + tensor_of(bias, found)
