"""``svod.save`` and ``svod.load``: tensors in containers, as one safetensors file.

What is saved may be a tensor, a state dict, or dicts, lists and tuples of tensors, NumPy arrays,
random generators, numbers and texts: a whole checkpoint of a training run. Tensors are entries of
the file under the path of keys that leads to them, so a state dict can be read by any library that
knows safetensors; the containers around them are JSON in its metadata. Nothing in a file is code.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from svod.base.errors import ArgumentError, DTypeError
from svod.dtype.convert import dtype_of
from svod.dtype.types import DType, complex128
from svod.nn.state import StateFileError, is_torch_file, opened, read_entries, save_file
from svod.nn.torch_files import read_torch_file
from svod.tensor.complex.conversions import view_as_complex, view_as_real
from svod.tensor.core.public_functions import guard
from svod.tensor.random.threefry import Generator
from svod.tensor.tensor import Tensor

_KEY = "svod.tree"  # of the metadata: the containers


def save(obj: Any, path: Any) -> None:
    """Write tensors and the containers around them to a file; ``load`` gives them back.

    ``path`` may be a file that is open for writing bytes. A tensor that occurs twice (tied weights)
    is stored once. The file of that name is replaced only once all is written.
    """
    writer = _Writer()
    tree = writer.encode(obj, ())
    save_file(writer.tensors, path, {_KEY: json.dumps(tree, allow_nan=False)})


def load(
    path: Any,
    device: str | None = None,
    *,
    map_location: str | None = None,
    weights_only: bool = True,
    mmap: bool = True,
) -> Any:
    """What ``save`` wrote, the tensors by name of any other safetensors file, or what
    ``torch.save`` wrote, as far as it is tensors and plain containers.

    Tensors are read from the file when they are first used, to ``device`` or the default one;
    ``path`` may also be a file that is open for reading bytes, which is read at once.
    ``map_location`` is torch's name of ``device``. ``weights_only`` and ``mmap`` say nothing here:
    no code in a file is run, and files are mapped.
    """
    if map_location is not None and not isinstance(map_location, str):
        raise ArgumentError(
            f"load: map_location is the name of a device, not a {type(map_location).__name__}"
        )
    if device is not None and map_location is not None:
        raise ArgumentError("load: map_location is torch's name of device: give one of them")
    where = map_location if device is None else device
    memory, name = opened(path)
    if is_torch_file(memory.numpy()[:8].tobytes()):
        return read_torch_file(memory, name, where)
    tensors, texts = read_entries(memory, name, where)
    text = texts.get(_KEY)
    if text is None:
        return tensors
    try:
        return _decode(json.loads(text), tensors)
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise StateFileError(f"{path}: the containers are malformed: {error}") from None


class _Writer:
    """Collects the tensors of nested containers, by name, while these become JSON."""

    def __init__(self) -> None:
        self.tensors: dict[str, Any] = {}
        self.names: dict[int, tuple[str, Any]] = {}  # by id; the object is kept alive

    def encode(self, value: Any, path: tuple[str, ...]) -> Any:
        if value is None or isinstance(value, (bool, str)):
            return value
        if isinstance(value, (int, float, complex)) and not isinstance(value, np.generic):
            return _encoded_number(value)
        if isinstance(value, Tensor):
            if value.dtype is complex128:  # safetensors has no such dtype: as pairs of floats
                return {"pairs": self.entry(value, path)}
            return {"tensor": self.entry(value, path)}
        if isinstance(value, (np.ndarray, np.generic)):
            return {"array": self.entry(value, path)}
        if isinstance(value, Mapping):
            return {
                "dict": [[self.key(k), self.encode(v, (*path, str(k)))] for k, v in value.items()]
            }
        if isinstance(value, (list, tuple)):
            kind = "list" if isinstance(value, list) else "tuple"
            return {kind: [self.encode(v, (*path, str(i))) for i, v in enumerate(value)]}
        if isinstance(value, DType):
            return {"dtype": value.name}
        if isinstance(value, Generator):
            return {"generator": [value.seed, value.drawn]}
        where = ".".join(path) or "the object"
        hint = ": save its state_dict()" if hasattr(value, "state_dict") else ""
        raise DTypeError(
            f"save: {where} is a {type(value).__name__}, which is not a tensor, array, generator, "
            f"number, text or container of these{hint}"
        )

    def key(self, key: Any) -> Any:
        if isinstance(key, (str, int, float, bool, tuple)) or key is None:
            return self.encode(key, ("a key",))
        raise DTypeError(f"save: a key of a dict is a {type(key).__name__}: use a text or a number")

    def entry(self, value: Any, path: tuple[str, ...]) -> str:
        known = self.names.get(id(value))
        if known is not None:
            return known[0]
        stem = name = ".".join(path) or "tensor"
        count = 1
        while name in self.tensors or name == "__metadata__":
            count += 1
            name = f"{stem}#{count}"
        is_wide = isinstance(value, Tensor) and value.dtype is complex128
        self.tensors[name] = view_as_real(value) if is_wide else value
        self.names[id(value)] = name, value
        return name


def _encoded_number(value: complex) -> Any:
    if isinstance(value, complex):
        return {"complex": [value.real.hex(), value.imag.hex()]}
    if isinstance(value, float) and not math.isfinite(value):
        return {"float": repr(value)}
    return value


def _decode(tree: Any, tensors: dict[str, Tensor]) -> Any:
    if not isinstance(tree, dict):
        if isinstance(tree, list):
            raise ValueError("a list stands where a value is expected")
        return tree
    ((kind, value),) = tree.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "pairs":
        return view_as_complex(tensors[value])
    if kind == "array":
        return tensors[value].numpy()
    if kind == "dict":
        return {_decode(k, tensors): _decode(v, tensors) for k, v in value}
    if kind in ("list", "tuple"):
        found = [_decode(v, tensors) for v in value]
        return found if kind == "list" else tuple(found)
    if kind == "dtype":
        return dtype_of(value)
    if kind == "generator":
        return Generator().set_state(np.array(value, np.uint64))
    if kind == "complex":
        return complex(*(float.fromhex(part) for part in value))
    if kind == "float":
        return float(value)
    raise ValueError(f"{kind!r} is not a kind of value")


guard(globals())
__all__ = ["load", "save"]
