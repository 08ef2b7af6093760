"""Operators and functions element by element, over dtypes, shapes and special values."""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import DTypeError, ShapeError
from svod.dtype.convert import dtype_of, to_numpy
from tests.tensor.check import ALL, EPSILON, FLOATS, INTEGERS, NUMBERS, Cases, array, pair, value

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.5, math.inf, -math.inf, math.nan, 1e30, -1e-30]


@pytest.mark.parametrize("dtype", NUMBERS)
def test_arithmetic_of_equal_dtypes(dtype):
    x, a = pair((3, 4), dtype)
    y, b = pair((3, 4), dtype, seed=1)
    cases = Cases()
    with np.errstate(all="ignore"):
        cases.add("add", x + y, a + b)
        cases.add("sub", x - y, a - b)
        cases.add("mul", x * y, a * b)
        cases.add("maximum", x.maximum(y), np.maximum(a, b))
        cases.add("minimum", x.minimum(y), np.minimum(a, b))
        cases.add("neg", -x, -a)
        cases.add("abs", abs(x), np.abs(a))
        cases.add("scalar", x * 2 + 1, a * a.dtype.type(2) + a.dtype.type(1))
        cases.add("reflected", 3 - x, a.dtype.type(3) - a)
        if dtype in FLOATS:
            cases.add("div", x / y, a / b)
            cases.add("rdiv", 1 / y, a.dtype.type(1) / b)
        else:
            cases.add("div", x / (y + 9), (a / (b + 9).astype(float)).astype(np.float32))
            cases.add("floordiv", x // (y + 5), a // (b + 5).astype(a.dtype))
            cases.add("mod", x % (y + 5), a % (b + 5).astype(a.dtype))
    cases.run()


def test_integer_division_is_floored_and_defined_at_zero():
    a = np.array([7, -7, 7, -7, 5, 0, -128, 127], np.int8)
    b = np.array([2, 2, -2, -2, 0, 0, -1, -1], np.int8)
    x, y = Tensor(a), Tensor(b)
    cases = Cases()
    cases.add("floordiv", x // y, np.array([3, -4, -4, 3, 0, 0, -128, -127], np.int8))
    cases.add("mod", x % y, np.array([1, 1, -1, -1, 0, 0, 0, 0], np.int8))
    cases.add("trunc", x[:4].div(y[:4], rounding_mode="trunc"), np.array([3, -3, -3, 3], np.int8))
    cases.add("fmod", x[:4].fmod(y[:4]), np.array([1, -1, 1, -1], np.int8))
    cases.run()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_float_floor_division_matches_python(dtype):
    a = np.array([1.0, -1.0, 7.5, -7.5, 1.0, 0.0, 5.0, -3.0, 1e10], dtype)
    b = np.array([0.1, 0.1, 2.0, 2.0, -0.3, 3.0, -2.0, -2.0, 3.0], dtype)
    cases = Cases()
    cases.add("floordiv", Tensor(a) // Tensor(b), a // b)
    cases.add("mod", Tensor(a) % Tensor(b), a % b, atol=1e-7)
    cases.add("fmod", Tensor(a).fmod(Tensor(b)), np.fmod(a, b), atol=1e-7)
    cases.run()


@pytest.mark.parametrize("dtype", ALL)
def test_comparison(dtype):
    x, a = pair((20,), dtype, high=2, low=-2)
    y, b = pair((20,), dtype, high=2, low=-2, seed=1)
    cases = Cases()
    for name, function in {
        "lt": lambda p, q: p < q,
        "le": lambda p, q: p <= q,
        "gt": lambda p, q: p > q,
        "ge": lambda p, q: p >= q,
        "eq": lambda p, q: p == q,
        "ne": lambda p, q: p != q,
    }.items():
        cases.add(name, function(x, y), function(a, b))
        cases.add(name + " number", function(x, 1), function(a, a.dtype.type(1)))
    cases.run()


def test_comparison_with_a_number_outside_the_dtype():
    x = Tensor(np.array([0, 255], np.uint8))
    cases = Cases()
    cases.add("below", x < 300, [True, True])
    cases.add("equal", x == 300, [False, False])
    cases.add("above", x > -5, [True, True])
    cases.run()


@pytest.mark.parametrize("dtype", ("bool", *INTEGERS))
def test_bits(dtype):
    x, a = pair((4, 5), dtype)
    y, b = pair((4, 5), dtype, seed=2)
    cases = Cases()
    cases.add("and", x & y, a & b)
    cases.add("or", x | y, a | b)
    cases.add("xor", x ^ y, a ^ b)
    cases.add("not", ~x, ~a)
    if dtype != "bool":
        shift = np.abs(b).astype(a.dtype)
        cases.add("shl", x << Tensor(shift), a << shift)
        cases.add("shr", x >> Tensor(shift), a >> shift)
        cases.add("number", x & 3, a & a.dtype.type(3))
        bits = a.dtype.itemsize * 8
        wide = x << bits if bits < 128 else x
        cases.add("past the width", wide, np.zeros_like(a))
    cases.run()


@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_of_one_float(dtype):
    kind = to_numpy(dtype_of(dtype))
    with np.errstate(over="ignore"):
        wide = np.array(SPECIAL, np.float64).astype(kind)
    unit = np.linspace(-1, 1, 21).astype(kind)
    above = np.array([0.0, 1.0, 1.5, 2.0, 10.0, 60.0, math.inf, math.nan]).astype(kind)
    cases = Cases()
    near = 4 * EPSILON[dtype]
    domains = {
        "exp exp2 expm1 tanh sinh cosh asinh atan abs floor ceil trunc round sign square": wide,
        "sqrt log log2 log10 rsqrt reciprocal": above,
        "sin cos tan asin acos atanh erf log1p": unit,
    }
    numpy_names = {"asinh": "arcsinh", "atan": "arctan", "asin": "arcsin", "acos": "arccos"}
    numpy_names |= {"atanh": "arctanh", "round": "rint"}
    with np.errstate(all="ignore"):
        for names, values in domains.items():
            work = values.astype(np.float64)
            for name in names.split():
                if name == "rsqrt":
                    wanted = 1 / np.sqrt(work)
                elif name == "erf":
                    wanted = np.array([math.erf(v) for v in work])
                else:
                    wanted = getattr(np, numpy_names.get(name, name))(work)
                found = getattr(Tensor(values), name)()
                cases.add(f"{name}", found, wanted.astype(kind), rtol=near, atol=1e-30)
    cases.run()


def test_functions_turn_integers_into_float32():
    x = Tensor([1, 4, 9])
    cases = Cases()
    cases.add("sqrt", x.sqrt(), np.array([1, 2, 3], np.float32))
    cases.add("div", x / 2, np.array([0.5, 2, 4.5], np.float32))
    cases.add("mean", x.mean(), np.float32(14 / 3))
    cases.add("bool", Tensor([True]).exp(), np.exp(np.ones(1, np.float32)))
    cases.add("floor", x.floor(), np.array([1, 4, 9]))
    cases.run()


def test_special_values_of_maximum_and_sign():
    a = np.array(SPECIAL, np.float32)
    x = Tensor(a)
    cases = Cases()
    flipped = np.ascontiguousarray(a[::-1])
    with np.errstate(all="ignore"):
        cases.add("maximum", x.maximum(x.flip(0)), np.maximum(a, flipped))
        cases.add("minimum", x.minimum(x.flip(0)), np.minimum(a, flipped))
        cases.add("fmax", x.fmax(x.flip(0)), np.fmax(a, flipped))
        cases.add("fmin", x.fmin(x.flip(0)), np.fmin(a, flipped))
        cases.add("sign", x.sign(), np.sign(a))
        cases.add("signbit", x.signbit(), np.signbit(a))
        cases.add("isnan", x.isnan(), np.isnan(a))
        cases.add("isinf", x.isinf(), np.isinf(a))
        cases.add("isfinite", x.isfinite(), np.isfinite(a))
        cases.add("nan_to_num", x.nan_to_num(), np.nan_to_num(a))
        cases.add("clamp", x.clamp(-2, 2), np.clip(a, -2, 2))
        cases.add("relu", x.relu(), np.maximum(a, 0))
        cases.add("copysign", x.copysign(x.flip(0)), np.copysign(a, flipped))
        cases.add("hypot", x.hypot(x.flip(0)), np.hypot(a, flipped))
        cases.add("logaddexp", x.logaddexp(x.flip(0)), np.logaddexp(a, flipped))
        cases.add("atan2", x.atan2(x.flip(0)), np.arctan2(a, flipped))
    cases.run()


def test_powers():
    a = np.array([-2.0, -1.0, 0.0, 0.5, 1.0, 3.0], np.float32)
    i = np.array([-3, -1, 0, 1, 2, 7], np.int32)
    cases = Cases()
    with np.errstate(all="ignore"):
        for exponent in (0, 1, 2, 3, 5, -1, -2, 0.5, 2.5):
            wanted = np.power(a.astype(float), exponent).astype(np.float32)
            cases.add(f"** {exponent}", Tensor(a) ** exponent, wanted)
        cases.add("tensor", Tensor(a).abs() ** Tensor(a), np.power(np.abs(a), a))
        cases.add("reflected", 2.0 ** Tensor(a), np.power(np.float32(2), a))
        cases.add("integers", Tensor(i) ** 3, i**3)
        cases.add("integer tensor", Tensor(i) ** Tensor(np.abs(i)), i ** np.abs(i))
        cases.add(
            "negative",
            Tensor(i) ** Tensor(np.full_like(i, -1)),
            np.array([0, -1, 0, 1, 0, 0], np.int32),
        )
    cases.run()


def test_promotion_of_mixed_dtypes_and_numbers():
    kinds = {
        ("int8", "uint8"): "int16",
        ("int32", "float16"): "float16",
        ("float16", "bfloat16"): "float32",
        ("bool", "int8"): "int8",
        ("uint64", "int64"): "float64",
        ("float32", "float64"): "float64",
    }
    for (first, second), wanted in kinds.items():
        x, y = Tensor(array((2,), first)), Tensor(array((2,), second))
        assert (x + y).dtype.name == wanted
        assert (y * x).dtype.name == wanted
    assert (Tensor([1]) + 1.5).dtype is svod.float32
    assert (Tensor([True]) + 1).dtype is svod.int64
    assert (Tensor([1.0]).half() + 1.5).dtype is svod.float16
    assert (Tensor([1.0]) * np.float64(2)).dtype is svod.float32
    assert (np.ones(2, np.float32) + Tensor([1.0, 2.0])).dtype is svod.float32


def test_broadcasting_and_rank_zero():
    cases = Cases()
    for left, right in [
        ((3, 1), (1, 4)),
        ((2, 3, 4), (4,)),
        ((), (2, 2)),
        ((1,), ()),
        ((5, 1, 2), (3, 1)),
        ((0, 3), (1, 3)),
    ]:
        x, a = pair(left)
        y, b = pair(right, seed=1)
        cases.add(f"{left} {right}", x + y, a + b)
        cases.add(f"{left} {right} where", svod.where(x < y, x, y), np.where(a < b, a, b))
    cases.run()
    with pytest.raises(ShapeError, match=r"\(2, 3\) and \(2, 4\) do not broadcast"):
        Tensor(np.ones((2, 3))) + Tensor(np.ones((2, 4)))


def test_bool_arithmetic_is_logic():
    a, b = np.array([True, True, False]), np.array([True, False, False])
    x, y = Tensor(a), Tensor(b)
    cases = Cases()
    cases.add("add", x + y, a + b)
    cases.add("mul", x * y, a * b)
    cases.add("logical_xor", x.logical_xor(y), a ^ b)
    cases.add("logical_not", Tensor([0, 2]).logical_not(), [True, False])
    cases.run()
    with pytest.raises(DTypeError):
        x - y
    with pytest.raises(DTypeError):
        operator.neg(x)


def test_casts_saturate_and_wrap():
    a = np.array([1.9, -1.9, math.nan, math.inf, -math.inf, 300.0], np.float32)
    cases = Cases()
    cases.add("int8", Tensor(a).char(), np.array([1, -1, 0, 127, -128, 127], np.int8))
    cases.add("uint8", Tensor(a).byte(), np.array([1, 0, 0, 255, 0, 255], np.uint8))
    cases.add("bool", Tensor(a).bool(), np.ones(6, bool))
    cases.add("wrap", Tensor([300, -1]).byte(), np.array([44, 255], np.uint8))
    cases.add("bits", Tensor(a[:2]).bitcast(svod.int32), a[:2].view(np.int32))
    cases.run()
    with pytest.raises(DTypeError, match="width"):
        Tensor(a).bitcast("int64")


def test_in_place_operators_keep_the_dtype_and_older_tensors():
    x = Tensor([1.0, 2.0])
    older = x + 0
    name = x
    x += 1
    x *= Tensor([2.0, 3.0])
    x.add_(1).clamp_(max=9)
    assert name is x
    assert value(x).tolist() == [5.0, 9.0]
    assert value(older).tolist() == [1.0, 2.0]
    with pytest.raises(DTypeError):
        y = Tensor([1])
        y += 0.5
    with pytest.raises(ShapeError):
        z = Tensor([1.0])
        z += Tensor([1.0, 2.0])


def test_equality_with_foreign_objects_is_plain():
    x = Tensor([1.0])
    assert (x == None) is False  # noqa: E711
    assert (x != "text") is True
    assert x in [x]
    assert len({x, x}) == 1


def test_wrong_operands_say_so():
    with pytest.raises(DTypeError, match="cannot be combined"):
        Tensor([1.0]) + "text"
    with pytest.raises(DTypeError):
        Tensor([1.0]) & 1
    with pytest.raises(DTypeError):
        ~Tensor([1.0])


def test_a_chain_of_5000_operations_builds():
    x = Tensor([0.0, 1.0])
    for _ in range(5000):
        x = x + 1
    assert x.shape == (2,)
    assert len(x.uop.toposort()) > 5000
