"""Run-time sizes: ``Variable("n", 1, 4096)`` in shapes and slices, bound when a plan runs.

A tensor whose shape holds a variable is kept in memory laid out for the largest value, so one
plan serves every value between the bounds without compiling anything again.
"""

from __future__ import annotations

from operator import index as as_index
from typing import Any

from svod.base.errors import DTypeError, VariableError
from svod.ir import ops as O
from svod.ir.node import UOp, variable
from svod.ir.symbolic import value_of


def Variable(name: str, lo: int, hi: int) -> UOp:
    """A run-time integer between ``lo`` and ``hi``, both included.

    >>> x, n = svod.ones(64, 2), svod.Variable("n", 1, 64)
    >>> x[: n.bind(7)].sum(0).shape
    (2,)
    """
    if not isinstance(name, str) or not name.isidentifier():
        raise VariableError(f"a variable needs a plain name, not {name!r}")
    try:
        lo, hi = as_index(lo), as_index(hi)
    except TypeError:
        raise DTypeError(f"bounds of variable {name} must be whole numbers") from None
    if not 0 <= lo <= hi:
        raise VariableError(f"variable {name} needs 0 <= lo <= hi, got [{lo}, {hi}]")
    return variable(name, lo, hi)


def bound_value(size: UOp | int) -> int:
    """The number a size stands for, from the values its variables are bound to."""
    if not isinstance(size, UOp):
        return size
    value = value_of(size)
    if value is None:
        name = _free_variables(size)[0]
        raise VariableError(
            f"the size depends on variable {name}, which has no value here: "
            f"use {name}.bind(value) in the shape, or read the plan's outputs"
        )
    return value


def _free_variables(size: UOp) -> list[str]:
    """Variables that are used other than through BIND."""
    bound: set[UOp] = set()
    free: list[str] = []
    for node in reversed(size.toposort()):
        if node.op == O.BIND:
            bound.add(node.src[0])
    for node in size.toposort():
        if node.op != O.BIND:
            free += [s.arg.name for s in node.src if s.op == O.DEFINE_VAR]
    if size.op == O.DEFINE_VAR:
        free.append(size.arg.name)
    return free


def concrete(shape: tuple[Any, ...]) -> tuple[int, ...]:
    """A shape with the bound values of its variables."""
    return tuple([bound_value(n) for n in shape])
