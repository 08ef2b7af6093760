"""What a contraction is: ``C[b, m, n] = finish(sum over k of rows[b, m, k] * columns[b, k, n])``.

A Product says which axes are batch, m, n and k and which factors are its operands: ``product_of``
for a sum of a tensor graph, where axes are numbers, `svod.optimize.contraction` for a kernel, where
they are loops. Whoever decides about products asks here: what is stored, packed, copied, split, in
which order of axes. An Operand says what a tile would read of a factor: the dtype it multiplies,
the view without repeats, and what that is a view of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Generic, NamedTuple, TypeVar

from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.node import UOp, is_symbolic, largest, make
from svod.schedule.cache import Cache
from svod.schedule.costs_cpu import CPU
from svod.schedule.costs_gpu import GPU
from svod.schedule.views import Indices

# rows, columns and depth below which operands may be read where they are
MIN_SIDE = CPU.packed_side
# from which tensor cores are better than threads, which read all rows for each column
FEW_ROWS = GPU.few_rows
MIN_TERMS = CPU.heavy_terms  # of a sum that counts as heavy
HALVES = (dt.bfloat16, dt.float16)
BYTES = (dt.int8, dt.uint8)
FLOAT8 = (dt.float8_e4m3, dt.float8_e5m2)
CACHE_ENTRIES = 4096

Axis = TypeVar("Axis", int, UOp)


class Sizes(NamedTuple):
    """Products, rows, columns and steps of the sum; the largest where one is not known."""

    batch: int
    m: int
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class Product(Generic[Axis]):
    """A sum of products of two operands, one of which moves with m, the other with n."""

    reduction: UOp
    rows: UOp
    columns: UOp
    batch: tuple[Axis, ...]
    m: tuple[Axis, ...]
    n: tuple[Axis, ...]
    k: tuple[Axis, ...]
    sizes: Sizes
    rounded: bool = False  # whether products are converted before they are added

    @property
    def operands(self) -> tuple[UOp, UOp]:
        return self.rows, self.columns

    def turned(self) -> Product[Axis]:
        """The same with rows as columns."""
        batch, m, n, k = self.sizes
        return Product(
            self.reduction, self.columns, self.rows, self.batch, self.n, self.m, self.k,
            Sizes(batch, n, m, k), self.rounded,
        )  # fmt: skip


def product_from(
    reduction: UOp,
    operands: tuple[UOp, UOp],
    axes: Iterable[Axis],
    summed: Iterable[Axis],
    moves: Callable[[UOp, Axis], bool],
    size: Callable[[Axis], int],
    rounded: bool = False,
) -> Product[Axis]:
    """A product from its parts: ``moves`` says whether an operand changes along an axis."""
    rows, columns = operands
    batch: list[Axis] = []
    m: list[Axis] = []
    n: list[Axis] = []
    for axis in axes:
        down, along = moves(rows, axis), moves(columns, axis)
        (m if down and not along else n if along and not down else batch).append(axis)
    k = tuple(summed)
    sizes = Sizes(*[prod(map(size, part)) for part in (batch, m, n, k)])
    return Product(reduction, rows, columns, tuple(batch), tuple(m), tuple(n), k, sizes, rounded)


# -- products of a tensor graph --------------------------------------------------------------------

_known: Cache[UOp, Product[int] | bool] = Cache("products", lambda: CACHE_ENTRIES)


def product_of(node: UOp) -> Product[int] | None:
    """The product that a sum of a tensor graph is; None for other nodes."""
    if node.op != O.REDUCE_AXIS or node.arg.op != O.ADD:
        return None
    known = _known.get(node)
    if known is None:
        known = _known.insert(node, _product_of(node) or False)
    return known if isinstance(known, Product) else None


def _product_of(node: UOp) -> Product[int] | None:
    value = node.src[0]
    while value.op == O.CAST:
        value = value.src[0]
    if value.op != O.MUL or value.src[0] is value.src[1]:
        return None
    if any(unconverted(s).op == O.CONST for s in value.src):
        return None
    shape, summed = value.shape, node.arg.axes
    moving = {s: moving_axes(s) for s in value.src}
    return product_from(
        node, (value.src[0], value.src[1]), [a for a in range(len(shape)) if a not in summed],
        summed, lambda factor, axis: axis in moving[factor], lambda axis: largest(shape[axis]),
        value is not node.src[0],
    )  # fmt: skip


def is_contraction(node: UOp) -> bool:
    """A sum of products over an axis that matters: matmul, convolution, matrix by vector."""
    found = product_of(node)
    return found is not None and found.sizes.k >= MIN_TERMS


def large_product(node: UOp, least: int = MIN_SIDE, most: int | None = None) -> Product[int] | None:
    """A product of known sizes with at least so much on every side, and at most so many steps."""
    found = product_of(node)
    if found is None or found.rounded or is_symbolic(node.src[0].shape):
        return None
    _, rows, columns, depth = found.sizes
    if min(rows, columns, depth) < least or (most is not None and depth > most):
        return None
    return found


def tiled_product(node: UOp) -> Product[int] | None:
    """A product that is large enough for a tile, which may have few rows or columns in 16 bits."""
    found = large_product(node, least=FEW_ROWS)
    return found if found is None or are_halves(found) else large_product(node)


def are_halves(product: Product[int]) -> bool:
    """Whether both operands are converted from 16 bits."""
    return all(f.itemsize == 2 for f in stored_dtypes(product))


def stored_dtypes(product: Product[int]) -> list[DType]:
    """The dtypes of the operands before they are converted."""
    return [(f.src[0] if f.op == O.CAST else f).dtype for f in map(unmoved, product.operands)]


def moving_axes(factor: UOp) -> frozenset[int]:
    """The axes along which a factor is not the same value again."""
    while factor.op == O.CAST:
        factor = factor.src[0]
    inner = factor.src[0].shape if factor.op == O.EXPAND else factor.shape
    return frozenset([a for a, size in enumerate(inner) if size != 1])


def unmoved(factor: UOp) -> UOp:
    """What views of a value look at."""
    while factor.op in O.MOVEMENT:
        factor = factor.src[0]
    return factor


def unconverted(factor: UOp) -> UOp:
    """What views and conversions of a value start from."""
    while factor.op in O.MOVEMENT or factor.op == O.CAST:
        factor = factor.src[0]
    return factor


# -- operands --------------------------------------------------------------------------------------


class Operand(NamedTuple):
    """What a tile would read of a factor."""

    value: UOp  # the factor, over all axes of the product
    view: UOp  # the same in the tile's dtype, without the axes along which it only repeats
    base: UOp  # what this is a view of: memory, or a value that is computed


def operands_of(product: Product[int]) -> tuple[Operand, Operand]:
    """Both operands as a tile would read them."""
    dtypes = tile_dtypes(product)
    rows, columns = (_operand(f, d) for f, d in zip(product.operands, dtypes, strict=True))
    return rows, columns


def _operand(factor: UOp, dtype: DType) -> Operand:
    view = _before(factor, dtype) if factor.dtype is not dtype else _widened_late(factor)
    view = view.src[0] if view.op == O.EXPAND else view
    return Operand(factor, view, unmoved(view))


def _widened_late(factor: UOp) -> UOp:
    """A factor whose repeats come last: a conversion of one is one of what it repeats."""
    if factor.op != O.CAST or factor.src[0].op != O.EXPAND:
        return factor
    return make(O.CAST, factor.dtype, (factor.src[0].src[0],))


def tile_dtypes(product: Product[int]) -> tuple[DType, DType]:
    """What a tile multiplies: narrow numbers where both operands are such, converted to the dtype
    of the products without loss; else numbers of that dtype."""
    total = product.rows.dtype
    kinds = (FLOAT8, *[(half,) for half in HALVES]) if total is dt.float32 else (BYTES,)
    first, second = (exact_dtypes(f) for f in product.operands)
    for kind in kinds if total is dt.float32 or total.kind in "iu" else ():
        one, other = ([d for d in known if d in kind] for known in (first, second))
        if one and other:
            return one[-1], other[-1]
    return total, total


def exact_dtypes(factor: UOp) -> list[DType]:
    """The dtypes in which a factor is the same values, from its own down to the narrowest."""
    found = [factor.dtype]
    while factor.op == O.CAST or factor.op in O.MOVEMENT:
        below = factor.src[0]
        if factor.op == O.CAST:
            if not holds(factor.dtype, below.dtype):
                break
            found.append(below.dtype)
        factor = below
    return found


def holds(wide: DType, narrow: DType) -> bool:
    """Whether one type has all values of another, which is one that tensor cores multiply."""
    if narrow in FLOAT8:
        return wide.kind == "f" and wide not in FLOAT8
    if narrow in HALVES:
        return wide.kind == "f" and wide.bits > 16
    return narrow in BYTES and wide.bits > 8 and (wide.kind == "i" or narrow.kind == wide.kind)


def _before(factor: UOp, dtype: DType) -> UOp:
    """A factor before its conversions from a dtype that it is exact in."""
    if factor.dtype is dtype:
        return factor
    below = _before(factor.src[0], dtype)
    return below if factor.op == O.CAST else make(factor.op, dtype, (below,), factor.arg)


def narrow_view(factor: UOp, kinds: tuple[DType, ...] = HALVES) -> UOp:
    """The view that a factor is a conversion of, wherever on the way it is converted."""
    if factor.op == O.CAST and factor.src[0].dtype in kinds:
        return factor.src[0]
    if factor.op not in O.MOVEMENT or factor.dtype in kinds:
        return factor
    below = narrow_view(factor.src[0], kinds)
    return make(factor.op, below.dtype, (below,), factor.arg)


def with_operands(node: UOp, operands: Iterable[UOp]) -> UOp:
    """A sum of products with other factors."""
    product = make(O.MUL, node.src[0].dtype, tuple(operands))
    return make(O.REDUCE_AXIS, node.dtype, (product,), node.arg)


# -- what follows a product ------------------------------------------------------------------------


def interleaves(product: Product[int], indices: Indices, nest: tuple[UOp, ...]) -> bool:
    """Whether a loop around a product goes along both of its sides, and what it ends with is not
    the last axis of one: a flat result ends with that, as do pieces of rows.

    The result of a product is read as it lies, or in another order of its axes, or flat: then loops
    are still rows or columns, or are cut into some. A transposed convolution under a stride, or
    pixels that are shuffled, have a part of the rows beside each column: a tile of such a product
    is no tile of what reads it.
    """
    sides = [list(product.m), list(product.n)]
    rows, columns = (frozenset().union(*[indices[a].ranges for a in axes]) for axes in sides)
    last = nest[-1] if nest else None  # a write into a part is the outermost: no loop is around it
    return any(not _ends_a_side(r, sides, indices, last) for r in rows & columns)


def _ends_a_side(r: UOp, sides: list[list[int]], indices: Indices, last: UOp | None) -> bool:
    for axes in sides:
        inner = [a for a in axes if r in indices[a].ranges and not _is_divided(indices[a], r)]
        if inner:
            place = indices[inner[-1]]
            is_end = place.op == O.MOD or place.ranges == {r} or last in place.ranges - {r}
            return inner[-1] == axes[-1] and is_end
    return True


def _is_divided(place: UOp, r: UOp) -> bool:
    return any(n.op == O.IDIV and r in n.ranges for n in place.toposort())
