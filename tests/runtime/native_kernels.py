"""Small kernels with the launcher's calling convention, for the tests of the launcher."""

from __future__ import annotations

import time
from functools import cache

import llvmlite.binding as llvm
import numpy as np
from numpy.typing import NDArray

from svod.device.cpu.elf import ObjectImage
from svod.runtime.native import RecordArray, launcher

_KERNELS = """
; 16 floats: buffer 0 = buffer 1 + 1
define void @add_one(ptr %bufs, ptr %vals, i64 %core) {
  %in.at = getelementptr ptr, ptr %bufs, i64 1
  %out = load ptr, ptr %bufs
  %in = load ptr, ptr %in.at
  %a = load <16 x float>, ptr %in, align 4
  %b = fadd <16 x float> %a, splat (float 1.0)
  store <16 x float> %b, ptr %out, align 4
  ret void
}

; buffer 0 [core] += 1: not atomic, each core must run exactly once per launch
define void @count(ptr %bufs, ptr %vals, i64 %core) {
  %out = load ptr, ptr %bufs
  %at = getelementptr i64, ptr %out, i64 %core
  %old = load i64, ptr %at
  %new = add i64 %old, 1
  store i64 %new, ptr %at
  ret void
}

; buffer 0 [core] = 3 * buffer 1 [core] + core + value 0
define void @mix(ptr %bufs, ptr %vals, i64 %core) {
  %in.at = getelementptr ptr, ptr %bufs, i64 1
  %out = load ptr, ptr %bufs
  %in = load ptr, ptr %in.at
  %from = getelementptr i64, ptr %in, i64 %core
  %to = getelementptr i64, ptr %out, i64 %core
  %v = load i64, ptr %from
  %w = load i64, ptr %vals
  %a = mul i64 %v, 3
  %b = add i64 %a, %core
  %c = add i64 %b, %w
  store i64 %c, ptr %to
  ret void
}

; value 0 turns of a slow loop, then buffer 0 [core] += 1
define void @busy(ptr %bufs, ptr %vals, i64 %core) {
entry:
  %turns = load i64, ptr %vals
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
  %x = phi i64 [%core, %entry], [%y, %loop]
  %m = mul i64 %x, 6364136223846793005
  %y = add i64 %m, 1442695040888963407
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, %turns
  br i1 %more, label %loop, label %done
done:
  %zero = icmp eq i64 %y, 0
  %one = select i1 %zero, i64 2, i64 1
  %out = load ptr, ptr %bufs
  %at = getelementptr i64, ptr %out, i64 %core
  %old = load i64, ptr %at
  %new = add i64 %old, %one
  store i64 %new, ptr %at
  ret void
}

; buffer 0 [core] = a product below the normal numbers
define void @subnormal(ptr %bufs, ptr %vals, i64 %core) {
  %out = load ptr, ptr %bufs
  %at = getelementptr float, ptr %out, i64 %core
  %x = load volatile float, ptr %at
  %y = fmul float %x, 0x3810000000000000
  store float %y, ptr %at
  ret void
}
"""


@cache
def image() -> ObjectImage:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_triple(llvm.get_process_triple())
    machine = target.create_target_machine(opt=2, reloc="pic", codemodel="small")
    return ObjectImage(bytes(machine.emit_object(llvm.parse_assembly(_KERNELS))))


def kernel(name: str) -> int:
    return image().symbol(name)


def zeros(count: int) -> NDArray[np.int64]:
    return np.zeros(count, dtype=np.int64)


@cache
def turns_in(microseconds: float) -> int:
    """How many turns of `busy` take that long on an idle processor."""
    out, best = zeros(1), 1e9
    records = RecordArray()
    records.append(kernel("busy"), [out.ctypes.data], [1_000_000])
    for _ in range(5):
        start = time.perf_counter()
        launcher().run(records)
        best = min(best, time.perf_counter() - start)
    return max(1, int(microseconds / best))
