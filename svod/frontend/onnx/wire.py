"""Protobuf messages of an ONNX file, read from bytes by a table of fields.

In: bytes nobody vouches for. Out: `Message` objects whose attributes are Python values; bytes stay
views of the file, so weights are not copied. Every length is checked against what encloses it, and
nesting is bounded. Unknown fields are passed over, as protobuf asks. Nothing here imports protobuf.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from svod.frontend.onnx.errors import OnnxError

DEPTH_LIMIT = 64  # messages inside messages; a graph in a graph takes three
FIELDS_LIMIT = 20_000_000  # of one file

# Kinds of fields. A schema's value is a kind or the name of another schema; a list means repeated.
INT, FLOAT, TEXT, BYTES = "int", "float", "text", "bytes"
PACKED = {"ints": 0, "floats": 5, "doubles": 1}  # repeated numbers, by their wire type

_SCHEMAS: dict[str, dict[int, tuple[str, Any]]] = {
    "Model": {
        1: ("ir_version", INT), 2: ("producer_name", TEXT), 3: ("producer_version", TEXT),
        4: ("domain", TEXT), 5: ("model_version", INT), 6: ("doc_string", TEXT),
        7: ("graph", "Graph"), 8: ("opset_import", ["Opset"]), 14: ("metadata", ["Entry"]),
        25: ("functions", ["Function"]),
    },
    "Opset": {1: ("domain", TEXT), 2: ("version", INT)},
    "Entry": {1: ("key", TEXT), 2: ("value", TEXT)},
    "Graph": {
        1: ("nodes", ["Node"]), 2: ("name", TEXT), 5: ("initializers", ["Tensor"]),
        11: ("inputs", ["ValueInfo"]), 12: ("outputs", ["ValueInfo"]),
        13: ("value_info", ["ValueInfo"]), 15: ("sparse_initializers", ["Sparse"]),
    },
    "Node": {
        1: ("inputs", [TEXT]), 2: ("outputs", [TEXT]), 3: ("name", TEXT), 4: ("op_type", TEXT),
        5: ("attributes", ["Attribute"]), 7: ("domain", TEXT), 8: ("overload", TEXT),
    },
    "Attribute": {
        1: ("name", TEXT), 2: ("f", FLOAT), 3: ("i", INT), 4: ("s", BYTES), 5: ("t", "Tensor"),
        6: ("g", "Graph"), 7: ("floats", "floats"), 8: ("ints", "ints"), 9: ("strings", [BYTES]),
        10: ("tensors", ["Tensor"]), 11: ("graphs", ["Graph"]), 14: ("tp", "Type"),
        20: ("type", INT), 21: ("ref_attr_name", TEXT), 22: ("sparse_tensor", "Sparse"),
    },
    "Tensor": {
        1: ("dims", "ints"), 2: ("data_type", INT), 4: ("float_data", "floats"),
        5: ("int32_data", "ints"), 6: ("string_data", [BYTES]), 7: ("int64_data", "ints"),
        8: ("name", TEXT), 9: ("raw_data", BYTES), 10: ("double_data", "doubles"),
        11: ("uint64_data", "ints"), 13: ("external_data", ["Entry"]), 14: ("location", INT),
    },
    "Sparse": {1: ("values", "Tensor"), 2: ("indices", "Tensor"), 3: ("dims", "ints")},
    "ValueInfo": {1: ("name", TEXT), 2: ("type", "Type")},
    "Type": {
        1: ("tensor_type", "TensorType"), 4: ("sequence_type", "ElementType"),
        5: ("map_type", "MapType"), 8: ("sparse_tensor_type", "TensorType"),
        9: ("optional_type", "ElementType"),
    },
    "TensorType": {1: ("elem_type", INT), 2: ("shape", "Shape")},
    "ElementType": {1: ("elem_type", "Type")},
    "MapType": {1: ("key_type", INT), 2: ("value_type", "Type")},
    "Shape": {1: ("dims", ["Dimension"])},
    "Dimension": {1: ("value", INT), 2: ("param", TEXT)},
    "Function": {
        1: ("name", TEXT), 4: ("inputs", [TEXT]), 5: ("outputs", [TEXT]), 6: ("attributes", [TEXT]),
        7: ("nodes", ["Node"]), 9: ("opset_import", ["Opset"]), 10: ("domain", TEXT),
        11: ("attribute_protos", ["Attribute"]), 13: ("overload", TEXT),
    },
}  # fmt: skip
_DEFAULTS: dict[str, Any] = {INT: 0, FLOAT: 0.0, TEXT: "", BYTES: b""}


class Message:
    """A message with its fields as attributes: defaults where the file says nothing."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.present: set[str] = set()  # the fields that the file has

    def __getattr__(self, name: str) -> Any:
        for known, kind in _SCHEMAS[self.kind].values():
            if known == name:
                if isinstance(kind, list):
                    return []
                if kind in PACKED:
                    return np.empty(0, np.float64 if kind != "ints" else np.int64)
                return _DEFAULTS.get(kind)
        raise AttributeError(name)

    def has(self, name: str) -> bool:
        return name in self.present

    def __repr__(self) -> str:
        return f"{self.kind}({', '.join(sorted(self.present))})"


def read(data: memoryview, kind: str = "Model") -> Message:
    """The message that the bytes hold."""
    return _Reader(data).message(0, len(data), kind, 0)


class _Reader:
    def __init__(self, data: memoryview) -> None:
        self.data = data
        self.count = 0

    def message(self, at: int, end: int, kind: str, depth: int) -> Message:
        if depth > DEPTH_LIMIT:
            raise OnnxError(f"the file nests more than {DEPTH_LIMIT} messages at byte {at}")
        schema = _SCHEMAS[kind]
        found = Message(kind)
        fields = found.__dict__
        packed: dict[str, list[NDArray[Any]]] = {}
        while at < end:
            start = at
            tag, at = self.varint(at, end)
            number, wire = tag >> 3, tag & 7
            value: Any
            if wire == 0:
                value, at = self.varint(at, end)
            elif wire == 2:
                size, at = self.varint(at, end)
                if size > end - at:
                    raise OnnxError(
                        f"the file is cut short or damaged: a field at byte {start} claims {size} "
                        f"bytes, {end - at} are left"
                    )
                value = (at, at + size)
                at += size
            elif wire in (1, 5):
                size = 8 if wire == 1 else 4
                if size > end - at:
                    raise OnnxError(f"the file ends within a number at byte {start}")
                value = (at, at + size)
                at += size
            else:
                raise OnnxError(f"byte {start} of the file has wire type {wire}: no ONNX file")
            self.count += 1
            if self.count > FIELDS_LIMIT:
                raise OnnxError(f"the file has more than {FIELDS_LIMIT} fields")
            entry = schema.get(number)
            if entry is None:
                continue
            name, field = entry
            found.present.add(name)
            if isinstance(field, str) and field in PACKED:
                packed.setdefault(name, []).append(self.numbers(value, wire, field, start))
            elif isinstance(field, list):
                fields.setdefault(name, []).append(self.value(value, wire, field[0], depth, start))
            else:
                fields[name] = self.value(value, wire, field, depth, start)
        for name, parts in packed.items():
            fields[name] = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return found

    def varint(self, at: int, end: int) -> tuple[int, int]:
        data = self.data
        result = shift = 0
        while at < end:
            byte = data[at]
            at += 1
            result |= (byte & 127) << shift
            if byte < 128:
                return result & 0xFFFFFFFFFFFFFFFF, at
            shift += 7
            if shift > 63:
                break
        raise OnnxError(f"the file is cut short or damaged: a number before byte {at} has no end")

    def value(self, value: Any, wire: int, field: str, depth: int, start: int) -> Any:
        if field == INT:
            self.expect(wire == 0, start)
            return value - (1 << 64) if value >> 63 else value
        if field == FLOAT:
            self.expect(wire == 5, start)
            return struct.unpack("<f", self.data[value[0] : value[1]])[0]
        self.expect(wire == 2, start)
        if field == BYTES:
            return self.data[value[0] : value[1]]
        if field == TEXT:
            try:
                return str(self.data[value[0] : value[1]], "utf-8")
            except UnicodeDecodeError:
                raise OnnxError(f"a name at byte {start} of the file is not UTF-8") from None
        return self.message(value[0], value[1], field, depth + 1)

    def numbers(self, value: Any, wire: int, field: str, start: int) -> NDArray[Any]:
        if field == "ints":
            if wire == 0:
                return np.array([value], np.uint64).view(np.int64)
            self.expect(wire == 2, start)
            return _varints(np.frombuffer(self.data[value[0] : value[1]], np.uint8), start)
        dtype = np.dtype("<f4" if field == "floats" else "<f8")
        self.expect(wire in (2, PACKED[field]), start)
        if (value[1] - value[0]) % dtype.itemsize:
            raise OnnxError(f"numbers at byte {start} of the file end within one")
        return np.frombuffer(self.data[value[0] : value[1]], dtype)

    def expect(self, holds: bool, start: int) -> None:
        if not holds:
            raise OnnxError(f"a field at byte {start} of the file has another type than ONNX says")


def _varints(data: NDArray[np.uint8], start: int) -> NDArray[np.int64]:
    """Packed whole numbers: each is the bytes up to one below 128, the lowest seven bits first."""
    if not data.size:
        return np.empty(0, np.int64)
    last = data < 128
    if not last[-1]:
        raise OnnxError(f"whole numbers at byte {start} of the file end within one")
    ends = np.flatnonzero(last)
    starts = np.concatenate([[0], ends[:-1] + 1])
    if (ends - starts).max() > 9:
        raise OnnxError(f"a whole number at byte {start} of the file has more than ten bytes")
    place = np.arange(data.size) - np.repeat(starts, ends - starts + 1)
    parts = (data & 127).astype(np.uint64) << (place.astype(np.uint64) * np.uint64(7))
    return np.bitwise_or.reduceat(parts, starts).view(np.int64)
