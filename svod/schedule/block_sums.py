"""Sums in blocks that have scales of their own: which sums stay inside of another one.

``y[m, n] = sum over g of scale[n, g] * float(sum over k of q[n, g, k] * x[m, g, k])``, as products
with quantised weights are: the inner sum multiplies whole numbers of a byte, and each step of the
outer one needs one of them. Stored, there would be as many as the weights have blocks; inside, one
is a few instructions on registers. The expressions that make weights and scales of memory stay
inside too: what a run reads is what memory holds, and nothing is decoded beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.capabilities import Capabilities
from svod.ir.node import UOp, elements
from svod.ir.scan import outer_sources
from svod.schedule.products import BYTES, Product, exact_dtypes, product_of
from svod.schedule.work import EFFECTS, LEAVES

MAX_TERMS = 256  # of an inner sum: the longest blocks that share a scale
MAX_VALUES = 64  # between both sums, views too; formulas of block formats have some 20


def block_sums(order: list[UOp], able: Callable[[UOp], Capabilities]) -> set[UOp]:
    """The inner sums, what leads from them to the outer ones, and what is made of memory alone."""
    found: set[UOp] = set()
    users: dict[UOp, int] = {}
    for node in order:
        if node.op != O.REDUCE_AXIS or node.dtype is not dt.float32 or node.arg.op != O.ADD:
            continue
        if able(node).packs_operands and (inside := _inside(node)) is not None:
            users = users or _user_counts(order)
            if all(users[n] == 1 for n in inside.path):
                found |= inside.values
    return found


class _Inside(NamedTuple):
    path: set[UOp]  # from the inner sum to the outer one
    values: set[UOp]  # that stay inside


def _inside(node: UOp) -> _Inside | None:
    """What stays inside of a sum of floats; None where no sum of products of bytes is in it."""
    order = _values(node.src[0], lambda n: n.op == O.REDUCE_AXIS)
    sums = [n for n in order if n.op == O.REDUCE_AXIS]
    products = [p for p in map(product_of, sums) if p is not None and _is_of_bytes(p)]
    if len(products) != 1 or len(order) > MAX_VALUES:
        return None
    inner, sizes = products[0].reduction, products[0].sizes
    terms = elements(node.src[0].shape) // max(1, elements(node.shape))
    # Both factors move along the blocks that are summed: else it is a product of its own, which is
    # summed by what follows it.
    if sizes.k > MAX_TERMS or sizes.batch < terms:
        return None
    if elements(inner.shape) < elements(node.src[0].shape):
        return None  # needed more often than it has elements
    path = {inner}
    for value in order:  # sources first
        if not path.isdisjoint(value.src):
            path.add(value)
    known: dict[UOp, bool] = {}
    found = {n for n in order if n in path or _is_decoded(n, known)}
    for factor in products[0].operands:
        below = _values(factor, lambda n: False)
        if _is_decoded(factor, known) and all(n.dtype.kind in "iub" for n in below):
            found.update(below)
    found.add(inner.src[0])
    kept = {n for n in found if n.op in O.ELEMENTWISE or n.op == O.REDUCE_AXIS}
    return _Inside(path, kept)


def _user_counts(order: list[UOp]) -> dict[UOp, int]:
    users = dict.fromkeys(order, 0)
    for node in order:
        for s in set(outer_sources(node)):
            users[s] = users.get(s, 0) + 1
    return users


def _values(top: UOp, ends: Callable[[UOp], bool]) -> list[UOp]:
    """What is computed for a value, sources first, down to memory, or to ends, which are there."""
    found: list[UOp] = []
    stack: list[tuple[UOp, bool]] = [(top, False)]
    seen: set[UOp] = set()
    while stack:
        node, is_done = stack.pop()
        if is_done:
            found.append(node)
            continue
        is_end = ends(node)
        if node in seen or not (is_end or node.op in O.ELEMENTWISE or node.op in O.MOVEMENT):
            continue
        seen.add(node)
        stack.append((node, True))
        stack += [(s, False) for s in node.src] if not is_end else []
    return found


def _is_of_bytes(product: Product[int]) -> bool:
    is_sum = product.reduction.dtype is dt.int32 and not product.rounded
    return is_sum and all(set(BYTES) & set(exact_dtypes(f)) for f in product.operands)


def _is_decoded(value: UOp, known: dict[UOp, bool]) -> bool:
    """Whether a value is made of narrow memory alone, element by element: of bytes, words of bits
    and floats of 16 bits, which take less to read than what is made of them would."""
    found = known.get(value)
    if found is None:
        if value.op in O.ELEMENTWISE or value.op in O.MOVEMENT:
            found = all(_is_decoded(s, known) for s in value.src)
        elif value.op in (O.CONST, O.IOTA):
            found = True
        elif value.op == O.GATHER:  # of memory, at places that are there
            found = _is_decoded(value.src[0], known)
        else:
            found = (value.op in LEAVES or value.op in EFFECTS) and value.dtype.itemsize <= 2
        known[value] = found
    return found
