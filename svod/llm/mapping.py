"""Model files as memory that kernels read: one copy, in the page cache."""

from __future__ import annotations

import json
import mmap
import os
from math import prod
from typing import Any, Final

import numpy as np

from svod.base.errors import SvodError
from svod.device.buffer import Buffer, Storage
from svod.device.disk import map_file
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import build as B
from svod.llm.errors import ModelFileError
from svod.llm.formats import BY_NAME
from svod.llm.weights import Matrix, Products, matrix_of
from svod.nn.state import read_header
from svod.tensor.core.tensor_core import wrap
from svod.tensor.tensor import Tensor

FORMATS_KEY: Final = "svod.formats"  # of safetensors: names of tensors to names of block formats


class Mapping:
    """The bytes of a file."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        try:
            mapped = map_file(path)
        except SvodError as error:
            raise ModelFileError(f"{os.fspath(path)}: {error}") from None
        self.raw = mapped.numpy()
        self.nbytes = self.raw.size
        self._file = mapped.storage.file
        storage = Storage.wrap("CPU", self.nbytes, self.raw.ctypes.data, mapped, is_read_only=True)
        self.memory = Buffer(storage, self.nbytes, dt.uint8)

    def tensor(self, start: int, dtype: DType, shape: tuple[int, ...]) -> Tensor:
        """The elements at a place that is a multiple of their size."""
        size = prod(shape)
        view = self.memory.view(start, size, dtype)
        return wrap(B.reshape(B.new_buffer(size, dtype, "CPU", view), shape), "CPU")

    def forget(self, start: int, nbytes: int) -> None:
        """Whole pages of a part are not needed soon: they no longer count as this process's."""
        first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
        size = (start + nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
        if size > 0 and isinstance(self._file, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            self._file.madvise(mmap.MADV_DONTNEED, first, size)


def safetensors(
    path: str | os.PathLike[str], products: Products = "integer"
) -> dict[str, Tensor | Matrix]:
    """The tensors of a file by name, where they lie; matrices of block formats as `Matrix`."""
    mapping = Mapping(path)
    try:
        entries, texts, base = read_header(mapping.raw, os.fspath(path))
    except SvodError as error:
        raise ModelFileError(str(error)) from None
    formats = _formats(texts.get(FORMATS_KEY, "{}"), path)
    found: dict[str, Tensor | Matrix] = {}
    for name, entry in entries.items():
        start = base + entry.start
        if entry.dtype.is_complex or not prod(entry.shape):
            raise ModelFileError(f"{os.fspath(path)}: {name!r:.80} is no weight")
        if start % entry.dtype.itemsize:
            size = prod(entry.shape) * entry.dtype.itemsize
            piece = np.array(mapping.raw[start : start + size])
            found[name] = Tensor(piece).bitcast(entry.dtype).reshape(*entry.shape)
        else:
            found[name] = mapping.tensor(start, entry.dtype, entry.shape)
        if name in formats:
            found[name] = _matrix(name, found[name], formats[name], products)
            mapping.forget(start, prod(entry.shape))
    return found


def _formats(text: str, path: str | os.PathLike[str]) -> dict[str, str]:
    """Which tensors are bytes of which block format."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict) or not all(
        isinstance(kind, str) and kind in BY_NAME for kind in found.values()
    ):
        raise ModelFileError(f"{os.fspath(path)}: {FORMATS_KEY} is {text!r:.80}")
    return found


def _matrix(name: str, raw: Any, kind: str, products: Products) -> Matrix:
    found = BY_NAME[kind]
    if raw.dtype != dt.uint8 or len(raw.shape) != 2 or raw.shape[1] % found.nbytes:
        raise ModelFileError(f"{name!r:.80}: {raw.dtype.name} {tuple(raw.shape)} as {kind}")
    rows, nbytes = raw.shape
    shape = (rows, nbytes // found.nbytes * found.elements)
    return matrix_of(found, raw.reshape(-1), shape, products)
