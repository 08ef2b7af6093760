"""Index arithmetic in normal form: smart constructors, no simplifier pass.

Every ``index`` node is built here, so equal expressions usually meet and substitution
simplifies again for free. A sum is left-nested, terms in order of first appearance (those of sizes
in one order), the constant last. Division and modulo round toward minus infinity; divisors are
positive.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from math import gcd

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.bounds import within
from svod.ir.node import UOp, const, make
from svod.ir.relaxed import relaxed_bounds, upper_bound

_index = dt.index
_bool = dt.bool_

ZERO = const(0, _index)
ONE = const(1, _index)
TRUE = const(True, _bool)
FALSE = const(False, _bool)


def num(value: int) -> UOp:
    """An index constant."""
    return const(value, _index)


def _split_coefficient(node: UOp) -> tuple[UOp, int]:
    if node.op == O.MUL and node.src[1].op == O.CONST:
        return node.src[0], node.src[1].arg
    return node, 1


def terms_of(node: UOp) -> tuple[dict[UOp, int], int]:
    """A sum as coefficients by term and a constant."""
    terms: dict[UOp, int] = {}
    constant = 0
    flat = []
    while node.op == O.ADD:
        flat.append(node.src[1])
        node = node.src[0]
    flat.append(node)
    flat.reverse()
    for part in flat:
        if part.op == O.CONST:
            constant += part.arg
        else:
            base, factor = _split_coefficient(part)
            terms[base] = terms.get(base, 0) + factor
    return terms, constant


def from_terms(terms: dict[UOp, int], constant: int) -> UOp:
    """The normal form of a sum."""
    total: UOp | None = None
    if len(terms) > 1 and all(map(_is_size, terms)):
        terms = {t: terms[t] for t in sorted(terms, key=_order)}
    for base, factor in terms.items():
        if factor == 0:
            continue
        part = base if factor == 1 else make(O.MUL, _index, (base, const(factor, _index)))
        total = part if total is None else make(O.ADD, _index, (total, part))
    if total is None:
        return const(constant, _index)
    if constant:
        total = make(O.ADD, _index, (total, const(constant, _index)))
    return _tightened(total, terms, constant) if len(terms) > 1 else total


def _tightened(total: UOp, terms: dict[UOp, int], constant: int) -> UOp:
    """A sum of sizes, which knows what its terms are together at most."""
    found = relaxed_bounds(terms, constant, terms_of)
    return total if found is None or not _is_size(total) else within(total, *found)


_IN_SIZES = frozenset({O.ADD, O.MUL, O.IDIV, O.MOD, O.MAX, O.MIN, O.CAST})


def _is_size(node: UOp) -> bool:
    """Whether a value is made of variables and numbers alone, not of loop or thread counters."""
    if node.op in (O.CONST, O.DEFINE_VAR, O.BIND):
        return True
    return node.op in _IN_SIZES and all(map(_is_size, node.src))


def add(a: UOp, b: UOp) -> UOp:
    if a.op == O.CONST:
        if b.op == O.CONST:
            return const(a.arg + b.arg, _index)
        a, b = b, a
    if b.op == O.CONST:
        value = b.arg
        if value == 0:
            return a
        if a.op == O.ADD and a.src[1].op == O.CONST:
            value += a.src[1].arg
            a = a.src[0]
            if value == 0:
                return a
        return make(O.ADD, _index, (a, const(value, _index)))
    terms, constant = terms_of(a)
    more, extra = terms_of(b)
    for base, factor in more.items():
        terms[base] = terms.get(base, 0) + factor
    return from_terms(terms, constant + extra + _recombine(terms))


def _recombine(terms: dict[UOp, int]) -> int:
    """(x//c)*c*k + (x%c)*k is x*k. Returns what x adds to the constant."""
    total = 0
    for base in list(terms):
        if base.op != O.MOD or base.src[1].op != O.CONST:
            continue
        factor = terms.get(base, 0)
        if factor == 0:
            continue
        inner, divisor = base.src[0], base.src[1].arg
        quotient = idiv(inner, divisor)
        if quotient.op == O.CONST:
            continue
        other, scale = _split_coefficient(quotient)
        if scale == 1 and terms.get(other, 0) == factor * divisor:
            del terms[other]
            del terms[base]
            more, constant = terms_of(inner)
            total += constant * factor
            for part, coefficient in more.items():
                terms[part] = terms.get(part, 0) + coefficient * factor
    return total


def mul(a: UOp, b: UOp | int) -> UOp:
    if isinstance(b, int):
        factor = b
    elif b.op == O.CONST:
        factor = b.arg
    elif a.op == O.CONST:
        a, factor = b, a.arg
    else:
        return _product(a, b)
    if factor == 1:
        return a
    if factor == 0:
        return ZERO
    if a.op == O.CONST:
        return const(a.arg * factor, _index)
    if a.op == O.ADD:
        terms, constant = terms_of(a)
        return from_terms({t: c * factor for t, c in terms.items()}, constant * factor)
    base, own = _split_coefficient(a)
    factor *= own
    return base if factor == 1 else make(O.MUL, _index, (base, const(factor, _index)))


def _product(a: UOp, b: UOp) -> UOp:
    """Two sizes or counters multiplied: sums are distributed, numbers come out in front."""
    if a.op == O.ADD or b.op == O.ADD:
        left, first = terms_of(a)
        right, second = terms_of(b)
        total = num(first * second)
        for x, p in left.items():
            total = add(total, mul(x, p * second))
            for y, q in right.items():
                total = add(total, mul(_product(x, y), p * q))
        for y, q in right.items():
            total = add(total, mul(y, q * first))
        return total
    x, p = _split_coefficient(a)
    y, q = _split_coefficient(b)
    product, *others = sorted([*_factors(x), *_factors(y)], key=_order)
    for factor in others:
        product = make(O.MUL, _index, (product, factor))
    return mul(product, p * q)


def _factors(a: UOp) -> list[UOp]:
    """The factors of a product of sizes and counters."""
    found = []
    while a.op == O.MUL:
        found.append(a.src[1])
        a = a.src[0]
    return [a, *found]


def _order(a: UOp) -> tuple[int, str, int]:
    """One order of sizes, so that equal sums and products are equal nodes."""
    return a.op, repr(a.arg), a.sn


def neg(a: UOp) -> UOp:
    return mul(a, -1)


def sub(a: UOp, b: UOp) -> UOp:
    return add(a, mul(b, -1))


def minimum(a: UOp, b: UOp) -> UOp:
    """The smaller of two sizes; a maximum turned round, which launch sizes may hold."""
    difference = sub(a, b)
    if difference.vmax <= 0:
        return a
    return b if difference.vmin >= 0 else neg(make(O.MAX, _index, (neg(a), neg(b))))


def _larger(a: UOp, b: UOp) -> UOp | None:
    """The larger of two sizes, where it is always the same one."""
    difference = sub(a, b)
    return a if difference.vmin >= 0 else b if difference.vmax <= 0 else None


def is_minimum_with(a: UOp, b: UOp) -> bool:
    """Whether a size is the smaller of another one and something else."""
    inner, factor = _split_coefficient(a)
    return factor == -1 and inner.op == O.MAX and neg(b) in inner.src


def value_of(size: UOp) -> int | None:
    """The number that a size is with the values its variables are bound to; None if one is free."""
    values: dict[UOp, int] = {}
    for node in _order_of_size(size):
        op = node.op
        if op == O.CONST:
            values[node] = node.arg
        elif op == O.BIND:
            values[node] = node.src[1].arg
        elif op in _SIZE_ARITHMETIC and all(s in values for s in node.src):
            values[node] = _SIZE_ARITHMETIC[op](*[values[s] for s in node.src])
        elif op == O.CAST and node.src[0] in values:
            values[node] = values[node.src[0]]
        else:
            return None
    return values[size]


def size_text(size: UOp | int) -> str:
    """A size as people write it: `8 - n`, `min(7, n)`."""
    if not isinstance(size, UOp):
        return str(size)
    if size.op == O.CONST:
        return str(size.arg)
    if size.op == O.DEFINE_VAR:
        return str(size.arg.name)
    if size.op == O.BIND or size.op == O.CAST:
        return size_text(size.src[0])
    inner, factor = _split_coefficient(size)
    if factor == -1 and inner.op == O.MAX:
        return f"min({', '.join([size_text(neg(s)) for s in inner.src])})"
    parts = [size_text(s) for s in size.src]
    if size.op == O.MAX:
        return f"max({', '.join(parts)})"
    sign = {O.ADD: "+", O.MUL: "*", O.IDIV: "//", O.MOD: "%"}.get(size.op, O.NAMES[size.op])
    return f"({f' {sign} '.join(parts)})"


def shape_text(shape: tuple[UOp | int, ...]) -> str:
    """A shape as people write it."""
    return f"({', '.join(map(size_text, shape))}{',' if len(shape) == 1 else ''})"


def _order_of_size(size: UOp) -> list[UOp]:
    """The nodes of a size, sources first, without entering what is bound."""
    order: dict[UOp, None] = {}

    def visit(node: UOp) -> None:
        if node not in order:
            for source in () if node.op == O.BIND else node.src:
                visit(source)
            order[node] = None

    visit(size)
    return list(order)


_SIZE_ARITHMETIC: dict[int, Callable[[int, int], int]] = {
    O.ADD: operator.add,
    O.MUL: operator.mul,
    O.IDIV: operator.floordiv,
    O.MOD: operator.mod,
    O.MAX: max,
}


def _bounds(terms: dict[UOp, int], constant: int) -> tuple[int, int]:
    lo = hi = constant
    for t, c in terms.items():
        if c > 0:
            lo += c * t.vmin
            hi += c * t.vmax
        else:
            lo += c * t.vmax
            hi += c * t.vmin
    return lo, hi


def idiv(a: UOp, c: int) -> UOp:
    """a // c for a positive constant c."""
    if c == 1:
        return a
    lo, hi = a.vmin, a.vmax
    if lo // c == hi // c:
        return const(lo // c, _index)
    if a.op == O.IDIV and a.src[1].op == O.CONST:
        return idiv(a.src[0], a.src[1].arg * c)
    terms, constant = terms_of(a)
    whole: dict[UOp, int] = {}
    rest: dict[UOp, int] = {}
    for t, k in terms.items():
        q, r = divmod(k, c)
        if r == 0:
            whole[t] = q
        else:
            rest[t] = k
    q, constant = divmod(constant, c)
    lo, hi = _bounds(rest, constant)
    if lo // c == hi // c:
        return from_terms(whole, q + lo // c)
    common = c
    for k in rest.values():
        common = gcd(common, k)
    if common > 1:
        rest = {t: k // common for t, k in rest.items()}
        constant //= common
        c //= common
    inner = from_terms(rest, constant)
    if len(rest) == 1 and constant == 0 and inner.op == O.IDIV and inner.src[1].op == O.CONST:
        part = idiv(inner.src[0], inner.src[1].arg * c)
    elif c > 1 and max(rest.values()) < 0 and _is_size(inner):
        part = neg(idiv(add(neg(inner), num(c - 1)), c))  # -x // c rounds x / c up
    else:
        part = inner if c == 1 else make(O.IDIV, _index, (inner, const(c, _index)))
    if not whole and q == 0:
        return part
    return add(from_terms(whole, q), part)


def mod(a: UOp, c: int) -> UOp:
    """a % c for a positive constant c, in [0, c)."""
    if c == 1:
        return ZERO
    lo, hi = a.vmin, a.vmax
    if lo // c == hi // c:
        return a if lo // c == 0 else add(a, num(-c * (lo // c)))
    if a.op == O.MOD and a.src[1].op == O.CONST and a.src[1].arg % c == 0:
        return mod(a.src[0], c)
    terms, constant = terms_of(a)
    rest: dict[UOp, int] = {}
    for t, k in terms.items():
        r = k % c
        if r:
            # a small negative coefficient stays: -1 is better than c - 1 for the bounds
            rest[t] = k if -c < k < 0 else r
    constant %= c
    lo, hi = _bounds(rest, constant)
    if lo // c == hi // c:
        return from_terms(rest, constant - c * (lo // c))
    common = c
    for k in rest.values():
        common = gcd(common, k)
    if common > 1:
        # (g*y + k) % (g*d) = g*((y + k//g) % d) + k%g
        inner = from_terms({t: k // common for t, k in rest.items()}, constant // common)
        return add(mul(mod(inner, c // common), common), num(constant % common))
    inner = from_terms(rest, constant)
    if inner.op == O.MOD and inner.src[1].op == O.CONST and inner.src[1].arg % c == 0:
        return mod(inner.src[0], c)
    return make(O.MOD, _index, (inner, const(c, _index)))


def parted(a: UOp, c: UOp) -> tuple[UOp, UOp]:
    """a // c and a % c for a positive c that may be a run-time size.

    A loop over pieces of what c counts is divided by itself: of ``g*y + k`` with ``0 <= k < g`` and
    a g that divides c these are ``y // (c/g)`` and ``g*(y % (c/g)) + k``.
    """
    if c.op != O.CONST:
        return divide(a, c), modulo(a, c)
    terms, constant = terms_of(a)
    for size in sorted({gcd(c.arg, k) for k in terms.values()} - {1, c.arg}, reverse=True):
        inside = {t: k for t, k in terms.items() if k % size}
        lo, hi = _bounds(inside, constant % size)
        if inside and lo >= 0 and hi < size:
            groups = {t: k // size for t, k in terms.items() if k % size == 0}
            whole, rest = from_terms(groups, constant // size), from_terms(inside, constant % size)
            return idiv(whole, c.arg // size), add(mul(mod(whole, c.arg // size), size), rest)
    return idiv(a, c.arg), mod(a, c.arg)


def divide(a: UOp, c: UOp) -> UOp:
    """a // c for a positive c that may be a run-time size."""
    if c.op == O.CONST:
        return idiv(a, c.arg)
    whole, rest = _multiples(a, c)
    if rest.vmin >= 0 and _is_below(rest, c):
        return whole
    if whole is not ZERO and rest.vmin >= 0:
        return add(whole, make(O.IDIV, _index, (rest, c)))
    return make(O.IDIV, _index, (a, c))


def modulo(a: UOp, c: UOp) -> UOp:
    """a % c for a positive c that may be a run-time size."""
    if c.op == O.CONST:
        return mod(a, c.arg)
    _, rest = _multiples(a, c)
    if rest.vmin >= 0 and _is_below(rest, c):
        return rest
    return make(O.MOD, _index, (rest if rest.vmin >= 0 else a, c))


def _multiples(a: UOp, c: UOp) -> tuple[UOp, UOp]:
    """a as whole * c + rest, for the terms that show the factor c."""
    terms, constant = terms_of(a)
    whole, rest = ZERO, {}
    for term, factor in terms.items():
        if term is c:
            whole = add(whole, num(factor))
        elif term.op == O.MUL and c in term.src:
            other = term.src[0] if term.src[1] is c else term.src[1]
            whole = add(whole, mul(other, factor))
        else:
            rest[term] = factor
    return whole, from_terms(rest, constant)


def _is_below(a: UOp, size: UOp) -> bool:
    """Whether a is below a size, whatever the variables of both are; a counter is below the size
    of its loop."""
    if a.vmax < size.vmin or (a.op == O.RANGE and a.src[0] is size):
        return True
    return bool(a.ranges) and upper_bound(*terms_of(sub(a, size)), terms_of) < 0


def lt(a: UOp, b: UOp | int) -> UOp:
    """a < b as a bool node, with terms on the left and a constant on the right."""
    if not isinstance(b, int):
        if b.op != O.CONST and _is_below(a, b):
            return TRUE
        a, b = sub(a, b), 0
    if a.vmax < b:
        return TRUE
    if a.vmin >= b:
        return FALSE
    terms, constant = terms_of(a)
    limit = b - constant
    common = 0
    for k in terms.values():
        common = gcd(common, k)
    if common > 1:
        terms = {t: k // common for t, k in terms.items()}
        limit = -(-limit // common)
    return make(O.LT, _bool, (from_terms(terms, 0), const(limit, _index)))


def ge(a: UOp, b: int) -> UOp:
    return lt(neg(a), 1 - b)


def eq(a: UOp, b: UOp) -> UOp:
    """a == b as a bool node."""
    difference = sub(a, b)
    if difference.op == O.CONST:
        return TRUE if difference.arg == 0 else FALSE
    if difference.vmin > 0 or difference.vmax < 0:
        return FALSE
    return make(O.EQ, _bool, (difference, ZERO))


def and_(a: UOp, b: UOp) -> UOp:
    """Conjunction; the parts are left-nested and appear once."""
    if a is b or b is TRUE:
        return a
    if a is TRUE:
        return b
    if a is FALSE or b is FALSE:
        return FALSE
    parts = conjuncts(a)
    for part in conjuncts(b):
        if part not in parts:
            a = make(O.AND, _bool, (a, part))
    return a


def conjuncts(a: UOp) -> list[UOp]:
    found = []
    while a.op == O.AND:
        found.append(a.src[1])
        a = a.src[0]
    found.append(a)
    found.reverse()
    return found


def rebuild(node: UOp, src: tuple[UOp, ...]) -> UOp:
    """The same operation on other sources, in normal form where it is index arithmetic."""
    op = node.op
    if node.dtype is _index:
        if op == O.ADD:
            return add(src[0], src[1])
        if op == O.MUL:
            return mul(src[0], src[1])
        if op == O.IDIV and src[1].vmin > 0:
            return divide(src[0], src[1])
        if op == O.MOD and src[1].vmin > 0:
            return modulo(src[0], src[1])
        if op == O.MAX and (decided := _larger(src[0], src[1])) is not None:
            return decided
        if op == O.CAST and src[0].dtype is _index:
            return src[0]
        if op == O.CAST and src[0].op == O.CONST:
            return const(int(src[0].arg), _index)
    elif op == O.LT and src[0].dtype is _index:
        return lt(src[0], src[1])
    elif op == O.EQ and src[0].dtype is _index:
        return eq(src[0], src[1])
    elif op == O.AND and node.dtype is _bool and not (FALSE in src and node.shape):
        return and_(src[0], src[1])  # FALSE alone would not have the shape of a tensor
    elif op == O.WHERE and src[0].op == O.CONST:
        chosen = src[1] if src[0].arg else src[2]
        if chosen.shape == node.shape:
            return chosen
    return make(op, node.dtype, src, node.arg)
