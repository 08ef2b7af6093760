"""The instructions behind DOT: one table of what LLVM calls them."""

from __future__ import annotations

from dataclasses import dataclass

from svod.base.errors import CompileError
from svod.ir.node import UOp

_X86 = {
    "bf16": ("llvm.x86.avx512bf16.dpbf16ps", "bfloat", 2),
    "i16": ("llvm.x86.avx512.vpdpwssd", "i16", 2),
    "u8s8": ("llvm.x86.avx512.vpdpbusd", "i8", 4),
}
# Of aarch64: both with a sign, none, or one of each; a register has four words.
_ARM = {
    "s8s8": "llvm.aarch64.neon.sdot.v4i32.v16i8",
    "u8u8": "llvm.aarch64.neon.udot.v4i32.v16i8",
    "u8s8": "llvm.aarch64.neon.usdot.v4i32.v16i8",
}
_REGISTERS = (4, 8, 16)  # words of a register


@dataclass(frozen=True, slots=True)
class DotForm:
    """How a DOT is written."""

    name: str  # of the intrinsic, which takes (sum, left, right)
    words: str  # type of left and right
    swaps: bool  # left and right change places


def dot_form(node: UOp, is_arm: bool = False) -> DotForm:
    """The intrinsic for a DOT; CompileError where there is none for its lanes."""
    lanes, kind = node.dtype.lanes, node.arg
    swaps = kind == "s8u8"
    kind = "u8s8" if swaps else kind
    if is_arm and lanes == 4 and kind in _ARM:
        return DotForm(_ARM[kind], "<16 x i8>", swaps)
    if is_arm or lanes not in _REGISTERS or kind not in _X86:
        raise CompileError(f"no instruction for DOT {node.arg!r} on {lanes} lanes")
    name, element, parts = _X86[kind]
    return DotForm(f"{name}.{lanes * 32}", f"<{lanes * parts} x {element}>", swaps)
