"""NULL: compiles everything, holds and runs nothing.

Buffers have addresses, so that plans can be built and inspected, but no bytes: what is written is
dropped and what is read is zero. Kernels are rendered and compiled as for the CPU, then not run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from svod.device.allocator import Allocator, Block, Bytes
from svod.device.device import Size3, Toolchain

if TYPE_CHECKING:
    from svod.device.spec import CompiledSpec


class NullAllocator(Allocator):
    """Addresses without memory; nothing is pooled, so the counters show plain demand."""

    def __init__(self, device: str = "NULL") -> None:
        super().__init__(device, pool_bytes=0)
        self._next_address = 1 << 12

    def obtain(self, nbytes: int) -> Block:
        address = self._next_address
        self._next_address += nbytes
        return Block(self, address, nbytes, None)

    def read(self, address: int, into: Bytes) -> None:
        into[:] = 0

    def write(self, address: int, data: Bytes) -> None:
        pass


class NullProgram:
    """A program that does nothing."""

    __slots__ = ("name",)
    is_reentrant: ClassVar[bool] = True

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(
        self,
        buffers: Sequence[int],
        vals: Sequence[int],
        global_size: Size3 | None = None,
        local_size: Size3 | None = None,
    ) -> None:
        pass


def load_null(compiled: CompiledSpec) -> NullProgram:
    """The runtime of NULL."""
    return NullProgram(compiled.name)


def null_toolchain() -> Toolchain:
    """The CPU's renderers and compilers, with a runtime that loads nothing."""
    from svod.device.registry import get_device

    return Toolchain(get_device("CPU").compilers, load_null)
