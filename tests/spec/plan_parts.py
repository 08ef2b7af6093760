"""Small parts for tests of execution plans: fake programs on real buffers, and native kernels."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

from svod.device.buffer import Buffer
from svod.device.launch import LaunchSize, default_size
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, make, variable
from svod.runtime import (
    CompiledKernel,
    ExecutionPlan,
    ExecutionPlanBuilder,
    PreparedKernel,
    PreparedOp,
)


def body(*variables: tuple[str, int, int]) -> UOp:
    """A kernel body that mentions these variables (name, lowest, highest)."""
    return make(O.SINK, dt.void, tuple(variable(*found) for found in variables))


def floats(address: int, count: int = 4) -> np.ndarray:
    """The numbers at an address, sharing the memory."""
    return np.frombuffer((ctypes.c_float * count).from_address(address), np.float32)


def buffer(*values: float) -> Buffer:
    """A buffer with these numbers."""
    found = Buffer.new("CPU", len(values), dt.float32)
    found.copyin(np.array(values, np.float32))
    return found


def empty(count: int = 4, device: str = "CPU") -> Buffer:
    return Buffer.new(device, count, dt.float32)


class Calls:
    """A program that notes how it was called, and does something to its buffers."""

    def __init__(self, work: Callable[..., object] = lambda *args: None) -> None:
        self.work = work
        self.seen: list[tuple[list[int], list[int], Any, Any]] = []
        self.lock = threading.Lock()

    def __call__(self, buffers: Any, vals: Any, global_size: Any, local_size: Any) -> None:
        with self.lock:
            self.seen.append((list(buffers), list(vals), global_size, local_size))
        self.work(*buffers)


def add(left: int, right: int, out: int) -> None:
    floats(out)[:] = floats(left) + floats(right)


def double(source: int, out: int) -> None:
    floats(out)[:] = floats(source) * 2


def compiled(
    program: Callable[..., object] = lambda *args: None,
    *,
    safe: bool = False,
    var_names: Sequence[str] = (),
    global_size: LaunchSize | None = None,
    **facts: Any,
) -> CompiledKernel:
    """A compiled kernel around a Python callable that takes the four arguments of a program."""
    return CompiledKernel(
        program,
        "CPU",
        facts.pop("source", "define void @kernel"),
        facts.pop("entry_point", "kernel"),
        var_names=tuple(var_names),
        host_parallel_safe=safe,
        global_size=global_size or default_size(),
        **facts,
    )


def launch(
    op_id: int,
    kernel: CompiledKernel,
    places: Sequence[int],
    outputs: Sequence[int] | None = None,
    *,
    after: Sequence[int] = (),
    **facts: Any,
) -> PreparedKernel:
    """A launch on places of the buffer table; the last one is written where nothing is said."""
    return PreparedKernel(
        op_id,
        facts.pop("ast", body()),
        kernel,
        facts.pop("device", "CPU"),
        list(places),
        [len(places) - 1] if outputs is None else list(outputs),
        dependencies=list(after),
        **facts,
    )


def plan_of(
    buffers: Sequence[Buffer],
    ops: Sequence[PreparedOp],
    outputs: Sequence[int] | None = None,
    instance: Sequence[Sequence[int]] | None = None,
) -> ExecutionPlan:
    """A plan over buffers with graph ids 1000, 1001, ...; the last buffer is the output."""
    builder = ExecutionPlanBuilder("CPU")
    for number, found in enumerate(buffers):
        builder.add_buffer(1000 + number, found)
    for number, op in enumerate(ops):
        builder.add_op_with_instance_dependencies(op, instance[number] if instance else ())
    if buffers:
        builder.set_output_buffers([len(buffers) - 1] if outputs is None else list(outputs))
    return builder.build()


_NATIVE_IR = """
define void @add(ptr %buffers, ptr %values, i64 %core) {
  %p0 = load ptr, ptr %buffers
  %q1 = getelementptr ptr, ptr %buffers, i64 1
  %p1 = load ptr, ptr %q1
  %q2 = getelementptr ptr, ptr %buffers, i64 2
  %p2 = load ptr, ptr %q2
  %a = load <4 x float>, ptr %p0, align 4
  %b = load <4 x float>, ptr %p1, align 4
  %c = fadd <4 x float> %a, %b
  store <4 x float> %c, ptr %p2, align 4
  ret void
}
define void @core(ptr %buffers, ptr %values, i64 %core) {
  %p = load ptr, ptr %buffers
  %q = getelementptr float, ptr %p, i64 %core
  %n = load i64, ptr %values
  %f = sitofp i64 %n to float
  store float %f, ptr %q, align 4
  ret void
}
define void @spin(ptr %buffers, ptr %values, i64 %core) {
entry:
  %p = load ptr, ptr %buffers
  %q = getelementptr ptr, ptr %buffers, i64 1
  %o = load ptr, ptr %q
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %x = load volatile float, ptr %p, align 4
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, 20000
  br i1 %more, label %loop, label %done
done:
  store float %x, ptr %o, align 4
  ret void
}
"""


@cache
def native_functions() -> dict[str, int]:
    """Addresses of machine code with the signature of kernels.

    add: buffer 2 = buffer 0 + buffer 1, four numbers. core: element `core` of buffer 0 = value 0.
    spin: some ten microseconds, then element 0 of buffer 1 = element 0 of buffer 0.
    """
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(_NATIVE_IR), machine)
    engine.finalize_object()
    _engines.append(engine)
    return {name: engine.get_function_address(name) for name in ("add", "core", "spin")}


_engines: list[object] = []  # machine code lives as long as its engine


def native(name: str, **facts: Any) -> CompiledKernel:
    """A compiled kernel with an address; its program must never be called."""

    def refuse(*args: object) -> None:
        raise AssertionError("a native plan called a program from Python")

    return compiled(refuse, safe=True, address=native_functions()[name], **facts)
