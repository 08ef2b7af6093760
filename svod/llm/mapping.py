"""Model files as memory that kernels read: one copy, in the page cache."""

from __future__ import annotations

import mmap
import os
from math import prod

import numpy as np

from svod.base.errors import SvodError
from svod.device.buffer import Buffer, Storage
from svod.device.disk import map_file
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import build as B
from svod.llm.errors import ModelFileError
from svod.nn.state import read_header
from svod.tensor.core.tensor_core import wrap
from svod.tensor.tensor import Tensor


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


def safetensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """The tensors of a file by name, where they lie."""
    mapping = Mapping(path)
    try:
        entries, _, base = read_header(mapping.raw, os.fspath(path))
    except SvodError as error:
        raise ModelFileError(str(error)) from None
    found = {}
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
    return found
