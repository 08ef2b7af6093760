"""Contractions whose rows come out of another contraction: softmax(q @ k.T) @ v.

In: a tensor graph. Out: the values between the two contractions, scores and all that is made of
them along their rows. A kernel works through them in bands of rows that stay in scratch memory
(`svod/optimize/bands.py`), so they are never stored: no memory grows with rows times columns.
"""

from __future__ import annotations

from collections.abc import Callable

from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp, elements, is_symbolic
from svod.schedule.costs_cpu import CPU
from svod.schedule.products import is_contraction
from svod.schedule.storage import Held
from svod.schedule.views import Indices, axis_range, source_indices

LONGEST_ROW = CPU.band_row  # bytes of one row of scores
FLOATS = ("float16", "bfloat16", "float32", "float64")
THROUGH = O.ELEMENTWISE | {O.CAST, O.RESHAPE, O.PERMUTE, O.EXPAND}


def find_bands(order: list[UOp], wanted: Callable[[UOp], bool]) -> Held:
    """The values that stay inside kernels, for the contractions that are ``wanted``."""
    held = Held()
    outer = [n for n in order if n.op == O.REDUCE_AXIS and is_contraction(n)]
    if len(outer) < 2:
        return held
    origin = _origins(order)
    users: dict[UOp, list[UOp]] | None = None
    paired: set[UOp] = set()  # a contraction is in one pair, as the outer or the inner one
    for node, operand, scores in _largest_first(outer, origin):
        if node in paired or scores in paired or not wanted(node) or not _fits(node, scores):
            continue
        if users is None:
            users = _users(order, origin)
        inner = _between(operand, scores, origin)
        product = _product(node)
        if _kept_inside(inner, product, users) and _along_rows(node, operand, scores, inner):
            held.values |= inner
            passes = {n for n in inner if n.op == O.REDUCE_AXIS and n is not scores}
            held.passes |= {node, *passes}
            paired |= {node, scores}
    return held


def _largest_first(outer: list[UOp], origin: dict[UOp, UOp | None]) -> list[tuple[UOp, UOp, UOp]]:
    """Contractions, an operand of each and the contraction that is made of: those first whose
    rows would take most memory."""
    found = []
    for node in outer:
        for operand in _product(node).src:
            scores = origin.get(operand)
            if scores is not None:
                found.append((node, operand, scores))
    return sorted(found, key=lambda pair: -elements(pair[2].shape))


def _product(node: UOp) -> UOp:
    value = node.src[0]
    while value.op == O.CAST:
        value = value.src[0]
    return value


def _origins(order: list[UOp]) -> dict[UOp, UOp | None]:
    """For values made of one contraction, element by element and along rows: which one."""
    found: dict[UOp, UOp | None] = {}
    for node in order:
        if node.op == O.REDUCE_AXIS:
            if is_contraction(node):
                found[node] = node
            elif found.get(node.src[0]) is not None:
                found[node] = found[node.src[0]]
        elif node.op in THROUGH:
            src = node.src
            if len(src) == 1:
                if src[0] in found:
                    found[node] = found[src[0]]
                continue
            roots = {found[s] for s in src if s in found}
            if roots:
                found[node] = roots.pop() if len(roots) == 1 else None
    return found


def _users(order: list[UOp], origin: dict[UOp, UOp | None]) -> dict[UOp, list[UOp]]:
    """Who reads the values made of contractions."""
    users: dict[UOp, list[UOp]] = {n: [] for n in origin}
    for node in order:
        for s in node.src:
            if s in users:
                users[s].append(node)
    return users


def _fits(node: UOp, scores: UOp) -> bool:
    """Known sizes but a batch, one contracted axis, floats, rows that fit scratch memory."""
    if len(node.arg.axes) != 1 or node.dtype.name not in FLOATS or scores.dtype.name not in FLOATS:
        return False
    inner = (*node.src[0].shape[1:], *scores.src[0].shape[1:])
    if is_symbolic(inner) or 0 in node.arg.axes:
        return False
    columns: int = node.src[0].shape[node.arg.axes[0]]
    return columns > 1 and columns * scores.dtype.itemsize <= LONGEST_ROW


def _between(operand: UOp, scores: UOp, origin: dict[UOp, UOp | None]) -> set[UOp]:
    found = {operand}
    stack = [operand]
    while stack:
        node = stack.pop()
        if node is scores:
            continue
        for s in node.src:
            if s not in found and origin.get(s) is scores:
                found.add(s)
                stack.append(s)
    return found


def _kept_inside(inner: set[UOp], product: UOp, users: dict[UOp, list[UOp]]) -> bool:
    """Whether nobody else needs them."""
    return all(u in inner or u is product for n in inner for u in users[n])


def _along_rows(node: UOp, operand: UOp, scores: UOp, inner: set[UOp]) -> bool:
    """Whether every pass between reads the row of scores that the contraction reads."""
    column = axis_range(0, node.src[0].shape[node.arg.axes[0]], AxisKind.REDUCE)
    start = [axis_range(1 + i, s) for i, s in enumerate(operand.shape)]
    start[node.arg.axes[0]] = column
    places: dict[UOp, set[Indices]] = {operand: {tuple(start)}}
    passes = 0
    for here in sorted(inner, key=lambda n: -n.sn):
        if here is scores:
            continue
        if here.op == O.REDUCE_AXIS:
            if len(here.arg.axes) != 1 or here.src[0].shape[here.arg.axes[0]] != column.vmax + 1:
                return False
            passes += 1
        for indices in places.get(here, ()):
            for s in here.src:
                if s in inner:
                    places.setdefault(s, set()).add(_place(here, s, indices, column))
    return passes > 0 and len(places.get(scores, ())) == 1


def _place(node: UOp, source: UOp, indices: Indices, column: UOp) -> Indices:
    if node.op == O.REDUCE_AXIS:
        inner = list(indices)
        inner[node.arg.axes[0]] = column
        return tuple(inner)
    if node.op in O.MOVEMENT:
        return source_indices(node, indices)[0]
    return indices if source.shape else ()
