"""Protobuf messages of an ONNX file, as bytes. The counterpart of `wire`; sizes are in `Part`s.

Weights are not copied into one byte string: a message is a list of pieces with a known length, and
the pieces of arrays are views.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Part(NamedTuple):
    """Bytes in pieces, and how many they are."""

    pieces: tuple[Any, ...]
    size: int


def varint(value: int) -> bytes:
    value &= 0xFFFFFFFFFFFFFFFF
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


def number(field: int, value: int) -> Part:
    return _plain(varint(field << 3) + varint(value))


def real(field: int, value: float) -> Part:
    return _plain(varint(field << 3 | 5) + struct.pack("<f", value))


def text(field: int, value: str) -> Part:
    data = value.encode()
    return _plain(varint(field << 3 | 2) + varint(len(data)) + data)


def raw(field: int, data: memoryview) -> Part:
    head = varint(field << 3 | 2) + varint(data.nbytes)
    return Part((head, data), len(head) + data.nbytes)


def message(field: int, parts: Iterable[Part]) -> Part:
    """A message inside another one."""
    inner = joined(parts)
    head = varint(field << 3 | 2) + varint(inner.size)
    return Part((head, *inner.pieces), len(head) + inner.size)


def joined(parts: Iterable[Part]) -> Part:
    found = list(parts)
    pieces = tuple([piece for part in found for piece in part.pieces])
    return Part(pieces, sum([part.size for part in found]))


def attribute(name: str, value: Any) -> Part:
    """An attribute of a node (field 5)."""
    parts = [text(1, name)]
    if isinstance(value, float):
        parts += [real(2, value), number(20, 1)]
    elif isinstance(value, int):
        parts += [number(3, value), number(20, 2)]
    elif isinstance(value, str):
        parts += [text(4, value), number(20, 3)]
    else:
        parts += [*[number(8, int(v)) for v in value], number(20, 7)]
    return message(5, parts)


def node(
    operator: str, inputs: Sequence[str], outputs: Sequence[str], attributes: dict[str, Any]
) -> Part:
    """A node of a graph (field 1)."""
    parts = [*[text(1, name) for name in inputs], *[text(2, name) for name in outputs]]
    parts += [text(3, outputs[0]), text(4, operator)]
    return message(1, [*parts, *[attribute(n, v) for n, v in attributes.items()]])


def tensor(name: str, kind: int, array: NDArray[Any], place: tuple[str, int] | None) -> Part:
    """An initialiser (field 5); ``place`` is a file and an offset where the data lies outside."""
    parts = [*[number(1, n) for n in array.shape], number(2, kind), text(8, name)]
    if place is None:
        return message(5, [*parts, raw(9, bytes_of(array))])
    entries = {"location": place[0], "offset": str(place[1]), "length": str(array.nbytes)}
    parts += [message(13, [text(1, k), text(2, v)]) for k, v in entries.items()]
    return message(5, [*parts, number(14, 1)])


def bytes_of(array: NDArray[Any]) -> memoryview:
    """The bytes of an array, the lowest byte of each number first."""
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    return memoryview(np.ascontiguousarray(array).reshape(-1).view(np.uint8))


def value_info(field: int, name: str, kind: int, shape: Sequence[int | str]) -> Part:
    """An input (field 11) or an output (field 12)."""
    sizes = [message(1, [text(2, n) if isinstance(n, str) else number(1, n)]) for n in shape]
    inner = message(1, [number(1, kind), message(2, sizes)])
    return message(field, [text(1, name), message(2, [inner])])


def model(graph: Sequence[Part], opset: int, ir_version: int, producer: tuple[str, str]) -> Part:
    operators = message(8, [text(1, ""), number(2, opset)])
    parts = [number(1, ir_version), text(2, producer[0]), text(3, producer[1])]
    return joined([*parts, message(7, graph), operators])


def _plain(data: bytes) -> Part:
    return Part((data,), len(data))
