"""Bounds of sums of sizes whose terms depend on each other: `s // 2 - s` is never above zero.

Taken one by one the terms of such a sum may each be as large as can be, though never together.
Here a quotient is its dividend divided exactly, less a rest; then equal terms meet and cancel. A
maximum is one of its operands, whichever makes the sum larger. A loop counter is below the size of
its loop.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import ceil, floor

from svod.ir import ops as O
from svod.ir.node import UOp

_MOST_CHOICES = 8  # of operands of maxima

Sum = tuple[dict[UOp, Fraction], Fraction]
Split = Callable[[UOp], tuple[dict[UOp, int], int]]  # the terms of a size, and its constant


def relaxed_bounds(terms: dict[UOp, int], constant: int, split: Split) -> tuple[int, int] | None:
    """The least and the largest value of a sum; None where its terms say nothing together."""
    if not any(t.op in (O.IDIV, O.MAX) for t in terms):
        return None
    start = {t: Fraction(c) for t, c in terms.items()}, Fraction(constant)
    lowest = -_upper(_negated(start), _MOST_CHOICES, split)
    return ceil(lowest), floor(_upper(start, _MOST_CHOICES, split))


def upper_bound(terms: dict[UOp, int], constant: int, split: Split) -> int:
    """What a sum of sizes and loop counters is at most."""
    start = {t: Fraction(c) for t, c in terms.items()}, Fraction(constant)
    return floor(_upper(start, _MOST_CHOICES, split))


def _negated(total: Sum) -> Sum:
    terms, constant = total
    return {t: -c for t, c in terms.items()}, -constant


def _upper(total: Sum, choices: int, split: Split) -> Fraction:
    """What a sum is at most."""
    terms, constant = total
    for term, factor in terms.items():
        if not factor or term.op not in (O.IDIV, O.MAX, O.RANGE) or _is_opaque(term, factor):
            continue
        rest = {t: c for t, c in terms.items() if t is not term}
        if term.op == O.RANGE:
            grown = _plus(rest, constant - factor, split(term.src[0]), factor)
            return _upper(grown, choices, split)
        if term.op == O.IDIV:
            divisor = term.src[1].arg
            slack = -factor * Fraction(divisor - 1, divisor) if factor < 0 else Fraction(0)
            grown = _plus(rest, constant + slack, split(term.src[0]), factor / divisor)
            return _upper(grown, choices, split)
        if choices < 2:
            break
        sums = [_plus(rest, constant, split(s), factor) for s in term.src]
        either = [_upper(total, choices // 2, split) for total in sums]
        return max(either) if factor > 0 else min(either)
    return sum([c * int(t.vmax if c > 0 else t.vmin) for t, c in terms.items()], constant)


def _is_opaque(term: UOp, factor: Fraction) -> bool:
    """Whether a term is taken by its own bounds."""
    if term.op == O.RANGE:
        return factor < 0 or term.src[0].op == O.CONST
    return term.op == O.IDIV and term.src[1].op != O.CONST


def _plus(
    terms: dict[UOp, Fraction],
    constant: Fraction,
    size: tuple[dict[UOp, int], int],
    factor: Fraction,
) -> Sum:
    """A sum and some times a size."""
    more, extra = size
    found = dict(terms)
    for t, c in more.items():
        found[t] = found.get(t, Fraction(0)) + c * factor
    return found, constant + extra * factor
