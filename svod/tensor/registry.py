"""All live tensors, and the way from a node to its memory.

Realising a graph replaces nodes in every tensor that mentions them, so tensors register here
at birth. The set holds weak references; its own ``discard`` is their callback, so a tensor
that dies leaves without any Python code running.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import ref

from svod.base.errors import DeviceError
from svod.ir import ops as O
from svod.ir.build import whole_of
from svod.ir.node import UOp, substitute
from svod.tensor.history import record

if TYPE_CHECKING:
    from svod.device.buffer import Buffer
    from svod.tensor.tensor import Tensor

_live: set[ref[Any]] = set()
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
    record(mapping)
    tensors = live_tensors()
    roots = {t.uop for t in tensors}
    before = tuple(roots)
    after = dict(zip(before, substitute(before, mapping), strict=True))
    for t in tensors:
        new = after[t.uop]
        if new is not t.uop:
            t.uop = new


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
        offset = found.arg.offset * found.dtype.itemsize
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
