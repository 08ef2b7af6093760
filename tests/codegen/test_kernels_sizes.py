"""Kernels with run-time sizes: any size up to the largest, and nothing written beyond it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from svod.base.knobs import knobs
from svod.codegen.pipeline import generate
from svod.codegen.targets.cpu import cpu_target
from svod.device.cpu.compiler import CpuCompiler, CpuProgram, load_program, spec_of
from svod.device.cpu.host import host_machine
from svod.device.spec import ProgramSpec
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import ParamArg
from svod.ir.build import view_as
from svod.ir.node import UOp, const, largest, make, variable
from svod.optimize import heuristics
from svod.optimize.machine import Machine

Shape = tuple[Any, ...]
Case = tuple[UOp, list[Shape], Callable[..., np.ndarray]]

MOST = 70
n = variable("n", 1, MOST)
ONE = const(1.0, dt.float32)
UNTOUCHED = np.float32(-99)


def most(shape: Shape) -> tuple[int, ...]:
    return tuple([largest(s) for s in shape])


def at(shape: Shape, value: int) -> tuple[slice, ...]:
    """The part of the memory that exists when n has this value."""
    sizes = [value if s is n else s for s in shape]
    return tuple([slice(0, s) for s in sizes])


def param(slot: int, *shape: Any) -> UOp:
    memory = make(O.PARAM, dt.float32, (), ParamArg(slot, (prod(most(shape)),)))
    return view_as(memory, shape)


def matmul(a: UOp, b: UOp) -> UOp:
    rows, depth = a.shape
    columns = b.shape[1]
    full = (rows, columns, depth)
    x = B.expand(B.reshape(a, (rows, 1, depth)), full)
    y = B.expand(B.reshape(B.permute(b, (1, 0)), (1, columns, depth)), full)
    return B.reshape(B.reduce(B.binary(O.MUL, x, y), O.ADD, (2,)), (rows, columns))


def softmax(x: UOp) -> UOp:
    grown = B.unary(O.EXP, B.binary(O.SUB, x, B.expand(B.reduce(x, O.MAX, (1,)), x.shape)))
    return B.binary(O.DIV, grown, B.expand(B.reduce(grown, O.ADD, (1,)), x.shape))


def softmax_array(a: np.ndarray) -> np.ndarray:
    grown = np.exp(a - a.max(1, keepdims=True))
    return np.asarray(grown / grown.sum(1, keepdims=True))


def product(a: Shape, b: Shape) -> Case:
    return matmul(param(1, *a), param(2, *b)), [a, b], lambda x, y: x @ y


def folded(shape: Shape, op: int, axis: int) -> Case:
    value = B.reduce(param(1, *shape), op, (axis,))
    fold = {O.ADD: np.sum, O.MAX: np.max}[op]
    return value, [shape], lambda a: fold(a, axis, keepdims=True)


CASES: dict[str, Callable[[], Case]] = {
    "rows": lambda: (B.binary(O.ADD, param(1, n, 6), ONE), [(n, 6)], lambda a: a + 1),
    "columns": lambda: (B.binary(O.ADD, param(1, 6, n), ONE), [(6, n)], lambda a: a + 1),
    "turned": lambda: (B.permute(param(1, 6, n), (1, 0)), [(6, n)], lambda a: a.T),
    "sum along": lambda: folded((6, n), O.ADD, 1),
    "sum across": lambda: folded((6, n), O.ADD, 0),
    "sum down": lambda: folded((n, 33), O.ADD, 0),
    "max of rows": lambda: folded((n, 33), O.MAX, 1),
    "border": lambda: (
        B.pad(param(1, 6, n), ((1, 2), (0, 0))),
        [(6, n)],
        lambda a: np.pad(a, ((1, 2), (0, 0))),
    ),
    "softmax": lambda: (softmax(param(1, 5, n)), [(5, n)], softmax_array),
    "product, rows": lambda: product((n, 33), (33, 40)),
    "product, columns": lambda: product((20, 33), (33, n)),
    "product, depth": lambda: product((20, n), (n, 40)),
    "product, both": lambda: product((n, n), (n, 8)),
}
MACHINES = {
    "plain": {},
    "default": {},
    "threads": {"cores": 3},
    "narrow": {"vector_bytes": 16, "cores": 2},
    "scalar": {"vector_bytes": 0, "cores": 2},
}  # fmt: skip


def compiled(value: UOp, machine: Machine, is_plain: bool) -> tuple[ProgramSpec, CpuProgram]:
    memory = make(O.PARAM, value.dtype, (), ParamArg(0, most(value.shape)))
    store = make(O.STORE, dt.void, (view_as(memory, value.shape), value))
    with knobs.scope(OPTIMIZE=not is_plain):
        spec = spec_of(generate(make(O.SINK, dt.void, (store,)), cpu_target(machine)))
    return spec, load_program(CpuCompiler().compile(spec))


def aligned(array: np.ndarray) -> np.ndarray:
    memory = np.zeros(array.size + 16, np.float32)
    start = (-memory.ctypes.data // 4) % 16
    found = memory[start : start + array.size].reshape(array.shape)
    found[...] = array
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("way", MACHINES)
def test_every_size_is_right(name: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heuristics, "THREAD_WORK", 10.0)
    value, shapes, meaning = CASES[name]()
    machine = replace(host_machine(), **MACHINES[way])
    spec, program = compiled(value, machine, way == "plain")
    rng = np.random.default_rng(0)
    for size in (1, 2, 3, 15, 16, 17, 33, 64, 69, MOST):
        arrays = [rng.integers(-4, 5, most(s)).astype(np.float32) for s in shapes]
        buffers = [aligned(np.full(most(value.shape), UNTOUCHED)), *map(aligned, arrays)]
        addresses = [ctypes.c_void_p(b.ctypes.data).value or 0 for b in buffers]
        program(addresses, [size] * len(spec.vars), (spec.global_size[0].arg, 1, 1))
        want = np.full(most(value.shape), UNTOUCHED)
        parts = [a[at(s, size)] for a, s in zip(arrays, shapes, strict=True)]
        want[at(value.shape, size)] = meaning(*parts)
        np.testing.assert_allclose(buffers[0], want, rtol=1e-5, atol=1e-6, err_msg=f"n = {size}")
