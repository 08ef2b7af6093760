"""Every value rule on random values of every dtype: the same bits before and after."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from svod.dtype import types as dt
from svod.dtype.casts import cast_array, pack_const
from svod.dtype.convert import to_numpy
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.args import ParamArg
from svod.ir.evaluate import apply_alu, takes_dtype
from svod.ir.node import UOp, const, make, toposort
from svod.ir.patterns import KINDS, Pattern, Rule, root_ops, rule
from svod.ir.rewrite import compile_rules, rewrite
from svod.ir.rules import VALUE_RULES, VALUES, is_exact

Array = npt.NDArray[Any]
DTYPES = dt.STORABLE
SAMPLES = 64
SPECIAL = (
    0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -2.5, 3.0, 255.0, 1e-45, 2.0**-126, 2.0**-14, 448.0,
    65504.0, 3e38, 2.0**63, 1e300, 5e-324, float("inf"), float("-inf"), float("nan"),
)  # fmt: skip


def samples(generator: np.random.Generator, dtype: DType, shape: tuple[int, ...]) -> Array:
    """Values of a dtype: the ends, the usual special ones, and any bits."""
    kind = to_numpy(dtype)
    if dtype.kind == "b":
        return generator.integers(0, 2, shape).astype(np.bool_)
    bits = generator.integers(0, 1 << 63, shape, np.uint64) * np.uint64(2)
    anything = bits.view(np.uint8).reshape(*shape, 8)[..., -dtype.itemsize :]
    anything = np.ascontiguousarray(anything).view(kind).reshape(shape)
    if dtype.kind == "f":
        chosen = cast_array(generator.choice(np.array(SPECIAL), shape), dtype)
    else:
        lo, hi = dt.integer_limits(dtype)
        few = [lo, lo + 1, -1, 0, 1, 2, 3, 7, 8, dtype.bits - 1, dtype.bits, hi - 1, hi]
        numbers = [v for v in few if lo <= v <= hi]
        chosen = np.array([numbers[i] for i in generator.integers(0, len(numbers), shape)], kind)
    return np.where(generator.integers(0, 2, shape) == 0, chosen, anything)


def bits_of(array: Array) -> Array:
    """Bits, with one pattern for every NaN."""
    if array.dtype.kind in "fV" and array.dtype != np.bool_:
        with np.errstate(all="ignore"):
            nan = array != array
        plain = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
        return np.where(nan, np.zeros_like(plain) - plain.dtype.type(1), plain)
    return array


def meaning(root: UOp, leaves: dict[UOp, Array]) -> Array:
    """The root over many values at once: a leaf of shape () holds one value per sample."""
    values: dict[UOp, Array] = dict(leaves)
    for node in toposort((root,)):
        if node in values:
            continue
        args = [values[s] for s in node.src]
        if node.op == O.CONST:
            values[node] = np.array(node.arg).astype(to_numpy(node.dtype))
        elif node.op == O.CAST:
            values[node] = cast_array(args[0], node.dtype)
        elif node.op == O.BITCAST:
            values[node] = args[0].view(to_numpy(node.dtype))
        else:
            values[node] = apply_alu(node.op, node.dtype, args)
    return np.broadcast_to(values[root], (SAMPLES,))


class Instances:
    """Random nodes that a pattern may match."""

    def __init__(self, seed: int, shape: tuple[int, ...] = ()) -> None:
        self.random = random.Random(seed)
        self.generator = np.random.default_rng(seed)
        self.shape = shape
        self.leaves: dict[UOp, Array] = {}
        self.names: dict[str, UOp] = {}

    def leaf(self, dtype: DType, shape: tuple[int, ...]) -> UOp:
        node = make(O.PARAM, dtype, (), ParamArg(len(self.leaves), shape))
        if node not in self.leaves:
            self.leaves[node] = samples(self.generator, dtype, (SAMPLES,))
        return node

    def constant(self, dtype: DType) -> UOp:
        array = samples(self.generator, dtype, (1,))
        value = array[0]
        if dtype.kind == "f":
            return const(float(value), dtype)
        return const(int(value), dtype)

    def operand(self, dtype: DType) -> UOp:
        """A variable: a leaf, one of narrow bounds, or a constant."""
        choice = self.random.randrange(10)
        shape = self.shape if self.random.randrange(3) else ()
        if choice == 0:
            return self.constant(dtype)
        if choice <= 3 and dtype.kind in "iu":
            return make(
                O.CAST, dtype, (self.leaf(self.random.choice((dt.bool_, dt.uint8)), shape),)
            )
        return self.leaf(dtype, shape)

    def build(self, pattern: Pattern, dtype: DType) -> UOp:
        if isinstance(pattern, str):
            name, _, kind = pattern.partition(":")
            found = self.names.get(name.lstrip("#"))
            if found is None:
                found = self.constant(dtype) if name.startswith("#") else self.operand(dtype)
                self.names[name.lstrip("#")] = found
            if found.dtype is not dtype or (kind and dtype.kind not in KINDS[kind]):
                raise DoesNotFit
            return found
        if isinstance(pattern, bool):
            if dtype.kind != "b":
                raise DoesNotFit
            return const(pattern, dtype)
        if not isinstance(pattern, tuple):
            if dtype.kind == "u" and pattern < 0:
                raise DoesNotFit
            return const(pattern, dtype)
        ops = [pattern[0]] if isinstance(pattern[0], int) else sorted(pattern[0])
        op = self.random.choice([o if o >= 0 else ~o for o in ops])
        parts = list(pattern[1:])
        if op in O.COMMUTATIVE and isinstance(pattern[0], int) and pattern[0] >= 0:
            self.random.shuffle(parts)
        return make(op, dtype, tuple(self.sources(op, parts, dtype)))

    def sources(self, op: int, parts: list[Pattern], dtype: DType) -> Iterator[UOp]:
        inner = self.source_dtype(op, parts, dtype)
        if op in O.ALU and op != O.WHERE and not takes_dtype(op, inner):
            raise DoesNotFit
        for i, part in enumerate(parts):
            yield self.build(part, dt.bool_ if op == O.WHERE and i == 0 else inner)

    def source_dtype(self, op: int, parts: list[Pattern], dtype: DType) -> DType:
        if op in O.COMPARE:
            if dtype.kind != "b":
                raise DoesNotFit
            return self.random.choice(DTYPES)
        if op == O.CAST:
            name = parts[0] if isinstance(parts[0], str) else ""
            own = dt.bool_ if name.endswith(":bool") else self.random.choice(DTYPES)
            return dtype if self.random.randrange(4) == 0 and own is not dt.bool_ else own
        if op == O.BITCAST:
            return self.random.choice([d for d in DTYPES if d.bits == dtype.bits and d.kind != "b"])
        return dtype


class DoesNotFit(Exception):
    """The pattern cannot have this dtype."""


def check(before: UOp, after: UOp, leaves: dict[UOp, Array], what: str) -> None:
    assert after.dtype is before.dtype, what
    assert after.shape == before.shape, what
    old, new = bits_of(meaning(before, leaves)), bits_of(meaning(after, leaves))
    wrong = np.nonzero(old != new)[0]
    if len(wrong):
        given = {str(n.dtype): v[wrong[0]] for n, v in leaves.items()}
        raise AssertionError(f"{what}: {old[wrong[0]]} became {new[wrong[0]]} for {given}")


def try_rule(subject: Rule, seed: int, shape: tuple[int, ...], tries: int) -> int:
    """How often the rule fired; fails when a result has other bits."""
    matcher = compile_rules([subject], subject.name)
    compares = root_ops(subject.pattern)[0] in O.COMPARE
    fired = 0
    for i in range(tries):
        instances = Instances(seed * 100_003 + i, shape)
        dtype = dt.bool_ if compares else DTYPES[i % len(DTYPES)]
        try:
            before = instances.build(subject.pattern, dtype)
        except DoesNotFit:
            continue
        after = matcher(before)
        if after is not None:
            fired += 1
            check(before, after, instances.leaves, subject.name)
    return fired


@pytest.mark.parametrize("subject", VALUE_RULES, ids=lambda r: r.name)
def test_rule_keeps_every_bit(subject: Rule) -> None:
    assert try_rule(subject, 1, (), 300) >= 2


@pytest.mark.parametrize("subject", VALUE_RULES, ids=lambda r: r.name)
def test_rule_keeps_shapes(subject: Rule) -> None:
    try_rule(subject, 2, (SAMPLES,), 60)


WRONG = (
    rule("plus zero for floats", (O.ADD, "x", 0), "x"),
    rule("zero times float", (O.MUL, "x", 0), 0),
    rule("zero minus float", (O.SUB, 0, "x"), (O.NEG, "x")),
    rule("float minus itself", (O.SUB, "x", "x"), 0),
    rule("not less", (O.NOT, (O.LT, "x", "y")), (O.LE, "y", "x")),
    rule("equal to itself", (O.EQ, "x", "x"), True),
    rule("divided by itself", (O.IDIV, "x", "x"), 1),
    rule("regrouped", (O.ADD, (O.ADD, "x", "#a"), "#b"), (O.ADD, "x", (O.ADD, "#a", "#b"))),
    rule("half by reciprocal", (O.DIV, "x", 3), lambda root, x: times_third(root, x)),
    rule("swapped choice", (O.WHERE, (O.NOT, "c"), "a", "b"), (O.WHERE, "c", "a", "b")),
    rule("cast is nothing", (O.CAST, (O.CAST, "x")), lambda root, x: cast_once(root, x)),
)


def times_third(root: UOp, x: UOp) -> UOp:
    return make(O.MUL, root.dtype, (x, const(pack_const(1 / 3, root.dtype), root.dtype)))


def cast_once(root: UOp, x: UOp) -> UOp:
    return x if x.dtype is root.dtype else make(O.CAST, root.dtype, (x,))


@pytest.mark.parametrize("subject", WRONG, ids=lambda r: r.name)
def test_wrong_rules_are_found(subject: Rule) -> None:
    renamed = subject._replace(name=subject.name.replace(" ", "_"))
    with pytest.raises(AssertionError):
        try_rule(renamed, 3, (), 600)


def test_a_rule_that_loses_a_shape_is_found() -> None:
    losing = rule("losing", (O.SUB, "x", "x"), lambda root: const(0, root.dtype))
    with pytest.raises(AssertionError):
        try_rule(losing, 4, (SAMPLES,), 300)


def test_names_are_unique() -> None:
    names = [r.name for r in VALUE_RULES]
    assert len(set(names)) == len(names)


# -- whole expressions -----------------------------------------------------------------------------


def expression(instances: Instances, dtype: DType, depth: int) -> UOp:
    pick = instances.random.choice
    if depth == 0:
        return instances.operand(dtype)
    if dtype.kind == "b" and instances.random.randrange(3) == 0:
        inner = pick(DTYPES)
        a, b = (expression(instances, inner, depth - 1) for _ in range(2))
        return make(pick(sorted(O.COMPARE)), dt.bool_, (a, b))
    if instances.random.randrange(6) == 0:
        return make(O.CAST, dtype, (expression(instances, pick(DTYPES), depth - 1),))
    # transcendental functions have few rules; division and shifts many edge cases
    usual = sorted((O.BINARY_OPS | O.TERNARY | {O.NEG, O.NOT, O.ABS, O.FLOOR}) - O.COMPARE)
    op = pick([o for o in usual if o == O.WHERE or takes_dtype(o, dtype)])
    if op == O.POW and dtype.kind == "f":
        op = O.MUL
    count = 1 if op in O.UNARY else 3 if op in O.TERNARY else 2
    src = [expression(instances, dtype, depth - 1) for _ in range(count)]
    if op == O.WHERE:
        src[0] = expression(instances, dt.bool_, depth - 1)
    elif count == 2 and instances.random.randrange(5) == 0:
        src[1] = src[0]
    return make(op, dtype, tuple(src))


@pytest.mark.parametrize("seed", range(3))
def test_whole_expressions_keep_every_bit(seed: int) -> None:
    changed = 0
    for i in range(300):
        instances = Instances(seed * 7919 + i, (SAMPLES,) if i % 2 else ())
        before = expression(instances, DTYPES[i % len(DTYPES)], 1 + i % 4)
        (after,) = rewrite((before,), VALUES)
        changed += after is not before
        check(before, after, instances.leaves, f"expression {seed} {i}")
        assert rewrite((after,), VALUES) == (after,)
    assert changed > 100


@pytest.mark.parametrize("op", sorted(O.ALU - {O.WHERE}), ids=lambda op: O.NAMES[op])
def test_folding_gives_what_the_op_gives(op: int) -> None:
    for i in range(60):
        dtype = DTYPES[i % len(DTYPES)]
        if not takes_dtype(op, dtype):
            continue
        instances = Instances(i)
        count = 1 if op in O.UNARY else 3 if op in O.TERNARY else 2
        src = tuple([instances.constant(dtype) for _ in range(count)])
        node = make(op, dt.bool_ if op in O.COMPARE else dtype, src)
        (folded,) = rewrite((node,), VALUES)
        assert folded.op == O.CONST
        check(node, folded, {}, O.NAMES[op])


def test_exact_conversions_are_those_that_come_back() -> None:
    generator = np.random.default_rng(0)
    for a in DTYPES:
        for b in DTYPES:
            values = samples(generator, a, (2000,))
            back = cast_array(cast_array(values, b), a)
            comes_back = bool(np.array_equal(bits_of(back), bits_of(values)))
            if is_exact(a, b):
                assert comes_back, (a, b)
            elif a.kind != "b" and not (a.kind in "iu" and b.kind in "iu"):
                assert not comes_back, (a, b)  # wrapped integers come back although not exact


def test_vectors_are_simplified_like_scalars() -> None:
    four = dt.float32.vec(4)
    x = make(O.PARAM, four, (), ParamArg(0, ()))
    assert rewrite((make(O.MUL, four, (x, const(1.0, four))),), VALUES) == (x,)
    i = dt.int32.vec(4)
    y = make(O.PARAM, i, (), ParamArg(0, ()))
    assert rewrite((make(O.SUB, i, (y, y)),), VALUES) == (const(0, i),)
    truth = make(O.LT, dt.bool_.vec(4), (y, const(-(1 << 31), i)))
    assert rewrite((truth,), VALUES) == (const(False, dt.bool_.vec(4)),)
