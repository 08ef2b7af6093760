"""Attention in one kernel: scores in bands of rows, never stored."""

from __future__ import annotations

from math import sqrt

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.optimize.actions import Nest, merge_adjacent
from svod.optimize.opts import Opt
from tests.optimize.kernels import MACHINE, body_of, loops_of


def made(shape: tuple[int, ...], seed: int, dtype: str = "float32") -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def softmax(scores: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        grown = np.exp(scores - scores.max(-1, keepdims=True))
        return grown / grown.sum(-1, keepdims=True)


def expected(q: np.ndarray, k: np.ndarray, v: np.ndarray, keep: np.ndarray | None = None):
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / sqrt(q.shape[-1])
    if keep is not None:
        scores = np.where(keep, scores, -np.inf)
    return softmax(scores) @ v


def causal(rows: int, columns: int) -> np.ndarray:
    return np.arange(columns) <= np.arange(rows)[:, None]


def run_alone(out: Tensor) -> np.ndarray:
    """The result, which must come from one kernel."""
    plan = out.prepare()
    assert len(list(plan.kernels())) == 1
    plan.execute()
    return out.numpy()


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 33, 64, 100])
@pytest.mark.parametrize("columns", [5, 7, 31, 32, 64, 65, 130])
def test_sizes_with_and_without_a_causal_mask(rows: int, columns: int) -> None:
    q, k, v = made((2, rows, 24), 0), made((2, columns, 24), 1), made((2, columns, 40), 2)
    plain = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v))
    np.testing.assert_allclose(run_alone(plain), expected(q, k, v), rtol=2e-5, atol=2e-5)
    masked = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=True)
    want = expected(q, k, v, causal(rows, columns))
    np.testing.assert_allclose(run_alone(masked), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("depth", [1, 3, 16, 64, 80])
@pytest.mark.parametrize("width", [1, 5, 16, 48, 64, 100])
def test_depth_and_width(depth: int, width: int) -> None:
    q, k, v = made((3, 20, depth), 0), made((3, 50, depth), 1), made((3, 50, width), 2)
    out = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=True)
    want = expected(q, k, v, causal(20, 50))
    np.testing.assert_allclose(out.numpy(), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("rows", [3, 4, 6])
@pytest.mark.parametrize("columns", [2, 3, 4])
def test_stages_run_once_where_their_memory_is_read_in_steps(rows: int, columns: int) -> None:
    q, k, v = made((rows, 2), 0), made((columns, 2), 1), made((columns, 1), 2)
    scores = (Tensor(q) @ Tensor(k).transpose(-2, -1)).tanh() * 5
    want = softmax(np.tanh(q.astype(np.float64) @ k.T) * 5) @ v
    out = run_alone(scores.softmax(-1) @ Tensor(v))
    np.testing.assert_allclose(out, want, rtol=2e-5, atol=2e-5)


def test_a_stage_without_loops_comes_before_all_that_read_it() -> None:
    q, k, v = made((2, 1, 15), 0), made((2, 63, 15), 1), made((2, 63, 63), 2)
    kept = made((1, 63), 3) > 0
    scores = svod.where(Tensor(kept), Tensor(q) @ Tensor(k).transpose(-2, -1), -np.inf)
    rows = scores.softmax(-1)
    rows = rows / (rows * rows).sum(-1, keepdim=True).sqrt()
    wide = q.astype(np.float64) @ np.swapaxes(k, -1, -2)
    want = softmax(np.where(kept, wide, -np.inf))
    want = want / np.sqrt((want * want).sum(-1, keepdims=True)) @ v
    np.testing.assert_allclose((rows @ Tensor(v)).numpy(), want, rtol=2e-5, atol=2e-5)


def test_the_plain_formula_is_found() -> None:
    q, k, v = made((4, 40, 16), 0), made((4, 48, 16), 1), made((4, 48, 16), 2)
    out = (Tensor(q) @ Tensor(k).transpose(-2, -1) / 4.0).softmax(-1) @ Tensor(v)
    np.testing.assert_allclose(run_alone(out), expected(q, k, v), rtol=2e-5, atol=2e-5)


def test_equal_sizes_everywhere_do_not_confuse_the_axes() -> None:
    q, k, v = made((32, 32, 32), 0), made((32, 32, 32), 1), made((32, 32, 32), 2)
    out = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), is_causal=True)
    want = expected(q, k, v, causal(32, 32))
    np.testing.assert_allclose(run_alone(out), want, rtol=2e-5, atol=2e-5)


def test_softmax_over_the_other_axis_is_no_band() -> None:
    q, k, v = made((32, 16), 0), made((32, 16), 1), made((32, 16), 2)
    out = (Tensor(q) @ Tensor(k).T).softmax(0) @ Tensor(v)
    scores = q.astype(np.float64) @ k.T.astype(np.float64)
    want = softmax(scores.T).T @ v
    np.testing.assert_allclose(out.numpy(), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("kind", ["bool", "float", "bias and cap", "negative"])
def test_masks_and_other_work_on_scores(kind: str) -> None:
    q, k, v = made((2, 3, 33, 16), 0), made((2, 3, 65, 16), 1), made((2, 3, 65, 16), 2)
    scores = q.astype(np.float64) @ np.swapaxes(k, -1, -2) / 4
    tensors = Tensor(q), Tensor(k), Tensor(v)
    if kind == "bool":
        keep = made((2, 1, 33, 65), 3) > 0
        keep[..., 0] = True
        out = tensors[0].scaled_dot_product_attention(*tensors[1:], attn_mask=Tensor(keep))
        scores = np.where(keep, scores, -np.inf)
    elif kind == "float":
        bias = made((33, 65), 3)
        out = tensors[0].scaled_dot_product_attention(*tensors[1:], attn_mask=Tensor(bias))
        scores = scores + bias
    elif kind == "negative":
        keep = causal(33, 65)
        found = tensors[0] @ tensors[1].transpose(-2, -1) / 4.0
        out = found.masked_fill(Tensor(~keep), -1e9).softmax(-1) @ tensors[2]
        scores = np.where(keep, scores, -1e9)
    else:
        bias = made((3, 1, 65), 3)
        found = tensors[0] @ tensors[1].transpose(-2, -1) / 4.0 + Tensor(bias)
        out = ((found / 5.0).tanh() * 5.0).softmax(-1) @ tensors[2]
        scores = np.tanh((scores + bias) / 5) * 5
    np.testing.assert_allclose(run_alone(out), softmax(scores) @ v, rtol=3e-5, atol=3e-5)


def test_grouped_queries() -> None:
    q, k, v = made((2, 8, 20, 16), 0), made((2, 2, 30, 16), 1), made((2, 2, 30, 16), 2)
    out = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), enable_gqa=True)
    want = expected(q, np.repeat(k, 4, 1), np.repeat(v, 4, 1))
    np.testing.assert_allclose(out.numpy(), want, rtol=2e-5, atol=2e-5)


def test_heads_cut_out_of_one_projection() -> None:
    packed = made((40, 3 * 4 * 16), 0)
    q, k, v = Tensor(packed).reshape(40, 3, 4, 16).permute(1, 2, 0, 3)
    out = q.scaled_dot_product_attention(k, v, is_causal=True).transpose(0, 1).reshape(40, 64)
    parts = packed.reshape(40, 3, 4, 16).transpose(1, 2, 0, 3)
    want = expected(*parts, causal(40, 40)).transpose(1, 0, 2).reshape(40, 64)
    np.testing.assert_allclose(out.numpy(), want, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floats(dtype: str) -> None:
    q, k, v = (Tensor(made((2, 35, 16), i)).cast(getattr(svod, dtype)) for i in range(3))
    out = q.scaled_dot_product_attention(k, v, is_causal=True)
    assert out.dtype is getattr(svod, dtype)
    parts = [x.cast(svod.float64).numpy() for x in (q, k, v)]
    error = {"float16": 4e-3, "bfloat16": 4e-2, "float64": 1e-12}[dtype]
    found = out.cast(svod.float64).numpy()
    np.testing.assert_allclose(found, expected(*parts, causal(35, 35)), rtol=error, atol=error)


def test_rows_without_any_column_are_zero_and_others_are_not() -> None:
    q, k, v = made((1, 20, 8), 0), made((1, 24, 8), 1), made((1, 24, 8), 2)
    row = Tensor(np.arange(20))[:, None]
    keep = Tensor(np.arange(24)) <= row - 3
    out = run_alone(Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v), attn_mask=keep))
    assert (out[:, :3] == 0).all()
    with np.errstate(invalid="ignore"):
        want = expected(q, k, v, np.arange(24) <= np.arange(20)[:, None] - 3)
    np.testing.assert_allclose(out[:, 3:], want[:, 3:], rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_masks_in_memory_that_leave_a_row_nothing(kind: str, dtype: str) -> None:
    q, k, v = (Tensor(made((2, 20, 8), i)).cast(dtype) for i in range(3))
    keep = made((20, 20), 3) > 0
    keep[:, 4] = True
    keep[[0, 7, 19]] = False
    added = np.where(keep, 0, -np.inf).astype(np.float32)
    mask = Tensor(keep) if kind == "bool" else Tensor(added).cast(dtype)
    for x in (q, k, v):
        x.requires_grad = True
    found = q.scaled_dot_product_attention(k, v, attn_mask=mask)
    parts = [x.detach().numpy() for x in (q, k, v)]
    gradients = [g.numpy() for g in svod.autograd.grad(found.float().sum(), (q, k, v))]
    near = {"rtol": 1e-5, "atol": 1e-5} if dtype == "float32" else {"rtol": 4e-3, "atol": 4e-3}
    assert (found.numpy()[:, [0, 7, 19]] == 0).all()
    assert (gradients[0][:, [0, 7, 19]] == 0).all()
    used = np.delete(np.arange(20), [0, 7, 19])
    want = expected(parts[0][:, used], *parts[1:], keep[used])
    np.testing.assert_allclose(found.numpy()[:, used], want, **near)
    weights = expected(parts[0][:, used], parts[1], np.eye(20), keep[used])
    np.testing.assert_allclose(gradients[2], weights.sum(1)[..., None] + np.zeros(8), **near)
    assert all(np.isfinite(g).all() for g in gradients)


def test_nan_and_infinite_scores_stay_in_their_rows() -> None:
    q, k, v = made((1, 40, 8), 0), made((1, 40, 8), 1), made((1, 40, 8), 2)
    q[0, 7, 0], q[0, 21, 3] = np.nan, np.inf
    out = Tensor(q).scaled_dot_product_attention(Tensor(k), Tensor(v)).numpy()
    bad = np.isnan(out).any((0, 2))
    assert list(np.nonzero(bad)[0]) == [7, 21]


def test_one_and_two_threads_give_the_same_bits() -> None:
    q, k, v = (Tensor(made((6, 300, 64), i)) for i in range(3))
    found = []
    for threads in (1, 2):
        svod.set_threads(threads)
        found.append(q.scaled_dot_product_attention(k, v, is_causal=True).numpy())
    svod.set_threads(0)
    assert (found[0] == found[1]).all()


def test_memory_does_not_grow_with_rows_times_columns() -> None:
    size = 2048
    q, k, v = (Tensor(made((1, size, 16), i)) for i in range(3))
    plan = q.scaled_dot_product_attention(k, v, is_causal=True).prepare()
    assert sum(b.nbytes for b in plan.buffers()) < size * size * 4 // 8


def test_a_result_that_is_needed_elsewhere_is_stored() -> None:
    q, k, v = made((2, 40, 16), 0), made((2, 40, 16), 1), made((2, 40, 16), 2)
    weights = (Tensor(q) @ Tensor(k).transpose(-2, -1) / 4.0).softmax(-1)
    out = weights @ Tensor(v)
    svod.realize(weights, out)
    np.testing.assert_allclose(out.numpy(), expected(q, k, v), rtol=2e-5, atol=2e-5)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1, rtol=1e-5)


def test_gradients_through_it() -> None:
    parts = [Tensor(made((2, 20, 8), i, "float64")) for i in range(3)]
    for part in parts:
        part.requires_grad_()
    parts[0].scaled_dot_product_attention(*parts[1:], is_causal=True).square().sum().backward()
    step = 1e-6
    for part in parts:
        base = part.numpy().copy()
        for place in [(0, 3, 2), (1, 19, 7)]:
            values = []
            for sign in (1, -1):
                moved = base.copy()
                moved[place] += sign * step
                all_parts = [moved if p is part else p.numpy() for p in parts]
                values.append((expected(*all_parts, causal(20, 20)) ** 2).sum())
            slope = (values[0] - values[1]) / (2 * step)
            np.testing.assert_allclose(part.grad.numpy()[place], slope, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("columns", [40, 64, 96])
def test_heavy_work_after_the_maximum_reads_only_what_is_there(columns: int) -> None:
    q, k, v = made((2, 50, 16), 0), made((2, columns, 16), 1), made((2, columns, 16), 2)
    keep = Tensor(np.arange(columns)) <= Tensor(np.arange(50))[:, None]
    scores = svod.where(keep, Tensor(q) @ Tensor(k).transpose(-2, -1), float("-inf"))
    grown = (scores - scores.amax(-1, True)).exp().tanh()
    out = grown / grown.sum(-1, True) @ Tensor(v)
    want = q.astype(np.float64) @ np.swapaxes(k, -1, -2)
    want = np.where(causal(50, columns), want, -np.inf)
    want = np.tanh(np.exp(want - want.max(-1, keepdims=True)))
    want = want / want.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(run_alone(out), want, rtol=3e-5, atol=3e-5)


def test_a_mask_that_still_counts_is_not_left_out() -> None:
    q, k, v = made((2, 50, 16), 0), made((2, 64, 16), 1), made((2, 64, 16), 2)
    keep = Tensor(np.arange(64)) <= Tensor(np.arange(50))[:, None]
    scores = svod.where(keep, Tensor(q) @ Tensor(k).transpose(-2, -1), float("-inf"))
    grown = (scores - scores.amax(-1, True)).exp() + 0.25
    out = grown / grown.sum(-1, True) @ Tensor(v)
    want = q.astype(np.float64) @ np.swapaxes(k, -1, -2)
    want = np.where(causal(50, 64), want, -np.inf)
    want = np.exp(want - want.max(-1, keepdims=True)) + 0.25
    want = want / want.sum(-1, keepdims=True) @ v
    np.testing.assert_allclose(run_alone(out), want, rtol=3e-5, atol=3e-5)


@pytest.mark.parametrize(
    ("opt", "reason"),
    [
        (Opt("BAND", 0, 16), "bands go along axis 1"),
        (Opt("BAND", 1, 0), "the amount is below one"),
        (Opt("FINISH", 2, 16), "no sum with as many columns"),
    ],
)
def test_bands_that_do_not_fit_are_refused(opt: Opt, reason: str) -> None:
    nest = Nest(merge_adjacent(loops_of(body_of("attention"))), MACHINE)
    assert reason in nest.refusal(opt)


def test_bands_of_every_size_fit_or_are_refused() -> None:
    for name in ("attention", "attention with a rest"):
        kernel = loops_of(body_of(name))
        for rows in range(1, 70):
            nest = Nest(merge_adjacent(kernel), MACHINE)
            opt = Opt("BAND", 1, rows)
            if not nest.refusal(opt):
                nest.apply(opt)
                assert nest.opts == [opt] and len(nest.parts) == 4
