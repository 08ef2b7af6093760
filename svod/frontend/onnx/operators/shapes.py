"""Shapes: the same elements in another arrangement, and constants of a shape.

Most of these take what they are given, arrays or tensors, so shapes are computed while importing.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

import svod
from svod.base.errors import UnsupportedError, VariableError
from svod.dtype import types as dt
from svod.frontend.onnx.errors import OnnxError
from svod.frontend.onnx.importer import NodeView, size_tensor
from svod.frontend.onnx.limits import check_host
from svod.frontend.onnx.operators.host import larger, settled, smaller
from svod.frontend.onnx.registry import Array, Host, Tensor, Value, operator
from svod.frontend.onnx.types import element, to_carrier
from svod.ir.node import UOp, largest

HOST_LIMIT = 4096  # elements of arrays that are made on the host


def numbers(array: Array | None) -> list[Any]:
    """A list of whole numbers and sizes."""
    return [] if array is None else [v if isinstance(v, UOp) else int(v) for v in array.reshape(-1)]


def sizes_array(sizes: Any) -> Array:
    """Sizes as an array: int64, or objects where some vary."""
    if any(isinstance(n, UOp) for n in sizes):
        found = np.empty(len(sizes), object)
        found[:] = list(sizes)
        return found
    return np.array(list(sizes), np.int64)


def shape_of(x: Value) -> tuple[Any, ...]:
    return tuple(x.shape)


@operator("Shape")
def shape(x: Value, *, start: int = 0, end: int | None = None) -> Array:
    return sizes_array(shape_of(x)[start:end])


@operator("Size")
def size(x: Value) -> Array:
    return settled(np.array(prod(shape_of(x)), object))


@operator("Constant")
def constant(
    *, value: Any = None, value_float: float | None = None, value_floats: Any = None,
    value_int: int | None = None, value_ints: Any = None, value_string: str | None = None,
    value_strings: Any = None, sparse_value: Any = None, node: NodeView,
) -> Value:  # fmt: skip
    if value is not None:
        proto = next(a for a in node.proto.attributes if a.name == "value")
        number = proto.t.data_type if proto.t is not None else 0
        if number and element(number).is_narrow:
            node.set_kind(number)
        return to_carrier(value)
    if sparse_value is not None:
        return node.importer.sparse(sparse_value)
    for found, kind in (
        (value_float, np.float32), (value_floats, np.float32), (value_int, np.int64),
        (value_ints, np.int64), (value_string, object), (value_strings, object),
    ):  # fmt: skip
        if found is not None:
            return np.array(found, kind)
    raise OnnxError("a Constant without a value")


@operator("ConstantOfShape")
def constant_of_shape(shape: Host, *, value: Any = None, node: NodeView) -> Value:
    fill = np.zeros(1, np.float32) if value is None else value.reshape(-1)
    sizes = numbers(shape)
    if not any(isinstance(n, UOp) for n in sizes) and prod(sizes) <= HOST_LIMIT:
        return np.full(sizes, to_carrier(fill)[0])
    return node.tensor(to_carrier(fill)).reshape(*[1] * len(sizes)).expand(*sizes)


@operator("EyeLike")
def eye_like(x: Value, *, dtype: int | None = None, k: int = 0, node: NodeView) -> Tensor:
    rows, columns = shape_of(x)
    kind = element(dtype if dtype is not None else node.element(0))
    i = svod.arange(rows).reshape(-1, 1)
    return (svod.arange(columns).reshape(1, -1) - i == k).cast(kind.carrier)


@operator("Reshape", since=5)
def reshape(x: Value, shape: Host, *, allowzero: int = 0) -> Value:
    own = shape_of(x)
    wanted = [
        own[i] if isinstance(n, int) and n == 0 and not allowzero and i < len(own) else n
        for i, n in enumerate(numbers(shape))
    ]
    if -1 in [n for n in wanted if isinstance(n, int)] and 0 in own and not allowzero:
        known = prod([n for n in wanted if n != -1])
        if known == 0:
            wanted = [0 if isinstance(n, int) and n == -1 else n for n in wanted]
    return x.reshape(*wanted) if wanted else x.reshape(())


@operator("Reshape")
def reshape_by_attribute(x: Value, *, shape: list[int], consumed_inputs: Any = None) -> Value:
    return reshape(x, np.array(shape, np.int64))


@operator("Flatten")
def flatten(x: Value, *, axis: int = 1) -> Value:
    own = shape_of(x)
    axis += len(own) if axis < 0 else 0
    return x.reshape(prod(own[:axis]), prod(own[axis:]))


@operator("Transpose")
def transpose(x: Value, *, perm: list[int] | None = None) -> Value:
    order = perm if perm is not None else list(range(x.ndim))[::-1]
    if isinstance(x, np.ndarray):
        return x.transpose(order)
    return x.permute(*order) if order else x


def _squeeze(x: Value, axes: list[int]) -> Value:
    own = shape_of(x)
    if not axes:
        axes = [i for i, n in enumerate(own) if not isinstance(n, UOp) and n == 1]
    gone = {a % len(own) for a in axes} if own else set()
    if any(not isinstance(own[a], UOp) and own[a] != 1 for a in gone):
        raise OnnxError(f"Squeeze of axes {sorted(gone)} of shape {list(own)}: not all are 1")
    return x.reshape(tuple([n for i, n in enumerate(own) if i not in gone]))


def _unsqueeze(x: Value, axes: list[int]) -> Value:
    own = list(shape_of(x))
    rank = len(own) + len(axes)
    for axis in sorted([a + rank if a < 0 else a for a in axes]):
        own.insert(axis, 1)
    return x.reshape(tuple(own))


@operator("Squeeze", since=13)
def squeeze(x: Value, axes: Host | None = None) -> Value:
    return _squeeze(x, numbers(axes))


@operator("Squeeze")
def squeeze_by_attribute(x: Value, *, axes: list[int] | None = None) -> Value:
    return _squeeze(x, axes or [])


@operator("Unsqueeze", since=13)
def unsqueeze(x: Value, axes: Host) -> Value:
    return _unsqueeze(x, numbers(axes))


@operator("Unsqueeze")
def unsqueeze_by_attribute(x: Value, *, axes: list[int]) -> Value:
    return _unsqueeze(x, axes)


@operator("Expand")
def expand(x: Value, shape: Host, *, node: NodeView) -> Value:
    wanted, own = numbers(shape), list(shape_of(x))
    rank = max(len(wanted), len(own))
    wanted = [1] * (rank - len(wanted)) + wanted
    own = [1] * (rank - len(own)) + own
    target = [a if isinstance(b, int) and b == 1 else b for a, b in zip(own, wanted, strict=True)]
    is_known = not any(isinstance(n, UOp) for n in target)
    if isinstance(x, np.ndarray) and is_known and prod(target) <= HOST_LIMIT:
        return np.broadcast_to(x, target)
    return node.tensor(x).reshape(*own).expand(*target)


@operator("Concat")
def concat(*xs: Value, axis: int = 1, node: NodeView) -> Value:
    if all(isinstance(x, np.ndarray) for x in xs):
        return settled(np.concatenate(xs, axis))
    tensors = [node.tensor(x) for x in xs]
    kept = [t for t in tensors if not _is_empty(t)] or tensors[:1]
    return svod.concat(kept, axis=axis) if len(kept) > 1 else kept[0]


def _is_empty(x: Tensor) -> bool:
    return any(isinstance(n, int) and n == 0 for n in x.shape)


@operator("Split", since=13)
def split(
    x: Value, split: Host | None = None, *, axis: int = 0, num_outputs: int | None = None,
    node: NodeView,
) -> tuple[Value, ...]:  # fmt: skip
    return _split(x, numbers(split) if split is not None else None, axis, num_outputs, node)


@operator("Split", since=2)
def split_by_attribute(
    x: Value, *, split: list[int] | None = None, axis: int = 0, node: NodeView
) -> tuple[Value, ...]:
    return _split(x, split, axis, None, node)


@operator("Split")
def split_first(
    x: Value, sizes: Host | None = None, *, split: list[int] | None = None, axis: int = 0,
    node: NodeView,
) -> tuple[Value, ...]:  # fmt: skip
    return _split(x, numbers(sizes) if sizes is not None else split, axis, None, node)


def _split(
    x: Value, sizes: list[Any] | None, axis: int, count: int | None, node: NodeView
) -> tuple[Value, ...]:
    axis %= x.ndim
    length = x.shape[axis]
    if sizes is None:
        count = count or len(node.proto.outputs)
        step = -(-length // count)
        sizes = [step] * (count - 1) + [length - step * (count - 1)]
    parts, start = [], 0
    for n in sizes:
        parts.append(x[(slice(None),) * axis + (slice(start, start + n),)])
        start = start + n
    return tuple(parts)


@operator("Slice", since=10)
def slice_(
    x: Value, starts: Host, ends: Host, axes: Host | None = None, steps: Host | None = None
) -> Value:
    first, last = numbers(starts), numbers(ends)
    return _sliced(x, first, last, numbers(axes) if axes is not None else None, numbers(steps))


@operator("Slice")
def slice_by_attributes(
    x: Value, *, starts: list[int], ends: list[int], axes: list[int] | None = None
) -> Value:
    return _sliced(x, starts, ends, axes, [])


def _sliced(
    x: Value, starts: list[Any], ends: list[Any], axes: list[int] | None, steps: list[int]
) -> Value:
    chosen = list(range(len(starts))) if axes is None else axes
    steps = steps or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, chosen, steps, strict=True):
        axis %= x.ndim
        x = _sliced_axis(x, axis, start, end, step)
    return x


def _sliced_axis(x: Value, axis: int, start: Any, end: Any, step: int) -> Value:
    length = x.shape[axis]
    lead = (slice(None),) * axis
    if isinstance(length, int) and isinstance(start, int) and isinstance(end, int):
        found = range(
            *slice(start, end if step > 0 or end >= -length else None, step).indices(length)
        )
        if isinstance(x, np.ndarray):
            return x[(*lead, np.array(found, np.int64))]
        if not found:
            return x[(*lead, slice(0, 0))]
        if found.step < 0:
            piece = x[(*lead, slice(found[-1], found[0] + 1))].flip(axis)
            return piece[(*lead, slice(None, None, -found.step))] if found.step < -1 else piece
        return x[(*lead, slice(found[0], found[-1] + 1, found.step))]
    if isinstance(x, np.ndarray):
        if x.dtype == object:
            raise VariableError("a slice of sizes by a run-time size is not supported")
        x = Tensor(x)
    most = largest(length)
    if (step, start) == (-1, -1) and isinstance(end, int) and end < -most:
        return x.flip(axis)
    if isinstance(end, int) and end >= most:
        end = length
    elif isinstance(end, UOp) and end.vmin >= 0:
        end = smaller(end, length)
    return x[(*lead, slice(_from_end(start, length), _from_end(end, length), step))]


def _from_end(place: Any, length: Any) -> Any:
    if isinstance(place, int):
        return place if place >= 0 else length + place
    return place if place.vmin >= 0 else length + place if place.vmax < 0 else place


@operator("Tile", since=6)
def tile(x: Tensor, repeats: Host) -> Tensor:
    times = numbers(repeats)
    if any(isinstance(n, int) and n == 0 for n in times):
        return svod.zeros([a * b for a, b in zip(x.shape, times, strict=True)], dtype=x.dtype)
    spread = [n for pair in zip(times, x.shape, strict=True) for n in pair]
    start = [n for size in x.shape for n in (1, size)]
    total = [a * b for a, b in zip(times, x.shape, strict=True)]
    return x.reshape(*start).expand(*spread).reshape(*total) if total else x


@operator("Range")
def range_(start: Host, limit: Host, delta: Host, *, node: NodeView) -> Value:
    low, high, step = start.reshape(-1)[0], limit.reshape(-1)[0], delta.reshape(-1)[0]
    if not any(isinstance(v, UOp) for v in (low, high, step)):
        count = max(int(np.ceil((float(high) - float(low)) / float(step))), 0)
        kind = np.int64 if start.dtype == object else start.dtype
        if count <= HOST_LIMIT:
            wide = np.float64 if np.dtype(kind).kind not in "iu" else np.int64
            return (np.arange(count).astype(wide) * wide(step) + wide(low)).astype(kind)
        found = svod.arange(count, dtype=dt.int64) * step.item() + low.item()
        return found.cast(element(node.element(0)).carrier)
    if isinstance(step, UOp) or int(step) <= 0:
        raise VariableError("a Range of a run-time size goes up by a known step")
    count = larger((high - low + (int(step) - 1)) // int(step), 0)
    places = count_up(count, node.device) * int(step)
    return places + size_tensor(low, node.device)


def count_up(count: Any, device: str | None = None) -> Tensor:
    """0, 1, 2, .. below a size, which may vary."""
    return svod.arange(count, dtype=dt.int64, device=device)


@operator("Trilu")
def trilu(x: Tensor, k: Host | None = None, *, upper: int = 1) -> Tensor:
    offset = int(k.reshape(-1)[0]) if k is not None else 0
    if 0 in x.shape:
        return x
    return x.triu(offset) if upper else x.tril(offset)


@operator("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        x = x.reshape(n, b, b, c // (b * b), h, w).permute(0, 3, 4, 1, 5, 2)
    else:
        x = x.reshape(n, c // (b * b), b, b, h, w).permute(0, 1, 4, 2, 5, 3)
    return x.reshape(n, c // (b * b), h * b, w * b)


@operator("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    x = x.reshape(n, c, h // b, b, w // b, b)
    x = x.permute(0, 3, 5, 1, 2, 4) if mode == "DCR" else x.permute(0, 1, 3, 5, 2, 4)
    return x.reshape(n, c * b * b, h // b, w // b)


@operator("Pad", since=11)
def pad(
    x: Tensor, pads: Host, value: Tensor | None = None, axes: Host | None = None, *,
    mode: str = "constant",
) -> Tensor:  # fmt: skip
    amounts = numbers(pads)
    chosen = [a % x.ndim for a in numbers(axes)] if axes is not None else list(range(x.ndim))
    half = len(amounts) // 2
    for position, axis in enumerate(chosen):
        x = pad_axis(x, axis, amounts[position], amounts[position + half], mode, value)
    return x


@operator("Pad", since=2)
def pad_by_attributes(
    x: Tensor, *, pads: list[int], mode: str = "constant", value: float = 0.0, node: NodeView
) -> Tensor:
    return pad(x, np.array(pads), svod.full((), value, dtype=x.dtype), mode=mode)


@operator("Pad")
def pad_first(
    x: Tensor, *, paddings: list[int], mode: str = "constant", value: float = 0.0
) -> Tensor:
    return pad(x, np.array(paddings), svod.full((), value, dtype=x.dtype), mode=mode)


def pad_axis(
    x: Tensor, axis: int, before: Any, after: Any, mode: str, value: Tensor | None
) -> Tensor:
    """Borders of one axis; negative ones cut."""
    length = x.shape[axis]
    lead = (slice(None),) * axis
    cut = [max(-n, 0) if isinstance(n, int) else 0 for n in (before, after)]
    if any(cut):
        x = x[(*lead, slice(cut[0], length - cut[1]))]
        before, after = max(before, 0), max(after, 0)
        length = length - cut[0] - cut[1]
    if isinstance(before, int) and isinstance(after, int) and before == after == 0:
        return x
    if mode == "constant":
        amounts = [0, 0] * (x.ndim - 1 - axis) + [before, after]
        if value is None:
            return x.pad(amounts)
        inside = svod.ones([1 if i != axis else length for i in range(x.ndim)], dtype=dt.bool_)
        return svod.where(inside.pad(amounts), x.pad(amounts), value.reshape(()))
    check_host(before + length + after)
    places = np.arange(-before, length + after)
    if mode == "edge":
        places = places.clip(0, length - 1)
    elif mode == "wrap":
        places = places % length
    elif mode == "reflect":
        period = max(2 * (length - 1), 1)
        places = np.abs((places + length - 1) % period - (length - 1)) if length > 1 else places * 0
    else:
        raise UnsupportedError(f"Pad mode {mode!r} is not supported")
    return x[(*lead, Tensor(places))]


@operator("CenterCropPad")
def center_crop_pad(x: Tensor, shape: Host, *, axes: list[int] | None = None) -> Tensor:
    chosen = axes if axes is not None else list(range(x.ndim))
    for axis, wanted in zip(chosen, numbers(shape), strict=True):
        axis %= x.ndim
        extra = wanted - x.shape[axis]
        before = extra // 2 if extra > 0 else -((-extra) // 2)
        x = pad_axis(x, axis, before, extra - before, "constant", None)
    return x
