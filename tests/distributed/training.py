"""Training on several ranks: a GPT and a convnet, split in the ways people split them.

python training.py FOLDER MODEL WAY STEPS: the losses that a rank saw go to FOLDER/RANK.json. WAY is
one of data, zero and tensor, or alone for the same training without a mesh.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import svod
from svod import Tensor
from svod.distributed import Mesh, mesh
from svod.nn import functional as F

Spec = tuple[str | None, ...]
WIDTH, HEADS, LAYERS, WORDS, LENGTH, BATCH = 32, 4, 2, 64, 16, 8
# Which axis of a weight is split where a layer is split: columns first, then rows.
COLUMNS: Spec = (None, "ranks")
ROWS: Spec = ("ranks", None)


class Weights:
    """Weights by name, made from one seed and placed as the way of splitting says."""

    def __init__(self, grid: Mesh | None, way: str) -> None:
        self.grid, self.way = grid, way
        self.random = np.random.default_rng(1)
        self.found: dict[str, Tensor] = {}

    def add(self, name: str, shape: Sequence[int], split: Spec = ()) -> None:
        """A weight; ``split`` is how tensor parallel layers have it."""
        scale = 0.5 / np.sqrt(shape[0] if len(shape) < 3 else np.prod(shape[1:]))
        value = Tensor((self.random.standard_normal(tuple(shape)) * scale).astype(np.float32))
        if self.grid is not None:
            spec = {"data": (), "zero": ("ranks",), "tensor": split}[self.way]
            value = value.shard(self.grid, spec).realize()
        self.found[name] = value.requires_grad_()

    def __getitem__(self, name: str) -> Tensor:
        return self.found[name]


def gpt_weights(at: Weights) -> None:
    at.add("words", (WORDS, WIDTH), ROWS)
    at.add("places", (LENGTH, WIDTH))
    for i in range(LAYERS):
        for name in ("query", "key", "value"):
            at.add(f"{i}.{name}", (WIDTH, WIDTH), COLUMNS)
        at.add(f"{i}.out", (WIDTH, WIDTH), ROWS)
        at.add(f"{i}.up", (WIDTH, 4 * WIDTH), COLUMNS)
        at.add(f"{i}.down", (4 * WIDTH, WIDTH), ROWS)
    at.add("head", (WIDTH, WORDS), COLUMNS)


def gpt_loss(at: Weights, x: Tensor, y: Tensor) -> Tensor:
    h = at["words"][x] + at["places"]
    for i in range(LAYERS):
        n = F.layer_norm(h, (WIDTH,))

        def heads(name: str, n: Tensor = n, i: int = i) -> Tensor:
            return (n @ at[f"{i}.{name}"]).reshape(BATCH, LENGTH, HEADS, -1).transpose(1, 2)

        a = F.scaled_dot_product_attention(
            heads("query"), heads("key"), heads("value"), is_causal=True
        )
        h = h + a.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH) @ at[f"{i}.out"]
        h = h + (F.layer_norm(h, (WIDTH,)) @ at[f"{i}.up"]).gelu() @ at[f"{i}.down"]
    logits = F.layer_norm(h, (WIDTH,)) @ at["head"]
    return F.cross_entropy(logits.reshape(BATCH * LENGTH, WORDS), y.reshape(BATCH * LENGTH))


def convnet_weights(at: Weights) -> None:
    at.add("first", (16, 4, 3, 3), ("ranks", None, None, None))
    at.add("second", (16, 16, 3, 3), (None, "ranks", None, None))
    at.add("up", (16 * 16, 32), COLUMNS)
    at.add("down", (32, 8), ROWS)


def convnet_loss(at: Weights, x: Tensor, y: Tensor) -> Tensor:
    h = F.conv2d(x, at["first"], padding=1).relu()
    h = F.max_pool2d(F.conv2d(h, at["second"], padding=1).relu(), 2)
    h = (h.flatten(1) @ at["up"]).relu() @ at["down"]
    return F.cross_entropy(h, y)


def batch(model: str, step: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """One of four batches, so that there is something to learn."""
    random = np.random.default_rng(100 + step % 4)
    if model == "gpt":
        words = random.integers(0, WORDS, (BATCH, LENGTH + 1))
        return words[:, :-1].copy(), words[:, 1:].copy()
    images = random.standard_normal((BATCH, 4, 8, 8)).astype(np.float32)
    return images, random.integers(0, 8, (BATCH,))


def train(model: str, way: str, steps: int) -> tuple[int, list[float]]:
    """The rank of this process, and the losses it saw."""
    grid = None if way == "alone" else mesh({"ranks": 4}, timeout=30.0)
    weights = Weights(grid, way)
    (gpt_weights if model == "gpt" else convnet_weights)(weights)
    loss_of = gpt_loss if model == "gpt" else convnet_loss
    optimizer = svod.optim.AdamW(list(weights.found.values()), lr=1e-3)
    losses = []
    for step in range(steps):
        x, y = [Tensor(a) for a in batch(model, step)]
        if grid is not None:
            spec = () if way == "tensor" else ("ranks",)
            x, y = x.shard(grid, spec), y.shard(grid, spec)
        optimizer.zero_grad()
        loss = loss_of(weights, x, y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return 0 if grid is None else grid.hosted[0], losses


if __name__ == "__main__":
    rank, losses = train(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    (Path(sys.argv[1]) / f"{rank}.json").write_text(json.dumps(losses))
