"""Attention as one kernel, where the device has one for it.

softmax(query @ key.T) @ value is three kernels and a matrix of scores in memory unless somebody
can compute it by blocks. ``whole_kernels`` finds the formula in a tensor graph, from the second
product down to the memory it reads, and asks the device whether it takes the whole as one kernel.
Where it does, the storage decision keeps everything inside unstored and stores what the kernel
reads and what it gives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import ParamArg
from svod.ir.build import view_as
from svod.ir.node import UOp, elements, is_symbolic, make, stored_shape
from svod.ir.scan import outer_sources

# Of a device: what says whether it has one good kernel for a body, or None where nothing does.
Takes: TypeAlias = Callable[[str], Callable[[UOp], bool] | None]

_MEMORY = frozenset({O.BUFFER, O.BUFFER_VIEW, O.PARAM, O.MSELECT, O.MSTACK, O.AFTER})
_STORED = frozenset({O.CONTIGUOUS, O.COPY, O.ASSIGN, O.SCATTER, O.CUSTOM_FUNCTION, O.SCAN})
_STORED |= {O.SORT, O.RADIX}


@dataclass(slots=True)
class Whole:
    """What was found: products that are kernels with all they need, and values to store."""

    roots: set[UOp] = field(default_factory=set)
    stored: set[UOp] = field(default_factory=set)


@dataclass(slots=True)
class Formula:
    """One softmax between two products."""

    root: UOp  # the second product's sum
    result: UOp  # the same, converted to the type it is used in
    query: UOp  # factors, as the products see them
    key: UOp
    value: UOp
    inner: list[UOp]  # what nothing else may use
    masks: list[UOp]  # values the scores meet on the way, before they are moved into place


def whole_kernels(order: list[UOp], takes: Takes | None, device_of: Callable[[UOp], str]) -> Whole:
    """Formulas in a graph, given in topological order, that their device takes as one kernel."""
    found = Whole()
    if takes is None:
        return found
    users: dict[UOp, list[UOp]] | None = None
    for node in order:
        if not _is_product(node):
            continue
        is_taken = takes(device_of(node))
        if is_taken is None:
            continue
        if users is None:
            users = _users(order)
        formula = find_attention(node, users)
        if formula is None:
            continue
        operands = [_memory_of(f) for f in (formula.query, formula.key, formula.value)]
        operands += formula.masks
        if not is_taken(_body(formula, operands)):
            continue
        found.roots.add(formula.root)
        found.stored.update([o for o in operands if not _is_stored(o)])
        if [user.op for user in users.get(formula.result, ())] != [O.CONTIGUOUS]:
            found.stored.add(formula.result)
    return found


def find_attention(root: UOp, users: dict[UOp, list[UOp]]) -> Formula | None:
    """The formula that ends in this product."""
    value = root.src[0]
    for weights, values in (value.src, value.src[::-1]):
        inner: list[UOp] = []
        scores = _softmax(weights, inner)
        if scores is None:
            continue
        found = _scores(scores, inner)
        if found is None:
            return None
        product, masks = found
        query, key = product.src[0].src
        inside = {root, value, *inner}
        if any(user not in inside for n in inner for user in users.get(n, ())):
            return None
        return Formula(root, _result(root, users), query, key, values, inner, masks)
    return None


def _is_product(node: UOp) -> bool:
    """A sum of products over one axis."""
    if node.op != O.REDUCE_AXIS or node.arg.op != O.ADD or len(node.arg.axes) != 1:
        return False
    value = node.src[0]
    is_plain = value.op == O.MUL and value.src[0] is not value.src[1]
    return is_plain and not is_symbolic(value.shape)


def _softmax(node: UOp, inner: list[UOp]) -> UOp | None:
    """What a factor is the softmax of, over one axis; the nodes above it go into ``inner``."""
    node = _below(node, inner)
    if node.op not in (O.MUL, O.DIV):
        return None
    is_turned = node.op == O.MUL and node.src[1].op == O.EXP
    grown, total = node.src[::-1] if is_turned else node.src
    if grown.op != O.EXP or grown.src[0].op != O.SUB:
        return None
    total = _below(total, inner)
    if node.op == O.MUL:
        if total.op != O.RECIP:
            return None
        inner.append(total)
        total = _below(total.src[0], inner)
    scores, largest = grown.src[0].src[0], _below(grown.src[0].src[1], inner)
    total, largest = _unguarded(total, inner), _unguarded(largest, inner)
    for fold, op, over in ((total, O.ADD, grown), (largest, O.MAX, scores)):
        if fold.op != O.REDUCE_AXIS or fold.arg.op != op or fold.src[0] is not over:
            return None
    if total.arg.axes != largest.arg.axes or len(total.arg.axes) != 1:
        return None
    inner += [node, grown, grown.src[0], total, largest]
    return scores


def _unguarded(node: UOp, inner: list[UOp]) -> UOp:
    """A maximum or a sum, below what makes rows of minus infinity zeros."""
    if node.op == O.MAX and node.src[1].op == O.CONST:
        inner.append(node)
        return node.src[0]
    if node.op == O.WHERE and node.src[0].op == O.EQ and node.src[0].src[0] is node.src[2]:
        inner += [node, node.src[0]]
        return node.src[2]
    return node


def _scores(node: UOp, inner: list[UOp]) -> tuple[UOp, list[UOp]] | None:
    """The product below the scores, and the values its chain of operations meets."""
    masks: list[UOp] = []
    while True:
        node = _below(node, inner)
        inner.append(node)
        if _is_product(node):
            inner.append(node.src[0])
            return node, masks
        below = [s for s in node.src if _leads_to_product(s)]
        if node.op not in O.ELEMENTWISE or len(below) != 1:
            return None
        for other in node.src:
            if other is not below[0]:
                masks += _values(other)
        node = below[0]


def _leads_to_product(node: UOp) -> bool:
    """Whether a product is reached by elementwise operations and movement alone."""
    seen = {node}
    found = [node]
    for n in found:
        if _is_product(n):
            return True
        if n.op in O.ELEMENTWISE or n.op in O.MOVEMENT or n.op == O.CAST:
            found += [s for s in n.src if s not in seen]
            seen.update(n.src)
    return False


def _values(node: UOp) -> Iterator[UOp]:
    """What must be in memory for a mask: nothing where it is made of counters and constants."""
    if not any(n.op in _MEMORY or n.op in _STORED for n in node.toposort()):
        return
    while node.op in O.MOVEMENT or (node.op == O.CAST and node.src[0].dtype.kind == "f"):
        node = node.src[0]
    yield node


def _below(node: UOp, inner: list[UOp]) -> UOp:
    """Below movement and conversions between floats, which are noted."""
    while node.op in O.MOVEMENT or (node.op == O.CAST and node.src[0].dtype.kind == "f"):
        inner.append(node)
        node = node.src[0]
    return node


def _memory_of(factor: UOp) -> UOp:
    """The value a factor is read from: below its widening and its movement."""
    node = factor
    if node.op == O.CAST and node.src[0].dtype.bits < node.dtype.bits:
        node = node.src[0]
    while node.op in O.MOVEMENT:
        node = node.src[0]
    return node


def _is_stored(node: UOp) -> bool:
    return node.op in _MEMORY or node.op in _STORED


def _result(root: UOp, users: dict[UOp, list[UOp]]) -> UOp:
    """The root, or what it becomes by reshapes and one conversion that all its users want."""
    node = root
    while True:
        above = users.get(node, [])
        if len(above) != 1 or above[0].op not in (O.RESHAPE, O.CAST):
            return root
        node = above[0]
        if node.op == O.CAST:
            return node


def _users(order: list[UOp]) -> dict[UOp, list[UOp]]:
    users: dict[UOp, list[UOp]] = {}
    for node in order:
        for s in dict.fromkeys(outer_sources(node)):
            users.setdefault(s, []).append(node)
    return users


def _body(formula: Formula, operands: list[UOp]) -> UOp:
    """The kernel as the device will see it: the result over PARAMs."""
    result = formula.result
    done: dict[UOp, UOp] = {}
    for slot, operand in enumerate(dict.fromkeys(operands), 1):
        arg = ParamArg(slot, (elements(operand.shape),))
        done[operand] = view_as(make(O.PARAM, operand.dtype, (), arg), operand.shape)
    stack = [result]
    while stack:
        node = stack[-1]
        missing = [s for s in node.src if s not in done] if node not in done else []
        if missing:
            stack += missing
            continue
        stack.pop()
        if node not in done:
            src = tuple([done[s] for s in node.src])
            done[node] = node if src == node.src else make(node.op, node.dtype, src, node.arg)
    arg = ParamArg(0, stored_shape(result.shape))
    target = view_as(make(O.PARAM, result.dtype, (), arg), result.shape)
    return make(O.SINK, dt.void, (make(O.STORE, dt.void, (target, done[result])),))
