"""Tensors of a file: arrays on the host where they are small, lazy tensors of mapped bytes else.

In: a TensorProto and the file it is in. Sizes are compared with the bytes that are there before
anything is made of them. External data must be a plain file below the model's folder, reached
through no link, and is mapped as a DISK buffer: the bytes are read when a plan takes them.
"""

from __future__ import annotations

import errno
import os
import stat
from bisect import bisect
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svod.device.buffer import Buffer
from svod.device.disk import map_descriptor
from svod.frontend.onnx.errors import OnnxError
from svod.frontend.onnx.types import CARRIERS, STRING, Element, element
from svod.frontend.onnx.wire import Message
from svod.ir import build as B
from svod.ir.node import UOp
from svod.tensor.core.tensor_core import wrap
from svod.tensor.tensor import Tensor

HOST_ELEMENTS = 1024  # a constant with at most so many elements is kept as an array
HOST_POINTS = 1 << 16  # and a list of so many bytes: the zero points of channels
AXES_LIMIT = 64
ELEMENTS_LIMIT = 1 << 40
PATH_LIMIT = 4096  # characters of a location
EXTERNAL = 1
Array = NDArray[Any]


class Store:
    """The bytes of a model: the file itself and the files beside it."""

    def __init__(self, data: memoryview, memory: Buffer | None, folder: str | None) -> None:
        self.data = data
        self.memory = memory  # the mapped file, where there is one
        self.folder = folder
        self.start = _address(data)
        self._files: dict[str, Buffer] = {}
        self._claims: dict[str, list[tuple[int, int]]] = {}  # ranges of external files, sorted
        self._nodes: dict[Any, UOp] = {}  # of shared data

    def value(self, proto: Message, device: str) -> Array | Tensor:
        """A small tensor as an array, a large one as a lazy tensor."""
        kind, shape = element(proto.data_type), shape_of(proto)
        is_list = len(shape) == 1 and kind.name in ("INT8", "UINT8")
        most = HOST_POINTS if is_list else HOST_ELEMENTS
        if prod(shape) <= most or kind.is_narrow or kind.number == STRING:
            return self.array(proto)
        if kind.carrier.is_complex or not (proto.has("raw_data") or proto.location == EXTERNAL):
            return Tensor.from_numpy(self.array(proto), device=device)
        raw, memory, offset = self._raw(proto)
        _check_bytes(proto, kind, shape, len(raw))
        if memory is None:
            return Tensor(self.array(proto), device=device)
        key = (memory.device, offset, prod(shape), kind.carrier)
        if key not in self._nodes:
            view = memory.view(offset, prod(shape), kind.carrier)
            self._nodes[key] = B.new_buffer(prod(shape), kind.carrier, memory.device, view)
        node = self._nodes[key]
        return wrap(B.copy(B.reshape(node, shape), device), device)

    def array(self, proto: Message) -> Array:
        """A tensor as an array; a view of the file where its layout is the array's."""
        kind, shape = element(proto.data_type), shape_of(proto)
        if kind.number == STRING:
            texts = [bytes(s).decode("utf-8", "surrogateescape") for s in proto.string_data]
            _check_count(proto, len(texts), shape)
            return np.array(texts, object).reshape(shape)
        if proto.location == EXTERNAL or proto.has("raw_data"):
            raw = self._raw(proto)[0]
            _check_bytes(proto, kind, shape, len(raw))
            flat = np.frombuffer(raw, np.uint8)
            if kind.bits < 8:
                return unpacked(flat, kind, prod(shape)).reshape(shape)
            return (
                flat.view(kind.array.newbyteorder("<"))
                .astype(kind.array, copy=False)
                .reshape(shape)
            )
        return self._typed(proto, kind, shape)

    def _typed(self, proto: Message, kind: Element, shape: tuple[int, ...]) -> Array:
        """Numbers in the repeated fields."""
        count = prod(shape)
        if kind.carrier.is_complex:
            data = proto.float_data if kind.name == "COMPLEX64" else proto.double_data
            _check_count(proto, len(data) // 2, shape)
            return np.ascontiguousarray(data).view(kind.array).reshape(shape)
        field = {"FLOAT": "float_data", "DOUBLE": "double_data", "INT64": "int64_data"}.get(
            kind.name, "uint64_data" if kind.name in ("UINT32", "UINT64") else "int32_data"
        )
        data = getattr(proto, field)
        if kind.bits < 8:
            _check_count(proto, len(data), (-(-count * kind.bits // 8),))
            return unpacked(data.astype(np.uint8), kind, count).reshape(shape)
        _check_count(proto, len(data), shape)
        if kind.name in ("FLOAT16", "BFLOAT16") or kind.name.startswith("FLOAT8"):
            bits = data.astype(np.uint16 if kind.bits == 16 else np.uint8)
            return bits.view(kind.array).reshape(shape)
        return data.astype(kind.array).reshape(shape)

    def _raw(self, proto: Message) -> tuple[memoryview, Buffer | None, int]:
        """The bytes of a tensor, the buffer they are in and where they start."""
        if proto.location != EXTERNAL:
            raw = proto.raw_data
            offset = _address(raw) - self.start if len(raw) else 0
            return raw, self.memory, offset
        entries = {e.key: e.value for e in proto.external_data}
        name = entries.get("location", "")
        memory = self._file(name, proto.name)
        kind, shape = element(proto.data_type), shape_of(proto)
        size = -(-prod(shape) * kind.bits // 8)
        offset = _whole(entries.get("offset", "0"), proto.name, "offset")
        length = _whole(entries.get("length", str(size)), proto.name, "length")
        if offset + length > memory.size:
            raise OnnxError(
                f"tensor {proto.name!r}: bytes {offset} to {offset + length} of {name!r} were "
                f"asked, the file has {memory.size}"
            )
        self._claim(name, offset, length, proto.name)
        return memoryview(memory.numpy())[offset : offset + length], memory, offset

    def _file(self, location: str, tensor: str) -> Buffer:
        if location not in self._files:
            self._files[location] = open_external(self.folder, location, tensor)
        return self._files[location]

    def _claim(self, location: str, offset: int, length: int, tensor: str) -> None:
        """Tensors may share data, not a part of it: that would be a way to make more of a file."""
        if not length:
            return
        claims = self._claims.setdefault(location, [])
        place = bisect(claims, (offset, offset + length))
        if place and claims[place - 1] == (offset, offset + length):
            return
        for start, end in claims[max(place - 1, 0) : place + 1]:
            if start < offset + length and offset < end:
                raise OnnxError(
                    f"external data of tensor {tensor!r}: bytes {offset} to {offset + length} of "
                    f"{location!r} overlap bytes {start} to {end} of another tensor"
                )
        claims.insert(place, (offset, offset + length))


def open_external(folder: str | None, location: str, tensor: str) -> Buffer:
    """The file with a tensor's data, mapped: a plain file below the model's folder.

    Each part of the path is opened inside the folder that was opened before it and never through a
    link, and what is mapped is the descriptor that was checked, so a file that is replaced
    meanwhile changes nothing.
    """
    where = f"external data of tensor {tensor!r}"
    if folder is None:
        raise OnnxError(f"{where}: the model was not loaded from a path, so it has no folder")
    given = location.replace("\\", "/").split("/")
    if (
        not location
        or len(location) > PATH_LIMIT
        or "\0" in location
        or os.path.isabs(location)
        or ":" in given[0]
        or ".." in given
    ):
        raise OnnxError(f"{where}: {location!r:.200} is not inside the model's folder")
    parts = [p for p in given if p not in ("", ".")]
    if not parts:
        raise OnnxError(f"{where}: {location!r} is no plain file")
    opened: list[int] = []
    try:
        opened.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
        for part in parts[:-1]:
            opened.append(_open_at(part, opened[-1], os.O_DIRECTORY))
        opened.append(_open_at(parts[-1], opened[-1], os.O_NONBLOCK))
        if not stat.S_ISREG(os.fstat(opened[-1]).st_mode):
            raise OnnxError(f"{where}: {location!r} is no plain file")
        return map_descriptor(opened[-1], os.path.join(folder, *parts))
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENOTDIR):
            raise OnnxError(
                f"{where}: {location!r} goes through a symbolic link, or what is no folder"
            ) from None
        raise OnnxError(f"{where}: {location!r}: {error.strerror}") from None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _open_at(name: str, folder: int, flags: int) -> int:
    """Open a name inside an open folder; a link is refused."""
    return os.open(name, flags | os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)


def shape_of(proto: Message) -> tuple[int, ...]:
    dims = proto.dims.tolist()
    if (
        len(dims) > AXES_LIMIT
        or any(not 0 <= d <= ELEMENTS_LIMIT for d in dims)
        or prod(dims) > ELEMENTS_LIMIT
    ):
        raise OnnxError(f"tensor {proto.name!r} has the impossible shape {dims[:AXES_LIMIT]}")
    return tuple(dims)


def unpacked(data: NDArray[np.uint8], kind: Element, count: int) -> Array:
    """Numbers of less than a byte, the lowest bits first."""
    each = 8 // kind.bits
    shifts = np.arange(each, dtype=np.uint8) * kind.bits
    codes = ((data[:, None] >> shifts) & ((1 << kind.bits) - 1)).reshape(-1)[:count]
    if kind.name.startswith("INT"):
        half = 1 << (kind.bits - 1)
        codes = ((codes.astype(np.int8) ^ half) - half).astype(np.int8)
        return codes.astype(kind.array)
    return codes.astype(kind.array) if kind.name.startswith("UINT") else codes.view(kind.array)


def _check_bytes(proto: Message, kind: Element, shape: tuple[int, ...], found: int) -> None:
    wanted = -(-prod(shape) * kind.bits // 8)
    if found != wanted:
        raise OnnxError(
            f"tensor {proto.name!r}, {kind.name} {list(shape)}, needs {wanted} bytes of data, "
            f"the file gives {found}"
        )


def _check_count(proto: Message, found: int, shape: tuple[int, ...]) -> None:
    if found != prod(shape):
        raise OnnxError(
            f"tensor {proto.name!r} of shape {list(shape)} needs {prod(shape)} numbers, "
            f"the file gives {found}"
        )


def _whole(text: str, tensor: str, what: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise OnnxError(f"external data of tensor {tensor!r}: {what} {text!r:.40} is no size")
    return int(text)


def _address(data: memoryview) -> int:
    return int(np.frombuffer(data, np.uint8).__array_interface__["data"][0]) if len(data) else 0


def carried(array: Array, kind: Element) -> Array:
    """An array of a type in the dtype that carries it."""
    return array.astype(CARRIERS[kind.carrier]) if kind.is_narrow else array
