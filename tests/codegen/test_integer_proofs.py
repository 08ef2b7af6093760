"""Integer division, remainder and shifts as machines do them: z3 proves them on words of 8 bits.

What is proven is the graph that lowering makes for scalars, against the meaning of the op; and that
no machine division in it is by zero or of the smallest number by -1, which trap.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import z3

from svod.codegen import math_bits
from svod.codegen.formula import TRUNCATE
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.node import UOp, const, make
from tests.ir.paths import Refuted
from tests.ir.value_proofs import arithmetic, bits, param, refute

LOWERED: dict[int, Callable[[UOp, UOp], UOp | None]] = {
    O.IDIV: math_bits.floor_divide,
    O.MOD: math_bits.floor_remainder,
    O.SHL: math_bits.shift_left,
    O.SHR: math_bits.shift_right,
}
WORDS = (dt.int8, dt.uint8)


def prove(op: int, dtype: DType, y: UOp, lowered: Callable[[UOp, UOp], UOp | None]) -> None:
    x = param(0, dtype)
    graph = lowered(x, y)
    if graph is None:  # the operation as it is
        return
    name = f"{O.NAMES[op]} {dtype} {y!r}"
    wanted = arithmetic(op, [bits(x), bits(y)], dtype.kind == "i")
    refute([], bits(graph), wanted, name)
    for node in graph.toposort():
        if node.op in (O.IDIV, O.MOD) and node.arg == TRUNCATE:
            a, b = bits(node.src[0]), bits(node.src[1])
            least = z3.BitVecVal(1 << (a.size() - 1), a.size())
            traps = z3.Or(b == 0, z3.And(node.dtype.kind == "i", a == least, b == -1))
            refute([], traps, z3.BoolVal(False), f"{name}: a division that traps")


@pytest.mark.parametrize("dtype", WORDS, ids=str)
@pytest.mark.parametrize("op", LOWERED, ids=lambda op: O.NAMES[op])
def test_an_operation_on_words(op: int, dtype: DType) -> None:
    prove(op, dtype, param(1, dtype), LOWERED[op])


@pytest.mark.parametrize("dtype", WORDS, ids=str)
@pytest.mark.parametrize("op", LOWERED, ids=lambda op: O.NAMES[op])
def test_an_operation_by_every_constant(op: int, dtype: DType) -> None:
    low, high = dt.integer_limits(dtype)
    for value in range(low, high + 1):
        prove(op, dtype, const(value, dtype), LOWERED[op])


def test_a_wrong_lowering_is_refuted() -> None:
    def truncated(x: UOp, y: UOp) -> UOp:
        return make(O.IDIV, x.dtype, (x, y), TRUNCATE)

    with pytest.raises(Refuted):
        prove(O.IDIV, dt.int8, const(3, dt.int8), truncated)
    with pytest.raises(Refuted, match="traps"):
        prove(O.IDIV, dt.uint8, param(1, dt.uint8), lambda x, y: guarded(x, y))


def guarded(x: UOp, y: UOp) -> UOp:
    """Right in its value, but the machine divides by zero before the choice is made."""
    zero = make(O.EQ, dt.bool_, (y, const(0, y.dtype)))
    quotient = make(O.IDIV, x.dtype, (x, y), TRUNCATE)
    return make(O.WHERE, x.dtype, (zero, const(0, x.dtype), quotient))
