"""Blocks, the pool of free ones, alignment, counters and errors of allocators."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import threading
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from svod.base.errors import AllocationError
from svod.device.allocator import ALIGNMENT, Allocator, Block, MemoryCounters
from svod.device.buffer import Buffer, Storage
from svod.device.cpu.allocator import HUGE_PAGE, PAGE, STAGGERED_FROM, HostAllocator
from svod.dtype import types as dt


def test_a_freed_block_serves_the_next_request_of_its_size_class() -> None:
    allocator = HostAllocator()
    block = allocator.allocate(1000)
    allocator.give_back(block)
    assert allocator.allocate(1000 + 20) is block  # both round up to 1024
    assert allocator.allocate(1000) is not block


def test_the_most_recently_freed_block_is_used_first() -> None:
    allocator = HostAllocator()
    old, new = allocator.allocate(256), allocator.allocate(256)
    allocator.give_back(old)
    allocator.give_back(new)
    assert allocator.allocate(256) is new


@pytest.mark.parametrize("nbytes", [0, 1, 63, 65, 5000, STAGGERED_FROM + 1, 3 * HUGE_PAGE + 5])
def test_every_block_is_aligned_to_a_cache_line_and_large_enough(nbytes: int) -> None:
    allocator = HostAllocator()
    blocks = [allocator.allocate(nbytes) for _ in range(20)]
    assert all(b.address % ALIGNMENT == 0 and b.address > 0 for b in blocks)
    assert all(nbytes <= b.nbytes <= nbytes + PAGE for b in blocks)
    spans = sorted((b.address, b.address + b.nbytes) for b in blocks)
    assert all(stop <= start for (_, stop), (start, _) in pairwise(spans))


@pytest.mark.parametrize("nbytes", [STAGGERED_FROM, 1 << 20, HUGE_PAGE, 5 * HUGE_PAGE])
def test_large_blocks_start_at_different_places_of_a_page(nbytes: int) -> None:
    allocator = HostAllocator()
    blocks = [allocator.allocate(nbytes) for _ in range(8)]
    assert len({b.address % PAGE for b in blocks}) == 8


def test_huge_blocks_lie_on_huge_pages_and_can_be_written_to_the_last_byte() -> None:
    allocator = HostAllocator()
    for _ in range(4):
        storage = Storage("CPU", 2 * HUGE_PAGE + 100, allocator)
        storage.allocate()
        assert storage.address % HUGE_PAGE < PAGE
        storage.host_bytes()[:] = 7
        assert storage.host_bytes()[-1] == 7


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_does_not_write_into_our_memory() -> None:
    code = (
        "import os; from svod.device.buffer import Buffer; from svod.dtype.types import uint8\n"
        "buffers = [Buffer.new('CPU', n, uint8) for n in (100, 100_000, 5_000_000)]\n"
        "for b in buffers: b.numpy()[:] = 1\n"
        "child = os.fork()\n"
        "if not child:\n"
        "    for b in buffers: b.numpy()[:] = 2\n"
        "    os._exit(0)\n"
        "os.waitpid(child, 0); print([int(b.numpy().max()) for b in buffers])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[1, 1, 1]"


def _huge_pages_on_request() -> bool:
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return False
    return "[never]" not in text


@pytest.mark.skipif(not _huge_pages_on_request(), reason="this system gives no huge pages")
def test_large_blocks_ask_for_huge_pages() -> None:
    storage = Storage("CPU", 8 * HUGE_PAGE, HostAllocator())
    storage.allocate()
    start = f"{storage.address // HUGE_PAGE * HUGE_PAGE:x}-"
    mappings = Path("/proc/self/smaps").read_text().split("VmFlags:")
    ours = [i for i, text in enumerate(mappings) if f"\n{start}" in text or text.startswith(start)]
    assert ours
    assert " hg" in mappings[ours[0] + 1].partition("\n")[0]  # the flag of madvise


def test_counters_follow_allocation_release_and_trimming() -> None:
    allocator = HostAllocator()
    one, two = allocator.allocate(1024), allocator.allocate(2048)
    assert allocator.counters == MemoryCounters(allocated=3072, live=3072, peak=3072, pooled=0)
    allocator.give_back(one)
    assert allocator.counters == MemoryCounters(allocated=3072, live=2048, peak=3072, pooled=1024)
    assert allocator.free_all() == 1024
    assert allocator.counters == MemoryCounters(allocated=2048, live=2048, peak=3072, pooled=0)
    allocator.reset_peak()
    allocator.give_back(two)
    assert allocator.counters == MemoryCounters(allocated=2048, live=0, peak=2048, pooled=2048)


def test_the_pool_drops_the_block_unused_for_longest_when_over_its_limit() -> None:
    allocator = HostAllocator(pool_bytes=3000)
    blocks = [allocator.allocate(n) for n in (1024, 1088, 1152)]
    for block in blocks:
        allocator.give_back(block)
    assert allocator.counters.pooled == 1088 + 1152
    assert blocks[0].keep is None  # its memory is gone
    assert allocator.allocate(1152) is blocks[2]
    assert allocator.allocate(1088) is blocks[1]
    assert allocator.allocate(1024) is not blocks[0]


def test_giving_a_block_back_twice_is_refused() -> None:
    allocator = HostAllocator()
    block = allocator.allocate(64)
    allocator.give_back(block)
    with pytest.raises(AllocationError, match="a block of 64 bytes was given back twice"):
        allocator.give_back(block)
    assert allocator.allocate(64) is not allocator.allocate(64)


def test_a_block_of_another_allocator_is_refused() -> None:
    mine, other = HostAllocator("CPU"), HostAllocator("CPU:1")
    with pytest.raises(AllocationError, match="belongs to CPU:1, not to this device"):
        mine.give_back(other.allocate(64))


def test_too_large_a_request_says_the_sizes() -> None:
    allocator = HostAllocator()
    held = allocator.allocate(1024)
    with pytest.raises(AllocationError) as caught:
        allocator.allocate(1 << 60)
    assert "CPU: could not allocate 1,152,921,504,606,846,976 bytes" in str(caught.value)
    assert "1,024 bytes in use" in str(caught.value)
    assert isinstance(caught.value, MemoryError)
    assert held.in_use


def test_a_negative_request_is_refused() -> None:
    with pytest.raises(AllocationError, match="cannot allocate -1 bytes"):
        HostAllocator().allocate(-1)


class Limited(Allocator):
    """A device with room for a fixed number of bytes."""

    def __init__(self, room: int) -> None:
        super().__init__("LIMITED")
        self.room = room

    def obtain(self, nbytes: int) -> Block:
        if nbytes > self.room:
            raise MemoryError("full")
        self.room -= nbytes
        return Block(self, 1 << 20, nbytes, None)

    def discard(self, block: Block) -> None:
        self.room += block.nbytes


def test_a_full_device_gives_up_its_pool_before_it_fails() -> None:
    allocator = Limited(1024)
    allocator.give_back(allocator.allocate(640))
    assert allocator.allocate(1024).nbytes == 1024
    with pytest.raises(AllocationError, match=r"could not allocate 64 bytes .*: full"):
        allocator.allocate(1)


def test_dropping_the_last_reference_frees_and_a_view_keeps_the_memory() -> None:
    allocator = HostAllocator()
    buffer = Buffer(Storage("CPU", 4096, allocator), 1024, dt.float32)
    window = buffer.view(64, 4)
    array = window.numpy()
    del buffer
    assert allocator.counters.live == 4096
    del window
    array[:] = 3
    assert allocator.counters.live == 4096
    tail = array[2:]
    del array
    assert allocator.counters.live == 4096
    assert tail.tolist() == [3, 3]
    del tail
    assert allocator.counters == MemoryCounters(4096, 0, 4096, 4096)


def test_storages_freed_by_the_garbage_collector_inside_an_allocation_do_not_deadlock() -> None:
    allocator = HostAllocator()

    class Cycle:
        def __init__(self) -> None:
            self.me = self
            self.storage = Storage("CPU", 128, allocator)
            self.storage.allocate()

    real = allocator.obtain

    def obtain(nbytes: int) -> Block:
        gc.collect()  # runs finalisers while the allocator's lock is held
        return real(nbytes)

    gc.collect()
    for _ in range(5):
        Cycle()
    allocator.obtain = obtain  # type: ignore[method-assign]
    block = allocator.allocate(64)
    assert allocator.counters.live == 64
    assert allocator.counters.pooled == 5 * 128
    assert block.in_use


def test_threads_share_an_allocator_without_losing_bytes() -> None:
    allocator = HostAllocator()
    wrong: list[int] = []

    def work(seed: int) -> None:
        for turn in range(200):
            storage = Storage("CPU", 64 * (1 + (seed + turn) % 5), allocator)
            storage.allocate()
            view = storage.host_bytes()
            view[:] = seed
            if not (view == seed).all():
                wrong.append(seed)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    counters = allocator.counters
    assert counters.live == 0
    assert counters.pooled == counters.allocated
    assert allocator.free_all() == counters.pooled
    assert allocator.counters.allocated == 0


def test_reading_and_writing_by_address_moves_the_bytes() -> None:
    allocator = HostAllocator()
    block = allocator.allocate(8)
    allocator.write(block.address, np.arange(8, dtype=np.uint8))
    found = np.zeros(8, np.uint8)
    allocator.read(block.address, found)
    assert found.tolist() == list(range(8))
