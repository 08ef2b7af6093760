"""Reverse-mode gradients as graph rewriting.

In: a root, the gradient of the root (the seed), and target nodes. Out: a node per target, the
gradient with respect to it, or None where the root does not depend on it. Every node is visited
once, after all its users; its rule says what each source receives. The result is an ordinary
graph: it is scheduled and fused with everything else and can be differentiated again.

A BITCAST to its own dtype changes no value and marks a place: without an argument nothing flows
through it (detach), with a ``Mark`` it names an argument of a function or a custom gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import log, pi, prod, sqrt
from typing import Any, NamedTuple

from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import UOp, const, make, substitute
from svod.ir.scan import Loop, loop_of
from svod.tensor.core import accumulator
from svod.tensor.scan_gradient import loop_gradients

Origin = Callable[[UOp], "UOp | None"]
CustomRule = Callable[[UOp, UOp, Sequence[UOp]], "Sequence[UOp | None]"]


class Mark(NamedTuple):
    """The argument of a marking BITCAST; equal calls make equal nodes, so schedules are reused."""

    name: str  # of the function it belongs to
    role: str  # "argument", or "input" and "output" of a function with a gradient of its own
    position: int = 0
    options: tuple[Any, ...] = ()  # plain arguments of the function
    is_complex: bool = False  # the marked floats are pairs, seen by the function as complex


custom_rules: dict[str, CustomRule] = {}  # filled by svod.tensor.autograd.custom_gradient


def mark(x: UOp, argument: Mark | None = None) -> UOp:
    """x behind a marking node; without an argument gradients stop there."""
    node = make(O.BITCAST, x.dtype, (x,), argument)
    node._shape = x.shape
    return node


def is_mark(node: UOp) -> bool:
    """Whether the node names a place through which gradients flow."""
    return node.op == O.BITCAST and isinstance(node.arg, Mark)


def gradient(
    root: UOp, seed: UOp, targets: Sequence[UOp], origin: Origin | None = None
) -> list[UOp | None]:
    """The gradients of the root with respect to the targets, given the root's own."""
    return gradients([(root, seed)], targets, origin)


def gradients(
    roots: Sequence[tuple[UOp, UOp]], targets: Sequence[UOp], origin: Origin | None = None
) -> list[UOp | None]:
    """The gradients of several roots, each with its own gradient, added up per target.

    ``origin`` says what a BUFFER was computed from, for values that were realised on the way.
    Constructors merge movement ops, so a target is a node that nothing looks through: a BUFFER,
    perhaps reshaped, a CONTIGUOUS, a marked or a computed value.
    """
    bases = [_stored_base(t) for t in targets]
    wanted = set(bases)
    edges, order = _walk([root for root, _ in roots], wanted, origin)
    needed: set[UOp] = set()
    for node in order:
        if node in wanted or any(s in needed for _, s in edges[node]):
            needed.add(node)
    received: dict[UOp, list[UOp]] = {}
    for root, seed in roots:
        received.setdefault(root, []).append(seed)
    loops = _Loops(order)
    found: dict[UOp, UOp] = {}
    stored: dict[UOp, UOp] = {}
    for node in reversed(order):
        parts = received.pop(node, None)
        if node not in needed:
            continue
        if parts is None:
            if node.op == O.SCAN:
                loops.pass_on(node, None, needed, received)
            continue
        own = _added(node, parts)
        if node in wanted:
            found[node] = own
        if node.op == O.SCAN:
            loops.pass_on(node, own, needed, received)
            continue
        flowing = [(i, s) for i, s in edges[node] if s in needed]
        if not flowing:
            continue
        if node.op == O.BUFFER:  # realised: go on through what computed it
            ((_, source),) = flowing
            stored[source] = B.reshape(node, source.shape)
            received.setdefault(source, []).append(B.reshape(own, source.shape))
            continue
        for source, part in _parts(node, own, flowing):
            received.setdefault(source, []).append(_fitted(part, source))
    pairs = zip(targets, [found.get(b) for b in bases], strict=True)
    results = [None if g is None else B.reshape(g, t.shape) for t, g in pairs]
    return _with_stored(results, stored) if stored else results


class _Loops:
    """Loops over time: their results give what they received together, so it is one loop back.

    All results of a loop have the same sources, so the first one in the order comes before any
    source is visited on the way back, and after every other result.
    """

    def __init__(self, order: Sequence[UOp]) -> None:
        self.first: dict[Loop, UOp] = {}
        for node in order:
            if node.op == O.SCAN:
                self.first.setdefault(loop_of(node), node)
        self.seeds: dict[Loop, list[tuple[UOp, UOp]]] = {}

    def pass_on(
        self, node: UOp, own: UOp | None, needed: set[UOp], received: dict[UOp, list[UOp]]
    ) -> None:
        loop = loop_of(node)
        seeds = self.seeds.setdefault(loop, [])
        if own is not None:
            seeds.append((node, own))
        if seeds and self.first[loop] is node:
            for source, part in loop_gradients(seeds, needed, gradients):
                received.setdefault(source, []).append(_fitted(part, source))


def _stored_base(node: UOp) -> UOp:
    """The BUFFER behind reshapes, else the node itself."""
    base = node
    while base.op == O.RESHAPE:
        base = base.src[0]
    return base if base.op in (O.BUFFER, O.BUFFER_VIEW) else node


def _walk(
    roots: Sequence[UOp], wanted: set[UOp], origin: Origin | None
) -> tuple[dict[UOp, list[tuple[int, UOp]]], list[UOp]]:
    """What gradients of each node flow to, and the nodes in order, sources first."""
    edges: dict[UOp, list[tuple[int, UOp]]] = {}
    order: list[UOp] = []
    stack = [(root, False) for root in roots]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
        elif node not in edges:
            found = edges[node] = _edges(node, wanted, origin)
            stack.append((node, True))
            stack.extend([(s, False) for _, s in reversed(found) if s not in edges])
    return edges, order


def _edges(node: UOp, wanted: set[UOp], origin: Origin | None) -> list[tuple[int, UOp]]:
    """The sources that can receive a gradient, with their positions."""
    op = node.op
    if node.dtype.kind != "f":
        return []
    if op == O.BUFFER:
        source = None if origin is None else origin(node)
        return [] if source is None else [(0, source)]
    if op == O.BITCAST:
        if not is_mark(node):
            return []
        if node.arg.role == "output":
            return list(enumerate(_inputs(node)))
        return [(0, node.src[0])]
    if op == O.ASSIGN:
        return [(1, node.src[1])]
    if op == O.AFTER:  # memory that was written: plain data
        return []
    if op == O.SCAN:
        inputs = enumerate(node.src[2:], 2)
        return [(i, s) for i, s in inputs if s.dtype.kind == "f"]
    if op == O.RECIP and (x := _logistic(node, wanted)) is not None:
        return [(0, x)]
    return [(i, s) for i, s in enumerate(node.src) if s.dtype.kind == "f"]


def _inputs(output: UOp) -> list[UOp]:
    """The marked inputs of one call of a function with its own gradient, in order."""
    name = output.arg.name
    found: dict[int, UOp] = {}
    seen: set[UOp] = set()
    stack = [output.src[0]]
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if is_mark(node) and node.arg.name == name:
            if node.arg.role == "input":
                found[node.arg.position] = node
            continue  # what is below belongs to another call
        stack.extend(node.src)
    return [found[i] for i in sorted(found)]


def _parts(node: UOp, own: UOp, flowing: list[tuple[int, UOp]]) -> list[tuple[UOp, UOp]]:
    """What each source receives."""
    if is_mark(node):
        if node.arg.role != "output":
            return [(node.src[0], own)]
        inputs = _inputs(node)
        given = custom_rules[node.arg.name](node, own, inputs)
        by_position = {n.arg.position: n for n in inputs}
        found = [(by_position.get(i), part) for i, part in enumerate(given)]
        wanted = {s for _, s in flowing}
        return [(n, p) for n, p in found if n is not None and p is not None and n in wanted]
    if node.op == O.RECIP and flowing[0][1] is not node.src[0]:
        return [(flowing[0][1], _mul(own, _mul(node, _one_minus(node))))]
    rule = _RULES.get(node.op)
    if rule is None:
        if node.op in _FLAT:
            return []
        raise UnsupportedError(f"the gradient of {O.NAMES[node.op]}", "gradient")
    parts = [(s, rule(node, own, i)) for i, s in flowing]
    return [(s, p) for s, p in parts if p is not None]


def _logistic(node: UOp, wanted: set[UOp]) -> UOp | None:
    """x when the node is 1 / (exp(-x) + 1), whose parts overflow where the whole does not."""
    total = node.src[0]
    if total.op != O.ADD or total.src[1].op != O.CONST or total.src[1].arg != 1:
        return None
    grown = total.src[0]
    if grown.op != O.EXP or grown.src[0].op != O.NEG:
        return None
    inner = (total, grown, grown.src[0])
    return None if any(n in wanted for n in inner) else grown.src[0].src[0]


def _added(node: UOp, parts: list[UOp]) -> UOp:
    """The sum of what a node received."""
    joined = _joined(node, parts) if len(parts) > 2 else None
    if joined is not None:
        return joined
    total = parts[0]
    for part in parts[1:]:
        total = B.binary(O.ADD, total, part)
    return total


def _joined(node: UOp, parts: list[UOp]) -> UOp | None:
    """Padded slices that cover an axis side by side are a concatenation, not a sum."""
    shape = node.shape
    places = []
    for part in parts:
        if part.op != O.PAD:
            return None
        cut = [a for a, pair in enumerate(part.arg) if pair != (0, 0)]
        if len(cut) != 1 or part.src[0].dtype is not node.dtype:
            return None
        places.append((cut[0], part.arg[cut[0]][0], part.src[0]))
    axis = places[0][0]
    places.sort(key=lambda place: place[1])
    start = 0
    for own, before, piece in places:
        if own != axis or before != start:
            return None
        start += piece.shape[axis]
    return B.cat([p for _, _, p in places], axis) if start == shape[axis] else None


def _fitted(part: UOp, source: UOp) -> UOp:
    """A gradient in the shape of its source: a rank-0 operand was used everywhere."""
    if part.shape == source.shape:
        return part
    if not source.shape:
        return B.reshape(_sum(part, tuple(range(len(part.shape)))), ())
    return B.broadcast_to(part, source.shape)


def _with_stored(results: list[UOp | None], stored: Mapping[UOp, UOp]) -> list[UOp | None]:
    """Realised values are read, not computed again."""
    roots = tuple([r for r in results if r is not None])
    replaced = iter(substitute(roots, dict(stored)))
    return [None if r is None else next(replaced) for r in results]


# -- small pieces ------------------------------------------------------------------------------


def _number(value: float, like: UOp) -> UOp:
    return const(value, like.dtype)


def _add(a: UOp, b: UOp) -> UOp:
    return B.binary(O.ADD, a, b)


def _sub(a: UOp, b: UOp) -> UOp:
    return B.binary(O.SUB, a, b)


def _mul(a: UOp, b: UOp) -> UOp:
    return B.binary(O.MUL, a, b)


def _div(a: UOp, b: UOp) -> UOp:
    return B.binary(O.DIV, a, b)


def _neg(a: UOp) -> UOp:
    return B.unary(O.NEG, a)


def _scaled(a: UOp, factor: float) -> UOp:
    return B.binary(O.MUL, a, _number(factor, a))


def _one_plus(a: UOp) -> UOp:
    return _add(a, _number(1.0, a))


def _one_minus(a: UOp) -> UOp:
    return _sub(_number(1.0, a), a)


def _zero_where(condition: UOp, value: UOp) -> UOp:
    return B.where(condition, _number(0.0, value), value)


def _is_zero(a: UOp) -> UOp:
    return B.binary(O.EQ, a, _number(0.0, a))


def _sum(x: UOp, axes: tuple[int, ...]) -> UOp:
    """The sum over axes, which stay; narrow floats are added up in float32."""
    wide = accumulator(x.dtype)
    return B.cast(B.reduce(B.cast(x, wide), O.ADD, axes), x.dtype)


# -- functions of one value: y = f(x), g is the gradient of y -----------------------------------


def _abs(g: UOp, x: UOp, y: UOp) -> UOp:
    below = B.binary(O.LT, x, _number(0.0, x))
    return _zero_where(_is_zero(x), B.where(below, _neg(g), g))


def _erf(g: UOp, x: UOp, y: UOp) -> UOp:
    return _mul(g, _scaled(B.unary(O.EXP, _neg(_mul(x, x))), 2.0 / sqrt(pi)))


def _rsqrt_of(g: UOp, a: UOp) -> UOp:
    return _mul(g, B.unary(O.RSQRT, a))


_UNARY: dict[int, Callable[[UOp, UOp, UOp], UOp]] = {
    O.NEG: lambda g, x, y: _neg(g),
    O.RECIP: lambda g, x, y: _neg(_mul(g, _mul(y, y))),
    O.SQRT: lambda g, x, y: _div(g, _add(y, y)),
    O.RSQRT: lambda g, x, y: _mul(_scaled(g, -0.5), _mul(_mul(y, y), y)),
    O.EXP: lambda g, x, y: _mul(g, y),
    O.EXP2: lambda g, x, y: _mul(g, _scaled(y, log(2))),
    O.EXPM1: lambda g, x, y: _mul(g, _one_plus(y)),
    O.LOG: lambda g, x, y: _div(g, x),
    O.LOG2: lambda g, x, y: _div(g, _scaled(x, log(2))),
    O.LOG1P: lambda g, x, y: _div(g, _one_plus(x)),
    O.SIN: lambda g, x, y: _mul(g, B.unary(O.COS, x)),
    O.COS: lambda g, x, y: _neg(_mul(g, B.unary(O.SIN, x))),
    O.TAN: lambda g, x, y: _mul(g, _one_plus(_mul(y, y))),
    O.ASIN: lambda g, x, y: _rsqrt_of(g, _one_minus(_mul(x, x))),
    O.ACOS: lambda g, x, y: _neg(_rsqrt_of(g, _one_minus(_mul(x, x)))),
    O.ATAN: lambda g, x, y: _div(g, _one_plus(_mul(x, x))),
    O.SINH: lambda g, x, y: _mul(g, B.unary(O.COSH, x)),
    O.COSH: lambda g, x, y: _mul(g, B.unary(O.SINH, x)),
    O.TANH: lambda g, x, y: _mul(g, _one_minus(_mul(y, y))),
    O.ASINH: lambda g, x, y: _rsqrt_of(g, _one_plus(_mul(x, x))),
    O.ACOSH: lambda g, x, y: _rsqrt_of(g, _sub(_mul(x, x), _number(1.0, x))),
    O.ATANH: lambda g, x, y: _div(g, _one_minus(_mul(x, x))),
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
    return _neg(_mul(g, _div(_div(a, b), b))) if i else _div(g, b)


def _power(node: UOp, g: UOp, i: int) -> UOp:
    base, exponent = node.src
    if i == 0:
        lower = B.binary(O.POW, base, _sub(exponent, _number(1.0, base)))
        return _zero_where(_is_zero(exponent), _mul(g, _mul(exponent, lower)))
    # 0 ** e is 0 or 1 around every e >= 0, so nothing depends on e there
    at_zero = B.binary(O.AND, _is_zero(base), B.binary(O.LE, _number(0.0, exponent), exponent))
    return _zero_where(at_zero, _mul(g, _mul(node, B.unary(O.LOG, base))))


def _remainder(node: UOp, g: UOp, i: int) -> UOp:
    a, b = node.src
    return _neg(_mul(g, B.unary(O.TRUNC, _div(a, b)))) if i else g


def _angle(node: UOp, g: UOp, i: int) -> UOp:
    y, x = node.src
    square = _add(_mul(y, y), _mul(x, x))
    scale = _zero_where(_is_zero(square), B.unary(O.RECIP, square))
    return _mul(g, _mul(_neg(y), scale)) if i else _mul(g, _mul(x, scale))


def _extreme(node: UOp, g: UOp, i: int) -> UOp:
    """All to the chosen operand; equal operands get half each.

    A constant operand is a limit: relu gives nothing at its corner and clamp gives all, as torch.
    """
    mine, other = node.src[i], node.src[1 - i]
    lost = (mine, other) if node.op == O.MAX else (other, mine)
    if other.op == O.CONST:
        return _zero_where(B.binary(O.LT if other.arg else O.LE, *lost), g)
    chosen = _zero_where(B.binary(O.LT, *lost), g)
    return B.where(B.binary(O.EQ, mine, other), _scaled(g, 0.5), chosen)


def _choice(node: UOp, g: UOp, i: int) -> UOp:
    zero = _number(0.0, g)
    return B.where(node.src[0], *((g, zero) if i == 1 else (zero, g)))


def _multiply_add(node: UOp, g: UOp, i: int) -> UOp:
    return g if i == 2 else _mul(g, node.src[1 - i])


# -- movement ----------------------------------------------------------------------------------


def _permuted(node: UOp, g: UOp, i: int) -> UOp:
    inverse = [0] * len(node.arg)
    for place, axis in enumerate(node.arg):
        inverse[axis] = place
    return B.permute(g, tuple(inverse))


def _expanded(node: UOp, g: UOp, i: int) -> UOp:
    before, after = node.src[0].shape, node.shape
    grown = [a for a, (n, m) in enumerate(zip(before, after, strict=True)) if n != m]
    return _sum(g, tuple(grown))


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
        return _mul(wide, _product_of_others(node, x, axes))
    best = B.binary(O.EQ, x, B.expand(node, x.shape))
    one, zero = _number(1.0, x), _number(0.0, x)
    count = _sum(B.where(best, B.broadcast_to(one, x.shape), zero), axes)
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
    zeros = B.expand(_sum(B.cast(is_zero, x.dtype), axes), shape)
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


_FLAT = frozenset({O.TRUNC, O.FLOOR, O.CEIL, O.ROUND, O.MOD, O.IDIV})  # steps: no gradient

_RULES: dict[int, Rule] = {
    **{op: _of_unary(rule) for op, rule in _UNARY.items()},
    O.ADD: lambda node, g, i: g,
    O.SUB: _subtract,
    O.MUL: lambda node, g, i: _mul(g, node.src[1 - i]),
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
    O.ASSIGN: lambda node, g, i: g,
}
