"""The most float32 operations one core does: independent FMA chains that never touch memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np

from svod.device.cpu.compiler import emit_object, load_image
from svod.device.cpu.host import host_machine
from svod.runtime.roofline import chains_ir

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
