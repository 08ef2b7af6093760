"""Checkpoints of torch (``.pt``, ``.pth``, ``.bin``): tensors and plain containers, without torch.

In: the mapped bytes of a file that ``torch.save`` wrote, as a zip or in the format before it. Out:
the containers, with lazy tensors that are read from the file when they are first used. The file is
not trusted: no code in it runs (`pickles`), and every storage, offset and stride is checked against
the bytes that are there. Tensors of one storage read the same bytes once.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from math import prod
from typing import Any

import numpy as np

from svod.device.buffer import Buffer
from svod.device.names import DISK_PREFIX
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import build as B
from svod.nn.pickles import Machine, Name, Opaque
from svod.nn.state import AXES_LIMIT, StateFileError
from svod.nn.zips import read_directory
from svod.tensor.core.tensor_core import default_device, device_name, wrap
from svod.tensor.tensor import Tensor

PICKLE_LIMIT = 1 << 28  # bytes of the containers
_MAGIC, _VERSION = 0x1950A86A20F9469CFC6C, 1001  # of the older format
_ELEMENTS_LIMIT = 1 << 48

_STORAGES = {
    "Double": dt.float64, "Float": dt.float32, "Half": dt.float16, "BFloat16": dt.bfloat16,
    "Long": dt.int64, "Int": dt.int32, "Short": dt.int16, "Char": dt.int8, "Byte": dt.uint8,
    "Bool": dt.bool_, "ComplexFloat": dt.complex64, "ComplexDouble": dt.complex128,
}  # fmt: skip
_DTYPES = {
    "float64": dt.float64, "float32": dt.float32, "float16": dt.float16, "bfloat16": dt.bfloat16,
    "int64": dt.int64, "int32": dt.int32, "int16": dt.int16, "int8": dt.int8, "uint8": dt.uint8,
    "uint16": dt.uint16, "uint32": dt.uint32, "uint64": dt.uint64, "bool": dt.bool_,
    "complex64": dt.complex64, "complex128": dt.complex128,
    "float8_e4m3fn": dt.float8_e4m3, "float8_e5m2": dt.float8_e5m2,
}  # fmt: skip


class Kind(Opaque):
    """A class of storages; one without a dtype counts bytes."""

    __slots__ = ("dtype",)

    def __init__(self, dtype: DType | None) -> None:
        self.dtype = dtype


class Storage(Opaque):
    """Bytes of the file that tensors show."""

    __slots__ = ("dtype", "key", "size", "start")

    def __init__(self, key: str, start: int, size: int, dtype: DType | None) -> None:
        self.key, self.start, self.size, self.dtype = key, start, size, dtype


def read_torch_file(memory: Buffer, path: str, device: str | None = None) -> Any:
    """What ``torch.save`` wrote, with tensors of Svod."""
    data = memoryview(memory.numpy())
    reader = _Reader(memory, path, device)
    if bytes(data[:2]) == b"PK":
        return _read_zip(data, reader)
    return _read_stream(data, reader)


def _read_zip(data: memoryview, reader: _Reader) -> Any:
    path = reader.path
    entries = read_directory(data, path)
    roots = [name for name in entries if name.endswith("/data.pkl") and name.count("/") == 1]
    if len(roots) != 1:
        raise StateFileError(f"{path} is a zip without a checkpoint of torch: no data.pkl")
    root = roots[0].removesuffix("data.pkl")
    if f"{root}constants.pkl" in entries:
        raise StateFileError(f"{path} is a TorchScript program: load it with torch")
    order = entries.get(f"{root}byteorder")
    if order is not None and bytes(data[order.start : order.start + order.size]) != b"little":
        raise StateFileError(f"{path} was written on a machine with another order of bytes")
    span = entries[roots[0]]
    if span.size > PICKLE_LIMIT:
        raise StateFileError(f"{path}: containers of {span.size} bytes")

    def place(key: str) -> tuple[int, int]:
        found = entries.get(f"{root}data/{key}")
        if found is None:
            raise StateFileError(f"{path}: there is no storage {key!r:.40}")
        return found

    pickle = data[span.start : span.start + span.size]
    return Machine(pickle, 0, reader.names(), reader.storages(place), path).run()[0]


def _read_stream(data: memoryview, reader: _Reader) -> Any:
    """The older format: pickles one after the other, then the storages."""
    path = reader.path

    def run(start: int, find: Callable[[str], tuple[int, int] | None]) -> tuple[Any, int]:
        return Machine(data, start, reader.names(), reader.storages(find), path).run()

    def nothing(key: str) -> None:
        return None

    magic, place = run(0, nothing)
    version, place = run(place, nothing) if magic == _MAGIC else (None, 0)
    if version != _VERSION:
        raise StateFileError(f"{path} is a pickle, but none that torch.save wrote")
    _, start = run(place, nothing)
    _, place = run(start, nothing)  # storages come later: the sizes they claim are believed for now
    keys, place = run(place, nothing)
    places = _stream_places(data, keys, place, reader)
    return run(start, places.get)[0]


def _stream_places(
    data: memoryview, keys: Any, place: int, reader: _Reader
) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    if not isinstance(keys, list):
        raise StateFileError(f"{reader.path}: the storages have no list of keys")
    for key in keys:
        width = reader.widths.get(key) if isinstance(key, str) else None
        count = int.from_bytes(data[place : place + 8], "little")
        place += 8
        if width is None or place + count * width > len(data):
            raise StateFileError(f"{reader.path}: storage {key!r:.40} does not fit the file")
        found[key] = place, count * width
        place += count * width
    return found


class _Reader:
    """Makes tensors of storages."""

    def __init__(self, memory: Buffer, path: str, device: str | None) -> None:
        self.memory, self.path = memory, path
        self.device = device_name(device) or default_device()
        self.widths: dict[str, int] = {}  # bytes of an element, by the key of a storage
        self._lines: dict[tuple[int, int, DType], Tensor] = {}

    def storages(
        self, find: Callable[[str], tuple[int, int] | None]
    ) -> Callable[[Any], Storage | None]:
        """What persistent ids stand for, given where storages are; None where that is open."""

        def storage(given: Any) -> Storage | None:
            if type(given) is not tuple or len(given) not in (5, 6) or given[0] != "storage":
                raise StateFileError(f"{self.path}: {given!r:.80} is no storage")
            kind, key, _, count = given[1:5]
            if not isinstance(kind, Kind) or not isinstance(key, str) or not _is_size(count):
                raise StateFileError(f"{self.path}: {given!r:.80} is no storage")
            if len(given) == 6 and given[5] is not None:
                raise StateFileError(f"{self.path}: storage {key!r:.40} is a part of another one")
            width = 1 if kind.dtype is None else kind.dtype.itemsize
            self.widths[key] = width
            place = find(key)
            if place is None:
                return Storage(key, -1, count * width, kind.dtype)
            start, size = place
            if count * width > size:
                raise StateFileError(
                    f"{self.path}: storage {key!r:.40} has {size} bytes, not {count * width}"
                )
            return Storage(key, start, count * width, kind.dtype)

        return storage

    def names(self) -> dict[str, Any]:
        """The globals that are known, by their full names."""
        calls: dict[str, Callable[..., Any]] = {
            "torch._utils._rebuild_tensor": self._tensor,
            "torch._utils._rebuild_tensor_v2": self._tensor,
            "torch._utils._rebuild_tensor_v3": self._typed_tensor,
            "torch._utils._rebuild_parameter": _parameter,
            "torch._utils._rebuild_sparse_tensor": self._sparse,
            "torch.serialization._get_layout": self._sparse,  # only sparse tensors name theirs
            "torch.Size": _size,
            "collections.OrderedDict": _ordered,
            "builtins.complex": _complex,
            "__builtin__.complex": _complex,
        }
        found: dict[str, Any] = {text: Name(text, call) for text, call in calls.items()}
        for name, dtype in _STORAGES.items():
            found[f"torch.{name}Storage"] = Kind(dtype)
        found["torch.storage.UntypedStorage"] = found["torch.UntypedStorage"] = Kind(None)
        found.update({f"torch.{name}": dtype for name, dtype in _DTYPES.items()})
        return found

    def _sparse(self, *args: Any) -> Any:
        raise StateFileError(f"{self.path} holds a sparse tensor: save it as a dense one")

    def _typed_tensor(
        self, storage: Any, offset: Any, size: Any, stride: Any, _grad: Any, _hooks: Any,
        dtype: Any, _metadata: Any = None,
    ) -> Tensor:  # fmt: skip
        if not isinstance(dtype, DType):
            raise StateFileError(f"{self.path}: a tensor has the dtype {dtype!r:.40}")
        return self._made(storage, offset, size, stride, dtype)

    def _tensor(
        self, storage: Any, offset: Any, size: Any, stride: Any, _grad: Any = None,
        _hooks: Any = None, _metadata: Any = None,
    ) -> Tensor:  # fmt: skip
        kind = storage.dtype if isinstance(storage, Storage) else None
        if kind is None:
            raise StateFileError(f"{self.path}: a tensor has no dtype")
        if _metadata:
            raise StateFileError(
                f"{self.path}: a tensor is conjugated or negated: resolve it first"
            )
        return self._made(storage, offset, size, stride, kind)

    def _made(self, storage: Any, offset: Any, size: Any, stride: Any, kind: DType) -> Tensor:
        checked = isinstance(storage, Storage) and _is_size(offset)
        for axes in (size, stride):
            checked = checked and type(axes) is tuple and len(axes) <= AXES_LIMIT
            checked = checked and all(map(_is_size, axes))
        if not checked or len(size) != len(stride) or prod(size) > _ELEMENTS_LIMIT:
            raise StateFileError(f"{self.path}: a tensor of {size!r:.60} and {stride!r:.60}")
        if not prod(size):
            return wrap(B.full(size, 0, kind), self.device)
        last = offset + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
        if (last + 1) * kind.itemsize > storage.size:
            raise StateFileError(
                f"{self.path}: a tensor of {size} with strides {stride} at {offset} leaves its "
                f"storage {storage.key!r:.40} of {storage.size} bytes"
            )
        if storage.start < 0:  # the first pass: nobody reads it
            return wrap(B.full(size, 0, kind), self.device)
        line = self._line(storage.start + offset * kind.itemsize, last - offset + 1, kind)
        return _shown(line, size, stride)

    def _line(self, start: int, count: int, kind: DType) -> Tensor:
        """Elements of the file, one after the other; the same ones are read once."""
        key = start, count, kind
        if key not in self._lines:
            floats = dt.FLOATS_OF[kind] if kind.is_complex else kind
            length = 2 * count if kind.is_complex else count
            view = _aligned(self.memory, start, length, floats)
            node = B.new_buffer(length, floats, self.memory.device, view)
            if kind.is_complex:
                node = B.complex_view(B.copy(B.reshape(node, (count, 2)), self.device))
            else:
                node = B.copy(node, self.device)
            self._lines[key] = wrap(node, self.device)
        return self._lines[key]


def _aligned(memory: Buffer, start: int, count: int, kind: DType) -> Buffer:
    """Elements at any byte; those in memory are copied to where kernels can read them."""
    if memory.device.startswith(DISK_PREFIX) or start % kind.itemsize == 0:
        return memory.view(start, count, kind)
    found = Buffer.new(memory.device, count, kind).allocate()
    found.numpy().view(np.uint8)[:] = memory.numpy()[start : start + count * kind.itemsize]
    return found


def _shown(line: Tensor, size: tuple[int, ...], stride: tuple[int, ...]) -> Tensor:
    """A line of elements as a tensor of this shape; axes in any order are a view."""
    own = [axis for axis, n in enumerate(size) if n > 1]
    order = sorted(own, key=lambda axis: -stride[axis])
    step, is_dense = 1, True
    for axis in reversed(order):
        is_dense = is_dense and stride[axis] == step
        step *= size[axis]
    if not is_dense:
        return line.as_strided(size, stride)
    found = line.reshape([size[axis] for axis in order])
    if order != own:
        found = found.permute([order.index(axis) for axis in own])
    return found.reshape(size)


def _parameter(data: Any, requires_grad: Any, hooks: Any) -> Any:
    """Parameters are tensors: a module decides what it trains."""
    if not isinstance(data, Tensor):
        raise TypeError(f"a parameter of a {type(data).__name__}")
    return data


def _size(axes: Any) -> tuple[int, ...]:
    found = tuple(axes)
    if len(found) > AXES_LIMIT or not all(map(_is_size, found)):
        raise ValueError("sizes are whole numbers")
    return found


def _ordered(pairs: Any = ()) -> OrderedDict[Any, Any]:
    found: OrderedDict[Any, Any] = OrderedDict()
    for key, value in _pairs(pairs):
        if not isinstance(key, (str, int)):
            raise TypeError(f"a key is a {type(key).__name__}")
        found[key] = value
    return found


def _pairs(given: Any) -> Iterator[tuple[Any, Any]]:
    if not isinstance(given, (list, tuple)):
        raise TypeError("pairs are a list")
    for pair in given:
        if not isinstance(pair, (list, tuple)) or len(pair) != 2:
            raise TypeError("a pair has a key and a value")
        yield pair[0], pair[1]


def _complex(real: Any, imaginary: Any) -> complex:
    if not isinstance(real, (int, float)) or not isinstance(imaginary, (int, float)):
        raise TypeError("a complex number has two parts")
    return complex(real, imaginary)


def _is_size(n: Any) -> bool:
    return type(n) is int and 0 <= n < 1 << 62
