"""What the body of a call does to its arguments."""

from __future__ import annotations

from svod.ir import ops as O
from svod.ir.guards import CHECK
from svod.ir.node import UOp

RUNTIME_EFFECTS = frozenset({O.COPY, O.BUFFER_VIEW, O.CUSTOM_FUNCTION})


def effect_of(body: UOp) -> UOp:
    """The copy, view or custom function a body is, also inside an END; else the body."""
    if body.op == O.END and body.src[0].op in RUNTIME_EFFECTS:
        return body.src[0]
    return body


def is_check(body: UOp) -> bool:
    """Whether a body looks at a word that says whether indices were in range."""
    effect = effect_of(body)
    return effect.op == O.CUSTOM_FUNCTION and effect.arg.kind == CHECK


def written_slots(effect: UOp) -> frozenset[int]:
    """The argument positions a call writes; a custom function may write all of its arguments."""
    if is_check(effect):
        return frozenset({0})
    if effect.op == O.CUSTOM_FUNCTION:
        return frozenset(range(len(effect.src) + 1))
    if effect.op != O.SINK:
        return frozenset({0})
    found = frozenset([slot for root in effect.src for slot in _stored_slot(root)])
    return found or frozenset({0})


def _stored_slot(node: UOp) -> tuple[int, ...]:
    """The slot behind a STORE or SCATTER, perhaps inside an END."""
    while node.op != O.PARAM:
        if not node.src:
            return ()
        node = node.src[0]
    return (node.arg.slot,)
