"""Compute a few values and print them with what the caches did: run in processes of their own."""

from __future__ import annotations

import json
import sys

import numpy as np

from svod import Tensor
from svod.device.cpu.compiler import counters


def main() -> None:
    x = Tensor(np.arange(65 * 33, dtype=np.float32).reshape(65, 33) / 100)
    values = [x @ x.permute(1, 0), (x * 2 + 1).exp().sum(1), x.flip(0).pad(((1, 1), (0, 3)))]
    results = [v.numpy().astype(np.float64).sum().item() for v in values]
    print(json.dumps({"results": results, **counters, "llvmlite": "llvmlite" in sys.modules}))


if __name__ == "__main__":
    main()
