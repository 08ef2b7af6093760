"""Kernels as the loop choices for GPUs leave them, run by NumPy: all threads of all blocks at once.

In: a kernel with SPECIAL indices and the arrays of its parameters. Every place that a gate leaves
open must be inside its array, and every place of the result is written exactly once.
"""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any

import numpy as np

from svod.dtype.casts import cast_array
from svod.dtype.convert import to_numpy
from svod.ir import ops as O
from svod.ir.evaluate import apply_alu
from svod.ir.node import UOp

Array = np.ndarray[Any, Any]
ORDER = ("g2", "g1", "g0", "l2", "l1", "l0")


def run_threads(kernel: UOp, memory: dict[int, Array]) -> None:
    """Run the kernel; parameter 0 is the result."""
    threads = _Threads(kernel, memory)
    written = np.zeros(memory[0].size, np.int64)
    for end in kernel.src:
        store, *loops = end.src
        for values in product(*[range(r.vmax + 1) for r in loops]):
            threads.store(store, dict(zip(loops, values, strict=True)), written)
    assert (written == 1).all(), f"{(written != 1).sum()} places are not written once"


class _Threads:
    def __init__(self, kernel: UOp, memory: dict[int, Array]) -> None:
        self.memory = {slot: m.reshape(-1) for slot, m in memory.items()}
        specials = {n.arg: n.vmax + 1 for n in kernel.toposort() if n.op == O.SPECIAL}
        sizes = [specials.get(name, 1) for name in ORDER]
        self.blocks, self.threads = prod(sizes[:3]), prod(sizes[3:])
        self.width = sizes[-1]
        places = np.indices(sizes).reshape(6, self.blocks, self.threads)
        self.places = dict(zip(ORDER, places, strict=True))
        self.known: dict[tuple[Any, ...], Array] = {}

    def store(self, store: UOp, at: dict[UOp, int], written: Array) -> None:
        index, value = store.src
        places, gate = self.place(index, at)
        found = np.broadcast_to(self.value(value, at), places.shape)
        self.memory[index.src[0].arg.slot][places[gate]] = found[gate]
        np.add.at(written, places[gate], 1)

    def place(self, index: UOp, at: dict[UOp, int]) -> tuple[Array, Array]:
        shape = (self.blocks, self.threads)
        places = np.broadcast_to(self.value(index.src[1], at), shape)
        gate = np.ones(shape, bool)
        if len(index.src) > 2:
            gate = np.broadcast_to(self.value(index.src[2], at), shape)
        size = self.memory[index.src[0].arg.slot].size
        assert ((places >= 0) & (places < size))[gate].all(), f"outside of {size} elements"
        return places, gate

    def value(self, node: UOp, at: dict[UOp, int]) -> Array:
        """A node's value in every thread, or one for all."""
        loops = sorted([r for r in node.ranges if r in at], key=lambda r: r.arg.id)
        key = (node, *[(r, at[r]) for r in loops])
        found = self.known.get(key)
        if found is None:
            found = self.known[key] = self.compute(node, at)
        return found

    def compute(self, node: UOp, at: dict[UOp, int]) -> Array:
        op = node.op
        if op == O.CONST:
            return np.array(node.arg, to_numpy(node.dtype))
        if op == O.RANGE:
            return np.array(at[node], np.int64)
        if op == O.SPECIAL:
            return self.places[node.arg]
        if op == O.LOAD:
            places, gate = self.place(node.src[0], at)
            found = self.memory[node.src[0].src[0].arg.slot][np.where(gate, places, 0)]
            return np.where(gate, found, np.zeros((), found.dtype))
        if op == O.REDUCE:
            return self.reduced(node, at)
        args = [self.value(s, at) for s in node.src]
        if op == O.BARRIER:
            return self.exchanged(np.broadcast_to(args[0], (self.blocks, self.threads)), node.arg)
        if op == O.CAST:
            return cast_array(args[0], node.dtype)
        return apply_alu(op, node.dtype, args)

    def reduced(self, node: UOp, at: dict[UOp, int]) -> Array:
        value, *loops = node.src
        found: Array | None = None
        for values in product(*[range(r.vmax + 1) for r in loops]):
            one = self.value(value, at | dict(zip(loops, values, strict=True)))
            found = one if found is None else apply_alu(node.arg, node.dtype, [found, one])
        assert found is not None
        return found

    def exchanged(self, value: Array, arg: tuple[Any, ...]) -> Array:
        number = np.arange(self.threads)
        if arg[0] == "shuffle":
            return value[:, number ^ arg[1]]
        kind, slot, _, width = arg
        assert width == self.width
        if kind == "warp":
            return value[:, np.full_like(number, slot * 32)]
        return value[:, slot * width + number % width]
