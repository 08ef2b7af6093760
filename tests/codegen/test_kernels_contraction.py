"""Contractions with staged panels: random matmuls and convolutions of every awkward shape."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from ml_dtypes import bfloat16

import svod
from svod import Tensor
from svod.base.knobs import knobs
from svod.codegen.pipeline import work_of
from tests.fuzz.check import WAYS, Way, compiling, evaluated
from tests.schedule.graphs import MACHINE, bodies, code

SIZES = (8, 9, 13, 15, 16, 17, 24, 31, 33, 48, 63, 64, 65, 97, 130)
DTYPES = ("float32", "float32", "float32", "float16", "float64", "int32", "uint8")
NARROW = ("bfloat16", "bfloat16", "float16", "int8", "int8", "uint8", "int16")
INTEGERS = ("int8", "uint8", "int16")
BLOCKS = {
    "default": {},
    "blocks": {"l2_bytes": 4096, "cores": 2},
    "small": {"l2_bytes": 1 << 14, "vector_bytes": 32, "registers": 16, "cores": 3},
    "tiny": {"l2_bytes": 1 << 12, "vector_bytes": 16, "registers": 16, "cores": 2},
}  # fmt: skip


def data(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Small whole numbers: sums of products are exact in any order. Integers may wrap."""
    if dtype in ("int8", "uint8", "int16"):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)
    return rng.integers(-4, 5, shape).astype(bfloat16 if dtype == "bfloat16" else dtype)


def matmul_case(
    pick: random.Random, rng: np.random.Generator, dtypes: tuple[str, ...] = DTYPES
) -> Tensor:
    """A product of operands seen through transposes, pads, slices, casts and arithmetic."""
    m, n, k = (pick.choice(SIZES) for _ in range(3))
    batch = pick.choice(((), (), (3,), (2, 2)))
    dtype = other = pick.choice(dtypes)
    if dtypes is NARROW and dtype in INTEGERS:
        other = pick.choice(INTEGERS)
    a = operand(pick, rng, (*batch, m, k), dtype)
    b = operand(pick, rng, (*pick.choice((batch, ())), k, n), other)
    wide = svod.int32 if dtype in INTEGERS and pick.random() < 0.7 else None
    return epilogue(pick, rng, a.matmul(b, dtype=wide), dtype)


def operand(
    pick: random.Random, rng: np.random.Generator, shape: tuple[int, ...], dtype: str
) -> Tensor:
    kind = pick.choice(("plain", "transposed", "padded", "sliced", "computed", "flipped", "table"))
    if kind == "transposed":
        turned = (*shape[:-2], shape[-1], shape[-2])
        return Tensor(data(rng, turned, dtype)).transpose(-1, -2)
    if kind == "padded":
        inner = (*shape[:-2], shape[-2] - 3, shape[-1] - 2)
        pairs = [(0, 0)] * (len(shape) - 2) + [(1, 2), (2, 0)]
        return Tensor(data(rng, inner, dtype)).pad(pairs)
    if kind == "sliced":
        wide = (*shape[:-1], 2 * shape[-1])
        return Tensor(data(rng, wide, dtype))[..., ::2]
    if kind == "table":
        rows = Tensor(data(rng, (7, shape[-1]), dtype))
        return rows[Tensor(rng.integers(0, 7, shape[:-1]))]
    x = Tensor(data(rng, shape, dtype))
    if kind == "computed":
        return x + Tensor(data(rng, shape[-1:], dtype))
    return x.flip(-1) if kind == "flipped" else x


def epilogue(pick: random.Random, rng: np.random.Generator, x: Tensor, dtype: str) -> Tensor:
    for _ in range(pick.choice((0, 0, 1, 2))):
        kind = pick.choice(("bias", "column", "whole", "maximum", "cast"))
        if kind == "bias":
            x = x + Tensor(data(rng, x.shape[-1:], dtype))
        elif kind == "column":
            x = x - Tensor(data(rng, (x.shape[-2], 1), dtype))
        elif kind == "whole":
            x = x + Tensor(data(rng, x.shape, dtype))
        elif kind == "maximum":
            x = x.maximum(1)
        else:
            x = x.cast(svod.float32)
    return x


def convolution_case(
    pick: random.Random, rng: np.random.Generator, dtype: str = "float32"
) -> Tensor:
    """A convolution with stride, dilation, padding and groups, as windows under a sum."""
    channels, filters = pick.choice((1, 3, 4, 8)), pick.choice((8, 12, 17))
    height, width = pick.choice((7, 12, 17, 30)), pick.choice((8, 15, 16, 33))
    x = Tensor(data(rng, (pick.choice((1, 2)), channels, height, width), "float32"))
    w = Tensor(data(rng, (filters, channels, 3, pick.choice((1, 3))), dtype))
    stride, padding = pick.choice((1, 1, 2)), pick.choice((0, 1, 1))
    y = svod.Tensor.conv2d(x, w, stride=stride, padding=padding)
    return epilogue(pick, rng, y, dtype)


def make_narrow_case(seed: int) -> Tensor:
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    if pick.random() < 0.65:
        return matmul_case(pick, rng, NARROW)
    return convolution_case(pick, rng, pick.choice(NARROW))


def make_case(seed: int) -> Tensor:
    pick, rng = random.Random(seed), np.random.default_rng(seed)
    return matmul_case(pick, rng) if pick.random() < 0.65 else convolution_case(pick, rng)


def failure(
    seed: int, monkeypatch: pytest.MonkeyPatch, make: Callable[[int], Tensor] = make_case
) -> str | None:
    """The first way of compiling that gives other values."""
    want = evaluated(make(seed))
    for name, machine in BLOCKS.items():
        monkeypatch.setitem(WAYS, name, Way(machine=machine, thread_work=500.0))
        with compiling(name):
            got = make(seed).numpy()
        if got.dtype != want.dtype or not np.array_equal(got, want):
            return f"{name}: {int((got != want).sum())} of {got.size} elements differ"
    return None


@pytest.mark.parametrize("first", range(0, 48, 8))
def test_random_contractions(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + 8):
        wrong = failure(seed, monkeypatch)
        assert wrong is None, f"contraction {seed}, {wrong}"


@pytest.mark.parametrize("first", range(0, 48, 8))
def test_random_contractions_of_narrow_numbers(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(first, first + 8):
        wrong = failure(seed, monkeypatch, make_narrow_case)
        assert wrong is None, f"contraction {seed}, {wrong}"


def test_panels_are_staged() -> None:
    x = Tensor(np.ones((1, 8, 12, 12), np.float32))
    (body,) = bodies(x.conv2d(Tensor(np.ones((16, 8, 3, 3), np.float32)), padding=1))
    assert {o.name for o in code(body).opts} >= {"TILE", "STAGE", "UPCAST"}


def options(x: Tensor, *dots: str) -> list[str]:
    (body,) = bodies(x)
    return [o.name for o in code(body, replace(MACHINE, dots=dots)).opts]


NARROW_PRODUCTS = {
    "bf16": ("bfloat16", "bfloat16", None),
    "i16": ("int16", "int16", svod.int32),
    "u8s8": ("uint8", "int8", svod.int32),
    "s8s8": ("int8", "int8", svod.int32),
    "s8 alone": ("int8", "int8", None),
}


@pytest.mark.parametrize("name", NARROW_PRODUCTS)
def test_narrow_products_use_the_instructions_there_are(name: str) -> None:
    left, right, dtype = NARROW_PRODUCTS[name]
    rng = np.random.default_rng(0)
    a, b = Tensor(data(rng, (32, 48), left)), Tensor(data(rng, (48, 32), right))
    kind = {"s8s8": "u8s8", "s8 alone": "u8s8"}.get(name, name)
    product = a.matmul(b, dtype=dtype)
    assert "DOT" in options(product, kind)
    assert "DOT" not in options(product, *{"bf16", "i16", "u8s8"} - {kind})


@pytest.mark.parametrize("name", NARROW_PRODUCTS)
def test_the_work_of_a_product_is_that_of_its_numbers(name: str) -> None:
    left, right, dtype = NARROW_PRODUCTS[name]
    a, b = Tensor(np.ones((32, 48))), Tensor(np.ones((48, 32)))
    x, y = a.cast(getattr(svod, left)).realize(), b.cast(getattr(svod, right)).realize()
    (body,) = bodies(x.matmul(y, dtype=dtype))
    flops, _ = work_of(body, code(body, replace(MACHINE, dots=("bf16", "i16", "u8s8"))).kernel)
    assert 2 * 32 * 48 * 32 <= flops <= 2 * 34 * 48 * 32


def test_a_knob_keeps_bfloat16_products_in_float32() -> None:
    a = Tensor(np.ones((32, 32), bfloat16))
    with knobs.scope(bf16_dot=False):
        assert "DOT" not in options(a @ a, "bf16")


def test_subnormal_bfloat16_counts_where_the_knob_says_so() -> None:
    tiny, huge = np.full((16, 16), 1e-39, bfloat16), np.full((16, 16), 1e38, bfloat16)
    want = tiny.astype(np.float64) @ huge.astype(np.float64)
    with knobs.scope(bf16_dot=False):
        got = Tensor(tiny).matmul(Tensor(huge), dtype=svod.float32).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("dtype", ("int8", "int16", "bfloat16"))
def test_a_store_of_one_lane_leaves_its_neighbour_alone(dtype: str) -> None:
    """The last row of one batch ends where the first of the next, of another core, begins."""
    rng = np.random.default_rng(0)
    a, b = data(rng, (3, 64, 16), "float32"), data(rng, (3, 16, 33), "float32")
    kind = getattr(svod, dtype)
    with compiling("threads"):
        got = (Tensor(a).cast(kind).realize() @ Tensor(b).cast(kind).realize()).numpy()
    assert (got == (a @ b)).all()


TOLERANCE = {"bfloat16": 2.0**-8, "float16": 2.0**-11, "float32": 2.0**-24, "float64": 2.0**-53}


@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("shape", ((64, 64, 64), (65, 333, 129), (17, 1025, 48)))
def test_products_of_floats_are_as_close_as_their_page_says(
    dtype: str, shape: tuple[int, int, int]
) -> None:
    """One rounding of the result, and one float32 rounding for every step of the sum."""
    m, k, n = shape
    rng = np.random.default_rng(1)
    kind = getattr(svod, dtype)
    a = Tensor(rng.standard_normal((m, k))).cast(kind).realize()
    b = Tensor(rng.standard_normal((k, n))).cast(kind).realize()
    x, y = (t.cast(svod.float64).numpy() for t in (a, b))
    got = (a @ b).cast(svod.float64).numpy()
    unit = 2.0**-53 if dtype == "float64" else 2.0**-24
    room = TOLERANCE[dtype] * np.abs(x @ y) + k * unit * (np.abs(x) @ np.abs(y))
    assert (np.abs(got - x @ y) <= room).all()


def test_special_values_of_bfloat16_products() -> None:
    a = np.ones((16, 16), bfloat16)
    b = np.ones((16, 16), bfloat16)
    a[0, 0], a[1, 0], a[2, 0], b[0, 5] = np.inf, np.nan, 3e38, -np.inf
    with np.errstate(all="ignore"):
        want = a.astype(np.float64) @ b.astype(np.float64)
    got = Tensor(a).matmul(Tensor(b), dtype=svod.float32).numpy()
    np.testing.assert_array_equal(np.isnan(got), np.isnan(want))
    np.testing.assert_array_equal(np.isposinf(got), np.isposinf(want))
    np.testing.assert_array_equal(np.isneginf(got), np.isneginf(want))
