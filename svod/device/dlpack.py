"""Exchange of memory with other libraries through DLPack, in both directions, without a copy.

Out: NumPy makes the capsule over the same bytes, because its deleter is native code that any thread
may call at any time; the element type and flags are then set to what they really are (NumPy
has no bfloat16 or 8-bit floats of its own), and so is the device where it is a GPU: NumPy never
looks at the bytes. In: the capsule's struct is read and checked field by field, and a storage takes
over the duty to call the producer's deleter. Between streams of a GPU whoever hands memory over
makes the other's stream wait for its own.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from svod.base.errors import DeviceError, DTypeError, ShapeError
from svod.base.strides import is_row_major, order_in_memory
from svod.device.buffer import Array, Buffer, Storage
from svod.device.names import base_key, device_number
from svod.dtype import types as dt
from svod.dtype.convert import to_numpy
from svod.dtype.types import DType

CPU: Final = 1  # kDLCPU
CUDA: Final = 2  # kDLCUDA
CUDA_HOST: Final = 3  # kDLCUDAHost: pinned, but ordinary memory to us
READ_ONLY: Final = 1  # flag bits of a versioned tensor
IS_COPIED: Final = 2
MAJOR_VERSION: Final = 1
DEFAULT_STREAM: Final = 1  # of CUDA, as the protocol counts
NO_WAITING: Final = -1

_INT, _UINT, _FLOAT, _BFLOAT, _COMPLEX, _BOOL = 0, 1, 2, 4, 5, 6
_CODES: Final[dict[DType, tuple[int, int]]] = {  # type code and bits, as in dlpack.h
    dt.bool_: (_BOOL, 8),
    dt.bfloat16: (_BFLOAT, 16),
    dt.float8_e4m3: (10, 8),  # kDLFloat8_e4m3fn
    dt.float8_e5m2: (12, 8),
    **{d: (_INT, d.bits) for d in (dt.int8, dt.int16, dt.int32, dt.int64)},
    **{d: (_UINT, d.bits) for d in (dt.uint8, dt.uint16, dt.uint32, dt.uint64)},
    **{d: (_FLOAT, d.bits) for d in (dt.float16, dt.float32, dt.float64)},
    **{d: (_COMPLEX, d.bits) for d in dt.COMPLEX},
}
_DTYPES: Final[dict[tuple[int, int], DType]] = {code: d for d, code in _CODES.items()}


class _Tensor(ctypes.Structure):  # DLTensor
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),  # in elements; null: row-major
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):  # DLManagedTensor
    _fields_ = [
        ("tensor", _Tensor),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]


class _Versioned(ctypes.Structure):  # DLManagedTensorVersioned
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_NAME, _VERSIONED_NAME = b"dltensor", b"dltensor_versioned"
# A capsule keeps the address of its name, so these must live as long as the process.
_USED: Final = {
    _NAME: ctypes.c_char_p(b"used_dltensor"),
    _VERSIONED_NAME: ctypes.c_char_p(b"used_dltensor_versioned"),
}

_is_valid = ctypes.pythonapi.PyCapsule_IsValid
_is_valid.restype, _is_valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_set_name = ctypes.pythonapi.PyCapsule_SetName
_set_name.restype, _set_name.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
_Deleter = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)  # holds the interpreter lock while it runs


# -- out ---------------------------------------------------------------------------------------


def dlpack_device(buffer: Buffer) -> tuple[int, int]:
    """DLPack's device type and index of a buffer."""
    if base_key(buffer.device) == "CUDA":
        return CUDA, device_number(buffer.device)
    if not buffer.storage.allocator.host_visible:
        raise DeviceError(f"memory of {buffer.device} cannot be shared through DLPack: copy to CPU")
    return CPU, 0


def to_dlpack(
    buffer: Buffer,
    shape: tuple[int, ...],
    *,
    stream: object = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:  # a capsule, for which Python has no type
    """A capsule over a row-major tensor; the arguments are those of ``__dlpack__``.

    On a GPU the consumer's ``stream`` waits for what computes the values; -1 asks for no waiting.
    """
    device = dlpack_device(buffer)
    if device[0] == CPU and stream is not None:
        raise DeviceError(f"{buffer.device} has no streams: stream must be None, got {stream!r}")
    if dl_device is not None and tuple(dl_device) != device:
        raise BufferError(f"cannot export {buffer.device} memory to DLPack device {dl_device}")
    if math.prod(shape) != buffer.size:
        raise ShapeError(f"shape {shape} does not fit {buffer!r}")
    if copy and device[0] == CUDA:
        buffer = buffer.copied()
    code = "c" if buffer.dtype.is_complex else "u"
    array = _bytes_of(buffer).view(np.dtype(f"{code}{buffer.dtype.itemsize}")).reshape(shape)
    if copy and device[0] == CPU:
        array = array.copy()
    if device[0] == CUDA and stream != NO_WAITING:
        _let_wait(device[1], stream)
    is_versioned = max_version is not None and max_version[0] >= MAJOR_VERSION
    if not array.flags.writeable and not is_versioned:
        raise BufferError(
            f"{buffer!r} is read-only, which only DLPack 1.0 and newer can say: use copy=True"
        )
    return _export(array, buffer.dtype, device, is_versioned, bool(copy))


def _bytes_of(buffer: Buffer) -> Array:
    """An array over the memory of a buffer, which keeps it; of a GPU's it is never to be read."""
    buffer.storage.allocate()
    start, stop = buffer.byte_range
    found: Array = np.asarray(buffer.storage)[start:stop]
    return found


def _let_wait(number: int, stream: object) -> None:
    """Make a stream of others wait for ours; None is the default one, as the protocol says."""
    from svod.device.cuda.driver import context

    if stream is not None and not isinstance(stream, int):
        raise DeviceError(f"a CUDA stream is given as a number, not as {stream!r}")
    if stream == 0:
        raise DeviceError("stream 0 is ambiguous: 1 is the default stream, 2 that of each thread")
    context(number).let_wait(stream or DEFAULT_STREAM)


def _export(
    array: Array, dtype: DType, device: tuple[int, int], is_versioned: bool, is_copied: bool
) -> Any:
    is_read_only = not array.flags.writeable
    if is_versioned and _numpy_is_versioned():
        capsule = array.__dlpack__(max_version=(1, 0))
        versioned = _Versioned.from_address(_get_pointer(capsule, _VERSIONED_NAME))
        tensor = versioned.tensor
        versioned.flags = READ_ONLY * is_read_only | IS_COPIED * is_copied
    else:  # an older protocol is always allowed
        capsule = array.__dlpack__()
        tensor = _Managed.from_address(_get_pointer(capsule, _NAME)).tensor
    tensor.code, tensor.bits = _CODES[dtype]
    tensor.device_type, tensor.device_id = device
    return capsule


def _numpy_is_versioned() -> bool:
    return tuple(int(part) for part in np.__version__.split(".")[:2]) >= (2, 1)


# -- in ----------------------------------------------------------------------------------------


class Imported(NamedTuple):
    """A tensor from another library: its elements and its shape.

    The elements are in row-major order, unless there are strides: then they are as they lie in
    memory, and ``is_borrowed`` says that they have to be copied before they are anybody's.
    """

    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None = None
    is_borrowed: bool = False


def from_dlpack(
    source: Any, copy: bool | None = None, device: str = "CPU", takes_strides: bool = False
) -> Imported:
    """The tensor of an object with ``__dlpack__``, or of a capsule, where its memory is.

    ``copy=None`` shares the memory if it can, ``True`` never shares, and ``False`` refuses
    what cannot be shared. Only who ``takes_strides`` gets another order than row-major.
    """
    if base_key(device) != "CPU":
        raise DeviceError(f"DLPack tensors are taken over on CPU, not on {device}: copy afterwards")
    stream = None
    if hasattr(source, "__dlpack_device__"):
        kind, number = (int(part) for part in source.__dlpack_device__())
        _check_device(kind)
        if kind == CUDA:
            from svod.device.cuda.driver import context

            stream = context(number).stream  # the producer makes it wait for the values
    producer = _Producer(_capsule(source, stream))
    return _import(producer, copy, device, takes_strides)


class _Producer:
    """Owns the struct of a consumed capsule and calls its deleter at the end."""

    __slots__ = ("deleter", "is_read_only", "pointer", "tensor", "version")

    def __init__(self, capsule: Any) -> None:
        self.deleter = 0
        name = _NAME if _is_valid(capsule, _NAME) else _VERSIONED_NAME
        if not _is_valid(capsule, name):
            raise BufferError("not a DLPack capsule, or one that was used before")
        self.pointer = _get_pointer(capsule, name)
        managed: Any
        if name == _NAME:
            managed = _Managed.from_address(self.pointer)
            self.version, self.is_read_only = (0, 0), False
        else:
            managed = _Versioned.from_address(self.pointer)
            self.version = (managed.major, managed.minor)
            self.is_read_only = bool(managed.flags & READ_ONLY)
        _set_name(capsule, _USED[name])
        self.deleter = managed.deleter or 0
        self.tensor: _Tensor | None = None
        if self.version[0] > MAJOR_VERSION:  # only the deleter has a known place
            raise BufferError(
                f"DLPack version {self.version[0]}.{self.version[1]} is newer than {MAJOR_VERSION}"
            )
        self.tensor = managed.tensor

    def __del__(self, is_finalizing: Callable[[], bool] = sys.is_finalizing) -> None:
        if self.deleter and not is_finalizing():  # at the end the module's names are gone
            if self.tensor is not None and self.tensor.device_type == CUDA:
                from svod.device.cuda.driver import context

                context(self.tensor.device_id).synchronize()  # our kernels may still read it
            _Deleter(self.deleter)(self.pointer)


def _capsule(source: Any, stream: int | None) -> Any:
    if not hasattr(source, "__dlpack__"):
        if type(source).__name__ == "PyCapsule":
            return source
        raise DTypeError(f"{type(source).__name__} has no __dlpack__ method")
    given = {} if stream is None else {"stream": stream}
    try:
        return source.__dlpack__(max_version=(MAJOR_VERSION, 1), **given)
    except TypeError:  # a producer from before version 1
        return source.__dlpack__(**given)


def _check_device(kind: int) -> None:
    if kind not in (CPU, CUDA, CUDA_HOST):
        raise DeviceError(
            f"a DLPack tensor on device type {kind} is neither in host memory nor on an NVIDIA "
            "GPU: copy it to the CPU first"
        )


def _import(producer: _Producer, copy: bool | None, device: str, takes_strides: bool) -> Imported:
    tensor: Any = producer.tensor
    _check_device(tensor.device_type)
    if tensor.device_type == CUDA:
        device = "CUDA" if tensor.device_id == 0 else f"CUDA:{tensor.device_id}"
    dtype = _DTYPES.get((tensor.code, tensor.bits))
    if dtype is None or tensor.lanes != 1:
        raise DTypeError(
            f"no dtype for DLPack type code {tensor.code} with {tensor.bits} bits "
            f"and {tensor.lanes} lanes"
        )
    shape = tuple(tensor.shape[: tensor.ndim]) if tensor.ndim else ()
    size = math.prod(shape)
    if not size:
        return Imported(Buffer.new(device, 0, dtype), shape)
    strides = tuple(tensor.strides[: tensor.ndim]) if tensor.ndim and tensor.strides else None
    address = (tensor.data or 0) + tensor.byte_offset
    is_aligned = address % dtype.itemsize == 0
    is_plain = strides is None or is_row_major(shape, strides)
    is_on_gpu = tensor.device_type == CUDA

    def seen(count: int) -> Buffer:
        nbytes = count * dtype.itemsize
        storage = Storage.wrap(device, nbytes, address, producer, producer.is_read_only)
        return Buffer(storage, count, dtype)

    if is_aligned and is_plain and (copy is not True or is_on_gpu):
        buffer = seen(size)
        return Imported(buffer.copied() if copy else buffer, shape)
    if is_aligned and takes_strides and strides is not None and min(strides) >= 0:
        is_shared = copy is not True and order_in_memory(shape, strides) is not None
        if is_shared or (is_on_gpu and copy is not False):
            span = 1 + sum([(n - 1) * s for n, s in zip(shape, strides, strict=True)])
            return Imported(seen(span), shape, strides, not is_shared)
    if copy is False or is_on_gpu:
        what = f"strides {strides}" if is_aligned else f"address {address:#x}"
        raise BufferError(
            f"a DLPack tensor of shape {shape} with {what} cannot be shared: only aligned memory "
            f"{'without gaps' if takes_strides else 'in row-major order'} can; "
            + ("make it contiguous first" if is_on_gpu else "use copy=None or copy=True")
        )
    array = _strided(address, dtype, shape, strides)
    buffer = Buffer.from_numpy(array, copy=True, device=device)
    return Imported(buffer, shape)  # the producer is released on return: nothing refers to it


class _Memory:
    """Lets NumPy see foreign memory with any strides, also negative and zero ones."""

    def __init__(self, interface: dict[str, object]) -> None:
        self.__array_interface__ = interface


def _strided(
    address: int, dtype: DType, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> Array:
    steps = None if strides is None else tuple([s * dtype.itemsize for s in strides])
    interface: dict[str, object] = {
        "shape": shape,
        "typestr": f"|V{dtype.itemsize}",
        "data": (address, True),
        "strides": steps,
        "version": 3,
    }
    raw = np.asarray(_Memory(interface))
    return np.ascontiguousarray(raw).reshape(-1).view(to_numpy(dtype))
