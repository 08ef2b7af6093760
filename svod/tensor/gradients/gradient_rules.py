"""The gradient rule of every op: what each of its sources receives.

In: a node, the gradient of its value, and the position of a source. Out: the gradient of that
source, or None where nothing flows. Rules build ordinary graphs, so they can be differentiated.
"""

from __future__ import annotations

from collections.abc import Callable
from math import log, pi, prod, sqrt

from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const
from svod.tensor.core.tensor_core import accumulator, computed_once

# -- small pieces ------------------------------------------------------------------------------


def _number(value: float, like: UOp) -> UOp:
    return const(value, like.dtype)


def _add(a: UOp, b: UOp) -> UOp:
    return B.binary(O.ADD, a, b)


def _sub(a: UOp, b: UOp) -> UOp:
    return B.binary(O.SUB, a, b)


def product(a: UOp, b: UOp) -> UOp:
    """a * b; the gradient of a sum is one everywhere, and what it is multiplied by is that."""
    is_alike = a.shape == b.shape and a.dtype is b.dtype
    return b if is_alike and _is_one(a) else B.binary(O.MUL, a, b)


def _is_one(x: UOp) -> bool:
    while x.op in (O.RESHAPE, O.EXPAND, O.CAST):
        x = x.src[0]
    return x.op == O.CONST and x.arg == 1


def _div(a: UOp, b: UOp) -> UOp:
    return B.binary(O.DIV, a, b)


def _neg(a: UOp) -> UOp:
    return B.unary(O.NEG, a)


def _scaled(a: UOp, factor: float) -> UOp:
    return B.binary(O.MUL, a, _number(factor, a))


def _one_plus(a: UOp) -> UOp:
    return _add(a, _number(1.0, a))


def one_minus(a: UOp) -> UOp:
    return _sub(_number(1.0, a), a)


def _zero_where(condition: UOp, value: UOp) -> UOp:
    return B.where(condition, _number(0.0, value), value)


def _is_zero(a: UOp) -> UOp:
    return B.binary(O.EQ, a, _number(0.0, a))


def summed(x: UOp, axes: tuple[int, ...]) -> UOp:
    """The sum over axes, which stay; narrow floats are added up in float32."""
    wide = accumulator(x.dtype)
    return B.cast(B.reduce(B.cast(x, wide), O.ADD, axes), x.dtype)


# -- functions of one value: y = f(x), g is the gradient of y -----------------------------------


def _abs(g: UOp, x: UOp, y: UOp) -> UOp:
    below = B.binary(O.LT, x, _number(0.0, x))
    return _zero_where(_is_zero(x), B.where(below, _neg(g), g))


def _erf(g: UOp, x: UOp, y: UOp) -> UOp:
    return product(g, _scaled(B.unary(O.EXP, _neg(product(x, x))), 2.0 / sqrt(pi)))


def _rsqrt_of(g: UOp, a: UOp) -> UOp:
    return product(g, B.unary(O.RSQRT, a))


_UNARY: dict[int, Callable[[UOp, UOp, UOp], UOp]] = {
    O.NEG: lambda g, x, y: _neg(g),
    O.RECIP: lambda g, x, y: _neg(product(g, product(y, y))),
    O.SQRT: lambda g, x, y: _div(g, _add(y, y)),
    O.RSQRT: lambda g, x, y: product(_scaled(g, -0.5), product(product(y, y), y)),
    O.EXP: lambda g, x, y: product(g, y),
    O.EXP2: lambda g, x, y: product(g, _scaled(y, log(2))),
    O.EXPM1: lambda g, x, y: product(g, _one_plus(y)),
    O.LOG: lambda g, x, y: _div(g, x),
    O.LOG2: lambda g, x, y: _div(g, _scaled(x, log(2))),
    O.LOG1P: lambda g, x, y: _div(g, _one_plus(x)),
    O.SIN: lambda g, x, y: product(g, B.unary(O.COS, x)),
    O.COS: lambda g, x, y: _neg(product(g, B.unary(O.SIN, x))),
    O.TAN: lambda g, x, y: product(g, _one_plus(product(y, y))),
    O.ASIN: lambda g, x, y: _rsqrt_of(g, one_minus(product(x, x))),
    O.ACOS: lambda g, x, y: _neg(_rsqrt_of(g, one_minus(product(x, x)))),
    O.ATAN: lambda g, x, y: _div(g, _one_plus(product(x, x))),
    O.SINH: lambda g, x, y: product(g, B.unary(O.COSH, x)),
    O.COSH: lambda g, x, y: product(g, B.unary(O.SINH, x)),
    O.TANH: lambda g, x, y: product(g, one_minus(product(y, y))),
    O.ASINH: lambda g, x, y: _rsqrt_of(g, _one_plus(product(x, x))),
    O.ACOSH: lambda g, x, y: _rsqrt_of(g, _sub(product(x, x), _number(1.0, x))),
    O.ATANH: lambda g, x, y: _div(g, one_minus(product(x, x))),
    O.ERF: _erf,
    O.ABS: _abs,
}


# -- functions of several values: g is the gradient of the node, i the position of the source ---

Rule = Callable[[UOp, UOp, int], "UOp | None"]


def _of_unary(rule: Callable[[UOp, UOp, UOp], UOp]) -> Rule:
    return lambda node, g, i: rule(g, node.src[0], node)


def _subtract(node: UOp, g: UOp, i: int) -> UOp:
    return _neg(g) if i else g


def _divide(node: UOp, g: UOp, i: int) -> UOp:
    a, b = node.src
    return _neg(product(g, _div(_div(a, b), b))) if i else _div(g, b)


def _power(node: UOp, g: UOp, i: int) -> UOp:
    base, exponent = node.src
    if i == 0:
        lower = B.binary(O.POW, base, _sub(exponent, _number(1.0, base)))
        return _zero_where(_is_zero(exponent), product(g, product(exponent, lower)))
    # 0 ** e is 0 or 1 around every e >= 0, so nothing depends on e there
    at_zero = B.binary(O.AND, _is_zero(base), B.binary(O.LE, _number(0.0, exponent), exponent))
    return _zero_where(at_zero, product(g, product(node, B.unary(O.LOG, base))))


def _remainder(node: UOp, g: UOp, i: int) -> UOp:
    a, b = node.src
    return _neg(product(g, B.unary(O.TRUNC, _div(a, b)))) if i else g


def _angle(node: UOp, g: UOp, i: int) -> UOp:
    y, x = node.src
    square = _add(product(y, y), product(x, x))
    scale = _zero_where(_is_zero(square), B.unary(O.RECIP, square))
    return product(g, product(_neg(y), scale)) if i else product(g, product(x, scale))


def _extreme(node: UOp, g: UOp, i: int) -> UOp:
    """All to the chosen operand; equal operands get half each, or the one the argument names all.

    As in torch: relu gives its argument nothing at the corner, clamp all, maximum half.
    """
    mine, other = node.src[i], node.src[1 - i]
    lost = (mine, other) if node.op == O.MAX else (other, mine)
    if node.arg == i:
        return B.where(B.binary(O.LE, *reversed(lost)), g, _number(0.0, g))
    if node.arg is not None:
        return _zero_where(B.binary(O.LE, *lost), g)
    chosen = _zero_where(B.binary(O.LT, *lost), g)
    return B.where(B.binary(O.EQ, mine, other), _scaled(g, 0.5), chosen)


def _choice(node: UOp, g: UOp, i: int) -> UOp:
    zero = _number(0.0, g)
    return B.where(node.src[0], *((g, zero) if i == 1 else (zero, g)))


def _multiply_add(node: UOp, g: UOp, i: int) -> UOp:
    return g if i == 2 else product(g, node.src[1 - i])


# -- movement ----------------------------------------------------------------------------------


def _permuted(node: UOp, g: UOp, i: int) -> UOp:
    inverse = [0] * len(node.arg)
    for place, axis in enumerate(node.arg):
        inverse[axis] = place
    return B.permute(g, tuple(inverse))


def _expanded(node: UOp, g: UOp, i: int) -> UOp:
    before, after = node.src[0].shape, node.shape
    grown = [a for a, (n, m) in enumerate(zip(before, after, strict=True)) if n != m]
    if g.op == O.CAST and g.dtype.kind == "f" and g.src[0].dtype is dt.float32:
        return B.cast(summed(g.src[0], tuple(grown)), g.dtype)  # rounded once, after the sum
    return summed(g, tuple(grown))


def _padded(node: UOp, g: UOp, i: int) -> UOp:
    sizes = zip(node.arg, node.src[0].shape, strict=True)
    return B.shrink(g, tuple([(before, before + n) for (before, _), n in sizes]))


def _shrunk(node: UOp, g: UOp, i: int) -> UOp:
    sizes = zip(node.arg, node.src[0].shape, strict=True)
    return B.pad(g, tuple([(start, n - stop) for (start, stop), n in sizes]))


def _concatenated(node: UOp, g: UOp, i: int) -> UOp:
    axis = node.arg
    start = sum([s.shape[axis] for s in node.src[:i]])
    pairs = [(0, n) for n in g.shape]
    pairs[axis] = (start, start + node.src[i].shape[axis])
    return B.shrink(g, tuple(pairs))


def _copied(node: UOp, g: UOp, i: int) -> UOp:
    back = _device_of(node.src[0])
    return g if back is None or back == node.src[1].arg else B.copy(g, back)


def _device_of(node: UOp) -> str | None:
    """The device that holds a value; None for constants."""
    seen: set[UOp] = set()
    stack = [node]
    while stack:
        node = stack.pop()
        if node.op in (O.BUFFER, O.COPY, O.PARAM) and node.src:
            return str(node.src[-1].arg)
        if node not in seen:
            seen.add(node)
            stack.extend(reversed(node.src))
    return None


# -- reductions --------------------------------------------------------------------------------

PAIRS_LIMIT = 64  # products of all other elements cost the square of the length


def _reduced(node: UOp, g: UOp, i: int) -> UOp:
    x = node.src[0]
    op, axes = node.arg
    wide = B.expand(g, x.shape)
    if op == O.ADD:
        return wide
    if op == O.MUL:
        return product(wide, _product_of_others(node, x, axes))
    x = computed_once(x)
    best = B.binary(O.EQ, x, B.expand(B.reduce(x, op, axes), x.shape))
    one, zero = _number(1.0, x), _number(0.0, x)
    count = summed(B.where(best, B.broadcast_to(one, x.shape), zero), axes)
    return B.where(best, B.expand(_div(g, count), x.shape), zero)


def _product_of_others(node: UOp, x: UOp, axes: tuple[int, ...]) -> UOp:
    """For each element the product of all others; exact where there are zeros."""
    shape = x.shape
    count = prod([shape[a] for a in axes])
    if count <= PAIRS_LIMIT:
        kept = tuple([a for a in range(len(shape)) if a not in axes])
        lead = tuple([shape[a] for a in kept])
        flat = B.reshape(B.permute(x, (*kept, *axes)), (*lead, 1, count))
        line = B.iota(count, dt.int32)
        ones = (1,) * len(lead)
        same = B.binary(
            O.EQ,
            B.reshape(line, (*ones, count, 1)),
            B.reshape(line, (*ones, 1, count)),
        )
        others = B.where(same, _number(1.0, x), flat)
        found = B.reduce(others, O.MUL, (len(lead) + 1,))
        found = B.reshape(found, (*lead, *[shape[a] for a in axes]))
        order = [0] * len(shape)
        for place, axis in enumerate((*kept, *axes)):
            order[axis] = place
        return B.permute(found, tuple(order))
    one = _number(1.0, x)
    is_zero = _is_zero(x)
    zeros = B.expand(summed(B.cast(is_zero, x.dtype), axes), shape)
    rest = B.expand(B.reduce(B.where(is_zero, one, x), O.MUL, axes), shape)
    alone = B.where(B.binary(O.EQ, zeros, one), rest, _number(0.0, x))
    among = _zero_where(B.binary(O.LT, _number(0.0, x), zeros), _div(B.expand(node, shape), x))
    return B.where(is_zero, alone, among)


# -- indexed access ----------------------------------------------------------------------------


def _gathered(node: UOp, g: UOp, i: int) -> UOp:
    x = node.src[0]
    return B.scatter(B.full(x.shape, 0.0, x.dtype), g, node.src[1:], "add")


def _scattered(node: UOp, g: UOp, i: int) -> UOp:
    values, indices = node.src[1], node.src[2:]
    if node.arg == "add":
        return B.gather(g, indices) if i else g
    if i == 0:  # nothing of x is left where something was written
        return B.scatter(g, B.full(values.shape, 0.0, g.dtype), indices, "set")
    return B.where(_last_writers(node), B.gather(g, indices), _number(0.0, g))


def _last_writers(node: UOp) -> UOp:
    """Which values of a setting SCATTER are still there at the end."""
    x, values, *indices = node.src
    lead = indices[0].shape
    turn = B.reshape(B.iota(prod(lead), dt.int32), lead)
    table = B.full(x.shape[: len(indices)], -1, dt.int32)
    last = B.gather(B.scatter(table, turn, indices, "set"), indices)
    is_last = B.binary(O.EQ, last, turn)
    spread = lead + (1,) * (len(values.shape) - len(lead))
    return B.broadcast_to(B.reshape(is_last, spread), values.shape)


FLAT = frozenset({O.TRUNC, O.FLOOR, O.CEIL, O.ROUND, O.MOD, O.IDIV})  # steps: no gradient

RULES: dict[int, Rule] = {
    **{op: _of_unary(rule) for op, rule in _UNARY.items()},
    O.ADD: lambda node, g, i: g,
    O.SUB: _subtract,
    O.MUL: lambda node, g, i: product(g, node.src[1 - i]),
    O.DIV: _divide,
    O.POW: _power,
    O.FMOD: _remainder,
    O.ATAN2: _angle,
    O.MAX: _extreme,
    O.MIN: _extreme,
    O.WHERE: _choice,
    O.FMA: _multiply_add,
    O.CAST: lambda node, g, i: B.cast(g, node.src[0].dtype),
    O.RESHAPE: lambda node, g, i: B.reshape(g, node.src[0].shape),
    O.PERMUTE: _permuted,
    O.EXPAND: _expanded,
    O.PAD: _padded,
    O.SHRINK: _shrunk,
    O.FLIP: lambda node, g, i: B.flip(g, node.arg),
    O.CAT: _concatenated,
    O.REDUCE_AXIS: _reduced,
    O.GATHER: _gathered,
    O.SCATTER: _scattered,
    O.CONTIGUOUS: lambda node, g, i: g,
    O.COPY: _copied,
    O.SHARD: lambda node, g, i: g,  # where the gradient goes is decided by who uses it
    O.ASSIGN: lambda node, g, i: g,
}
