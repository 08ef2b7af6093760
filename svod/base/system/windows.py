"""Windows."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from svod.base.errors import AllocationError, CompileError

_COMMIT, _RESERVE, _RELEASE = 0x1000, 0x2000, 0x8000
_READWRITE, _EXECUTE_READ = 0x04, 0x20
_STACK_IS_RESERVED = 0x10000  # STACK_SIZE_PARAM_IS_A_RESERVATION
# What IsProcessorFeaturePresent calls the features of aarch64.
ARM_NUMBERS = {"crc": 31, "lse": 34, "dotprod": 43, "i8mm": 66, "bf16": 68, "fullfp16": 67}
_ARM_BASELINE = frozenset({"fp-armv8", "neon"})


class Windows:
    """Windows on x86-64 and aarch64; ``kernel`` is kernel32."""

    name = "windows"
    libraries: Sequence[str] = ("ucrtbase.dll", "vcruntime140.dll", "ntdll.dll")

    def __init__(self, kernel: Any = None) -> None:
        self._given = kernel

    @cached_property
    def kernel(self) -> Any:
        found = self._given or ctypes.CDLL("kernel32.dll")
        pointer, size, word = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint32
        found.VirtualAlloc.restype = pointer
        found.VirtualAlloc.argtypes = (pointer, size, word, word)
        found.VirtualProtect.argtypes = (pointer, size, word, pointer)
        found.VirtualFree.argtypes = (pointer, size, word)
        found.GetCurrentProcess.restype = pointer
        found.FlushInstructionCache.argtypes = (pointer, pointer, size)
        found.CreateThread.restype = pointer
        found.CreateThread.argtypes = (pointer, size, pointer, pointer, word, pointer)
        found.CloseHandle.argtypes = (pointer,)
        found.GetProcessAffinityMask.argtypes = (pointer, pointer, pointer)
        return found

    # -- memory -----------------------------------------------------------------------------------

    def private_map(self, nbytes: int) -> mmap.mmap:
        return mmap.mmap(-1, nbytes)

    def map_code(self, size: int, executable: int) -> int:
        address = self.kernel.VirtualAlloc(None, size, _COMMIT | _RESERVE, _READWRITE)
        if not address:
            raise AllocationError(f"no memory for {size} bytes of code: {self._error()}")
        return int(address)

    def fill_code(self, address: int, image: bytearray, executable: int) -> None:
        ctypes.memmove(address, (ctypes.c_char * len(image)).from_buffer(image), len(image))
        if executable == 0:
            return
        before = ctypes.c_uint32()
        if not self.kernel.VirtualProtect(
            address, executable, _EXECUTE_READ, ctypes.addressof(before)
        ):
            raise CompileError(f"the system refuses executable memory: {self._error()}")
        self.kernel.FlushInstructionCache(self.kernel.GetCurrentProcess(), address, executable)

    def unmap_code(self, address: int, size: int) -> None:
        self.kernel.VirtualFree(address, 0, _RELEASE)

    # -- code and threads -------------------------------------------------------------------------

    def symbol(self, name: str) -> int | None:
        for library in self.libraries:
            try:
                return ctypes.cast(ctypes.CDLL(library)[name], ctypes.c_void_p).value
            except (OSError, AttributeError):
                continue
        return None

    def start_thread(self, function: int, argument: int, stack_bytes: int) -> bool:
        handle = self.kernel.CreateThread(
            None, stack_bytes, function, argument, _STACK_IS_RESERVED, None
        )
        if handle:
            self.kernel.CloseHandle(handle)  # the thread lives on
        return bool(handle)

    def processors(self) -> list[int]:
        own, all_there = ctypes.c_size_t(), ctypes.c_size_t()
        found = self.kernel.GetProcessAffinityMask(
            self.kernel.GetCurrentProcess(), ctypes.addressof(own), ctypes.addressof(all_there)
        )
        mask = own.value if found else 0
        some = [number for number in range(64) if mask >> number & 1]
        return some or list(range(os.cpu_count() or 1))

    # -- facts and paths --------------------------------------------------------------------------

    def arm_features(self) -> frozenset[str]:
        has = self.kernel.IsProcessorFeaturePresent
        return _ARM_BASELINE | {name for name, number in ARM_NUMBERS.items() if has(number)}

    def processor_name(self) -> str:
        return os.environ.get("PROCESSOR_IDENTIFIER", "")

    def cache_bytes(self, level: int) -> int | None:
        return None

    def cache_home(self, home: Path) -> Path:
        return Path(os.environ.get("LOCALAPPDATA") or home / "AppData/Local") / "svod" / "Cache"

    def user(self) -> str:
        return os.environ.get("USERNAME") or "user"

    def _error(self) -> str:
        return f"error {self.kernel.GetLastError()}"
