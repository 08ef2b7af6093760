"""The most float32 operations one core does: independent FMA chains that never touch memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from svod.device.cpu.compiler import emit_object, load_image
from svod.device.cpu.host import host_machine

TURNS = 100_000  # of the loop: about 1.5 ms


class Peak:
    """A kernel that does `flops` operations per call."""

    def __init__(self) -> None:
        machine = host_machine()
        lanes = machine.lanes(4)
        chains = 16 if machine.registers >= 32 else 12  # more would spill with 16 registers
        self.flops = 2 * lanes * chains * TURNS
        self._image = load_image(emit_object(chains_ir(lanes, chains)))
        self._values = np.full(lanes * chains, 0.5, np.float32)
        signature = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p)
        self._call: Callable[[int, int], None] = signature(self._image.symbol("fma_chains"))

    def __call__(self) -> None:
        self._call(TURNS, self._values.ctypes.data)


def chains_ir(lanes: int, chains: int) -> str:
    """x = x * m + m, many times, for `chains` vectors; every x goes to 1 when m is a half."""
    vector = f"<{lanes} x float>"
    numbers = range(chains)
    function = f"@llvm.fma.v{lanes}f32"
    return "\n".join(
        [
            f"declare {vector} {function}({vector}, {vector}, {vector})",
            "define void @fma_chains(i64 %turns, ptr %values) {",
            "entry:",
            f"  %m = load {vector}, ptr %values, align 4",
            "  br label %loop",
            "loop:",
            "  %turn = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *[f"  %x{i} = phi {vector} [ %m, %entry ], [ %y{i}, %loop ]" for i in numbers],
            *[
                f"  %y{i} = call {vector} {function}({vector} %x{i}, {vector} %m, {vector} %m)"
                for i in numbers
            ],
            "  %next = add i64 %turn, 1",
            "  %more = icmp slt i64 %next, %turns",
            "  br i1 %more, label %loop, label %exit",
            "exit:",
            *[f"  %p{i} = getelementptr {vector}, ptr %values, i64 {i}" for i in numbers],
            *[f"  store {vector} %y{i}, ptr %p{i}, align 4" for i in numbers],
            "  ret void",
            "}",
            "",
        ]
    )
