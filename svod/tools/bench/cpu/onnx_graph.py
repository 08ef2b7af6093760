"""The operators of `work` as an ONNX graph, for the runtimes that take such files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from svod.tools.bench.cpu.operators import EPSILON
from svod.tools.bench.cpu.work import Work
from svod.tools.bench.models import Array

OPSET = 20
FORMAT = 9  # of the file: what runtimes of that opset read


class Value:
    """A tensor of the graph, by name."""

    __slots__ = ("graph", "name")

    def __init__(self, graph: Graph, name: str) -> None:
        self.graph, self.name = graph, name

    def __add__(self, other: Value) -> Value:
        return self.graph.node("Add", self, other)

    def __mul__(self, other: Value) -> Value:
        return self.graph.node("Mul", self, other)

    def __matmul__(self, other: Value) -> Value:
        return self.graph.node("MatMul", self, other)

    def __neg__(self) -> Value:
        return self.graph.node("Neg", self)

    def reshape(self, *shape: int) -> Value:
        return self.graph.node("Reshape", self, self.graph.integers(shape))

    def __getitem__(self, key: tuple[slice | int, ...]) -> Value:
        """Slices without steps, then the axes of single places dropped."""
        starts, ends, axes, dropped = [], [], [], []
        for axis, part in enumerate(key):
            if isinstance(part, int):
                dropped.append(axis)
                part = slice(part, part + 1)
            if part != slice(None):
                starts.append(part.start or 0)
                ends.append(np.iinfo(np.int64).max if part.stop is None else part.stop)
                axes.append(axis)
        found = self
        if axes:
            found = self.graph.node("Slice", self, *map(self.graph.integers, (starts, ends, axes)))
        if dropped:
            found = self.graph.node("Squeeze", found, self.graph.integers(dropped))
        return found


class Graph:
    """Nodes and constants so far; also the operators."""

    def __init__(self, onnx: Any, heads: tuple[int, int]) -> None:
        self.onnx = onnx
        self.head, self.length = heads
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def node(self, kind: str, *inputs: Value, **attributes: Any) -> Value:
        found = Value(self, f"v{len(self.nodes)}")
        names = [value.name for value in inputs]
        self.nodes.append(self.onnx.helper.make_node(kind, names, [found.name], **attributes))
        return found

    def constant(self, array: Array, name: str = "") -> Value:
        name = name or f"c{len(self.constants)}"
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return Value(self, name)

    def integers(self, values: Sequence[int]) -> Value:
        return self.constant(np.array(values, np.int64))

    def number(self, value: float) -> Value:
        return self.constant(np.array(value, np.float32))

    # -- operators ---------------------------------------------------------------------------------

    def sum(self, x: Value, axis: int | None) -> Value:
        if axis is None:
            return self.node("ReduceSum", x, keepdims=0)
        return self.node("ReduceSum", x, self.integers([axis]), keepdims=0)

    def mean(self, x: Value, axes: tuple[int, ...], keep: int = 0) -> Value:
        return self.node("ReduceMean", x, self.integers(axes), keepdims=keep)

    def transpose(self, x: Value, axes: tuple[int, ...]) -> Value:
        return self.node("Transpose", x, perm=list(axes))

    def cat(self, parts: Sequence[Value], axis: int) -> Value:
        return self.node("Concat", *parts, axis=axis)

    def take(self, table: Value, ids: Value) -> Value:
        return self.node("Gather", table, ids)

    def relu(self, x: Value) -> Value:
        return self.node("Relu", x)

    def silu(self, x: Value) -> Value:
        return x * self.node("Sigmoid", x)

    def gelu(self, x: Value) -> Value:
        return self.node("Gelu", x, approximate="tanh")

    def softmax(self, x: Value) -> Value:
        return self.node("Softmax", x, axis=-1)

    def layernorm(self, x: Value, weight: Value, bias: Value) -> Value:
        return self.node("LayerNormalization", x, weight, bias, axis=-1, epsilon=EPSILON)

    def rmsnorm(self, x: Value, weight: Value) -> Value:
        squares = self.node("Pow", x, self.number(2.0))
        spread = self.node("Sqrt", self.mean(squares, (-1,), 1) + self.number(EPSILON))
        return self.node("Div", x, spread) * weight

    def linear(self, x: Value, weight: Value, bias: Value | None) -> Value:
        y = x @ self.transpose(weight, (1, 0))
        return y if bias is None else y + bias

    def conv2d(self, x: Value, weight: Value, stride: int, padding: int, groups: int) -> Value:
        return self.node("Conv", x, weight, strides=[stride] * 2, pads=[padding] * 4, group=groups)

    def batchnorm(
        self, x: Value, scale: Value, shift: Value, mean: Value, variance: Value
    ) -> Value:
        return self.node("BatchNormalization", x, scale, shift, mean, variance, epsilon=EPSILON)

    def maxpool(self, x: Value, size: int, stride: int, padding: int) -> Value:
        shape = {"kernel_shape": [size] * 2, "strides": [stride] * 2, "pads": [padding] * 4}
        return self.node("MaxPool", x, **shape)

    def attention(self, query: Value, key: Value, value: Value, is_causal: bool) -> Value:
        scores = query @ self.transpose(key, (0, 1, 3, 2))
        scores = scores * self.number(self.head**-0.5)
        if is_causal:
            square = np.full((self.length, self.length), -np.inf, np.float32)
            scores = scores + self.constant(np.triu(square, 1))
        return self.softmax(scores) @ value


def write_onnx(onnx: Any, work: Work, outputs: Sequence[tuple[int, ...]], path: str) -> None:
    """The work as a file: weights are constants, inputs are inputs."""
    graph = Graph(onnx, work.heads)
    weights = {name: graph.constant(array, name) for name, array in work.weights.items()}
    inputs = [Value(graph, f"x{number}") for number in range(len(work.inputs))]
    made = work.run(graph, weights, *inputs)
    made = made if isinstance(made, tuple) else (made,)
    kinds = onnx.TensorProto
    described = onnx.helper.make_tensor_value_info
    types = {np.dtype(np.float32): kinds.FLOAT, np.dtype(np.int64): kinds.INT64}
    given = [
        described(value.name, types[array.dtype], array.shape)
        for value, array in zip(inputs, work.inputs, strict=True)
    ]
    results = [
        described(value.name, kinds.FLOAT, shape)
        for value, shape in zip(made, outputs, strict=True)
    ]
    body = onnx.helper.make_graph(graph.nodes, "work", given, results, graph.constants)
    model = onnx.helper.make_model(
        body, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=FORMAT
    )
    onnx.save(model, path)
