"""Operators whose data say how many results there are: at most how many, and of what shapes.

A plan ends before such an operator and another one starts after it, with the number of results as
a Variable. In: a node whose inputs are tensors or arrays. Out: a bound of the number, and the
shapes and dtypes of all outputs for a number, which may be a run-time size.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.frontend.onnx import registry
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.registry import Tensor, Value
from svod.frontend.onnx.types import element_of_array
from svod.ir.node import UOp, largest

Size = UOp | int
Shapes = list[tuple[tuple[Size, ...], DType]]


@dataclass(frozen=True)
class Counted:
    """What is known of a node before its data are there."""

    most: int | None  # results; None where nothing bounds them
    shapes: Callable[[Size], Shapes]  # of the outputs, for a number of results
    axis: int  # of the first output, which has as many elements as there are results

    def number(self, outputs: list[Value]) -> int:
        """How many results there are."""
        return int(np.shape(outputs[0])[self.axis])


def counted(view: NodeView) -> Counted | None:
    """What is known of a node whose data say how many results there are; None for other nodes."""
    find = _COUNTED.get(view.proto.op_type)
    operator = registry.find("", view.proto.op_type, view.version)
    if find is None or view.proto.domain not in ("", "ai.onnx") or operator is None:
        return None
    if not all(v is None or isinstance(v, (Tensor, np.ndarray)) for v in view.inputs):
        return None
    return find(view.inputs, view.arguments(operator))


def _non_zero(inputs: list[Value], _: dict[str, Any]) -> Counted:
    (x,) = inputs
    return Counted(_most(x.shape), lambda n: [((len(x.shape), n), dt.int64)], 1)


def _unique(inputs: list[Value], attributes: dict[str, Any]) -> Counted:
    x, axis = inputs[0], attributes.get("axis")
    if axis is None:
        lead, rest, size = (), (), prod(x.shape)
    else:
        axis %= len(x.shape)
        lead, rest, size = tuple(x.shape[:axis]), tuple(x.shape[axis + 1 :]), x.shape[axis]

    def shapes(n: Size) -> Shapes:
        places = [((n,), dt.int64), ((size,), dt.int64), ((n,), dt.int64)]
        return [((*lead, n, *rest), _dtype(x)), *places]

    return Counted(int(largest(size)), shapes, len(lead))


def _compress(inputs: list[Value], attributes: dict[str, Any]) -> Counted:
    x, condition = inputs
    axis = attributes.get("axis")
    if axis is None:
        return Counted(_most(condition.shape), lambda n: [((n,), _dtype(x))], 0)
    axis %= len(x.shape)
    lead, rest = tuple(x.shape[:axis]), tuple(x.shape[axis + 1 :])
    most = min(int(largest(x.shape[axis])), _most(condition.shape))
    return Counted(most, lambda n: [((*lead, n, *rest), _dtype(x))], axis)


def _suppression(inputs: list[Value], _: dict[str, Any]) -> Counted:
    batches, labels, boxes = [int(largest(n)) for n in inputs[1].shape]
    limit = inputs[2] if len(inputs) > 2 else None
    if isinstance(limit, np.ndarray) and limit.size and limit.dtype != object:
        boxes = min(boxes, max(int(limit.flat[0]), 0))
    return Counted(batches * labels * boxes, lambda n: [((n, 3), dt.int64)], 0)


def _range(inputs: list[Value], _: dict[str, Any]) -> Counted:
    return Counted(None, lambda n: [((n,), _dtype(inputs[0]))], 0)


_COUNTED: dict[str, Callable[[list[Value], dict[str, Any]], Counted]] = {
    "NonZero": _non_zero, "Unique": _unique, "Compress": _compress,
    "NonMaxSuppression": _suppression, "Range": _range,
}  # fmt: skip


def _most(shape: Any) -> int:
    return prod([int(largest(n)) for n in shape])


def _dtype(value: Value) -> DType:
    if isinstance(value, Tensor):
        return value.dtype
    found = element_of_array(value)
    return found.carrier if found is not None and value.dtype != object else dt.int64
