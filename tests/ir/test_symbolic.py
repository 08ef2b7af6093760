"""Index arithmetic against plain integers: random expressions, raw and simplified."""

from __future__ import annotations

import random
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir import symbolic
from svod.ir.args import AxisKind, RangeArg
from svod.ir.node import UOp, make, toposort, variable
from svod.optimize.graph import replace_all

Environment = dict[UOp, int]
Raw = Callable[[Environment], int]
SOURCE = Path(symbolic.__file__).read_text()


def loop(number: int, size: int) -> UOp:
    return make(O.RANGE, dt.index, (symbolic.num(size),), RangeArg(number, AxisKind.LOOP))


def value(root: UOp, env: Environment, check_bounds: bool = True) -> int:
    """The node in plain integers; every node on the way must keep its bounds."""
    values: dict[UOp, int] = {}
    for node in toposort((root,)):
        s = [values[x] for x in node.src]
        if node in env:
            result = env[node]
        elif node.op == O.CONST:
            result = node.arg
        elif node.op == O.RANGE:
            result = 0  # the size of a range that is itself replaced in env
        else:
            result = MEANING[node.op](*s)
        if check_bounds:
            assert node.vmin <= result <= node.vmax, (node.op, node.vmin, result, node.vmax)
        values[node] = result
    return values[root]


MEANING: dict[int, Callable[..., Any]] = {
    O.ADD: lambda a, b: a + b,
    O.MUL: lambda a, b: a * b,
    O.IDIV: lambda a, b: a // b,
    O.MOD: lambda a, b: a % b,
    O.LT: lambda a, b: a < b,
    O.EQ: lambda a, b: a == b,
    O.AND: lambda a, b: a and b,
}


class Expressions:
    """Random expressions, built through constructors and as a function of the leaves."""

    def __init__(self, seed: int, sym: Any = symbolic) -> None:
        self.random = random.Random(seed)
        self.sym = sym
        pick = self.random.choice
        self.leaves = [loop(i, pick((2, 3, 4, 6, 7, 8, 12, 16))) for i in range(4)]
        self.leaves.append(variable("n", -9, 13))
        self.leaves.append(variable("m", 1, 20))
        self.leaves.append(variable("p", 5, 6))  # narrow and away from 0: known quotients
        self.leaves.append(variable("q", -4, -3))

    def environment(self) -> Environment:
        return {leaf: self.random.randint(leaf.vmin, leaf.vmax) for leaf in self.leaves}

    def constant(self) -> int:
        return self.random.choice((-12, -7, -4, -3, -2, -1, 1, 2, 3, 4, 5, 6, 8, 12, 15))

    def divisor(self) -> int:
        return self.random.choice((1, 2, 3, 4, 5, 6, 8, 9, 12, 16, 24))

    def integer(self, depth: int) -> tuple[UOp, Raw]:
        sym, pick = self.sym, self.random.choice
        if depth <= 0:
            leaf = pick(self.leaves)
            return leaf, lambda env: env[leaf]
        kind = pick(("add", "add", "sub", "scale", "shift", "div", "mod", "sum", "pair", "mul"))
        a, raw_a = self.integer(depth - 1)
        if kind == "scale":
            c = self.constant()
            return sym.mul(a, c), lambda env: raw_a(env) * c
        if kind == "shift":
            c = self.constant()
            return sym.add(a, sym.num(c)), lambda env: raw_a(env) + c
        if kind == "div":
            d = self.divisor()
            return sym.idiv(a, d), lambda env: raw_a(env) // d
        if kind == "mod":
            d = self.divisor()
            return sym.mod(a, d), lambda env: raw_a(env) % d
        if kind == "pair":  # both halves of a division, scaled: they meet again
            d, k = self.divisor(), self.constant()
            w = d * k + pick((0, 0, 0, 1, -d))  # or they do not
            whole = sym.mul(sym.idiv(a, d), w)
            halves = [whole, sym.mul(sym.mod(a, d), k)]
            self.random.shuffle(halves)
            b, raw_b = self.integer(depth - 2)
            total = sym.add(sym.add(halves[0], b), halves[1])
            return total, lambda env: raw_a(env) // d * w + raw_a(env) % d * k + raw_b(env)
        b, raw_b = self.integer(depth - 1)
        if kind == "mul":
            return sym.mul(a, b), lambda env: raw_a(env) * raw_b(env)
        if kind == "add":
            return sym.add(a, b), lambda env: raw_a(env) + raw_b(env)
        if kind == "sub":
            return sym.sub(a, b), lambda env: raw_a(env) - raw_b(env)
        # a sum with a common factor and a constant above it: non-zero common quotients
        g = pick((2, 3, 4, 6))
        j, k, c = self.constant(), self.constant(), self.random.randint(-40, 40)
        total = sym.add(sym.add(sym.mul(a, g * j), sym.mul(b, g * k)), sym.num(c))
        d = g * pick((2, 3, 4, 5))

        def raw(env: Environment) -> int:
            return raw_a(env) * g * j + raw_b(env) * g * k + c

        if pick((True, False)):
            return sym.idiv(total, d), lambda env: raw(env) // d
        return sym.mod(total, d), lambda env: raw(env) % d

    def truth(self, depth: int) -> tuple[UOp, Raw]:
        sym = self.sym
        a, raw_a = self.integer(depth)
        kind = self.random.choice(("lt", "lt_number", "ge", "eq", "and"))
        if kind == "lt_number" or kind == "ge":
            # near the middle of the bounds, so that the answer is not always known
            n = self.random.randint(a.vmin - 1, a.vmax + 1) if a.vmax - a.vmin < 1 << 40 else 0
            if kind == "ge":
                return sym.ge(a, n), lambda env: raw_a(env) >= n
            return sym.lt(a, n), lambda env: raw_a(env) < n
        if kind == "and":
            p, raw_p = self.truth(depth - 1)
            q, raw_q = self.truth(depth - 1)
            return sym.and_(p, q), lambda env: raw_p(env) and raw_q(env)
        b, raw_b = self.integer(depth - 1)
        if kind == "eq":
            return sym.eq(a, b), lambda env: raw_a(env) == raw_b(env)
        return sym.lt(a, b), lambda env: raw_a(env) < raw_b(env)


def fuzz(count: int, seed: int, sym: Any = symbolic, points: int = 6) -> None:
    """Fails with an AssertionError at the first expression that changed its value."""
    for i in range(count):
        expressions = Expressions(seed * 1_000_003 + i, sym)
        depth = 1 + i % 4
        make_one = expressions.integer if i % 3 else expressions.truth
        node, raw = make_one(depth)
        for _ in range(points):
            env = expressions.environment()
            assert value(node, env) == raw(env)


@pytest.mark.parametrize("seed", range(4))
def test_simplified_expressions_keep_their_values_and_bounds(seed: int) -> None:
    fuzz(3000, seed)


def test_substitution_keeps_values() -> None:
    """Splitting a range and shifting a variable: values agree, index nodes are normal again."""
    for i in range(400):
        expressions = Expressions(77_000 + i)
        node, raw = (expressions.integer if i % 3 else expressions.truth)(1 + i % 4)
        leaf = expressions.leaves[0]
        outer, inner = loop(10, 4), loop(11, 4)  # covers every size used above
        split = symbolic.add(symbolic.mul(outer, 4), inner)
        after = replace_all(node, {leaf: split})
        for _ in range(4):
            env = expressions.environment()
            env[leaf] = expressions.random.randint(0, 15)
            env[outer], env[inner] = divmod(env[leaf], 4)
            if env[leaf] <= leaf.vmax:
                assert value(after, env) == raw(env)


# One wrong piece of text each; every one must be found by the fuzz above.
MUTANTS = {
    "idiv drops the quotient of the rest": ("(whole, q + lo // c)", "(whole, q)"),
    "idiv keeps the constant unreduced": ("        constant //= common\n", ""),
    "idiv drops the whole constant": (
        "(from_terms(whole, q), part)",
        "(from_terms(whole, 0), part)",
    ),
    "idiv of idiv adds divisors": ("(a.src[0], a.src[1].arg * c)", "(a.src[0], a.src[1].arg + c)"),
    "idiv rounds coefficients": ("            rest[t] = k\n", "            rest[t] = r\n"),
    "mod forgets the offset": ("(rest, constant - c * (lo // c))", "(rest, constant)"),
    "mod drops the remainder of the constant": ("num(constant % common)", "num(0)"),
    "mod drops the quotient of the constant": (", constant // common)\n", ", 0)\n"),
    "mod of mod for any divisor": ("and a.src[1].arg % c == 0:", "and a.src[1].arg > 0:"),
    "mod takes one from coefficients": ("-c < k < 0 else r", "-c < k < 0 else r - 1"),
    "lt rounds the limit down": ("-(-limit // common)", "limit // common"),
    "lt forgets the constant": ("limit = b - constant", "limit = b"),
    "ge is off by one": ("1 - b)", "-b)"),
    "eq of close values": ("difference.vmin > 0", "difference.vmin >= 0"),
    "recombination of any scale": ("== factor * divisor", "!= 0"),
    "recombination forgets a scale": ("constant * factor\n", "constant\n"),
    "bounds of negative terms": ("lo += c * t.vmax\n", "lo += c * t.vmin\n"),
    "a factor is lost": ("factor *= own", "factor = factor"),
    "a constant is added twice": ("value += a.src[1].arg", "value += 2 * a.src[1].arg"),
    "and drops what it did not see": ("if part not in parts:", "if part in parts:"),
}


def mutated(old: str, new: str) -> Any:
    assert SOURCE.count(old) >= 1, f"{old!r} is not in symbolic.py any more"
    module = types.ModuleType("svod.ir.symbolic_mutant")
    exec(compile(SOURCE.replace(old, new), "mutant", "exec"), module.__dict__)
    return module


@pytest.mark.parametrize("name", MUTANTS)
def test_planted_errors_are_found(name: str) -> None:
    with pytest.raises((AssertionError, RecursionError)):
        fuzz(4000, 5, mutated(*MUTANTS[name]), points=4)


def test_wrong_bounds_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    from svod.ir import node as nodes
    from svod.ir.sweep import sweep

    honest = nodes.index_bounds

    def wrong(op: int, src: tuple[UOp, ...], arg: Any) -> tuple[int, int]:
        lo, hi = honest(op, src, arg)
        return (lo, hi - 1) if op == O.MUL and hi > lo + 1 else (lo, hi)

    sweep()  # a node that exists keeps its bounds
    monkeypatch.setattr(nodes, "index_bounds", wrong)
    with pytest.raises(AssertionError):
        fuzz(300, 6)
    monkeypatch.undo()
    sweep()


# -- forms -----------------------------------------------------------------------------------------

i, j = loop(100, 8), loop(101, 6)
n = variable("k", -5, 40)
add, mul, idiv, mod, lt, eq, num = (
    symbolic.add, symbolic.mul, symbolic.idiv, symbolic.mod, symbolic.lt, symbolic.eq, symbolic.num,
)  # fmt: skip


def test_equal_sums_meet() -> None:
    assert add(add(i, num(2)), num(-2)) is i
    assert add(add(i, j), mul(i, 2)) is add(mul(i, 3), j)
    assert mul(add(i, num(1)), 4) is add(mul(i, 4), num(4))
    assert symbolic.sub(add(i, j), i) is j
    assert symbolic.sub(i, i) is symbolic.ZERO


def test_division_of_flattened_indices_gives_the_parts_back() -> None:
    flat = add(mul(i, 6), j)
    assert idiv(flat, 6) is i
    assert mod(flat, 6) is j
    assert idiv(idiv(n, 3), 4) is idiv(n, 12)
    assert mod(mod(n, 12), 4) is mod(n, 4)
    assert idiv(add(mul(n, 4), num(3)), 4) is n
    assert mod(mul(n, 4), 8) is mul(mod(n, 2), 4)
    assert idiv(j, 6) is symbolic.ZERO and mod(j, 6) is j


def test_pieces_are_parted_by_their_loop() -> None:
    pieces = add(mul(n, 6), j)
    assert symbolic.parted(pieces, num(12)) == (idiv(n, 2), add(mul(mod(n, 2), 6), j))
    assert symbolic.parted(pieces, num(6)) == (n, j)
    assert symbolic.parted(add(pieces, num(1)), num(12)) == (
        idiv(add(pieces, num(1)), 12),
        mod(add(pieces, num(1)), 12),
    )


def test_halves_of_a_division_meet_again() -> None:
    assert add(mul(idiv(n, 5), 5), mod(n, 5)) is n
    assert add(mod(n, 5), mul(idiv(n, 5), 5)) is n
    assert add(mul(idiv(n, 5), 15), mul(mod(n, 5), 3)) is mul(n, 3)
    shifted = add(n, num(2))
    assert add(mul(idiv(shifted, 5), 5), mod(shifted, 5)) is shifted
    # the sum stays flat, so it still meets others
    assert symbolic.sub(add(add(i, mul(idiv(shifted, 5), 5)), mod(shifted, 5)), n) is add(i, num(2))


def test_known_comparisons_are_decided() -> None:
    assert lt(i, 8) is symbolic.TRUE
    assert lt(i, 0) is symbolic.FALSE
    assert lt(mul(i, 4), 9) is lt(i, 3)
    assert lt(add(i, num(3)), add(i, num(4))) is symbolic.TRUE
    assert eq(i, i) is symbolic.TRUE
    assert eq(i, num(9)) is symbolic.FALSE
    condition = lt(i, 3)
    assert symbolic.and_(condition, symbolic.TRUE) is condition
    assert symbolic.and_(condition, condition) is condition
    assert symbolic.and_(symbolic.FALSE, condition) is symbolic.FALSE


def test_rebuilding_never_divides_by_what_is_not_positive() -> None:
    divisor = variable("d", 0, 4)
    quotient = make(O.IDIV, dt.index, (n, divisor))
    for given in (0, -2):
        after = replace_all(quotient, {divisor: num(given)})
        assert after.op == O.IDIV and after.src == (n, num(given))
    assert replace_all(quotient, {divisor: num(1)}) is n


def test_rebuilding_a_conjunction_keeps_the_shape_of_a_tensor() -> None:
    from svod.ir.args import ParamArg

    x = make(O.PARAM, dt.bool_, (), ParamArg(0, (3,)))
    y = make(O.PARAM, dt.bool_, (), ParamArg(1, ()))
    both = make(O.AND, dt.bool_, (x, y))
    after = replace_all(both, {y: symbolic.FALSE})
    assert after.shape == (3,)
