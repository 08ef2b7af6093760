"""Loops of stores in order whose steps never meet: they can be made in any order, and at once.

A place is a sum of counters and data, each times a factor. Steps of a counter stay apart where the
sum reads like a number of several digits: what has smaller factors cannot make up for one step of
the counter, and what has larger ones moves by more than all its steps. Data have the bounds that
the store's gate checks.
"""

from __future__ import annotations

from math import gcd, inf

from svod.ir import ops as O
from svod.ir.node import UOp
from svod.ir.symbolic import conjuncts, num, terms_of
from svod.optimize.graph import extent
from svod.schedule.views import inside


def steps_stay_apart(store: UOp, r: UOp) -> bool:
    """Whether different steps along r always write to different places."""
    index = store.src[0]
    terms, _ = terms_of(index.src[1])
    step = abs(terms.pop(r, 0))
    if step == 0 or r.src[0].op != O.CONST:
        return False
    small = reach(index, {t: f for t, f in terms.items() if abs(f) < step})
    larger = gcd(*[f for f in terms.values() if abs(f) >= step])
    return small < step and (larger == 0 or step * (extent(r) - 1) + small < larger)


def reach(index: UOp, terms: dict[UOp, int]) -> float:
    """The largest difference of two values of a sum of terms of a place."""
    tests = conjuncts(index.src[2]) if len(index.src) > 2 else []
    return sum([abs(f) * _width(t, tests) for t, f in terms.items()])


def _width(term: UOp, tests: list[UOp]) -> float:
    """The largest difference of two values of a term."""
    if term.op != O.CAST:
        return float(term.vmax) - float(term.vmin)
    for test in tests:
        if test.op == O.LT and test.src[0] is term and test.src[1].op == O.CONST:
            limit = test.src[1].arg
            wanted = conjuncts(inside(term.src[0], term, num(limit)))
            if all(w in tests for w in wanted):
                return float(limit - 1)
    return inf
