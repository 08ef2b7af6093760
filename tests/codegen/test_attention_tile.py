"""The tile of attention, run by the emulator: widths of heads, borders, layouts."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from svod.codegen.gpu import generate_gpu
from svod.device.spec import derive_metadata
from svod.dtype import types as dt
from svod.optimize.gpu_machine import GpuMachine
from tests.codegen.gpu_emulator import Emulator
from tests.codegen.test_nvptx import bodies, stored

Array = np.ndarray[Any, Any]


def attended(q: Array, k: Array, v: Array, is_causal: bool) -> Array:
    """One head in float64."""
    q, k, v = (t.astype(np.float64) for t in (q, k, v))
    scores = q @ k.T / np.sqrt(q.shape[1])
    if is_causal:
        scores = np.where(np.tri(*scores.shape, dtype=bool), scores, -np.inf)
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
    code = generate_gpu(body, GpuMachine())
    found = np.zeros((rows, columns), ml_dtypes.bfloat16)
    emulator = Emulator(code.text().source, dict(enumerate((found, *memory))), code.threads)
    emulator.run((int(derive_metadata(code.kernel).global_size[0].arg), 1, 1))
    wanted = attended(*arrays, is_causal)
    error = np.linalg.norm(found.astype(np.float64) - wanted) / np.linalg.norm(wanted)
    assert error < 4e-3
