"""A training program for several ranks, with faults on demand: what a rank saw goes to a file.

python ranks.py FOLDER KIND: KIND is one of ok, die, other and late.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np

import svod
from svod.base.errors import SvodError
from svod.distributed import mesh

STEPS = 6
RANDOM = np.random.default_rng(0)
BATCH = RANDOM.standard_normal((8, 12)).astype(np.float32)
UP = RANDOM.standard_normal((12, 16)).astype(np.float32)
DOWN = RANDOM.standard_normal((16, 4)).astype(np.float32)


def main(folder: Path, kind: str) -> None:
    grid = mesh({"data": 2, "model": 2}, timeout=7.0)
    rank = grid.hosted[0]
    losses: list[float] = []
    found: dict[str, object] = {"losses": losses, "hosted": len(grid.hosted)}
    up = svod.Tensor(UP).shard(grid, (None, "model")).realize().requires_grad_()
    down = svod.Tensor(DOWN).shard(grid, ("model",)).realize().requires_grad_()
    optimizer = svod.optim.AdamW([up, down], lr=1e-2)
    start = time.monotonic()
    try:
        for step in range(STEPS):
            if step == 3 and kind == "die" and rank == 2:
                os.kill(os.getpid(), signal.SIGKILL)
            if step == 3 and kind == "late" and rank == 1:
                time.sleep(20)
            rows = 4 if kind == "other" and rank == 3 else 8
            x = svod.Tensor(BATCH[:rows]).shard(grid, ("data",))
            start = time.monotonic()
            optimizer.zero_grad()
            loss = (((x @ up).relu() @ down).softmax(-1) ** 2).sum()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found["largest"] = (x @ up).amax().item()  # a fold that MPI leaves to us
    except SvodError as error:
        found["error"] = str(error)
        found["seconds"] = time.monotonic() - start
    (folder / f"{rank}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
