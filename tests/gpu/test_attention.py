"""Attention as one kernel: sizes, layouts, masks, and values against float64."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import svod
from svod import Tensor
from svod.tensor.recording.realize import prepare

KINDS = {"bfloat16": ml_dtypes.bfloat16, "float16": np.float16}
ROUNDING = {"bfloat16": 6e-3, "float16": 8e-4}
Array = np.ndarray[Any, Any]
CAUSAL, PLAIN = True, False


def draw(kind: str, *shapes: tuple[int, ...]) -> list[Array]:
    rng = np.random.default_rng(11)
    return [rng.standard_normal(shape).astype(KINDS[kind]) for shape in shapes]


def exact(q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    """Attention in float64; a boolean mask says what stays, another is added."""
    q, k, v = (t.astype(np.float64) for t in (q, k, v))
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    found: Array = (powers / powers.sum(-1, keepdims=True)) @ v
    return found


def check(found: Tensor, wanted: Array, kind: str, kernels: int = 1) -> None:
    plan = prepare([found])
    assert len(list(plan.kernels())) == kernels
    plan.execute()
    values = found.numpy().astype(np.float64)
    error = np.linalg.norm(values - wanted) / np.linalg.norm(wanted)
    assert error < ROUNDING[kind], f"relative error {error}"
    assert np.abs(values - wanted).max() < 20 * ROUNDING[kind] * np.abs(wanted).max()


def triangle(rows: int, keys: int) -> Array:
    return np.tril(np.ones((rows, keys), bool))


@pytest.mark.parametrize("is_causal", [PLAIN, CAUSAL])
@pytest.mark.parametrize(
    "size",
    [
        (128, 128, 128), (64, 64, 64), (256, 384, 128), (384, 256, 64), (512, 512, 128),
        (200, 333, 80), (130, 65, 32), (129, 1000, 100), (1000, 129, 72), (65, 200, 17),
        (256, 512, 256), (300, 333, 192), (129, 200, 200), (512, 100, 131),
    ],
)  # fmt: skip
@pytest.mark.parametrize("kind", KINDS)
def test_sizes(kind: str, size: tuple[int, int, int], is_causal: bool) -> None:
    rows, keys, width = size
    q, k, v = draw(kind, (2, 3, rows, width), (2, 3, keys, width), (2, 3, keys, width))
    x, y, z = (Tensor(t).realize() for t in (q, k, v))
    mask = triangle(rows, keys) if is_causal else None
    check(x.scaled_dot_product_attention(y, z, is_causal=is_causal), exact(q, k, v, mask), kind)


def test_values_of_another_width() -> None:
    for width, columns in ((64, 128), (64, 256), (256, 64)):
        q, k, v = draw("bfloat16", (4, 200, width), (4, 300, width), (4, 300, columns))
        x, y, z = (Tensor(t).realize() for t in (q, k, v))
        check(x.scaled_dot_product_attention(y, z), exact(q, k, v), "bfloat16")


@pytest.mark.parametrize("which", ["qkv", "q", "k", "v"])
def test_operands_that_run_the_other_way(which: str) -> None:
    arrays = draw("bfloat16", (3, 256, 128), (3, 256, 128), (3, 256, 128))
    tensors = []
    for name, array in zip("qkv", arrays, strict=True):
        turned = np.ascontiguousarray(array.swapaxes(-1, -2))
        is_turned = name in which
        tensors.append(
            Tensor(turned).realize().permute(0, 2, 1) if is_turned else Tensor(array).realize()
        )
    x, y, z = tensors
    check(x.scaled_dot_product_attention(y, z), exact(*arrays), "bfloat16")


def test_heads_of_one_matrix() -> None:
    (array,) = draw("bfloat16", (2, 192, 3, 4, 64))
    x = Tensor(array).realize().permute(2, 0, 3, 1, 4)
    q, k, v = array.transpose(2, 0, 3, 1, 4)
    found = x[0].scaled_dot_product_attention(x[1], x[2], is_causal=True)
    check(found, exact(q, k, v, triangle(192, 192)), "bfloat16")


def test_groups_of_queries() -> None:
    q, k, v = draw("bfloat16", (2, 8, 256, 64), (2, 2, 256, 64), (2, 2, 256, 64))
    x, y, z = (Tensor(t).realize() for t in (q, k, v))
    found = x.scaled_dot_product_attention(y, z, is_causal=True, enable_gqa=True)
    wanted = exact(q, k.repeat(4, 1), v.repeat(4, 1), triangle(256, 256))
    check(found, wanted, "bfloat16")


@pytest.mark.parametrize("keys", [256, 300])
@pytest.mark.parametrize("shape", ["all", "rows", "keys", "heads"])
@pytest.mark.parametrize("kind", ["bool", "float32", "bfloat16"])
def test_masks_in_memory(kind: str, shape: str, keys: int) -> None:
    q, k, v = draw("bfloat16", (2, 3, 200, 64), (2, 3, keys, 64), (2, 3, keys, 64))
    sizes = {
        "all": (200, keys), "rows": (2, 1, 200, 1), "keys": (2, 1, 1, keys),
        "heads": (2, 3, 200, keys),
    }  # fmt: skip
    rng = np.random.default_rng(5)
    if kind == "bool":
        mask = rng.random(sizes[shape]) < 0.7
        if shape == "rows":
            mask[...] = True
    else:
        values = rng.standard_normal(sizes[shape]).astype(np.float32)
        mask = values if kind == "float32" else values.astype(ml_dtypes.bfloat16)
    x, y, z, given = (Tensor(t).realize() for t in (q, k, v, mask))
    if kind == "float32":
        scores = (x @ y.transpose(-1, -2)).float() * 0.125 + given
        found = scores.softmax(-1).cast("bfloat16") @ z
    else:
        found = x.scaled_dot_product_attention(y, z, attn_mask=given)
    wanted = exact(q, k, v, mask if kind == "bool" else mask.astype(np.float64))
    check(found, wanted, "bfloat16")


def test_masks_that_are_computed() -> None:
    q, k, v = draw("bfloat16", (4, 300, 64), (4, 300, 64), (4, 300, 64))
    x, y, z = (Tensor(t).realize() for t in (q, k, v))
    wanted = exact(q, k, v, triangle(300, 300))
    scores = x @ y.transpose(-1, -2) * 0.125
    lower = svod.ones(300, 300).tril()
    check(scores.masked_fill(lower == 0, float("-inf")).softmax(-1) @ z, wanted, "bfloat16")
    upper = svod.full((300, 300), float("-inf"), dtype="bfloat16").triu(1)
    check((scores + upper).softmax(-1) @ z, wanted, "bfloat16")


@pytest.mark.parametrize("kind", ["bool", "bfloat16"])
def test_a_row_without_keys_is_zero(kind: str) -> None:
    q, k, v = draw("bfloat16", (1, 256, 64), (1, 256, 64), (1, 256, 64))
    mask = np.ones((256, 256), bool)
    mask[7] = False
    mask[200, :130] = False
    added = np.where(mask, 0, -np.inf).astype(ml_dtypes.bfloat16)
    x, y, z, given = (Tensor(t).realize() for t in (q, k, v, mask if kind == "bool" else added))
    result = x.scaled_dot_product_attention(y, z, attn_mask=given)
    with np.errstate(invalid="ignore"):
        wanted = np.nan_to_num(exact(q, k, v, mask), nan=0.0)
    check(result, wanted, "bfloat16")
    assert (result.numpy()[0, 7] == 0).all()


def test_a_row_without_keys_is_no_number_where_the_formula_is_written_out() -> None:
    q, k, v = draw("bfloat16", (1, 256, 64), (1, 256, 64), (1, 256, 64))
    mask = np.ones((256, 256), bool)
    mask[7] = False
    x, y, z, given = (Tensor(t).realize() for t in (q, k, v, mask))
    scores = svod.where(given, x @ y.transpose(-1, -2) * 0.125, float("-inf"))
    found = (scores.softmax(-1) @ z).numpy().astype(np.float64)
    assert np.isnan(found[0, 7]).all()
    assert np.isfinite(np.delete(found[0], 7, 0)).all()


@pytest.mark.parametrize("low", [-1e9, -1e30, -3e38])
def test_masks_of_large_finite_numbers(low: float) -> None:
    q, k, v = draw("bfloat16", (3, 300, 64), (3, 300, 64), (3, 300, 64))
    mask = np.where(triangle(300, 300), 0, low).astype(np.float32)
    x, y, z, given = (Tensor(t).realize() for t in (q, k, v, mask))
    scores = (x @ y.transpose(-1, -2)).float() * 0.125 + given
    check(scores.softmax(-1).cast("bfloat16") @ z, exact(q, k, v, triangle(300, 300)), "bfloat16")


@pytest.mark.parametrize("factor", [40, 1e5])
def test_large_scores_stay_finite(factor: float) -> None:
    arrays = draw("bfloat16", (2, 128, 64), (2, 512, 64), (2, 512, 64))
    q, k, v = ((t * factor).astype(t.dtype) for t in arrays)
    x, y, z = (Tensor(t).realize() for t in (q, k, v))
    found = x.scaled_dot_product_attention(y, z).numpy().astype(np.float64)
    wanted = exact(q, k, v)
    assert np.isfinite(found).all()
    assert np.linalg.norm(found - wanted) / np.linalg.norm(wanted) < 6e-3


def test_what_is_not_aligned() -> None:
    flat = draw("bfloat16", (3 * 2 * 256 * 64 + 1,))[0]
    q, k, v = flat[1:].reshape(3, 2, 256, 64)
    parts = Tensor(flat).realize()[1:].reshape(3, 2, 256, 64)
    found = parts[0].scaled_dot_product_attention(parts[1], parts[2], is_causal=True)
    check(found, exact(q, k, v, triangle(256, 256)), "bfloat16")


def test_products_around_it() -> None:
    x, w, u = draw("bfloat16", (256, 512), (1536, 512), (512, 512))
    w, u = ((t * 0.05).astype(x.dtype) for t in (w, u))
    a, b, c = (Tensor(t).realize() for t in (x, w, u))
    heads = (a @ b.T).reshape(256, 3, 8, 64).permute(1, 2, 0, 3)
    mixed = heads[0].scaled_dot_product_attention(heads[1], heads[2], is_causal=True)
    found = (mixed.permute(1, 0, 2).reshape(256, 512) @ c.T).numpy().astype(np.float64)
    wide = [t.astype(np.float64) for t in (x, w, u)]
    q, k, v = (wide[0] @ wide[1].T).reshape(256, 3, 8, 64).transpose(1, 2, 0, 3)
    joined = exact(q, k, v, triangle(256, 256)).transpose(1, 0, 2).reshape(256, 512)
    wanted = joined @ wide[2].T
    assert np.linalg.norm(found - wanted) / np.linalg.norm(wanted) < 1e-2
