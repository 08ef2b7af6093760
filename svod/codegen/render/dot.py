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
_REGISTERS = (4, 8, 16)  # words of a register


@dataclass(frozen=True, slots=True)
class DotForm:
    """How a DOT is written."""

    name: str  # of the intrinsic, which takes (sum, left, right)
    words: str  # type of left and right
    swaps: bool  # left and right change places


def dot_form(node: UOp) -> DotForm:
    """The intrinsic for a DOT; CompileError where there is none for its lanes."""
    lanes, kind = node.dtype.lanes, node.arg
    swaps = kind == "s8u8"
    if lanes not in _REGISTERS or (kind not in _X86 and not swaps):
        raise CompileError(f"no instruction for DOT {kind!r} on {lanes} lanes")
    name, element, parts = _X86["u8s8" if swaps else kind]
    return DotForm(f"{name}.{lanes * 32}", f"<{lanes * parts} x {element}>", swaps)
