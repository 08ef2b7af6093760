"""The endpoints of a backward pass: the nodes of roots and targets, and the seed gradients.

A leaf is a node of its own. A tensor inside a graph is the value of its expression: equal
expressions are one node. Constructors merge movements, so what was computed from a view may read
what the view shows directly; then a view that only reorders stands for all of it, and where
tensors made before show it as well, which part of the gradient is whose cannot be known.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from svod.base.errors import ShapeError
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, make
from svod.tensor.core import history, tensor_registry
from svod.tensor.core.tensor_core import tensor_of
from svod.tensor.gradients import gradient_hooks
from svod.tensor.gradients.reverse_mode import GradientError, gradients, walk

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

Root = tuple["Tensor", "Tensor | None"]  # a tensor and its own gradient
_REORDERING = frozenset({O.RESHAPE, O.PERMUTE, O.FLIP})


def gradients_of(roots: Sequence[Root], targets: Sequence[Tensor]) -> list[UOp | None]:
    """The gradients for tensors, seen by the hooks of leaves; None where nothing arrives."""
    places = [_place(t, roots) for t in targets]
    found = node_gradients(roots, [node for node, _ in places])
    result: list[UOp | None] = []
    for t, (_, moves), node in zip(targets, places, found, strict=True):
        for move in moves if node is not None else ():
            node = make(move.op, move.dtype, (node,), move.arg)
        result.append(None if node is None else gradient_hooks.seen_by_leaf(t, B.like(t.uop, node)))
    return result


def node_gradients(roots: Sequence[Root], targets: Sequence[UOp]) -> list[UOp | None]:
    """The gradient for each target, a node of floats."""
    seeds = [(B.floats_of(t.uop), _seed(t, own)) for t, own in roots]
    return gradients(seeds, targets, history.origin_of)


def _seed(root: Tensor, own: Tensor | None) -> UOp:
    node = B.floats_of(root.uop)
    if node.dtype.kind != "f":
        raise GradientError(f"a gradient starts from floats, not {node.dtype.name}")
    if own is not None:
        given = tensor_of(own, root)
        if given.shape != root.shape:
            raise ShapeError(f"a seed of shape {given.shape} for a tensor of shape {root.shape}")
        return B.floats_of(given.cast(root.dtype).uop)
    if root.numel() != 1:
        raise GradientError(
            f"a gradient starts from one number, not shape {root.shape}: reduce it to a "
            "loss, or pass the gradient of this tensor"
        )
    if root.dtype.is_complex:
        raise GradientError(
            f"a gradient starts from a real number, not {root.dtype.name}: take .real, .abs() "
            "or pass the gradient of this tensor"
        )
    return B.full(node.shape, 1.0, node.dtype)


# -- tensors inside a graph ----------------------------------------------------------------------


def _place(t: Tensor, roots: Sequence[Root]) -> tuple[UOp, list[UOp]]:
    """The node whose gradient, after these movements, is that of a tensor."""
    node = B.floats_of(t.uop)
    if history.is_leaf(t):
        return node, []
    marked = gradient_hooks.hooked_origin(node)
    if marked is not None:
        return marked, []
    base, moves = _shown(node)
    if base is node or not _has_other_uses(node, base, [B.floats_of(r.uop) for r, _ in roots]):
        return node, []
    if any(move.op not in _REORDERING for move in moves) or _is_shown_before(node, base):
        raise GradientError(
            f"this {t.dtype.name} tensor of shape {t.shape} is a view of a value that is used "
            "otherwise too, so its own gradient cannot be told apart: call retain_grad() on it "
            "before it is used"
        )
    return base, moves


def _shown(node: UOp) -> tuple[UOp, list[UOp]]:
    """What a view shows, and the movements to the view from there."""
    moves = []
    while node.op in O.MOVEMENT:
        moves.append(node)
        node = node.src[0]
    return node, moves[::-1]


def _goes_around(user: UOp, view: UOp, base: UOp) -> bool:
    """Whether a node is a view of what another view shows, but not of that view."""
    while user is not view:
        if user is base:
            return True
        if user.op not in O.MOVEMENT:
            return False
        user = user.src[0]
    return False


def _has_other_uses(view: UOp, base: UOp, roots: Sequence[UOp]) -> bool:
    """Whether something behind the roots reads what a view shows without the view."""
    edges, order = walk(roots, {view}, history.origin_of)
    sources = [s for node in order if node.op not in O.MOVEMENT for _, s in edges[node]]
    return any(_goes_around(s, view, base) for s in {*sources, *roots})


def _is_shown_before(view: UOp, base: UOp) -> bool:
    """Whether an older tensor shows the same value: then not all uses need be the view's."""
    for t in tensor_registry.live_tensors():
        node = B.floats_of(t.uop)
        if node.sn < view.sn and _goes_around(node, view, base):
            return True
    return False
