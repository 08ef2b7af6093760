"""Every lowered op, compiled to machine code and compared with NumPy and ml_dtypes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from svod.codegen.decompose import decompose
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.node import const, make
from tests.codegen.decompose_harness import (
    LANES,
    NUMPY,
    argument,
    assembly,
    compiled,
    host_features,
    instructions,
    lower,
    usual,
)

INTEGERS = [
    dt.int8, dt.uint8, dt.int16, dt.uint16, dt.int32, dt.uint32, dt.int64, dt.uint64
]  # fmt: skip
FLOATS = [dt.float8_e4m3, dt.float8_e5m2, dt.float16, dt.bfloat16, dt.float32, dt.float64]
NARROW = FLOATS[:4]


@pytest.fixture(autouse=True)
def quiet() -> Any:
    with np.errstate(all="ignore"):
        yield


def run(op: int, dtype: DType, *arrays: Any, sources: list[DType], lanes: int = LANES) -> Any:
    return compiled(lower(op, dtype, sources, lanes), sources)(*arrays)


def integers(dtype: DType, count: int, seed: int) -> Any:
    """Small, large and extreme values of an integer type."""
    lo, hi = dt.integer_limits(dtype)
    generator = np.random.default_rng(seed)
    wide = generator.integers(lo, hi, count, dtype=NUMPY[dtype], endpoint=True)
    wide[::3] >>= np.array(generator.integers(0, dtype.bits, len(wide[::3])), NUMPY[dtype])
    edges = [lo, lo + 1, hi, hi - 1, 0, 1, 2, 3, 7] + ([-1, -2, -3] if lo else [])
    wide[: len(edges) ** 2] = np.array(edges, NUMPY[dtype])[
        np.arange(len(edges) ** 2) % len(edges)
        if seed % 2
        else np.arange(len(edges) ** 2) // len(edges)
    ]
    return wide


def same_bits(a: Any, b: Any) -> None:
    kind = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}[a.dtype.itemsize]
    wrong = (a.view(kind) != b.view(kind)) & ~(np.isnan(a) & np.isnan(b))
    assert not wrong.any(), (a[wrong][:5], b[wrong][:5], int(wrong.sum()))


# -- integers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lanes", [1, LANES])
@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
def test_division_rounds_down_and_by_zero_gives_zero(dtype: DType, lanes: int) -> None:
    x, y = integers(dtype, 5000, 0), integers(dtype, 5000, 1)
    sources = [dtype, dtype]
    quotient = run(O.IDIV, dtype, x, y, sources=sources, lanes=lanes)
    rest = run(O.MOD, dtype, x, y, sources=sources, lanes=lanes)
    lo, hi = dt.integer_limits(dtype)
    for a, b, q, r in zip(x.tolist(), y.tolist(), quotient.tolist(), rest.tolist(), strict=True):
        expected = 0 if b == 0 else (a // b - lo) % (hi - lo + 1) + lo
        assert (q, r) == (expected, 0 if b == 0 else a % b), (a, b)


@pytest.mark.parametrize("dtype", [dt.int32, dt.uint8, dt.int64], ids=repr)
@pytest.mark.parametrize("divisor", [0, 1, 2, 8, 7, 100, -1, -2, -7])
def test_division_by_a_constant(dtype: DType, divisor: int) -> None:
    if divisor < 0 and not dtype.is_signed:
        return
    x = integers(dtype, 500, 0)
    vector = dtype.vec(LANES)
    lo, hi = dt.integer_limits(dtype)
    for op in (O.IDIV, O.MOD):
        source = argument(0, dtype, LANES)
        root = decompose(op, vector, (source, const(divisor, vector)), None)
        assert root is not None
        got = compiled(root, [dtype])(x)
        for a, g in zip(x.tolist(), got.tolist(), strict=True):
            exact = 0 if divisor == 0 else a // divisor if op == O.IDIV else a % divisor
            assert g == (exact - lo) % (hi - lo + 1) + lo, (a, divisor)


@pytest.mark.parametrize("lanes", [1, LANES])
@pytest.mark.parametrize("dtype", INTEGERS, ids=repr)
def test_shifts_past_the_width(dtype: DType, lanes: int) -> None:
    lo, hi = dt.integer_limits(dtype)
    x = np.tile(integers(dtype, 170, 0), 80)
    amounts = np.array([a for a in range(-8, 72) if lo <= a <= hi] + [hi, lo], NUMPY[dtype])
    y = np.resize(np.repeat(amounts, 170), len(x))
    left = run(O.SHL, dtype, x, y, sources=[dtype, dtype], lanes=lanes)
    right = run(O.SHR, dtype, x, y, sources=[dtype, dtype], lanes=lanes)
    for a, n, p, q in zip(x.tolist(), y.tolist(), left.tolist(), right.tolist(), strict=True):
        past = not 0 <= n < dtype.bits
        assert p == (0 if past else ((a << n) - lo) % (hi - lo + 1) + lo), (a, n)
        assert q == ((-1 if a < 0 else 0) if past else a >> n), (a, n)


def test_index_arithmetic_and_conditions() -> None:
    x, y = integers(dt.int64, 500, 0), integers(dt.int64, 500, 1)
    got = run(O.MOD, dt.index, x, y, sources=[dt.index, dt.index])
    expected = [a % b if b else 0 for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    assert got.tolist() == expected
    a, b = np.array([False, True] * 2), np.array([False] * 2 + [True] * 2)
    tables = {O.MAX: a | b, O.MIN: a & b, O.IDIV: a & b, O.MOD: a & ~a}
    for op, table in tables.items():
        assert (run(op, dt.bool_, a, b, sources=[dt.bool_, dt.bool_]) == table).all()


def test_integer_multiply_add_and_rounding() -> None:
    x = integers(dt.int32, 300, 0)
    got = run(O.FMA, dt.int32, x, x, x, sources=[dt.int32] * 3)
    assert (got == x * x + x).all()
    source = argument(0, dt.int32, 4)
    assert decompose(O.FLOOR, source.dtype, (source,), None) is source


def test_integer_powers_wrap() -> None:
    x, y = integers(dt.int32, 3000, 0), integers(dt.int32, 3000, 1) % 40 - 3
    got = run(O.POW, dt.int32, x, y, sources=[dt.int32, dt.int32])
    for a, n, g in zip(x.tolist(), y.tolist(), got.tolist(), strict=True):
        below = {1: 1, -1: -1 if n % 2 else 1}.get(a, 0)
        assert g == (below if n < 0 else (pow(a, n, 1 << 32) + (1 << 31)) % (1 << 32) - (1 << 31))


def test_operands_with_known_bounds_stay_one_node() -> None:
    x = make(O.CAST, dt.int32, (argument(0, dt.uint8, 1),))
    found = decompose(O.IDIV, dt.int32, (x, const(7, dt.int32)), None)
    assert found is not None and found.op == O.IDIV and found.arg == "trunc"
    assert decompose(O.SHL, dt.int32, (x, const(31, dt.int32)), None) is None


# -- conversions -------------------------------------------------------------------------------


def all_codes(dtype: DType) -> Any:
    kind = np.uint8 if dtype.bits == 8 else np.uint16
    return np.arange(1 << dtype.bits, dtype=kind).view(NUMPY[dtype])


def float_samples(dtype: DType) -> Any:
    if dtype.bits <= 16:
        return all_codes(dtype)
    if dtype is dt.float32:
        return np.arange(0, 1 << 32, 16411, dtype=np.uint64).astype(np.uint32).view(np.float32)
    bits = np.random.default_rng(0).integers(0, 1 << 64, 100000, dtype=np.uint64)
    return bits.view(np.float64)


def rounding_hazards(dtype: DType, wide: Any) -> Any:
    """Values of a type, their midpoints, and the neighbours of both in the wider type."""
    codes = all_codes(dtype)[:: 1 if dtype.bits == 8 else 7].astype(wide)
    codes = np.sort(codes[np.isfinite(codes)])
    middles = (codes[1:] + codes[:-1]) / 2
    points = np.concatenate([codes, middles, codes[-1:] * wide(1.03), codes[-1:] * wide(2)])
    special = np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0], wide)
    steps = [
        points,
        np.nextafter(points, wide(np.inf)),
        np.nextafter(points, wide(-np.inf)),
        special,
    ]
    return np.concatenate(steps)


@pytest.mark.parametrize("target", FLOATS, ids=repr)
@pytest.mark.parametrize("source", FLOATS, ids=repr)
def test_conversions_between_floats(source: DType, target: DType) -> None:
    x = float_samples(source)
    if source.bits >= 32 and target in NARROW:
        x = np.concatenate([x, rounding_hazards(target, NUMPY[source])])
    got = run(O.CAST, target, x, sources=[source])
    same_bits(got, x.astype(NUMPY[target]))


@pytest.mark.parametrize("target", NARROW, ids=repr)
def test_a_nan_keeps_its_sign(target: DType) -> None:
    x = np.array([0x7F800001, 0x7FC00000, 0xFFC00001, 0xFF812345], np.uint32).view(np.float32)
    got = run(O.CAST, target, x, sources=[dt.float32])
    assert np.isnan(got).all() and np.signbit(got).tolist() == [False, False, True, True]


@pytest.mark.parametrize("target", INTEGERS, ids=repr)
@pytest.mark.parametrize("source", FLOATS, ids=repr)
def test_float_to_integer_saturates(source: DType, target: DType) -> None:
    x = float_samples(source)[::17]
    got = run(O.CAST, target, x, sources=[source])
    lo, hi = dt.integer_limits(target)
    for a, g in zip(x.astype(np.float64).tolist(), got.tolist(), strict=True):
        assert g == (0 if a != a else lo if a < lo else hi if a > hi else int(a)), a


@pytest.mark.parametrize("source", INTEGERS, ids=repr)
@pytest.mark.parametrize("target", [*FLOATS, dt.bool_], ids=repr)
def test_integer_to_float_and_bool(source: DType, target: DType) -> None:
    x = integers(source, 2000, 0)
    got = run(O.CAST, target, x, sources=[source])
    if target is dt.bool_:
        assert (got == (x != 0)).all()
    else:
        same_bits(got, x.astype(NUMPY[target]))


@pytest.mark.parametrize("dtype", FLOATS, ids=repr)
def test_floats_and_bool(dtype: DType) -> None:
    x = float_samples(dtype)
    assert (run(O.CAST, dt.bool_, x, sources=[dtype]) == (x.astype(np.float64) != 0)).all()
    truth = np.array([True, False] * 8)
    same_bits(run(O.CAST, dtype, truth, sources=[dt.bool_]), truth.astype(NUMPY[dtype]))


# -- arithmetic on narrow floats ---------------------------------------------------------------

ARITHMETIC: dict[int, Any] = {
    O.ADD: np.add,
    O.SUB: np.subtract,
    O.MUL: np.multiply,
    O.DIV: np.divide,
}


@pytest.mark.parametrize("dtype", NARROW, ids=repr)
def test_narrow_arithmetic_rounds_every_op(dtype: DType) -> None:
    codes = all_codes(dtype)
    generator = np.random.default_rng(0)
    x, y = codes[generator.integers(0, len(codes), (2, 40000))]
    for op, function in ARITHMETIC.items():
        same_bits(run(op, dtype, x, y, sources=[dtype, dtype]), function(x, y))
    for op, function in ((O.NEG, np.negative), (O.ABS, np.abs), (O.SQRT, np.sqrt)):
        same_bits(run(op, dtype, x, sources=[dtype]), function(x).astype(NUMPY[dtype]))
    less = run(O.LT, dt.bool_, x, y, sources=[dtype, dtype])
    assert (less == (x < y)).all()


@pytest.mark.parametrize("dtype", NARROW, ids=repr)
def test_narrow_functions_go_through_float32(dtype: DType) -> None:
    x = all_codes(dtype)
    got = run(O.EXP, dtype, x, sources=[dtype])
    wide = run(O.EXP, dt.float32, x.astype(np.float32), sources=[dt.float32])
    same_bits(got, wide.astype(NUMPY[dtype]))


# -- functions ---------------------------------------------------------------------------------

# The largest errors found, in units of the last place, rounded up: over every float32, and over
# millions of float64. Powers, remainders and atan2 over millions of pairs.
ULPS: dict[str, tuple[float, float]] = {
    "RECIP": (0.5, 0.5), "RSQRT": (1.5, 1.5), "EXP": (0.9, 0.9), "EXP2": (0.9, 0.9),
    "EXPM1": (1.5, 1.9), "LOG": (0.9, 0.9), "LOG2": (1.0, 1.1), "LOG1P": (1.5, 1.5),
    "SIN": (1.6, 0.9), "COS": (1.6, 0.9), "TAN": (0.51, 1.2), "TANH": (1.6, 2.0),
    "ERF": (1.2, 1.0), "SINH": (1.5, 1.8), "COSH": (1.3, 1.3), "ASIN": (1.4, 1.6),
    "ACOS": (1.1, 1.1), "ATAN": (1.4, 1.9), "ASINH": (0.51, 1.8), "ACOSH": (0.51, 1.9),
    "ATANH": (0.51, 1.9), "ATAN2": (1.6, 2.0), "POW": (0.54, 1.2), "FMOD": (0.0, 0.0),
}  # fmt: skip
UNARY = [name for name in ULPS if name not in ("ATAN2", "POW", "FMOD")]
BINARY = ["ATAN2", "POW", "FMOD"]
long = np.longdouble
needs_long = pytest.mark.skipif(np.finfo(long).nmant < 63, reason="needs an extended reference")


def reference(name: str, *arguments: Any) -> Any:
    """The function in the type of the arguments, which is wider than the one under test."""
    x = arguments[0]
    if name == "RECIP":
        return 1 / x
    if name == "RSQRT":
        return 1 / np.sqrt(x)
    if name == "ERF":
        return _erf(x)
    special = {"POW": np.power, "ASIN": np.arcsin, "ACOS": np.arccos, "ATAN": np.arctan}
    special |= {"ASINH": np.arcsinh, "ACOSH": np.arccosh, "ATANH": np.arctanh, "ATAN2": np.arctan2}
    function = special.get(name) or getattr(np, name.lower())
    return function(*arguments)


def _erf(x: Any) -> Any:
    if x.dtype == np.float64:
        return np.array([math.erf(v) for v in x])
    # erf(x) = 2/sqrt(pi) * exp(-x**2) * sum of 2**n * x**(2n+1) / (1*3*..*(2n+1)); no sign changes
    a = np.minimum(np.abs(x), long(7))
    term = total = a
    for n in range(1, 200):
        term = term * (2 * a * a / (2 * n + 1))
        total = total + term
    one = np.exp(-a * a) * total * 2 / np.sqrt(long(np.pi) + long(1.2246467991473532e-16))
    return np.where(np.isnan(x), x, np.copysign(np.minimum(one, long(1)), x))


def errors(got: Any, exact: Any, mantissa: int) -> Any:
    """Distances in units of the last place; infinite where signs, NaNs or infinities differ."""
    rounded = exact.astype(got.dtype)
    alike = (rounded == got) & (np.signbit(rounded) == np.signbit(got))
    alike |= np.isnan(exact) & np.isnan(got)
    smallest = -126 if mantissa == 23 else -1022
    exponent = np.maximum(np.frexp(np.where(rounded == 0, 1e-300, rounded))[1] - 1, smallest)
    exponent = np.where(rounded == 0, smallest, exponent)
    distance = np.abs(got.astype(exact.dtype) - exact) * np.ldexp(
        exact.dtype.type(1), mantissa - exponent
    )
    distance = np.where(np.signbit(rounded) != np.signbit(got), np.inf, distance)
    return np.where(alike, np.minimum(np.nan_to_num(distance, nan=0.0), 0.5), distance).astype(
        float
    )


def assert_close(got: Any, exact: Any, bound: float, *arguments: Any) -> None:
    found = errors(got, exact, np.finfo(got.dtype).nmant)
    found = np.where(np.isnan(found), np.inf, found)
    worst = int(np.argmax(found))
    where = [a[worst] for a in arguments]
    assert found[worst] <= max(bound, 0.5), (found[worst], where, got[worst], exact[worst])


def specials(kind: Any) -> Any:
    limits = np.finfo(kind)
    values = [0.0, 1.0, 2.0, 3.0, 0.5, 1.5, 7.0, 0.1, 1e10, 1e30, 1e-30, np.pi, np.pi / 2, 88.72284,
              104.0, 709.782712893384, 710.4758600739439, 745.2, 1022.0, 1074.0, 2.0**24, 2.0**53,
              limits.max, limits.tiny, limits.smallest_subnormal, np.inf, np.nan]  # fmt: skip
    values += [math.nextafter(1.0, 0.0), math.nextafter(1.0, 2.0), 1 - 2.0**-24, 1 + 2.0**-23]
    return np.array(values + [-v for v in values]).astype(kind)


def samples_f64(count: int) -> Any:
    generator = np.random.default_rng(1)
    every = generator.integers(0, 1 << 64, count, dtype=np.uint64).view(np.float64)
    near = np.concatenate([
        np.exp(generator.uniform(-40, 40, count)) * generator.choice([-1, 1], count),
        generator.uniform(-1, 1, count), generator.uniform(-8, 8, count),
        generator.uniform(-750, 750, count), 1 + generator.normal(size=count) * 1e-3,
    ])  # fmt: skip
    return np.concatenate([every, near, specials(np.float64)])


@pytest.mark.parametrize("name", UNARY)
def test_float32_function(name: str) -> None:
    x = np.concatenate([float_samples(dt.float32), specials(np.float32)])
    dense = np.linspace(-4, 4, 100003, dtype=np.float32)
    x = np.concatenate([x, dense])
    got = run(O.BY_NAME[name], dt.float32, x, sources=[dt.float32])
    assert_close(got, reference(name, x.astype(np.float64)), ULPS[name][0], x)


@needs_long
@pytest.mark.parametrize("name", UNARY)
def test_float64_function(name: str) -> None:
    x = samples_f64(3000)
    got = run(O.BY_NAME[name], dt.float64, x, sources=[dt.float64], lanes=8)
    assert_close(got, reference(name, x.astype(long)), ULPS[name][1], x)


def pairs(kind: Any) -> tuple[Any, Any]:
    """Special values, any bits, and values whose powers are neither 0 nor infinite."""
    x, y = [grid.ravel() for grid in np.meshgrid(specials(kind), specials(kind))]
    generator = np.random.default_rng(2)
    count, width = 20000, 32 if kind is np.float32 else 64
    bits = generator.integers(0, 1 << width, (2, count), dtype=np.uint64)
    every = bits.astype(np.uint32).view(kind) if width == 32 else bits.view(kind)
    moderate = np.exp(generator.uniform(-20, 20, count)) * generator.choice([-1, 1, 1], count)
    powers = generator.uniform(-20, 20, count)
    powers[::3] = np.round(powers[::3])
    steep = 1 + generator.uniform(-1e-3, 1e-3, count)
    many = generator.uniform(-60000, 60000, count)
    x = np.concatenate([x, every[0], moderate.astype(kind), steep.astype(kind)])
    y = np.concatenate([y, every[1], powers.astype(kind), many.astype(kind)])
    return x, y


@pytest.mark.parametrize("name", BINARY)
def test_float32_function_of_two(name: str) -> None:
    x, y = pairs(np.float32)
    got = run(O.BY_NAME[name], dt.float32, x, y, sources=[dt.float32] * 2)
    exact = reference(name, x.astype(np.float64), y.astype(np.float64))
    assert_close(got, exact, ULPS[name][0], x, y)


@needs_long
@pytest.mark.parametrize("name", BINARY)
def test_float64_function_of_two(name: str) -> None:
    x, y = pairs(np.float64)
    got = run(O.BY_NAME[name], dt.float64, x, y, sources=[dt.float64] * 2, lanes=8)
    exact = np.fmod(x, y).astype(long) if name == "FMOD" else None
    exact = reference(name, x.astype(long), y.astype(long)) if exact is None else exact
    assert_close(got, exact, ULPS[name][1], x, y)


@needs_long
def test_angles_next_to_multiples_of_a_quarter_turn() -> None:
    hard = [
        6381956970095103.0 * 2.0**797,
        16367173.0 * 2.0**72,
        6588395.0 * 2.0**6,
        1e22,
        2.0**1023,
    ]
    x = np.array(hard + [np.pi / 2 * k for k in range(1, 4000)])
    for name in ("SIN", "COS", "TAN"):
        got = run(O.BY_NAME[name], dt.float64, x, sources=[dt.float64], lanes=8)
        assert_close(got, reference(name, x.astype(long)), ULPS[name][1], x)
        y = x[np.abs(x) < 1e38].astype(np.float32)
        got = run(O.BY_NAME[name], dt.float32, y, sources=[dt.float32])
        assert_close(got, reference(name, y.astype(np.float64)), ULPS[name][0], y)


@pytest.mark.parametrize("exponent", [0.0, 1.0, 2.0, 3.0, -1.0, 0.5])
def test_power_with_a_known_exponent(exponent: float) -> None:
    x = np.concatenate([float_samples(dt.float32)[::9], specials(np.float32)])
    vector = dt.float32.vec(LANES)
    root = decompose(O.POW, vector, (argument(0, dt.float32, LANES), const(exponent, vector)), None)
    assert root is not None and len(root.toposort()) <= 8
    if exponent == 0.0:
        assert root is const(1.0, vector)
        return
    exact = np.power(x.astype(np.float64), np.full(len(x), exponent))
    assert_close(compiled(root, [dt.float32])(x), exact, 1.3, x)


@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=repr)
@pytest.mark.parametrize("name", ULPS)
def test_scalars_and_vectors_give_the_same_bits_without_calls(name: str, dtype: DType) -> None:
    sources = [dtype] * (2 if name in BINARY else 1)
    arrays = [np.resize(specials(NUMPY[dtype])[i:], 96) for i in range(len(sources))]
    roots = [lower(O.BY_NAME[name], dtype, sources, lanes) for lanes in (1, 8)]
    one, many = [compiled(root, sources)(*arrays) for root in roots]
    same_bits(one, many)
    for root in roots:
        assert "call" not in assembly(root, sources)


avx512 = pytest.mark.skipif("avx512vl" not in host_features(), reason="needs AVX-512")


@avx512
@pytest.mark.parametrize("dtype", [dt.float32, dt.float64], ids=repr)
@pytest.mark.parametrize("name", ["EXP", "EXP2", "LOG", "LOG2"])
def test_instructions_for_parts_of_floats_give_the_same_bits(name: str, dtype: DType) -> None:
    x = np.concatenate([float_samples(dtype), specials(NUMPY[dtype])])
    x = np.concatenate([x, np.linspace(-1100, 1100, 200001).astype(NUMPY[dtype])])
    plain = run(O.BY_NAME[name], dtype, x, sources=[dtype], lanes=8)
    for lanes in (128 // dtype.bits, 8, 16, 32):
        root = lower(O.BY_NAME[name], dtype, [dtype], lanes, has_parts=True)
        assert any(n.op in (O.LDEXP, O.EXPONENT) for n in root.toposort())
        same_bits(compiled(root, [dtype])(x), plain)


@pytest.mark.parametrize("lanes", [1, 2, 5])
def test_less_than_a_register_does_without_these_instructions(lanes: int) -> None:
    root = lower(O.EXP, dt.float32, [dt.float32], lanes, has_parts=True)
    assert root is lower(O.EXP, dt.float32, [dt.float32], lanes)


# Vector instructions for 16 (float32) values, the bar for the functions that models spend time in.
# What kernels branch over does not count.
LENGTHS = {"EXP": 22, "EXP2": 20, "LOG": 31, "LOG2": 28, "TANH": 29, "ERF": 35, "SIN": 27,
           "COS": 28, "TAN": 47, "POW": 66, "FMOD": 10}  # fmt: skip
LENGTHS_WITH_PARTS = {"EXP": 15, "EXP2": 14, "LOG": 22, "LOG2": 18}


@avx512
@pytest.mark.parametrize("name", LENGTHS)
def test_length_of_the_machine_code(name: str) -> None:
    sources = [dt.float32] * (2 if name in BINARY else 1)
    root = usual(lower(O.BY_NAME[name], dt.float32, sources))
    assert instructions(root, sources) <= LENGTHS[name]
    if name in LENGTHS_WITH_PARTS:
        root = lower(O.BY_NAME[name], dt.float32, [dt.float32], has_parts=True)
        assert instructions(root, [dt.float32]) <= LENGTHS_WITH_PARTS[name]
