"""Sums in blocks that have scales of their own, as one register tile.

In: a kernel whose sum of floats has a sum of products of bytes inside of it, as products with
quantised weights are (`svod.schedule.block_sums`). Out: the opts. Lanes go along the columns of the
output, which weights are kept in groups of, so that a load is a word of each column; the inner sum
is written out and its words are multiplied at once; rows of the output share every word that has
been read and unpacked. A panel of columns stays in the cache while rows go over it.
"""

from __future__ import annotations

from dataclasses import dataclass

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp, make
from svod.optimize.dots import PARTS, find_dot, group
from svod.optimize.graph import elements_of, extent, stride
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from svod.schedule.costs_cpu import CPU

MAX_WRITTEN = CPU.block_products  # products of words that are written out
MAX_ROWS = CPU.block_rows  # of a tile
REGISTERS_OF_WORDS = (4, 8, 16)  # lanes that instructions for words have
NO_SUM = "the kernel is no sum of floats with one sum of products of whole numbers in it"


@dataclass(frozen=True, slots=True)
class BlockSums:
    """A sum of floats, the sum inside of it, and the factor that moves with the columns."""

    outer: UOp
    inner: UOp
    columns: UOp
    rows: UOp
    lane: UOp  # the output axis of the columns, which are neighbours in memory


def find_block_sums(sink: UOp) -> BlockSums | None:
    """What a kernel is, whether its columns are lanes already or not; None where it is no such."""
    if len(sink.src) != 1 or sink.src[0].src[0].arg == "ordered":
        return None
    sums = [n for n in sink.toposort() if n.op == O.REDUCE]
    if len(sums) != 2 or any(n.arg != O.ADD for n in sums):
        return None
    inner, outer = sums
    if inner not in outer.toposort():
        inner, outer = outer, inner
    value = inner.src[0]
    if inner not in outer.toposort() or value.op != O.MUL:
        return None
    if outer.dtype is not dt.float32 or inner.dtype is not dt.int32:
        return None
    lanes = [r for r in sink.src[0].src[1:] if r.arg.kind is AxisKind.LANE]
    last = lanes[-1] if lanes else sink.src[0].src[-1]
    if last.op != O.RANGE:
        return None
    for rows, columns in (value.src, value.src[::-1]):
        if last in columns.ranges and last not in rows.ranges:
            return BlockSums(outer, inner, columns, rows, last)
    return None


def choose_block_sums(sink: UOp, machine: Machine) -> list[Opt]:
    """The opts of the tile; empty for other kernels, and where plainer loops are better."""
    planned = plan_block_sums(sink, machine)
    return [] if isinstance(planned, str) else planned


def plan_block_sums(sink: UOp, machine: Machine) -> list[Opt] | str:
    """The opts of the tile, or why there is none."""
    found = find_block_sums(sink)
    if found is None:
        return NO_SUM
    if not machine.vector_bytes:
        return "the machine has no vectors"
    if found.lane.src[0].op != O.CONST or stride(sink.src[0].src[0].src[0], found.lane) != 1:
        return "neighbours of the output are not neighbours in memory"
    lanes = next((n for n in (16, 8, 4) if extent(found.lane) % n == 0), 0)
    lanes = min(lanes, machine.lanes(4))
    if not lanes:
        return f"{extent(found.lane)} columns side by side are no whole vectors"
    opts: list[Opt] = []
    written = 1
    summed = sorted(found.inner.src[1:], key=extent)
    parts = _parts(found, summed, machine) if lanes in REGISTERS_OF_WORDS else None
    for r in summed:
        if r is not parts and _is_short(r) and written * extent(r) <= MAX_WRITTEN:
            opts.append(Opt("UNROLL", r.arg.id, extent(r)))
            written *= extent(r)
    if parts is None:
        written *= 4  # products of single numbers take more registers and more code
    for r in sorted(found.outer.src[1:], key=extent):
        # Blocks that share what they read: parts of one byte.
        if _is_short(r) and written * extent(r) <= MAX_WRITTEN and not _moves_memory(found, r):
            opts.append(Opt("UNROLL", r.arg.id, extent(r)))
            written *= extent(r)
    for r in _rows(sink, found):
        copies = min(MAX_ROWS, extent(r), max(1, 2 * MAX_WRITTEN // written))
        if copies > 1:
            opts.append(Opt("UPCAST", r.arg.id, _even(extent(r), copies)))
    opts.append(Opt("LANE", found.lane.arg.id, lanes))
    if parts is not None:
        opts.append(Opt("WORDS", parts.arg.id, extent(parts)))
    return opts + _panels_first(sink, found, opts)


def words_refusal(sink: UOp, axis: UOp, amount: int, machine: Machine) -> str:
    """Why steps of an axis are not words; empty where they are."""
    pieces = _pieces(sink)
    if pieces is None:
        return NO_SUM
    for found in pieces:
        if found.lane.arg.kind is not AxisKind.LANE or extent(found.lane) not in REGISTERS_OF_WORDS:
            return f"words are multiplied in {REGISTERS_OF_WORDS} lanes of the columns"
        if axis not in found.inner.src[1:]:
            return "the axis is none of the inner sum's"
        dot = find_dot(found.inner.src[0], found.inner.dtype, found.rows, machine)
        if dot is None or PARTS[dot.kind] != amount or extent(axis) % amount or dot.flips:
            return "no instruction multiplies such words"
    return ""


def make_words(sink: UOp, axis: UOp, machine: Machine) -> UOp:
    """The kernel with words along an axis of the inner sum."""
    for found in _pieces(sink) or ():
        grouped = group(sink, found.inner, found.rows, axis.arg.id, machine)
        assert grouped is not None
        sink = grouped
    return sink


def _pieces(sink: UOp) -> list[BlockSums] | None:
    """What the parts of a kernel are that other opts have cut it into, where all are the same."""
    pieces = [find_block_sums(make(O.SINK, dt.void, (end,))) for end in sink.src]
    return None if None in pieces else [p for p in pieces if p is not None]


def _parts(found: BlockSums, summed: list[UOp], machine: Machine) -> UOp | None:
    """The axis whose steps are the parts of a word of every column."""
    dot = find_dot(found.inner.src[0], found.inner.dtype, found.rows, machine)
    if dot is None or dot.flips:
        return None
    parts = PARTS[dot.kind]
    loads = [n.src[0] for n in found.columns.toposort() if n.op == O.LOAD]
    for r in summed:
        along = all(stride(i, r) == elements_of(i) for i in loads if r in i.ranges)
        if extent(r) == parts and along and r.src[0].op == O.CONST:
            return r
    return None


def _is_short(r: UOp) -> bool:
    return r.src[0].op == O.CONST and extent(r) <= 16


def _moves_memory(found: BlockSums, r: UOp) -> bool:
    """Whether the columns of another step of an axis are in other memory."""
    return any(n.op == O.LOAD and r in n.ranges for n in found.columns.toposort())


def _rows(sink: UOp, found: BlockSums) -> list[UOp]:
    """Output axes along which the same columns are multiplied, the longest alone."""
    outputs = [r for r in sink.src[0].src[1:] if r.op == O.RANGE]
    rows = [r for r in outputs if r in found.rows.ranges and r not in found.columns.ranges]
    return sorted(rows, key=extent)[-1:]


def _even(size: int, limit: int) -> int:
    """Copies of an axis: tiles of one size where that is close to the most."""
    tiles = -(-size // limit)
    return -(-size // tiles)


def _panels_first(sink: UOp, found: BlockSums, opts: list[Opt]) -> list[Opt]:
    """The loop over groups of columns outside: a group stays in the cache while rows go over it."""
    loops = list(sink.src[0].src[1:])
    with_columns, with_rows = found.columns.ranges, found.rows.ranges - found.columns.ranges
    panels = [i for i, r in enumerate(loops) if r in with_columns - found.rows.ranges]
    panels = [i for i in panels if loops[i] is not found.lane]
    rows = [i for i, r in enumerate(loops) if r in with_rows]
    if not panels or not rows or panels[0] < rows[0]:
        return []
    cut = [o for o in opts if o.name == "UPCAST" and o.axis == loops[rows[0]].arg.id]
    if not cut:
        return [Opt("MOVE", panels[0], rows[0])]
    if loops[rows[0]].src[0].op == O.CONST and extent(loops[rows[0]]) < 2 * cut[0].amount:
        return []  # one tile of rows, and perhaps a rest: no loop is left of them
    return [Opt("MOVE", panels[0] + 1, rows[0])]  # the tile is a loop of its own
