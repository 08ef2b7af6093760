"""Sums down the long columns of a large matrix: which reductions are that.

With one kernel, every core takes some columns and reads a part of every row: memory is asked for
pieces with gaps between them. In pieces of whole rows, each core reads memory in order, and a few
rows of partial sums are added afterwards.
"""

from __future__ import annotations

from math import prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, RangeArg
from svod.ir.node import UOp, is_symbolic, make
from svod.ir.symbolic import TRUE, num, terms_of
from svod.schedule.costs_cpu import CPU
from svod.schedule.views import Indices, flatten, source_indices

LEAST, MOST = 1 << 10, 1 << 13  # columns: rows are a page at least, their sums stay in cache
FROM = CPU.column_sum_from  # elements of the matrix: a piece does not stay in a core's cache
DOWN_PIECES = CPU.column_sum_pieces  # of rows


def sum_down(node: UOp) -> int:
    """The axis of the rows, where a reduction goes down the columns of a large matrix; or -1."""
    shape = node.src[0].shape
    if is_symbolic(shape) or prod(shape) < FROM or node.dtype.itemsize < 4:
        return -1
    long = [a for a, size in enumerate(shape) if size != 1]
    rows = [a for a in long if a in node.arg.axes]
    if len(long) != 2 or len(rows) != 1 or shape[rows[0]] % DOWN_PIECES:
        return -1
    (row,) = rows
    (column,) = [a for a in long if a != row]
    if not LEAST <= shape[column] <= MOST:
        return -1
    loops = [
        make(O.RANGE, dt.index, (num(size),), RangeArg(axis, AxisKind.LOOP))
        for axis, size in enumerate(shape)
    ]
    steps = _steps(node.src[0], tuple(loops), loops[row], loops[column])
    return row if steps == {(shape[column], 1)} else -1


def _steps(node: UOp, indices: Indices, row: UOp, column: UOp) -> set[tuple[int, int]]:
    """Elements from row to row and from column to column, in all memory that moves with both."""
    found: set[tuple[int, int]] = set()
    stack = [(node, indices)]
    seen = set(stack)
    while stack:
        node, indices = stack.pop()
        used = frozenset().union(*[i.ranges for i in indices])
        if row not in used or column not in used:
            continue
        sources: list[tuple[UOp, Indices]] = []
        if node.op in O.MOVEMENT:
            inner, gate = source_indices(node, indices)
            if gate is not TRUE:
                return set()
            sources = [(node.src[0], inner)]
        elif node.op in O.ELEMENTWISE:
            sources = [(s, indices) for s in node.src if s.shape]  # numbers are no memory
        else:
            terms, _ = terms_of(flatten(indices, node.shape))
            found.add((terms.get(row, 0), terms.get(column, 0)))
        stack += [s for s in sources if s not in seen]
        seen.update(sources)
    return found
