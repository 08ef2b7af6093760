"""The loops of kernels in bands, chosen without search."""

from __future__ import annotations

from collections.abc import Sequence

from svod.ir import ops as O
from svod.ir.node import UOp
from svod.optimize.actions import Nest
from svod.optimize.bands import WIDEST_PASS, find_chain
from svod.optimize.contraction import SCRATCH_LIMIT, find_contraction
from svod.optimize.graph import extent, stride
from svod.optimize.opts import Opt
from svod.schedule.costs_cpu import CPU

ROWS = CPU.band_rows  # of a band: two tiles of eight, and little work past the end of a causal row
BAND_BYTES = CPU.band_bytes  # of scores: half of a second cache
PANELS_LIMIT = SCRATCH_LIMIT // 2


def choose_bands(nest: Nest) -> bool:
    """Opts for a contraction of a contraction; False where the kernel is none."""
    found = find_chain(nest.sink)
    if found is None:
        return False
    line = extent(found.column) * max(4, found.rows.dtype.itemsize)
    rows = max(1, min(ROWS, BAND_BYTES // line))
    band = Opt("BAND", found.row.arg.id if found.row is not None else 0, rows)
    if nest.refusal(band):
        return False
    nest.apply(band)
    scores, *passes, result = nest.parts
    _choose_scores(nest, scores)
    for part in passes:
        _choose_pass(nest, part)
    _choose_result(nest, result)
    return True


def _rows_of(registers: int) -> int:
    return 8 if registers >= 32 else 4


def _choose_scores(nest: Nest, part: Nest) -> None:
    """A register tile of scores."""
    machine = nest.machine
    found = find_contraction(part.sink)
    if found is None:
        _choose_pass(nest, part)
        return
    itemsize = max(4, found.columns.dtype.itemsize)
    width = machine.lanes(itemsize)
    column = found.n[-1]
    vectors = 2 if extent(column) >= 2 * width else 1
    depth = found.sizes.k
    panels = -(-extent(column) // (vectors * width))
    rows = [Opt("UPCAST", r.arg.id, min(_rows_of(machine.registers), extent(r))) for r in found.m]
    in_place = found.columns.op == O.LOAD and stride(found.columns.src[0], column) == 1
    axis = column.arg.id
    if in_place:
        nest.apply(*rows, Opt("LANE", axis, vectors * width))
    elif found.m and panels * vectors * width * depth * itemsize <= PANELS_LIMIT:
        nest.apply(Opt("TILE", axis, vectors * width), Opt("STAGE", axis, panels), *rows)
    else:
        _choose_dots(nest, found.m, column, found.k)


def _choose_dots(nest: Nest, rows: Sequence[UOp], column: UOp, depth: Sequence[UOp]) -> None:
    """Lanes along the depth: nothing is packed."""
    lanes = nest.machine.lanes(4)
    for r in [*rows[-1:], column]:
        nest.apply(Opt("UPCAST", r.arg.id, min(4, extent(r))))
    inner = depth[-1]
    if extent(inner) >= lanes:
        nest.apply(Opt("LANE", inner.arg.id, lanes))


def _choose_pass(nest: Nest, part: Nest) -> None:
    """Lanes along the rows, as wide as the work on each element allows."""
    nodes = part.sink.toposort()
    heavy = sum([n.op in O.HEAVY for n in nodes])
    end = part.sink.src[0]
    for node in nodes:
        if node.op == O.REDUCE:
            _lanes(nest, node.src[-1], 2)
    last = end.src[-1]
    summed = any(n.op == O.REDUCE and last in n.ranges for n in nodes)
    if stride(end.src[0].src[0], last) == 1 and not summed:
        _lanes(nest, last, 1 if heavy > 1 else 2)


def _lanes(nest: Nest, r: UOp, vectors: int) -> None:
    lanes = min(WIDEST_PASS, vectors * nest.machine.lanes(4))
    while lanes > extent(r):
        lanes //= 2
    if lanes > 1:
        nest.apply(Opt("LANE", r.arg.id, lanes))


def _choose_result(nest: Nest, part: Nest) -> None:
    """A register tile over the rows of the band and the columns of the result."""
    found = find_contraction(part.sink)
    if found is None:
        return
    width = nest.machine.lanes(max(4, found.columns.dtype.itemsize))
    column = found.n[-1]
    lanes = 2 * width if extent(column) % (2 * width) == 0 else width
    for r in found.m[-1:]:
        nest.apply(Opt("UPCAST", r.arg.id, min(_rows_of(nest.machine.registers), extent(r))))
    if stride(part.sink.src[0].src[0].src[0], column) == 1 and extent(column) > 1:
        lanes = min(lanes, 1 << (extent(column) - 1).bit_length())
        nest.apply(Opt("LANE", column.arg.id, lanes))
