"""How operands reach their product: computed while they are packed, read as they lie, or stored.

In: a graph. Out: which values stay inside of a product's kernel, and which are stored for it. A
matmul on a CPU packs its operands into scratch memory before it multiplies, so a conversion, a
scale or an offset on the way costs one pass over the operand, not one per use: what is cheap, used
by the product alone and made from memory alone stays inside. Tiles of a GPU copy boxes of memory:
an operand that is computed is stored once, in the dtype that the tile multiplies, whatever the
general cost rule says; conversions from that dtype stay inside, for no tile makes them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from math import prod
from typing import NamedTuple

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.capabilities import Capabilities
from svod.ir.node import UOp
from svod.ir.scan import outer_sources
from svod.schedule.costs_cpu import CPU
from svod.schedule.costs_gpu import GPU
from svod.schedule.products import HALVES, Product, large_product, operands_of, tiled_product
from svod.schedule.work import EFFECTS, LEAVES

# of one operand; rows are packed again for every block of columns
MAX_OPERATIONS = CPU.packed_operations
MAX_DEPTH = CPU.packed_depth  # steps of a sum; longer panels do not fit into scratch memory
MIN_WORK = GPU.operand_work  # multiplications of a product that is a tile
WINDOW_WORK = GPU.window_work  # of one whose windows are stored
WINDOW_BYTES = GPU.most_window_bytes  # of windows; more are read where they are
WINDOW_DTYPES = (dt.float32, *HALVES)
_MEMORY = frozenset({O.BUFFER, O.BUFFER_VIEW, O.PARAM, O.CONST, O.IOTA, O.AFTER, O.CONTIGUOUS})
_MEMORY |= {O.COPY, O.ASSIGN}


class Operands(NamedTuple):
    """Values that their products compute, or convert on the way, and those stored for them."""

    inside: set[UOp]
    stored: set[UOp]


def decide_operands(
    order: list[UOp],
    able: Callable[[UOp], Capabilities],
    apart: Set[UOp] = frozenset(),
    in_place: Set[UOp] = frozenset(),
) -> Operands:
    """What becomes of the operands of all products, but for those ``apart``, which are parts of a
    larger kernel; products ``in_place`` read windows where they are."""
    found = Operands(set(), set())
    users: dict[UOp, int] | None = None
    deep: set[UOp] = set()
    for node in order:
        if node.op != O.REDUCE_AXIS or node in apart:
            continue
        its = able(node)
        if its.copies_tiles and node not in in_place:
            product = tiled_product(node)
            if product is not None and prod(product.sizes) >= MIN_WORK:
                _for_tile(product, found)
        packed = large_product(node) if its.packs_operands else None
        if packed is None:
            continue
        if packed.sizes.k > MAX_DEPTH:
            deep.add(node)
            continue
        if users is None:
            users = _user_counts(order)
        for factor in packed.operands:
            found.inside.update(_cheap(factor, users) or ())
    found.stored.update(_sums_that_wait(order, deep))
    return found


def _for_tile(product: Product[int], found: Operands) -> None:
    """Both operands as matrices in memory; conversions above them are not computed apart."""
    windows = set(stored_windows(product))
    found.stored.update(windows)
    for operand in operands_of(product):
        base = operand.base
        if before_repeats(operand.value) in windows:
            continue
        found.inside.update(_conversions(operand.value, base))
        if base.op not in LEAVES and base.op not in EFFECTS:
            found.stored.add(base)


def _conversions(value: UOp, base: UOp) -> Iterator[UOp]:
    """The conversions between a factor and what it is a view of."""
    while value is not base and (value.op == O.CAST or value.op in O.MOVEMENT):
        if value.op == O.CAST:
            yield value
        value = value.src[0]


# -- windows ---------------------------------------------------------------------------------------


def stored_windows(product: Product[int]) -> Iterator[UOp]:
    """The windows that a large product reads, as one matrix each.

    A convolution is a product with overlapping, padded windows of its input. A GPU's tiles copy
    boxes of memory: the windows are written out once, a row per output.
    """
    if prod(product.sizes) < WINDOW_WORK or min(product.sizes[1:]) < 2:
        return
    for factor in product.operands:
        cut = before_repeats(factor)
        nbytes = prod(cut.shape) * cut.dtype.itemsize
        if cut.dtype in WINDOW_DTYPES and nbytes <= WINDOW_BYTES and has_windows(cut):
            yield cut


def before_repeats(factor: UOp) -> UOp:
    """A factor without its conversion and the axes along which it is the same again."""
    while factor.op in (O.CAST, O.EXPAND, O.RESHAPE):
        factor = factor.src[0]
    return factor


def has_windows(node: UOp) -> bool:
    """Whether a view of memory has elements that are not there, runs backwards, or has overlapping
    pieces: repeats that are cut. Repeats alone, as of shared heads, are none."""
    seen = set()
    while node.op in O.MOVEMENT:
        seen.add(node.op)
        node = node.src[0]
    return bool({O.PAD, O.FLIP} & seen) or {O.EXPAND, O.SHRINK} <= seen


# -- packing ---------------------------------------------------------------------------------------


def _sums_that_wait(order: list[UOp], deep: set[UOp]) -> set[UOp]:
    """Of deep sums, those that cannot wait in what follows them: their depth is packed in parts,
    and from part to part the sums are in the output. They need one of their own where that is of
    another dtype, or where what follows reads a value for each of them."""
    sums = {node: node for node in deep}
    found: set[UOp] = set()
    for node in order if deep else ():
        for s in node.src if node.op in O.ELEMENTWISE or node.op in O.MOVEMENT else ():
            total = sums.get(s)
            if total is None:
                continue
            sums[node] = total
            others = [o for o in node.src if o is not s and o.op != O.EXPAND and o.op != O.CONST]
            if node.dtype is not total.dtype or others:
                found.add(total)
    return found


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
