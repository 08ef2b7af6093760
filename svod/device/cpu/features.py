"""Which instructions this processor has, by LLVM's names: asked from the processor itself.

CPUID and the registers that the system saves are what LLVM looks at too, so nothing can disagree:
not the text of a system that describes another processor (sandboxes, emulators), and not LLVM,
which is told these features and no others. The optimiser's facts, the code generator's features,
the keys of stored code and the needs of saved plans all come from here; LLVM is not loaded for it.
An aarch64 processor tells programs nothing, so the system is asked there.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import sys
from collections.abc import Callable
from functools import cache

from svod.base.system import system

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
X86_FEATURES = tuple(sorted(
    V4.union(*[bits.values() for registers in _BITS.values() for bits in registers.values()])
))  # fmt: skip
ARM_FEATURES = (
    "aes", "bf16", "crc", "dotprod", "fp-armv8", "fp16fml", "fullfp16", "i8mm", "lse", "neon",
    "rdm", "sha2", "sve", "sve2",
)  # fmt: skip
_SAVES_AVX, _SAVES_AVX512 = 0x6, 0xE6  # parts of the registers that the system saves
_NEEDS_AVX = frozenset({"avx", "avx2", "f16c", "fma", "vaes", "vpclmulqdq", "avxvnni", "avxifma"})

# Where to write, leaf, subleaf: in rdi, rsi and rdx, on Windows in rcx, rdx and r8.
CODE = {
    "posix": ("53 89f0 89d1 0fa2 8907 895f04 894f08 89570c 5b c3", "31c9 0f01d0 8907 895704 c3"),
    "windows": (
        "53 4989c9 89d0 4489c1 0fa2 418901 41895904 41894908 4189510c 5b c3",
        "4989c8 31c9 0f01d0 418900 41895004 c3",
    ),
}


def is_x86() -> bool:
    """Whether this processor is asked by CPUID."""
    return platform.machine().lower() in ("x86_64", "amd64")


@cache
def host_features() -> frozenset[str]:
    """The features of the processor this process runs on."""
    if is_x86():
        return decoded(cpuid(), lambda: _saved_registers()()[0])
    if platform.machine().lower() in ("aarch64", "arm64"):
        return system().arm_features() & set(ARM_FEATURES)
    return frozenset()


@cache
def processor_model() -> tuple[str, int]:
    """The name of this processor, and the number of its family, model and stepping; 0 where it
    has none."""
    if not is_x86():
        return system().processor_name() or platform.processor(), 0
    ask, text = cpuid(), b""
    if ask(0x80000000, 0)[0] >= 0x80000004:
        words = [word for leaf in range(0x80000002, 0x80000005) for word in ask(leaf, 0)]
        text = b"".join([word.to_bytes(4, "little") for word in words])
    return text.rstrip(b"\0").decode(errors="replace").strip(), ask(1, 0)[0]


@cache
def cache_sizes() -> dict[int, int]:
    """Bytes of data caches by level, of those that are known."""
    found = cpuid_caches(cpuid()) if is_x86() else {}
    for level in (1, 2, 3):
        size = found.get(level) or system().cache_bytes(level)
        if size:
            found[level] = size
    return found


def cpuid_caches(ask: Callable[[int, int], Registers]) -> dict[int, int]:
    """Bytes of data caches by level, as CPUID describes them: AMD in a leaf of its own."""
    extended = ask(0x80000000, 0)[0]
    has_own = extended >= 0x8000001D and ask(0x80000001, 0)[2] >> 22 & 1
    leaf = 0x8000001D if has_own else 4
    if leaf == 4 and ask(0, 0)[0] < 4:
        return {}
    found: dict[int, int] = {}
    for number in range(16):
        kind, shape, sets, _ = ask(leaf, number)
        if kind & 31 == 0:
            break
        if kind & 31 != 2:  # instructions
            line, parts, ways = shape & 0xFFF, shape >> 12 & 0x3FF, shape >> 22
            found[kind >> 5 & 7] = (line + 1) * (parts + 1) * (ways + 1) * (sets + 1)
    return found


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


@cache
def cpuid() -> Callable[[int, int], Registers]:
    """CPUID: registers of a leaf and a subleaf."""
    return _Code(_code()[0], 2)


@cache
def _saved_registers() -> Callable[[], Registers]:
    return _Code(_code()[1], 0)


def _code() -> tuple[str, str]:
    return CODE["windows" if sys.platform == "win32" else "posix"]


class _Code:
    """A few bytes of machine code as a function of so many numbers, which writes four words."""

    def __init__(self, code: str, count: int) -> None:
        image = bytearray(mmap.PAGESIZE)
        raw = bytes.fromhex(code)
        image[: len(raw)] = raw
        address = system().map_code(len(image), len(image))
        system().fill_code(address, image, len(image))
        self._call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *[ctypes.c_uint32] * count)(address)

    def __call__(self, *numbers: int) -> Registers:
        words = (ctypes.c_uint32 * 4)()
        self._call(ctypes.addressof(words), *numbers)
        return tuple(words)
