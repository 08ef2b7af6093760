"""Tiles of matmul on the GPU: layouts, borders, batches, what follows the sum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.knobs import knobs

KINDS = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
ROUNDING = {"float32": 2e-6, "bfloat16": 5e-3, "float16": 6e-4}
LAYOUTS = ["", "a", "b", "ab"]
NARROW_SIZES = [(256, 512, 640), (132, 260, 200), (1000, 1111, 777)]  # of what may be turned
SIZES = [(128, 256, 64), (256, 128, 192), (130, 258, 66), (1000, 1111, 777), (64, 64, 512)]
Array = np.ndarray[Any, Any]


def operands(kind: str, *shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(shape).astype(KINDS[kind]) for shape in shapes]


def check(found: Tensor, wanted: Array, kind: str) -> None:
    values = found.numpy().astype(np.float64)
    error = np.linalg.norm(values - wanted) / np.linalg.norm(wanted)
    assert error < ROUNDING[kind], f"relative error {error}"
    assert np.abs(values - wanted).max() < 40 * ROUNDING[kind] * np.abs(wanted).max()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("kind", KINDS)
def test_layouts_and_borders(kind: str, turned: str, size: tuple[int, int, int]) -> None:
    m, n, k = size
    a, b = operands(kind, (k, m) if "a" in turned else (m, k), (n, k) if "b" in turned else (k, n))
    x, y = Tensor(a).realize(), Tensor(b).realize()
    x, y = x.T if "a" in turned else x, y.T if "b" in turned else y
    a, b = a.T if "a" in turned else a, b.T if "b" in turned else b
    check(x @ y, a.astype(np.float64) @ b.astype(np.float64), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_batches_and_what_follows_the_sum(kind: str) -> None:
    a, b, c = operands(kind, (3, 4, 200, 96), (3, 4, 96, 136), (136,))
    x, y, z = (Tensor(t).realize() for t in (a, b, c))
    wanted = a.astype(np.float64) @ b.astype(np.float64)
    check(x @ y, wanted, kind)
    total = wanted.astype(KINDS[kind]).astype(np.float64) + c.astype(np.float64)
    check((x @ y + z).relu(), np.maximum(total, 0), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_operands_that_are_not_aligned(kind: str) -> None:
    a, b = operands(kind, (129, 128), (128, 192))
    x, y = Tensor(a).realize(), Tensor(b).realize()
    flat = x.reshape(-1)[1 : 1 + 128 * 128].reshape(128, 128)
    wanted = a.reshape(-1)[1 : 1 + 128 * 128].reshape(128, 128).astype(np.float64)
    check(flat @ y, wanted @ b.astype(np.float64), kind)


@pytest.mark.parametrize("kind", KINDS)
def test_axes_that_are_two_in_memory(kind: str) -> None:
    a, b = operands(kind, (4, 96, 128), (256, 512))
    x, y = Tensor(a).realize(), Tensor(b).realize()
    joined = a.transpose(1, 0, 2).reshape(96, 512).astype(np.float64)
    check(x.permute(1, 0, 2).reshape(96, 512) @ y.T, joined @ b.T.astype(np.float64), kind)
    heads = (x.permute(1, 0, 2).reshape(96, 512) @ y.T).reshape(96, 4, 64).permute(1, 0, 2)
    wanted = (joined @ b.T.astype(np.float64)).reshape(96, 4, 64).transpose(1, 0, 2)
    check(heads.contiguous(), wanted, kind)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 8, 16, 17, 40])
@pytest.mark.parametrize("kind", KINDS)
def test_few_rows(kind: str, rows: int, turned: bool) -> None:
    a, b = operands(kind, (rows, 512), (2048, 512) if turned else (512, 2048))
    x, y = Tensor(a).realize(), Tensor(b).realize()
    y, b = (y.T, b.T) if turned else (y, b)
    check(x @ y, a.astype(np.float64) @ b.astype(np.float64), kind)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
@pytest.mark.parametrize("kind", ["bfloat16", "float16"])
def test_tensor_cores_of_one_warp(kind: str, turned: str, size: tuple[int, int, int]) -> None:
    with knobs.scope(tensor_cores="mma"):
        test_layouts_and_borders(kind, turned, size)


def test_tensor_cores_of_one_warp_with_all_that_surrounds_them() -> None:
    with knobs.scope(tensor_cores="mma"):
        test_batches_and_what_follows_the_sum("bfloat16")
        test_operands_that_are_not_aligned("bfloat16")
        test_axes_that_are_two_in_memory("bfloat16")


def laid_out(
    size: tuple[int, int, int], turned: str, make: Callable[[tuple[int, int]], Array]
) -> tuple[Array, Array, Tensor, Tensor]:
    """Two factors, as arrays and as tensors whose memory is turned where asked."""
    m, n, k = size
    a = make((k, m) if "a" in turned else (m, k))
    b = make((n, k) if "b" in turned else (k, n))
    x, y = Tensor(a).realize(), Tensor(b).realize()
    if "a" in turned:
        a, x = a.T, x.T
    if "b" in turned:
        b, y = b.T, y.T
    return a, b, x, y


@pytest.mark.parametrize("cores", ["auto", "mma"])
@pytest.mark.parametrize("turned", LAYOUTS)
@pytest.mark.parametrize("size", NARROW_SIZES)
def test_bytes_wrap_around(size: tuple[int, int, int], turned: str, cores: str) -> None:
    check_bytes(size, turned, np.int8, cores)


@pytest.mark.parametrize("cores", ["auto", "mma", "none"])
@pytest.mark.parametrize("size", NARROW_SIZES)
def test_unsigned_bytes_wrap_around(size: tuple[int, int, int], cores: str) -> None:
    check_bytes(size, "", np.uint8, cores)


def check_bytes(size: tuple[int, int, int], turned: str, kind: type, cores: str) -> None:
    rng = np.random.default_rng(8)
    a, b, x, y = laid_out(size, turned, lambda s: rng.integers(0, 255, s).astype(kind))
    wanted = a.astype(np.int64) @ b.astype(np.int64)
    with knobs.scope(tensor_cores=cores):
        np.testing.assert_array_equal((x @ y).numpy(), wanted.astype(kind))
        found = x.matmul(y, dtype=svod.int32).numpy()
        np.testing.assert_array_equal(found, wanted.astype(np.int32))


@pytest.mark.parametrize("cores", ["auto", "mma"])
def test_bytes_of_two_kinds_in_batches(cores: str) -> None:
    rng = np.random.default_rng(9)
    a = rng.integers(0, 256, (5, 100, 192)).astype(np.uint8)
    b = rng.integers(-128, 128, (192, 136)).astype(np.int8)
    wanted = a.astype(np.int64) @ b.astype(np.int64)
    with knobs.scope(tensor_cores=cores):
        x, y = Tensor(a).realize(), Tensor(b).realize()
        np.testing.assert_array_equal((x @ y).numpy(), wanted.astype(np.int16))
        np.testing.assert_array_equal(x.matmul(y, dtype=svod.int64).numpy(), wanted)
        turned = x.permute(0, 2, 1).contiguous().realize().permute(0, 2, 1)
        np.testing.assert_array_equal(turned.matmul(y, dtype=svod.int32).numpy(), wanted)


@pytest.mark.parametrize("cores", ["auto", "mma"])
@pytest.mark.parametrize("turned", LAYOUTS)
@pytest.mark.parametrize("size", NARROW_SIZES)
def test_float32_rounded_to_eleven_bits_where_asked(
    size: tuple[int, int, int], turned: str, cores: str
) -> None:
    a, b, x, y = laid_out(size, turned, lambda s: operands("float32", s)[0])
    exact = a.astype(np.float64) @ b.astype(np.float64)
    with knobs.scope(tensor_cores=cores, tf32=True):
        found = (x @ y).numpy()
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert 1e-5 < error < 2e-3, "tensor cores were used, and used well"
    assert np.abs(found - exact).max() < 2e-2 * np.abs(exact).max()


FLOAT8 = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}


@pytest.mark.parametrize("cores", ["auto", "mma"])
@pytest.mark.parametrize("turned", LAYOUTS)
@pytest.mark.parametrize("size", NARROW_SIZES)
def test_eight_bit_floats(size: tuple[int, int, int], turned: str, cores: str) -> None:
    check_float8(size, turned, "e4m3", cores)


@pytest.mark.parametrize("cores", ["auto", "mma", "none"])
@pytest.mark.parametrize("size", NARROW_SIZES)
def test_eight_bit_floats_of_two_bits(size: tuple[int, int, int], cores: str) -> None:
    check_float8(size, "", "e5m2", cores)


def check_float8(size: tuple[int, int, int], turned: str, kind: str, cores: str) -> None:
    rng = np.random.default_rng(10)
    a, b, x, y = laid_out(size, turned, lambda s: rng.standard_normal(s).astype(FLOAT8[kind]))
    left, right = a.astype(np.float64), b.astype(np.float64)
    exact, terms = left @ right, np.abs(left) @ np.abs(right)
    with knobs.scope(tensor_cores=cores):
        full = x.matmul(y, dtype=svod.float32).numpy()
        half = x.matmul(y, dtype=svod.bfloat16).numpy()
        same = (x @ y).numpy()
    assert (np.abs(full - exact) <= size[2] * 2.0**-22 * terms).all()
    # Rounded once, after sums that keep at least 13 bits.
    short = 2.0**-12 * terms
    assert (np.abs(half.astype(np.float64) - exact) <= 2.0**-8 * np.abs(exact) + short).all()
    bits = 3 if kind == "e4m3" else 2
    near = np.abs(exact) < 400
    step = 2.0 ** -(bits + 1) * np.abs(exact) + 2.0**-9
    assert (np.abs(same.astype(np.float64) - exact) <= step + short)[near].all()


@pytest.mark.parametrize("cores", ["auto", "mma"])
def test_eight_bit_floats_of_two_kinds_with_scales(cores: str) -> None:
    rng = np.random.default_rng(11)
    a = rng.standard_normal((130, 256)).astype(FLOAT8["e4m3"])
    b = rng.standard_normal((256, 192)).astype(FLOAT8["e5m2"])
    s, t = rng.random((130, 1), np.float32), rng.random((1, 192), np.float32)
    exact = (a.astype(np.float64) @ b.astype(np.float64)) * s * t
    with knobs.scope(tensor_cores=cores):
        x, y, u, v = (Tensor(z).realize() for z in (a, b, s, t))
        found = (x.matmul(y, dtype=svod.float32) * u * v).cast(svod.bfloat16).numpy()
    error = np.linalg.norm(found.astype(np.float64) - exact) / np.linalg.norm(exact)
    assert error < 5e-3


def test_eight_bit_floats_that_are_no_numbers_or_infinite() -> None:
    for kind, special in (("e4m3", np.nan), ("e5m2", np.nan), ("e5m2", np.inf)):
        a = np.ones((64, 128), FLOAT8[kind])
        b = np.ones((128, 128), FLOAT8[kind])
        a[3, 5] = special
        for cores in ("auto", "mma"):
            with knobs.scope(tensor_cores=cores):
                x, y = Tensor(a).realize(), Tensor(b).realize()
                found = x.matmul(y, dtype=svod.bfloat16).numpy().astype(np.float32)
            wanted = np.full((64, 128), 128.0, np.float32)
            wanted[3] = special
            np.testing.assert_array_equal(found, wanted)


def test_convolutions() -> None:
    a, b = operands("float32", (4, 16, 30, 33), (24, 16, 3, 3))
    found = Tensor(a).realize().conv2d(Tensor(b).realize(), padding=1).numpy()
    padded = np.pad(a.astype(np.float64), ((0, 0), (0, 0), (1, 1), (1, 1)))
    wanted = np.zeros((4, 24, 30, 33))
    for y in range(3):
        for x in range(3):
            part = padded[:, :, y : y + 30, x : x + 33]
            wanted += np.einsum("bchw,oc->bohw", part, b[:, :, y, x].astype(np.float64))
    np.testing.assert_allclose(found, wanted, atol=2e-4)
