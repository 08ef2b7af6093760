"""`svod.onnx.export`: a function of tensors as an ONNX file.

In: a function or a module, and its inputs. It is called once with inputs that stand for arrays of
any value, and of any size where ``dynamic`` says so. Out: a file whose nodes are those of the
tensor graph, with weights as initialisers. Sums of products are written as Einsum and convolutions
as Conv, so that runtimes see them. Everything without an ONNX form is named at once.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import svod
from svod._version import __version__
from svod.frontend.onnx import write
from svod.frontend.onnx.emit import Emitter
from svod.frontend.onnx.errors import OnnxError, UnsupportedModel
from svod.frontend.onnx.types import element_of_dtype
from svod.ir.node import UOp
from svod.ir.symbolic import size_text
from svod.tensor.tensor import Tensor

OPSET, IR_VERSION = 20, 9
INSIDE_LIMIT = (1 << 31) - (1 << 24)  # bytes; protobuf reads no message of 2 GiB
ALIGNMENT = 4096  # of weights in a file of their own, so that they can be mapped
RANGE = (1, 256)  # of sizes that vary, where no range is given


def export(
    function: Callable[..., Any],
    inputs: Sequence[Any] | Mapping[str, Any],
    path: Any,
    dynamic: Mapping[str, Mapping[int, Any]] | None = None,
    outputs: Sequence[str] | None = None,
) -> None:
    """Write a function, or a module, as an ONNX file.

    ``inputs`` are example tensors or arrays, in order or by name. ``dynamic`` names sizes that may
    vary: ``{"x": {0: "batch"}}``, or with a range ``{"x": {0: ("batch", 1, 64)}}``. Weights of more
    than 2 GB are written to a file beside it, ``path + ".data"``.
    """
    if hasattr(function, "parameters"):
        svod.realize(*[p for p in function.parameters() if isinstance(p, Tensor)])
    given = _named(function, inputs)
    sizes = _Sizes(dynamic or {}, given)
    emitter = Emitter()
    tensors = {name: sizes.placeholder(name, value) for name, value in given.items()}
    for name, (whole, tensor) in tensors.items():
        emitter.add_input(name, whole.uop, tensor.uop)
    arguments = {name: tensor for name, (_, tensor) in tensors.items()}
    called = function(**arguments) if _takes_names(function, arguments) else function(
        *arguments.values()
    )  # fmt: skip
    results = _results(called, outputs)
    for name, tensor in results.items():
        emitter.output(name, tensor.uop)
    nodes, problems = emitter.finish()
    if problems:
        listed = "\n".join([f"  {p}" for p in problems])
        raise UnsupportedModel(f"ONNX has no form of what the function does:\n{listed}")
    infos = [
        write.value_info(11, n, element_of_dtype(t.dtype).number, _shape(t.shape))
        for n, (_, t) in tensors.items()
    ] + [
        write.value_info(12, n, element_of_dtype(t.dtype).number, _shape(t.shape))
        for n, t in results.items()
    ]
    _write(nodes, emitter.weights, infos, os.fspath(path))


def _named(function: Any, inputs: Any) -> dict[str, Any]:
    if isinstance(inputs, Mapping):
        return dict(inputs)
    if isinstance(inputs, (Tensor, np.ndarray)):
        inputs = [inputs]
    called = getattr(function, "forward", function)
    names = [
        p.name
        for p in inspect.signature(called).parameters.values()
        if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    names += [f"x{i}" for i in range(len(names), len(inputs))]
    return dict(zip(names, inputs, strict=False))


def _takes_names(function: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether inputs are parameters of these names; else they are given in order."""
    try:
        inspect.signature(getattr(function, "forward", function)).bind(**arguments)
    except TypeError:
        return False
    return True


class _Sizes:
    """The sizes that vary, as variables."""

    def __init__(self, dynamic: Mapping[str, Mapping[int, Any]], given: Mapping[str, Any]) -> None:
        unknown = [n for n in dynamic if n not in given]
        if unknown:
            raise OnnxError(f"dynamic names {unknown[0]!r}, the inputs are {', '.join(given)}")
        self.dynamic = dynamic
        self.variables: dict[str, UOp] = {}

    def placeholder(self, name: str, value: Any) -> tuple[Tensor, Tensor]:
        """The memory that stands for an input, and the part of it that the function is given."""
        example = value if isinstance(value, Tensor) else Tensor(np.asarray(value))
        shape: list[Any] = list(example.shape)
        for axis, said in self.dynamic.get(name, {}).items():
            if not -len(shape) <= axis < len(shape):
                raise OnnxError(f"dynamic: input {name!r} has no axis {axis}")
            shape[axis] = self._variable(said)
        if not any(isinstance(n, UOp) for n in shape):
            whole = Tensor(example.numpy().copy(), device=example.device).realize()
            return whole, whole
        most = [n.vmax if isinstance(n, UOp) else n for n in shape]
        whole = Tensor.empty(most, dtype=example.dtype, device=example.device).realize()
        return whole, whole[tuple([slice(0, n) for n in shape])]

    def _variable(self, said: Any) -> UOp:
        label, low, high = (said, *RANGE) if isinstance(said, str) else said
        if label not in self.variables:
            self.variables[label] = svod.Variable(label, low, high)
        return self.variables[label]


def _results(found: Any, names: Sequence[str] | None) -> dict[str, Tensor]:
    if isinstance(found, Mapping):
        named = dict(found)
    else:
        several = list(found) if isinstance(found, (tuple, list)) else [found]
        names = names or (["y"] if len(several) == 1 else [f"y{i}" for i in range(len(several))])
        if len(names) != len(several):
            raise OnnxError(f"{len(names)} names for {len(several)} outputs")
        named = dict(zip(names, several, strict=True))
    for name, value in named.items():
        if not isinstance(value, Tensor):
            raise OnnxError(f"output {name!r} is a {type(value).__name__}, not a tensor")
    return named


def _shape(shape: Sequence[Any]) -> list[int | str]:
    return [size_text(n) if isinstance(n, UOp) else int(n) for n in shape]


def _write(
    nodes: list[write.Part],
    weights: Mapping[str, tuple[int, Any]],
    infos: list[write.Part],
    path: str,
) -> None:
    total = sum([array.nbytes for _, array in weights.values()])
    outside = total > INSIDE_LIMIT
    location = os.path.basename(path) + ".data"
    parts, places, at = [], [], 0
    for name, (kind, array) in weights.items():
        at = -(-at // ALIGNMENT) * ALIGNMENT
        is_out = outside and array.nbytes >= 1024
        parts.append(write.tensor(name, kind, array, (location, at) if is_out else None))
        if is_out:
            places.append((at, array))
            at += array.nbytes
    graph = [*nodes, write.text(2, "svod"), *parts, *infos]
    made = write.model(graph, OPSET, IR_VERSION, ("svod", __version__))
    if outside:
        with open(path + ".data", "wb") as file:
            for offset, array in places:
                file.seek(offset)
                file.write(write.bytes_of(array))
    with open(path, "wb") as file:
        for piece in made.pieces:
            file.write(piece)
