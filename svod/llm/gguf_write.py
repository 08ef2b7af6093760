"""Writing GGUF files: metadata and tensors, given as arrays or as bytes of a block format.

A file is written beside its name and put there once it is whole.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from svod.llm.errors import ModelFileError
from svod.llm.formats import BY_NAME, BlockFormat
from svod.llm.quantisers import quantized
from svod.nn.state import replace_file

Array = np.ndarray[Any, Any]
ALIGNMENT = 32
_KINDS = {np.dtype("f4"): "F32", np.dtype("f2"): "F16", np.dtype("f8"): "F64"}


def write_gguf(
    path: str | os.PathLike[str],
    metadata: Mapping[str, Any],
    tensors: Mapping[str, tuple[str, tuple[int, ...], Array] | Array],
) -> None:
    """Write a file. A tensor is an array, or (format, shape, bytes)."""
    keys = b"".join(_key(name, value) for name, value in metadata.items())
    infos, bodies, place = [], [], 0
    for name, value in tensors.items():
        kind, shape, raw = _tensor(name, value)
        axes = struct.pack(f"<I{len(shape)}Q", len(shape), *reversed(shape))
        infos.append(_text(name) + axes + struct.pack("<IQ", kind.number, place))
        body = raw.tobytes()
        bodies.append(body + b"\0" * (-len(body) % ALIGNMENT))
        place += len(bodies[-1])
    head = b"GGUF" + struct.pack("<IQQ", 3, len(infos), len(metadata)) + keys + b"".join(infos)
    replace_file(path, [head + b"\0" * (-len(head) % ALIGNMENT), *bodies])


def _tensor(name: str, value: Any) -> tuple[BlockFormat, tuple[int, ...], Array]:
    if isinstance(value, tuple):
        kind, shape, raw = BY_NAME[value[0]], tuple(value[1]), value[2]
    else:
        kind, shape, raw = BY_NAME[_KINDS[value.dtype]], value.shape, value
    raw = np.ascontiguousarray(raw).reshape(-1).view(np.uint8)
    if raw.size != kind.size(shape):
        raise ModelFileError(f"{name}: {raw.size} bytes for {kind.name} of shape {shape}")
    return kind, shape, raw


def _text(value: str) -> bytes:
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def _key(name: str, value: Any) -> bytes:
    return _text(name) + _value(value)


def _value(value: Any) -> bytes:
    if isinstance(value, (list, tuple)):
        return struct.pack("<I", 9) + _array(value)
    number = _type(value)
    return struct.pack("<I", number) + _body(value, number)


def _array(values: Sequence[Any]) -> bytes:
    number = max((_type(v) for v in values), default=5)
    return struct.pack("<IQ", number, len(values)) + b"".join(_body(v, number) for v in values)


def _type(value: Any) -> int:
    if isinstance(value, bool):
        return 7
    if isinstance(value, (int, np.integer)):
        return 4 if 0 <= value < 1 << 32 else 11
    if isinstance(value, (float, np.floating)):
        return 6
    if isinstance(value, str):
        return 8
    raise ModelFileError(f"metadata of type {type(value).__name__} is not written")


def _body(value: Any, number: int) -> bytes:
    if number == 8:
        return _text(value)
    return struct.pack("<" + {4: "I", 6: "f", 7: "B", 11: "q"}[number], value)


__all__ = ["quantized", "write_gguf"]
