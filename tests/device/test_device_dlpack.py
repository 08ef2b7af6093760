"""DLPack in both directions."""

from __future__ import annotations

import ctypes
import gc
import sys
from typing import Any

import numpy as np
import pytest

from svod.base.errors import DeviceError, DTypeError, ShapeError
from svod.device import dlpack
from svod.device.buffer import Buffer, Storage
from svod.device.dlpack import dlpack_device, from_dlpack, to_dlpack
from svod.dtype import types as dt
from svod.dtype.convert import to_numpy

is_versioned_numpy = pytest.mark.skipif(
    not hasattr(np, "unique_values") or tuple(map(int, np.__version__.split(".")[:2])) < (2, 1),
    reason="versioned capsules came with NumPy 2.1",
)


class Exported:
    """A tensor of ours as another library sees it."""

    def __init__(self, buffer: Buffer, shape: tuple[int, ...]) -> None:
        self.buffer, self.shape = buffer, shape

    def __dlpack__(self, **options: Any) -> Any:
        return to_dlpack(self.buffer, self.shape, **options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack_device(self.buffer)


class Old(Exported):
    """A producer from before version 1: it knows no max_version."""

    def __dlpack__(self, stream: object = None) -> Any:  # type: ignore[override]
        return to_dlpack(self.buffer, self.shape, stream=stream)


def counting(values: Any = range(6), dtype: Any = np.float32) -> Buffer:
    return Buffer.from_numpy(np.array(list(values), dtype))


# -- out ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [Exported, Old])
def test_numpy_shares_an_exported_buffer(kind: type[Exported]) -> None:
    buffer = counting()
    array = np.from_dlpack(kind(buffer, (2, 3)))
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    buffer.numpy()[4] = 40
    assert array[1, 1] == 40
    assert array.ctypes.data == buffer.address


def test_the_consumer_keeps_the_memory_alive() -> None:
    buffer = Buffer.new("CPU:9", 1000, dt.float32)
    allocator = buffer.storage.allocator
    before = allocator.counters.live
    buffer.numpy()[:] = 5
    array = np.from_dlpack(Exported(buffer, (10, 100)))
    del buffer
    gc.collect()
    assert allocator.counters.live == before + 4032
    assert (array == 5).all()
    del array
    gc.collect()
    assert allocator.counters.live == before


def test_a_capsule_nobody_takes_frees_the_memory() -> None:
    buffer = Buffer.new("CPU:9", 1000, dt.float32)
    allocator = buffer.storage.allocator
    capsule = to_dlpack(buffer.allocate(), (1000,), max_version=(1, 0))
    del buffer
    live = allocator.counters.live
    del capsule
    gc.collect()
    assert allocator.counters.live == live - 4032


@is_versioned_numpy
def test_a_read_only_buffer_stays_read_only() -> None:
    source = np.arange(4, dtype=np.float32)
    source.flags.writeable = False
    buffer = Buffer.from_numpy(source)
    assert not np.from_dlpack(Exported(buffer, (4,))).flags.writeable
    with pytest.raises(BufferError, match=r"is read-only, which only DLPack 1\.0 and newer can"):
        to_dlpack(buffer, (4,))
    capsule = to_dlpack(buffer, (4,), copy=True)
    assert "dltensor" in repr(capsule)


@is_versioned_numpy
def test_copy_true_exports_other_memory_and_says_so() -> None:
    buffer = counting()
    capsule = to_dlpack(buffer, (6,), max_version=(1, 0), copy=True)
    pointer = dlpack._get_pointer(capsule, b"dltensor_versioned")
    versioned = dlpack._Versioned.from_address(pointer)
    assert versioned.flags == dlpack.IS_COPIED
    assert versioned.tensor.data != buffer.address


@is_versioned_numpy
@pytest.mark.parametrize("version", [(1, 0), (1, 3), (2, 0)])
def test_a_versioned_capsule_is_given_when_asked_for(version: tuple[int, int]) -> None:
    capsule = to_dlpack(counting(), (6,), max_version=version)
    assert '"dltensor_versioned"' in repr(capsule)
    assert '"dltensor"' in repr(to_dlpack(counting(), (6,), max_version=(0, 8)))


def test_options_that_make_no_sense_are_refused() -> None:
    buffer = counting()
    with pytest.raises(DeviceError, match="CPU has no streams: stream must be None, got 1"):
        to_dlpack(buffer, (6,), stream=1)
    with pytest.raises(BufferError, match=r"cannot export CPU memory to DLPack device \(2, 0\)"):
        to_dlpack(buffer, (6,), dl_device=(2, 0))
    with pytest.raises(ShapeError, match=r"shape \(5,\) does not fit"):
        to_dlpack(buffer, (5,))
    with pytest.raises(DeviceError, match="memory of NULL cannot be shared through DLPack"):
        to_dlpack(Buffer.new("NULL", 6, dt.float32), (6,))
    assert to_dlpack(buffer, (6,), dl_device=(1, 0)) is not None


CODES = [
    (dt.bool_, 6, 8),
    (dt.int8, 0, 8),
    (dt.uint64, 1, 64),
    (dt.float16, 2, 16),
    (dt.bfloat16, 4, 16),
    (dt.float8_e4m3, 10, 8),
    (dt.float8_e5m2, 12, 8),
]


@pytest.mark.parametrize(("dtype", "code", "bits"), CODES, ids=lambda v: str(v))
def test_type_codes_are_those_of_the_standard(dtype: dt.DType, code: int, bits: int) -> None:
    buffer = Buffer.new("CPU", 4, dtype)
    capsule = to_dlpack(buffer, (4,))
    tensor = dlpack._Managed.from_address(dlpack._get_pointer(capsule, b"dltensor")).tensor
    assert (tensor.code, tensor.bits, tensor.lanes) == (code, bits, 1)
    assert tensor.data == buffer.address


# -- in ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", dt.STORABLE, ids=lambda d: d.name)
@pytest.mark.parametrize("kind", [Exported, Old])
def test_every_dtype_goes_out_and_in_without_a_copy(dtype: dt.DType, kind: type[Exported]) -> None:
    source = Buffer.from_numpy(np.array([1, 0, 1, 1], np.int8).astype(to_numpy(dtype)))
    found = from_dlpack(kind(source, (2, 2)))
    assert found.shape == (2, 2)
    assert found.buffer.dtype is dtype
    assert found.buffer.address == source.address
    assert found.buffer.numpy().tolist() == source.numpy().tolist()


def test_a_numpy_array_is_shared_and_released_with_the_buffer() -> None:
    array = np.arange(6, dtype=np.int16).reshape(2, 3)
    references = sys.getrefcount(array)
    found = from_dlpack(array)
    assert found.shape == (2, 3)
    assert found.buffer.address == array.ctypes.data
    assert sys.getrefcount(array) == references + 1
    view = found.buffer.view(2, 2)
    del found
    assert sys.getrefcount(array) == references + 1
    del view
    assert sys.getrefcount(array) == references


@is_versioned_numpy
def test_a_read_only_producer_gives_a_read_only_buffer() -> None:
    array = np.arange(6, dtype=np.int16)
    array.flags.writeable = False
    assert from_dlpack(array).buffer.is_read_only
    assert not from_dlpack(array, copy=True).buffer.is_read_only


@pytest.mark.parametrize(
    "layout",
    [lambda a: a.T, lambda a: a[:, ::-1], lambda a: a[::2], lambda a: a[:, 1:3]],
    ids=["transposed", "flipped", "strided", "columns"],
)
def test_other_layouts_are_copied_or_refused(layout: Any) -> None:
    array = layout(np.arange(24, dtype=np.float32).reshape(4, 6))
    references = sys.getrefcount(array)
    found = from_dlpack(array)
    assert found.buffer.numpy().reshape(found.shape).tolist() == array.tolist()
    assert not np.shares_memory(found.buffer.numpy(), array)
    with pytest.raises(
        BufferError, match=r"with strides .* cannot be shared: only aligned memory in row-major"
    ):
        from_dlpack(array, copy=False)
    gc.collect()
    assert sys.getrefcount(array) == references


def test_axes_of_one_element_may_have_any_stride() -> None:
    array = np.arange(12, dtype=np.float32).reshape(4, 3)[::4][:, None]
    assert from_dlpack(array, copy=False).buffer.address == array.ctypes.data


def test_copy_true_never_shares() -> None:
    array = np.arange(6, dtype=np.int16)
    found = from_dlpack(array, copy=True)
    assert not np.shares_memory(found.buffer.numpy(), array)
    assert found.buffer.numpy().tolist() == array.tolist()


@pytest.mark.parametrize("name", ["int8", "float16", "float64", "complex64", "complex128"])
def test_copies_of_every_size_of_element(name: str) -> None:
    array = np.arange(12).astype(name).reshape(3, 4).T
    found = from_dlpack(array, copy=True)
    assert found.shape == (4, 3) and found.buffer.dtype.name == name
    np.testing.assert_array_equal(found.buffer.numpy().reshape(4, 3), array)


def test_scalars_and_empty_tensors() -> None:
    found = from_dlpack(np.array(5.0, np.float32))
    assert (found.shape, found.buffer.numpy().tolist()) == ((), [5.0])
    empty = from_dlpack(np.zeros((0, 3), np.float32))
    assert (empty.shape, empty.buffer.size) == ((0, 3), 0)


def test_a_capsule_can_be_used_once() -> None:
    capsule = to_dlpack(counting(), (6,))
    assert from_dlpack(capsule).buffer.numpy().tolist() == list(range(6))
    with pytest.raises(BufferError, match="not a DLPack capsule, or one that was used before"):
        from_dlpack(capsule)


def test_something_without_dlpack_is_refused() -> None:
    with pytest.raises(DTypeError, match="list has no __dlpack__ method"):
        from_dlpack([1, 2])


def test_a_tensor_of_another_device_is_refused() -> None:
    class OnGpu(Exported):
        def __dlpack_device__(self) -> tuple[int, int]:
            return 10, 0

    with pytest.raises(DeviceError, match="on device type 10 is neither"):
        from_dlpack(OnGpu(counting(), (6,)))
    with pytest.raises(DeviceError, match="are taken over on CPU, not on NULL"):
        from_dlpack(np.zeros(3), device="NULL")


@pytest.mark.parametrize(("field", "value"), [("code", 5), ("bits", 4), ("lanes", 4)])
def test_an_unknown_element_type_is_refused_and_released(field: str, value: int) -> None:
    array = np.zeros(4, np.float32)
    references = sys.getrefcount(array)
    capsule = array.__dlpack__()
    tensor = dlpack._Managed.from_address(dlpack._get_pointer(capsule, b"dltensor")).tensor
    setattr(tensor, field, value)
    with pytest.raises(DTypeError, match="no dtype for DLPack type code"):
        from_dlpack(capsule)
    gc.collect()
    assert sys.getrefcount(array) == references


@is_versioned_numpy
def test_a_newer_major_version_is_refused_and_released() -> None:
    array = np.zeros(4, np.float32)
    references = sys.getrefcount(array)
    capsule = array.__dlpack__(max_version=(1, 0))
    pointer = dlpack._get_pointer(capsule, b"dltensor_versioned")
    ctypes.c_uint32.from_address(pointer).value = 2
    with pytest.raises(BufferError, match=r"DLPack version 2\.\d+ is newer than 1"):
        from_dlpack(capsule)
    gc.collect()
    assert sys.getrefcount(array) == references


def test_torch_both_ways() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.arange(6, dtype=torch.bfloat16).reshape(2, 3)
    found = from_dlpack(tensor)
    assert found.buffer.dtype is dt.bfloat16
    assert found.buffer.address == tensor.data_ptr()
    back = torch.from_dlpack(Exported(found.buffer, found.shape))
    assert back.data_ptr() == tensor.data_ptr()
    assert back.tolist() == tensor.tolist()


# -- GPUs --------------------------------------------------------------------------------------


def on_gpu(number: int = 0, dtype: dt.DType = dt.bfloat16) -> Buffer:
    """A buffer over an address that is never touched, as memory of a GPU is not by the host."""
    storage = Storage.wrap(f"CUDA:{number}", 4096, 0x7F0000000000, object())
    return Buffer(storage, 24, dtype, offset=64)


@pytest.mark.parametrize("number", [0, 1])
def test_memory_of_a_gpu_is_exported_with_its_device(number: int) -> None:
    buffer = on_gpu(number)
    assert dlpack_device(buffer) == (2, number)
    capsule = to_dlpack(buffer, (4, 6), stream=-1)
    tensor = dlpack._Managed.from_address(dlpack._get_pointer(capsule, b"dltensor")).tensor
    assert (tensor.device_type, tensor.device_id) == (2, number)
    assert tensor.data + tensor.byte_offset == 0x7F0000000040
    assert (tensor.code, tensor.bits, tensor.ndim) == (4, 16, 2)
    assert tensor.shape[:2] == [4, 6]


def test_streams_are_numbers_and_zero_is_ambiguous() -> None:
    with pytest.raises(DeviceError, match="ambiguous"):
        to_dlpack(on_gpu(), (24,), stream=0)
    with pytest.raises(DeviceError, match="as a number"):
        to_dlpack(on_gpu(), (24,), stream="default")
