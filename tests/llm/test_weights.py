"""Matrices keep their bytes, decode to the bits of their format, and multiply within the bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import svod
from svod.llm.formats import BY_NAME
from svod.llm.gguf import read_gguf
from svod.llm.gguf_write import write_gguf
from svod.llm.lanes import LAYOUTS, in_lanes, picked, weights
from svod.llm.weights import FloatMatrix, LaneMatrix, matrix_of
from tests.llm.test_formats import BLOCKS, DIGESTS, digest, sample

RNG = np.random.default_rng(3)
ROWS, COLUMNS = 40, 256  # the last panel has 8 rows


def random_bytes(name: str) -> np.ndarray[Any, Any]:
    """Blocks with scales of about one hundredth."""
    kind = BY_NAME[name]
    raw = RNG.integers(0, 256, (ROWS * COLUMNS // kind.elements, kind.nbytes)).astype(np.uint8)
    place = 0
    for field in kind.fields:
        if field.name in ("d", "minimum"):
            scales = (RNG.random((len(raw), 1)) * 0.02 - 0.01).astype(np.float16)
            raw[:, place : place + 2] = scales.view(np.uint8)
        place += field.count * field.dtype.itemsize
    return raw.reshape(-1)


@pytest.mark.parametrize("name", LAYOUTS)
def test_rows_in_lanes_are_the_recorded_bits(name: str) -> None:
    kind = BY_NAME[name]
    raw = svod.Tensor(sample(kind).copy()).reshape(-1)
    parts = in_lanes(kind, raw, BLOCKS)
    nbytes = sum([part.nbytes for part in parts.values()])
    assert nbytes <= 1.04 * BLOCKS * kind.nbytes
    whole = weights(kind, parts).numpy()
    assert digest(whole) == DIGESTS[name]
    rows = np.array([3, 40, 0], np.int32)
    some = weights(kind, picked(parts, svod.Tensor(rows))).numpy()
    np.testing.assert_array_equal(some, whole[rows])


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("name", LAYOUTS)
def test_integer_products_are_within_the_bound(name: str, rows: int) -> None:
    matrix = matrix_of(BY_NAME[name], svod.Tensor(random_bytes(name)), (ROWS, COLUMNS), "integer")
    x = RNG.standard_normal((rows, COLUMNS)).astype(np.float32)
    x[0, :32] = 0  # a block whose scale is zero
    w = matrix.whole().numpy().astype(np.float64)
    steps = np.abs(x).reshape(rows, -1, 32).max(2) / 254
    bound = steps @ np.abs(w).reshape(ROWS, -1, 32).sum(2).T + 1e-4
    exact = x.astype(np.float64) @ w.T
    product = matrix.product(svod.Tensor(x)).numpy()
    assert product.shape == (rows, ROWS)
    assert (np.abs(product - exact) <= bound).all()
    assert np.abs(product - exact).max() > 0  # activations are rounded, and nothing else is


def test_float_products_round_nothing_but_sums() -> None:
    raw = svod.Tensor(random_bytes("Q4_K"))
    matrix = matrix_of(BY_NAME["Q4_K"], raw, (ROWS, COLUMNS), "float")
    x = RNG.standard_normal((2, COLUMNS)).astype(np.float32)
    exact = x.astype(np.float64) @ matrix.whole().numpy().astype(np.float64).T
    assert isinstance(matrix, LaneMatrix)
    np.testing.assert_allclose(matrix.product(svod.Tensor(x)).numpy(), exact, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("name", LAYOUTS)
def test_an_integer_product_reads_the_weights_in_one_kernel(name: str) -> None:
    matrix = matrix_of(BY_NAME[name], svod.Tensor(random_bytes(name)), (ROWS, COLUMNS), "integer")
    x = svod.Tensor(RNG.standard_normal((1, COLUMNS)).astype(np.float32))
    plan = svod.prepare(matrix.product(x), inputs={"x": x}, outputs=["y"])
    kept = sum([part.nbytes for part in matrix.parts.values()])  # type: ignore[attr-defined]
    readers = [k for k in plan.kernels() if (k.bytes_moved or 0) >= kept]
    assert len(readers) == 1 and len(list(plan.kernels())) <= 5


def test_floats_of_16_bits_stay_where_the_file_is_mapped(tmp_path: Path) -> None:
    values = RNG.standard_normal((8, 64)).astype(np.float16)
    write_gguf(tmp_path / "m.gguf", {}, {"w": values})
    entry = read_gguf(tmp_path / "m.gguf").tensors["w"]
    matrix = entry.matrix("integer")
    assert isinstance(matrix, FloatMatrix)
    assert matrix.values.dtype == svod.float16  # type: ignore[comparison-overlap]
    x = RNG.standard_normal((1, 64)).astype(np.float32)
    np.testing.assert_allclose(
        matrix.product(svod.Tensor(x)).numpy(),
        x @ values.astype(np.float32).T,
        rtol=1e-5,
        atol=1e-5,
    )
    plan = svod.prepare(matrix.product(svod.Tensor(x)))
    assert len(list(plan.kernels())) == 1


def test_a_row_that_is_no_number_gives_no_number() -> None:
    matrix = matrix_of(BY_NAME["Q8_0"], svod.Tensor(random_bytes("Q8_0")), (ROWS, 256), "integer")
    x = RNG.standard_normal((2, COLUMNS)).astype(np.float32)
    x[0, 5] = np.nan
    product = matrix.product(svod.Tensor(x)).numpy()
    assert np.isnan(product[0]).all() and np.isfinite(product[1]).all()
