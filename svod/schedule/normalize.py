"""The schedule cache's key: a graph without the identity of its buffers and values of variables.

In: a SINK of a tensor graph. Out: the same graph over placeholders, and what stands behind each.
A placeholder is a PARAM marked with a device; a kernel's own arguments are PARAMs without one.
BUFFER and BUFFER_VIEW become placeholders of their size on their device, BIND one of size 0, and
a BIND inside a shape becomes its variable. Slots count first visits of a walk that depends on
structure alone, so two graphs of the same shape over other data are the very same node.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from svod.base.errors import VariableError
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import BufferRef, IndexCheck, ParamArg
from svod.ir.guards import check_roots, is_check
from svod.ir.node import UOp, make, serial, substitute, toposort
from svod.schedule.sizes import SIZED, map_nodes, replace_in_size

CONTEXT = "schedule cache normalization"
_FIXED = frozenset({O.DEVICE, O.CONST, O.DEFINE_VAR, O.PARAM, O.LUNIQUE})
_LEAVES = _FIXED | {O.BUFFER, O.BUFFER_VIEW, O.UNIQUE}


@dataclass(frozen=True, slots=True)
class Normalization:
    """A normalised sink, and this call's nodes behind its placeholders.

    Its first roots are the checks of indices in the graph, then come those that were given.
    """

    sink: UOp
    parameters: tuple[UOp, ...]  # by slot: a BUFFER, a BUFFER_VIEW or a BIND
    buffers: tuple[UOp, ...]  # every BUFFER of the graph once, the oldest first
    uniques: tuple[UOp, ...] = ()  # by slot of the LUNIQUE that stands for it
    values: dict[str, int] = field(default_factory=dict)  # of bound variables
    origins: dict[int, Any] = field(default_factory=dict)  # user lines by number of node
    checks: tuple[Any, ...] = ()  # user lines of the roots that are checks


def normalize(sink: UOp) -> tuple[UOp, tuple[UOp, ...]]:
    """The sink over placeholders, and the node behind each of them."""
    found = normalization(sink)
    return found.sink, found.parameters


def normalization(sink: UOp, context: str = CONTEXT) -> Normalization:
    """The graph without identities and values; ``context`` is named where two values disagree."""
    order, leaves, has_checks = _walk(sink)
    lines: tuple[Any, ...] = ()
    if has_checks:
        found = check_roots(sink.src)
        lines = tuple([line for _, line in found])
        sink = make(O.SINK, dt.void, (*[root for root, _ in found], *sink.src))
        order, leaves, _ = _walk(sink)
    changed: dict[UOp, UOp] = {}
    parameters: list[UOp] = []
    values: dict[str, int] = {}
    buffers: set[UOp] = set()
    has_uniques = False
    for node in leaves:
        op = node.op
        if op == O.BUFFER:
            arg = ParamArg(len(parameters), (node.arg.size,))
            changed[node] = make(O.PARAM, node.dtype, (node.src[-1],), arg)
            buffers.add(node)
        elif op == O.BUFFER_VIEW:
            base = node.src[0]
            device = base.src[-1] if base.src else make(O.DEVICE, dt.void, (), "CPU")
            arg = ParamArg(len(parameters), (node.arg.size,))
            changed[node] = make(O.PARAM, node.dtype, (device,), arg)
            if base.op == O.BUFFER:
                buffers.add(base)
        elif op == O.BIND:
            bind_value(values, node, context)
            marks = (make(O.DEVICE, dt.void, (), "CPU"), node.src[0])  # graphs of n and m differ
            changed[node] = make(O.PARAM, node.dtype, marks, ParamArg(len(parameters), (0,)))
        else:
            has_uniques = True
            continue
        parameters.append(node)
    order.sort(key=serial)
    _rebuild(order, changed, values, context)
    root = changed.get(sink, sink)
    uniques: tuple[UOp, ...] = ()
    if has_uniques:
        root, uniques = _without_uniques(root)
    ordered = tuple(sorted(buffers, key=serial))
    return Normalization(
        root, tuple(parameters), ordered, uniques, values, _origins(changed), lines
    )


def _origins(changed: dict[UOp, UOp]) -> dict[int, Any]:
    """This call's lines of user code; the normalised nodes carry only numbers to find them by."""
    found: dict[int, Any] = {}
    for node, new in changed.items():
        if node.origin is not None and not is_check(node):
            found[new.sn] = node.origin
            if new.origin is None:
                new.origin = new.sn
    return found


def bind_value(values: dict[str, int], bind: UOp, context: str) -> None:
    """Note the value of a BIND; a variable has one value in a graph."""
    name, value = bind.src[0].arg.name, bind.src[1].arg
    known = values.setdefault(name, value)
    if known != value:
        raise VariableError(f"bind mismatch on variable {name}: {known} != {value} ({context})")


def bound_values(roots: Iterable[UOp], context: str = "bind extraction") -> dict[str, int]:
    """The value of every variable that is bound to a number in these graphs."""
    return normalization(make(O.SINK, dt.void, tuple(roots)), context).values


def restore_variables(found: Normalization) -> UOp:
    """The normalised sink with variables again, for scheduling; buffers stay placeholders.

    A variable stands there without its value, so what is made of it serves every value.
    """
    if found.parameters and not any(p.op == O.BIND for p in found.parameters):
        return found.sink
    mapping = {n: n.src[1] for n in toposort((found.sink,)) if n.op == O.PARAM and len(n.src) == 2}
    return substitute((found.sink,), mapping)[0] if mapping else found.sink


def restore(roots: Sequence[UOp], found: Normalization) -> tuple[UOp, ...]:
    """The roots with this call's nodes in place of placeholders, and new buffers for local ones.

    All roots are restored together: what was one node is one node again. Nothing that is passed
    in changes, so a cached schedule can be restored any number of times.
    """
    mapping: dict[UOp, UOp] = {}
    local: dict[int, UOp] = {}
    for node in toposort(roots):
        op = node.op
        if op == O.PARAM and node.src:
            if node.arg.slot < len(found.parameters):
                mapping[node] = _restored(found.parameters[node.arg.slot], found)
        elif op == O.BUFFER and len(node.src) == 2 and node.src[0].op == O.LUNIQUE:
            slot = node.src[0].arg
            if slot not in local:
                local[slot] = make(O.BUFFER, node.dtype, node.src[1:], BufferRef(node.arg.size))
            mapping[node] = local[slot]
        elif op == O.LUNIQUE:
            known = node.arg < len(found.uniques)
            mapping[node] = found.uniques[node.arg] if known else _fresh_unique()
    if not mapping:
        return tuple(roots)
    if all(not r.src or r in mapping for r in roots):
        return tuple([mapping.get(r, r) for r in roots])
    return substitute(tuple(roots), mapping)


def is_placeholder(node: UOp) -> bool:
    """Whether the node is a PARAM of a cached schedule; a kernel's argument has no device."""
    return node.op == O.PARAM and bool(node.src)


def _walk(sink: UOp) -> tuple[list[UOp], list[UOp], bool]:
    """Every node once: those that may change, the leaves that have an identity or a value, and
    whether there are marks of indices to check.

    The order depends on structure alone.
    """
    has_checks = False
    seen = {sink}
    stack = [sink]
    order: list[UOp] = []
    leaves: list[UOp] = []
    while stack:
        node = stack.pop()
        op = node.op
        if op in _LEAVES or (op == O.BIND and node.src[1].op == O.CONST):
            if op not in _FIXED:
                leaves.append(node)
            continue
        order.append(node)
        sources = node.src
        if op == O.BITCAST:
            sources = sources[:1]  # marks have more, for gradients
            has_checks = has_checks or type(node.arg) is IndexCheck
        for s in reversed(sources):  # the first source comes off the stack first
            if s not in seen:
                seen.add(s)
                stack.append(s)
    return order, leaves, has_checks


def _rebuild(
    order: list[UOp], changed: dict[UOp, UOp], values: dict[str, int], context: str
) -> None:
    """Put replaced nodes into everything above them; ``order`` has sources first."""

    def unbound(size: UOp) -> UOp | int:
        binds = [n for n in size.toposort() if n.op == O.BIND and n.src[1].op == O.CONST]
        for bind in binds:
            bind_value(values, bind, context)
        return replace_in_size(size, {b: b.src[0] for b in binds}) if binds else size

    marks: dict[object, int] = {}
    known = changed.get
    keeps_shapes = not values  # run-time sizes in shapes lose what they are bound to
    for node in order:
        src, op, arg = node.src, node.op, node.arg
        if op == O.BITCAST:
            if type(arg) is IndexCheck:
                changed[node] = known(src[0], src[0])
                continue
            arg, src = None, src[:1]  # what gradients think of it
        if len(src) == 1:
            first = src[0]
            new: tuple[UOp, ...] = (known(first, first),)
        else:
            new = tuple([known(s, s) for s in src])
        if op in SIZED:
            if type(arg) is not int and _holds_nodes(arg):
                arg = map_nodes(arg, unbound)
                keeps_shapes = False
        elif op == O.MAX or op == O.MIN:
            arg = None  # who gets the gradient of equal operands
        elif op == O.CONTIGUOUS and arg is not None:
            arg = marks.setdefault(arg, len(marks))  # which tensor it is, not which object
        if new != node.src or arg is not node.arg:
            changed[node] = made = make(op, node.dtype, new, arg)
            if keeps_shapes and made._shape is None:
                made._shape = node._shape


def _holds_nodes(arg: Any) -> bool:
    """Whether an argument may hold nodes: plain tuples of numbers, and of pairs, do not."""
    if type(arg) is not tuple:
        return True
    for a in arg:
        kind = type(a)
        if kind is tuple:
            for b in a:
                if type(b) is not int:
                    return True
        elif kind is not int:
            return True
    return False


def _without_uniques(sink: UOp) -> tuple[UOp, tuple[UOp, ...]]:
    """Stand-alone UNIQUEs as slots; those of buffers are gone by now."""
    uniques = [n for n in _walk(sink)[1] if n.op == O.UNIQUE]
    mapping = {n: make(O.LUNIQUE, dt.void, (), slot) for slot, n in enumerate(uniques)}
    return substitute((sink,), mapping)[0], tuple(uniques)


def _restored(original: UOp, found: Normalization) -> UOp:
    if original.op == O.BUFFER or original is found.sink:
        return original
    if any(is_placeholder(n) for n in original.toposort()):
        return restore((original,), found)[0]
    return original


def _fresh_unique() -> UOp:
    return make(O.UNIQUE, dt.void, (), BufferRef(0).id)
