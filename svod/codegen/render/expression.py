"""Values as text for people: ``i0*64 + k0`` and ``max(r0, 0.0)``, with C's precedence.

In: nodes of a kernel, and a table of the names they already have. Out: one expression. Vectors
are written like scalars, as C's vector types are. Nothing here is meant to be compiled.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping

from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp, depth_first
from svod.optimize.opts import CORE

Text = tuple[str, int]  # an expression and how tightly its outermost operator binds

ATOM, UNARY, TIMES, PLUS, SHIFT, COMPARE, AND, XOR, OR, CHOICE = range(10, 0, -1)
_INFIX: dict[int, tuple[str, int]] = {
    O.ADD: (" + ", PLUS), O.SUB: (" - ", PLUS), O.MUL: ("*", TIMES), O.DIV: (" / ", TIMES),
    O.IDIV: (" / ", TIMES), O.MOD: (" % ", TIMES), O.SHL: (" << ", SHIFT), O.SHR: (" >> ", SHIFT),
    O.LT: (" < ", COMPARE), O.LE: (" <= ", COMPARE), O.EQ: (" == ", COMPARE),
    O.NE: (" != ", COMPARE), O.AND: (" & ", AND), O.XOR: (" ^ ", XOR), O.OR: (" | ", OR),
}  # fmt: skip
_LONGEST = 20_000  # characters; a value that is used twice at each step doubles in length
_CHAINED = frozenset({O.ADD, O.MUL, O.AND, O.OR, O.XOR})  # a + (b + c) needs no brackets


def expression(node: UOp, names: Mapping[UOp, str]) -> str:
    """The value as text; what has a name is written by its name."""
    done: dict[UOp, Text] = {}
    for item in depth_first_until(node, names):
        name = names.get(item)
        done[item] = (name, ATOM) if name is not None else _text(item, done)
        if len(done[item][0]) > _LONGEST:
            done[item] = ("...", ATOM)
    return done[node][0]


def depth_first_until(root: UOp, names: Mapping[UOp, str]) -> list[UOp]:
    """Sources before users, not looking below what has a name."""
    found: list[UOp] = []
    seen: set[UOp] = set()
    stack: list[tuple[UOp, bool]] = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            found.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            if node not in names:
                below = node.src[:1] if node.op == O.AFTER else node.src
                stack.extend([(s, False) for s in reversed(below)])
    return found


def loop_names(root: UOp) -> dict[UOp, str]:
    """Loop counters: ``i0, i1, ..`` over results, ``k0, ..`` over what is reduced."""
    names: dict[UOp, str] = {}
    loops = reductions = 0
    for node in depth_first(root):
        if node.op != O.RANGE:
            continue
        if node.arg.kind in (AxisKind.REDUCE, AxisKind.UNROLL) or _is_reduced(node, root):
            names[node] = f"k{reductions}"
            reductions += 1
        else:
            names[node] = f"i{loops}"
            loops += 1
    return names


def _is_reduced(loop: UOp, root: UOp) -> bool:
    return any(n.op == O.REDUCE and loop in n.src for n in root.toposort())


def place(index: UOp, lanes: int, names: Mapping[UOp, str]) -> str:
    """A place in memory: ``p1[i0*64 : +16]``, with the condition under which it exists."""
    name = memory_name(memory_of(index))
    where = expression(index.src[1], names)
    if lanes > 1 and index.src[1].dtype.lanes == 1:
        where += f" : +{lanes}"
    gate = expression(index.src[2], names) if len(index.src) == 3 else "true"
    if gate != "true":
        where += f" if {gate}"
    return f"{name}[{where}]"


def memory_of(index: UOp) -> UOp:
    """The PARAM or DEFINE_LOCAL behind a place, whatever it waits for."""
    memory = index.src[0]
    while memory.op == O.AFTER:
        memory = memory.src[0]
    return memory


def memory_name(memory: UOp) -> str:
    return f"p{memory.arg.slot}" if memory.op == O.PARAM else f"scratch{memory.arg.id}"


def constant(value: object, dtype: DType) -> str:
    """A literal: floats as short as their type allows."""
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind != "f":
        return str(int(value))  # type: ignore[call-overload]
    number = float(value)  # type: ignore[arg-type]
    if math.isnan(number):
        return "nan"
    if math.isinf(number):
        return "inf" if number > 0 else "-inf"
    if dtype.scalar is not dt.float64:
        for digits in range(1, 10):
            short = float(f"{number:.{digits}g}")
            if _same_float32(short, number):
                return repr(short)
    return repr(number)


def _same_float32(a: float, b: float) -> bool:
    try:
        return struct.pack("<f", a) == struct.pack("<f", b)
    except OverflowError:
        return False


def _text(node: UOp, done: Mapping[UOp, Text]) -> Text:
    op = node.op
    parts = [done[s] for s in node.src if s in done]
    if op == O.CONST:
        return constant(node.arg, node.dtype), ATOM
    if op in _INFIX and len(parts) == 2:
        return _infix(node, parts)
    if op == O.LOAD:
        names = {s: done[s][0] for s in node.src[0].src if s in done}
        return place(node.src[0], node.dtype.lanes, names), ATOM
    if op == O.WHERE:
        test, yes, no = parts
        choice = f"{_within(test, OR)} ? {_within(yes, OR)} : {_within(no, CHOICE)}"
        return choice, CHOICE
    if op == O.NEG:
        return f"-{_within(parts[0], UNARY)}", UNARY
    if op == O.NOT:
        return f"{'!' if node.dtype.kind == 'b' else '~'}{_within(parts[0], UNARY)}", UNARY
    if op == O.CAST:
        return f"({node.dtype!r}){_within(parts[0], UNARY)}", UNARY
    return _named(node, parts)


def _named(node: UOp, parts: list[Text]) -> Text:
    op = node.op
    if op == O.BROADCAST or op == O.AFTER or op == O.BIND:
        return parts[0]
    if op == O.BITCAST:
        return f"as_{node.dtype!r}({parts[0][0]})", ATOM
    if op == O.LANES:
        return f"lanes({node.arg})", ATOM
    if op == O.GEP:
        return f"{_within(parts[0], ATOM)}[{node.arg}]", ATOM
    if op == O.SHUFFLE:
        return _shuffled(node, parts), ATOM
    if op == O.SPECIAL:
        return node.arg, ATOM
    if op == O.DEFINE_VAR:
        return ("core" if node.arg.name == CORE else node.arg.name), ATOM
    if op in (O.PARAM, O.DEFINE_LOCAL):
        return memory_name(node), ATOM
    if op == O.INDEX:
        return "", ATOM  # written by the LOAD around it
    word = O.NAMES[op].lower()
    return f"{word}({', '.join([text for text, _ in parts])})", ATOM


def _shuffled(node: UOp, parts: list[Text]) -> str:
    """Neighbouring lanes as ``v[8 : +8]``, others as ``shuffle(v, w, 0 4 1 5)``."""
    lanes = node.arg
    if len(parts) == 1 and lanes == tuple(range(lanes[0], lanes[0] + len(lanes))):
        return f"{_within(parts[0], ATOM)}[{lanes[0]} : +{len(lanes)}]"
    places = " ".join(["_" if lane < 0 else str(lane) for lane in lanes])
    return f"shuffle({', '.join([text for text, _ in parts])}, {places})"


def _infix(node: UOp, parts: list[Text]) -> Text:
    sign, level = _INFIX[node.op]
    left, right = parts
    a, b = node.src
    if node.op == O.LT and _is_negated(a) and b.op == O.CONST:  # -x < c is how x >= 1 - c is kept
        return f"{left[0][: -len('*-1')]} >= {1 - b.arg}", level
    if node.op == O.ADD and right[0].endswith("*-1") and _is_negated(b):
        return f"{_within(left, level)} - {right[0][: -len('*-1')]}", level
    # Equal levels to the right need brackets, but not in a chain of one operator.
    chained = node.op in _CHAINED and b.op == node.op
    text = _within(right, level if chained else level + 1)
    if node.op == O.ADD and text.startswith("-"):
        return f"{_within(left, level)} - {text[1:]}", level
    return f"{_within(left, level)}{sign}{text}", level


def _is_negated(node: UOp) -> bool:
    """Whether an integer is written ``x*-1``."""
    factor = node.src[1] if node.op == O.MUL else node
    return (
        node.op == O.MUL and node.dtype.kind in "ix" and factor.op == O.CONST and factor.arg == -1
    )


def _within(part: Text, level: int) -> str:
    text, own = part
    return text if own >= level else f"({text})"
