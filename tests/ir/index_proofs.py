"""Index arithmetic on unknown coefficients: `svod.ir.symbolic` is run along all its paths.

``prover`` loads the source of symbolic.py with other nodes under it: their values are z3 integers,
and their bounds are any that hold. A ``Claim`` calls a constructor on operands of one form and says
what the result must be worth. Coefficients, constants, divisors, bounds and values are unknown, so
one claim covers all of them; its forms say which operands are sums, products, quotients.
"""

from __future__ import annotations

import ast
import sys
import types
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import z3

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir import symbolic
from tests.ir import paths
from tests.ir.paths import Truth, Word, expression

FILE = Path(symbolic.__file__)
SOURCE = FILE.read_text()
IMPORTS = ("from math import gcd\n", "from svod.ir.node import UOp, const, make\n")


_serial = count()


class Node:
    """Stands for a UOp: the same fields, a z3 value, and bounds of which only that they hold."""

    def __init__(self, op: int, dtype: Any, src: tuple[Node, ...], arg: Any) -> None:
        self.op, self.dtype, self.src, self.arg = op, dtype, src, arg
        self.shape = ()
        self.sn = next(_serial)
        self.ranges = ()  # so that sums as a whole are not asked for their bounds
        self.of = value_of_node(self)
        if dtype is dt.index:
            self._bound()

    def _bound(self) -> None:
        if self.op == O.CONST:
            self.vmin = self.vmax = self.arg
            return
        here = paths.path()
        low, high = here.fresh("low"), here.fresh("high")
        here.assume(low <= self.of, self.of <= high)
        if self.op == O.RANGE:
            here.assume(low == 0, self.of < self.src[0].of)
        self.vmin, self.vmax = Word(low), Word(high)


def value_of_node(node: Node) -> Any:
    op, src = node.op, node.src
    if op == O.CONST:
        return z3.BoolVal(node.arg) if node.dtype is dt.bool_ else expression(node.arg)
    if not src or op == O.RANGE:
        return z3.Bool(str(node.arg)) if node.dtype is dt.bool_ else z3.Int(str(node.arg))
    values = [s.of for s in src]
    if op == O.IDIV or op == O.MOD:
        return paths.path().divide(values[0], values[1])[op == O.MOD]
    return MEANING[op](*values)


MEANING: dict[int, Callable[..., Any]] = {
    O.ADD: lambda a, b: a + b,
    O.MUL: lambda a, b: a * b,
    O.MAX: lambda a, b: z3.If(a >= b, a, b),
    O.LT: lambda a, b: a < b,
    O.EQ: lambda a, b: a == b,
    O.AND: z3.And,
    O.WHERE: z3.If,
    O.CAST: lambda a: a,
    O.BIND: lambda a, b: b,
}


class Prover:
    """symbolic.py over `Node`, and the operands of claims."""

    def __init__(self, source: str = SOURCE) -> None:
        for line in IMPORTS:
            assert line in source, f"symbolic.py has no line {line!r} any more"
            source = source.replace(line, "\n")
        self.code = compile(source, str(FILE), "exec")
        self.lines: set[int] = set()

    def start(self) -> None:
        """Nodes belong to one path: it begins with none."""
        self.nodes: dict[Any, Node] = {}
        module = types.ModuleType("svod.ir.symbolic_unknown")
        module.__dict__.update(
            UOp=Node, make=self.make, const=self.const, gcd=paths.any_common_divisor,
            isinstance=is_instance,
        )  # fmt: skip
        exec(self.code, module.__dict__)
        # Bounds of sums as a whole are fractions of known numbers; test_relaxed_bounds.py has them.
        module.__dict__["relaxed_bounds"] = lambda terms, constant, split: None
        self.sym: Any = module

    def make(self, op: int, dtype: Any, src: tuple[Node, ...] = (), arg: Any = None) -> Node:
        key = (op, dtype, src, arg)
        if key not in self.nodes:
            self.nodes[key] = Node(op, dtype, src, arg)
        return self.nodes[key]

    def const(self, value: Any, dtype: Any) -> Node:
        key = (O.CONST, dtype, str(value))
        if key not in self.nodes:
            self.nodes[key] = Node(O.CONST, dtype, (), value)
        return self.nodes[key]

    # -- operands --------------------------------------------------------------------------------

    def leaf(self, name: str) -> Node:
        return self.make(O.DEFINE_VAR, dt.index, (), name)

    def truth(self, name: str) -> Node:
        return self.make(O.DEFINE_VAR, dt.bool_, (), name)

    def loop(self, name: str, size: Node) -> Node:
        return self.make(O.RANGE, dt.index, (size,), name)

    def number(self, name: str) -> Any:
        """An unknown coefficient or constant."""
        return Word(z3.Int(name))

    def positive(self, name: str) -> Any:
        number = self.number(name)
        paths.path().assume(number.of > 0)
        return number

    def scaled(self, name: str) -> Node:
        """A leaf with a coefficient other than 0 and 1, as a normal form has it."""
        return self.times(self.leaf(name), f"k_{name}")

    def times(self, a: Node, name: str) -> Node:
        factor = self.number(name)
        paths.path().assume(factor.of != 0, factor.of != 1)
        return self.make(O.MUL, dt.index, (a, self.const(factor, dt.index)))

    def plus(self, *parts: Node) -> Node:
        total = parts[0]
        for part in parts[1:]:
            total = self.make(O.ADD, dt.index, (total, part))
        return total

    def constant(self, name: str) -> Node:
        number = self.number(name)
        paths.path().assume(number.of != 0)
        return self.const(number, dt.index)

    def quotient(self, a: Node, name: str) -> Node:
        return self.make(O.IDIV, dt.index, (a, self.divisor(name)))

    def remainder(self, a: Node, name: str) -> Node:
        return self.make(O.MOD, dt.index, (a, self.divisor(name)))

    def divisor(self, name: str) -> Node:
        return self.const(self.positive(name), dt.index)


def is_instance(value: Any, kind: Any) -> bool:
    return isinstance(value, kind) or (kind is int and isinstance(value, Word))


class Claim(NamedTuple):
    """What a constructor must return for operands of one form."""

    name: str
    run: Callable[[Prover], tuple[Any, Any]]  # what it returned, and the value it must have


def prove(claim: Claim, prover: Prover) -> int:
    """How many paths the claim has; fails at the first that is not proven."""

    def run() -> None:
        prover.start()
        with traced(prover):
            got, wanted = claim.run(prover)
        value = got.of if isinstance(got, (Node, Word, Truth)) else z3.BoolVal(got)
        paths.path().prove(value == wanted, claim.name)

    return paths.every_path(run)


class traced:
    """Notes the lines of symbolic.py that run."""

    def __init__(self, prover: Prover) -> None:
        self.prover = prover

    def __enter__(self) -> None:
        sys.settrace(self.call)

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)

    def call(self, frame: Any, event: str, arg: Any) -> Any:
        return self.line if frame.f_code.co_filename == str(FILE) else None

    def line(self, frame: Any, event: str, arg: Any) -> Any:
        if event == "line":
            self.prover.lines.add(frame.f_lineno)
        return self.line


# -- the claims ----------------------------------------------------------------------------------

Form = Callable[[Prover, str], Node]

FORMS: dict[str, Form] = {
    "x": lambda p, n: p.leaf(f"x{n}"),
    "k": lambda p, n: p.constant(f"o{n}"),
    "k*x": lambda p, n: p.scaled(f"x{n}"),
    "x + o": lambda p, n: p.plus(p.leaf(f"x{n}"), p.constant(f"o{n}")),
    "k*x + o": lambda p, n: p.plus(p.scaled(f"x{n}"), p.constant(f"o{n}")),
    "k*x + y": lambda p, n: p.plus(p.scaled(f"x{n}"), p.leaf(f"y{n}")),
    "k*x + l*y + o": lambda p, n: p.plus(p.scaled(f"x{n}"), p.scaled(f"y{n}"), p.constant(f"o{n}")),
    "x // d": lambda p, n: p.quotient(p.leaf(f"x{n}"), f"d{n}"),
    "x % d": lambda p, n: p.remainder(p.leaf(f"x{n}"), f"d{n}"),
    "k*(x // d)": lambda p, n: p.times(p.quotient(p.leaf(f"x{n}"), f"d{n}"), f"k{n}"),
    "k*(x % d)": lambda p, n: p.times(p.remainder(p.leaf(f"x{n}"), f"d{n}"), f"k{n}"),
}
SMALL = ("x", "k", "x + o", "x // d", "x % d")  # divided by any c
LARGE = ("k*x + o", "k*x + y")  # divided by a prime and a power
DIVISORS = (3, 4)
SUMS = ("x", "k", "k*x", "x + o", "k*x + l*y + o")


def claims() -> Iterator[Claim]:
    yield from _sums()
    yield from _products()
    yield from _divisions()
    yield from _comparisons()
    yield from _rebuilt()


def _sums() -> Iterator[Claim]:
    for a in SUMS:
        for b in ("x", "k", "k*x", "x + o"):
            for second in ("", "1"):  # the same leaves, or others
                yield _binary("add", a, b, second, lambda x, y: x + y)
    yield _binary("sub", "k*x + y", "k*x", "", lambda x, y: x - y)

    def halves(p: Prover) -> tuple[Any, Any]:
        x, d = p.leaf("x"), p.divisor("d")
        parts = [p.make(op, dt.index, (x, d)) for op in (O.IDIV, O.MOD)]
        w, k = p.number("w"), p.number("k")
        got = p.sym.add(p.sym.mul(parts[0], w), p.sym.mul(parts[1], k))
        return got, parts[0].of * w.of + parts[1].of * k.of

    def shifted_halves(p: Prover) -> tuple[Any, Any]:
        d = p.const(5, dt.index)  # numbers, so that the quotient is found among the terms
        x = p.plus(p.leaf("x"), p.const(2, dt.index))
        whole, rest = [p.make(op, dt.index, (x, d)) for op in (O.IDIV, O.MOD)]
        k = p.number("k")
        whole = p.make(O.MUL, dt.index, (whole, p.const(k * d.arg, dt.index)))
        got = p.sym.add(whole, p.sym.mul(rest, k))
        return got, whole.of + rest.of * k.of

    yield Claim("both halves of a division", halves)
    yield Claim("both halves of a shifted division", shifted_halves)


def _binary(name: str, a: str, b: str, second: str, meaning: Callable[[Any, Any], Any]) -> Claim:
    def run(p: Prover) -> tuple[Any, Any]:
        x, y = FORMS[a](p, ""), FORMS[b](p, second)
        return getattr(p.sym, name)(x, y), meaning(x.of, y.of)

    return Claim(f"{name}({a}, {b}{' of others' if second else ''})", run)


def _products() -> Iterator[Claim]:
    for form in (*SUMS, "x // d"):

        def run(p: Prover, form: str = form) -> tuple[Any, Any]:
            x, k = FORMS[form](p, ""), p.number("f")
            return p.sym.mul(x, k), x.of * k.of

        yield Claim(f"mul({form}, k)", run)
    for a, b in (("k*x", "k*x"), ("k*x + l*y + o", "x + o"), ("k", "x"), ("x", "k")):
        yield _binary("mul", a, b, "1", lambda x, y: x * y)

    def three(p: Prover) -> tuple[Any, Any]:
        x, y, z = p.leaf("x"), p.leaf("y"), p.leaf("z")
        return p.sym.mul(p.sym.mul(x, y), z), x.of * y.of * z.of

    yield Claim("mul(mul(x, y), z)", three)
    yield Claim("neg", lambda p: (p.sym.neg(p.scaled("x")), -p.scaled("x").of))


def _divisions() -> Iterator[Claim]:
    for name in ("idiv", "mod"):
        for form in SMALL:
            yield _division(name, form, None)
        yield _division(name, "k*(x // d)", 4)
        yield _division(name, "k*(x % d)", 4)
        for form in ("k*x", *LARGE):
            for divisor in DIVISORS:
                yield _division(name, form, divisor)
    for name in ("divide", "modulo"):
        yield from _by_size(name)
    for half in (0, 1):
        yield _parted(half, "k*x + y", 4)
        yield _parted(half, "k*x + y", None)


def long_claims() -> Iterator[Claim]:
    """Any divisor of a multiple, and sums of two."""
    for name in ("idiv", "mod"):
        yield _division(name, "k*x", None)
        for divisor in (3, 4, 6):
            yield _division(name, "k*x + l*y + o", divisor)


def _division(name: str, form: str, divisor: int | None) -> Claim:
    def run(p: Prover) -> tuple[Any, Any]:
        x, c = FORMS[form](p, ""), p.positive("c") if divisor is None else divisor
        got = getattr(p.sym, name)(x, c)
        return got, paths.path().divide(x.of, expression(c))[name == "mod"]

    return Claim(f"{name}({form}, {'c' if divisor is None else divisor})", run)


def _parted(half: int, form: str, divisor: int | None) -> Claim:
    """The quotient or the remainder, by a number or by a run-time size n > 0."""

    def run(p: Prover) -> tuple[Any, Any]:
        x = FORMS[form](p, "")
        c = p.leaf("n") if divisor is None else p.const(divisor, dt.index)
        paths.path().assume(c.of > 0)
        return p.sym.parted(x, c)[half], paths.path().divide(x.of, c.of)[half]

    return Claim(f"parted({form}, {divisor or 'n'})[{half}]", run)


def _by_size(name: str) -> Iterator[Claim]:
    """Division by a run-time size n > 0."""

    def claim(text: str, operand: Callable[[Prover, Node], Node]) -> Claim:
        def run(p: Prover) -> tuple[Any, Any]:
            n = p.leaf("n")
            paths.path().assume(n.of > 0)
            x = operand(p, n)
            got = getattr(p.sym, name)(x, n)
            return got, paths.path().divide(x.of, n.of)[name == "modulo"]

        return Claim(f"{name}({text}, n)", run)

    def times(p: Prover, n: Node) -> Node:
        return p.make(O.MUL, dt.index, (p.leaf("x"), n))

    yield claim("x", lambda p, n: p.leaf("x"))
    yield claim("x*n + y", lambda p, n: p.plus(times(p, n), p.leaf("y")))
    yield claim("n + y", lambda p, n: p.plus(n, p.leaf("y")))
    yield claim("x*n + i of 0..n-1", lambda p, n: p.plus(times(p, n), p.loop("i", n)))
    yield claim("n*x", lambda p, n: p.make(O.MUL, dt.index, (n, p.leaf("x"))))

    def by_constant(p: Prover) -> tuple[Any, Any]:
        x, c = p.leaf("x"), p.positive("c")
        got = getattr(p.sym, name)(x, p.const(c, dt.index))
        return got, paths.path().divide(x.of, c.of)[name == "modulo"]

    yield Claim(f"{name}(x, constant)", by_constant)


def _comparisons() -> Iterator[Claim]:
    for form in SUMS:

        def below(p: Prover, form: str = form) -> tuple[Any, Any]:
            x, c = FORMS[form](p, ""), p.number("b")
            return p.sym.lt(x, c), x.of < c.of

        def at_least(p: Prover, form: str = form) -> tuple[Any, Any]:
            x, c = FORMS[form](p, ""), p.number("b")
            return p.sym.ge(x, c), x.of >= c.of

        yield Claim(f"lt({form}, b)", below)
        yield Claim(f"ge({form}, b)", at_least)
        for second in ("", "1"):
            yield _binary("lt", form, "x + o", second, lambda x, y: x < y)
            yield _binary("eq", form, "x + o", second, lambda x, y: x == y)
    yield _binary("eq", "k", "k", "1", lambda x, y: x == y)

    def counter(p: Prover) -> tuple[Any, Any]:
        n = p.leaf("n")
        i = p.loop("i", n)
        return p.sym.lt(i, n), i.of < n.of

    yield Claim("a counter is below its size", counter)
    yield Claim("and", _conjunction)
    for name, sign in (("minimum", -1), ("_larger", 1)):

        def chosen(p: Prover, name: str = name, sign: int = sign) -> tuple[Any, Any]:
            a, b = p.scaled("x"), p.plus(p.leaf("x"), p.constant("o"))
            got = getattr(p.sym, name)(a, b)
            best = z3.If(sign * a.of >= sign * b.of, a.of, b.of)
            return (got, best) if got is not None else (True, z3.BoolVal(True))

        yield Claim(name, chosen)

    def is_minimum(p: Prover) -> tuple[Any, Any]:
        a, b = p.leaf("a"), p.leaf("b")
        low = p.sym.minimum(a, b)
        says = p.sym.is_minimum_with(low, b)
        return True, z3.BoolVal(True) if not says else low.of <= b.of

    yield Claim("is_minimum_with", is_minimum)


def _conjunction(p: Prover) -> tuple[Any, Any]:
    """Any two of: known truths, single conditions, and a conjunction of two."""
    p_, q_ = p.truth("p"), p.truth("q")
    both = p.make(O.AND, dt.bool_, (p_, q_))
    choices = (p.sym.TRUE, p.sym.FALSE, p_, q_, both)
    got, wanted = [], []
    for a in choices:
        for b in choices:
            got.append(p.sym.and_(a, b).of)
            wanted.append(z3.And(a.of, b.of))
    same = z3.And(*[g == w for g, w in zip(got, wanted, strict=True)])
    return True, same


def _rebuilt() -> Iterator[Claim]:
    """The same operation on other sources, and sizes with all variables bound."""

    def again(op: int, dtype: Any, sources: Callable[[Prover], tuple[Node, ...]]) -> Claim:
        def run(p: Prover) -> tuple[Any, Any]:
            src = sources(p)
            node = p.make(op, dtype, src)
            return p.sym.rebuild(node, src), node.of

        return Claim(f"rebuild {O.NAMES[op]}", run)

    def two(p: Prover) -> tuple[Node, ...]:
        return p.scaled("x"), p.plus(p.leaf("x"), p.constant("o"))

    def by_divisor(p: Prover) -> tuple[Node, ...]:
        return p.leaf("x"), p.divisor("d")

    def truths(p: Prover) -> tuple[Node, ...]:
        return p.truth("p"), p.truth("q")

    for op in (O.ADD, O.MUL, O.MAX):
        yield again(op, dt.index, two)
    for op in (O.IDIV, O.MOD):
        yield again(op, dt.index, by_divisor)
    for op in (O.LT, O.EQ):
        yield again(op, dt.bool_, two)
    yield again(O.AND, dt.bool_, truths)
    yield again(O.CAST, dt.index, lambda p: (p.leaf("x"),))
    yield again(O.CAST, dt.index, lambda p: (p.const(7, dt.int32),))
    yield again(O.MAX, dt.index, lambda p: (p.leaf("x"), p.leaf("y")))
    for known in (True, False):
        yield again(
            O.WHERE, dt.bool_, lambda p, k=known: (p.const(k, dt.bool_), p.truth("a"), p.truth("b"))
        )

    def bound(p: Prover) -> tuple[Any, Any]:
        n = p.make(O.BIND, dt.index, (p.leaf("n"), p.constant("v")))
        size = n
        for op, other in ((O.MUL, p.constant("o")), (O.ADD, n), (O.IDIV, p.divisor("d")),
                          (O.MOD, p.divisor("e"))):  # fmt: skip
            size = p.make(op, dt.index, (size, other))
        size = p.make(O.CAST, dt.index, (size,))
        free = p.sym.value_of(p.plus(size, p.leaf("m")))
        assert free is None
        return p.sym.value_of(size), size.of

    yield Claim("the value of a bound size", bound)


def unproven_lines(prover: Prover) -> list[int]:
    """Lines of rewriting functions that no claim has run."""
    found: list[int] = []
    for function in ast.parse(SOURCE).body:
        if isinstance(function, ast.FunctionDef) and function.name not in NO_REWRITES:
            for part in ast.walk(function):
                if isinstance(part, (ast.Return, ast.Assign, ast.AugAssign, ast.Delete)):
                    own = range(part.lineno, (part.end_lineno or part.lineno) + 1)
                    found += [] if prover.lines & set(own) else [part.lineno]
    return sorted(found)


NO_REWRITES = frozenset({"size_text", "shape_text"})  # text for people
