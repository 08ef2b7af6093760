"""Train a small convnet to name the shape in an image: ``python examples/train_convnet.py``."""

from __future__ import annotations

import numpy as np

import svod
from svod import Tensor, nn
from svod.nn import optim


def images(count: int, size: int = 12) -> tuple[np.ndarray, np.ndarray]:
    """Noisy images of a horizontal bar, a vertical bar or a square, and which it is."""
    random = np.random.default_rng(0)
    kinds = random.integers(0, 3, count)
    found = random.normal(0, 0.1, (count, 1, size, size)).astype(np.float32)
    for image, kind in zip(found, kinds, strict=True):
        height, width = ((2, 9), (9, 2), (4, 4))[kind]
        top, left = random.integers(0, size - height + 1), random.integers(0, size - width + 1)
        image[0, top : top + height, left : left + width] += 1
    return found, kinds


class Network(nn.Module):
    """Two convolutions with pooling, then a linear layer."""

    def __init__(self, channels: int = 8) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, channels, 3, padding=1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(channels, channels, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Linear(channels * 9, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.features(x).flatten(1))


def main(steps: int = 30, batch: int = 32) -> list[float]:
    """Train; returns the loss of every step."""
    svod.manual_seed(0)
    pictures, kinds = images(steps * batch)
    model = Network()
    optimizer = optim.AdamW(model.parameters(), lr=2e-2)
    losses = []
    for step in range(steps):
        part = slice(step * batch, (step + 1) * batch)
        x, y = Tensor(pictures[part]), Tensor(kinds[part])
        optimizer.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 10 == 0:
            print(f"step {step}: loss {losses[-1]:.4f}")
    model.eval()
    with svod.no_grad():
        pictures, kinds = images(256)
        right = (model(Tensor(pictures)).argmax(1) == Tensor(kinds)).float().mean().item()
    print(f"{right:.1%} of the images are named correctly")
    return losses


if __name__ == "__main__":
    main()
