"""The CUDA driver library through ctypes: one table of signatures, every call checked.

In: nothing but ``libcuda.so.1``, which comes with the driver. Out: ``Driver``, whose methods are
the calls of the table; one that fails raises DeviceError with its name, the code and the driver's
own words. Without the library, with no GPU or with a driver that is too old, asking for CUDA is an
error that says which of these it was.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_size_t, c_uint, c_uint64, c_void_p
from functools import cache
from typing import Any, Final, NamedTuple

from svod.base.errors import DeviceError
from svod.base.knobs import knobs
from svod.base.log import debug
from svod.base.paths import cache_root, make_private
from svod.base.trust import Untrusted, check_folder, resolved

LIBRARIES: Final = ("libcuda.so.1", "libcuda.so", "nvcuda.dll")
OUT_OF_MEMORY: Final = 2
OLDEST_DRIVER: Final = 12000  # graphs with updates, stream-ordered memory, PTX 8.0

_out = POINTER(c_void_p)
_integer = POINTER(c_int)
_size = POINTER(c_size_t)
_address = POINTER(c_uint64)

# Name -> argument types. The names with a version are those of the current headers.
SIGNATURES: Final[dict[str, tuple[Any, ...]]] = {
    "cuInit": (c_uint,),
    "cuDriverGetVersion": (_integer,),
    "cuDeviceGetCount": (_integer,),
    "cuDeviceGet": (_integer, c_int),
    "cuDeviceGetName": (c_char_p, c_int, c_int),
    "cuDeviceGetAttribute": (_integer, c_int, c_int),
    "cuDeviceTotalMem_v2": (_size, c_int),
    "cuDevicePrimaryCtxRetain": (_out, c_int),
    "cuDevicePrimaryCtxRelease_v2": (c_int,),
    "cuCtxSetCurrent": (c_void_p,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (_size, _size),
    # memory
    "cuMemAllocAsync": (_address, c_size_t, c_void_p),
    "cuMemFreeAsync": (c_uint64, c_void_p),
    "cuDeviceGetDefaultMemPool": (_out, c_int),
    "cuMemPoolSetAttribute": (c_void_p, c_int, c_void_p),
    "cuMemPoolTrimTo": (c_void_p, c_size_t),
    "cuMemHostAlloc": (_out, c_size_t, c_uint),
    "cuMemFreeHost": (c_void_p,),
    "cuMemcpyHtoDAsync_v2": (c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemcpyDtoHAsync_v2": (c_void_p, c_uint64, c_size_t, c_void_p),
    "cuMemcpyDtoDAsync_v2": (c_uint64, c_uint64, c_size_t, c_void_p),
    "cuMemcpyPeerAsync": (c_uint64, c_void_p, c_uint64, c_void_p, c_size_t, c_void_p),
    "cuMemsetD8Async": (c_uint64, ctypes.c_ubyte, c_size_t, c_void_p),
    # streams and events
    "cuStreamCreate": (_out, c_uint),
    "cuStreamDestroy_v2": (c_void_p,),
    "cuStreamSynchronize": (c_void_p,),
    "cuStreamWaitEvent": (c_void_p, c_void_p, c_uint),
    "cuEventCreate": (_out, c_uint),
    "cuEventDestroy_v2": (c_void_p,),
    "cuEventRecord": (c_void_p, c_void_p),
    "cuEventSynchronize": (c_void_p,),
    "cuEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    # code
    "cuModuleLoadDataEx": (_out, c_void_p, c_uint, POINTER(c_int), POINTER(c_void_p)),
    "cuModuleUnload": (c_void_p,),
    "cuModuleGetFunction": (_out, c_void_p, c_char_p),
    "cuFuncSetAttribute": (c_void_p, c_int, c_int),
    "cuFuncGetAttribute": (_integer, c_int, c_void_p),
    "cuLaunchKernel": (
        c_void_p,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_uint,
        c_void_p,
        c_void_p,
        c_void_p,
    ),
    # graphs
    "cuGraphCreate": (_out, c_uint),
    "cuGraphDestroy": (c_void_p,),
    "cuGraphAddKernelNode_v2": (_out, c_void_p, c_void_p, c_size_t, c_void_p),
    "cuGraphAddMemcpyNode": (_out, c_void_p, c_void_p, c_size_t, c_void_p, c_void_p),
    "cuGraphInstantiateWithFlags": (_out, c_void_p, c_uint64),
    "cuGraphExecKernelNodeSetParams_v2": (c_void_p, c_void_p, c_void_p),
    "cuGraphExecMemcpyNodeSetParams": (c_void_p, c_void_p, c_void_p, c_void_p),
    "cuGraphLaunch": (c_void_p, c_void_p),
    "cuGraphExecDestroy": (c_void_p,),
}

# Calls that a driver may lack as long as nobody needs them.
OPTIONAL: Final[dict[str, tuple[Any, ...]]] = {
    "cuTensorMapEncodeTiled": (
        c_void_p, c_int, c_uint, c_uint64, c_void_p, c_void_p, c_void_p, c_void_p,
        c_int, c_int, c_int, c_int,
    ),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (_integer, c_void_p, c_int, c_size_t),
}  # fmt: skip

# Device attributes.
MAX_THREADS, MAX_SHARED, WARP, MAX_REGISTERS, CLOCK_KHZ = 1, 8, 10, 12, 13
MULTIPROCESSORS, MEMORY_CLOCK_KHZ, MEMORY_BITS, L2_BYTES = 16, 36, 37, 38
CAPABILITY_MAJOR, CAPABILITY_MINOR, MAX_SHARED_OPTIN = 75, 76, 97
# Function attributes.
FUNCTION_SHARED, FUNCTION_LOCAL, FUNCTION_REGISTERS, FUNCTION_DYNAMIC_SHARED = 1, 3, 4, 8
POOL_RELEASE_THRESHOLD = 4
WITHOUT_TIMING = 2  # of an event
NON_BLOCKING = 1  # of a stream: no ordering with the legacy default stream
# Options of the loader.
_INFO_LOG, _INFO_SIZE, _ERROR_LOG, _ERROR_SIZE = 3, 4, 5, 6
_LOG_BYTES = 16 << 10


class KernelNodeParams(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS_v2."""

    _fields_ = [
        ("func", c_void_p),
        ("grid_x", c_uint), ("grid_y", c_uint), ("grid_z", c_uint),
        ("block_x", c_uint), ("block_y", c_uint), ("block_z", c_uint),
        ("shared", c_uint),
        ("params", c_void_p),
        ("extra", c_void_p),
        ("kern", c_void_p),
        ("ctx", c_void_p),
    ]  # fmt: skip


class MemcpyParams(ctypes.Structure):
    """CUDA_MEMCPY3D, of which only one row of bytes is used."""

    _fields_ = [
        ("src_x", c_size_t), ("src_y", c_size_t), ("src_z", c_size_t), ("src_lod", c_size_t),
        ("src_kind", c_int), ("src_host", c_void_p), ("src_device", c_uint64),
        ("src_array", c_void_p), ("reserved0", c_void_p), ("src_pitch", c_size_t),
        ("src_height", c_size_t),
        ("dst_x", c_size_t), ("dst_y", c_size_t), ("dst_z", c_size_t), ("dst_lod", c_size_t),
        ("dst_kind", c_int), ("dst_host", c_void_p), ("dst_device", c_uint64),
        ("dst_array", c_void_p), ("reserved1", c_void_p), ("dst_pitch", c_size_t),
        ("dst_height", c_size_t),
        ("width", c_size_t), ("height", c_size_t), ("depth", c_size_t),
    ]  # fmt: skip


class DriverFault(DeviceError):
    """A driver call that failed; ``code`` is the driver's."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message, code)
        self.message, self.code = message, code

    def __str__(self) -> str:
        return self.message


class GpuFacts(NamedTuple):
    """What the driver says of one GPU."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int
    l2_bytes: int
    shared_bytes: int  # at most for one block
    driver: int  # as the driver counts: 13000 is 13.0


class Driver:
    """The loaded library. ``call(name, ...)`` checks; the rest are calls with results."""

    def __init__(self, library: Any) -> None:
        self._functions: dict[str, Any] = {}
        for name, types in SIGNATURES.items():
            function = getattr(library, name, None)
            if function is None:
                raise DeviceError(f"the CUDA driver has no {name}: it is older than CUDA 12")
            function.argtypes, function.restype = types, c_int
            self._functions[name] = function
        for name, types in OPTIONAL.items():
            function = getattr(library, name, None)
            if function is not None:
                function.argtypes, function.restype = types, c_int
                self._functions[name] = function
        self._error_name = library.cuGetErrorName
        self._error_text = library.cuGetErrorString
        self.launch = self._functions["cuLaunchKernel"]  # unchecked: for the fast path
        self.graph_launch = self._functions["cuGraphLaunch"]

    def call(self, name: str, *arguments: Any) -> None:
        """One call; DriverFault where it fails."""
        code = self._functions[name](*arguments)
        if code:
            raise self.fault(name, code)

    def fault(self, name: str, code: int) -> DriverFault:
        """The error of a call that gave ``code``."""
        word, text = c_char_p(), c_char_p()
        self._error_name(c_int(code), byref(word))
        self._error_text(c_int(code), byref(text))
        named = (word.value or b"unknown error").decode()
        said = (text.value or b"the driver says nothing more").decode()
        return DriverFault(f"{name} failed with {named} ({code}): {said}", code)

    # -- calls with results --------------------------------------------------------------------

    def integer(self, name: str, *arguments: Any) -> int:
        """A call whose first parameter receives an int."""
        found = c_int()
        self.call(name, byref(found), *arguments)
        return found.value

    def has(self, name: str) -> bool:
        """Whether the driver has a call that it may lack."""
        return name in self._functions

    def handle(self, name: str, *arguments: Any) -> int:
        """A call whose first parameter receives a handle."""
        found = c_void_p()
        self.call(name, byref(found), *arguments)
        return int(found.value or 0)

    def attribute(self, number: int, device: int) -> int:
        return self.integer("cuDeviceGetAttribute", number, device)

    def facts(self, device: int) -> GpuFacts:
        """Name and limits of a GPU."""
        name = ctypes.create_string_buffer(256)
        self.call("cuDeviceGetName", name, 256, device)
        total = c_size_t()
        self.call("cuDeviceTotalMem_v2", byref(total), device)
        major, minor = (self.attribute(n, device) for n in (CAPABILITY_MAJOR, CAPABILITY_MINOR))
        return GpuFacts(
            name.value.decode(),
            (major, minor),
            self.attribute(MULTIPROCESSORS, device),
            total.value,
            self.attribute(L2_BYTES, device),
            self.attribute(MAX_SHARED_OPTIN, device),
            self.integer("cuDriverGetVersion"),
        )

    def load_module(self, code: bytes) -> int:
        """A module from PTX or machine code; the error shows what the assembler said."""
        log = ctypes.create_string_buffer(_LOG_BYTES)
        options = (c_int * 2)(_ERROR_LOG, _ERROR_SIZE)
        values = (c_void_p * 2)(ctypes.addressof(log), _LOG_BYTES)
        found = c_void_p()
        text = ctypes.create_string_buffer(code)
        try:
            self.call("cuModuleLoadDataEx", byref(found), text, 2, options, values)
        except DriverFault as fault:
            said = log.value.decode(errors="replace").strip()
            raise DriverFault(f"{fault.message}\n{said}", fault.code) from None
        return int(found.value or 0)

    def elapsed_ms(self, start: int, stop: int) -> float:
        """Milliseconds between two events that have happened."""
        found = c_float()
        self.call("cuEventElapsedTime", byref(found), start, stop)
        return float(found.value)


def _keep_machine_code() -> None:
    """Have the driver keep the machine code it makes in our cache folder, if nothing else is said.

    The driver's own cache is keyed by PTX, driver and GPU. Code taken from its linker instead, to
    be stored by ourselves, ran a third slower (matvec 16384: 161 us instead of 121).
    """
    folder = resolved(cache_root() / "cuda")
    if not knobs.object_cache:
        return
    try:
        make_private(folder)
        check_folder(folder)
    except (OSError, Untrusted) as problem:
        debug(1, f"the driver keeps machine code in its own folder: {problem}")
    else:
        os.environ.setdefault("CUDA_CACHE_PATH", str(folder))
        os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(knobs.object_cache_bytes))


@cache
def driver() -> Driver:
    """The driver of this machine, initialised."""
    _keep_machine_code()
    problems = []
    for name in LIBRARIES:
        try:
            library = ctypes.CDLL(name)
            break
        except OSError as problem:
            problems.append(str(problem))
    else:
        raise DeviceError(
            f"CUDA is not available: no driver library was found ({problems[0]}); "
            "install NVIDIA's driver, or use device CPU"
        )
    found = Driver(library)
    try:
        found.call("cuInit", 0)
    except DriverFault as fault:
        raise DeviceError(
            f"CUDA is not available: {fault}; check that a GPU is present and nvidia-smi works, "
            "or use device CPU"
        ) from None
    version = found.integer("cuDriverGetVersion")
    if version < OLDEST_DRIVER:
        raise DeviceError(
            f"the CUDA driver is for CUDA {version_text(version)}; "
            f"{version_text(OLDEST_DRIVER)} or newer is needed: update NVIDIA's driver"
        )
    if found.integer("cuDeviceGetCount") == 0:
        raise DeviceError("CUDA is not available: the driver sees no GPU; use device CPU")
    return found


def is_available() -> bool:
    """Whether CUDA can be used here."""
    try:
        driver()
    except DeviceError:
        return False
    return True


def device_count() -> int:
    """How many GPUs can be used here: CUDA, CUDA:1, ..; 0 without a driver."""
    return driver().integer("cuDeviceGetCount") if is_available() else 0


def gpu_facts() -> list[GpuFacts]:
    """All GPUs the driver sees."""
    found = driver()
    count = found.integer("cuDeviceGetCount")
    return [found.facts(found.integer("cuDeviceGet", n)) for n in range(count)]


def version_text(number: int) -> str:
    """A version as the driver counts, as people write it."""
    return f"{number // 1000}.{number % 1000 // 10}"


class Context:
    """One GPU: its primary context, and the one stream all our work goes through.

    Work of one stream runs in the order it was given, so memory that comes back to the pool can be
    handed out again at once: whoever gets it runs later.
    """

    def __init__(self, number: int) -> None:
        self.driver = driver()
        count = self.driver.integer("cuDeviceGetCount")
        if number >= count:
            raise DeviceError(
                f"there is no device CUDA:{number}: the driver sees {count} GPU"
                f"{'' if count == 1 else 's'}, counted from 0"
            )
        self.number = number
        self.device = self.driver.integer("cuDeviceGet", number)
        self.facts = self.driver.facts(self.device)
        self.handle = self.driver.handle("cuDevicePrimaryCtxRetain", self.device)
        self._process = os.getpid()
        self._threads = threading.local()
        self.use()
        self.stream = self.driver.handle("cuStreamCreate", NON_BLOCKING)
        self.unread: dict[int, Callable[[], None]] = {}  # to be looked at when bytes come back
        self.pool = self.driver.handle("cuDeviceGetDefaultMemPool", self.device)
        keep = c_uint64((1 << 64) - 1)
        self.driver.call("cuMemPoolSetAttribute", self.pool, POOL_RELEASE_THRESHOLD, byref(keep))

    def use(self) -> Driver:
        """Make this GPU the current one of the calling thread."""
        if self._process != os.getpid():
            raise DeviceError("a forked process cannot use CUDA: start it with spawn")
        if getattr(_current, "context", None) is not self:
            self.driver.call("cuCtxSetCurrent", self.handle)
            _current.context = self
        return self.driver

    def look(self) -> None:
        """Look at what earlier work left to be looked at, such as words of checks."""
        while self.unread:
            self.unread.popitem()[1]()

    def let_wait(self, stream: int) -> None:
        """Make another stream wait for everything that was started on ours."""
        driver = self.use()
        event = driver.handle("cuEventCreate", WITHOUT_TIMING)
        driver.call("cuEventRecord", event, self.stream)
        driver.call("cuStreamWaitEvent", stream, event, 0)
        driver.call("cuEventDestroy_v2", event)  # the driver keeps it until it has happened

    def synchronize(self) -> None:
        """Wait for everything that was started."""
        self.use().call("cuStreamSynchronize", self.stream)


_current = threading.local()


@cache
def context(number: int = 0) -> Context:
    """The context of one GPU; there is one per process."""
    return Context(number)
