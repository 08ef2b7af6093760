"""GPU memory, stream-ordered: blocks come from the driver's pool and go back to it.

All copies go through the context's one stream. A copy from the host returns when the host's array
may be changed again, which is before the GPU has the bytes; a copy to the host when the bytes are
there; copies between blocks of one GPU only take their place in the stream. Where memory runs out,
both pools are emptied and the request is tried again; then it is an AllocationError, and
everything stays usable.
"""

from __future__ import annotations

from ctypes import byref, c_uint64
from typing import ClassVar, Final

from svod.device.allocator import Allocator, Block, Bytes
from svod.device.cuda.driver import OUT_OF_MEMORY, Context, DriverFault
from svod.device.cuda.pinned import PinnedRing

GRANULE: Final = 512  # bytes: what the driver aligns blocks to
LARGE: Final = 2 << 20


class CudaAllocator(Allocator):
    """Memory of one GPU."""

    host_visible: ClassVar[bool] = False

    def __init__(self, device: str, context: Context) -> None:
        super().__init__(device, pool_bytes=context.facts.memory_bytes // 4)
        self.context = context
        self._ring = PinnedRing(context)

    def size_class(self, nbytes: int) -> int:
        unit = GRANULE if nbytes < LARGE else LARGE
        return max(GRANULE, -(-nbytes // unit) * unit)

    def obtain(self, nbytes: int) -> Block:
        context = self.context
        address = c_uint64()
        try:
            context.use().call("cuMemAllocAsync", byref(address), nbytes, context.stream)
        except DriverFault as fault:
            if fault.code != OUT_OF_MEMORY:
                raise
            context.synchronize()  # what was freed in the stream is free only after it
            context.driver.call("cuMemPoolTrimTo", context.pool, 0)
            raise MemoryError(fault.message) from None
        return Block(self, int(address.value), nbytes, None)

    def discard(self, block: Block) -> None:
        self.context.use().call("cuMemFreeAsync", block.address, self.context.stream)

    def read(self, address: int, into: Bytes) -> None:
        self._ring.read(address, into)
        if self.context.unread:
            self.context.look()

    def write(self, address: int, data: Bytes) -> None:
        self._ring.write(address, data)

    def copy(self, target: int, source: int, nbytes: int) -> None:
        """Bytes between two places of this GPU, in the order of the stream."""
        context = self.context
        context.use().call("cuMemcpyDtoDAsync_v2", target, source, nbytes, context.stream)
