"""All live tensors, and the way from a node to its memory.

Realising a graph replaces nodes in every tensor that mentions them, so tensors register here
at birth. The set holds weak references; its own ``discard`` is their callback, so a tensor
that dies leaves without any Python code running.
"""

from __future__ import annotations

from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import ref

from svod.base.errors import DeviceError
from svod.ir import ops as O
from svod.ir.build import whole_of
from svod.ir.node import UOp, make
from svod.tensor.history import record

if TYPE_CHECKING:
    from svod.device.buffer import Buffer
    from svod.tensor.tensor import Tensor

_live: set[ref[Any]] = set()
_replacing = Lock()
_serial = attrgetter("sn")
_add = _live.add
_discard = _live.discard


def register(tensor: Any) -> None:
    """Remember a tensor for as long as it lives."""
    _add(ref(tensor, _discard))


def live_tensors() -> list[Tensor]:
    """Every tensor alive now."""
    while True:
        try:
            found = [r() for r in list(_live)]
        except RuntimeError:  # a tensor died while the set was read
            continue
        return [t for t in found if t is not None]


def replace_nodes(mapping: dict[UOp, UOp]) -> None:
    """Put new nodes in place of old ones in every live tensor."""
    if all(old is new for old, new in mapping.items()):
        return
    record(mapping)
    oldest = min([node.sn for node in mapping])
    with _replacing:
        # What was made before a node cannot contain it.
        tensors = [t for t in live_tensors() if t.uop.sn >= oldest]
        after = _substitute({t.uop for t in tensors}, mapping, oldest)
        for t in tensors:
            new = after.get(t.uop)
            if new is not None:
                t.uop = new


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
    order.sort(key=_serial)
    done = dict(mapping)
    for node in order:
        if node not in done and node.src:
            src = tuple([done.get(s, s) for s in node.src])
            if src != node.src:
                done[node] = make(node.op, node.dtype, src, node.arg)
    return done


def buffer_node(node: UOp) -> UOp | None:
    """The BUFFER a node is, seen through reshapes; None for anything that is computed."""
    node = whole_of(node)
    return node if node.op in (O.BUFFER, O.BUFFER_VIEW) else None


def buffer_of(node: UOp) -> Buffer | None:
    """The memory behind a BUFFER node (or reshapes of one), or None before there is any."""
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
