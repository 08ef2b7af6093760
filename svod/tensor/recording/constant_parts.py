"""Constant folding over frozen memory: which parts of a graph are computed once, at build.

In: roots, and the memory that stays live. Out: the nodes to compute beforehand. A part is folded
where its result takes no more bytes than what it reads, so quantised weights stay quantised and
nothing that is only spread out is written down. Movement is not folded: it is a way of reading.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from svod.ir import ops as O
from svod.ir.node import UOp, elements, is_symbolic
from svod.ir.scan import outer_order, outer_sources

SMALL = 1 << 16  # bytes that may always be spent on a folded value

_LEAVES = frozenset({O.CONST, O.IOTA, O.DEVICE})
_MEMORY = frozenset({O.BUFFER, O.BUFFER_VIEW})
_PURE = (
    O.ELEMENTWISE
    | O.MOVEMENT
    | {O.REDUCE_AXIS, O.GATHER, O.CAT, O.CONTIGUOUS, O.COPY, O.SCATTER}
    | {O.SORT}
)


def constant_parts(roots: Sequence[UOp], live: Iterable[UOp]) -> list[UOp]:
    """The largest nodes of a graph to compute once; ``live`` is memory that may change."""
    order = outer_order(roots)
    below = _memory_below(order, _live_storages(order, live))
    wanted = [r for r in roots if r in below]
    for node in order:
        if node not in below:
            wanted += [s for s in outer_sources(node) if s in below]
    found: dict[UOp, None] = {}
    seen: set[UOp] = set()  # shared parts are looked at once
    for node in wanted:  # grows while it is read
        while node.op in O.MOVEMENT:
            node = node.src[0]
        if node in seen or not below[node] or node.op in _MEMORY:
            continue
        seen.add(node)
        read = sum([b.arg.size * b.dtype.itemsize for b in below[node]])
        if elements(node.shape) * node.dtype.itemsize <= max(read, SMALL):
            found[node] = None
        else:
            wanted += [s for s in node.src if s in below]
    return list(found)


def _live_storages(order: Iterable[UOp], live: Iterable[UOp]) -> set[int]:
    """Storages that a run may find changed: what is live, and what the graph writes."""
    found = set()
    written = [node.src[0] for node in order if node.op == O.ASSIGN]
    for node in (*live, *written):
        while node.op in O.MOVEMENT or node.op in (O.ASSIGN, O.AFTER, O.BUFFER_VIEW):
            node = node.src[0]
        if node.op == O.BUFFER and node.arg.buffer is not None:
            found.add(node.arg.buffer.storage_id)
    return found


def _memory_below(order: Sequence[UOp], live: Collection[int]) -> dict[UOp, frozenset[UOp]]:
    """The memory each constant node reads; nodes that may change from run to run are left out."""
    below: dict[UOp, frozenset[UOp]] = {}
    for node in order:
        op = node.op
        if op in _LEAVES:
            below[node] = frozenset()
        elif op == O.BUFFER:
            memory = node.arg.buffer
            if memory is not None and memory.storage_id not in live:
                below[node] = frozenset((node,))
        elif op == O.BUFFER_VIEW:
            if node.src[0] in below:
                below[node] = below[node.src[0]]
        elif op in _PURE and not is_symbolic(node.shape) and all(s in below for s in node.src):
            below[node] = frozenset().union(*[below[s] for s in node.src])
    return below
