"""Train a small network to tell two spirals apart: ``python examples/train_mlp.py``."""

from __future__ import annotations

import numpy as np

import svod
from svod import Tensor, nn
from svod.nn import optim


def spirals(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Points on two spirals and which one each is on."""
    random = np.random.default_rng(0)
    turn = np.sqrt(random.uniform(0.02, 1, count)) * 2 * np.pi
    side = random.integers(0, 2, count)
    angle = turn + side * np.pi
    points = np.stack([np.cos(angle), np.sin(angle)], 1) * turn[:, None] / 5
    return (points + random.normal(0, 0.02, points.shape)).astype(np.float32), side


def main(steps: int = 200, count: int = 512, width: int = 64) -> list[float]:
    """Train; returns the loss of every step."""
    svod.manual_seed(0)
    points, sides = spirals(count)
    x, y = Tensor(points), Tensor(sides)
    model = nn.Sequential(
        nn.Linear(2, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2)
    )
    optimizer = optim.AdamW(model.parameters(), lr=1e-2)
    schedule = optim.CosineAnnealingLR(optimizer, steps)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if step % 50 == 0:
            print(f"step {step}: loss {losses[-1]:.4f}")
    with svod.no_grad():
        right = (model(x).argmax(1) == y).float().mean().item()
    print(f"{right:.1%} of the points are told apart")
    return losses


if __name__ == "__main__":
    main()
