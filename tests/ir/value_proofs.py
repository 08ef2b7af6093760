"""The integer rules of `svod.ir.rules` as z3 formulas over words of 8 bits.

A rule with a template is two terms over bit vectors. A condition or a result that is a function is
called: on nodes that know only a dtype, on every constant of 8 bits, or on unknown bounds
(`tests.ir.paths`). Rules about conversions are tried on nodes of every pair of dtypes.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import z3

from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.args import ParamArg
from svod.ir.evaluate import takes_dtype
from svod.ir.node import UOp, make
from svod.ir.patterns import KINDS, Pattern, Rule, root_ops
from svod.ir.rewrite import compile_rules
from tests.ir import paths
from tests.ir.paths import Refuted, Word

WORDS = (dt.int8, dt.uint8, dt.bool_)
INTEGERS = (dt.bool_, dt.int8, dt.uint8, dt.int16, dt.uint16, dt.int32, dt.uint32, dt.int64)


class DoesNotFit(Exception):
    """The pattern cannot have this dtype."""


def width_of(dtype: DType) -> int:
    return 1 if dtype.kind == "b" else dtype.bits


# -- the meaning of operations on words ------------------------------------------------------------


def truth(condition: Any) -> Any:
    return z3.If(condition, z3.BitVecVal(1, 1), z3.BitVecVal(0, 1))


def compared(op: int, a: Any, b: Any, signed: bool) -> Any:
    less = (a < b, a <= b) if signed else (z3.ULT(a, b), z3.ULE(a, b))
    return truth({O.LT: less[0], O.LE: less[1], O.EQ: a == b, O.NE: a != b}[op])


def arithmetic(op: int, args: list[Any], signed: bool) -> Any:
    """An operation that is no comparison; `test_meaning_is_the_interpreters` compares it."""
    a = args[0]
    if op == O.NEG:
        return -a
    if op == O.NOT:
        return ~a
    if op == O.ABS:
        return z3.If(a < 0, -a, a) if signed else a
    b = args[1]
    if op in (O.IDIV, O.MOD):
        return divided(op, a, b, signed)
    width, zero = a.size(), z3.BitVecVal(0, a.size())
    past = z3.UGE(b, width)
    larger = (a >= b) if signed else z3.UGE(a, b)
    table: dict[int, Callable[[], Any]] = {
        O.ADD: lambda: a + b,
        O.SUB: lambda: a - b,
        O.MUL: lambda: a * b,
        O.AND: lambda: a & b,
        O.OR: lambda: a | b,
        O.XOR: lambda: a ^ b,
        O.MAX: lambda: z3.If(larger, a, b),
        O.MIN: lambda: z3.If(larger, b, a),
        O.SHL: lambda: z3.If(past, zero, a << b),
        O.SHR: lambda: (
            z3.If(past, a >> (width - 1), a >> b) if signed else z3.If(past, zero, z3.LShR(a, b))
        ),
        O.FMA: lambda: a * b + args[2],
    }
    if op not in table:
        raise DoesNotFit
    return table[op]()


def divided(op: int, a: Any, b: Any, signed: bool) -> Any:
    """Toward minus infinity; by zero gives 0."""
    width = a.size()
    if signed:
        wide, by = z3.SignExt(width, a), z3.SignExt(width, b)
        q, r = wide / by, z3.SRem(wide, by)
        fix = z3.And(r != 0, (r < 0) != (by < 0))
        q, r = z3.If(fix, q - 1, q), z3.If(fix, r + by, r)
        q, r = z3.Extract(width - 1, 0, q), z3.Extract(width - 1, 0, r)
    else:
        q, r = z3.UDiv(a, b), z3.URem(a, b)
    return z3.If(b == 0, z3.BitVecVal(0, width), q if op == O.IDIV else r)


def truncated(op: int, a: Any, b: Any, signed: bool) -> Any:
    """The division of machines."""
    if signed:
        return a / b if op == O.IDIV else z3.SRem(a, b)
    return z3.UDiv(a, b) if op == O.IDIV else z3.URem(a, b)


def converted(a: Any, source: DType, target: DType) -> Any:
    """CAST between whole numbers: low bits, or a sign or zeros in front."""
    if target.kind == "b":
        return truth(a != 0)
    more = target.bits - a.size()
    if more <= 0:
        return z3.Extract(target.bits - 1, 0, a)
    return z3.SignExt(more, a) if source.kind == "i" else z3.ZeroExt(more, a)


def bits(root: UOp) -> Any:
    """A graph of whole numbers over PARAMs."""
    values: dict[UOp, Any] = {}
    for node in root.toposort():
        args = [values[s] for s in node.src]
        if node.op == O.PARAM:
            values[node] = z3.BitVec(f"p{node.arg.slot}", width_of(node.dtype))
        elif node.op == O.CONST:
            values[node] = z3.BitVecVal(int(node.arg), width_of(node.dtype))
        elif node.op == O.CAST:
            values[node] = converted(args[0], node.src[0].dtype, node.dtype)
        elif node.op == O.BITCAST:
            values[node] = args[0]
        elif node.op in O.COMPARE:
            values[node] = compared(node.op, *args, signed=node.src[0].dtype.kind == "i")
        elif node.op == O.WHERE:
            values[node] = z3.If(args[0] == 1, args[1], args[2])
        elif node.op in (O.IDIV, O.MOD) and node.arg is not None:  # toward zero, in lowered graphs
            values[node] = truncated(node.op, *args, signed=node.dtype.kind == "i")
        else:
            values[node] = arithmetic(node.op, args, node.dtype.kind == "i")
    return values[root]


def refute(conditions: list[Any], left: Any, right: Any, what: str) -> None:
    solver = z3.Solver()
    solver.add(*conditions, left != right)
    found = solver.check()
    if found == z3.sat:
        raise Refuted(f"{what}: not for {solver.model()}")
    assert found == z3.unsat, f"{what}: z3 says {solver.reason_unknown()}"


# -- rules with a template -------------------------------------------------------------------------


class Terms:
    """Patterns of one rule as bit vectors, all operands of one dtype."""

    def __init__(self, dtype: DType) -> None:
        self.dtype = dtype
        self.names: dict[str, Any] = {}
        self.constants: set[str] = set()
        self.kinds: dict[str, DType] = {}

    def term(self, pattern: Pattern, dtype: DType) -> Any:
        if isinstance(pattern, str):
            return self.variable(pattern, dtype)
        if isinstance(pattern, bool):
            if dtype.kind != "b":
                raise DoesNotFit
            return z3.BitVecVal(int(pattern), 1)
        if not isinstance(pattern, tuple):
            if pattern < 0 and not dtype.is_signed:
                raise DoesNotFit
            return z3.BitVecVal(int(pattern), width_of(dtype))
        op = pattern[0] if isinstance(pattern[0], int) else min(pattern[0])
        op = ~op if op < 0 else op
        if op == O.CAST:
            inner = pattern[1]
            source = dt.bool_ if isinstance(inner, str) and inner.endswith(":bool") else dtype
            return converted(self.term(inner, source), source, dtype)
        if op in O.COMPARE:
            if dtype.kind != "b":
                raise DoesNotFit
            own = self.dtype
            return compared(op, *[self.term(p, own) for p in pattern[1:]], signed=own.kind == "i")
        if op == O.WHERE:
            chosen = [self.term(p, dtype) for p in pattern[2:]]
            return z3.If(self.term(pattern[1], dt.bool_) == 1, *chosen)
        if op not in O.ALU or not takes_dtype(op, dtype):
            raise DoesNotFit
        return arithmetic(op, [self.term(p, dtype) for p in pattern[1:]], dtype.kind == "i")

    def variable(self, text: str, dtype: DType) -> Any:
        name, _, wanted = text.partition(":")
        if name.startswith("#"):
            name = name[1:]
            self.constants.add(name)
        if wanted and dtype.kind not in KINDS[wanted]:
            raise DoesNotFit
        if self.kinds.setdefault(name, dtype) is not dtype:
            raise DoesNotFit
        return self.names.setdefault(name, z3.BitVec(name, width_of(dtype)))

    def holds(self, when: Callable[..., bool], root: DType) -> Any:
        """The condition of a rule: asked of every constant where it names one."""
        wanted = parameters(when)
        known = {n: SimpleNamespace(dtype=d, op=O.PARAM, shape=()) for n, d in self.kinds.items()}
        known["root"] = SimpleNamespace(dtype=root, shape=())
        free = [n for n in wanted if n in self.constants]
        if not free:
            return z3.BoolVal(bool(when(*[known[n] for n in wanted])))
        (name,) = free
        low, high = dt.integer_limits(self.kinds[name])
        passing = []
        for value in range(low, high + 1):
            arg = bool(value) if self.kinds[name].kind == "b" else value
            known[name] = SimpleNamespace(dtype=self.kinds[name], op=O.CONST, arg=arg, shape=())
            if when(*[known[n] for n in wanted]):
                passing.append(self.names[name] == value)
        return z3.Or(*passing)


def parameters(function: Callable[..., Any]) -> tuple[str, ...]:
    return function.__code__.co_varnames[: function.__code__.co_argcount]


def prove_template(subject: Rule, dtype: DType) -> int:
    """1 if the rule can have operands of this dtype, and holds for them."""
    terms = Terms(dtype)
    out = dt.bool_ if root_ops(subject.pattern)[0] in O.COMPARE else dtype
    if out is not dtype and dtype.kind == "b":
        out = dt.bool_
    try:
        left = terms.term(subject.pattern, out)
        conditions = [] if subject.when is None else [terms.holds(subject.when, out)]
        right = terms.term(subject.result, out)
    except DoesNotFit:
        return 0
    if conditions and z3.is_false(z3.simplify(conditions[0])):
        return 0
    refute(conditions, left, right, f"{subject.name} for {dtype}")
    return 1


# -- rules that ask for bounds ---------------------------------------------------------------------


def prove_bounds(subject: Rule) -> int:
    """For every op of the root and all bounds that hold; the number of paths."""
    return sum([prove_bounds_of(subject, op) for op in root_ops(subject.pattern)])


def prove_bounds_of(subject: Rule, op: int) -> int:
    def run() -> None:
        x, y = bounded("x"), bounded("y")
        names = {"x": x, "y": y, "c": SimpleNamespace(arg=y.vmin, of=y.vmin.of)}
        names["root"] = SimpleNamespace(op=op, shape=(), dtype=result_dtype(op))
        if subject.when is not None:
            paths.path().assume(names["c"].of != 0)
            if not subject.when(*[names[n] for n in parameters(subject.when)]):
                return
            second, got = names["c"], subject.result
        else:
            second = y
            got = subject.result(*[names[n] for n in parameters(subject.result)])
        if got is None:
            return
        got = names[got] if isinstance(got, str) else got
        value = got.of if isinstance(got, SimpleNamespace) else number(got)
        paths.path().prove(value == meaning(op, x.of, second.of), subject.name)

    return paths.every_path(run)


def bounded(name: str) -> SimpleNamespace:
    of = z3.Int(name)
    low, high = z3.Ints(f"{name}_low {name}_high")
    paths.path().assume(low <= of, of <= high)
    return SimpleNamespace(of=of, vmin=Word(low), vmax=Word(high), shape=(), dtype=dt.int64)


def number(value: Any) -> Any:
    value = value.arg if isinstance(value, UOp) else value
    return z3.BoolVal(value) if isinstance(value, bool) else z3.IntVal(value)


def result_dtype(op: int) -> DType:
    return dt.bool_ if op in O.COMPARE else dt.int64


def meaning(op: int, a: Any, b: Any) -> Any:
    if op in (O.IDIV, O.MOD):
        return paths.path().divide(a, b)[op == O.MOD]
    return {
        O.LT: lambda: a < b, O.LE: lambda: a <= b, O.EQ: lambda: a == b, O.NE: lambda: a != b,
        O.MAX: lambda: z3.If(a >= b, a, b), O.MIN: lambda: z3.If(a <= b, a, b),
    }[op]()  # fmt: skip


# -- rules about conversions, swaps and constants --------------------------------------------------


def param(slot: int, dtype: DType) -> UOp:
    return make(O.PARAM, dtype, (), ParamArg(slot, ()))


def prove_rewrites(subject: Rule, nodes: list[UOp]) -> int:
    """How many of the nodes the rule rewrites, each to one that is proven equal."""
    matcher = compile_rules([subject], subject.name)
    fired = 0
    for before in nodes:
        after = matcher(before)
        if after is not None:
            assert after.dtype is before.dtype, subject.name
            refute([], bits(before), bits(after), f"{subject.name} on {before!r}")
            fired += 1
    return fired


def conversions(op: int, depth: int) -> list[UOp]:
    """Chains of CAST or BITCAST through all dtypes of whole numbers."""
    nodes = [param(0, d) for d in INTEGERS]
    for _ in range(depth):
        nodes = [
            make(op, d, (n,))
            for n in nodes
            for d in INTEGERS
            if op == O.CAST or (d.bits == n.dtype.bits and "b" not in (d.kind, n.dtype.kind))
        ]
    return nodes
