"""The NumPy meaning of the tensor graph, against plain Python and NumPy."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import svod.dtype as sd
from svod.base.errors import GraphError
from svod.dtype import STORABLE, DType, cast_array, integer_limits, to_numpy
from svod.ir import evaluate as evaluator
from svod.ir import ops as O
from svod.ir.args import ParamArg, ReduceArg, VarArg, ViewArg
from svod.ir.evaluate import apply_alu, evaluate, takes_dtype
from svod.ir.node import UOp, const, make
from svod.ir.reductions import accumulator_dtype, identity, takes_reduction

Array = np.ndarray[Any, Any]
FLOATS = [d for d in STORABLE if d.is_float]
INTEGERS = [d for d in STORABLE if d.is_int]


@pytest.fixture(autouse=True)
def _warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def sample(dtype: DType, shape: tuple[int, ...] = (200,), seed: int = 0) -> Array:
    """Values of every size: the ends, zeros, NaN and infinities, then random bits."""
    random = np.random.default_rng(seed)
    if dtype.kind == "b":
        return random.integers(0, 2, shape).astype(np.bool_)
    kind = to_numpy(dtype)
    bits = random.integers(0, 256, (*shape, kind.itemsize), np.uint8).view(kind)[..., 0].ravel()
    if dtype.is_float:
        first = np.array([0.0, -0.0, np.nan, np.inf, -np.inf, 1, -1, 0.5, 2, -3], np.float32)
        with np.errstate(all="ignore"):
            first = first.astype(kind)
    else:
        lo, hi = integer_limits(dtype)
        first = np.array([0, 1, lo, hi, hi - 1, 2, 3, 7, lo, 0], object).astype(kind)
    count = min(len(first), bits.size)
    bits[:count] = random.permutation(first)[:count]
    return bits.reshape(shape)


def param(dtype: DType, shape: tuple[int, ...], slot: int = 0) -> UOp:
    return make(O.PARAM, dtype, (), ParamArg(slot, shape))


def wide(array: Any) -> Array:
    """Floats in float64; NumPy would warn of signalling NaNs."""
    found = np.asarray(array)
    with np.errstate(all="ignore"):
        return found if found.dtype.kind in "biu" else found.astype(np.float64)


def same(found: Any, wanted: Any) -> None:
    np.testing.assert_array_equal(wide(found), wide(wanted))


# -- integers ----------------------------------------------------------------------------------


def wrap(value: int, dtype: DType) -> int:
    lo, hi = integer_limits(dtype)
    return (value - lo) % (hi - lo + 1) + lo


def shift_right(a: int, b: int, dtype: DType) -> int:
    return a >> b if 0 <= b < dtype.bits else (-1 if a < 0 else 0)


INTEGER_MEANING: dict[int, Any] = {
    O.ADD: lambda a, b, d: a + b,
    O.SUB: lambda a, b, d: a - b,
    O.MUL: lambda a, b, d: a * b,
    O.IDIV: lambda a, b, d: a // b if b else 0,
    O.MOD: lambda a, b, d: a % b if b else 0,
    O.MAX: lambda a, b, d: max(a, b),
    O.MIN: lambda a, b, d: min(a, b),
    O.AND: lambda a, b, d: a & b,
    O.OR: lambda a, b, d: a | b,
    O.XOR: lambda a, b, d: a ^ b,
    O.SHL: lambda a, b, d: a << b if 0 <= b < d.bits else 0,
    O.SHR: shift_right,
}
EDGES = {d: [0, 1, 2, 3, 7, 8, 31, 63, 64, 100, -1, -2, -7, *integer_limits(d)] for d in INTEGERS}


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
@pytest.mark.parametrize("op", INTEGER_MEANING, ids=O.NAMES.get)
def test_integer_ops_against_python(op: int, dtype: DType) -> None:
    values = sorted({wrap(v, dtype) for v in EDGES[dtype]} | set(sample(dtype, (20,)).tolist()))
    pairs = [(a, b) for a in values for b in values]
    left, right = (np.array(column, to_numpy(dtype)) for column in zip(*pairs, strict=True))
    found = apply_alu(op, dtype, [left, right])
    assert found.dtype == to_numpy(dtype)
    assert found.tolist() == [wrap(INTEGER_MEANING[op](a, b, dtype), dtype) for a, b in pairs]


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
def test_integer_unary_compare_power_and_fma(dtype: DType) -> None:
    values = [wrap(v, dtype) for v in EDGES[dtype]]
    array = np.array(values, to_numpy(dtype))
    other = array[::-1].copy()
    assert apply_alu(O.NEG, dtype, [array]).tolist() == [wrap(-v, dtype) for v in values]
    assert apply_alu(O.ABS, dtype, [array]).tolist() == [wrap(abs(v), dtype) for v in values]
    assert apply_alu(O.NOT, dtype, [array]).tolist() == [wrap(~v, dtype) for v in values]
    pairs = list(zip(values, other.tolist(), strict=True))
    assert apply_alu(O.LT, sd.bool_, [array, other]).tolist() == [a < b for a, b in pairs]
    assert apply_alu(O.LE, sd.bool_, [array, other]).tolist() == [a <= b for a, b in pairs]
    assert apply_alu(O.EQ, sd.bool_, [array, other]).tolist() == [a == b for a, b in pairs]
    assert apply_alu(O.NE, sd.bool_, [array, other]).tolist() == [a != b for a, b in pairs]
    fused = apply_alu(O.FMA, dtype, [array, other, array])
    assert fused.tolist() == [wrap(a * b + a, dtype) for a, b in pairs]
    exponents = np.array([v % 100 for v in values], to_numpy(dtype))
    powers = apply_alu(O.POW, dtype, [array, exponents])
    wanted = [wrap(a**e, dtype) for a, e in zip(values, exponents.tolist(), strict=True)]
    assert powers.tolist() == wanted


def test_negative_integer_powers() -> None:
    base = np.array([1, -1, -1, 2, 0, -5], np.int32)
    exponent = np.array([-7, -7, -8, -1, -1, -2], np.int32)
    assert apply_alu(O.POW, sd.int32, [base, exponent]).tolist() == [1, -1, 1, 0, 0, 0]


def test_bools_are_logical() -> None:
    a, b = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert apply_alu(O.NOT, sd.bool_, [a]).tolist() == [True, True, False, False]
    for op in (O.AND, O.MUL, O.MIN):
        assert apply_alu(op, sd.bool_, [a, b]).tolist() == [False, False, False, True]
    for op in (O.OR, O.MAX):
        assert apply_alu(op, sd.bool_, [a, b]).tolist() == [False, True, True, True]
    assert apply_alu(O.XOR, sd.bool_, [a, b]).tolist() == [False, True, True, False]
    assert apply_alu(O.LT, sd.bool_, [a, b]).tolist() == [False, True, False, False]


# -- floats ------------------------------------------------------------------------------------

NUMPY_FUNCTIONS: dict[int, Any] = {
    O.EXP: np.exp, O.EXP2: np.exp2, O.LOG: np.log, O.LOG2: np.log2, O.SIN: np.sin, O.COS: np.cos,
    O.TAN: np.tan, O.TANH: np.tanh, O.EXPM1: np.expm1, O.LOG1P: np.log1p, O.ASIN: np.arcsin,
    O.ACOS: np.arccos, O.ATAN: np.arctan, O.SINH: np.sinh, O.COSH: np.cosh, O.ASINH: np.arcsinh,
    O.ACOSH: np.arccosh, O.ATANH: np.arctanh, O.POW: np.power, O.ATAN2: np.arctan2,
    O.RSQRT: lambda x: 1 / np.sqrt(x), O.ERF: np.vectorize(math.erf, otypes=[np.float64]),
}  # fmt: skip
NUMPY_BASIC: dict[int, Any] = {
    O.NEG: np.negative, O.ABS: np.abs, O.RECIP: lambda x: 1 / x, O.SQRT: np.sqrt,
    O.TRUNC: np.trunc, O.FLOOR: np.floor, O.CEIL: np.ceil, O.ROUND: np.rint, O.ADD: np.add,
    O.SUB: np.subtract, O.MUL: np.multiply, O.DIV: np.divide, O.MAX: np.maximum,
    O.MIN: np.minimum, O.FMOD: np.fmod,
}  # fmt: skip


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_float_functions_compute_wide_and_round(dtype: DType) -> None:
    for op, meaning in NUMPY_FUNCTIONS.items():
        args = [sample(dtype, seed=i) for i in range(2 if op in O.BINARY_OPS else 1)]
        found = apply_alu(op, dtype, args)
        with np.errstate(all="ignore"):
            wanted = meaning(*[a.astype(np.float64) for a in args])
            if dtype.bits < 64:
                wanted = wanted.astype(np.float32)
        same(found, cast_array(wanted, dtype))


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_float_arithmetic_rounds_after_each_op(dtype: DType) -> None:
    for op, meaning in NUMPY_BASIC.items():
        args = [sample(dtype, seed=i) for i in range(2 if op in O.BINARY_OPS else 1)]
        found = apply_alu(op, dtype, args)
        assert found.dtype == to_numpy(dtype)
        computing = np.float32 if dtype.bits < 64 else np.float64
        with np.errstate(all="ignore"):
            wanted = cast_array(meaning(*[a.astype(computing) for a in args]), dtype)
        same(found, wanted)


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_nan_wins_in_max_and_min_and_is_unordered(dtype: DType) -> None:
    nan, one = (np.full(3, v).astype(to_numpy(dtype)) for v in (np.nan, 1.0))
    for op in (O.MAX, O.MIN):
        for args in ([nan, one], [one, nan]):
            assert np.isnan(apply_alu(op, dtype, args).astype(np.float32)).all()
    for op in (O.LT, O.LE, O.EQ):
        assert not apply_alu(op, sd.bool_, [nan, one]).any()
        assert not apply_alu(op, sd.bool_, [nan, nan]).any()
    assert apply_alu(O.NE, sd.bool_, [nan, nan]).all()


def test_special_values() -> None:
    def at(op: int, *values: float) -> float:
        for dtype in (sd.float32, sd.float64):
            args = [np.array(v, to_numpy(dtype)) for v in values]
            found = float(apply_alu(op, dtype, args))
        return found

    inf = math.inf
    assert at(O.EXP, -inf) == 0 and at(O.EXP, inf) == inf
    assert at(O.LOG, 0.0) == -inf and math.isnan(at(O.LOG, -1.0))
    assert at(O.ERF, inf) == 1 and at(O.ERF, -inf) == -1 and math.isnan(at(O.ERF, math.nan))
    assert at(O.RSQRT, 0.0) == inf and at(O.RSQRT, inf) == 0 and math.isnan(at(O.RSQRT, -1.0))
    assert at(O.RECIP, -0.0) == -inf
    assert [at(O.ROUND, v) for v in (0.5, 1.5, 2.5, -0.5)] == [0, 2, 2, 0]
    assert at(O.FMOD, -5.5, 2.0) == -1.5 and math.isnan(at(O.FMOD, 1.0, 0.0))
    assert at(O.POW, 0.0, 0.0) == 1 and at(O.POW, math.nan, 0.0) == 1
    assert at(O.ATAN2, 0.0, -1.0) == pytest.approx(math.pi)
    assert at(O.TRUNC, -1.9) == -1 and at(O.FLOOR, -1.1) == -2 and at(O.CEIL, 1.1) == 2


finite32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
finite64 = st.floats(allow_nan=False, allow_infinity=False)


def exact_fma(a: float, b: float, c: float) -> float:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not exact:
        return a * b + c if not a or not b else 0.0
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


@given(finite64, finite64, finite64)
def test_fma_of_float64_rounds_once(a: float, b: float, c: float) -> None:
    found = float(apply_alu(O.FMA, sd.float64, [np.array(v) for v in (a, b, c)]))
    assert found == exact_fma(a, b, c)


@given(finite32, finite32, finite32)
def test_fma_of_float32_rounds_once(a: float, b: float, c: float) -> None:
    found = apply_alu(O.FMA, sd.float32, [np.array(v, np.float32) for v in (a, b, c)])
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if not np.isfinite(found):
        assert abs(exact) >= Fraction(2) ** 128 - Fraction(2) ** 103
        return
    error = abs(Fraction(float(found)) - exact)
    with np.errstate(all="ignore"):
        neighbours = [np.nextafter(found, np.float32(s)) for s in (-np.inf, np.inf)]
    for neighbour in neighbours:
        if np.isfinite(neighbour):
            other = abs(Fraction(float(neighbour)) - exact)
            even = int(found.view(np.int32)) % 2 == 0
            assert error < other or (error == other and even)


def test_fma_that_two_roundings_would_get_wrong() -> None:
    x = np.array(1 + 2.0**-23, np.float32)
    tiny = np.array(2.0**-100, np.float32)
    half = np.array(1 + 2.0**-1, np.float32)  # x*half lies in the middle of two float32
    exact = Fraction(float(x)) * Fraction(3, 2)
    low = float(apply_alu(O.FMA, sd.float32, [x, half, -tiny]))
    high = float(apply_alu(O.FMA, sd.float32, [x, half, tiny]))
    assert Fraction(low) < exact < Fraction(high)


def test_fma_of_non_finite_values() -> None:
    inf, big = math.inf, 1e300
    cases = [(inf, 0.0, 1.0), (inf, 1.0, -inf), (big, -big, inf), (1.0, 1.0, math.nan)]
    found = apply_alu(O.FMA, sd.float64, [np.array(c) for c in zip(*cases, strict=True)])
    np.testing.assert_array_equal(found, [math.nan, math.nan, inf, math.nan])


# -- the table of dtypes -----------------------------------------------------------------------


@pytest.mark.parametrize("dtype", STORABLE, ids=repr)
def test_every_alu_op_either_computes_or_refuses(dtype: DType) -> None:
    for op in sorted(O.ALU):
        count = 1 if op in O.UNARY else 2 if op in O.BINARY_OPS else 3
        args = [sample(dtype, seed=i) for i in range(count)]
        result = sd.bool_ if op in O.COMPARE else dtype
        if op == O.WHERE:
            args[0] = sample(sd.bool_)
        if not takes_dtype(op, dtype):
            with pytest.raises(GraphError, match=f"{O.NAMES[op]} does not take {dtype.name}"):
                apply_alu(op, result, args)
            continue
        found = apply_alu(op, result, args)
        assert (found.dtype, found.shape) == (to_numpy(result), (200,))
        scalar = apply_alu(op, result, [np.asarray(a[0]) for a in args])
        assert (scalar.dtype, scalar.shape) == (to_numpy(result), ())
        same(scalar, found[0])
        if count > 1:
            mixed = apply_alu(op, result, [args[0], *[np.asarray(a[0]) for a in args[1:]]])
            assert (mixed.dtype, mixed.shape) == (to_numpy(result), (200,))


def test_where_keeps_bits() -> None:
    payload = np.array([0x7FC01234, 0x80000000], np.uint32).view(np.float32)
    chosen = apply_alu(O.WHERE, sd.float32, [np.array([True, True]), payload, -payload])
    assert chosen.view(np.uint32).tolist() == payload.view(np.uint32).tolist()


def test_what_is_no_alu_operation() -> None:
    with pytest.raises(GraphError, match="RESHAPE with 1 operands is no ALU operation"):
        apply_alu(O.RESHAPE, sd.float32, [np.zeros(3)])
    with pytest.raises(GraphError, match="ADD with 1 operands"):
        apply_alu(O.ADD, sd.float32, [np.zeros(3)])


# -- reductions --------------------------------------------------------------------------------


def reduce_axis(x: UOp, op: int, axes: tuple[int, ...]) -> UOp:
    return make(O.REDUCE_AXIS, x.dtype, (x,), ReduceArg(op, axes))


@pytest.mark.parametrize("op", sorted(O.REDUCTIONS), ids=O.NAMES.get)
@pytest.mark.parametrize("dtype", STORABLE, ids=repr)
def test_identities_are_neutral_and_the_value_of_nothing(dtype: DType, op: int) -> None:
    if not takes_reduction(op, dtype):
        with pytest.raises(GraphError, match="is no reduction over"):
            identity(op, dtype)
        return
    neutral = cast_array(np.array(identity(op, dtype)), dtype)
    values = sample(dtype)
    same(apply_alu(op, dtype, [values, neutral]), values)
    empty = param(dtype, (2, 0, 3))
    found = evaluate(reduce_axis(empty, op, (1,)), {empty: np.zeros((2, 0, 3), to_numpy(dtype))})
    assert (found.shape, found.dtype) == ((2, 1, 3), to_numpy(dtype))
    assert (found == neutral).all()


@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
def test_integer_reductions_wrap(dtype: DType) -> None:
    x = param(dtype, (3, 4, 5))
    values = sample(dtype, (3, 4, 5))
    for op in sorted(O.REDUCTIONS):
        found = evaluate(reduce_axis(x, op, (0, 2)), {x: values})
        for row in range(4):
            total = identity(op, dtype)
            for value in values[:, row].ravel().tolist():
                total = wrap(INTEGER_MEANING[op](total, value, dtype), dtype)
            assert found[0, row, 0] == total


@pytest.mark.parametrize(
    "dtype", [sd.float16, sd.bfloat16, sd.float8_e4m3, sd.float8_e5m2], ids=repr
)
def test_sums_of_small_floats_round_once_at_the_end(dtype: DType) -> None:
    x = param(dtype, (100,))
    values = np.ones(100).astype(to_numpy(dtype))
    values[0] = 16  # bfloat16 and the 8-bit floats would stop growing if they rounded each step
    found = evaluate(reduce_axis(x, O.ADD, (0,)), {x: values})
    assert found[0] == cast_array(np.float32(115), dtype)
    assert accumulator_dtype(O.ADD, dtype) is sd.float32
    assert accumulator_dtype(O.MAX, dtype) is dtype


def test_float_sums_stay_in_their_dtype() -> None:
    for dtype in (sd.float32, sd.float64):
        x = param(dtype, (1000,))
        values = np.random.default_rng(0).random(1000).astype(to_numpy(dtype))
        found = evaluate(reduce_axis(x, O.ADD, (0,)), {x: values})
        assert found[0] == np.sum(values)
        assert found.dtype == values.dtype


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_nan_wins_in_reductions(dtype: DType) -> None:
    x = param(dtype, (2, 3))
    values = np.array([[1, np.nan, 2], [3, 1, 2]]).astype(to_numpy(dtype))
    highest = evaluate(reduce_axis(x, O.MAX, (1,)), {x: values}).astype(np.float32)
    lowest = evaluate(reduce_axis(x, O.MIN, (1,)), {x: values}).astype(np.float32)
    np.testing.assert_array_equal(highest, [[np.nan], [3]])
    np.testing.assert_array_equal(lowest, [[np.nan], [1]])


# -- movement, memory, indexing ----------------------------------------------------------------


@pytest.mark.parametrize("dtype", STORABLE, ids=repr)
def test_movement_ops_move_bits(dtype: DType) -> None:
    x = param(dtype, (2, 3, 4))
    values = sample(dtype, (2, 3, 4))
    zero = np.zeros((), values.dtype)

    def check(op: int, arg: Any, wanted: Array) -> None:
        found = evaluate(make(op, dtype, (x,), arg), {x: values})
        assert found.dtype == values.dtype
        assert found.tobytes() == np.ascontiguousarray(wanted).tobytes()
        assert found.shape == wanted.shape

    check(O.RESHAPE, (4, 6), values.reshape(4, 6))
    check(O.PERMUTE, (2, 0, 1), values.transpose(2, 0, 1))
    check(O.SHRINK, ((0, 2), (1, 3), (2, 2)), values[0:2, 1:3, 2:2])
    check(O.FLIP, (0, 2), values[::-1, :, ::-1])
    padded = np.full((3, 3, 7), zero)
    padded[1:, :, 1:5] = values
    check(O.PAD, ((1, 0), (0, 0), (1, 2)), padded)
    one = make(O.RESHAPE, dtype, (x,), (2, 1, 12))
    found = evaluate(make(O.EXPAND, dtype, (one,), (2, 5, 12)), {x: values})
    assert found.tobytes() == np.repeat(values.reshape(2, 1, 12), 5, axis=1).tobytes()
    both = evaluate(make(O.CAT, dtype, (x, x), 1), {x: values})
    assert both.tobytes() == np.concatenate([values, values], 1).tobytes()


def test_identities_constants_iota_and_bitcast() -> None:
    device = make(O.DEVICE, sd.void, (), "CPU:1")
    x = param(sd.float32, (3,))
    values = np.array([1.0, -0.0, np.nan], np.float32)
    for node in (make(O.CONTIGUOUS, sd.float32, (x,)), make(O.COPY, sd.float32, (x, device))):
        assert evaluate(node, {x: values}).tobytes() == values.tobytes()
    bits = evaluate(make(O.BITCAST, sd.int32, (x,)), {x: values})
    assert bits.tolist() == values.view(np.int32).tolist()
    assert evaluate(make(O.IOTA, sd.int16, (), 5), {}).tolist() == [0, 1, 2, 3, 4]
    assert evaluate(make(O.IOTA, sd.float16, (), 3), {}).dtype == np.float16
    assert evaluate(const(-1, sd.uint8), {}) == 255
    for dtype in STORABLE:
        one = evaluate(const(1, dtype), {})
        assert (one.shape, one.dtype, int(one)) == ((), to_numpy(dtype), 1)
    with pytest.raises(GraphError, match="the widths differ"):
        evaluate(make(O.BITCAST, sd.int16, (x,)), {x: values})


def test_views_of_a_buffer_in_another_dtype() -> None:
    x = param(sd.uint8, (16,))
    values = np.arange(16, dtype=np.uint8)
    node = make(O.BUFFER_VIEW, sd.uint16, (x,), ViewArg(3, 2))
    assert evaluate(node, {x: values}).tolist() == values.view(np.uint16)[2:5].tolist()


def test_gather_reads_zero_outside() -> None:
    x = param(sd.bfloat16, (3, 4, 2))
    values = np.arange(1, 25).reshape(3, 4, 2).astype(to_numpy(sd.bfloat16))
    first, second = param(sd.int64, (5,), 1), param(sd.int64, (5,), 2)
    rows, columns = np.array([0, 2, -1, 1, 3]), np.array([3, 0, 0, 4, 0])
    node = make(O.GATHER, sd.bfloat16, (x, first, second))
    found = evaluate(node, {x: values, first: rows, second: columns})
    wanted = np.zeros((5, 2))
    wanted[0], wanted[1] = values[0, 3], values[2, 0]
    same(found, wanted)
    index = param(sd.uint64, (2, 2), 3)
    picked = np.array([[2, 2**64 - 1], [0, 3]], np.uint64)
    found = evaluate(make(O.GATHER, sd.bfloat16, (x, index)), {x: values, index: picked})
    assert found.shape == (2, 2, 4, 2)
    same(found[0, 0], values[2])
    assert not found[0, 1].astype(bool).any() and not found[1, 1].astype(bool).any()
    nothing = param(sd.bfloat16, (0, 2))
    empty = np.zeros((0, 2), values.dtype)
    found = evaluate(make(O.GATHER, sd.bfloat16, (nothing, first)), {nothing: empty, first: rows})
    assert found.shape == (5, 2) and not found.astype(bool).any()
    alone = param(sd.int8, (), 4)
    found = evaluate(make(O.GATHER, sd.bfloat16, (x, alone)), {x: values, alone: np.int8(1)})
    same(found, values[1])


@given(st.integers(0, 2**32), st.sampled_from(["set", "add"]))
def test_scatter_writes_in_row_major_order(seed: int, how: str) -> None:
    random = np.random.default_rng(seed)
    shape = tuple(random.integers(1, 4, 2))
    x, values = param(sd.int32, (3, 2, 2)), param(sd.int32, (*shape, 2), 1)
    first, second = param(sd.int64, shape, 2), param(sd.int64, shape, 3)
    arrays = {
        x: random.integers(0, 100, (3, 2, 2)).astype(np.int32),
        values: random.integers(0, 100, (*shape, 2)).astype(np.int32),
        first: random.integers(-1, 4, shape),
        second: random.integers(-1, 3, shape),
    }
    wanted = arrays[x].copy()
    for at in np.ndindex(shape):
        i, j = arrays[first][at], arrays[second][at]
        if 0 <= i < 3 and 0 <= j < 2:
            wanted[i, j] = arrays[values][at] + (wanted[i, j] if how == "add" else 0)
    before = arrays[x].copy()
    found = evaluate(make(O.SCATTER, sd.int32, (x, values, first, second), how), arrays)
    assert found.tolist() == wanted.tolist()
    assert arrays[x].tolist() == before.tolist()


def test_scattered_sums_of_small_floats_round_at_every_step() -> None:
    x, values, index = (
        param(sd.bfloat16, (2,)),
        param(sd.bfloat16, (99,), 1),
        param(sd.int8, (99,), 2),
    )
    kind = to_numpy(sd.bfloat16)
    arrays = {x: np.array([256, 0]).astype(kind), values: np.ones(99).astype(kind)}
    node = make(O.SCATTER, sd.bfloat16, (x, values, index), "add")
    found = evaluate(node, {**arrays, index: np.zeros(99, np.int8)})
    same(found, [256.0, 0.0])  # 257 lies between 256 and 258


# -- the walk ----------------------------------------------------------------------------------


def test_variables_have_given_or_bound_values() -> None:
    variable = make(O.DEFINE_VAR, sd.index, (), VarArg("n", 1, 8))
    bound = make(O.BIND, sd.index, (variable, const(5, sd.index)))
    double = make(O.MUL, sd.index, (bound, const(2, sd.index)))
    assert evaluate(double, {}) == 10
    assert evaluate(make(O.ADD, sd.index, (double, variable)), {}) == 15
    assert evaluate(make(O.ADD, sd.index, (double, variable)), {variable: 3}) == 13
    assert evaluate(double, {bound: np.int32(4)}) == 8
    with pytest.raises(GraphError, match=r"DEFINE_VAR idx : VarArg.* has no value of its own"):
        evaluate(variable, {})


def test_an_assign_has_the_value_it_assigns() -> None:
    x = param(sd.float32, (3,))
    values = np.arange(3, dtype=np.float32)
    node = make(O.ASSIGN, sd.float32, (x, const(2.0, sd.float32)))
    assert evaluate(node, {x: values}).tolist() == [2, 2, 2]
    assert values.tolist() == [0, 1, 2]


def test_any_node_can_be_given() -> None:
    x = param(sd.float32, (3,))
    inner = make(O.EXP, sd.float32, (x,))
    outer = make(O.NEG, sd.float32, (inner,))
    assert evaluate(outer, {inner: np.ones(3, np.float32)}).tolist() == [-1, -1, -1]


def test_results_are_new_arrays() -> None:
    x = param(sd.float32, (3,))
    values = np.zeros(3, np.float32)
    found = evaluate(x, {x: values})
    found[0] = 1
    assert values[0] == 0


def test_long_chains_need_no_recursion() -> None:
    one = const(1, sd.int64)
    node = one
    for _ in range(20_000):
        node = make(O.ADD, sd.int64, (node, one))
    assert evaluate(node, {}) == 20_001


def test_intermediates_are_freed_after_their_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    import weakref

    alive: list[weakref.ref[Array]] = []
    most = 0
    original = apply_alu

    def watched(op: int, dtype: DType, args: list[Array]) -> Array:
        nonlocal most
        result = original(op, dtype, args)
        alive.append(weakref.ref(result))
        most = max(most, sum(r() is not None for r in alive))
        return result

    monkeypatch.setattr(evaluator, "apply_alu", watched)
    node = x = param(sd.float32, (10,))
    for _ in range(50):
        node = make(O.ADD, sd.float32, (node, x))
    evaluate(node, {x: np.ones(10, np.float32)})
    assert most <= 3


def test_errors_name_the_node() -> None:
    x = param(sd.float32, (3,))
    with pytest.raises(
        GraphError, match=r"PARAM f32\[3\] : ParamArg\(slot=0, shape=\(3,\)\) has no"
    ):
        evaluate(make(O.NEG, sd.float32, (x,)), {})
    with pytest.raises(
        GraphError, match=r"value given for PARAM .* is float64\[3\], not float32\[3\]"
    ):
        evaluate(x, {x: np.zeros(3)})
    with pytest.raises(GraphError, match=r"is float32\[4\], not float32\[3\]"):
        evaluate(x, {x: np.zeros(4, np.float32)})
    bad = make(O.ADD, sd.float32, (x, param(sd.float32, (1, 3), 2)))
    with pytest.raises(GraphError, match=r"ADD f32\[3\] computed an array of shape \(1, 3\)"):
        evaluate(bad, {s: np.zeros(s.shape, np.float32) for s in bad.src})
