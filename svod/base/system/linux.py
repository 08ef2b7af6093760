"""Linux, and systems that are like it."""

from __future__ import annotations

import ctypes
import os
import platform
import re
from pathlib import Path

from svod.base.system.posix import Posix

_CAPABILITIES, _MORE_CAPABILITIES = 16, 26  # AT_HWCAP, AT_HWCAP2 of getauxval
# Features of aarch64: the word and the bit that stand for each.
ARM_BITS: dict[str, tuple[int, int]] = {
    "fp-armv8": (_CAPABILITIES, 0), "neon": (_CAPABILITIES, 1), "aes": (_CAPABILITIES, 3),
    "sha2": (_CAPABILITIES, 6), "crc": (_CAPABILITIES, 7), "lse": (_CAPABILITIES, 8),
    "fullfp16": (_CAPABILITIES, 10), "rdm": (_CAPABILITIES, 12), "dotprod": (_CAPABILITIES, 20),
    "sve": (_CAPABILITIES, 22), "fp16fml": (_CAPABILITIES, 23), "sve2": (_MORE_CAPABILITIES, 1),
    "i8mm": (_MORE_CAPABILITIES, 13), "bf16": (_MORE_CAPABILITIES, 14),
}  # fmt: skip


class Linux(Posix):
    """Linux with any C library."""

    name = "linux"
    # libm for scalar maths that LLVM expands to calls, libgcc for conversions that the processor
    # lacks and for the flush of aarch64.
    libraries = ("libm.so.6", "libgcc_s.so.1")
    flush = "__clear_cache" if platform.machine() == "aarch64" else ""

    def _flush(self, address: int, size: int) -> None:
        found = self.symbol(self.flush)
        if found is not None:  # else the kernel does it when the pages become executable
            ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(found)(address, address + size)

    def processors(self) -> list[int]:
        if not hasattr(os, "sched_getaffinity"):  # another system that is like Linux
            return super().processors()
        return sorted(os.sched_getaffinity(0))

    def arm_features(self) -> frozenset[str]:
        ask = self.process.getauxval
        ask.argtypes, ask.restype = (ctypes.c_ulong,), ctypes.c_ulong
        words = {kind: int(ask(kind)) for kind in (_CAPABILITIES, _MORE_CAPABILITIES)}
        return frozenset({n for n, (word, bit) in ARM_BITS.items() if words[word] >> bit & 1})

    def processor_name(self) -> str:
        return system_line("model name") or system_line("CPU part")

    def cache_bytes(self, level: int) -> int | None:
        for index in range(8):
            folder = Path(f"/sys/devices/system/cpu/cpu0/cache/index{index}")
            try:
                found = int((folder / "level").read_text())
                kind = (folder / "type").read_text().strip()
                size = (folder / "size").read_text().strip()
            except (OSError, ValueError):
                continue
            unit = {"K": 1 << 10, "M": 1 << 20}.get(size[-1:])
            if found == level and kind != "Instruction" and unit:
                return int(size[:-1]) * unit
        return None

    def cache_home(self, home: Path) -> Path:
        return home / ".cache" / "svod"


def system_line(name: str) -> str:
    """A line of what Linux says of its processors, for people; empty where it says nothing."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(rf"^{name}\s*:\s*(.*)$", text, re.MULTILINE)
    return found.group(1) if found else ""
