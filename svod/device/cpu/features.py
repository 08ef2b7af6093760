"""Which instructions this processor has, by LLVM's names: asked from the processor itself.

CPUID and the registers that the system saves are what LLVM looks at too, so nothing can disagree:
not the text of a system that describes another processor (sandboxes, emulators), and not LLVM,
which is told these features and no others. The optimiser's facts, the code generator's features,
the keys of stored code and the needs of saved plans all come from here; LLVM is not loaded for it.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

from svod.base.errors import CompileError

Registers = tuple[int, ...]

BASELINE = frozenset({"64bit", "cmov", "cx8", "fxsr", "mmx", "sse", "sse2"})  # of every x86-64
V2 = BASELINE | {"cx16", "popcnt", "sahf", "sse3", "ssse3", "sse4.1", "sse4.2", "crc32"}
V3 = V2 | {"avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave"}
V4 = V3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}

# Leaf and subleaf of CPUID -> register (eax, ebx, ecx, edx) -> bit -> feature.
_BITS: dict[tuple[int, int], dict[int, dict[int, str]]] = {
    (1, 0): {
        2: {0: "sse3", 1: "pclmul", 9: "ssse3", 12: "fma", 13: "cx16", 19: "sse4.1", 20: "sse4.2",
            22: "movbe", 23: "popcnt", 25: "aes", 28: "avx", 29: "f16c", 30: "rdrnd"},
    },
    (7, 0): {
        1: {0: "fsgsbase", 3: "bmi", 5: "avx2", 8: "bmi2", 16: "avx512f", 17: "avx512dq",
            18: "rdseed", 19: "adx", 21: "avx512ifma", 23: "clflushopt", 24: "clwb", 28: "avx512cd",
            29: "sha", 30: "avx512bw", 31: "avx512vl"},
        2: {1: "avx512vbmi", 6: "avx512vbmi2", 8: "gfni", 9: "vaes", 10: "vpclmulqdq",
            11: "avx512vnni", 12: "avx512bitalg", 14: "avx512vpopcntdq", 22: "rdpid"},
        3: {23: "avx512fp16"},
    },
    (7, 1): {0: {4: "avxvnni", 5: "avx512bf16", 23: "avxifma"}},
    (0x80000001, 0): {2: {0: "sahf", 5: "lzcnt", 6: "sse4a", 8: "prfchw"}},
}  # fmt: skip
_SAVES_AVX, _SAVES_AVX512 = 0x6, 0xE6  # parts of the registers that the system saves
_NEEDS_AVX = frozenset({"avx", "avx2", "f16c", "fma", "vaes", "vpclmulqdq", "avxvnni", "avxifma"})

# rdi: where to write; rsi: leaf, rdx: subleaf.
_CPUID = bytes.fromhex("53 89f0 89d1 0fa2 8907 895f04 894f08 89570c 5b c3")
_XGETBV = bytes.fromhex("31c9 0f01d0 8907 895704 c3")


@cache
def host_features() -> frozenset[str]:
    """The features of the processor this process runs on."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return frozenset(system_line("Features").split())  # by the system's names
    if not sys.platform.startswith("linux") and sys.platform != "darwin":
        return _from_llvm()
    cpuid, saved = _Code(_CPUID, 2), _Code(_XGETBV, 0)
    return decoded(cpuid, lambda: saved()[0])


def decoded(cpuid: Callable[[int, int], Registers], saved: Callable[[], int]) -> frozenset[str]:
    """The features that the leaves of CPUID name and whose registers the system saves."""
    highest, extended = cpuid(0, 0)[0], cpuid(0x80000000, 0)[0]
    found = set(BASELINE)
    for (leaf, subleaf), registers in _BITS.items():
        if leaf > (extended if leaf >= 0x80000000 else highest):
            continue
        if subleaf and cpuid(leaf, 0)[0] < subleaf:
            continue
        values = cpuid(leaf, subleaf)
        for register, bits in registers.items():
            found |= {name for bit, name in bits.items() if values[register] >> bit & 1}
    if "sse4.2" in found:
        found.add("crc32")
    has_xsave = highest >= 1 and bool(cpuid(1, 0)[2] >> 27 & 1)
    state = saved() if has_xsave else 0
    if has_xsave:
        found.add("xsave")
    if state & _SAVES_AVX != _SAVES_AVX:
        found -= _NEEDS_AVX
    if state & _SAVES_AVX512 != _SAVES_AVX512 or "avx2" not in found:
        found = {name for name in found if not name.startswith("avx512")}
    return frozenset(found)


class _Code:
    """A few bytes of machine code as a function of so many numbers, which writes four words."""

    def __init__(self, code: bytes, count: int) -> None:
        self._memory = mmap.mmap(-1, mmap.PAGESIZE)
        self._memory.write(code)
        address = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        process = ctypes.CDLL(None, use_errno=True)
        process.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
        if process.mprotect(address, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_EXEC):
            number = ctypes.get_errno()
            raise CompileError(
                f"the system refuses executable memory: mprotect gave error {number}"
            )
        kinds = (ctypes.c_void_p, *[ctypes.c_uint32] * count)
        self._call = ctypes.CFUNCTYPE(None, *kinds)(address)

    def __call__(self, *numbers: int) -> Registers:
        words = (ctypes.c_uint32 * 4)()
        self._call(ctypes.addressof(words), *numbers)
        return tuple(words)


def system_line(name: str) -> str:
    """A line of what the system says of its processors; empty where it says nothing."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(rf"^{name}\s*:\s*(.*)$", text, re.MULTILINE)
    return found.group(1) if found else ""


def _from_llvm() -> frozenset[str]:
    import llvmlite.binding as llvm

    return frozenset({name for name, has in llvm.get_host_cpu_features().items() if has})
