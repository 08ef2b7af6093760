"""Values as text: one that would double in length at each step is cut."""

from __future__ import annotations

from svod.codegen.render.expression import expression
from svod.ir import ops as O
from svod.ir.node import make, variable


def test_a_value_that_is_used_twice_at_each_step_is_cut() -> None:
    value = variable("n", 0, 9)
    for _ in range(60):
        value = make(O.MAX, value.dtype, (value, make(O.ADD, value.dtype, (value, value))))
    text = expression(value, {})
    assert "..." in text and len(text) < 100_000


def test_a_short_value_is_whole() -> None:
    value = variable("n", 0, 9)
    assert expression(make(O.MAX, value.dtype, (value, value)), {}) == "max(n, n)"
