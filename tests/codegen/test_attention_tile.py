"""The tile of attention, run by the emulator: widths of heads, borders, layouts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

import svod
from svod.codegen.pipeline import generate
from svod.codegen.targets.cuda import cuda_target
from svod.device.spec import derive_metadata
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.optimize.gpu_machine import GpuMachine
from tests.codegen.gpu_emulator import Emulator
from tests.codegen.test_nvptx import bodies, stored

Array = np.ndarray[Any, Any]


def attended(q: Array, k: Array, v: Array, is_causal: bool, mask: Array | None = None) -> Array:
    """One head in float64."""
    q, k, v = (t.astype(np.float64) for t in (q, k, v))
    scores = q @ k.T / np.sqrt(q.shape[1])
    if is_causal:
        mask = np.tri(*scores.shape, dtype=bool)
    if mask is not None:
        scores = np.where(mask, scores, -np.inf)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    found: Array = (powers / powers.sum(-1, keepdims=True)) @ v
    return found


@pytest.mark.parametrize(
    ("rows", "keys", "width", "columns", "is_causal", "turned"),
    [
        (128, 128, 128, 128, False, ""),
        (200, 333, 80, 80, True, ""),
        (128, 200, 256, 256, False, ""),
        (200, 333, 192, 192, True, ""),
        (200, 130, 256, 256, True, "qkv"),
        (128, 130, 64, 256, True, ""),
        (128, 130, 200, 64, True, "v"),
        (100, 77, 131, 137, False, ""),
    ],
)
def test_heads(
    rows: int, keys: int, width: int, columns: int, is_causal: bool, turned: str
) -> None:
    rng = np.random.default_rng(6)
    shapes = ((rows, width), (keys, width), (keys, columns))
    arrays = [rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in shapes]
    tensors, memory = [], []
    for name, array in zip("qkv", arrays, strict=True):
        if name in turned:
            memory.append(np.ascontiguousarray(array.T))
            tensors.append(stored(1, *array.T.shape, dtype=dt.bfloat16).permute(0, 2, 1))
        else:
            memory.append(array)
            tensors.append(stored(1, *array.shape, dtype=dt.bfloat16))
    q, k, v = tensors
    (body,) = bodies(q.scaled_dot_product_attention(k, v, is_causal=is_causal))
    code = generate(body, cuda_target(GpuMachine()))
    found = np.zeros((rows, columns), ml_dtypes.bfloat16)
    emulator = Emulator(code.text().source, dict(enumerate((found, *memory))), code.threads)
    emulator.run((int(derive_metadata(code.kernel).global_size[0].arg), 1, 1))
    wanted = attended(*arrays, is_causal)
    error = np.linalg.norm(found.astype(np.float64) - wanted) / np.linalg.norm(wanted)
    assert error < 4e-3


@pytest.mark.parametrize("is_guarded", [True, False])
def test_rows_without_keys(is_guarded: bool) -> None:
    """Zeros from attention with a mask; no numbers from the formula written out."""
    rng = np.random.default_rng(7)
    arrays = [rng.standard_normal((100, 64)).astype(ml_dtypes.bfloat16) for _ in range(3)]
    mask = rng.random((100, 100)) < 0.5
    mask[[3, 98]] = False
    q, k, v = (stored(1, 100, 64, dtype=dt.bfloat16) for _ in range(3))
    given = stored(100, 100, dtype=dt.bool_)
    if is_guarded:
        result = q.scaled_dot_product_attention(k, v, attn_mask=given)
    else:
        scores = svod.where(given, q @ k.transpose(-1, -2) * 0.125, float("-inf"))
        result = scores.softmax(-1) @ v
    (body,) = bodies(result)
    code = generate(body, cuda_target(GpuMachine()))
    found = np.zeros((100, 64), ml_dtypes.bfloat16)
    emulator = Emulator(
        code.text().source, {0: found, **arguments(body, mask, arrays)}, code.threads
    )
    emulator.run((int(derive_metadata(code.kernel).global_size[0].arg), 1, 1))
    rest = np.delete(np.arange(100), [3, 98])
    wanted = attended(arrays[0][rest], *arrays[1:], False, mask[rest])
    error = np.linalg.norm(found[rest].astype(np.float64) - wanted) / np.linalg.norm(wanted)
    assert error < 4e-3
    empty = found[[3, 98]].astype(np.float64)
    assert (empty == 0).all() if is_guarded else np.isnan(empty).all()


def arguments(body: UOp, mask: Array, arrays: list[Array]) -> dict[int, Array]:
    """Memory by slot: the mask's is the one of booleans, the others come in order."""
    params = {n.arg.slot: n for n in body.toposort() if n.op == O.PARAM and n.arg.slot}
    waiting = iter(arrays)
    return {
        slot: mask if params[slot].dtype is dt.bool_ else next(waiting) for slot in sorted(params)
    }
