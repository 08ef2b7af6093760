"""Attention as one kernel, and its gradient as a few, where the device has them.

softmax(query @ key.T) @ value is three kernels and a matrix of scores in memory unless somebody
can compute it by blocks. ``whole_kernels`` finds the formula in a tensor graph, from the second
product down to the memory it reads, and asks the device whether it takes the whole as one kernel.
Where it does, the storage decision keeps everything inside unstored and stores what the kernel
reads and what it gives. Parts of the gradient are found in the same way: the logarithms of sums of
exponentials per row, and products with weights that are made again from those.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import ParamArg
from svod.ir.build import view_as
from svod.ir.capabilities import Capabilities
from svod.ir.node import UOp, elements, is_symbolic, make, stored_shape
from svod.ir.scan import outer_sources
from svod.schedule.products import product_of

_MEMORY = frozenset({O.BUFFER, O.BUFFER_VIEW, O.PARAM, O.MSELECT, O.MSTACK, O.AFTER})
_STORED = frozenset({O.CONTIGUOUS, O.COPY, O.ASSIGN, O.SCATTER, O.CUSTOM_FUNCTION, O.SCAN})
_STORED |= {O.SORT, O.RADIX}


@dataclass(slots=True)
class Whole:
    """What was found: products that are kernels with all they need, and values to store."""

    roots: set[UOp] = field(default_factory=set)
    stored: set[UOp] = field(default_factory=set)
    inside: set[UOp] = field(default_factory=set)  # what such kernels compute


@dataclass(slots=True)
class Formula:
    """A softmax between two products, or a part of its gradient."""

    root: UOp  # the second product's sum, or the logarithms of the first's rows
    result: UOp  # the same, converted to the type it is used in
    factors: list[UOp]  # of all products, as those see them
    inner: set[UOp]  # what nothing but such formulas may use
    values: list[UOp]  # what the scores meet on the way, before it is moved into place


def whole_kernels(order: list[UOp], able: Callable[[UOp], Capabilities]) -> Whole:
    """Formulas in a graph, given in topological order, that their device takes as one kernel."""
    found = Whole()
    formulas: list[Formula] = []
    users: dict[UOp, list[UOp]] = {}
    for node in order:
        if not _is_product(node) and not _is_logarithm(node):
            continue
        if able(node).takes is None:
            continue
        users = users or _users(order)
        formula = find_attention(node, users)
        if formula is not None:
            formulas.append(formula)
    formulas = _closed(formulas, users)
    known: dict[tuple[Capabilities, UOp], bool] = {}  # equal layers are asked about once
    taken = []
    for formula in formulas:
        body, its = _body(formula, _operands(formula)), able(formula.root)
        is_taken = known.get((its, body))
        if is_taken is None:
            is_taken = known[its, body] = its.takes is not None and its.takes(body)
        if is_taken:
            taken.append(formula)
    for formula in _closed(taken, users):
        found.roots.add(formula.root)
        found.inside |= formula.inner
        found.stored.update([o for o in _operands(formula) if not _is_stored(o)])
        if [user.op for user in users.get(formula.result, ())] != [O.CONTIGUOUS]:
            found.stored.add(formula.result)
    return found


def _operands(formula: Formula) -> list[UOp]:
    """What its kernel reads."""
    return [*[_memory_of(f) for f in formula.factors], *formula.values]


def _closed(formulas: list[Formula], users: dict[UOp, list[UOp]]) -> list[Formula]:
    """Those whose inner values are used by such formulas alone; each computes them for itself."""
    while True:
        inside = set[UOp]().union(*[f.inner for f in formulas])
        kept = [
            f for f in formulas
            if all(user in inside for n in f.inner if n is not f.root for user in users.get(n, ()))
        ]  # fmt: skip
        if len(kept) == len(formulas):
            return kept
        formulas = kept


def find_attention(root: UOp, users: dict[UOp, list[UOp]]) -> Formula | None:
    """The formula that ends here, if any."""
    inner: list[UOp] = [root]
    if _is_logarithm(root):
        scores = _logarithm(root, inner)
        return None if scores is None else _with_scores(root, root, scores, [], [], inner)
    value = root.src[0]
    inner.append(value)
    for weights, values in (value.src, value.src[::-1]):
        tried = list(inner)
        scores = _softmax(weights, tried)
        if scores is not None:
            return _with_scores(root, _result(root, users), scores, [values], [], tried)
        tried = list(inner)
        found = _recomputed(weights, tried)
        if found is not None:
            scores, factors, rows = found
            result = _result(root, users)
            return _with_scores(root, result, scores, [*factors, values], rows, tried)
    return None


def _with_scores(
    root: UOp, result: UOp, scores: UOp, factors: list[UOp], values: list[UOp], inner: list[UOp]
) -> Formula | None:
    found = _scores(scores, inner)
    if found is None:
        return None
    product, masks = found
    return Formula(root, result, [*product.src[0].src, *factors], set(inner), [*values, *masks])


def _is_logarithm(node: UOp) -> bool:
    """A sum with a logarithm, as that of a row's exponentials ends."""
    return node.op == O.ADD and node.src[1].op == O.LOG and not is_symbolic(node.shape)


def _logarithm(root: UOp, inner: list[UOp]) -> UOp | None:
    """What this is the logarithm of the sum of the exponentials of, over rows."""
    largest, total = root.src[0], root.src[1].src[0]
    inner += [root.src[1]]
    total, top = _unguarded(total, inner), _unguarded(largest, inner)
    if total.op != O.REDUCE_AXIS or total.src[0].op != O.EXP:
        return None
    grown = total.src[0]
    return _folded(grown, total, top, inner)


def _recomputed(weights: UOp, inner: list[UOp]) -> tuple[UOp, list[UOp], list[UOp]] | None:
    """Weights from the logarithms of their rows, or what scores receive, which is those times the
    difference of a product and a value per row. Returns the scores, the factors of that product
    and the values per row."""
    node = _below(weights, inner)
    rows: list[UOp] = []
    factors: list[UOp] = []
    if node.op == O.MUL and {s.op for s in node.src} == {O.EXP, O.SUB}:
        inner.append(node)
        node, apart = node.src if node.src[0].op == O.EXP else node.src[::-1]
        product = _below(apart.src[0], inner)
        if not _is_product(product):
            return None
        inner += [apart, product, product.src[0]]
        factors += product.src[0].src
        rows.append(_unmoved(apart.src[1], inner))
    if node.op != O.EXP or node.src[0].op != O.SUB:
        return None
    inner += [node, node.src[0]]
    scores, logarithm = node.src[0].src
    rows.append(_unmoved(logarithm, inner))
    if any(elements(row.shape) * 8 > elements(scores.shape) for row in rows):
        return None
    return scores, factors, rows


def _unmoved(node: UOp, inner: list[UOp]) -> UOp:
    """The value below movement, which is noted."""
    while node.op in O.MOVEMENT:
        inner.append(node)
        node = node.src[0]
    return node


def _is_product(node: UOp) -> bool:
    """A sum of products over one axis."""
    found = product_of(node)
    is_plain = found is not None and len(found.k) == 1 and not found.rounded
    return is_plain and not is_symbolic(node.src[0].shape)


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
    inner.append(node)
    return _folded(grown, _unguarded(total, inner), None, inner)


def _folded(grown: UOp, total: UOp, top: UOp | None, inner: list[UOp]) -> UOp | None:
    """The scores below exponentials, their sum over rows and their maximum, which must be ``top``
    where that is given."""
    if grown.src[0].op != O.SUB:
        return None
    scores = grown.src[0].src[0]
    largest = _unguarded(_below(grown.src[0].src[1], inner), inner)
    for fold, op, over in ((total, O.ADD, grown), (largest, O.MAX, scores)):
        if fold.op != O.REDUCE_AXIS or fold.arg.op != op or fold.src[0] is not over:
            return None
    if total.arg.axes != largest.arg.axes or len(total.arg.axes) != 1:
        return None
    inner += [grown, grown.src[0], total, largest]
    return scores if top is None or top is largest else None


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
    """The root, or what it becomes by reshapes, factors and one conversion that all its users
    want."""
    node = root
    while True:
        above = users.get(node, [])
        if len(above) != 1 or not _is_finish(above[0]):
            return root
        node = above[0]
        if node.op == O.CAST:
            return node


def _is_finish(node: UOp) -> bool:
    is_scaled = node.op == O.MUL and any(s.op == O.CONST for s in node.src)
    return is_scaled or node.op in (O.RESHAPE, O.CAST)


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
            done[node] = node.with_sources(src)
    arg = ParamArg(0, stored_shape(result.shape))
    target = view_as(make(O.PARAM, result.dtype, (), arg), result.shape)
    return make(O.SINK, dt.void, (make(O.STORE, dt.void, (target, done[result])),))
