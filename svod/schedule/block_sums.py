"""Sums in blocks that have scales of their own: which sums stay inside of another one.

``y[m, n] = sum over g of scale[n, g] * float(sum over k of q[n, g, k] * x[m, g, k])``, as products
with quantised weights are: the inner sum multiplies whole numbers of a byte, and each step of the
outer one needs one of them. Stored, there would be as many as the weights have blocks; inside, one
is a few instructions on registers. The expressions that make weights and scales of memory stay
inside too: what a run reads is what memory holds, and nothing is decoded beforehand.
"""

from __future__ import annotations

from collections.abc import Callable

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.capabilities import Capabilities
from svod.ir.node import UOp, elements
from svod.schedule.products import BYTES, Product, exact_dtypes, product_of
from svod.schedule.work import EFFECTS, LEAVES

MAX_VALUES = 48  # computed around and below the inner sum; formulas of block formats have some 20


def block_sums(order: list[UOp], able: Callable[[UOp], Capabilities]) -> set[UOp]:
    """The inner sums, what leads from them to the outer ones, and what is made of memory alone."""
    found: set[UOp] = set()
    for node in order:
        if node.op != O.REDUCE_AXIS or node.dtype is not dt.float32 or node.arg.op != O.ADD:
            continue
        if able(node).packs_operands:
            found |= _inside(node)
    return found


def _inside(node: UOp) -> set[UOp]:
    """What stays inside of a sum of floats; empty where no sum of products of bytes is in it."""
    values: list[UOp] = []  # users first
    products: list[Product[int]] = []
    stack, seen = [node.src[0]], {node.src[0]}
    while stack:
        here = stack.pop()
        if here.op == O.REDUCE_AXIS:
            product = product_of(here)
            if product is None or not _is_of_bytes(product):
                continue  # a sum of its own, as scales of the other operand come from
            products.append(product)
        elif here.op not in O.ELEMENTWISE and here.op not in O.MOVEMENT:
            continue
        values.append(here)
        if len(values) > MAX_VALUES:
            return set()
        stack += [s for s in here.src if s not in seen]
        seen.update(here.src)
    if len(products) != 1:
        return set()
    inner = products[0].reduction
    if elements(inner.shape) < elements(node.src[0].shape):
        return set()  # needed more often than it has elements
    known: dict[UOp, bool] = {}
    return {
        value
        for value in values
        if value.op not in O.MOVEMENT and (inner in value.toposort() or _is_of_memory(value, known))
    }


def _is_of_bytes(product: Product[int]) -> bool:
    is_sum = product.reduction.dtype is dt.int32 and not product.rounded
    return is_sum and all(set(BYTES) & set(exact_dtypes(f)) for f in product.operands)


def _is_of_memory(value: UOp, known: dict[UOp, bool]) -> bool:
    """Whether a value is made of memory alone, element by element."""
    found = known.get(value)
    if found is None:
        if value.op in O.ELEMENTWISE or value.op in O.MOVEMENT:
            found = all(_is_of_memory(s, known) for s in value.src)
        else:
            found = value.op in LEAVES or value.op in EFFECTS
        known[value] = found
    return found
