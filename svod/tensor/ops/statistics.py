"""Statistics: histograms, quantiles, modes, covariance; gradient and trapezoid of samples."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from svod.base.errors import DTypeError, ShapeError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.tensor.core.complex_parts import joined
from svod.tensor.core.tensor_core import (
    Axis,
    Core,
    Ordered,
    Scalar,
    axes_of,
    axis_of,
    float_node,
    integer,
    pair,
    real_axis,
    tensor_of,
    wrap,
)
from svod.tensor.ops.creation import linspace
from svod.tensor.ops.elementwise import select
from svod.tensor.ops.joining import concatenate
from svod.tensor.ops.sorting import counts_of, middle_of_all

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

_WAYS = ("linear", "lower", "higher", "midpoint", "nearest")


def _positions(x: Tensor, axis: int) -> Tensor:
    line = [x.shape[axis] if i == axis else 1 for i in range(x.ndim)]
    return wrap(B.reshape(B.iota(x.shape[axis], dt.int64), tuple(line)), None)


def quantiles(
    x: Tensor, q: Any, dim: int | None, keepdim: bool, interpolation: str, ignore_nan: bool
) -> Tensor:
    """Values below which fractions of an axis lie; several fractions make a new first axis."""
    what = "nanquantile" if ignore_nan else "quantile"
    if interpolation not in _WAYS:
        raise ShapeError(f"{what}: interpolation is one of {', '.join(_WAYS)}: {interpolation!r}")
    if x.dtype not in (dt.float32, dt.float64):
        raise DTypeError(f"{what} takes float32 or float64, not {x.dtype.name}")
    if isinstance(q, (int, float)) and not 0 <= q <= 1:
        raise ShapeError(f"{what}: q is between 0 and 1, not {q}")
    if isinstance(q, Core) and q.dtype is not x.dtype:  # type: ignore[attr-defined]
        raise DTypeError(f"{what} of {x.dtype.name} with q of {q.dtype.name}")
    is_number = isinstance(q, (int, float))
    fractions = wrap(B.full((), q, x.dtype), None) if is_number else tensor_of(q, x).cast(x.dtype)
    if fractions.ndim > 1:
        raise ShapeError(f"{what}: q is a number or a vector, not shape {fractions.shape}")
    shape = x.shape
    flat = x.ravel() if dim is None else x
    axis = 0 if dim is None else axis_of(dim, x.ndim)
    if not flat.numel():
        raise ShapeError(f"{what} of shape {shape}: there are no elements")
    rows = (flat if flat.ndim else flat.reshape(1)).movedim(axis, -1)
    values = rows.sort(-1).values
    wanted = fractions.reshape([-1, *[1] * values.ndim])
    has_nan = rows.isnan()
    last = (~has_nan).sum(-1, True) - 1 if ignore_nan else rows.shape[-1] - 1
    place = wanted * last  # (fractions, rows.., 1)
    if ignore_nan:
        place = place.clamp(0)
    found = _between(values, place, interpolation)
    if not ignore_nan:
        found = select(has_nan.any(-1, True), float("nan"), found)
    if dim is None:
        found = found.reshape([found.shape[0], *[1] * (x.ndim if keepdim else 0)])
    else:
        found = found.movedim(-1, axis + 1) if keepdim and x.ndim else found.squeeze(-1)
    return found if fractions.ndim else found.squeeze(0)


def _between(values: Tensor, place: Tensor, interpolation: str) -> Tensor:
    """The value at a fractional place of the last axis."""
    size = values.shape[-1]
    low, high = place.floor(), place.ceil()
    wide = values.unsqueeze(0).expand((place.shape[0], *values.shape))
    places = (*wide.shape[:-1], 1)

    def at(where: Tensor) -> Tensor:
        return wide.gather(-1, where.cast(dt.int64).clamp(0, size - 1).expand(places))

    if interpolation == "lower":
        return at(low)
    if interpolation == "higher":
        return at(high)
    if interpolation == "nearest":
        return at(place.round())
    weight = (place - low) if interpolation == "linear" else (low != high).cast(values.dtype) * 0.5
    first, second = at(low), at(high)
    near = weight < 0.5
    gap = second - first
    return select(near, first + weight * gap, second - gap * (1 - weight))


class Statistics(Core):
    """quantile, mode, histc, histogram, cov, bucketize, isin, trapezoid and relatives."""

    __slots__ = ()

    def quantile(
        self: Tensor,
        q: Any,
        dim: int | None = None,
        keepdim: bool = False,
        *,
        interpolation: str = "linear",
    ) -> Tensor:
        """The value below which the fraction q of an axis lies; q may be a vector."""
        return quantiles(self, q, dim, keepdim, interpolation, False)

    def nanquantile(
        self: Tensor,
        q: Any,
        dim: int | None = None,
        keepdim: bool = False,
        *,
        interpolation: str = "linear",
    ) -> Tensor:
        """quantile of the elements that are not NaN."""
        return quantiles(self, q, dim, keepdim, interpolation, True)

    def nanmedian(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
        """The lower median of the elements that are not NaN."""
        if dim is None:
            return middle_of_all(self, True)
        if not self.ndim:
            axis_of(dim, 0)
            return Ordered(self, wrap(B.full((), 0, dt.int64), self._device))
        axis = axis_of(dim, self.ndim)
        if not self.shape[axis]:
            raise ShapeError(f"nanmedian over axis {axis} of {self.shape}: it has no elements")
        order = self.argsort(axis)
        count = (~self.isnan()).sum(axis, True)
        middle = ((count - 1) // 2).clamp(0)
        places = order.gather(axis, middle)
        values = self.gather(axis, places)
        if keepdim:
            return Ordered(values, places)
        return Ordered(values.squeeze(axis), places.squeeze(axis))

    def mode(self: Tensor, dim: int = -1, keepdim: bool = False) -> Ordered:
        """The most frequent element of an axis, the smallest of several, and its last place."""
        if not self.ndim:
            axis_of(dim, 0)
            return Ordered(self, wrap(B.full((), 0, dt.int64), self._device))
        axis = axis_of(dim, self.ndim)
        if not self.shape[axis]:
            raise ShapeError(f"mode over axis {axis} of {self.shape}: it has no elements")
        rows = self.movedim(axis, -1)
        counts = (rows.unsqueeze(-1) == rows.unsqueeze(-2)).sum(-1)
        order = rows.argsort(-1)
        ranked = counts.gather(-1, order)
        best = order.gather(-1, ranked.argmax(-1, True))
        values = rows.gather(-1, best)
        place = select(rows == values, _positions(rows, rows.ndim - 1), 0).amax(-1, True)
        found = Ordered(values.movedim(-1, axis), place.movedim(-1, axis))
        return found if keepdim else Ordered(found[0].squeeze(axis), found[1].squeeze(axis))

    def histc(self: Tensor, bins: int = 100, min: Scalar = 0, max: Scalar = 0) -> Tensor:
        """How many elements are in each of ``bins`` equal parts of a range.

        Without a range, or an empty one, the smallest and largest element are read now.
        """
        count = integer(bins, "bins")
        if count < 1:
            raise ShapeError(f"histc: bins is at least 1, not {count}")
        if self.dtype.kind != "f":
            raise DTypeError(f"histc takes floats, not {self.dtype.name}")
        low, high = _range_of(self, float(min), float(max), 1.0, "histc")
        x = self.ravel()
        place = ((x - low) * count / (high - low)).floor().clamp(0, count - 1)
        inside = (x >= low) & (x <= high)
        where = select(inside, place, 0.0).cast(dt.int64)
        return counts_of(select(inside, where, count), count).cast(self.dtype)

    def histogram(
        self: Tensor,
        bins: Any,
        *,
        range: Sequence[float] | None = None,
        weight: Tensor | None = None,
        density: bool = False,
    ) -> tuple[Tensor, Tensor]:
        """Counts in bins, a number of them or their edges, and the edges."""
        if self.dtype.kind != "f":
            raise DTypeError(f"histogram takes floats, not {self.dtype.name}")
        x = self.ravel()
        if isinstance(bins, Core):
            edges: Tensor = bins  # type: ignore[assignment]
        else:
            count = integer(bins, "bins")
            if count < 1:
                raise ShapeError(f"histogram: bins is at least 1, not {count}")
            low, high = (0.0, 0.0) if range is None else (float(range[0]), float(range[1]))
            if range is not None and low == high:
                low, high = low - 0.5, high + 0.5
            low, high = _range_of(self, low, high, 0.5, "histogram")
            edges = linspace(low, high, count + 1, dtype=self.dtype, device=self._device)
        size = edges.shape[0] - 1
        place = edges.contiguous().searchsorted(x, right=True) - 1
        place = select(x == edges[-1], size - 1, place)
        inside = (x >= edges[0]) & (x <= edges[-1])
        where = select(inside, place, size)
        if weight is None:
            found = counts_of(where, size).cast(self.dtype)
        else:
            start = wrap(B.full((size,), 0, self.dtype), self._device)
            given = select(inside, weight.ravel().cast(self.dtype), 0.0)
            found = start.scatter_add(0, select(inside, place, 0), given)
        if density:
            found = found / (found.sum() * (edges[1:] - edges[:-1]))
        return found, edges

    def cov(
        self: Tensor,
        *,
        correction: int = 1,
        fweights: Tensor | None = None,
        aweights: Tensor | None = None,
    ) -> Tensor:
        """The covariance of rows, each a variable observed in the columns."""
        if self.ndim > 2:
            raise ShapeError(f"cov takes at most 2 axes, not shape {self.shape}")
        x = wrap(float_node(self.uop), self._device)
        x = x.reshape(1, -1) if x.ndim < 2 else x
        if fweights is not None and not fweights.dtype.is_int:
            raise DTypeError(f"cov: fweights are counts (integers), not {fweights.dtype.name}")
        weights: Any = None
        for given in (fweights, aweights):
            if given is not None:
                if given.shape != (x.shape[1],):
                    raise ShapeError(f"cov: weights of shape {given.shape} for {x.shape}")
                weights = given if weights is None else weights * given
        if weights is None:
            total: Any = float(x.shape[1])
            mean = x.mean(1, True)
            rest: Any = max(total - correction, 0.0)
            apart = x - mean
            found = (apart @ apart.mH) / rest
        else:
            total = weights.sum()
            mean = (x * weights).sum(1, True) / total
            scale = 1.0 if aweights is None else (weights * aweights).sum() / total
            rest = (total - scale * correction).clamp(0)
            apart = x - mean
            found = (apart @ (apart * weights).mH) / rest
        return found.squeeze() if found.numel() == 1 else found

    def corrcoef(self: Tensor) -> Tensor:
        """The correlation of rows."""
        c = self.cov()
        if not c.ndim:
            return c / c
        scale = c.diagonal().real.sqrt()
        found = c / scale.unsqueeze(1) / scale.unsqueeze(0)
        if not found.dtype.is_complex:
            return found.clamp(-1, 1)
        return joined(found.real.clamp(-1, 1), found.imag.clamp(-1, 1))

    def unique_consecutive(
        self: Tensor,
        return_inverse: bool = False,
        return_counts: bool = False,
        dim: int | None = None,
    ) -> Any:
        """Runs of equal elements as one each; how many there are is read now."""
        if not self.ndim and dim is not None:
            axis_of(dim, 0)
        array = np.atleast_1d(self.numpy())
        rows = (
            array.reshape(-1, 1) if dim is None else np.moveaxis(array, axis_of(dim, self.ndim), 0)
        )
        flat = rows.reshape(len(rows), int(np.prod(rows.shape[1:])))
        starts = np.ones(len(flat), bool)
        starts[1:] = (flat[1:] != flat[:-1]).any(1)
        kept = rows[starts]
        values = kept.reshape(-1) if dim is None else np.moveaxis(kept, 0, axis_of(dim, self.ndim))
        found = [tensor_of(np.ascontiguousarray(values), self).cast(self.dtype)]
        if return_inverse:
            inverse = np.cumsum(starts) - 1
            found.append(tensor_of(inverse.reshape(array.shape) if dim is None else inverse, self))
        if return_counts:
            edges = np.append(np.flatnonzero(starts), len(flat))
            found.append(tensor_of(np.diff(edges), self))
        return found[0] if len(found) == 1 else tuple(found)

    def allclose(
        self: Tensor,
        other: Tensor,
        rtol: float = 1e-5,
        atol: float = 1e-8,
        equal_nan: bool = False,
    ) -> bool:
        """Whether all elements are equal within a tolerance; they are read now."""
        return bool(self.isclose(other, rtol, atol, equal_nan).all().item())

    def dist(self: Tensor, other: Tensor, p: Scalar = 2) -> Tensor:
        """The p-norm of the difference."""
        return (self - other).norm(p)


def _range_of(x: Tensor, low: float, high: float, margin: float, what: str) -> tuple[float, float]:
    """The range, or that of the elements where it is empty; equal elements get a margin."""
    if low == high:
        if not x.numel():
            return (low, low + 1)
        low, high = float(x.amin().item()), float(x.amax().item())
        if low == high:
            low, high = low - margin, high + margin
    if not (isfinite(low) and isfinite(high)):
        raise ShapeError(f"{what}: the range ({low}, {high}) is not finite")
    if low > high:
        raise ShapeError(f"{what}: max {high} is below min {low}")
    return low, high


# -- functions of torch that are no methods ----------------------------------------------------


def histogramdd(
    input: Tensor,
    bins: Any,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """How many of the points in the last axis are in each box, and the edges along each axis."""
    if input.ndim < 2:
        raise ShapeError(f"histogramdd needs at least 2 axes, not shape {input.shape}")
    columns = input.reshape(-1, input.shape[-1]).unbind(1)
    counts = list(bins) if isinstance(bins, (list, tuple)) else [bins] * len(columns)
    if len(counts) != len(columns):
        raise ShapeError(f"histogramdd: {len(counts)} bins for points of {len(columns)} numbers")
    if range is not None and len(range) != 2 * len(columns):
        raise ShapeError(f"histogramdd: the range has {len(range)} numbers, not {2 * len(columns)}")
    edges, place, inside, volume = [], 0, True, 1
    for i, (x, count) in enumerate(zip(columns, counts, strict=True)):
        span = None if range is None else range[2 * i : 2 * i + 2]
        edge = x.histogram(count, range=span)[1]
        size = edge.shape[0] - 1
        here = select(x == edge[-1], size - 1, edge.contiguous().searchsorted(x, right=True) - 1)
        place, inside = place * size + here, (x >= edge[0]) & (x <= edge[-1]) & inside
        volume = volume * (edge[1:] - edge[:-1]).reshape((-1,) + (1,) * (len(columns) - i - 1))
        edges.append(edge)
    sizes = tuple([e.shape[0] - 1 for e in edges])
    ones = input.ones_like().reshape(-1, input.shape[-1])[:, 0]
    amounts = select(inside, ones if weight is None else weight.ravel().cast(input.dtype), 0)
    start = wrap(B.full((prod(sizes),), 0, input.dtype), input._device)
    found = start.scatter_add(0, select(inside, place, 0), amounts).reshape(sizes)
    return (found / (found.sum() * volume) if density else found), tuple(edges)


def bucketize(
    input: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False
) -> Tensor:
    """The bucket of each value between sorted boundaries."""
    if boundaries.ndim != 1:
        raise ShapeError(f"bucketize: boundaries are a vector, not shape {boundaries.shape}")
    found = boundaries.searchsorted(tensor_of(input, boundaries), right=right)
    return found.cast(dt.int32) if out_int32 else found


def isin(
    elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False
) -> Tensor:
    """Whether each element is among the test elements."""
    x, y, device = pair(tensor_of(elements), tensor_of(test_elements))
    a, b = wrap(x, device), wrap(y, device).ravel()
    found = (a.unsqueeze(-1) == b).any(-1)
    return ~found if invert else found


def _steps(y: Tensor, x: Any, dx: Scalar | None, dim: int, what: str) -> tuple[Tensor, int]:
    """The areas between neighbours along an axis."""
    axis = real_axis(dim, y.shape, what)
    size = y.shape[axis]
    left, right = (
        y.narrow(axis, 0, max(size - 1, 0)),
        y.narrow(axis, min(1, size), max(size - 1, 0)),
    )
    middle = (left + right) / 2
    if x is None:
        return middle * (1 if dx is None else dx), axis
    places = tensor_of(x, y)
    if places.ndim == 1:
        if places.shape[0] != size:
            raise ShapeError(f"{what}: {places.shape[0]} places for {size} values")
        places = places.reshape([size if i == axis else 1 for i in range(y.ndim)])
        at = axis
    else:
        at = axis_of(dim, places.ndim)
    if not places.ndim:
        raise ShapeError(f"{what}: the places are a vector or like the values, not a number")
    count = places.shape[at]
    return middle * (places.narrow(at, 1, count - 1) - places.narrow(at, 0, count - 1)), axis


def trapezoid(y: Tensor, x: Any = None, *, dx: Scalar | None = None, dim: int = -1) -> Tensor:
    """The integral along an axis by the trapezoid rule."""
    areas, axis = _steps(y, x, dx, dim, "trapezoid")
    return areas.sum(axis)


def cumulative_trapezoid(
    y: Tensor, x: Any = None, *, dx: Scalar | None = None, dim: int = -1
) -> Tensor:
    """The integral up to each place along an axis by the trapezoid rule."""
    areas, axis = _steps(y, x, dx, dim, "cumulative_trapezoid")
    return areas.cumsum(axis)


def gradient(
    input: Tensor, *, spacing: Any = 1, dim: Axis = None, edge_order: int = 1
) -> tuple[Tensor, ...]:
    """Slopes by central differences along axes; at the ends by one-sided ones."""
    axes = axes_of(dim, input.ndim)
    spacing = 1 if spacing is None else spacing
    if edge_order not in (1, 2):
        raise ShapeError(f"gradient: edge_order is 1 or 2, not {edge_order}")
    gaps = list(spacing) if isinstance(spacing, (list, tuple)) else [spacing] * len(axes)
    if len(gaps) != len(axes):
        raise ShapeError(f"gradient: {len(gaps)} spacings for {len(axes)} axes")
    found = []
    for axis, gap in zip(axes, gaps, strict=True):
        size = input.shape[axis]
        if size < edge_order + 1:
            raise ShapeError(
                f"gradient: axis {axis} of {input.shape} needs {edge_order + 1} values"
            )
        x = wrap(float_node(input.uop), input._device)
        if isinstance(gap, Core):
            steps = gap[1:] - gap[:-1]  # type: ignore[index]
        else:
            steps = wrap(B.full((size - 1,), float(gap), x.dtype), None)
        line = [-1 if i == axis else 1 for i in range(x.ndim)]
        h = steps.cast(x.dtype).reshape(line)
        slope = (x.narrow(axis, 1, size - 1) - x.narrow(axis, 0, size - 1)) / h
        before, after = slope.narrow(axis, 0, size - 2), slope.narrow(axis, 1, size - 2)
        a, b = h.narrow(axis, 0, size - 2), h.narrow(axis, 1, size - 2)
        inner = (before * b + after * a) / (a + b)
        first, last = slope.narrow(axis, 0, 1), slope.narrow(axis, size - 2, 1)
        if edge_order == 2:
            first = first + (first - inner.narrow(axis, 0, 1))
            last = last + (last - inner.narrow(axis, size - 3, 1))
        found.append(concatenate([first, inner, last], axis))
    return tuple(found)
