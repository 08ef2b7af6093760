"""Aliases: which tensors are views of the same elements, and how a write reaches all of them.

A view is a link to the tensor it was made from, with the movement between them. The value of a
tensor is a node, and nodes never change: a write gives the written tensor a new one, and every
live tensor that shows some of the same elements gets the node that shows them as they are now.
So the order of writes and reads is the order of the program, whatever is computed when. A tensor
of which no view was ever made has no link, and nothing to pay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import ref

from svod.base.errors import WriteError
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.build import whole_of
from svod.ir.node import UOp
from svod.ir.pairs import parts as complex_parts
from svod.tensor.core import history
from svod.tensor.core.history import as_leaf, detached
from svod.tensor.core.slicing import diagonal_of, take_cuts
from svod.tensor.core.tensor_core import common_device, wrap
from svod.tensor.core.tensor_registry import changes
from svod.tensor.core.tracing import memory_of, note_write, state, without_waits
from svod.tensor.views import strided_layout
from svod.tensor.views.strided_layout import Layout

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

Move = tuple[Callable[[UOp, Any], UOp], Any]  # what makes a view, and its argument
_FEW = 16


class Storage:
    """What a tensor and its views have in common: each other."""

    __slots__ = ("aliases", "limit")

    def __init__(self) -> None:
        self.aliases: list[ref[Any]] = []
        self.limit = _FEW

    def shed(self) -> None:
        """Forget tensors that are gone."""
        found = self.aliases
        found[:] = [r for r in found if r() is not None]
        self.limit = max(_FEW, 2 * len(found))


class Link:
    """A tensor as a view: of which other, and by which movement; a root is a view of nothing."""

    __slots__ = ("_layout", "_origin", "_stand_in", "moves", "parent", "storage")

    def __init__(self, storage: Storage, parent: Link | None, moves: tuple[Move, ...]) -> None:
        self.storage, self.parent, self.moves = storage, parent, moves
        self._origin: Link | None = None

    @property
    def origin(self) -> Link:
        """The link whose elements this one shows: a copy on the way has elements of its own."""
        if self._origin is None:
            self._resolve()
        assert self._origin is not None, "resolving finds it"
        return self._origin

    @property
    def layout(self) -> Layout | None:
        """Which elements of the origin are shown; None where no strides say so."""
        if self._origin is None:
            self._resolve()
        return self._layout

    def _resolve(self) -> None:
        path = [self]
        while path[-1]._origin is None and path[-1].parent is not None:
            path.append(path[-1].parent)
        for link in reversed(path):
            if link._origin is None:
                link._place()

    def _place(self) -> None:
        """Find the origin, where that of the parent is known."""
        assert self.parent is not None, "a root begins at once"
        self._origin, found = self.parent._origin, self.parent._layout
        for move, argument in self.moves:
            if move in _STAY or found is None:
                continue
            rule = _RULES.get(move)
            found = None if rule is None else rule(found, argument)
            if found is not None and not strided_layout.is_fixed((*found.shape, found.offset)):
                found = None
                continue
            if (
                rule is strided_layout.reshaped and found is None
            ):  # no view has this shape: it is a copy
                before = self.parent.shown(self.parent.origin.stand_in)
                self.begin(_moved(before, self.moves))
                return
        self._layout: Layout | None = found

    def begin(self, node: UOp) -> None:
        """This tensor, of which a node is the value, has elements of its own."""
        shape, dtype = node.shape, node.dtype
        self._origin, self._stand_in = self, (shape, dtype)
        self._layout = strided_layout.row_major(shape) if strided_layout.is_fixed(shape) else None

    @property
    def stand_in(self) -> UOp:
        """A value like that of an origin, which no constructor looks through."""
        return _stand_in(*self._stand_in)

    def shown(self, node: UOp) -> UOp:
        """The value of this view where the origin has the value of a node."""
        path = []
        link = self
        while link is not self.origin:
            path.append(link)
            assert link.parent is not None, "an origin comes first"
            link = link.parent
        for link in reversed(path):
            node = _moved(node, link.moves)
        return node


def _moved(node: UOp, moves: Iterable[Move]) -> UOp:
    for move, argument in moves:
        node = move(node, argument)
    return node


def same(node: UOp, _: None) -> UOp:
    """The movement of a tensor that shows all of another."""
    return node


def cut_off(node: UOp, _: None) -> UOp:
    """The same elements, with no gradient flowing through."""
    return detached(node)


def stored(node: UOp, _: None) -> UOp:
    """The same elements, in a buffer of their own once they are computed."""
    return B.contiguous(node)


def pairs(node: UOp, _: None) -> UOp:
    """The floats of complex numbers."""
    return B.floats_of(node)


def complex_numbers(node: UOp, _: None) -> UOp:
    """Pairs of floats as complex numbers."""
    return B.complex_view(node)


def part_of(node: UOp, position: int) -> UOp:
    """The real or the imaginary part."""
    return complex_parts(node)[position]


_STAY = frozenset({same, cut_off, stored, B.bitcast})
_RULES: dict[Any, Callable[[Layout, Any], Layout | None]] = {
    B.reshape: strided_layout.reshaped,
    B.permute: strided_layout.permuted,
    B.shrink: strided_layout.shrunk,
    B.broadcast_to: strided_layout.expanded,
    take_cuts: strided_layout.cut,
    diagonal_of: strided_layout.diagonal,
}


# -- views -------------------------------------------------------------------------------------


def view(x: Tensor, *moves: Move) -> Tensor:
    """A tensor that shows elements of x, now and after every write to either."""
    node = x.uop
    for move, argument in moves:
        node = move(node, argument)
    return linked(wrap(node, x._device), x, moves)


def linked(t: Tensor, x: Tensor, moves: tuple[Move, ...] = ((same, None),)) -> Tensor:
    """Say of a tensor, which has the value already, that it shows elements of x."""
    parent = x._link or _rooted(x)
    storage = parent.storage
    if history.state.without_gradient:
        moves = (*moves, (cut_off, None))
    t._link = Link(storage, parent, moves)
    if len(storage.aliases) >= storage.limit:
        storage.shed()
    storage.aliases.append(ref(t))
    return t


def relinked(t: Tensor, moved: Tensor) -> None:
    """The tensor is what another is, a view of it: ``x.squeeze_()``."""
    t.uop, t._link = moved.uop, moved._link
    if t._link is not None:
        t._link.storage.aliases.append(ref(t))


def _rooted(x: Tensor) -> Link:
    """The link of a tensor that has views from now on."""
    storage = Storage()
    x._link = found = Link(storage, None, ())
    found.begin(x.uop)
    storage.aliases.append(ref(x))
    return found


def lay_out(t: Tensor, strides: tuple[int, ...] | None) -> None:
    """Say of a tensor that stands for another how the elements of that one lie."""
    if strides is not None:
        _rooted(t)._layout = Layout(t.uop.shape, strides)


def strides_of(t: Tensor) -> tuple[int, ...] | None:
    """How the elements of a tensor lie in the one it shows; None where they are in order."""
    found = None if t._link is None else t._link.layout
    return None if found is None or strided_layout.is_row_major(found) else found.strides


def is_view_by(t: Any, x: Tensor, moves: tuple[Move, ...]) -> bool:
    """Whether t is the view of x by this movement: it shows what x shows there."""
    link = getattr(t, "_link", None)
    if link is None or link.parent is None or link.parent is not x._link:
        return False
    return link.moves[: len(moves)] == moves and len(link.moves) <= len(moves) + 1


def family(t: Tensor) -> Link | int:
    """What tensors have in common that show elements of one: equal for these alone."""
    return id(t) if t._link is None else t._link.origin


def others(t: Tensor) -> list[Tensor]:
    """The other live tensors that show elements of the same tensor."""
    link = t._link
    if link is None:
        return []
    origin, storage = link.origin, link.storage
    found = [r() for r in storage.aliases]
    return [
        o for o in found
        if o is not None and o is not t and o._link is not None
        and o._link.storage is storage and o._link.origin is origin
    ]  # fmt: skip


def owns_memory(t: Tensor, memory: UOp) -> bool:
    """Whether t, or the tensor whose elements it shows, is all of this memory.

    A copy that is only a view of the memory of another tensor is not.
    """
    link = t._link
    origin = None if link is None else link.origin
    bases = [] if origin is None else [o for o in others(t) if o._link is origin]
    return any(whole_of(without_waits(B.floats_of(o.uop))) is memory for o in (t, *bases))


# -- writes ------------------------------------------------------------------------------------


def give(t: Tensor, node: UOp, device: str | None = None) -> None:
    """Write: the tensor has a new value, and every tensor that shows its elements shows it."""
    if state.effects is not None:
        note_write(t)
    link = t._link
    if link is None:
        _put(t, _own(t, node), device)
        return
    if _is_stretched(link):
        raise WriteError(
            f"this tensor of shape {t.shape} is an expanded view: several of its positions are one "
            "element, so it cannot be written in place. Write to a copy: x.clone()"
        )
    _give(t, node, device, others(t))


def refresh(tensors: Iterable[Tensor]) -> None:
    """The memory of tensors was written: what shows their elements by other memory follows."""
    for t in tensors:
        if t._link is None or len(t._link.storage.aliases) < 2:
            continue
        memory = memory_of(B.floats_of(t.uop))
        group = others(t)
        stale = [o for o in group if memory_of(B.floats_of(o.uop)) is not memory]
        if stale and _path(t._link, t._link.origin.stand_in) is not None:
            fresh = [o for o in group if memory_of(B.floats_of(o.uop)) is memory]
            _give(t, t.uop, t._device, stale, fresh)


def _give(
    t: Tensor, node: UOp, device: str | None, stale: list[Tensor], fresh: Sequence[Tensor] = ()
) -> None:
    """Give t a value, and those their share of it that show its elements and have old ones."""
    if not stale or 0 in node.shape:
        _put(t, _own(t, node), device)
        return
    link = t._link
    assert link is not None, "others show its elements"
    start = link.origin
    base = next((o for o in (*fresh, t, *stale) if o._link is start), None)
    inside: UOp | None = None
    if base is not None and any(o is base for o in fresh):
        whole = base.uop
    else:
        whole, inside = (node, None) if link is start else _spread(link, node)
        if base is not None and inside is not None:
            mixed = B.where(inside, B.floats_of(whole), B.floats_of(base.uop))
            whole, inside = B.like(base.uop, mixed), None
        if base is not None:
            whole = _own(base, whole)
    follows = base is not None and history.is_leaf(base)  # gradients reach it through its node
    changed: list[tuple[Tensor, UOp]] = []
    for o in (t, *stale):
        own = o._link
        assert own is not None, "it shows elements of the same tensor"
        if o is base:
            new = whole
        elif o is t and not follows:
            new = _own(o, node)
        elif not follows and _are_apart(own, link):
            continue
        elif inside is None:
            new = _own(o, own.shown(whole))
        else:
            new = _own(o, _mixed(own, whole, inside, o.uop))
        changed.append((o, new))
    if state.effects is not None:
        for o, _ in changed:
            note_write(o)
    for o, new in changed:
        _put(o, new, device)


def _own(t: Tensor, node: UOp) -> UOp:
    """The node of a new value: a leaf stays one, whatever the value was computed from."""
    if not history.is_leaf(t) or history.is_leaf_node(node):
        return node
    return as_leaf(detached(node))


def _put(t: Tensor, node: UOp, device: str | None) -> None:
    t._device = common_device(t._device, device)
    t.uop = node
    changes[0] += 1


def _is_stretched(link: Link) -> bool:
    return link.layout is not None and strided_layout.shows_twice(link.layout)


def _are_apart(a: Link, b: Link) -> bool:
    one, two = a.layout, b.layout
    return one is not None and two is not None and strided_layout.are_apart(one, two)


def _spread(link: Link, node: UOp) -> tuple[UOp, UOp | None]:
    """The value of a view where its elements are in the origin, and a mask that says where.

    There is no mask where these are all elements.
    """
    stand_in = link.origin.stand_in
    path = _path(link, stand_in)
    if path is None:
        raise WriteError(
            f"this tensor of shape {node.shape} was computed from another that is still in use, "
            "and torch would make it a view. Here it is a copy: write to a clone() of it, or to "
            "the other tensor"
        )
    found = link.layout
    is_all = found is not None and strided_layout.size(found.shape) == strided_layout.size(
        stand_in.shape
    )
    is_all = is_all or all(move.op != O.SHRINK for move in path)
    value = _moved_back(B.floats_of(node), path)
    inside = None if is_all else _moved_back(B.full(path[0].shape, True, dt.bool_), path)
    return B.like(stand_in, value), inside


def _path(link: Link, stand_in: UOp) -> list[UOp] | None:
    """The movement from a view down to its origin; None where elements cannot go that way."""
    bottom, shown = B.floats_of(stand_in), B.floats_of(link.shown(stand_in))
    path = []
    while shown is not bottom:
        if shown.op not in _WRITTEN:
            return None
        path.append(shown)
        shown = shown.src[0]
    return path


def _stand_in(shape: tuple[int, ...], dtype: DType) -> UOp:
    """A node that no constructor looks through."""
    if dtype.is_complex:
        return B.complex_view(_stand_in((*shape, 2), dt.FLOATS_OF[dtype]))
    return as_leaf(B.full(shape, 0, dtype))


_WRITTEN = (*O.MOVEMENT - {O.EXPAND}, O.CONTIGUOUS, O.BITCAST)


def _moved_back(node: UOp, path: Iterable[UOp]) -> UOp:
    """Elements of a view where they are in what it was made of, with zeros for all others."""
    for move in path:
        before, argument = move.src[0], move.arg
        if move.op == O.RESHAPE:
            node = B.reshape(node, before.shape)
        elif move.op == O.PERMUTE:
            node = B.permute(node, tuple([argument.index(a) for a in range(len(argument))]))
        elif move.op == O.FLIP:
            node = B.flip(node, argument)
        elif move.op == O.SHRINK:
            sizes = zip(argument, before.shape, strict=True)
            node = B.pad(node, tuple([(start, n - stop) for (start, stop), n in sizes]))
        elif move.op == O.PAD:
            sizes = zip(argument, before.shape, strict=True)
            node = B.shrink(node, tuple([(start, start + n) for (start, _), n in sizes]))
        elif move.dtype is not before.dtype and node.dtype is not dt.bool_:
            node = B.bitcast(node, before.dtype)
    return node


def _mixed(link: Link, whole: UOp, inside: UOp, before: UOp) -> UOp:
    """The value of a view after a write to some elements of a tensor that is gone."""
    kind = B.floats_of(whole).dtype
    mask = B.floats_of(link.shown(B.like(whole, B.cast(inside, kind))))
    is_written = B.binary(O.NE, mask, B.full(mask.shape, 0, mask.dtype))
    new = B.floats_of(link.shown(whole))
    return B.like(before, B.where(is_written, new, B.floats_of(before)))
