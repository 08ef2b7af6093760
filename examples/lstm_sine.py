"""An LSTM learns to continue a sine wave: ``python examples/lstm_sine.py``.

The loop over time is one loop body (``svod.scan``), and a training step, forward, backward and
optimizer, is one plan (``svod.jit``).
"""

from __future__ import annotations

import numpy as np

import svod
from svod import Tensor, nn
from svod.nn import optim


class Wave(nn.Module):
    """The next value of a series at every time."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cells, self.out = nn.LSTM(1, width), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cells(x)[0])


def waves(batch: int, length: int) -> np.ndarray:
    """Sine waves of random phase and pace, time first."""
    random = np.random.default_rng(0)
    phase = random.uniform(0, 2 * np.pi, (1, batch, 1))
    pace = random.uniform(0.1, 0.3, (1, batch, 1))
    times = np.arange(length).reshape(-1, 1, 1)
    return np.sin(phase + pace * times).astype(np.float32)


def main(steps: int = 150, batch: int = 16, length: int = 64, width: int = 32) -> list[float]:
    """Train; returns the loss of every step."""
    svod.manual_seed(0)
    series = waves(batch, length + 1)
    x, y = Tensor(series[:-1]).realize(), Tensor(series[1:]).realize()
    model = Wave(width)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)

    @svod.jit(state=(model, optimizer))
    def train(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    for step in range(steps):
        losses.append(train(x, y).item())
        if step % 50 == 0:
            print(f"step {step}: loss {losses[-1]:.5f}")
    with svod.no_grad():
        guess = model(x)[-1].numpy()
    print(f"the next value is off by {np.abs(guess - series[-1]).mean():.3f} on average")
    return losses


if __name__ == "__main__":
    main()
