"""Random functions of tensors with a run-time size, recorded once, called with many sizes.

``python -m tests.fuzz.sizes 0 2000`` prints which functions of these seeds differ.
One plan has to serve every size; NumPy computes the same with arrays of that size.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import svod
from svod import Tensor

LONGEST = 12


def _softmax(x: Any, lib: Any) -> Any:
    e = lib.exp(x - x.max(-1, keepdims=True) if lib is np else x - x.amax(-1, keepdim=True))
    return e / (e.sum(-1, keepdims=True) if lib is np else e.sum(-1, keepdim=True))


# Functions of (rows, 4) that keep the shape; ``lib`` is numpy or svod.
STEPS: dict[str, Callable[[Any, Any], Any]] = {
    "scale": lambda x, lib: x * 1.5 - 0.25,
    "tanh": lambda x, lib: lib.tanh(x),
    "softmax": _softmax,
    "centre": lambda x, lib: x - x.mean(0),
    "add the sum": lambda x, lib: x + x.sum(0) * 0.01,
    "product": lambda x, lib: x @ _matrix(lib),
    "gram": lambda x, lib: (x @ x.T) @ x * 0.01,
    "first row": lambda x, lib: x + x[:1],
    "columns": lambda x, lib: (
        lib.concatenate([x[:, 2:], x[:, :2]], 1) if lib is np else lib.cat([x[:, 2:], x[:, :2]], 1)
    ),
    "where": lambda x, lib: lib.where(x > 0, x, x * 0.1),
    "largest": lambda x, lib: lib.maximum(x, x.mean(1)[:, None]),
}
MATRIX = np.random.default_rng(1).normal(size=(4, 4)).astype(np.float32) / 2


def _matrix(lib: Any) -> Any:
    return MATRIX if lib is np else Tensor(MATRIX)


def difference(seed: int) -> str:
    """What a function of this seed gives with a run-time size, where it is not NumPy's."""
    draw = random.Random(seed)
    names = [draw.choice(list(STEPS)) for _ in range(draw.randint(1, 4))]
    ending = draw.choice(["rows", "sum", "columns"])
    data = np.random.default_rng(seed).normal(size=(LONGEST, 4)).astype(np.float32)
    n = svod.Variable("n", 1, LONGEST)
    is_jit = draw.random() < 0.6

    def function(x: Any, lib: Any) -> Any:
        for name in names:
            x = STEPS[name](x, lib)
        return {"rows": lambda: x, "sum": lambda: x.sum(), "columns": lambda: x.mean(0)}[ending]()

    recorded = svod.jit(lambda x: function(x, svod)) if is_jit else lambda x: function(x, svod)
    whole = Tensor(data)
    for _ in range(4):
        size = draw.randint(1, LONGEST)
        found = recorded(whole[: n.bind(size)]).numpy()
        exact = function(data[:size].astype(np.float64), np)
        if np.shape(found) != np.shape(exact):
            return f"{names} {ending} of {size}: shape {np.shape(found)}, not {np.shape(exact)}"
        if not np.allclose(found, exact, rtol=1e-4, atol=1e-4):
            return f"{names} {ending} of {size}: off by {np.abs(found - exact).max()}"
    if is_jit and recorded.plans != 1:
        return f"{names}: {recorded.plans} plans"
    return ""


def main(first: int, last: int) -> int:
    """Run the functions of these seeds; the number of those that differ."""
    wrong = [(seed, text) for seed in range(first, last) if (text := difference(seed))]
    for seed, text in wrong:
        print(f"function {seed}: {text}")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])) > 0)
