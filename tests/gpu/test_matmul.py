"""Tiles of matmul on the GPU: layouts, borders, batches, what follows the sum."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from svod import Tensor
from svod.base.knobs import knobs

KINDS = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
ROUNDING = {"float32": 2e-6, "bfloat16": 5e-3, "float16": 6e-4}
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


@pytest.mark.parametrize("cores", ["auto", "mma", "none"])
@pytest.mark.parametrize("kind", [np.int8, np.uint8])
@pytest.mark.parametrize("size", SIZES)
def test_bytes_wrap_around(size: tuple[int, int, int], kind: type, cores: str) -> None:
    m, n, k = size
    rng = np.random.default_rng(8)
    a, b = (rng.integers(0, 255, shape).astype(kind) for shape in ((m, k), (n, k)))
    wanted = (a.astype(np.int64) @ b.astype(np.int64).T).astype(kind)
    with knobs.scope(tensor_cores=cores):
        found = Tensor(a).realize() @ Tensor(b).realize().T
        np.testing.assert_array_equal(found.numpy(), wanted)


@pytest.mark.parametrize("cores", ["auto", "mma"])
@pytest.mark.parametrize("size", SIZES)
def test_float32_rounded_to_eleven_bits_where_asked(size: tuple[int, int, int], cores: str) -> None:
    m, n, k = size
    a, b = operands("float32", (m, k), (n, k))
    exact = a.astype(np.float64) @ b.astype(np.float64).T
    with knobs.scope(tensor_cores=cores, tf32=True):
        found = (Tensor(a).realize() @ Tensor(b).realize().T).numpy()
    error = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert 1e-5 < error < 2e-3, "tensor cores were used, and used well"


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
