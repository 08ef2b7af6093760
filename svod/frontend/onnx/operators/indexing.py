"""Elements by index: gathers, scatters, sorting, selection."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

import svod
from svod.dtype import types as dt
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.operators.host import settled, smaller
from svod.frontend.onnx.operators.shapes import HOST_LIMIT, count_up, numbers
from svod.frontend.onnx.registry import Host, Tensor, Value, operator
from svod.ir.node import UOp
from svod.ir.node import largest as most_of


@operator("Gather")
def gather(x: Value, indices: Value, *, axis: int = 0, node: NodeView) -> Value:
    is_known = isinstance(x, np.ndarray) and isinstance(indices, np.ndarray)
    if is_known and indices.dtype != object and indices.size <= HOST_LIMIT:
        return settled(np.asarray(np.take(x, indices, axis)))
    axis %= len(x.shape)
    x = node.tensor(x)
    lead = (slice(None),) * axis
    if isinstance(indices, np.ndarray) and indices.ndim == 0:
        place = indices.reshape(-1)[0]
        length = x.shape[axis]
        if isinstance(place, UOp):
            return x[(*lead, place)]
        place = int(place)
        return x[(*lead, place if place >= 0 or isinstance(length, int) else length + place)]
    return x[(*lead, node.tensor(indices))]


@operator("GatherElements")
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    return _take_along(x, _positive(indices, x.shape[axis]), axis)


def _take_along(x: Tensor, indices: Tensor, axis: int) -> Tensor:
    return x.gather(axis, indices.cast(dt.int64))


def _positive(indices: Tensor, size: Any) -> Tensor:
    indices = indices.cast(dt.int64)
    return svod.where(indices < 0, indices + size, indices)


def _flat_places(indices: Tensor, shape: tuple[Any, ...]) -> Tensor:
    """Positions in the flattened leading axes from the last axis of indices."""
    total: Any = None
    for axis in range(len(shape)):
        part = _positive(indices[..., axis], shape[axis]) * prod(shape[axis + 1 :])
        total = part if total is None else total + part
    return total


@operator("GatherND")
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    lead, depth = tuple(x.shape[:batch_dims]), indices.shape[-1]
    inner = tuple(x.shape[batch_dims : batch_dims + depth])
    rest = tuple(x.shape[batch_dims + depth :])
    flat = _flat_places(indices, inner)
    if batch_dims:
        steps = count_up(prod(lead)) * prod(inner)
        flat = flat + steps.reshape(*lead, *[1] * (flat.ndim - batch_dims))
    table = x.reshape(prod(lead) * prod(inner), *rest)
    return table[flat]


_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@operator("Scatter", "ScatterElements")
def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    places = _positive(indices, x.shape[axis])
    if reduction == "none":
        return x.scatter(axis, places, updates)
    return x.scatter_reduce(axis, places, updates, _REDUCTIONS[reduction])


@operator("ScatterND")
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    depth = indices.shape[-1]
    inner, rest = tuple(x.shape[:depth]), tuple(x.shape[depth:])
    count, width = prod(indices.shape[:-1]), prod(rest)
    flat = _flat_places(indices, inner).reshape(count, 1).expand(count, width)
    table = x.reshape(prod(inner), width)
    updates = updates.reshape(count, width)
    if reduction == "none":
        return table.scatter(0, flat, updates).reshape(x.shape)
    return table.scatter_reduce(0, flat, updates, _REDUCTIONS[reduction]).reshape(x.shape)


@operator("TensorScatter")
def tensor_scatter(
    past: Tensor, update: Tensor, write: Tensor | None = None, *, axis: int = -2,
    mode: str = "linear",
) -> Tensor:  # fmt: skip
    axis %= past.ndim
    shape = [1] * past.ndim
    shape[axis] = update.shape[axis]
    places = svod.arange(update.shape[axis], dtype=dt.int64).reshape(*shape)
    if write is not None:
        places = places + write.cast(dt.int64).reshape(-1, *[1] * (past.ndim - 1))
    if mode == "circular":
        places = places.remainder(past.shape[axis])
    return past.scatter(axis, places.expand(*update.shape), update)


@operator("OneHot")
def one_hot(indices: Tensor, depth: Host, values: Tensor, *, axis: int = -1) -> Tensor:
    count = int(depth.reshape(-1)[0])
    rank = indices.ndim + 1
    axis %= rank
    places = indices if indices.dtype.is_int else indices.cast(dt.int64)
    places = _positive(places, count).unsqueeze(axis)
    shape = [count if i == axis else 1 for i in range(rank)]
    hit = places == svod.arange(count, dtype=dt.int64).reshape(*shape)
    return svod.where(hit, values[1], values[0])


def _top(x: Tensor, k: int, axis: int, largest: int, sorted: int) -> tuple[Tensor, Tensor]:
    """Values and their places, the first of equal ones first."""
    axis %= x.ndim
    found = svod.sort(x, dim=axis, descending=bool(largest), stable=True)
    cut = (slice(None),) * axis + (slice(0, k),)
    return found[0][cut], found[1].cast(dt.int64)[cut]


@operator("TopK", since=10)
def top_k(
    x: Tensor, k: Value, *, axis: int = -1, largest: int = 1, sorted: int = 1, node: NodeView
) -> tuple[Tensor, Tensor]:
    length = x.shape[axis]
    count = numbers(node.host(k, most=most_of(length)))[0]
    if isinstance(count, UOp) or isinstance(length, UOp):
        count = smaller(count, length)  # it is no more than that, but for proofs
    return _top(x, count, axis, largest, sorted)


@operator("TopK")
def top_k_by_attribute(x: Tensor, *, k: int, axis: int = -1) -> tuple[Tensor, Tensor]:
    return _top(x, k, axis, 1, 1)


def _cumulated(x: Tensor, axis: Host, exclusive: int, reverse: int, kind: str) -> Tensor:
    place = int(axis.reshape(-1)[0]) % x.ndim
    x = x.flip(place) if reverse else x
    if exclusive:
        lead = (slice(None),) * place
        first = svod.full(
            [1 if i == place else n for i, n in enumerate(x.shape)], kind == "prod", dtype=x.dtype
        )
        x = svod.concat([first, x[(*lead, slice(0, x.shape[place] - 1))]], axis=place)
    found = x.cumsum(place, dtype=x.dtype) if kind == "sum" else x.cumprod(place, dtype=x.dtype)
    return found.flip(place) if reverse else found


@operator("CumSum")
def cum_sum(x: Tensor, axis: Host, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _cumulated(x, axis, exclusive, reverse, "sum")


@operator("CumProd")
def cum_prod(x: Tensor, axis: Host, *, exclusive: int = 0, reverse: int = 0) -> Tensor:
    return _cumulated(x, axis, exclusive, reverse, "prod")


@operator("ReverseSequence")
def reverse_sequence(
    x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    steps = x.shape[time_axis]
    shape = [1] * x.ndim
    shape[time_axis] = steps
    time = svod.arange(steps, dtype=dt.int64).reshape(*shape)
    shape = [1] * x.ndim
    shape[batch_axis] = x.shape[batch_axis]
    ends = lengths.cast(dt.int64).reshape(*shape)
    places = svod.where(time < ends, ends - 1 - time, time)
    return x.gather(time_axis, places.expand(*x.shape))


@operator("NonZero")
def non_zero(x: Host) -> Value:
    return (
        np.stack(np.nonzero(x)).astype(np.int64)
        if x.ndim
        else (np.zeros((0, int(bool(x))), np.int64))
    )


@operator("Compress")
def compress(x: Value, condition: Host, *, axis: int | None = None) -> Value:
    chosen = np.flatnonzero(condition)
    if axis is None:
        x, axis = x.reshape(-1), 0
    axis %= x.ndim
    chosen = chosen[chosen < x.shape[axis]]
    if isinstance(x, np.ndarray):
        return settled(np.take(x, chosen, axis))
    if not chosen.size:
        return x[(slice(None),) * axis + (slice(0, 0),)]
    return x[(slice(None),) * axis + (Tensor(chosen),)]


@operator("Unique")
def unique(x: Host, *, axis: int | None = None, sorted: int = 1) -> tuple[Value, ...]:
    found, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = np.argsort(first, kind="stable")
        found = np.take(found, order, axis=0 if axis is None else axis)
        inverse = np.argsort(order, kind="stable")[inverse]
        first, counts = first[order], counts[order]
    return found, first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


@operator("NonMaxSuppression")
def non_max_suppression(
    boxes: Host, scores: Host, most: Host | None = None, overlap: Host | None = None,
    least: Host | None = None, *, center_point_box: int = 0,
) -> Value:  # fmt: skip
    limit = int(most.reshape(-1)[0]) if most is not None else 0
    threshold = float(overlap.reshape(-1)[0]) if overlap is not None else 0.0
    floor = float(least.reshape(-1)[0]) if least is not None else None
    chosen: list[tuple[int, int, int]] = []
    for batch in range(scores.shape[0]):
        corners = _corners(boxes[batch], center_point_box)
        for label in range(scores.shape[1]):
            kept = _suppressed(corners, scores[batch, label], limit, threshold, floor)
            chosen += [(batch, label, k) for k in kept]
    return np.array(chosen, np.int64).reshape(-1, 3)


def _corners(boxes: Any, is_center: int) -> Any:
    if is_center:
        x, y, w, h = boxes.T
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], 1)
    low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
    return np.concatenate([low, high], 1)


def _suppressed(
    boxes: Any, scores: Any, limit: int, threshold: float, floor: float | None
) -> list[int]:
    """The best boxes, each without those that overlap it too much."""
    order = np.argsort(-scores, kind="stable")
    if floor is not None:
        order = order[scores[order] > floor]
    area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    kept: list[int] = []
    while order.size and len(kept) < limit:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        low = np.maximum(boxes[order, :2], boxes[best, :2])
        high = np.minimum(boxes[order, 2:], boxes[best, 2:])
        common = np.clip(high - low, 0, None).prod(1)
        union = area[order] + area[best] - common
        order = order[~(common > threshold * union) | (union <= 0)]
    return kept
