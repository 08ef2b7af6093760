"""Nodes of the tensor graph as nodes of an ONNX graph (operator set 20).

`Emitter.value` gives the name of a node's value and emits what it needs first. Broadcasting is left
to the operators where it can be. Sizes that vary are computed from the shapes of inputs.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import Any

import numpy as np

from svod.dtype import types as dt
from svod.frontend.onnx import write
from svod.frontend.onnx.types import CARRIERS, element_of_dtype
from svod.ir import ops as O
from svod.ir.args import IndexCheck
from svod.ir.node import UOp
from svod.tensor.gradients.reverse_mode import Mark

_UNARY = {
    O.NEG: "Neg", O.RECIP: "Reciprocal", O.SQRT: "Sqrt", O.FLOOR: "Floor", O.CEIL: "Ceil",
    O.ROUND: "Round", O.EXP: "Exp", O.LOG: "Log", O.SIN: "Sin", O.COS: "Cos", O.TAN: "Tan",
    O.TANH: "Tanh", O.ERF: "Erf", O.ABS: "Abs", O.ASIN: "Asin", O.ACOS: "Acos", O.ATAN: "Atan",
    O.SINH: "Sinh", O.COSH: "Cosh", O.ASINH: "Asinh", O.ACOSH: "Acosh", O.ATANH: "Atanh",
}  # fmt: skip
_BINARY = {
    O.ADD: "Add", O.SUB: "Sub", O.MUL: "Mul", O.DIV: "Div", O.MOD: "Mod", O.MAX: "Max",
    O.MIN: "Min", O.POW: "Pow", O.LT: "Less", O.LE: "LessOrEqual", O.EQ: "Equal",
}  # fmt: skip
_LOGIC = {O.AND: "And", O.OR: "Or", O.XOR: "Xor", O.MAX: "Or", O.MIN: "And", O.MUL: "And"}
_BITS = {O.AND: "BitwiseAnd", O.OR: "BitwiseOr", O.XOR: "BitwiseXor"}
_REDUCE = {
    O.ADD: "ReduceSum", O.MUL: "ReduceProd", O.MAX: "ReduceMax", O.MIN: "ReduceMin",
    O.OR: "ReduceMax", O.AND: "ReduceMin",
}  # fmt: skip
_SUMMED = ("float32", "float64", "int32", "int64")  # what runtimes reduce and multiply
_SAME = (O.CONTIGUOUS, O.COPY)
_AHEAD = O.ALU | {O.CAST, O.REDUCE_AXIS, O.GATHER, O.SCATTER, O.CAT}
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Emitter:
    """The nodes and weights of a graph that is being made."""

    def __init__(self) -> None:
        self.weights: dict[str, tuple[int, Any]] = {}
        self._nodes: list[tuple[str, Sequence[str], str, dict[str, Any]]] = []
        self._outputs: list[str] = []
        self._problems: dict[str, str] = {}  # by the name of the value that there is not
        self._memories: dict[UOp, tuple[str, tuple[int, ...]]] = {}  # a weight and its shape
        self._names: dict[UOp, str] = {}
        self._inputs: dict[UOp, str] = {}  # memory of inputs, of any shape
        self._variables: dict[str, tuple[str, int]] = {}  # an input and an axis
        self._constants: dict[Any, str] = {}
        self._sizes: dict[Any, str] = {}
        self._count = 0

    def add_input(self, name: str, whole: UOp, given: UOp) -> None:
        self._names[whole] = self._names[given] = name
        if whole is given:
            memory = whole.src[0] if whole.op == O.RESHAPE else whole
            self._inputs[memory] = name
        for axis, size in enumerate(given.shape):
            if isinstance(size, UOp):
                self._variables.setdefault(size.arg.name, (name, axis))

    def output(self, name: str, node: UOp) -> None:
        """Give a value the name of an output."""
        graph = node.toposort()
        later = {n.src[0] for n in graph if n.op == O.REDUCE_AXIS and n.arg.op == O.ADD}
        for each in graph:  # operands first, so that a deep graph needs no deep stack
            if each.op in _AHEAD and each not in later:
                self.value(each)
        self._nodes.append(("Identity", [self.value(node)], name, {}))
        self._outputs.append(name)

    def finish(self) -> tuple[list[write.Part], list[str]]:
        """The nodes that outputs need, and what of them has no ONNX form; drops other weights."""
        wanted, kept = set(self._outputs), []
        for operator, inputs, name, attributes in reversed(self._nodes):
            if name in wanted:
                wanted.update(inputs)
                kept.append(write.node(operator, inputs, [name], attributes))
        self.weights = {n: w for n, w in self.weights.items() if n in wanted}
        problems = [what for name, what in self._problems.items() if name in wanted]
        return kept[::-1], list(dict.fromkeys(problems))

    def value(self, node: UOp) -> str:
        """The name of the value of a node."""
        found = self._names.get(node)
        if found is None:
            found = self._names[node] = self._emitted(node)
        return found

    # -- writing --------------------------------------------------------------------------------

    def emit(self, operator: str, *inputs: str, **attributes: Any) -> str:
        self._count += 1
        name = f"{operator.lower()}_{self._count}"
        self._nodes.append((operator, inputs, name, attributes))
        return name

    def constant(self, value: Any, dtype: Any) -> str:
        array = np.asarray(value, CARRIERS[dtype])
        key = (array.tobytes(), array.shape, dtype)
        if key not in self._constants:
            self._constants[key] = self._weight(array, element_of_dtype(dtype).number)
        return self._constants[key]

    def _weight(self, array: Any, kind: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = (kind, array)
        return name

    def numbers(self, sizes: Sequence[Any]) -> str:
        """Whole numbers, some of which may be run-time sizes, as a tensor of one axis."""
        if not any(isinstance(n, UOp) for n in sizes):
            return self.constant([int(n) for n in sizes], dt.int64)
        return self.emit("Concat", *[self._size(n) for n in sizes], axis=0)

    def _size(self, size: Any) -> str:
        """A size as a tensor of one element."""
        if not isinstance(size, UOp):
            return self.constant([int(size)], dt.int64)
        if size not in self._sizes:
            self._sizes[size] = self._computed_size(size)
        return self._sizes[size]

    def _computed_size(self, size: UOp) -> str:
        if size.op == O.DEFINE_VAR:
            name, axis = self._variables[size.arg.name]
            return self.emit("Shape", name, start=axis, end=axis + 1)
        if size.op == O.CONST:
            return self.constant([int(size.arg)], dt.int64)
        parts = [self._size(s) for s in size.src]
        if size.op == O.IDIV:
            return self._floored(*parts)
        if size.op in _BINARY:
            return self.emit(_BINARY[size.op], *parts)
        if size.op in (O.NEG, O.CAST, O.BIND):
            return self.emit("Neg", *parts) if size.op == O.NEG else parts[0]
        return self._refuse(f"a size with {O.NAMES[size.op]}")

    def _floored(self, a: str, b: str) -> str:
        return self.emit("Div", self.emit("Sub", a, self.emit("Mod", a, b)), b)

    def _refuse(self, what: str) -> str:
        self._count += 1
        name = f"nothing_{self._count}"
        self._problems[name] = what
        return name

    # -- nodes ----------------------------------------------------------------------------------

    def _emitted(self, node: UOp) -> str:
        op = node.op
        if op == O.CONST:
            return self.constant(node.arg, node.dtype)
        if op == O.BUFFER:
            return self._memory(node, (node.arg.size,))
        if op in _SAME:
            return self.value(node.src[0])
        if op == O.BITCAST:
            return self._marked(node)
        if node.dtype not in CARRIERS or node.dtype.is_complex:
            return self._refuse(f"{O.NAMES[op]} of {node.dtype.name}")
        if op in O.MOVEMENT:
            return self._moved(node)
        if op == O.REDUCE_AXIS:
            return self._reduced(node)
        if op in O.ALU or op == O.CAST:
            return self._computed(node)
        if op == O.IOTA:
            ends = self.emit("Squeeze", self.numbers([node.arg]))
            steps = [self.constant(n, dt.int64) for n in (0, 1)]
            return self._cast(self.emit("Range", steps[0], ends, steps[1]), dt.int64, node.dtype)
        if op == O.CAT:
            return self.emit("Concat", *map(self.value, node.src), axis=node.arg)
        if op == O.GATHER:
            return self._gathered(node)
        if op == O.SCATTER and all(_is_checked(i) for i in node.src[2:]):
            ways = {"set": "none", "add": "add", "max": "max"}
            x, values = self.value(node.src[0]), self.value(node.src[1])
            return self.emit(
                "ScatterND", x, self._places(node.src[2:]), values, reduction=ways[node.arg]
            )
        return self._refuse(f"{O.NAMES[op]} of {node.dtype.name}")

    def _memory(self, node: UOp, shape: tuple[int, ...]) -> str:
        """An input or a weight with a shape."""
        if node in self._inputs:
            return self.emit("Reshape", self._inputs[node], self.numbers(shape))
        buffer = node.arg.buffer
        if buffer is None:
            return self._refuse("memory without values: realise the tensors first")
        if node not in self._memories:
            array = buffer.numpy().reshape(shape)
            name = self._weight(array, element_of_dtype(node.dtype).number)
            self._memories[node] = (name, shape)
        name, first = self._memories[node]
        return name if first == shape else self.emit("Reshape", name, self.numbers(shape))

    def _reshaped(self, node: UOp, shape: Sequence[Any]) -> str:
        """A value with another shape; reshapes of reshapes are one."""
        while node.op == O.RESHAPE and node not in self._names:
            node = node.src[0]
        if node.op == O.BUFFER and node not in self._names:
            return self._memory(node, tuple(shape))
        if _is_shape(node.shape, shape):
            return self.value(node)
        return self.emit("Reshape", self.value(node), self.numbers(shape))

    def _moved(self, node: UOp) -> str:
        (source,), arg, op = node.src, node.arg, node.op
        if op == O.RESHAPE:
            return self._reshaped(source, arg)
        x = self.value(source)
        if op == O.PERMUTE:
            return self.emit("Transpose", x, perm=arg)
        if op == O.EXPAND:
            return self.emit("Expand", x, self.numbers(arg))
        if op == O.PAD:
            pads = self.numbers([a for a, _ in arg] + [b for _, b in arg])
            return self.emit("Pad", x, pads, self.constant(0, node.dtype))
        if op == O.FLIP:
            axes = self.numbers(arg)
            bounds = [[v] * len(arg) for v in (-1, -(1 << 62), -1)]
            starts, ends, steps = [self.numbers(v) for v in bounds]
            return self.emit("Slice", x, starts, ends, axes, steps)
        kept = [
            i for i, (a, b) in enumerate(arg) if not _is_shape([0, source.shape[i]], [a, b])
        ]  # fmt: skip
        starts, ends = [self.numbers([arg[i][k] for i in kept]) for k in (0, 1)]
        return self.emit("Slice", x, starts, ends, self.numbers(kept)) if kept else x

    def _marked(self, node: UOp) -> str:
        """A mark is its value; that of a convolution is one."""
        mark = node.arg
        if node.dtype is not node.src[0].dtype:
            return self._refuse(f"BITCAST from {node.src[0].dtype.name} to {node.dtype.name}")
        if isinstance(mark, Mark) and mark.name == "convolution" and mark.role == "output":
            found = _marked_inputs(node, mark.name)
            shape = mark.options
            if len(found) == 2 and hasattr(shape, "pads") and node.dtype.name in _SUMMED[:2]:
                return self.emit(
                    "Conv", *[self.value(n) for n in found],
                    pads=[a for a, _ in shape.pads] + [b for _, b in shape.pads],
                    strides=shape.strides, dilations=shape.dilations, group=int(shape.groups),
                )  # fmt: skip
        return self.value(node.src[0])

    def _cast(self, name: str, source: Any, target: Any) -> str:
        if source is target:
            return name
        return self.emit("Cast", name, to=element_of_dtype(target).number)

    def _computed(self, node: UOp) -> str:
        op, dtype = node.op, node.dtype
        kind = node.src[-1].dtype  # of operands
        xs = self._operands(node)
        if op == O.CAST:
            return self._cast(xs[0], kind, dtype)
        if op == O.WHERE:
            return self.emit("Where", *xs)
        if op == O.FMA:
            return self.emit("Add", self.emit("Mul", *xs[:2]), xs[2])
        if op == O.NOT:
            return self.emit("Not" if kind is dt.bool_ else "BitwiseNot", *xs)
        if op == O.NE:
            return self.emit("Not", self.emit("Equal", *xs))
        if kind is dt.bool_ and op in _LOGIC:
            return self.emit(_LOGIC[op], *xs)
        if op in _BITS:
            return self.emit(_BITS[op], *xs)
        if op == O.IDIV:
            return self._floored(*xs)
        if op in (O.MOD, O.FMOD):
            return self.emit("Mod", *xs, fmod=int(op == O.FMOD))
        if op in (O.SHL, O.SHR) and kind.kind == "u":
            return self.emit("BitShift", *xs, direction="LEFT" if op == O.SHL else "RIGHT")
        if kind is dt.bool_:
            return self._of_truths(op, xs)
        if op in _UNARY or op in _BINARY:
            return self.emit((_UNARY | _BINARY)[op], *xs)
        return self._composed(op, xs, dtype)

    def _of_truths(self, op: int, xs: list[str]) -> str:
        """Comparisons of truth values, which ONNX orders as numbers only."""
        if op not in (O.LT, O.LE, O.EQ):
            return self._refuse(f"{O.NAMES[op]} of bool")
        if op == O.EQ:
            return self.emit("Equal", *xs)
        return self.emit(_BINARY[op], *[self._cast(x, dt.bool_, dt.int32) for x in xs])

    def _composed(self, op: int, xs: list[str], dtype: Any) -> str:
        """Functions that ONNX has only in parts."""
        (x, *_), emit = xs, self.emit

        def const(value: float) -> str:
            return self.constant(value, dtype)

        if op == O.TRUNC:
            return emit("Mul", emit("Sign", x), emit("Floor", emit("Abs", x)))
        if op == O.EXP2:
            return emit("Pow", const(2), x)
        if op == O.LOG2:
            return emit("Mul", emit("Log", x), const(1 / log(2)))
        if op == O.RSQRT:
            return emit("Reciprocal", emit("Sqrt", x))
        if op == O.EXPM1:  # 2 sinh(x/2) exp(x/2) keeps what is small
            half = emit("Mul", x, const(0.5))
            small = emit("Mul", emit("Mul", const(2), emit("Sinh", half)), emit("Exp", half))
            near = emit("Less", emit("Abs", x), const(1))
            return emit("Where", near, small, emit("Sub", emit("Exp", x), const(1)))
        if op == O.LOG1P:  # 2 atanh(x / (2 + x)) keeps what is small
            small = emit("Atanh", emit("Div", x, emit("Add", x, const(2))))
            near = emit("Less", emit("Abs", x), const(0.5))
            whole = emit("Log", emit("Add", x, const(1)))
            return emit("Where", near, emit("Mul", const(2), small), whole)
        return self._refuse(f"{O.NAMES[op]} of {dtype.name}")

    def _operands(self, node: UOp) -> list[str]:
        """Operands, before they are expanded where another one has the whole shape."""
        whole = [s for s in node.src if s.op != O.EXPAND and len(s.shape) == len(node.shape)]
        if not whole or not node.shape:
            return [self.value(s) for s in node.src]
        return [self.value(s.src[0] if s.op == O.EXPAND else s) for s in node.src]

    def _reduced(self, node: UOp) -> str:
        (source,), (op, axes), dtype = node.src, node.arg, node.dtype
        if op == O.ADD and source.op == O.MUL and dtype.name in _SUMMED:
            return self._einsum(source, axes, node.shape)
        if op == O.XOR:
            return self._refuse(f"a reduction by XOR of {dtype.name}")
        if op in (O.AND, O.OR) and dtype is not dt.bool_:
            return self._refuse(f"a reduction by {O.NAMES[op]} of {dtype.name}")
        wide = dtype if dtype.name in _SUMMED else dt.float32 if dtype.is_float else dt.int64
        x = self._cast(self.value(source), dtype, wide)
        return self._cast(
            self.emit(_REDUCE[op], x, self.numbers(axes), keepdims=1), wide, dtype
        )  # fmt: skip

    def _einsum(self, product: UOp, axes: Sequence[int], shape: Sequence[Any]) -> str:
        """A sum of products; each factor without the axes that it was repeated along."""
        names, terms = [], []
        for factor in product.src:
            inner = factor.src[0] if factor.op == O.EXPAND else factor
            if not factor.shape:
                kept: list[int] = []
            else:
                kept = [
                    i for i, n in enumerate(inner.shape)
                    if not isinstance(n, int) or n != 1 or _is_shape([product.shape[i]], [1])
                ]  # fmt: skip
            names.append(self._reshaped(inner, [inner.shape[i] for i in kept]))
            terms.append("".join([_LETTERS[i] for i in kept]))
        there = set("".join(terms))
        result = [i for i in range(len(product.shape)) if i not in axes and _LETTERS[i] in there]
        missing = [i for i in range(len(product.shape)) if _LETTERS[i] not in there]
        if missing:  # repeated by both factors: plain arithmetic
            x = self.value(product)
            return self.emit("ReduceSum", x, self.numbers(axes), keepdims=1)
        equation = f"{','.join(terms)}->{''.join([_LETTERS[i] for i in result])}"
        found = self.emit("Einsum", *names, equation=equation)
        return self.emit("Unsqueeze", found, self.numbers(sorted(axes)))

    def _gathered(self, node: UOp) -> str:
        source, *indices = node.src
        x = self.value(source)
        if all(_is_checked(i) for i in indices):
            if len(indices) == 1:
                return self.emit("Gather", x, self.value(indices[0]), axis=0)
            return self.emit("GatherND", x, self._places(indices))
        return self._guarded(node, x, indices)

    def _guarded(self, node: UOp, x: str, indices: Sequence[UOp]) -> str:
        """A gather whose indices may be outside, where it reads 0."""
        inside: str | None = None
        places = []
        for axis, index in enumerate(indices):
            i = self._cast(self.value(index), index.dtype, dt.int64)
            end = self._size(node.src[0].shape[axis])
            zero = self.constant(0, dt.int64)
            good = self.emit("And", self.emit("LessOrEqual", zero, i), self.emit("Less", i, end))
            places.append(self.emit("Where", good, i, zero))
            inside = good if inside is None else self.emit("And", inside, good)
        found = self.emit("GatherND", x, self._stacked(places))
        rank = len(node.shape) - len(indices[0].shape)
        assert inside is not None
        if rank:
            last = [len(indices[0].shape) + k for k in range(rank)]
            inside = self.emit("Unsqueeze", inside, self.numbers(last))
        return self.emit("Where", inside, found, self.constant(0, node.dtype))

    def _places(self, indices: Sequence[UOp]) -> str:
        return self._stacked([self._cast(self.value(i), i.dtype, dt.int64) for i in indices])

    def _stacked(self, names: list[str]) -> str:
        parts = [self.emit("Unsqueeze", n, self.numbers([-1])) for n in names]
        return self.emit("Concat", *parts, axis=-1)


def _is_checked(node: UOp) -> bool:
    """Whether an index was checked to lie inside, and counts from the start."""
    return node.op == O.BITCAST and isinstance(node.arg, IndexCheck) and not node.arg.takes_negative


def _is_shape(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(
        m is n or (isinstance(m, int) and m == n) for m, n in zip(a, b, strict=True)
    )


def _marked_inputs(node: UOp, name: str) -> list[UOp]:
    """What went into a marked function: the nodes that are marked as its inputs."""
    found: dict[int, UOp] = {}
    todo, seen = [node.src[0]], set()
    while todo:
        here = todo.pop()
        if here in seen:
            continue
        seen.add(here)
        mark = here.arg if here.op == O.BITCAST else None
        if isinstance(mark, Mark) and mark.name == name and mark.role == "input":
            found[mark.position] = here.src[0]
        else:
            todo += here.src
    return [found[i] for i in sorted(found)]
