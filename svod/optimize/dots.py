"""Products of narrow numbers by the instructions that multiply and add several at once.

A sum over k of ``P[k] * Q[k]`` of bfloat16 or 8 and 16-bit integers becomes a sum over groups:
neighbours along k share a 32-bit word, and DOT multiplies two words part by part and adds up.
Where k does not divide, the last words are filled with zeros. The byte instructions of x86 want one
operand without and one with a sign, the first ones of aarch64 two that are alike: for others the
sign bit of the rows is flipped, which moves them by 128, and 128 times the sums of the columns are
taken off again.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

from svod.base.knobs import knobs
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.args import RangeArg
from svod.ir.node import UOp, const, make
from svod.ir.symbolic import TRUE, ZERO, add, and_, lt, mul, num, sub
from svod.optimize.graph import extent, replace_all
from svod.optimize.machine import Machine

SIGN_BITS = 0x80808080
_BITS = {8: dt.uint8, 16: dt.uint16}
_BYTES = {dt.uint8: "u8", dt.int8: "s8"}
PARTS = {
    "bf16": 2,
    "i16": 2,
    "u8s8": 4,
    "s8u8": 4,
    "s8s8": 4,
    "u8u8": 4,
}  # narrow values of one word


@dataclass(frozen=True, slots=True)
class Dot:
    """How a product of two narrow operands is done. Sums of integers wrap, so 32 bits serve all."""

    kind: str  # argument of the DOT, for the operands in the order of the product
    dtype: DType  # of the sum
    operands: tuple[UOp, UOp]  # as narrow as they are
    flips: bool  # the rows change their sign bit


def find_dot(product: UOp, total: DType, rows: UOp, machine: Machine) -> Dot | None:
    """The instruction for a sum of products; None where there is none, or it is not wanted."""
    if product.op != O.MUL:
        return None
    first, second = map(narrow, product.src)
    kinds = (first.dtype, second.dtype)
    if kinds == (dt.bfloat16, dt.bfloat16):
        wanted = total is dt.float32 and knobs.bf16_dot and "bf16" in machine.dots
        return Dot("bf16", dt.float32, (first, second), False) if wanted else None
    if total.kind not in "iu" or total.bits > 32:
        return None
    if dt.int16 in kinds and {*kinds, dt.int16} <= {*_BYTES, dt.int16}:
        if "i16" not in machine.dots:
            return None
        return Dot("i16", dt.int32, (_as_int16(first), _as_int16(second)), False)
    if not set(kinds) <= set(_BYTES):
        return None
    names = [_BYTES[k] for k in kinds]
    flips = not _has_bytes(names, machine)
    if flips:
        place = 0 if product.src[0] is rows else 1
        names[place] = "u8" if names[place] == "s8" else "s8"
        if not _has_bytes(names, machine):
            return None
    return Dot("".join(names), dt.int32, (first, second), flips)


def _has_bytes(names: list[str], machine: Machine) -> bool:
    """Whether there is an instruction for bytes of these signs."""
    return ("s8s8" if names[0] == names[1] else "u8s8") in machine.dots


def _as_int16(value: UOp) -> UOp:
    return value if value.dtype is dt.int16 else make(O.CAST, dt.int16, (value,))


def narrow(value: UOp) -> UOp:
    """The operand before it was widened without loss."""
    while value.op == O.CAST and _keeps_value(value.src[0].dtype, value.dtype):
        value = value.src[0]
    return value


def _keeps_value(old: DType, new: DType) -> bool:
    if old.kind == "f":
        return old is dt.bfloat16 and new is dt.float32
    if old.kind not in "iu" or new.kind not in "iu":
        return False
    (low, high), (least, most) = dt.integer_limits(old), dt.integer_limits(new)
    return least <= low and high <= most


def group(sink: UOp, reduction: UOp, rows: UOp, axis: int, machine: Machine) -> UOp | None:
    """The kernel with the sum over ``axis`` done in words; None where that does not fit."""
    loops = [r for r in reduction.src[1:] if r.arg.id == axis]
    product = reduction.src[0]
    found = find_dot(product, reduction.dtype, rows, machine)
    if found is None or not loops or loops[0].src[0].op != O.CONST:
        return None
    depth, parts = loops[0], PARTS[found.kind]
    steps = make(
        O.RANGE, dt.index, (num(-(-extent(depth) // parts)),), RangeArg(axis, depth.arg.kind)
    )
    if extent(depth) == parts and len(reduction.src) > 2:
        steps = ZERO  # one word: the axis is gone
    words = [_word(x, depth, steps, parts) for x in found.operands]
    place = 0 if product.src[0] is rows else 1
    ranges = [steps if r is depth else r for r in reduction.src[1:]]
    ranges = [r for r in ranges if r is not ZERO]
    if found.flips:
        words[place] = make(O.XOR, dt.uint32, (words[place], const(SIGN_BITS, dt.uint32)))
    total = _sum(found, words, ranges)
    if found.flips:
        words[place] = const(SIGN_BITS, dt.uint32)
        total = make(O.SUB, dt.int32, (total, _sum(found, words, ranges)))
    if reduction.dtype is not found.dtype:
        total = make(O.CAST, reduction.dtype, (total,))
    return replace_all(sink, {reduction: total})


def is_offset(reduction: UOp) -> bool:
    """Whether a sum takes off what flipped signs have added: it multiplies with a constant."""
    value = reduction.src[0]
    return value.op == O.DOT and any(s.op == O.CONST for s in value.src)


def _sum(found: Dot, words: list[UOp], ranges: list[UOp]) -> UOp:
    dot = make(O.DOT, found.dtype, tuple(words), found.kind)
    return make(O.REDUCE, found.dtype, (dot, *ranges), O.ADD)


def _word(value: UOp, depth: UOp, steps: UOp, parts: int) -> UOp:
    """The values at steps * parts and after it as one word."""
    if (whole := _bytewise(value, depth, steps, parts)) is not None:
        return whole
    start = mul(steps, parts)
    size = extent(depth)
    pieces = []
    for part in range(parts):
        place = add(start, num(part))
        gate = TRUE if part < size % parts or size % parts == 0 else lt(place, size)
        piece = _bits(_where(replace_all(value, {depth: place}), gate))
        if part:
            shift = const(part * value.dtype.bits, dt.uint32)
            piece = make(O.SHL, dt.uint32, (piece, shift))
        pieces.append(piece)
    return whole_reads(reduce(lambda a, b: make(O.OR, dt.uint32, (a, b)), pieces))


def _bytewise(value: UOp, depth: UOp, steps: UOp, parts: int) -> UOp | None:
    """A word of bytes that are computed bit by bit, from words of what they are made of."""
    if value.dtype is not dt.uint8 or value.op not in (O.AND, O.OR, O.XOR, O.SHL, O.SHR):
        return None
    if extent(depth) % parts:
        return None
    if value.op in (O.SHL, O.SHR):
        source, amount = value.src
        if depth in amount.ranges:
            return None
        word = make(value.op, dt.uint32, (_part(source, depth, steps, parts), _widened(amount)))
        full = const(0xFF, dt.uint32)
        kept = make(value.op, dt.uint32, (full, _widened(amount)))
        if value.op == O.SHL:
            kept = make(O.AND, dt.uint32, (kept, full))
        return make(O.AND, dt.uint32, (word, _in_all(kept)))
    first, second = value.src
    if value.op == O.AND and (plain := _masked(first, second, depth, steps, parts)) is not None:
        return plain
    words = [_part(s, depth, steps, parts) for s in (first, second)]
    return make(value.op, dt.uint32, tuple(words))


def _masked(value: UOp, mask: UOp, depth: UOp, steps: UOp, parts: int) -> UOp | None:
    """Bits of shifted bytes, where those that come from the next byte are masked anyway."""
    if value.op != O.SHR or mask.op != O.CONST or depth in value.src[1].ranges:
        return None
    most = largest_shift(value.src[1])
    if most is None or mask.arg > 0xFF >> most:
        return None
    word = make(
        O.SHR, dt.uint32, (_part(value.src[0], depth, steps, parts), _widened(value.src[1]))
    )
    return make(O.AND, dt.uint32, (word, _in_all(const(mask.arg, dt.uint32))))


def largest_shift(amount: UOp) -> int | None:
    """The most bits that a number of loops shifts by; None where that is not known."""
    if amount.op == O.CONST:
        return int(amount.arg)
    if amount.dtype is dt.index:
        return int(amount.vmax)
    if amount.op == O.CAST:
        return largest_shift(amount.src[0])
    if amount.op in (O.ADD, O.MUL):
        sides = [largest_shift(s) for s in amount.src]
        if sides[0] is None or sides[1] is None:
            return None
        return sides[0] + sides[1] if amount.op == O.ADD else sides[0] * sides[1]
    return None


def _part(value: UOp, depth: UOp, steps: UOp, parts: int) -> UOp:
    """A word of a value, or the same value in all parts."""
    if depth in value.ranges:
        return _word(value, depth, steps, parts)
    return _in_all(_widened(value))


def _widened(value: UOp) -> UOp:
    return const(value.arg, dt.uint32) if value.op == O.CONST else make(O.CAST, dt.uint32, (value,))


def _in_all(byte: UOp) -> UOp:
    """A byte in all four parts of a word."""
    if byte.op == O.CONST:
        return const(byte.arg * 0x01010101, dt.uint32)
    return make(O.MUL, dt.uint32, (byte, const(0x01010101, dt.uint32)))


def whole_reads(value: UOp) -> UOp:
    """The value with words of neighbours in memory read at once, without conditions that hold."""
    always = [n for n in value.toposort() if n.op == O.INDEX and n.src[2:] == (TRUE,)]
    value = replace_all(value, {n: make(O.INDEX, n.dtype, n.src[:2]) for n in always})
    mapping: dict[UOp, UOp] = {}
    for node in reversed(value.toposort()):
        if node.op == O.OR and node.dtype is dt.uint32:
            word = _whole_read(node)
            if word is not None:
                mapping[node] = word
    return replace_all(value, mapping) if mapping else value


def _whole_read(node: UOp) -> UOp | None:
    pieces = []
    while node.op == O.OR:
        pieces.append(node.src[1])
        node = node.src[0]
    pieces = [node, *reversed(pieces)]
    first: UOp | None = None
    for part, piece in enumerate(pieces):
        if part:
            if piece.op != O.SHL:
                return None
            piece, shift = piece.src
            if shift.op != O.CONST or shift.arg * len(pieces) != 32 * part:
                return None
        index = _read_at(piece)
        if index is None or index.dtype.bits * len(pieces) != 32:
            return None
        if first is None:
            first = index
        elif index.src[0] is not first.src[0] or sub(index.src[1], first.src[1]) != num(part):
            return None
    assert first is not None
    return make(O.LOAD, dt.uint32, (make(O.INDEX, dt.uint32, first.src),))


def _read_at(piece: UOp) -> UOp | None:
    """The place a piece of a word is read from, as it is and whatever happens."""
    if piece.op != O.CAST:
        return None
    piece = piece.src[0].src[0] if piece.src[0].op == O.BITCAST else piece.src[0]
    plain = piece.op == O.LOAD and len(piece.src[0].src) == 2
    return piece.src[0] if plain else None


def _bits(value: UOp) -> UOp:
    unsigned = _BITS[value.dtype.bits]
    if value.dtype is not unsigned:
        value = make(O.BITCAST, unsigned, (value,))
    return make(O.CAST, dt.uint32, (value,))


def _where(value: UOp, gate: UOp) -> UOp:
    """The value where the gate holds, else zero; outside, no memory is read."""
    if gate is TRUE:
        return value
    inside = guarded(value, gate)
    if inside.op == O.LOAD:  # gives zero by itself
        return inside
    zero = const(0.0 if value.dtype.kind == "f" else 0, value.dtype)
    return make(O.WHERE, value.dtype, (gate, inside, zero))


def guarded(value: UOp, gate: UOp) -> UOp:
    """The value with its memory accesses made only where the gate holds."""
    done: dict[UOp, UOp] = {}
    for node in value.toposort():
        src = tuple([done[s] for s in node.src])
        if node.op == O.INDEX:
            test = and_(src[2], gate) if len(src) == 3 else gate
            done[node] = make(O.INDEX, node.dtype, (src[0], src[1], test))
        else:
            done[node] = node if src == node.src else make(node.op, node.dtype, src, node.arg)
    return done[value]
