"""An ONNX file: its bytes, its message, and what it says about inputs and outputs.

In: a path, bytes, or an object with `read`. A path is mapped, not read. Out: a `File`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from svod.base.errors import SvodError
from svod.device.disk import map_file
from svod.frontend.onnx.errors import OnnxError
from svod.frontend.onnx.tensors import Store
from svod.frontend.onnx.types import element
from svod.frontend.onnx.wire import Message, read

IR_VERSION = 14  # the newest this reader knows; fields of later ones would be passed over


@dataclass(frozen=True)
class ValueInfo:
    """An input or an output: its name, type and shape, as far as the file says."""

    name: str
    elem: int  # ONNX's number of the element type, 0 where there is none
    shape: tuple[int | str | None, ...] | None  # None: not even the number of axes is known
    form: str = "tensor"  # or "seq", "optional", "map"
    said: str = ""  # the whole type, where it is no tensor

    @property
    def type(self) -> str:
        """The type as onnxruntime writes it."""
        return self.said or f"tensor({_name(self.elem)})"

    @property
    def dtype(self) -> Any:
        return element(self.elem).array


_NAMES = {1: "float", 11: "double"}


def _name(number: int) -> str:
    return _NAMES.get(number) or element(number).name.lower()


def _type_text(kind: Message | None) -> str:
    """A type as onnxruntime writes it."""
    if kind is None:
        return "unknown"
    if kind.sequence_type:
        return f"seq({_type_text(kind.sequence_type.elem_type)})"
    if kind.optional_type:
        return f"optional({_type_text(kind.optional_type.elem_type)})"
    if kind.map_type:
        return f"map({_name(kind.map_type.key_type)},{_type_text(kind.map_type.value_type)})"
    return f"tensor({_name(kind.tensor_type.elem_type)})" if kind.tensor_type else "unknown"


@dataclass(frozen=True)
class File:
    """A model that was read, and where its weights are."""

    message: Message
    store: Store
    inputs: tuple[ValueInfo, ...]  # without those that are initialisers
    outputs: tuple[ValueInfo, ...]
    name: str


def open_file(source: Any) -> File:
    """Read a model from a path, bytes or a file object."""
    memory = folder = None
    name = "model"
    if isinstance(source, (str, os.PathLike)):
        path = os.fspath(source)
        name = os.path.basename(path)
        try:
            memory = map_file(path)
        except SvodError as error:
            raise OnnxError(f"{path}: {error}") from None
        folder = os.path.dirname(os.path.abspath(path))
        data = memoryview(memory.numpy())
    elif isinstance(source, (bytes, bytearray, memoryview)):
        data = memoryview(source).cast("B")
    elif hasattr(source, "SerializeToString"):
        data = memoryview(source.SerializeToString())
    elif hasattr(source, "read"):
        data = memoryview(source.read())
    else:
        raise OnnxError(f"a model is a path, bytes or a file, not a {type(source).__name__}")
    message = read(data)
    if message.graph is None:
        raise OnnxError(f"{name} has no graph: it is empty or no ONNX model")
    store = Store(np.frombuffer(data, np.uint8).data, memory, folder)
    graph = message.graph
    given = {p.name for p in graph.initializers}
    inputs = tuple([info_of(i) for i in graph.inputs if i.name not in given])
    return File(message, store, inputs, tuple([info_of(o) for o in graph.outputs]), name)


def info_of(proto: Message) -> ValueInfo:
    """What the file says of a value."""
    kind, form = proto.type, "tensor"
    said = "" if kind is not None and kind.tensor_type else _type_text(kind)
    while kind is not None and (kind.sequence_type or kind.optional_type):
        form = "seq" if kind.sequence_type else "optional" if form == "tensor" else form
        kind = (kind.sequence_type or kind.optional_type).elem_type
    if kind is None or kind.tensor_type is None:
        is_map = kind is not None and kind.map_type is not None
        return ValueInfo(proto.name, 0, None, "map" if is_map else form, said)
    tensor = kind.tensor_type
    if tensor.shape is None:
        return ValueInfo(proto.name, tensor.elem_type, None, form, said)
    shape = tuple([_dimension(d, proto.name) for d in tensor.shape.dims])
    return ValueInfo(proto.name, tensor.elem_type, shape, form, said)


def _dimension(proto: Message, name: str) -> int | str | None:
    if proto.has("value"):
        if proto.value < 0:
            return None  # written by some exporters for "not known"
        return int(proto.value)
    return proto.param or None
