"""Rows whose reductions stay whole: what a row gives goes back over all of it.

Softmax and the like are one kernel that finds a row in the cache when it comes back to it, as long
as its reductions are not split. That is worth it where cores have a row each, and where a split
would compute functions twice or go through memory several times.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from svod.ir import ops as O
from svod.ir.node import UOp, elements
from svod.schedule.costs_cpu import CPU

ROWS = CPU.whole_rows  # results from which cores have a row each
CACHED = CPU.shared_cache  # bytes that one kernel leaves in a cache for the next
_PASSED_ON = O.ELEMENTWISE | O.MOVEMENT
_NONE: frozenset[UOp] = frozenset()


def whole_rows(order: list[UOp], large: Iterable[UOp]) -> frozenset[UOp]:
    """Of these reductions, those along rows that are better left whole."""
    candidates = {n for n in large if prod(n.shape) >= ROWS and is_row(n)}
    if not candidates:
        return _NONE
    results: dict[UOp, frozenset[UOp]] = {}  # node -> reductions it has one result of per element
    spread: dict[UOp, frozenset[UOp]] = {}  # node -> reductions whose results lie over its rows
    group = {n: n for n in candidates}
    used: set[UOp] = set()
    heavy: set[UOp] = set()
    for node in order:
        if node not in candidates and node.op not in _PASSED_ON:
            continue
        own = _NONE.union(*[results.get(s, _NONE) for s in node.src])
        over = _NONE.union(*[spread.get(s, _NONE) for s in node.src])
        if node in candidates:
            for other in over:  # made of a row that another reduction has been over
                _join(group, other, node)
            own, over = frozenset({node}), _NONE
        elif node.op == O.EXPAND:
            used |= own
            own, over = _NONE, own | over
        elif node.op in O.HEAVY:
            heavy |= over
        if own:
            results[node] = own
        if over:
            spread[node] = over
    chosen = heavy | {n for n in used if elements(n.src[0].shape) * n.dtype.itemsize >= CACHED}
    roots = {_root(group, n) for n in chosen}
    return frozenset(n for n in candidates if _root(group, n) in roots)


def is_row(node: UOp) -> bool:
    """Whether the last axes are reduced: neighbours in memory, as a rule."""
    rank = len(node.src[0].shape)
    return sorted(node.arg.axes) == list(range(rank - len(node.arg.axes), rank))


def _root(group: dict[UOp, UOp], node: UOp) -> UOp:
    while group[node] is not node:
        node = group[node]
    return node


def _join(group: dict[UOp, UOp], a: UOp, b: UOp) -> None:
    group[_root(group, b)] = _root(group, a)
