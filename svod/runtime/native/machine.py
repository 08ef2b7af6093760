"""What the launcher must know of a processor and an operating system: one table, nothing else.

In: the names Python gives the system and the processor. Out: a `Machine`. A machine without
`calls` gets a launcher that runs everything on the calling thread.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class SystemCalls:
    """Numbers of the Linux system calls the pool makes."""

    futex: int
    set_affinity: int
    get_affinity: int
    yield_processor: int


@dataclass(frozen=True, slots=True)
class Machine:
    """LLVM IR that differs between processors, and the system calls where threads are used."""

    name: str
    declarations: str
    pause: str  # a hint to the processor, inside a spin loop
    ticks: str  # the right-hand side that reads a counter which runs at a constant rate
    read_float_mode: str  # the body of `i64 @read_float_mode()`
    write_float_mode: str  # the body of `void @write_float_mode(i64 %mode)`
    float_mode: int  # round to nearest, no traps, subnormal numbers kept
    float_mode_mask: int  # the bits that matter: not the sticky exception flags
    calls: SystemCalls | None = None


_X86_64 = Machine(
    name="x86_64",
    declarations="""\
declare void @llvm.x86.sse2.pause()
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)
declare i64 @llvm.readcyclecounter()""",
    pause="call void @llvm.x86.sse2.pause()",
    ticks="call i64 @llvm.readcyclecounter()",
    read_float_mode="""\
  %place = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %place)
  %word = load i32, ptr %place, align 4
  %mode = zext i32 %word to i64
  ret i64 %mode""",
    write_float_mode="""\
  %place = alloca i32, align 4
  %word = trunc i64 %mode to i32
  store i32 %word, ptr %place, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %place)
  ret void""",
    float_mode=0x1F80,
    float_mode_mask=0xFFC0,
)

_AARCH64 = Machine(
    name="aarch64",
    declarations="""\
declare void @llvm.aarch64.hint(i32)
declare i64 @llvm.aarch64.get.fpcr()
declare void @llvm.aarch64.set.fpcr(i64)
declare i64 @llvm.read_volatile_register.i64(metadata)
!0 = !{!"cntvct_el0"}""",
    pause="call void @llvm.aarch64.hint(i32 1)",
    ticks="call i64 @llvm.read_volatile_register.i64(metadata !0)",
    read_float_mode="""\
  %mode = call i64 @llvm.aarch64.get.fpcr()
  ret i64 %mode""",
    write_float_mode="""\
  call void @llvm.aarch64.set.fpcr(i64 %mode)
  ret void""",
    float_mode=0,
    float_mode_mask=0xFFFFFFFF,
)

_PROCESSORS = {"x86_64": _X86_64, "amd64": _X86_64, "aarch64": _AARCH64, "arm64": _AARCH64}

_CALLS = {
    "x86_64": SystemCalls(futex=202, set_affinity=203, get_affinity=204, yield_processor=24),
    "aarch64": SystemCalls(futex=98, set_affinity=122, get_affinity=123, yield_processor=124),
}


def machine_of(system: str = "", processor: str = "") -> Machine | None:
    """The machine with these names, by default this one; None for a processor not in the table."""
    found = _PROCESSORS.get((processor or platform.machine()).lower())
    if found is None or not (system or sys.platform).startswith("linux"):
        return found
    return replace(found, calls=_CALLS[found.name])
