"""Every lowered op, compiled to machine code and compared with NumPy and ml_dtypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from svod.codegen.decompose import decompose
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.node import const, make
from tests.codegen.decompose_harness import LANES, NUMPY, argument, compiled, instructions, lower

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


def test_integer_powers_wrap() -> None:
    x, y = integers(dt.int32, 3000, 0), integers(dt.int32, 3000, 1) % 40 - 3
    got = run(O.POW, dt.int32, x, y, sources=[dt.int32, dt.int32])
    for a, n, g in zip(x.tolist(), y.tolist(), got.tolist(), strict=True):
        assert g == (0 if n < 0 else (pow(a, n, 1 << 32) + (1 << 31)) % (1 << 32) - (1 << 31))


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

ARITHMETIC = {O.ADD: np.add, O.SUB: np.subtract, O.MUL: np.multiply, O.DIV: np.divide}


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


def test_exp_is_short() -> None:
    assert instructions(lower(O.EXP, dt.float32, [dt.float32]), [dt.float32]) > 0
