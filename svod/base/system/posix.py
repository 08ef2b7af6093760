"""What Linux and macOS share: memory by mmap, threads by pthread, symbols by the loader."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from svod.base.errors import AllocationError, CompileError

assert sys.platform != "win32"

_FAILED = ctypes.c_void_p(-1).value
READ, WRITE, EXECUTE = 1, 2, 4  # PROT_READ, PROT_WRITE, PROT_EXEC
_PRIVATE = 2  # MAP_PRIVATE


class Posix:
    """A system with the interfaces of POSIX; ``process`` is what the process has loaded."""

    # Where a name is looked up when the process itself lacks it.
    libraries: Sequence[str] = ()
    anonymous = 0x20  # MAP_ANONYMOUS
    flush = ""  # the function that lets the instruction cache see what was written

    def __init__(self, process: Any = None) -> None:
        self._given = process

    @cached_property
    def process(self) -> Any:
        """The functions of the process, with the types of those that take or give addresses."""
        found = self._given or ctypes.CDLL(None, use_errno=True)
        size, pointer, integer = ctypes.c_size_t, ctypes.c_void_p, ctypes.c_int
        found.mmap.restype = pointer
        found.mmap.argtypes = (pointer, size, integer, integer, integer, ctypes.c_int64)
        found.mprotect.argtypes = (pointer, size, integer)
        found.munmap.argtypes = (pointer, size)
        found.pthread_attr_setstacksize.argtypes = (pointer, size)
        found.pthread_create.argtypes = (pointer, pointer, pointer, pointer)
        return found

    # -- memory -----------------------------------------------------------------------------------

    def private_map(self, nbytes: int) -> mmap.mmap:
        # Python's default is shared memory, which gets no huge pages and is shared with forks.
        return mmap.mmap(-1, nbytes, _PRIVATE | self.anonymous)

    def map_code(self, size: int, executable: int) -> int:
        return self._map(size, READ | WRITE, _PRIVATE | self.anonymous)

    def _map(self, size: int, access: int, flags: int) -> int:
        address = self.process.mmap(None, size, access, flags, -1, 0)
        if address is None or address == _FAILED:
            raise AllocationError(f"no memory for {size} bytes of code: error {ctypes.get_errno()}")
        return int(address)

    def fill_code(self, address: int, image: bytearray, executable: int) -> None:
        _write(address, image)
        if executable == 0:
            return
        if self.flush:
            self._flush(address, executable)
        if self.process.mprotect(address, executable, READ | EXECUTE) != 0:
            raise CompileError(
                f"the system refuses executable memory: mprotect gave error {ctypes.get_errno()}"
            )

    def _flush(self, address: int, size: int) -> None:
        raise NotImplementedError  # of a system that names such a function

    def unmap_code(self, address: int, size: int) -> None:
        self.process.munmap(address, size)

    # -- code and threads -------------------------------------------------------------------------

    def symbol(self, name: str) -> int | None:
        for library in (None, *self.libraries):
            try:
                holder = self.process if library is None else ctypes.CDLL(library)
                return ctypes.cast(holder[name], ctypes.c_void_p).value
            except (OSError, AttributeError):
                continue
        return None

    def start_thread(self, function: int, argument: int, stack_bytes: int) -> bool:
        process = self.process
        attributes = (ctypes.c_uint64 * 32)()  # larger than pthread_attr_t of any C library
        thread = ctypes.c_uint64()
        process.pthread_attr_init(attributes)
        process.pthread_attr_setdetachstate(attributes, self.detached)
        process.pthread_attr_setstacksize(attributes, stack_bytes)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            failed = process.pthread_create(ctypes.byref(thread), attributes, function, argument)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        process.pthread_attr_destroy(attributes)
        return bool(failed == 0)

    detached = 1  # PTHREAD_CREATE_DETACHED

    def processors(self) -> list[int]:
        return list(range(os.cpu_count() or 1))

    def user(self) -> str:
        return str(os.getuid())


def _write(address: int, image: bytearray) -> None:
    ctypes.memmove(address, (ctypes.c_char * len(image)).from_buffer(image), len(image))
