"""macOS, on Intel's processors and on Apple's."""

from __future__ import annotations

import ctypes
import platform
from functools import cached_property
from pathlib import Path
from typing import Any

from svod.base.system.posix import EXECUTE, READ, WRITE, Posix, _write

_JIT = 0x0800  # MAP_JIT: pages that one thread may write while others only run them
_PRIVATE = 2
# What sysctl calls the features of aarch64.
ARM_NAMES = {
    "fp-armv8": "floatingpoint", "neon": "AdvSIMD", "aes": "arm.FEAT_AES",
    "sha2": "arm.FEAT_SHA256", "crc": "armv8_crc32", "lse": "arm.FEAT_LSE",
    "fullfp16": "arm.FEAT_FP16", "rdm": "arm.FEAT_RDM", "dotprod": "arm.FEAT_DotProd",
    "fp16fml": "arm.FEAT_FHM", "i8mm": "arm.FEAT_I8MM", "bf16": "arm.FEAT_BF16",
}  # fmt: skip
_CACHES = {1: "l1dcachesize", 2: "l2cachesize", 3: "l3cachesize"}


class MacOS(Posix):
    """macOS. Apple's processors run code of pages only that were mapped for it."""

    name = "macos"
    anonymous = 0x1000
    detached = 2
    flush = "sys_icache_invalidate"

    def __init__(self, process: Any = None, is_arm: bool | None = None) -> None:
        super().__init__(process)
        self.is_arm = platform.machine() == "arm64" if is_arm is None else is_arm

    @cached_property
    def process(self) -> Any:
        found = super().process
        found.sys_icache_invalidate.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
        pointer = ctypes.c_void_p
        found.sysctlbyname.argtypes = (ctypes.c_char_p, pointer, pointer, pointer, ctypes.c_size_t)
        return found

    def map_code(self, size: int, executable: int) -> int:
        """All code and constants: Apple's pages for code. With variables of its own the memory
        cannot be of that kind, since a thread may either write such pages or run them."""
        if self.is_arm and executable == size:
            return self._map(size, READ | WRITE | EXECUTE, _PRIVATE | self.anonymous | _JIT)
        return super().map_code(size, executable)

    def fill_code(self, address: int, image: bytearray, executable: int) -> None:
        if not self.is_arm or executable != len(image):
            super().fill_code(address, image, executable)
            return
        self.process.pthread_jit_write_protect_np(0)  # this thread writes and does not run
        try:
            _write(address, image)
        finally:
            self.process.pthread_jit_write_protect_np(1)
        self._flush(address, executable)

    def _flush(self, address: int, size: int) -> None:
        self.process.sys_icache_invalidate(address, size)

    def arm_features(self) -> frozenset[str]:
        return frozenset({n for n, key in ARM_NAMES.items() if self._number(f"hw.optional.{key}")})

    def processor_name(self) -> str:
        return self._value("machdep.cpu.brand_string", 256).rstrip(b"\0").decode(errors="replace")

    def cache_bytes(self, level: int) -> int | None:
        return self._number(f"hw.{_CACHES[level]}") or None

    def cache_home(self, home: Path) -> Path:
        return home / "Library" / "Caches" / "svod"

    def _number(self, name: str) -> int:
        """A number that the system knows by a name; 0 where it does not."""
        return int.from_bytes(self._value(name, 8), "little")

    def _value(self, name: str, room: int) -> bytes:
        value, size = (ctypes.c_char * room)(), ctypes.c_size_t(room)
        if self.process.sysctlbyname(name.encode(), value, ctypes.addressof(size), None, 0):
            return b""
        return value.raw[: size.value]
