"""Buffers: lazy memory, views, NumPy in and out, copies."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import numpy as np
import pytest

from svod.base.errors import DeviceError, DTypeError, ShapeError
from svod.device.allocator import Block
from svod.device.buffer import Buffer, Storage
from svod.device.cpu.allocator import HostAllocator
from svod.dtype import types as dt
from svod.dtype.convert import to_numpy


def test_memory_is_taken_at_first_use_and_only_once() -> None:
    buffer = Buffer.new("CPU", 10, dt.float32)
    assert not buffer.is_allocated
    assert buffer.allocate() is buffer
    address = buffer.address
    buffer.allocate()
    assert buffer.is_allocated
    assert buffer.address == address
    assert buffer.address % 64 == 0


def test_the_address_takes_the_memory() -> None:
    buffer = Buffer.new("CPU", 1, dt.int8)
    assert buffer.address > 0
    assert buffer.is_allocated


class Slow(HostAllocator):
    """Gives other threads time to ask for the same storage."""

    def obtain(self, nbytes: int) -> Block:
        time.sleep(0.02)
        return super().obtain(nbytes)


def test_threads_that_allocate_one_buffer_agree() -> None:
    allocator = Slow()
    buffer = Buffer(Storage("CPU", 4096, allocator), 1024, dt.float32)
    barrier = threading.Barrier(4)
    found: list[int] = []

    def work() -> None:
        barrier.wait()
        found.append(buffer.address)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [buffer.address] * 4
    assert allocator.counters.allocated == 4096


def test_a_view_shares_storage_and_bytes_but_not_identity() -> None:
    base = Buffer.new("CPU", 8, dt.int32)
    view = base.view(8, 4)
    assert view.storage_id == base.storage_id
    assert view.id != base.id
    assert view.byte_range == (8, 24)
    assert not base.is_allocated
    view.allocate()
    assert base.is_allocated
    assert view.address == base.address + 8
    view.copyin(np.array([1, 2, 3, 4], np.int32))
    assert base.numpy()[2:6].tolist() == [1, 2, 3, 4]


def test_a_view_of_a_view_adds_offsets_and_may_change_the_dtype() -> None:
    base = Buffer.from_numpy(np.arange(16, dtype=np.uint8))
    inner = base.view(4, 8).view(4, 1, dt.uint32)
    assert inner.byte_range == (8, 12)
    assert inner.numpy()[0] == np.arange(8, 12, dtype=np.uint8).view(np.uint32)[0]


@pytest.mark.parametrize(("offset", "size"), [(-4, 1), (0, 9), (32, 1), (4, 8), (0, -1)])
def test_a_view_outside_its_buffer_is_refused(offset: int, size: int) -> None:
    with pytest.raises(ShapeError, match="does not fit"):
        Buffer.new("CPU", 8, dt.float32).view(offset, size)


def test_a_misaligned_view_is_refused() -> None:
    with pytest.raises(ShapeError, match="a view of float32 at byte 2 is not aligned to 4 bytes"):
        Buffer.new("CPU", 16, dt.uint8).view(2, 1, dt.float32)


def test_overlap_is_about_bytes_of_one_storage() -> None:
    base = Buffer.new("CPU", 16, dt.float32)
    left, right, middle = base.view(0, 8), base.view(32, 8), base.view(16, 8)
    assert not left.overlaps(right)
    assert left.overlaps(middle)
    assert middle.overlaps(right)
    assert base.overlaps(left)
    assert not base.overlaps(Buffer.new("CPU", 16, dt.float32))
    assert not left.overlaps(base.view(0, 0))


def test_numpy_shares_the_memory() -> None:
    buffer = Buffer.new("CPU", 4, dt.float64)
    buffer.numpy()[:] = [1, 2, 3, 4]
    assert buffer.numpy().tolist() == [1, 2, 3, 4]
    assert buffer.numpy().ctypes.data == buffer.address
    assert buffer.copyout().ctypes.data != buffer.address


@pytest.mark.parametrize("dtype", dt.STORABLE, ids=lambda d: d.name)
def test_every_dtype_goes_in_and_out(dtype: dt.DType) -> None:
    array = np.array([0, 1, 1, 0, 1], np.int8).astype(to_numpy(dtype))
    shared = Buffer.from_numpy(array)
    copied = Buffer.from_numpy(array, copy=True)
    for buffer in (shared, copied):
        assert buffer.dtype is dtype
        assert buffer.nbytes == 5 * dtype.itemsize
        assert buffer.numpy().dtype == array.dtype
        assert buffer.numpy().tolist() == array.tolist()
        assert buffer.copyout().tolist() == array.tolist()
    assert shared.address == array.ctypes.data
    assert copied.address != array.ctypes.data


def test_a_contiguous_array_is_shared_and_kept_alive() -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    reference = weakref.ref(array)
    buffer = Buffer.from_numpy(array)
    array[1, 2] = 50
    assert buffer.numpy()[5] == 50
    del array
    gc.collect()
    assert reference() is not None
    del buffer
    gc.collect()
    assert reference() is None


def test_copy_true_never_shares() -> None:
    array = np.arange(6, dtype=np.float32)
    buffer = Buffer.from_numpy(array, copy=True)
    array[0] = 50
    assert buffer.numpy()[0] == 0


def _unaligned() -> np.ndarray:
    raw = np.zeros(17, np.uint8)[1:].view(np.float32)
    raw[:] = [0, 1, 2, 3]
    return raw


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4).T,
        np.arange(12, dtype=np.float32)[::-1],
        np.arange(12, dtype=np.float32)[::2],
        np.arange(4, dtype=">f4"),
        np.broadcast_to(np.float32(3), (2, 2)),
        _unaligned(),
    ],
    ids=["transposed", "flipped", "strided", "foreign byte order", "broadcast", "unaligned"],
)
def test_other_layouts_are_copied_in_row_major_order(array: np.ndarray) -> None:
    buffer = Buffer.from_numpy(array, copy=False)
    assert buffer.numpy().tolist() == array.ravel().tolist()
    assert not np.shares_memory(buffer.numpy(), array)
    assert not buffer.is_read_only


def test_scalars_and_empty_arrays() -> None:
    assert Buffer.from_numpy(np.array(5, np.int64)).numpy().tolist() == [5]
    empty = Buffer.from_numpy(np.zeros((0, 3), np.float32))
    assert (empty.size, empty.numpy().tolist(), empty.copyout().tolist()) == (0, [], [])


def test_an_array_of_another_kind_is_refused() -> None:
    with pytest.raises(DTypeError, match="datetime64"):
        Buffer.from_numpy(np.zeros(3, "datetime64[s]"))


def test_a_read_only_array_is_shared_and_cannot_be_written() -> None:
    array = np.arange(4, dtype=np.float32)
    array.flags.writeable = False
    buffer = Buffer.from_numpy(array)
    assert buffer.address == array.ctypes.data
    assert buffer.is_read_only
    assert buffer.view(4, 2).is_read_only
    assert not buffer.numpy().flags.writeable
    with pytest.raises(DeviceError, match="is read-only and cannot be written: make a copy first"):
        buffer.require_writable()
    with pytest.raises(DeviceError, match="read-only"):
        buffer.copyin(np.zeros(4, np.float32))
    with pytest.raises(DeviceError, match="read-only"):
        buffer.copy_from(Buffer.new("CPU", 4, dt.float32))
    assert array.tolist() == [0, 1, 2, 3]
    assert not Buffer.from_numpy(array, copy=True).is_read_only


def test_copyin_takes_any_layout_of_the_right_size_and_dtype() -> None:
    buffer = Buffer.new("CPU", 6, dt.float32)
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffer.copyin(array.T)
    assert buffer.numpy().tolist() == [0, 3, 1, 4, 2, 5]
    buffer.copyin(array.astype(">f4"))
    assert buffer.numpy().tolist() == [0, 1, 2, 3, 4, 5]
    with pytest.raises(ShapeError, match="an array of 5 elements does not fit"):
        buffer.copyin(np.zeros(5, np.float32))
    with pytest.raises(DTypeError, match=r"an array of float64 does not fit .*: cast it first"):
        buffer.copyin(np.zeros(6, np.float64))


def test_copy_from_moves_bytes_between_devices() -> None:
    source = Buffer.from_numpy(np.arange(8, dtype=np.float32))
    target = Buffer.new("CPU:1", 8, dt.float32)
    target.copy_from(source)
    assert target.device == "CPU:1"
    assert target.numpy().tolist() == list(range(8))
    with pytest.raises(ShapeError, match=r"of 16 bytes into .* of 32"):
        target.copy_from(source.view(0, 4))


def test_copy_from_of_overlapping_views_is_as_if_through_a_third_place() -> None:
    base = Buffer.from_numpy(np.arange(8, dtype=np.int32))
    base.view(4, 7).copy_from(base.view(0, 7))
    assert base.numpy().tolist() == [0, 0, 1, 2, 3, 4, 5, 6]


def test_a_negative_size_is_refused() -> None:
    with pytest.raises(ShapeError, match="a buffer cannot have -1 elements"):
        Buffer.new("CPU", -1, dt.float32)


def test_repr_says_dtype_size_and_device() -> None:
    buffer = Buffer.new("cpu:1", 8, dt.float32)
    assert repr(buffer) == f"Buffer({buffer.id}: f32[8] CPU:1)"
    view = buffer.view(16, 2)
    assert repr(view) == f"Buffer({view.id}: f32[2] CPU:1 at byte 16)"
