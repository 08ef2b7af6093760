"""The scores of an attention: a product, and what happens to it before the softmax.

``walk_scores`` goes from the scores of a kernel down to the product, ``steps_of`` says what each
operation on the way is: a factor, a triangle, or a mask in memory.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple, TypeAlias

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.ir.symbolic import ZERO, num, sub, terms_of
from svod.optimize.gpu_tile import HALVES
from svod.optimize.graph import replace_all, stride


class Scale(NamedTuple):
    """The scores times a number."""

    factor: float


class Causal(NamedTuple):
    """The scores where key <= query + offset, elsewhere the fill."""

    offset: int
    fill: float


class Memory(NamedTuple):
    """One element per score, in memory; a stride may be zero."""

    source: UOp  # PARAM
    base: UOp
    row: int
    column: int


class Added(NamedTuple):
    """The scores plus what memory holds times a sign."""

    memory: Memory
    sign: float


class Kept(NamedTuple):
    """The scores where memory holds true (or false), elsewhere the fill."""

    memory: Memory
    wanted: bool
    fill: float


Step: TypeAlias = Scale | Causal | Added | Kept


def steps_of(parts: list[_Part], row: UOp, column: UOp, keys: UOp) -> tuple[Step, ...] | None:
    """The operations between the product and the softmax; None where one is of another kind."""
    steps = []
    for part in parts:
        step = _step(part, row, keys)
        if step is None or (isinstance(step, Added | Kept) and column in step.memory.base.ranges):
            return None
        steps.append(step)
    return tuple(steps)


_Part: TypeAlias = tuple[UOp, UOp]  # a node of the chain and which of its sources is the chain


def walk_scores(scores: UOp) -> tuple[UOp, list[_Part]] | None:
    """The product below the scores, and the nodes between them, from the product on."""
    parts: list[_Part] = []
    node = scores
    while True:
        node = plain(node)
        if is_reduction(node, O.ADD):
            if node.src[0].op != O.MUL:
                return None
            return node, parts[::-1]
        below = [s for s in node.src if _has_product(s)]
        if len(below) != 1 or node.op not in O.ELEMENTWISE:
            return None
        parts.append((node, below[0]))
        node = below[0]


def _has_product(node: UOp) -> bool:
    return any(n.op == O.REDUCE for n in node.toposort())


def _step(part: _Part, row: UOp, keys: UOp) -> Step | None:
    node, below = part
    others = [s for s in node.src if s is not below]
    if node.op == O.NEG:
        return Scale(-1.0)
    if node.op == O.WHERE:
        return _choice(node, below, row, keys)
    if len(others) != 1 or len(node.src) != 2:
        return None
    (other,) = others
    if node.op == O.MUL and other.op == O.CONST:
        return Scale(float(other.arg))
    if node.op == O.DIV and other.op == O.CONST and node.src[0] is below and other.arg:
        return Scale(1.0 / float(other.arg))
    if node.op == O.ADD or (node.op == O.SUB and node.src[0] is below):
        sign = 1.0 if node.op == O.ADD else -1.0
        return _addition(plain(other), sign, row, keys)
    return None


def _addition(other: UOp, sign: float, row: UOp, keys: UOp) -> Step | None:
    """Something added: a mask in memory, or a computed one of zeros and minus infinities."""
    if other.op == O.WHERE and all(s.op == O.CONST for s in other.src[1:]):
        numbers = [sign * float(s.arg) for s in other.src[1:]]
        if numbers in ([0.0, -inf], [-inf, 0.0]):
            return _condition(other.src[0], numbers[0] == 0.0, -inf, row, keys)
        return None
    memory = memory_of(other, row, keys)
    is_number = other.dtype.kind == "f" and other.dtype.bits in (16, 32)
    return None if memory is None or not is_number else Added(memory, sign)


def _choice(node: UOp, below: UOp, row: UOp, keys: UOp) -> Step | None:
    test, chosen, otherwise = node.src
    if test is below:
        return None
    other = otherwise if chosen is below else chosen
    if other.op != O.CONST:
        return None
    return _condition(test, chosen is below, float(other.arg), row, keys)


def _condition(test: UOp, wanted: bool, fill: float, row: UOp, keys: UOp) -> Step | None:
    """Scores stay where the test gives ``wanted``."""
    while True:
        if test.op == O.NOT:
            test, wanted = test.src[0], not wanted
        elif test.op in (O.EQ, O.NE) and test.src[1].op == O.CONST and test.src[1].arg == 0:
            wanted = wanted if test.op == O.NE else not wanted
            test = plain(test.src[0])
        elif test.op == O.WHERE and all(s.op == O.CONST for s in test.src[1:]):
            first, second = (bool(s.arg) for s in test.src[1:])
            if first == second:
                return None
            test, wanted = test.src[0], wanted is first
        elif test.op == O.CAST and test.src[0].dtype.kind == "b":
            test = test.src[0]
        else:
            break
    if test.op in (O.LE, O.LT):
        return _causal(test, wanted, fill, row, keys)
    memory = memory_of(test, row, keys)
    is_byte = test.dtype.itemsize == 1 and test.dtype.kind in "biu"
    return None if memory is None or not is_byte else Kept(memory, wanted, fill)


def _causal(test: UOp, wanted: bool, fill: float, row: UOp, keys: UOp) -> Step | None:
    """A comparison of the loops: key <= row + offset."""
    sides = [_index_of(s) for s in test.src]
    if sides[0] is None or sides[1] is None:
        return None
    terms, constant = terms_of(sub(sides[0], sides[1]))
    terms = {r: factor for r, factor in terms.items() if factor}
    if test.op == O.LT:
        constant += 1
    # What is kept is where terms + constant <= 0; if not wanted, where 1 - terms - constant <= 0.
    if not wanted:
        terms, constant = {r: -factor for r, factor in terms.items()}, 1 - constant
    return Causal(-constant, fill) if terms == {keys: 1, row: -1} else None


def _index_of(node: UOp) -> UOp | None:
    if node.op == O.CONST and node.dtype.kind in "iux":
        return num(int(node.arg))
    if node.op == O.CAST and node.dtype.kind in "iu" and node.src[0].dtype is dt.index:
        lo, hi = dt.integer_limits(node.dtype)
        return node.src[0] if lo <= node.src[0].vmin and node.src[0].vmax <= hi else None
    return node if node.dtype is dt.index else None


def memory_of(node: UOp, row: UOp, keys: UOp) -> Memory | None:
    if node.op != O.LOAD or len(node.src[0].src) != 2 or node.src[0].src[0].op != O.PARAM:
        return None
    index = node.src[0]
    down, along = stride(index, row), stride(index, keys)
    if down is None or along is None:
        return None
    return Memory(index.src[0], replace_all(index.src[1], {row: ZERO, keys: ZERO}), down, along)


def plain(node: UOp) -> UOp:
    """Below conversions between floats."""
    while node.op == O.CAST and node.dtype.kind == "f" and node.src[0].dtype.kind == "f":
        node = node.src[0]
    return node


def half_load(factor: UOp) -> UOp | None:
    """The load of a factor in 16 bits whose products are made in float32."""
    if factor.op != O.CAST or factor.dtype is not dt.float32:
        return None
    load = factor.src[0]
    if load.op != O.LOAD or load.dtype not in HALVES or len(load.src[0].src) != 2:
        return None
    return load if load.src[0].src[0].op == O.PARAM else None


def described(step: Step) -> tuple[str | int | float | bool, ...]:
    """A step without its memory, which the sources of the tile hold in order."""
    match step:
        case Scale(factor):
            return ("scale", factor)
        case Causal(offset, fill):
            return ("causal", offset, fill)
        case Added(memory, sign):
            return ("added", memory.row, memory.column, memory.source.dtype.name, sign)
        case Kept(memory, wanted, fill):
            return ("kept", memory.row, memory.column, wanted, fill)


def is_reduction(node: UOp, op: int) -> bool:
    return node.op == O.REDUCE and node.arg == op and len(node.src) == 2
