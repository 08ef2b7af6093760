"""Pooling over 1 to 3 spatial axes: a reduction of the axes that ``windows`` makes."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const, is_symbolic
from svod.ir.reductions import identity
from svod.tensor.core.slicing import pad_value
from svod.tensor.core.tensor_core import (
    Core,
    Ordered,
    float_node,
    integer,
    numbers,
    spelled,
    tensor_of,
    wrap,
)
from svod.tensor.gradients.custom_gradient import custom_gradient
from svod.tensor.layers.convolution import Sizes
from svod.tensor.ops.reductions import extreme_position, fold
from svod.tensor.ops.sliding_windows import windows

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

Ints = tuple[int, ...]
MOST_WINDOWS = 27  # that hold one element: 3 x 3 x 3


def _pool_sizes(
    x: Tensor, count: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], list[tuple[int, int]], list[int]]:
    """Kernel, stride, dilation, padding, and what ceil_mode adds at the end of each axis."""
    if x.ndim not in (count + 1, count + 2):
        raise ShapeError(f"pooling over {count} axes of shape {x.shape}")
    sizes = numbers(kernel, count, "kernel_size")
    strides = sizes if stride is None or stride in ([], ()) else numbers(stride, count, "stride")
    pads, dilations = numbers(padding, count, "padding"), numbers(dilation, count, "dilation")
    if min(sizes) < 1 or min(strides) < 1 or min(dilations) < 1:
        raise ShapeError(f"kernel {sizes}, stride {strides}, dilation {dilations}: at least 1")
    if any(2 * p > k or p < 0 for p, k in zip(pads, sizes, strict=True)):
        raise ShapeError(f"pooling: padding {pads} is more than half of the kernel {sizes}")
    extra = []
    for i, k, s, p, d in zip(x.shape[-count:], sizes, strides, pads, dilations, strict=True):
        span = d * (k - 1) + 1
        outputs = -(-(i + 2 * p - span) // s) + 1
        if ceil_mode and (outputs - 1) * s >= i + p:  # the last window must start inside
            outputs -= 1
        missing = (outputs - 1) * s + span - i - 2 * p
        extra.append((missing if missing >= 0 else 0) if ceil_mode else 0)
    return sizes, strides, dilations, [(p, p) for p in pads], extra


def _borders(x: Tensor, pads: list[tuple[int, int]], extra: list[int]) -> B.Pairs:
    spatial = [(a, b + e) for (a, b), e in zip(pads, extra, strict=True)]
    return (*[(0, 0)] * (x.ndim - len(pads)), *spatial)


def max_pool(
    x: Tensor, count: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Tensor:
    """The largest element of each window."""
    sizes, strides, dilations, pads, extra = _pool_sizes(
        x, count, kernel, stride, padding, dilation, ceil_mode
    )
    borders = _borders(x, pads, extra)
    if x.dtype.kind == "f" and _has_phases(x, sizes, strides, dilations):
        return _largest_of_windows(x, sizes, strides, borders)  # type: ignore[no-any-return]
    cut = windows(pad_value(x.uop, borders, identity(O.MAX, x.dtype)), sizes, strides, dilations)
    return _largest(wrap(cut, x._device), count)


def _has_phases(x: Tensor, sizes: Ints, strides: Ints, dilations: Ints) -> bool:
    """Whether few windows of known size hold each element."""
    most = prod([-(-k // s) for k, s in zip(sizes, strides, strict=True)])
    return not is_symbolic(x.shape) and set(dilations) == {1} and most <= MOST_WINDOWS


@custom_gradient
def _largest_of_windows(x: Tensor, sizes: Ints, strides: Ints, borders: B.Pairs) -> Tensor:
    """The largest element of each window; the gradient goes to the first that is."""
    ones, count = (1,) * len(sizes), len(sizes)
    cut = windows(pad_value(x.uop, borders, identity(O.MAX, x.dtype)), sizes, strides, ones)
    return wrap(fold(cut, O.MAX, tuple(range(x.ndim, x.ndim + count)), False), x._device)


@_largest_of_windows.backward
def _to_first_of_windows(
    grad: Tensor, output: Tensor, x: Tensor, sizes: Ints, strides: Ints, borders: B.Pairs
) -> Tensor:
    """What each element receives of the windows that hold it.

    Element ``s * q + r`` of an axis is number ``low + r - s * t`` of window ``q + t``, so a term
    for each ``t`` reads one window of each ``q``: its gradient, and which element is the largest.
    """
    count, ones = len(sizes), (1,) * len(sizes)
    cut = windows(pad_value(x.uop, borders, identity(O.MAX, x.dtype)), sizes, strides, ones)
    lead, outer = cut.shape[: x.ndim - count], cut.shape[x.ndim - count : x.ndim]
    first = extreme_position(B.reshape(cut, (*lead, *outer, prod(sizes))), O.MAX, x.ndim, True)
    kind = dt.int8 if prod(sizes) <= 128 else dt.int64
    chosen = B.contiguous(B.cast(first, kind))
    whole, zero = [(0, n) for n in lead], const(0.0, grad.dtype)
    lows = [low for low, _ in borders[-count:]]
    tiles = [-(-n // s) for n, s in zip(x.shape[-count:], strides, strict=True)]
    apart = (*lead, *[n for q in tiles for n in (q, 1)])
    wide = (*lead, *[n for q, s in zip(tiles, strides, strict=True) for n in (q, s)])

    def shifted(node: UOp, shifts: Ints) -> UOp:
        """Window q + t of each axis at q; 0 where there is none."""
        ends = [t + q for t, q in zip(shifts, tiles, strict=True)]
        pads = [(max(0, -t), max(0, e - o)) for t, e, o in zip(shifts, ends, outer, strict=True)]
        cuts = [(t + low, e + low) for t, e, (low, _) in zip(shifts, ends, pads, strict=True)]
        node = B.pad(B.reshape(node, (*lead, *outer)), (*[(0, 0)] * len(lead), *pads))
        return B.expand(B.reshape(B.shrink(node, (*whole, *cuts)), apart), wide)

    total = None
    reach = zip(lows, sizes, strides, strict=True)
    for shifts in product(*[range(-((k - 1 - p) // s), (p + s - 1) // s + 1) for p, k, s in reach]):
        line = _numbers_in_window(shifts, lows, sizes, strides, kind)
        line = B.expand(B.reshape(line, (*[1] * len(lead), *line.shape)), wide)
        here = B.binary(O.EQ, shifted(chosen, shifts), line)
        part = B.where(here, shifted(grad.uop, shifts), zero)
        total = part if total is None else B.binary(O.ADD, total, part)
    assert total is not None
    sides = [q * s for q, s in zip(tiles, strides, strict=True)]
    inside = (*whole, *[(0, n) for n in x.shape[-count:]])
    return wrap(B.shrink(B.reshape(total, (*lead, *sides)), inside), grad._device)


def _numbers_in_window(
    shifts: Ints, lows: list[int], sizes: Ints, strides: Ints, dtype: DType
) -> UOp:
    """The numbers that elements r of each axis have in the windows ``shifts`` further, as
    (1, s, 1, s, ..); -1 for those outside."""
    number, inside = tensor_of(0), None
    for i, (t, low, size, s) in enumerate(zip(shifts, lows, sizes, strides, strict=True)):
        behind = [1] * (2 * (len(sizes) - 1 - i))
        own = wrap(B.reshape(B.iota(s, dt.int64), (1, s, *behind)), None) + (low - s * t)
        number = number * size + own
        is_inside = (own >= 0) & (own < size)
        inside = is_inside if inside is None else inside & is_inside
    assert inside is not None
    return number.where(inside, -1).cast(dtype).uop


def _largest(cut: Tensor, count: int) -> Tensor:
    """The largest element over the last axes; the gradient goes to the first that is."""
    if cut.dtype.kind != "f":
        return wrap(fold(cut.uop, O.MAX, tuple(range(cut.ndim))[-count:], False), cut._device)
    return _largest_float(cut, count)  # type: ignore[no-any-return]


@custom_gradient
def _largest_float(cut: Tensor, count: int) -> Tensor:
    return wrap(fold(cut.uop, O.MAX, tuple(range(cut.ndim))[-count:], False), cut._device)


@_largest_float.backward
def _to_first_largest(grad: Tensor, output: Tensor, cut: Tensor, count: int) -> Tensor:
    lead, window = cut.shape[:-count], cut.shape[-count:]
    flat = B.reshape(cut.uop, (*lead, prod(window)))
    first = extreme_position(flat, O.MAX, len(lead), True)
    line = B.reshape(B.iota(prod(window), dt.int64), (*[1] * len(lead), prod(window)))
    here = B.reshape(
        B.binary(O.EQ, B.expand(first, flat.shape), B.expand(line, flat.shape)), cut.shape
    )
    wide = B.expand(B.reshape(grad.uop, (*lead, *[1] * count)), cut.shape)
    return wrap(B.where(here, wide, const(0.0, grad.dtype)), grad._device)


def windows_at_positions(
    grad: Tensor, x: Tensor, places: Tensor, count: int, kernel: Any, stride: Any, padding: Any,
    dilation: Any, ceil_mode: bool,
) -> tuple[Callable[[Tensor], Tensor], Tensor]:  # fmt: skip
    """The gradient of max pooling where positions are known: a function that cuts windows, and what
    these receive. Nothing is compared but positions."""
    sizes, strides, dilations, pads, extra = _pool_sizes(
        x, count, kernel, stride, padding, dilation, ceil_mode
    )
    borders = _borders(x, pads, extra)

    def cut(a: Tensor) -> Tensor:
        return wrap(windows(B.pad(a.uop, borders), sizes, strides, dilations), a._device)

    space = x.shape[-count:]
    line = B.reshape(B.iota(prod(space), dt.int64), space)
    known = windows(B.pad(line, borders[-count:]), sizes, strides, dilations)
    shape = (*grad.shape, *sizes)
    known = B.expand(B.reshape(known, (*[1] * (x.ndim - count), *known.shape)), shape)
    ones = [1] * count
    chosen = B.expand(B.reshape(places.uop, (*grad.shape, *ones)), shape)
    wide = B.expand(B.reshape(grad.uop, (*grad.shape, *ones)), shape)
    here = B.binary(O.EQ, chosen, known)
    return cut, wrap(B.where(here, wide, const(0.0, grad.dtype)), grad._device)


def max_pool_positions(
    x: Tensor, count: int, kernel: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool
) -> Tensor:
    """Where each largest element is, counted over the flattened spatial axes."""
    sizes, strides, dilations, pads, extra = _pool_sizes(
        x, count, kernel, stride, padding, dilation, ceil_mode
    )
    borders = _borders(x, pads, extra)
    cut = windows(pad_value(x.uop, borders, identity(O.MAX, x.dtype)), sizes, strides, dilations)
    flat = B.reshape(cut, (*cut.shape[: x.ndim], prod(sizes)))
    best = wrap(extreme_position(flat, O.MAX, x.ndim, True), None)
    space = x.shape[-count:]
    line = B.reshape(B.iota(prod(space), dt.int64), space)
    places = windows(B.pad(line, borders[-count:]), sizes, strides, dilations)
    outer = places.shape[:count]
    table = wrap(B.reshape(places, (*outer, prod(sizes))), None)
    lead = cut.shape[: x.ndim - count]
    wide = table.expand((*lead, *outer, prod(sizes)))
    return wrap(wide.gather(-1, best).squeeze(-1).uop, x._device)


def avg_pool(
    x: Tensor,
    count: int,
    kernel: Any,
    stride: Any,
    padding: Any,
    ceil_mode: bool,
    count_include_pad: bool,
    divisor: int | None,
) -> Tensor:
    """The average of each window."""
    sizes, strides, dilations, pads, extra = _pool_sizes(
        x, count, kernel, stride, padding, 1, ceil_mode
    )
    if x.dtype.kind in "iu":  # integers stay: the whole part of each average, as in torch
        wide = wrap(B.cast(x.uop, dt.int64), x._device)
    elif x.dtype.kind == "b":
        raise DTypeError("avg_pool takes numbers, not bool")
    else:
        wide = x
    borders = _borders(x, pads, extra)
    cut = windows(B.pad(wide.uop, borders), sizes, strides, dilations)
    axes = tuple(range(x.ndim, x.ndim + count))
    total = wrap(fold(cut, O.ADD, axes, False), x._device)
    has_padding = any(a or b for a, b in pads)
    if divisor is not None:
        if not divisor:
            raise ShapeError("avg_pool: divisor_override must not be 0")
        return _shared(total, divisor, x.dtype)
    if not any(extra) and (count_include_pad or not has_padding):
        is_whole = x.dtype.kind in "iu"
        return _shared(total, prod(sizes), x.dtype) if is_whole else total * (1 / prod(sizes))
    space = x.shape[-count:]
    if count_include_pad:
        space = tuple([n + a + b for n, (a, b) in zip(space, pads, strict=True)])
        edges: list[tuple[int, int]] = [(0, e) for e in extra]
    else:
        edges = list(borders[-count:])
    inside = windows(B.pad(B.full(space, 1, wide.dtype), tuple(edges)), sizes, strides, dilations)
    amount = fold(inside, O.ADD, tuple(range(count, 2 * count)), False)
    return _shared(total, wrap(amount, x._device), x.dtype)


def _shared(total: Tensor, count: Any, dtype: DType) -> Tensor:
    """A sum divided by how many there are; of integers the whole part."""
    if dtype.kind == "f":
        return total / count
    return total.div(count, rounding_mode="trunc").cast(dtype)


def _adaptive_sizes(x: Tensor, count: int, output: Any) -> list[int]:
    wanted = list(output) if isinstance(output, (list, tuple)) else [output] * count
    if x.ndim not in (count + 1, count + 2) or len(wanted) != count:
        raise ShapeError(f"adaptive pooling of {x.shape} to {output} over {count} axes")
    sizes = zip(wanted, x.shape[-count:], strict=True)
    parts = [n if size is None else integer(size, "output_size") for size, n in sizes]
    if min(parts) < 1:
        raise ShapeError(f"adaptive pooling to {parts} parts")
    return parts


def adaptive_avg_pool(x: Tensor, count: int, output: Any) -> Tensor:
    """The averages of windows that divide each axis into the wanted number of parts."""
    node = float_node(x.uop)
    for axis, parts in enumerate(_adaptive_sizes(x, count, output), x.ndim - count):
        n = node.shape[axis]
        if n % parts == 0:
            shape = node.shape
            split = B.reshape(node, (*shape[:axis], parts, n // parts, *shape[axis + 1 :]))
            folded = fold(split, O.ADD, (axis + 1,), False)
            node = (wrap(folded, None) * (parts / n)).uop
        else:
            node = _averaged_axis(node, axis, parts)
    return wrap(node, x._device)


def _averaged_axis(x: UOp, axis: int, parts: int) -> UOp:
    """Part p covers floor(p n / parts) to ceil((p + 1) n / parts)."""
    n = x.shape[axis]
    part = wrap(B.reshape(B.iota(parts, dt.int64), (parts, 1)), None)
    place = wrap(B.reshape(B.iota(n, dt.int64), (1, n)), None)
    start, stop = part * n // parts, ((part + 1) * n + parts - 1) // parts
    inside = (place >= start) & (place < stop)
    shape = x.shape
    after = len(shape) - axis - 1
    mask = B.reshape(inside.uop, (*[1] * axis, parts, n, *[1] * after))
    wide = B.reshape(x, (*shape[:axis], 1, n, *shape[axis + 1 :]))
    folded = fold(B.where(mask, wide, const(0.0, x.dtype)), O.ADD, (axis + 1,), False)
    width = (stop - start).cast(x.dtype).reshape([*[1] * axis, parts, *[1] * after])
    return (wrap(folded, None) / width).uop


def adaptive_max_pool(x: Tensor, count: int, output: Any, return_indices: bool) -> Any:
    """The largest elements of windows that divide each axis into the wanted number of parts."""
    parts = _adaptive_sizes(x, count, output)
    space, lead = x.shape[-count:], x.shape[:-count]
    cut, windows_of = x, []
    for i, (n, p) in enumerate(zip(space, parts, strict=True)):
        first = np.arange(p) * n // p
        width = -(-(np.arange(1, p + 1) * n) // p) - first
        inner = np.arange(width.max())
        windows_of.append(first[:, None] + np.minimum(inner, width[:, None] - 1))  # (part, place)
        if n % p:
            axis = len(lead) + i
            cut = cut.index_select(axis, tensor_of(windows_of[-1].reshape(-1), x))
    cut = cut.reshape(*lead, *[n for w in windows_of for n in w.shape])
    base = len(lead)
    order = (*range(base), *range(base, base + 2 * count, 2), *range(base + 1, base + 2 * count, 2))
    cut = cut.permute(order)
    values = _largest(cut, count)
    if not return_indices:
        return values

    table: Any = 0
    for i, w in enumerate(windows_of):
        shape = [1] * (2 * count)
        shape[i], shape[count + i] = w.shape
        table = table * space[i] + w.reshape(shape)
    size = prod(table.shape[count:])
    best = wrap(extreme_position(cut.reshape(*lead, *parts, size).uop, O.MAX, x.ndim, True), None)
    places = tensor_of(table.reshape(*parts, size), x).expand((*lead, *parts, size))
    return Ordered(values, places.gather(-1, best).squeeze(-1))


def _max_pool_method(count: int) -> Any:
    def method(
        self: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        dilation: Sizes = 1,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Tensor | Ordered:
        given = (self, count, kernel_size, stride, padding, dilation, ceil_mode)
        values = max_pool(*given)
        if not return_indices:
            return values

        return Ordered(values, max_pool_positions(*given))

    method.__name__ = f"max_pool{count}d"
    method.__doc__ = f"The largest element of each window over the last {count} axes."
    return method


def _avg_pool_method(count: int) -> Any:
    def method(
        self: Tensor,
        kernel_size: Sizes,
        stride: Sizes | None = None,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Tensor:
        return avg_pool(
            self,
            count,
            kernel_size,
            stride,
            padding,
            ceil_mode,
            count_include_pad,
            divisor_override,
        )

    method.__name__ = f"avg_pool{count}d"
    method.__doc__ = f"The average of each window over the last {count} axes."
    return method


def _adaptive_avg_method(count: int) -> Any:
    def method(self: Tensor, output_size: Any) -> Tensor:
        return adaptive_avg_pool(self, count, output_size)

    method.__name__ = f"adaptive_avg_pool{count}d"
    method.__doc__ = f"Averages of the last {count} axes in the wanted numbers of parts."
    return method


def _adaptive_max_method(count: int) -> Any:
    def method(self: Tensor, output_size: Any, return_indices: bool = False) -> Any:
        return adaptive_max_pool(self, count, output_size, return_indices)

    method.__name__ = f"adaptive_max_pool{count}d"
    method.__doc__ = f"Maxima of the last {count} axes in the wanted numbers of parts."
    return method


class Pooling(Core):
    """max_pool1d-3d, avg_pool1d-3d and the adaptive forms."""

    __slots__ = ()


for _count in (1, 2, 3):
    for _method in (
        _max_pool_method(_count),
        _avg_pool_method(_count),
        _adaptive_avg_method(_count),
        _adaptive_max_method(_count),
    ):
        setattr(Pooling, _method.__name__, spelled(_method))
