"""Values that have to be in memory before they are read.

Copies, custom functions, sorts and loops read whole buffers, and an assignment may overwrite what
its value reads elsewhere. In: a tensor graph. Out: the same with such sources as CONTIGUOUS.
"""

from __future__ import annotations

from collections.abc import Iterator

from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.schedule.work import EFFECTS, LEAVES

_WHOLE = frozenset({O.COPY, O.CUSTOM_FUNCTION, O.SORT, O.RADIX})
_READERS = _WHOLE | {O.SCAN, O.ASSIGN}


def stored_sources(sink: UOp, order: list[UOp]) -> UOp:
    """Copies, custom functions, sorts and loops read whole buffers: these are stored first."""
    if not any(node.op in _READERS for node in order):
        return sink
    done: dict[UOp, UOp] = {}
    for node in order:
        src = tuple([done[s] for s in node.src])
        if node.op in _WHOLE:
            src = tuple([s if s.op == O.DEVICE or _is_stored(s) else _stored(s) for s in src])
        elif node.op == O.SCAN:
            first = 2 + node.arg.carries
            src = (*src[:first], *[_stored_below(s) for s in src[first:]])
        elif node.op == O.ASSIGN and not _is_elementwise_safe(src[0], src[1]):
            src = (src[0], _stored(src[1]))
        done[node] = node.with_sources(src)
    return done[sink]


def _stored(node: UOp) -> UOp:
    return make(O.CONTIGUOUS, node.dtype, (node,))


def _stored_below(node: UOp) -> UOp:
    """The same movement of a stored value."""
    if node.op in O.MOVEMENT:
        return node.with_sources((_stored_below(node.src[0]),))
    is_light = node.op in LEAVES or (node.op in EFFECTS and node.op != O.ASSIGN)
    return node if is_light else _stored(node)


def _is_stored(node: UOp) -> bool:
    while node.op == O.RESHAPE:
        node = node.src[0]
    return node.op in _WHOLE or node.op in (O.BUFFER, O.PARAM, O.CONTIGUOUS, O.SCATTER)


def _is_elementwise_safe(target: UOp, value: UOp) -> bool:
    """Whether the value reads the target's memory only at the element being written.

    What is stored first, by a kernel of its own, may read all of it.
    """
    base = _memory(target)
    here: dict[UOp, None] = {value: None}  # nodes read at the element being written
    elsewhere: dict[UOp, None] = {}
    for node in _growing(here):
        if node.op in O.ELEMENTWISE:
            here.update(dict.fromkeys(node.src))
        elif node is not target:
            elsewhere[node] = None
    for node in _growing(elsewhere):
        if node is base or (node.op == O.ASSIGN and _memory(node) is base):
            return False
        if node.op not in _APART:
            elsewhere.update(dict.fromkeys(node.src))
    return True


def _growing(nodes: dict[UOp, None]) -> Iterator[UOp]:
    """The nodes in order, also those added on the way."""
    done = 0
    while done < len(nodes):
        for node in list(nodes)[done:]:
            done += 1
            yield node


_APART = EFFECTS - {O.SCAN}


def _memory(view: UOp) -> UOp:
    """The memory behind a view and what was assigned to it."""
    while view.op in O.MOVEMENT or view.op in (O.ASSIGN, O.AFTER):
        view = view.src[0]
    return view
