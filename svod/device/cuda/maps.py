"""Tensor maps: what the copy engine of Hopper is told of a matrix, made by the driver.

In: a `TensorMap` of a kernel and the addresses of its arguments. Out: 128 bytes that are an
argument themselves. They hold the address, so they are made again when it changes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import addressof, c_uint32, c_uint64

from svod.device.cuda.driver import Driver
from svod.ir.needs import TensorMap

NBYTES, ALIGN = 128, 64
_KINDS = {1: 0, 2: 1, 4: 2}  # bytes of an element: the unsigned integers of that size
_SWIZZLE_128, _PROMOTE_256 = 3, 3


class MapMemory:
    """The maps of one launch, in memory of their own."""

    __slots__ = ("_made", "_memory", "_start", "tensors")

    def __init__(self, tensors: Sequence[TensorMap]) -> None:
        self.tensors = tensors
        self._memory = (ctypes.c_ubyte * (NBYTES * len(tensors) + ALIGN))()
        self._start = -(-addressof(self._memory) // ALIGN) * ALIGN
        self._made: list[int] = []  # addresses that the maps show

    @property
    def places(self) -> list[int]:
        """Where each map is."""
        return [self._start + NBYTES * i for i in range(len(self.tensors))]

    def show(self, driver: Driver, buffers: Sequence[int]) -> None:
        """Make the maps for these arguments, unless that is what they show."""
        wanted = [buffers[t.slot] + t.offset for t in self.tensors]
        if wanted == self._made:
            return
        for tensor, place, address in zip(self.tensors, self.places, wanted, strict=True):
            _encode(driver, tensor, place, address)
        self._made = wanted


def _encode(driver: Driver, tensor: TensorMap, place: int, address: int) -> None:
    count = len(tensor.sizes)
    sizes = (c_uint64 * count)(*tensor.sizes)
    strides = (c_uint64 * (count - 1))(*tensor.strides)
    box = (c_uint32 * count)(*tensor.box)
    steps = (c_uint32 * count)(*(tensor.steps or [1] * count))
    driver.call(
        "cuTensorMapEncodeTiled", place, _KINDS[tensor.item], count, address, sizes, strides, box,
        steps, 0, _SWIZZLE_128, _PROMOTE_256, 0,
    )  # fmt: skip
