"""Bounds of whole numbers in a tensor graph, for indices that are provably inside their axis.

Nodes know the bounds of counting, constants and movement (`svod.ir.facts`). This goes on through
arithmetic and extremes, over a few nodes only: an index that is not understood is checked when
the plan runs. Arithmetic that might wrap has the limits of its dtype.
"""

from __future__ import annotations

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import IndexCheck
from svod.ir.node import UOp

_FEW_NODES = 48
_SAME = frozenset({O.CONTIGUOUS, O.COPY, O.CAST, O.PAD, O.GATHER}) | O.MOVEMENT
Bounds = tuple[int, int]


def bounds_of(node: UOp) -> Bounds:
    """The least and the largest value that an integer tensor can hold, as far as it is known."""
    known: dict[UOp, Bounds] = {}
    stack = [node]
    while stack:
        top = stack[-1]
        if top in known:
            stack.pop()
            continue
        waiting = [s for s in _needed(top) if s not in known]
        if waiting and len(known) + len(stack) < _FEW_NODES:
            stack.extend(waiting)
            continue
        known[top] = _bounds(top, known)
        stack.pop()
    return known[node]


def _needed(node: UOp) -> tuple[UOp, ...]:
    """The sources whose bounds say something about those of the node."""
    op, src = node.op, node.src
    if node.vmin is None or not src:
        return ()
    if op in _SAME or (op == O.BITCAST and src[0].dtype is node.dtype):
        found = src[:1]
    elif op == O.REDUCE_AXIS and node.arg.op in (O.MAX, O.MIN):
        found = src
    elif op == O.WHERE:
        found = src[1:]
    elif op in (O.ADD, O.SUB, O.MUL, O.MAX, O.MIN, O.MOD, O.IDIV, O.AND, O.CAT):
        found = src
    else:
        return ()
    return found if all(s.vmin is not None for s in found) else ()


def _bounds(node: UOp, known: dict[UOp, Bounds]) -> Bounds:
    own = (int(node.vmin), int(node.vmax))
    if type(node.arg) is IndexCheck and node.arg.size >= 0 and node.arg.ignored is None:
        size = node.arg.size  # whoever reads it checks it as well
        own = max(own[0], -size if node.arg.takes_negative else 0), min(own[1], size - 1)
    parts = [known.get(s, (s.vmin, s.vmax)) for s in _needed(node)]
    if not parts:
        return own
    low, high = _combined(node, [(int(a), int(b)) for a, b in parts])
    least, most = dt.integer_limits(node.dtype)
    if low < least or high > most:  # it may wrap
        return own
    return max(low, own[0]), min(high, own[1])


def _combined(node: UOp, parts: list[Bounds]) -> Bounds:
    op = node.op
    (a, b), (c, d) = parts[0], parts[-1]
    if op == O.ADD:
        return a + c, b + d
    if op == O.SUB:
        return a - d, b - c
    if op == O.MUL:
        corners = (a * c, a * d, b * c, b * d)
        return min(corners), max(corners)
    if op == O.MAX:
        return max(a, c), max(b, d)
    if op == O.MIN:
        return min(a, c), min(b, d)
    if op == O.MOD and c > 0:
        return 0, d - 1
    if op == O.IDIV and c > 0:
        corners = (a // c, a // d, b // c, b // d)
        return min(corners), max(corners)
    if op == O.AND and (a >= 0 or c >= 0):
        return 0, min([top for bottom, top in parts if bottom >= 0])
    if op in (O.MOD, O.IDIV, O.AND):
        return int(node.vmin), int(node.vmax)
    low, high = min([p[0] for p in parts]), max([p[1] for p in parts])
    return (min(low, 0), max(high, 0)) if op in (O.PAD, O.GATHER) else (low, high)


def within(node: UOp, low: int, high: int) -> UOp:
    """The node, of which it is known that its values lie between low and high."""
    node.vmin, node.vmax = max(node.vmin, low), min(node.vmax, high)
    return node
