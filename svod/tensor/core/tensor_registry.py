"""The registry of all live tensors, and the buffer behind the node of a tensor.

Realising a graph replaces nodes in every tensor that mentions them, so tensors register here
at birth. The set holds weak references; its own ``discard`` is their callback, so a tensor
that dies leaves without any Python code running.
"""

from __future__ import annotations

from threading import get_ident
from typing import TYPE_CHECKING, Any
from weakref import WeakSet, ref

from svod.base.errors import DeviceError
from svod.base.locks import OUTER, held_lock
from svod.ir import ops as O
from svod.ir.args import BufferRef
from svod.ir.build import complex_view, floats_of, view_as, whole_of
from svod.ir.node import UOp, make, serial
from svod.tensor.core.history import record, share_history

if TYPE_CHECKING:
    from svod.device.buffer import Buffer
    from svod.tensor.tensor import Tensor

_live: set[ref[Any]] = set()
changes = [0]  # counts new tensors and values given to old ones; equal counts mean no change
collected: dict[int, Collected] = {}  # by thread, where a block wants to know what is made in it
_FEW = 1024
_replacing = held_lock(OUTER)
_add = _live.add
_discard = _live.discard


def register(tensor: Any) -> None:
    """Remember a tensor for as long as it lives."""
    changes[0] += 1
    known = ref(tensor, _discard)
    _add(known)
    if collected:
        collect(known)


def collect(known: ref[Any]) -> None:
    """Note a new tensor for the block of this thread that asks for them."""
    here = collected.get(get_ident())
    if here is None:
        return
    here.append(known)
    if len(here) >= here.limit:
        here[:] = [r for r in here if r() is not None]
        here.limit = max(_FEW, 2 * len(here))


class Collected(list["ref[Any]"]):
    """The tensors that one thread has made for some time; dead ones leave now and then."""

    limit = _FEW


def live_tensors() -> list[Tensor]:
    """Every tensor alive now."""
    while True:
        try:
            found = [r() for r in list(_live)]
        except RuntimeError:  # a tensor died while the set was read
            continue
        return [t for t in found if t is not None]


def replace_nodes(mapping: dict[UOp, UOp], owners: dict[UOp, Tensor] | None = None) -> None:
    """Put new nodes in place of old ones in every live tensor.

    ``owners`` names the tensor a node was computed for; its views show its memory. Others made by
    an equal expression, and views of such, get a BUFFER of their own that shows the same memory
    until somebody writes.
    """
    if all(old is new for old, new in mapping.items()):
        return
    changes[0] += 1
    record(mapping)
    oldest = min([node.sn for node in mapping])
    owners = owners or {}
    with _replacing:
        # What was made before a node cannot contain it.
        tensors = [t for t in live_tensors() if t.uop.sn >= oldest]
        for here, found in _by_device(tensors, mapping):
            _replace(here, found, owners, oldest)


def _replace(
    tensors: list[Tensor], mapping: dict[UOp, UOp], owners: dict[UOp, Tensor], oldest: int
) -> None:
    after = _substitute({t.uop for t in tensors}, mapping, oldest)
    for t in tensors:
        base = t.uop
        while base not in owners and base.op in O.VIEWS:
            base = base.src[0]
        owner = owners.get(base)
        is_others = owner is not None and owner is not t and not _is_alias(t, owner)
        if is_others and base in mapping:
            t.uop = moved_to(t.uop, base, twin_of(mapping[base]))
        else:
            new = after.get(t.uop)
            if new is None:
                continue
            t.uop = new
        if t._device is None:  # what has memory is somewhere
            t._device = device_below(t.uop)


def _by_device(
    tensors: list[Tensor], mapping: dict[UOp, UOp]
) -> list[tuple[list[Tensor], dict[UOp, UOp]]]:
    """The tensors of each device, with what is replaced in them.

    A value that reads no memory is computed wherever a tensor wants it: what one device made of it
    is not put into tensors of another.
    """
    places = {t._device for t in tensors}
    if len(places - {None}) < 2:
        return [(tensors, mapping)]
    made = {old: device_below(mapping[old]) for old in mapping if device_below(old) is None}
    if not made:
        return [(tensors, mapping)]
    return [
        (
            [t for t in tensors if t._device == place],
            {old: new for old, new in mapping.items() if place in (None, made.get(old, place))},
        )
        for place in places
    ]


def _is_alias(t: Tensor, owner: Tensor) -> bool:
    """Whether two tensors show elements of one, and may share its memory."""
    if t._link is None or owner._link is None:
        return False
    return t._link.origin is owner._link.origin


def _substitute(roots: set[UOp], mapping: dict[UOp, UOp], oldest: int) -> dict[UOp, UOp]:
    """New nodes for all that change, looking only at nodes as young as the oldest replaced one."""
    seen = set(roots)
    order = list(roots)
    for node in order:  # grows while it is read
        if node not in mapping:
            for s in node.src:
                if s.sn >= oldest and s not in seen:
                    seen.add(s)
                    order.append(s)
    order.sort(key=serial)
    done = dict(mapping)
    for node in order:
        if node not in done and node.src:
            new = node.with_sources(tuple([done.get(s, s) for s in node.src]))
            if new is not node:
                done[node] = new
    return done


def device_below(node: UOp) -> str | None:
    """The device that a value is computed on; None where it reads no memory."""
    seen = {node}
    pending = [node]
    while pending:
        n = pending.pop()
        if n.op == O.COPY:
            return str(n.src[1].arg)
        if n.op == O.BUFFER:
            return str(n.src[-1].arg)
        for s in reversed(n.src):
            if s not in seen:
                seen.add(s)
                pending.append(s)
    return None


# -- tensors made alike ----------------------------------------------------------------------------


class Alike:
    """BUFFERs of tensors made by equal expressions; the owner keeps the memory."""

    __slots__ = ("members", "owner")

    def __init__(self, owner: BufferRef) -> None:
        self.owner = ref(owner)
        self.members: WeakSet[BufferRef] = WeakSet((owner,))
        owner.alike = self


def moved_from(node: UOp) -> UOp:
    """What a node shows, seen through movement."""
    while node.op in O.VIEWS:
        node = node.src[0]
    return node


def is_memory(node: UOp) -> bool:
    """Whether a node shows memory, now or once it is written, that later writes would change."""
    return moved_from(floats_of(node)).op in _MEMORY


_MEMORY = (O.BUFFER, O.BUFFER_VIEW, O.AFTER, O.ASSIGN)


def moved_to(node: UOp, base: UOp, new: UOp) -> UOp:
    """The same view of another value."""
    if node is base:
        return new
    return make(node.op, node.dtype, (moved_to(node.src[0], base, new),), node.arg)


def twin_of(node: UOp, has_history: bool = True) -> UOp:
    """The value of a node over a BUFFER, with a BUFFER of its own over the same memory."""
    if node.op == O.COMPLEX:
        return complex_view(twin_of(node.src[0], has_history))
    base = whole_of(node)
    group = base.arg.alike or Alike(base.arg)
    twin = make(O.BUFFER, base.dtype, base.src, BufferRef(base.arg.size, base.arg.buffer))
    twin.arg.placed = base.arg.placed
    twin.arg.alike = group
    group.members.add(twin.arg)
    if has_history:
        share_history(base, twin)
    return view_as(twin, node.shape)


def own_memory(node: UOp) -> None:
    """Let nobody else show the memory behind a node by having been made alike: it is written."""
    base = moved_from(node)
    while base.op in (O.ASSIGN, O.AFTER, O.BUFFER_VIEW):
        base = moved_from(base.src[0])
    if base.op != O.BUFFER or base.arg.alike is None:
        return
    with _replacing:
        group, mine = base.arg.alike, base.arg
        if group is None:
            return
        mine.alike = None
        group.members.discard(mine)
        others = list(group.members)
        if not others:
            return
        if group.owner() not in (mine, None):
            mine.buffer = mine.buffer.copied()
            return
        memory = mine.buffer.copied()
        rest = Alike(others[0])
        for other in others:
            other.buffer, other.alike = memory, rest
            rest.members.add(other)


def buffer_node(node: UOp) -> UOp | None:
    """The BUFFER a node is, seen through reshapes; None for anything that is computed."""
    node = whole_of(node)
    return node if node.op in (O.BUFFER, O.BUFFER_VIEW) else None


def buffer_of(node: UOp) -> Buffer | None:
    """The memory behind a BUFFER node (or reshapes of one), or None before there is any."""
    if node.op == O.COMPLEX:
        pairs = buffer_of(node.src[0])
        return None if pairs is None else pairs.cast_to(node.dtype)
    found = buffer_node(node)
    if found is None:
        return None
    if found.op == O.BUFFER_VIEW:
        whole = found.src[0].arg.buffer
        if whole is None:
            return None
        offset = found.arg.offset * whole.dtype.itemsize
        view: Buffer = whole.view(offset, found.arg.size, found.dtype)
        return view
    buffer: Buffer | None = found.arg.buffer
    return buffer


def attach(node: UOp, buffer: Buffer) -> None:
    """Give a BUFFER node its memory."""
    found = buffer_node(node)
    if found is None or found.op != O.BUFFER:
        raise DeviceError(f"only a BUFFER node can hold memory, not {O.NAMES[node.op]}")
    found.arg.buffer = buffer
