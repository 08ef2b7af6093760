"""GGUF files: metadata by key and tensors in their block formats, mapped and not copied.

A file is a header, keys with values, a table of tensors and their bytes. Nothing in it is trusted:
every count, length and place is compared with the bytes that are there before anything is made of
it, and what does not fit is a `ModelFileError`. A model may be split over several files, of which
the first names the others by its own name.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from svod.dtype import types as dt
from svod.llm.errors import ModelFileError
from svod.llm.experts import FloatStack, LaneStack, Stack, stack_of
from svod.llm.formats import BY_NUMBER, BlockFormat
from svod.llm.mapping import Mapping
from svod.llm.weights import WHOLE, FloatMatrix, LaneMatrix, Matrix, Products, matrix_of
from svod.tensor.tensor import Tensor

MAGIC = b"GGUF"
VERSIONS = (2, 3)
AXES_LIMIT = 4
SPLIT_LIMIT = 10_000
_STRING, _ARRAY, _BOOL = 8, 9, 7
SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "B",
    10: "Q",
    11: "q",
    12: "d",
}
_SPLIT_NAME = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$")


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """Where a tensor is: its format, its shape (slowest axis first), its bytes."""

    name: str
    format: BlockFormat
    shape: tuple[int, ...]
    mapping: Mapping
    start: int

    @property
    def nbytes(self) -> int:
        return self.format.size(self.shape)

    def raw(self) -> Tensor:
        """The bytes, as a tensor over the mapping."""
        return self.mapping.tensor(self.start, dt.uint8, (self.nbytes,))

    def tensor(self) -> Tensor:
        """The weights as float32, decoded when they are used."""
        return self.format.decoded(self.raw(), self.shape)

    def weight(self, products: Products) -> Matrix | Stack | Tensor:
        """The weights as a model keeps them: matrices, stacks of those of experts, and vectors."""
        if len(self.shape) == 3:
            return self.stack(products)
        return self.matrix(products) if len(self.shape) == 2 else self.tensor()

    def stack(self, products: Products) -> Stack:
        """The matrices of experts, in as many bytes as the file takes for them."""
        if self.format.elements == 1:
            dtype = self.format.fields[0].dtype
            if dtype not in WHOLE or self.start % dtype.itemsize:
                return FloatStack(self.tensor())
            return FloatStack(self.mapping.tensor(self.start, dtype, self.shape))
        found = stack_of(self.format, self.raw(), self.shape, products)
        if isinstance(found, LaneStack):
            self.mapping.forget(self.start, self.nbytes)
        return found

    def matrix(self, products: Products) -> Matrix:
        """The weights of a matrix, in as many bytes as the file takes for them."""
        if self.format.elements == 1:
            dtype = self.format.fields[0].dtype
            if dtype not in WHOLE or self.start % dtype.itemsize:
                return FloatMatrix(self.tensor())
            return FloatMatrix(self.mapping.tensor(self.start, dtype, self.shape))
        found = matrix_of(self.format, self.raw(), self.shape, products)
        if isinstance(found, LaneMatrix):  # its own copy; the file's is not read again
            self.mapping.forget(self.start, self.nbytes)
        return found


@dataclass(frozen=True, slots=True)
class GGUFFile:
    """What a file, or all files of a split model, hold."""

    path: str
    metadata: dict[str, Any]
    tensors: dict[str, TensorEntry]


def read_gguf(path: str | os.PathLike[str]) -> GGUFFile:
    """The metadata and tensors of a model; of a split one, from its first file."""
    name = os.fspath(path)
    found = _read_one(name)
    count = found.metadata.get("split.count", 1)
    if not isinstance(count, int) or not 0 <= count <= SPLIT_LIMIT:
        raise ModelFileError(f"{name}: the model is said to be in {count!r:.40} files")
    if count <= 1:
        return found
    tensors = dict(found.tensors)
    for other in _other_parts(name, found.metadata, count):
        part = _read_one(other)
        if twice := tensors.keys() & part.tensors.keys():
            raise ModelFileError(f"{other}: {min(twice)!r:.80} is in another file too")
        tensors |= part.tensors
    total = found.metadata.get("split.tensors.count", len(tensors))
    if total != len(tensors):
        raise ModelFileError(f"{name}: {len(tensors)} tensors in {count} files, not {total!r:.40}")
    return GGUFFile(name, found.metadata, tensors)


def _other_parts(name: str, metadata: dict[str, Any], count: int) -> Iterator[str]:
    match = _SPLIT_NAME.search(name)
    if match is None or int(match[2]) != count or metadata.get("split.no") != 0:
        raise ModelFileError(
            f"{name} is part {metadata.get('split.no')!r:.40} of {count}: open the first, whose "
            f"name ends in -00001-of-{count:05}.gguf"
        )
    if int(match[1]) != 1:
        raise ModelFileError(f"{name} is the first of {count} files, but named as another")
    for number in range(2, count + 1):
        other = f"{name[: match.start()]}-{number:05}-of-{count:05}.gguf"
        if not os.path.isfile(other):
            raise ModelFileError(f"{name}: {other} is missing")
        yield other


def _read_one(path: str) -> GGUFFile:
    if not os.path.isfile(path):
        raise ModelFileError(f"{path} is no file")
    if os.path.getsize(path) < 24:
        raise ModelFileError(f"{path}: too few bytes for a GGUF file")
    return _Reader(path, Mapping(path)).read()


class _Reader:
    """A place in the bytes of a file, moved on by what is read."""

    def __init__(self, path: str, mapping: Mapping) -> None:
        self.path, self.mapping = path, mapping
        self.data, self.place = memoryview(mapping.raw), 0

    def read(self) -> GGUFFile:
        if bytes(self.take(4)) != MAGIC:
            raise self.error("no GGUF file: it does not start with GGUF")
        version = self.number("I")
        if version not in VERSIONS:
            raise self.error(f"version {version} of GGUF is not read (2 and 3 are)")
        tensors, keys = self.number("Q"), self.number("Q")
        # A key takes at least 13 bytes and a tensor 32: a count beyond that is no count.
        if keys > len(self.data) // 13 or tensors > len(self.data) // 32:
            raise self.error(f"{keys} keys and {tensors} tensors do not fit")
        metadata: dict[str, Any] = {}
        for _ in range(keys):
            key = self.text()
            if key in metadata:
                raise self.error(f"the key {key!r:.80} is there twice")
            metadata[key] = self.value(self.number("I"), key)
        alignment = metadata.get("general.alignment", 32)
        if not _is_alignment(alignment):
            raise self.error(f"an alignment of {alignment!r:.40} bytes is no power of two")
        infos = [self.info() for _ in range(tensors)]
        return GGUFFile(self.path, metadata, self.entries(infos, alignment))

    def info(self) -> tuple[str, tuple[int, ...], int, int]:
        name, axes = self.text(), self.number("I")
        if axes > AXES_LIMIT:
            raise self.error(f"{name!r:.80} has {axes} axes")
        shape = tuple(reversed([self.number("Q") for _ in range(axes)]))
        return name, shape or (1,), self.number("I"), self.number("Q")

    def entries(
        self, infos: list[tuple[str, tuple[int, ...], int, int]], alignment: int
    ) -> dict[str, TensorEntry]:
        base = -(-self.place // alignment) * alignment
        found: dict[str, TensorEntry] = {}
        for name, shape, number, offset in infos:
            if name in found:
                raise self.error(f"the tensor {name!r:.80} is there twice")
            kind = BY_NUMBER.get(number)
            if kind is None:
                raise self.error(f"{name!r:.80} has the format {number}, which is not known")
            if min(shape) < 1 or prod(shape) > 8 * len(self.data):
                raise self.error(f"{name!r:.80} has the shape {shape}")
            entry = TensorEntry(name, kind, shape, self.mapping, base + offset)
            if offset % alignment or entry.start + entry.nbytes > len(self.data):
                raise self.error(
                    f"{name!r:.80}: {entry.nbytes} bytes at {entry.start} do not fit in a file of "
                    f"{len(self.data)}, at multiples of {alignment}"
                )
            found[name] = entry
        return found

    def take(self, count: int) -> memoryview:
        if count > len(self.data) - self.place:
            raise self.error(f"{count} bytes at {self.place} are beyond its end")
        self.place += count
        return self.data[self.place - count : self.place]

    def number(self, code: str) -> int:
        return int(struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0])

    def text(self) -> str:
        try:
            return bytes(self.take(self.number("Q"))).decode()
        except UnicodeDecodeError:
            raise self.error(f"a text before byte {self.place} is not UTF-8") from None

    def value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array(key)
        if kind not in SCALARS:
            raise self.error(f"the key {key!r:.80} has the unknown type {kind}")
        value = struct.unpack("<" + SCALARS[kind], self.take(struct.calcsize(SCALARS[kind])))[0]
        return self.truth(value, key) if kind == _BOOL else value

    def array(self, key: str) -> list[Any]:
        kind, count = self.number("I"), self.number("Q")
        if kind == _STRING:
            if count > (len(self.data) - self.place) // 8:
                raise self.error(f"{count} texts of {key!r:.80} do not fit")
            return [self.text() for _ in range(count)]
        if kind not in SCALARS:
            raise self.error(f"the array {key!r:.80} holds the type {kind}, which is not read")
        kept = np.frombuffer(
            self.take(count * struct.calcsize(SCALARS[kind])), "<" + _NUMPY.get(kind, SCALARS[kind])
        ).tolist()
        return [self.truth(v, key) for v in kept] if kind == _BOOL else kept

    def truth(self, value: int, key: str) -> bool:
        if value > 1:
            raise self.error(f"{key!r:.80} is {value}, neither true nor false")
        return bool(value)

    def error(self, text: str) -> ModelFileError:
        return ModelFileError(f"{self.path}: {text}")


# Sizes of array elements must not depend on the platform.
_NUMPY = {4: "u4", 5: "i4", 10: "u8", 11: "i8"}


def _is_alignment(value: Any) -> bool:
    return isinstance(value, int) and 0 < value <= 1 << 30 and not value & (value - 1)


__all__ = ["GGUFFile", "TensorEntry", "read_gguf"]
