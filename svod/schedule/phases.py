"""Products whose rows and columns one loop goes along at once, as where phases lie between others.

The result of a product is read as it lies, or in another order of its axes, or flat: then loops are
still rows or columns, or are cut into some. A transposed convolution under a stride, or pixels that
are shuffled, have a part of the rows beside each column; a tile of such a product is no tile of
what reads it, so the product is stored first, and moved.
"""

from __future__ import annotations

from svod.ir import ops as O
from svod.ir.node import UOp
from svod.schedule.operands import moving_axes, product_factors
from svod.schedule.views import Indices


def product_below(node: UOp) -> UOp | None:
    """The large product that a value is, or is a conversion of."""
    product = node.src[0] if node.op == O.CAST else node
    return product if product_factors(product) else None


def interleaves(product: UOp, indices: Indices) -> bool:
    """Whether a loop around a product goes along both of its sides, and what it ends with is not
    the last axis of one: a flat result ends with that."""
    first, second = map(moving_axes, product_factors(product))
    summed = set(product.arg.axes)
    sides = [sorted(axes - summed) for axes in (first - second, second - first)]
    rows, columns = (frozenset().union(*[indices[a].ranges for a in axes]) for axes in sides)
    return any(not _ends_a_side(r, sides, indices) for r in rows & columns)


def _ends_a_side(r: UOp, sides: list[list[int]], indices: Indices) -> bool:
    for axes in sides:
        inner = [a for a in axes if r in indices[a].ranges and not _is_divided(indices[a], r)]
        if inner:
            place = indices[inner[-1]]
            return inner[-1] == axes[-1] and (place.op == O.MOD or place.ranges == {r})
    return True


def _is_divided(place: UOp, r: UOp) -> bool:
    return any(n.op == O.IDIV and r in n.ranges for n in place.toposort())
