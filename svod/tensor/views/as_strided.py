"""as_strided: a vector read with any strides, by permuting axes or by a gather."""

from __future__ import annotations

from math import prod

from svod.base.errors import ShapeError
from svod.base.strides import Sizes, order_in_memory
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const


def strided(flat: UOp, shape: Sizes, strides: Sizes, offset: int = 0) -> UOp:
    """Element i of the result is ``flat[offset + sum(i * strides)]``."""
    if 0 in shape:
        return B.full(shape, 0, flat.dtype)
    reach = [(n - 1) * s for n, s in zip(shape, strides, strict=True)]
    first, last = (offset + sum([pick(0, r) for r in reach]) for pick in (min, max))
    if first < 0 or last >= flat.shape[0]:
        raise ShapeError(
            f"shape {shape} with strides {strides} from {offset} leaves {flat.shape[0]} elements"
        )
    order = order_in_memory(shape, strides)
    if order is not None and (offset, prod(shape)) == (0, flat.shape[0]):
        back = tuple([order.index(axis) for axis in range(len(shape))])
        return B.permute(B.reshape(flat, tuple([shape[axis] for axis in order])), back)
    place = B.broadcast_to(const(offset, dt.int64), shape)
    for axis, (n, step) in enumerate(zip(shape, strides, strict=True)):
        line = B.binary(O.MUL, B.iota(n), B.broadcast_to(const(step, dt.int64), (n,)))
        line = B.reshape(line, tuple([n if a == axis else 1 for a in range(len(shape))]))
        place = B.binary(O.ADD, place, B.expand(line, shape))
    return B.gather(flat, (place,))


def strided_of(x: UOp, argument: tuple[Sizes, Sizes, int]) -> UOp:
    """The row-major elements of x seen with other strides."""
    shape, strides, offset = argument
    return strided(B.reshape(x, (prod(x.shape),)), shape, strides, offset)
