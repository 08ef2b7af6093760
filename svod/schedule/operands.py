"""Operands of products that are computed while they are packed.

A matmul on a CPU packs its operands into scratch memory before it multiplies, so a conversion, a
scale or an offset on the way costs one pass over the operand, not one per use. In: a graph.
Out: the values that stay inside such a product: cheap, used by it alone, made from memory alone.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from math import prod

from svod.ir import ops as O
from svod.ir.node import UOp, is_symbolic
from svod.ir.scan import outer_sources

PACKING_DEVICES = frozenset({"CPU"})
TILING_DEVICES = frozenset({"CUDA"})  # their products copy boxes of plain matrices
MAX_OPERATIONS = 6  # of one operand; rows are packed again for every block of columns
MIN_SIDE = 16  # rows, columns and depth below which operands may be read where they are
FEW_ROWS = 3  # from which tensor cores are better than threads, which read all rows for each column
MAX_DEPTH = 8192  # steps of a sum; longer panels do not fit into scratch memory
_MEMORY = frozenset({O.BUFFER, O.BUFFER_VIEW, O.PARAM, O.CONST, O.IOTA, O.AFTER, O.CONTIGUOUS})
_MEMORY |= {O.COPY, O.ASSIGN}


def packed_operands(
    order: list[UOp], device_of: Callable[[UOp], str], apart: Set[UOp] = frozenset()
) -> set[UOp]:
    """The values that their product computes while packing, or that tiles read as they are;
    products ``apart`` do not pack."""
    found: set[UOp] = set()
    users: dict[UOp, int] | None = None
    for node in order:
        if node.op != O.REDUCE_AXIS or node in apart:
            continue
        device = device_of(node).partition(":")[0]
        if device in TILING_DEVICES:
            found.update(_converted_bytes(product_factors(node)))
        factors = product_factors(node, MAX_DEPTH) if device in PACKING_DEVICES else ()
        if not factors:
            continue
        if users is None:
            users = _user_counts(order)
        for factor in factors:
            inside = _cheap(factor, users)
            if inside is not None:
                found.update(inside)
    return found


def _converted_bytes(factors: tuple[UOp, ...]) -> list[UOp]:
    """The conversions of bytes in memory, where that is all both factors are: tiles read bytes."""
    found = []
    for factor in factors:
        casts, is_float = [], factor.dtype.is_float
        while factor.op == O.CAST or factor.op in O.MOVEMENT:
            if factor.op == O.CAST:
                casts.append(factor)
            factor = factor.src[0]
        if factor.op not in _MEMORY or factor.dtype.itemsize != 1:
            return []
        if factor.dtype.is_float is not is_float:
            return []  # integers as floats are multiplied as such
        found += casts
    return found


def tiled_factors(node: UOp) -> tuple[UOp, ...]:
    """The operands of a product for tiles, which may have few rows or columns in 16 bits."""
    factors = product_factors(node, least=FEW_ROWS)
    return factors if are_halves(factors) else product_factors(node)


def are_halves(factors: tuple[UOp, ...]) -> bool:
    """Whether all are converted from 16 bits."""
    inner = [f.src[0] if f.op == O.CAST else f for f in map(unmoved, factors)]
    return all(f.dtype.itemsize == 2 for f in inner)


def unmoved(factor: UOp) -> UOp:
    """What views of a value look at."""
    while factor.op in O.MOVEMENT:
        factor = factor.src[0]
    return factor


def product_factors(node: UOp, most: int | None = None, least: int = MIN_SIDE) -> tuple[UOp, ...]:
    """The operands of a sum of products that has at least so much on every side; nothing for
    others, nor for one of more than ``most`` steps."""
    if node.op != O.REDUCE_AXIS or node.arg.op != O.ADD or node.src[0].op != O.MUL:
        return ()
    product = node.src[0]
    shape = product.shape
    if is_symbolic(shape) or product.src[0] is product.src[1]:
        return ()
    first, second = (moving_axes(s) for s in product.src)
    results = [a for a in range(len(shape)) if a not in node.arg.axes]
    sides = (
        [a for a in results if a in first and a not in second],
        [a for a in results if a in second and a not in first],
        list(node.arg.axes),
    )
    rows, columns, depth = (prod([shape[a] for a in side]) for side in sides)
    if min(rows, columns, depth) < least or (most is not None and depth > most):
        return ()
    return product.src


def moving_axes(factor: UOp) -> set[int]:
    """The axes along which a factor is not the same value again."""
    while factor.op == O.CAST:
        factor = factor.src[0]
    inner = factor.src[0].shape if factor.op == O.EXPAND else factor.shape
    return {a for a, size in enumerate(inner) if size != 1}


def _cheap(factor: UOp, users: dict[UOp, int]) -> list[UOp] | None:
    """What is computed below a factor; None where that is too much, or not its own."""
    found: list[UOp] = []
    stack, seen = [factor], {factor}
    while stack:
        node = stack.pop()
        if node.op in _MEMORY:
            continue
        is_value = node.op in O.ELEMENTWISE
        if users[node] > 1 or not (is_value or node.op in O.MOVEMENT):
            return None
        if is_value:
            found.append(node)
        stack += [s for s in node.src if s not in seen]
        seen.update(node.src)
    return found if 0 < len(found) <= MAX_OPERATIONS else None


def _user_counts(order: list[UOp]) -> dict[UOp, int]:
    users = dict.fromkeys(order, 0)
    for node in order:
        for s in set(outer_sources(node)):
            users[s] += 1
    return users
