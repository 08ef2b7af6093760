"""Random contractions of contractions, with odd sizes, masks and passes between, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor

BLOCK = 25
PROGRAMS = 150
SIZES = (1, 2, 3, 4, 5, 7, 8, 15, 16, 17, 31, 33, 40, 64, 65, 100)
LIMITS = {"float32": 2e-4, "float64": 1e-9}

Pass = Callable[[Any, Any], Any]  # of scores and the module that computes them


def _sum(x: Any) -> Any:
    return x.sum(-1, keepdims=True)


def _softmax(s: Any, xp: Any) -> Any:
    grown = xp.exp(s - xp.max(s, axis=-1, keepdims=True))
    return grown / _sum(grown)


PASSES: dict[str, Pass] = {
    "softmax": _softmax,
    "capped": lambda s, xp: _softmax(xp.tanh(s / 5) * 5, xp),
    "exponentials": lambda s, xp: xp.exp(s * 0.1) / _sum(xp.exp(s * 0.1)),
    "absolute": lambda s, xp: s / (_sum(xp.abs(s)) + 1),
    "twice": lambda s, xp: _softmax(s, xp) / xp.sqrt(_sum(_softmax(s, xp) ** 2)),
    "from the maximum": lambda s, xp: s - xp.max(s, axis=-1, keepdims=True),
    "centred": lambda s, xp: s - _sum(s) / s.shape[-1],
}
UNMASKED = ("absolute", "from the maximum", "centred")  # an infinite score makes them infinite


def _masked(rng: np.random.Generator, s: Any, w: Any) -> tuple[Any, Any, str]:
    rows, columns = w.shape[-2:]
    kind = str(rng.choice(["none", "causal", "later", "some", "bias"]))
    if kind == "none":
        return s, w, kind
    if kind == "bias":
        bias = rng.standard_normal((rows, columns)).astype(w.dtype)
        return s + Tensor(bias.astype(str(s.dtype.name))), w + bias, kind
    i, j = np.arange(rows)[:, None], np.arange(columns)
    shift = int(rng.integers(-3, 8)) if kind == "later" else 0
    keep = j <= i + shift if kind != "some" else rng.integers(0, 2, (rows, columns)) > 0
    keep[:, 0] = True  # rows without any column are NaN, in their own test
    test = Tensor(keep)
    if kind != "some" and shift >= 0:
        test = svod.arange(columns) <= svod.arange(rows).reshape(rows, 1) + shift
    return svod.where(test, s, -np.inf), np.where(keep, w, -np.inf), kind


def _operand(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> tuple[Tensor, Any]:
    value = rng.standard_normal(shape).astype(dtype)
    if rng.integers(2):
        turned = np.ascontiguousarray(np.swapaxes(value, -1, -2))
        return Tensor(turned).transpose(-1, -2), value.astype(np.float64)
    return Tensor(value), value.astype(np.float64)


def _check(seed: int) -> None:
    rng = np.random.default_rng(seed)
    dtype = str(rng.choice(["float32", "float32", "float64"]))
    batch = [(), (2,), (2, 3)][rng.integers(3)]
    rows, columns, depth, width = (int(n) for n in rng.choice(SIZES, 4))
    q, wq = _operand(rng, (*batch, rows, depth), dtype)
    k, wk = _operand(rng, (*batch, columns, depth), dtype)
    v, wv = _operand(rng, (*batch, columns, width), dtype)
    scores, wanted, mask = q @ k.transpose(-1, -2), wq @ np.swapaxes(wk, -1, -2), "none"
    name = str(rng.choice(list(PASSES)))
    if name not in UNMASKED:
        scores, wanted, mask = _masked(rng, scores, wanted)
    found = (PASSES[name](scores, svod) @ v).numpy()
    right = PASSES[name](wanted, np) @ wv
    sizes = f"{batch} {rows}x{depth}x{columns}x{width}"
    limit = LIMITS[dtype] * max(1.0, float(np.abs(right).max()))
    message = f"program {seed}: {dtype} {sizes}, {mask} mask, {name}"
    np.testing.assert_allclose(found, right, rtol=LIMITS[dtype], atol=limit, err_msg=message)


@pytest.mark.parametrize("first", range(0, PROGRAMS, BLOCK))
def test_random_chains_agree_with_numpy(first: int) -> None:
    for seed in range(first, first + BLOCK):
        _check(seed)
