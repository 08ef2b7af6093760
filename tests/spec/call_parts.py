"""Small graphs of kernel calls, made by hand."""

from __future__ import annotations

from typing import Any

import numpy as np

from svod.device.buffer import Buffer
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import AxisKind, ParamArg, RangeArg
from svod.ir.node import UOp, const, make, variable

COUNT = 4


def memory(size: int = COUNT, device: str = "CPU") -> UOp:
    """A new BUFFER node."""
    return B.new_buffer(size, dt.float32, device)


def held(node: UOp, *values: float, device: str | None = None) -> Buffer:
    """Memory with these numbers for a BUFFER node."""
    found = Buffer.new(device or node.src[-1].arg, node.arg.size, dt.float32)
    found.copyin(np.array(values, np.float32))
    return found


def param(slot: int, size: int = COUNT) -> UOp:
    return make(O.PARAM, dt.float32, (), ParamArg(slot, (size,)))


def body(value: UOp, slot: int = 0) -> UOp:
    """A kernel that stores a value into an argument."""
    return make(O.SINK, dt.void, (make(O.STORE, dt.void, (param(slot), value)),))


def plus(number: float, slot: int = 1) -> UOp:
    """A kernel body: argument 0 = argument `slot` + number."""
    return body(B.binary(O.ADD, param(slot), const(number, dt.float32)))


def plus_variable(name: str = "i", lo: int = 0, hi: int = 63, slot: int = 1) -> UOp:
    """A kernel body: argument 0 = argument `slot` + a variable."""
    value = make(O.CAST, dt.float32, (variable(name, lo, hi),))
    return body(B.binary(O.ADD, param(slot), value))


def call(kernel: UOp, *arguments: UOp) -> UOp:
    return make(O.CALL, dt.void, (kernel, *arguments))


def after(value: UOp, *effects: UOp) -> UOp:
    return make(O.AFTER, value.dtype, (value, *effects))


def sink(*roots: UOp) -> UOp:
    return make(O.SINK, dt.void, roots)


def loop(size: UOp | int, number: int = 0) -> UOp:
    """A schedule loop counter."""
    count = const(size, dt.index) if isinstance(size, int) else size
    return make(O.RANGE, dt.index, (count,), RangeArg(number, AxisKind.OUTER))


def bind(name: str, value: UOp | int, lo: int = 0, hi: int = 63) -> UOp:
    found = const(value, dt.index) if isinstance(value, int) else value
    return make(O.BIND, dt.index, (variable(name, lo, hi), found))


def end(effect: UOp, *ranges: UOp) -> UOp:
    return make(O.END, dt.void, (effect, *ranges))


def stack(*shards: UOp) -> UOp:
    return make(O.MSTACK, shards[0].dtype, shards)


def select(shards: UOp, number: int) -> UOp:
    return make(O.MSELECT, shards.dtype, (shards,), number)


def numbers(found: Any) -> list[float]:
    return [float(n) for n in found.copyout()]
