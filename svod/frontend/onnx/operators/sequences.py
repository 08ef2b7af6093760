"""Sequences and optional values: lists on the host, whose elements are tensors or arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

import svod
from svod.frontend.onnx.errors import OnnxError
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.operators.host import settled
from svod.frontend.onnx.operators.shapes import _split, numbers
from svod.frontend.onnx.registry import Array, Host, Value, operator


def _place(position: Array | None, length: int, extra: int = 0) -> int:
    """A position in a sequence; the end where none is given."""
    if position is None:
        return length - 1 + extra
    place = int(position.reshape(-1)[0])
    place += length if place < 0 else 0
    if not 0 <= place < length + extra:
        raise OnnxError(f"position {place} of a sequence of {length}")
    return place


@operator("SequenceEmpty")
def sequence_empty(*, dtype: int = 1) -> Value:
    return []


@operator("SequenceConstruct")
def sequence_construct(*values: Value) -> Value:
    return list(values)


@operator("SequenceInsert")
def sequence_insert(sequence: Value, value: Value, position: Host | None = None) -> Value:
    place = _place(position, len(sequence), 1)
    return [*sequence[:place], value, *sequence[place:]]


@operator("SequenceErase")
def sequence_erase(sequence: Value, position: Host | None = None) -> Value:
    place = _place(position, len(sequence))
    return [*sequence[:place], *sequence[place + 1 :]]


@operator("SequenceAt")
def sequence_at(sequence: Value, position: Host) -> Value:
    return sequence[_place(position, len(sequence))]


@operator("SequenceLength")
def sequence_length(sequence: Value) -> Value:
    return np.array(len(sequence), np.int64)


@operator("ConcatFromSequence")
def concat_from_sequence(sequence: Value, *, axis: int, new_axis: int = 0, node: NodeView) -> Value:
    if all(isinstance(v, np.ndarray) for v in sequence):
        return settled((np.stack if new_axis else np.concatenate)(sequence, axis))
    tensors = [node.tensor(v) for v in sequence]
    return svod.stack(tensors, dim=axis) if new_axis else svod.concat(tensors, axis=axis)


@operator("SplitToSequence")
def split_to_sequence(
    x: Value, split: Host | None = None, *, axis: int = 0, keepdims: int = 1, node: NodeView
) -> Value:
    length = x.shape[axis % x.ndim]
    if split is None:
        sizes = [1] * length
    elif split.ndim == 0:
        step = int(split)
        sizes = [min(step, length - i) for i in range(0, length, step)]
    else:
        sizes = numbers(split)
    parts = _split(x, sizes, axis, None, node)
    if split is not None or keepdims:
        return list(parts)
    axis %= x.ndim
    return [p.reshape(tuple([n for i, n in enumerate(p.shape) if i != axis])) for p in parts]


@operator("SequenceMap")
def sequence_map(sequence: Value, *others: Value, body: Any, node: NodeView) -> Any:
    outs = []
    for i, value in enumerate(sequence):
        rest = [o[i] if isinstance(o, list) else o for o in others]
        outs.append(node.run(body, [value, *rest]))
    return tuple([list(column) for column in zip(*outs, strict=True)])


@operator("Optional")
def optional(value: Value = None, *, type: Any = None) -> Value:
    return value


@operator("OptionalHasElement")
def optional_has_element(value: Value = None) -> Value:
    return np.array(value is not None)


@operator("OptionalGetElement")
def optional_get_element(value: Value) -> Value:
    if value is None:
        raise OnnxError("the optional value is empty")
    return value


@operator("Identity")
def identity(x: Value) -> Value:
    return x
