"""Functions of float64 as formulas over basic ops."""

from __future__ import annotations

from collections.abc import Callable

from svod.codegen.formula import Term, square_root
from svod.ir import ops as O


def reciprocal(x: Term) -> Term:
    return 1.0 / x


def reciprocal_root(x: Term) -> Term:
    return 1.0 / square_root(x)


FUNCTIONS: dict[int, Callable[..., Term]] = {O.RECIP: reciprocal, O.RSQRT: reciprocal_root}
