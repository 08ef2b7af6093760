"""A model in stages that is trained by a pipeline: python pipelines.py FOLDER STAGES STEPS.

Losses of every rank go to FOLDER/RANK.json. In one process all stages are in it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

import svod
from svod import Tensor, nn
from svod.distributed import Pipeline, mesh
from svod.nn import functional as F

WORDS, WIDTH, LENGTH, BATCH, PARTS = 32, 16, 8, 8, 4


def stages(count: int) -> list[nn.Module]:
    """A GPT with a layer in each stage, the same whoever makes it."""
    svod.manual_seed(2)
    layers: list[nn.Module] = [
        nn.TransformerEncoderLayer(WIDTH, 2, 32, dropout=0.0, batch_first=True)
        for _ in range(count)
    ]
    layers[0] = nn.Sequential(nn.Embedding(WORDS, WIDTH), layers[0])
    layers[-1] = nn.Sequential(layers[-1], nn.Linear(WIDTH, WORDS))
    return layers


def loss_of(logits: Tensor, y: Tensor) -> Tensor:
    return F.cross_entropy(logits.reshape(-1, WORDS), y.reshape(-1))


def train(count: int, steps: int) -> tuple[int, list[float]]:
    """The rank of this process, and the losses it saw."""
    grid = mesh({"stage": count}, timeout=60.0)
    pipeline = Pipeline(stages(count), loss_of, grid, PARTS)
    optimizer = svod.optim.AdamW(pipeline.parameters(), lr=3e-3)

    @svod.jit
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = pipeline.backward(x, y)
        optimizer.step()
        return loss

    random = np.random.default_rng(4)
    batches = [random.integers(0, WORDS, (BATCH, LENGTH + 1)) for _ in range(2)]
    losses = []
    for i in range(steps):
        words = batches[i % 2]
        losses.append(step(Tensor(words[:, :-1].copy()), Tensor(words[:, 1:].copy())).item())
    return grid.hosted[0], losses


if __name__ == "__main__":
    rank, losses = train(int(sys.argv[2]), int(sys.argv[3]))
    (Path(sys.argv[1]) / f"{rank}.json").write_text(json.dumps(losses))
