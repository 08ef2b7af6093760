"""A training run with checkpoints, for killing: python faults.py FOLDER HOW.

train: four ranks, everything split, until an error, which goes to RANK.json with the time. alone:
the losses of one process to alone.json. go on: two ranks in one process go on from the last
checkpoint; their losses go to after.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import numpy as np

import svod
from svod import Tensor, nn
from svod.base.errors import SvodError
from svod.distributed import DataParallel, Mesh, load_checkpoint, mesh, save_checkpoint, zero

EVERY = 3  # steps between two checkpoints
STEPS = 400  # of a run that nobody kills


class Run:
    """A network in training; its step is one plan."""

    def __init__(self, grid: Mesh | None, seed: int) -> None:
        svod.manual_seed(seed)
        self.model = nn.Sequential(nn.Linear(12, 16), nn.Tanh(), nn.Linear(16, 4))
        self.optimizer = svod.optim.AdamW(self.model.parameters(), lr=1e-3)
        self.called: nn.Module = self.model
        if grid is not None:
            zero(self.model, self.optimizer, grid, 3)
            self.called = DataParallel(self.model, grid)
        self.recorded = svod.jit(self.step, state=(self.model, self.optimizer))

    def losses(self, first: int, last: int) -> list[float]:
        found = []
        for number in range(first, last):
            batch = np.random.default_rng(number).standard_normal((8, 12)).astype(np.float32)
            found.append(self.recorded(Tensor(batch)).item())
        return found

    def step(self, x: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = (self.called(x) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss


def train(folder: Path) -> None:
    """Until an error, or for as many steps as nobody waits for."""
    grid = mesh({"data": 4}, timeout=60.0)
    rank = grid.hosted[0]
    (folder / f"{rank}.pid").write_text(str(os.getpid()))
    run = Run(grid, 0)
    try:
        for first in range(0, 1_000_000, EVERY):
            run.losses(first, first + EVERY)
            save_checkpoint(folder / "checkpoints", first + EVERY, run.model, run.optimizer)
            if not first:
                (folder / f"{rank}.step").write_text(str(EVERY))
    except SvodError as error:
        said = {"error": str(error), "time": time.time()}
        (folder / f"{rank}.tmp").write_text(json.dumps(said))
        (folder / f"{rank}.tmp").rename(folder / f"{rank}.json")


def main(folder: Path, how: str) -> None:
    if how == "train":
        train(folder)
    elif how == "alone":
        (folder / "alone.json").write_text(json.dumps(Run(None, 0).losses(0, STEPS)))
    else:
        run = Run(mesh({"data": 2}), 9)
        found = load_checkpoint(folder / "checkpoints", run.model, run.optimizer)
        assert found is not None
        first = min(found["step"], STEPS - 5)
        losses = run.losses(found["step"], found["step"] + 5) if first == found["step"] else []
        (folder / "after.json").write_text(json.dumps({"step": first, "losses": losses}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
