"""Helpers that code generation calls where a processor lacks an instruction, as LLVM IR.

Processes find them in the compiler's own library; an exported object brings them along, since a C
compiler of another age may not have them. They give the bits that the library gives.
"""

from __future__ import annotations

from svod.device.cpu.targets import Target

_HALVES = """
define internal float @__extendhfsf2(half %given) {
  %bits.half = bitcast half %given to i16
  %bits = zext i16 %bits.half to i32
  %sign.low = and i32 %bits, 32768
  %sign = shl i32 %sign.low, 16
  %size = and i32 %bits, 32767
  %moved = shl i32 %size, 13
  %scaled = bitcast i32 %moved to float
  %finite.float = fmul float %scaled, 0x46F0000000000000
  %finite = bitcast float %finite.float to i32
  %no.number = icmp ugt i32 %size, 31744
  %quiet = select i1 %no.number, i32 4194304, i32 0
  %infinite = or i32 %moved, 2139095040
  %special = or i32 %infinite, %quiet
  %is.special = icmp uge i32 %size, 31744
  %found = select i1 %is.special, i32 %special, i32 %finite
  %signed = or i32 %found, %sign
  %result = bitcast i32 %signed to float
  ret float %result
}

define internal half @__truncsfhf2(float %given) {
  %bits = bitcast float %given to i32
  %sign.high = lshr i32 %bits, 16
  %sign = and i32 %sign.high, 32768
  %size = and i32 %bits, 2147483647
  %magnitude = bitcast i32 %size to float
  %rounded.float = fadd float %magnitude, 5.000000e-01
  %rounded = bitcast float %rounded.float to i32
  %small = sub i32 %rounded, 1056964608
  %rebased = sub i32 %size, 939524096
  %odd.bit = lshr i32 %rebased, 13
  %odd = and i32 %odd.bit, 1
  %half.up = add i32 %rebased, 4095
  %even = add i32 %half.up, %odd
  %usual = lshr i32 %even, 13
  %payload.moved = lshr i32 %size, 13
  %payload = and i32 %payload.moved, 1023
  %no.number = or i32 %payload, 32256
  %is.small = icmp ult i32 %size, 947912704
  %is.large = icmp uge i32 %size, 1199570944
  %is.none = icmp ugt i32 %size, 2139095040
  %one = select i1 %is.small, i32 %small, i32 %usual
  %two = select i1 %is.large, i32 31744, i32 %one
  %three = select i1 %is.none, i32 %no.number, i32 %two
  %all = or i32 %three, %sign
  %word = trunc i32 %all to i16
  %result = bitcast i16 %word to half
  ret half %result
}
"""


def helpers_ir(wanted: Target) -> str:
    """The helpers that code for a target may call: conversions of float16 without F16C."""
    features = wanted.features
    lacks = wanted.architecture == "x86_64" and features is not None and "f16c" not in features
    return _HALVES if lacks else ""
