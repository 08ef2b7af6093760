"""A run goes on from a checkpoint of another number of ranks, with the losses it would have had"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.distributed import (
    CheckpointError,
    DataParallel,
    Mesh,
    checkpoints,
    load_checkpoint,
    mesh,
    save_checkpoint,
    zero,
)

X = np.random.default_rng(1).standard_normal((8, 6)).astype(np.float32)


class Run:
    """A small model in training; with a mesh everything is split over its ranks."""

    def __init__(self, grid: Mesh | None, seed: int) -> None:
        svod.manual_seed(seed)
        model = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 3))
        self.optimizer = svod.optim.AdamW(model.parameters(), lr=0.05)
        self.model: nn.Module = model
        self.called: nn.Module = model
        if grid is not None:
            zero(model, self.optimizer, grid, 3)
            self.called = DataParallel(model, grid)

    def step(self, number: int) -> float:
        self.optimizer.zero_grad()
        loss = (self.called(Tensor(X * (number + 1))) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()


def test_a_run_goes_on_with_fewer_ranks(tmp_path: Path) -> None:
    alone = Run(None, 0)
    wanted = [alone.step(i) for i in range(5)]
    first = Run(mesh({"data": 4}), 0)
    losses = [first.step(i) for i in range(3)]
    save_checkpoint(tmp_path, 3, first.model, first.optimizer, {"seen": 24})
    for grid in (mesh({"data": 2}), mesh({"data": 3}), None):
        second = Run(grid, 9)
        found = load_checkpoint(tmp_path, second.model, second.optimizer)
        assert found == {"seen": 24, "step": 3}
        assert losses + [second.step(i) for i in (3, 4)] == pytest.approx(wanted, rel=1e-5)


def test_unfinished_checkpoints_are_not_seen_and_old_ones_go(tmp_path: Path) -> None:
    run = Run(None, 0)
    assert load_checkpoint(tmp_path, run.model) is None
    for step in range(4):
        save_checkpoint(tmp_path, step, run.model)
    assert [p.name for p in checkpoints(tmp_path)] == ["step-00000002", "step-00000003"]
    (tmp_path / "step-00000003" / "index.json").unlink()
    assert load_checkpoint(tmp_path, run.model) == {"step": 2}


def test_a_checkpoint_of_another_model_or_without_a_part_is_refused(tmp_path: Path) -> None:
    run = Run(None, 0)
    path = save_checkpoint(tmp_path, 1, run.model)
    with pytest.raises(CheckpointError, match=r"for module.weight of shape \[2, 2\]"):
        load_checkpoint(tmp_path, nn.Linear(2, 2))
    (path / "part-00000.safetensors").unlink()
    with pytest.raises(CheckpointError, match="0 of 1 parts"):
        load_checkpoint(tmp_path, run.model)
