"""Safetensors files: read without copying, written in one pass.

A file is 8 bytes with the length of a JSON header, the header, and the raw elements. Reading maps
the file through a DISK buffer: tensors are copied to their device when they are first used. Files
are not trusted: every number is checked against the size of the file before anything is read.
"""

from __future__ import annotations

import json
import os
import secrets
from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

import numpy as np

from svod.base.errors import DTypeError, SvodError
from svod.device.buffer import Buffer
from svod.device.disk import map_file
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import build as B
from svod.tensor.core.public_functions import guard
from svod.tensor.core.tensor_core import default_device, device_name, tensor_of, wrap
from svod.tensor.tensor import Tensor

_DTYPES: dict[str, DType] = {
    "BOOL": dt.bool_, "U8": dt.uint8, "I8": dt.int8, "U16": dt.uint16, "I16": dt.int16,
    "U32": dt.uint32, "I32": dt.int32, "U64": dt.uint64, "I64": dt.int64, "F16": dt.float16,
    "BF16": dt.bfloat16, "F32": dt.float32, "F64": dt.float64, "F8_E4M3": dt.float8_e4m3,
    "F8_E5M2": dt.float8_e5m2, "C64": dt.complex64,
}  # fmt: skip
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_BINARY = getattr(os, "O_BINARY", 0)
HEADER_LIMIT = 100_000_000  # bytes, as in the reference implementation
AXES_LIMIT = 64


class StateFileError(SvodError, ValueError):
    """A file of tensors that is not well-formed, or holds what is not read."""


class Entry(NamedTuple):
    """Where one tensor is: dtype, shape, and bytes counted from the end of the header."""

    dtype: DType
    shape: tuple[int, ...]
    start: int
    stop: int


def load_file(path: str | os.PathLike[str], device: str | None = None) -> dict[str, Tensor]:
    """The tensors of a file by name, read from it when they are first used."""
    return read_state(path, device)[0]


def read_state(source: Any, device: str | None = None) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a file by name, and its free-form texts; a path is mapped, a file that is
    open for reading is read to its end."""
    return read_entries(*opened(source), device)


def opened(source: Any) -> tuple[Buffer, str]:
    """The bytes of a file, mapped where a path is given, and its name."""
    is_open = hasattr(source, "read")
    if not is_open and not isinstance(source, (str, os.PathLike)):
        raise DTypeError(f"tensors are read from a path or an open file, not a {type(source)}")
    memory = _read_whole(source) if is_open else map_file(source)
    return memory, str(getattr(source, "name", "the file")) if is_open else os.fspath(source)


def read_entries(
    memory: Buffer, name: str, device: str | None = None
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors of a mapped file by name, and its free-form texts."""
    entries, texts, base = read_header(memory.numpy(), name)
    return _tensors(memory, entries, base, device), texts


def is_torch_file(start: bytes) -> bool:
    """Whether the first 8 bytes of a file are those of a zip or of a pickle.

    They are the length of the header of a safetensors file: no pickle makes a length that is one.
    """
    if start.startswith(b"PK\x03\x04"):
        return True
    is_pickle = start[:1] == b"\x80" and start[1:2] in (b"\2", b"\3", b"\4", b"\5")
    return is_pickle and int.from_bytes(start, "little") > HEADER_LIMIT


def _read_whole(file: Any) -> Buffer:
    data = file.read()
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise DTypeError(f"a file of tensors is opened in binary mode: it gave a {type(data)}")
    memory = Buffer.new("CPU", len(data), dt.uint8).allocate()
    memory.numpy()[:] = np.frombuffer(data, np.uint8)
    return memory


def _tensors(
    memory: Buffer, entries: Mapping[str, Entry], base: int, device: str | None
) -> dict[str, Tensor]:
    where = device_name(device) or default_device()
    found = {}
    for name, entry in entries.items():
        size = prod(entry.shape)
        if not size:
            found[name] = wrap(B.full(entry.shape, 0, entry.dtype), where)
            continue
        kind, shape = entry.dtype, entry.shape
        if kind.is_complex:
            kind, shape, size = dt.FLOATS_OF[kind], (*shape, 2), 2 * size
        view = memory.view(base + entry.start, size, kind)
        node = B.copy(B.reshape(B.new_buffer(size, kind, memory.device, view), shape), where)
        found[name] = wrap(B.complex_view(node) if entry.dtype.is_complex else node, where)
    return found


def metadata(path: str | os.PathLike[str]) -> dict[str, str]:
    """The free-form texts of a file."""
    return read_state(path)[1]


def save_file(
    tensors: Mapping[str, Any],
    path: Any,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write tensors by name, to a path or to a file that is open for writing bytes.

    A file of that name is replaced only once all is written.
    """
    arrays: dict[str, tuple[DType, tuple[int, ...], Any]] = {}
    for name, value in tensors.items():
        t = tensor_of(value)
        if not isinstance(name, str) or name == "__metadata__" or t.dtype not in _NAMES:
            raise DTypeError(f"cannot save {name!r} of {t.dtype.name}")
        arrays[name] = (t.dtype, t.shape, np.ascontiguousarray(t.numpy()))
    # wide elements first, so that every tensor starts at a multiple of its element size
    names = sorted(arrays, key=lambda n: (-arrays[n][0].itemsize, n))
    header: dict[str, Any] = {}
    if metadata:
        header["__metadata__"] = {str(k): str(v) for k, v in metadata.items()}
    place = 0
    for name in names:
        dtype, shape, array = arrays[name]
        header[name] = {
            "dtype": _NAMES[dtype], "shape": list(shape),
            "data_offsets": [place, place + array.nbytes],
        }  # fmt: skip
        place += array.nbytes
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    parts = [len(text).to_bytes(8, "little"), text, *[_bytes(arrays[n][2]) for n in names]]
    if hasattr(path, "write"):
        for part in parts:
            path.write(part)
        return
    if not isinstance(path, (str, os.PathLike)):
        raise DTypeError(f"tensors are saved to a path or an open file, not a {type(path)}")
    replace_file(path, parts)


def _bytes(array: Any) -> Any:
    return memoryview(array.reshape(-1).view(np.uint8)) if array.size else b""


def replace_file(path: str | os.PathLike[str], parts: list[Any]) -> None:
    """Write a file beside its name and put it there once it is whole."""
    folder = os.path.dirname(os.path.abspath(path))
    temporary = os.path.join(folder, f".{secrets.token_hex(8)}.tmp")
    # The permissions of any new file: those of the process, unlike what tempfile gives.
    descriptor = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | _BINARY, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for part in parts:
                file.write(part)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


# -- reading untrusted headers -----------------------------------------------------------------


def read_header(raw: Any, path: str) -> tuple[dict[str, Entry], dict[str, str], int]:
    """Entries, metadata, and where the data starts."""
    if raw.size < 8:
        raise StateFileError(f"{path}: {raw.size} bytes are too few for a safetensors file")
    if is_torch_file(raw[:8].tobytes()):
        raise StateFileError(
            f"{path} is a pickle, as torch.save writes them, and no safetensors file: "
            "svod.load(path) reads tensors and plain containers of such files"
        )
    length = int.from_bytes(raw[:8].tobytes(), "little")
    if length > HEADER_LIMIT or length > raw.size - 8:
        raise StateFileError(f"{path}: a header of {length} bytes in a file of {raw.size}")
    try:
        header = json.loads(raw[8 : 8 + length].tobytes().decode(), object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise StateFileError(f"{path}: the header is not JSON: {error}") from None
    if not isinstance(header, dict):
        raise StateFileError(f"{path}: the header is not an object")
    texts = header.pop("__metadata__", {})
    if not isinstance(texts, dict) or not all(isinstance(v, str) for v in texts.values()):
        raise StateFileError(f"{path}: the metadata is not texts by name")
    available = raw.size - 8 - length
    entries = {name: _entry(path, name, value, available) for name, value in header.items()}
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].start, item[1].stop)):
        if entry.start != end:
            raise StateFileError(f"{path}: {name!r} starts at {entry.start}, not at {end}")
        end = entry.stop
    if end != available:
        raise StateFileError(f"{path}: tensors take {end} bytes of {available}")
    return entries, texts, 8 + length


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name appears twice")
    return found


def _entry(path: str, name: str, value: Any, available: int) -> Entry:
    if not isinstance(value, dict) or set(value) != {"dtype", "shape", "data_offsets"}:
        raise StateFileError(f"{path}: {name!r} needs dtype, shape and data_offsets")
    kind, shape, offsets = value["dtype"], value["shape"], value["data_offsets"]
    if not isinstance(kind, str) or kind not in _DTYPES:
        raise StateFileError(f"{path}: {name!r} has the unknown dtype {kind!r:.40}")
    if not isinstance(shape, list) or len(shape) > AXES_LIMIT or not all(map(_is_size, shape)):
        raise StateFileError(f"{path}: {name!r} has the shape {shape!r:.60}")
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_size, offsets)):
        raise StateFileError(f"{path}: {name!r} has the data_offsets {offsets!r:.60}")
    start, stop = offsets
    dtype = _DTYPES[kind]
    if not start <= stop <= available or stop - start != prod(shape) * dtype.itemsize:
        raise StateFileError(
            f"{path}: {name!r} of {kind} and shape {shape} cannot be bytes {start} to {stop} "
            f"of {available}"
        )
    return Entry(dtype, tuple(shape), start, stop)


def _is_size(n: Any) -> bool:
    return type(n) is int and 0 <= n < 1 << 62


guard(globals())
__all__ = ["StateFileError", "load_file", "metadata", "save_file"]
