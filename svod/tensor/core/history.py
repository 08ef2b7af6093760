"""What gradients need to know about live tensors: which of them are leaves, and what realised
values were computed from.

Realising replaces a computed node by a BUFFER in every tensor. Where the value depends on a leaf
that requires a gradient, the node is kept here, tied to the life of that buffer, so gradients
flow on through it and read the stored value instead of computing it again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from threading import local
from typing import Any
from weakref import WeakKeyDictionary, ref

from svod.ir import ops as O
from svod.ir.args import BufferRef
from svod.ir.build import complex_view, floats_of
from svod.ir.node import UOp, make, substitute, toposort
from svod.tensor.core import recorded_settings


class LeafMark:
    """The argument of the CONTIGUOUS node of a leaf that is not realised: no two are equal."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "leaf"


class _State(local):
    without_gradient = 0  # how many no_grad blocks are open
    paused = False
    following = 0  # how many functions are being differentiated, whose arguments are marked


_leaves: dict[int, ref[Any]] = {}  # by id; an entry leaves with its tensor
_retained: dict[int, ref[Any]] = {}
_origins: WeakKeyDictionary[BufferRef, UOp] = WeakKeyDictionary()
state = _State()


# -- leaves ------------------------------------------------------------------------------------


def add_leaf(tensor: Any) -> None:
    """This tensor requires a gradient."""
    recorded_settings.changed()
    key = id(tensor)
    _leaves[key] = ref(tensor, _forget(key))


def _forget(key: int) -> Callable[[Any], None]:
    def forget(dead: Any) -> None:
        if _leaves.get(key) is dead:
            del _leaves[key]

    return forget


def remove_leaf(tensor: Any) -> None:
    """This tensor requires no gradient any more."""
    recorded_settings.changed()
    _leaves.pop(id(tensor), None)


def is_leaf(tensor: Any) -> bool:
    """Whether the tensor itself was said to require a gradient."""
    return id(tensor) in _leaves


def leaves() -> list[Any]:
    """The live tensors that require a gradient, oldest first."""
    found = [r() for r in list(_leaves.values())]
    return [t for t in found if t is not None]


def retain(tensor: Any) -> None:
    """``backward`` shall fill the gradient of this tensor, which is no leaf."""
    key = id(tensor)

    def forget(dead: Any) -> None:
        if _retained.get(key) is dead:
            del _retained[key]

    _retained[key] = ref(tensor, forget)


def is_retained(tensor: Any) -> bool:
    """Whether ``backward`` fills the gradient of a tensor that is no leaf."""
    return id(tensor) in _retained


def retained() -> list[Any]:
    """The live tensors that are no leaves and keep their gradients."""
    found = [r() for r in list(_retained.values())]
    return [t for t in found if t is not None and not is_leaf(t)]


def leaf_node(node: UOp) -> UOp:
    """The node that stands for a leaf: the constructors look through reshapes of buffers."""
    base = node = floats_of(node)
    while base.op == O.RESHAPE:
        base = base.src[0]
    return base if base.op in (O.BUFFER, O.BUFFER_VIEW) else node


def is_mark(node: UOp) -> bool:
    """Whether a node was made for one leaf alone."""
    return node.op == O.CONTIGUOUS and isinstance(node.arg, LeafMark)


def is_leaf_node(node: UOp) -> bool:
    """Whether nothing looks through this node, so that it can stand for a leaf."""
    base = leaf_node(node)
    if base.op == O.CONTIGUOUS:
        return is_mark(base)
    return base.op in (O.BUFFER, O.BUFFER_VIEW, O.ASSIGN)


def detached(node: UOp) -> UOp:
    """The same value, with no gradient flowing through."""
    if node.op == O.COMPLEX:
        return complex_view(detached(node.src[0]))
    if node.dtype.kind != "f" or node.op == O.CONST:
        return node
    if node.op == O.BITCAST and node.arg is None:
        return node
    found = make(O.BITCAST, node.dtype, (node,))
    found._shape = node.shape
    return found


def as_leaf(node: UOp) -> UOp:
    """A node of its own for a leaf that is not realised."""
    if node.op == O.COMPLEX:
        return complex_view(as_leaf(node.src[0]))
    found = make(O.CONTIGUOUS, node.dtype, (node,), LeafMark())
    found._shape = node.shape
    return found


# -- realised values ---------------------------------------------------------------------------


def origin_of(node: UOp) -> UOp | None:
    """What a BUFFER was computed from, where gradients need it."""
    return _origins.get(node.arg)


def tracked(roots: Iterable[UOp]) -> set[UOp]:
    """The nodes at and below the roots through which gradients reach a leaf."""
    starts = {leaf_node(t.uop) for t in leaves()}
    found: set[UOp] = set()
    for node in toposort([floats_of(root) for root in roots]):
        op = node.op
        if node.dtype.kind != "f":
            continue
        # A PARAM stands for a value inside a function that is being recorded.
        if node in starts or op == O.PARAM or (op == O.BUFFER and node.arg in _origins):
            found.add(node)
        elif op == O.BITCAST and len(node.src) == 1 and isinstance(node.arg, tuple):
            found.add(node)  # an argument or a result of a function that is differentiated
        elif any(s in found for s in _behind(node)):
            found.add(node)
    return found


def is_constant(node: UOp) -> bool:
    """Whether a value depends on no element of memory: what it was computed from cancelled."""
    waiting, seen = [floats_of(node)], set()
    while waiting:
        found = waiting.pop()
        if found in seen or 0 in found.shape:
            continue
        seen.add(found)
        is_argument = found.op == O.BITCAST and isinstance(found.arg, tuple)
        if is_argument or found.op in (O.BUFFER, O.PARAM):
            return False
        waiting += found.src
    return True


def _behind(node: UOp) -> tuple[UOp, ...]:
    """The sources whose gradients a node has a share in."""
    if node.op == O.ASSIGN or (node.op == O.BITCAST and len(node.src) > 1):
        return node.src[1:]
    return () if node.op == O.BITCAST and node.arg is None else node.src


def share_history(base: UOp, twin: UOp) -> None:
    """A second BUFFER shows the value of the first: its gradient is that of the first."""
    is_kept = base.op == O.BUFFER and base.arg in _origins
    if is_kept or any(leaf_node(t.uop) is base for t in leaves()):
        _origins[twin.arg] = make(O.CONTIGUOUS, base.dtype, (base,))


def record(mapping: dict[UOp, UOp]) -> None:
    """Nodes are about to be replaced by buffers: remember what gradients will ask for."""
    if not _leaves and not _origins and not state.following:
        return
    if _origins:
        _move_origins(mapping)
    if state.paused:
        return
    known = tracked(mapping)
    starts = {leaf_node(t.uop) for t in leaves()}
    for old, new in mapping.items():
        base = leaf_node(new)
        if old in known and old not in starts and old.op != O.ASSIGN and base.op == O.BUFFER:
            _origins[base.arg] = _above(old, substitute(old.src, mapping))


def _move_origins(mapping: dict[UOp, UOp]) -> None:
    """Kept graphs follow the replacement below their roots."""
    entries = list(_origins.items())
    sources = tuple([s for _, node in entries for s in node.src])
    moved = iter(substitute(sources, mapping))
    for key, node in entries:
        new = tuple([next(moved) for _ in node.src])
        if new != node.src:
            _origins[key] = _above(node, new)


def _above(node: UOp, src: tuple[UOp, ...]) -> UOp:
    return node.with_sources(src)


@contextmanager
def paused() -> Iterator[None]:
    """Realise without keeping histories: what is computed here becomes plain data."""
    before = state.paused
    state.paused = True
    try:
        yield
    finally:
        state.paused = before


def forget(tensors: Iterable[Any]) -> None:
    """Make realised tensors plain data."""
    for t in tensors:
        base = leaf_node(t.uop)
        if base.op == O.BUFFER:
            _origins.pop(base.arg, None)
