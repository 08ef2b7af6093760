"""Bounds of sums of sizes hold for every value of the variables, and are close enough."""

from __future__ import annotations

import random

import svod
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir import symbolic as S
from svod.ir.node import UOp, const

A, B = svod.Variable("a", 3, 9), svod.Variable("b", 1, 6)


def value(node: UOp, a: int, b: int) -> int:
    """What a size is for values of the variables."""
    if node is A or node is B:
        return a if node is A else b
    if node.op == O.CONST:
        return int(node.arg)
    x, y = [value(s, a, b) for s in node.src]
    operation = {
        O.ADD: lambda: x + y, O.MUL: lambda: x * y, O.IDIV: lambda: x // y, O.MOD: lambda: x % y,
        O.MAX: lambda: max(x, y), O.MIN: lambda: min(x, y),
    }  # fmt: skip
    return int(operation[node.op]())


def drawn(chance: random.Random, depth: int) -> UOp:
    """A random size over both variables."""
    if not depth:
        return chance.choice([A, B, const(chance.randint(0, 5), dt.index)])
    x, y = drawn(chance, depth - 1), drawn(chance, depth - 1)
    step = chance.randint(1, 4)
    kind = chance.randint(0, 4)
    if kind == 0:
        return S.add(x, y)
    if kind == 1:
        return S.sub(x, y)
    if kind == 2:
        return S.idiv(x, step)
    if kind == 3:
        return S.mul(x, step)
    return S.minimum(x, y)


def test_bounds_hold_for_every_value() -> None:
    chance = random.Random(0)
    for _ in range(600):
        size = drawn(chance, 3)
        found = [value(size, a, b) for a in range(3, 10) for b in range(1, 7)]
        assert size.vmin <= min(found) and max(found) <= size.vmax, size


def test_a_half_is_never_above_the_whole() -> None:
    half = S.idiv(A, 2)
    assert S.sub(half, A).vmax <= 0
