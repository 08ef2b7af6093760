"""The training domain: gradients of a part of the graph, and steps of optimisers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import svod
from svod.dtype import types as dt
from svod.frontend.onnx.errors import OnnxError
from svod.frontend.onnx.importer import NodeView, Scope
from svod.frontend.onnx.registry import Tensor, Value, operator
from svod.frontend.onnx.wire import Message

TRAINING = "ai.onnx.preview.training"


@operator("Gradient", domain=TRAINING)
def gradient(*inputs: Value, xs: Any, y: str, zs: Any = None, node: NodeView) -> Any:
    """The gradients of y by xs, at the values that the inputs give to xs and zs."""
    names = [*xs, *(zs or [])]
    if len(names) != len(inputs):
        raise OnnxError(f"Gradient names {len(names)} tensors and has {len(inputs)} inputs")
    inside = _between(node.importer.model.graph.nodes, set(names), y)
    fixed = [node.tensor(v) for v in inputs[len(xs) :]]

    def total(*values: Tensor) -> Tensor:
        scope = Scope(node.scope.versions, node.scope)
        scope.values.update(zip(names, [*values, *fixed], strict=True))
        node.importer.nodes(inside, scope)
        return node.tensor(node.importer.value(y, scope, "Gradient")).sum()

    points = [node.tensor(v) for v in inputs[: len(xs)]]
    found = svod.grad(total, tuple(range(len(points))))(*points)
    return tuple(found)


def _between(nodes: list[Message], starts: set[str], end: str) -> list[Message]:
    """The nodes on the ways from some values to another one."""
    reached, chosen = set(starts), []
    for proto in nodes:
        if reached & set(proto.inputs) and not starts & set(proto.outputs):
            chosen.append(proto)
            reached |= set(proto.outputs)
        if end in proto.outputs:
            break
    wanted, needed = {end}, []
    for proto in reversed(chosen):
        if wanted & set(proto.outputs):
            needed.append(proto)
            wanted |= set(proto.inputs)
    return needed[::-1]


def _stepped(
    tensors: tuple[Tensor, ...], each: int, step: Callable[..., tuple[Tensor, ...]]
) -> tuple[Tensor, ...]:
    """A step for each parameter: first come all parameters, then gradients, then states."""
    count = len(tensors) // each
    if count * each != len(tensors):
        raise OnnxError(f"{len(tensors)} tensors are no groups of {each}")
    found = [step(*tensors[i::count]) for i in range(count)]
    return tuple([part for parts in zip(*found, strict=True) for part in parts])


@operator("Adagrad", domain=TRAINING)
def adagrad(
    rate: Tensor, count: Tensor, *tensors: Tensor, decay_factor: float = 0.0,
    epsilon: float = 1e-6, norm_coefficient: float = 0.0,
) -> Any:  # fmt: skip
    slower = rate / (1 + count.cast(rate.dtype) * decay_factor)

    def step(x: Tensor, g: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        g = norm_coefficient * x + g
        squares = h + g * g
        return x - slower * g / (squares.sqrt() + epsilon), squares

    return _stepped(tensors, 3, step)


@operator("Adam", domain=TRAINING)
def adam(
    rate: Tensor, count: Tensor, *tensors: Tensor, alpha: float = 0.9, beta: float = 0.999,
    epsilon: float = 1e-6, norm_coefficient: float = 0.0, norm_coefficient_post: float = 0.0,
) -> Any:  # fmt: skip
    power = count.cast(dt.float64)
    scale = (1 - beta**power).sqrt() / (1 - svod.where(count > 0, alpha**power, 0.0))
    rate = (rate * svod.where(count > 0, scale, 1.0)).cast(rate.dtype)

    def step(x: Tensor, g: Tensor, v: Tensor, h: Tensor) -> tuple[Tensor, ...]:
        g = norm_coefficient * x + g
        v = alpha * v + (1 - alpha) * g
        h = beta * h + (1 - beta) * g * g
        x = x - rate * (v / (h.sqrt() + epsilon))
        return (1 - norm_coefficient_post) * x, v, h

    return _stepped(tensors, 4, step)


@operator("Momentum", domain=TRAINING)
def momentum(
    rate: Tensor, count: Tensor, *tensors: Tensor, alpha: float, beta: float, mode: str,
    norm_coefficient: float,
) -> Any:  # fmt: skip
    share = svod.where(count > 0, beta, 1.0).cast(rate.dtype)

    def step(x: Tensor, g: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        g = norm_coefficient * x + g
        v = alpha * v + share * g
        return x - rate * (g + alpha * v if mode == "nesterov" else v), v

    return _stepped(tensors, 3, step)
