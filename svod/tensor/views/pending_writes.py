"""Pending writes: which tensors must be realised together with an assignment.

An assignment happens once: a graph that contains one makes it, and every tensor that mentions it
shows memory afterwards. Values that were computed from the memory before, and wait to be realised,
are computed together with it, for later they would read what was written. Views of what is written
stay views.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import TYPE_CHECKING, Any

from svod.base.errors import GraphError
from svod.ir import ops as O
from svod.ir.build import contiguous, floats_of
from svod.ir.node import UOp, make
from svod.ir.scan import outer_order
from svod.ir.sweep import count_of
from svod.tensor.core import tensor_registry, tracing
from svod.tensor.core.tensor_core import wrap
from svod.tensor.views.aliases import family

if TYPE_CHECKING:
    from svod.tensor.tensor import Tensor

MANY = 4096  # nodes remembered as harmless


def with_writes(pending: Sequence[Tensor]) -> list[Tensor]:
    """The tensors, the assignments in their graphs, and what reads the memory before."""
    found = list(pending)
    if not count_of(O.ASSIGN):
        return found
    while True:
        made = assignments(found)
        new = _not_yet(made, found)
        families = {
            family(t) for t in tensor_registry.live_tensors() if floats_of(t.uop) in set(made)
        }
        new += readers({tracing.memory_of(node) for node in made}, [*found, *new], families)
        if not new:
            return found
        found += new


def assignments(tensors: Iterable[Tensor]) -> list[UOp]:
    """The assignments that computing the tensors makes."""
    if not count_of(O.ASSIGN):
        return []
    return [n for n in outer_order([t.uop for t in tensors]) if n.op == O.ASSIGN]


def waiting() -> list[Tensor]:
    """The live tensors whose assignments have not happened yet, oldest first."""
    found = [t for t in tensor_registry.live_tensors() if floats_of(t.uop).op == O.ASSIGN]
    return sorted(found, key=lambda t: t.uop.sn)


def is_copied(assignment: UOp, t: Tensor) -> bool:
    """Whether tensors that show no elements of t have the values of an assignment to it as they
    are, or moved: another write to the memory would reach them."""
    own = family(t)
    return any(
        tensor_registry.moved_from(floats_of(o.uop)) is assignment and family(o) != own
        for o in tensor_registry.live_tensors()
    )


def overdue(
    reads: Set[UOp], writes: Set[UOp], harmless: set[int], families: Set[Any]
) -> list[Tensor]:
    """The live tensors to realise before a plan reads and writes memory.

    These are the assignments to what it reads, and what was computed from memory it writes for
    tensors of these families. Nodes that have nothing to do with either are remembered in
    ``harmless``.
    """
    lazy = []
    due = []
    for t in tensor_registry.live_tensors():
        node = t.uop
        memory = node.src[0] if node.op == O.RESHAPE else node
        if memory.op == O.BUFFER:
            if memory in writes and _is_copy(t, families):
                due.append(t)
        elif node.sn not in harmless:
            lazy.append(t)
    if not lazy:
        return due
    lazy.sort(key=lambda t: t.uop.sn)
    assigned: set[UOp] = set()
    computed: set[UOp] = set(writes)
    lost: set[UOp] = set()
    for node in outer_order([t.uop for t in lazy]):
        if node.op == O.BUFFER:
            if tracing.is_gone(node):
                lost.add(node)
            continue
        for kind in (assigned, computed, lost):
            if not kind.isdisjoint(node.src):
                kind.add(node)
        if node.op == O.ASSIGN and tracing.memory_of(node) in reads:
            assigned.add(node)
    for t in lazy:
        node = t.uop
        shows = tracing.memory_of(node) in writes
        is_computed = node in computed and (not shows or _is_copy(t, families))
        if (node in assigned or is_computed) and node not in lost:
            due.append(t)
        elif not shows:
            harmless.add(node.sn)
    if len(harmless) > MANY:
        harmless.clear()
    return due


def deferred(tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors that can be computed now; assignments among the others happen in the plan."""
    effects = tracing.state.effects
    found = []
    written: dict[UOp, list[UOp]] = {}  # memory -> new assignments to it
    writers: list[Tensor] = []
    for t in tensors:
        node = floats_of(t.uop)
        if effects is not None and id(t) in effects.written and node.op != O.ASSIGN:
            continue  # it is written by the plan
        if not tracing.is_traced(node):
            found.append(t)
        elif node.op == O.ASSIGN and effects is not None:
            if tracing.state.loops:
                raise GraphError("a tensor cannot be assigned to inside a scan: make it a carry")
            if node not in effects.assigned:
                effects.assigned[node] = None
                written.setdefault(tracing.memory_of(node), []).append(node)
                writers.append(t)
    if written and effects is not None:
        effects.writers += writers
        _read_later(written, writers)
    return found


def _read_later(written: dict[UOp, list[UOp]], writers: list[Tensor]) -> None:
    """Views of written memory show the new values from now on; what was computed keeps its own."""
    families = {family(t) for t in writers}
    for t in tensor_registry.live_tensors():
        node = tensor_registry.moved_from(t.uop)
        base = node.src[0] if node.op == O.AFTER else node
        if base in written and family(t) in families:
            effects = node.src[1:] if node.op == O.AFTER else ()
            later = make(O.AFTER, base.dtype, (base, *effects, *written[base]))
            later._shape = base.shape
            t.uop = tensor_registry.moved_to(t.uop, node, later)


def _not_yet(made: list[UOp], known: list[Tensor]) -> list[Tensor]:
    roots = {floats_of(t.uop) for t in known}
    devices = [t._device for t in known]
    return [wrap(node, devices[0]) for node in made if node not in roots]


def readers(targets: set[UOp], known: list[Tensor], families: Set[Any]) -> list[Tensor]:
    """Live tensors that are computed from this memory and not realised, oldest first.

    What shows the memory as a view of a tensor of these families will show what is written.
    """
    if not targets:
        return []
    own = {id(t) for t in known}
    oldest = min([node.sn for node in targets])
    live = [t for t in tensor_registry.live_tensors() if t.uop.sn >= oldest and id(t) not in own]
    live.sort(key=lambda t: t.uop.sn)  # the same graph each time, so that its schedule is found
    reading = set(targets)
    for node in outer_order([t.uop for t in live]):
        if any(s in reading for s in node.src):
            reading.add(node)
    found = []
    for t in live:
        if t.uop in reading:
            shows = tracing.memory_of(t.uop) in targets
            if not shows or _is_copy(t, families):
                found.append(t)
    return found


def _is_copy(t: Tensor, families: Set[Any]) -> bool:
    """Whether a tensor that shows memory is to keep its values: then it gets memory of its own."""
    if tensor_registry.moved_from(floats_of(t.uop)).op != O.BUFFER or family(t) in families:
        return False
    t.uop = contiguous(t.uop)
    return True
