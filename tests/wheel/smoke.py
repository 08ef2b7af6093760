"""What an installed svod must do: a script that imports nothing but it and numpy."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import svod

assert "site-packages" in svod.__file__, svod.__file__

# Arithmetic, a gradient, and a plan.
data = np.arange(12, dtype=np.float32).reshape(3, 4)
x = svod.Tensor(data)
np.testing.assert_allclose((x @ x.T).numpy(), data @ data.T)
w = svod.Tensor(np.ones(4, np.float32), requires_grad=True)
(svod.Tensor(data) * w).sum().backward()
np.testing.assert_allclose(w.grad.numpy(), data.sum(0))

# A model in training.
svod.manual_seed(0)
model = svod.nn.Sequential(svod.nn.Linear(4, 8), svod.nn.ReLU(), svod.nn.Linear(8, 1))
optimizer = svod.optim.Adam(model.parameters(), lr=0.05)
target = svod.Tensor(data.sum(1, keepdims=True))
losses = []
for _ in range(30):
    optimizer.zero_grad()
    loss = ((model(svod.Tensor(data)) - target) ** 2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
assert losses[-1] < losses[0] / 2, losses

# Plans: saved, loaded, made for another machine, exported.
given = svod.Tensor(data).realize()
plan = svod.prepare(given.softmax(-1), inputs={"x": given}, outputs=["y"])
folder = Path(tempfile.mkdtemp())
plan.save(folder / "plan.svod")
np.testing.assert_array_equal(svod.load_plan(folder / "plan.svod")(x=data), plan(x=data))
other = svod.prepare(given.exp(), inputs={"x": given}, outputs=["y"], target="aarch64-linux")
other.export(folder / "model")
assert (folder / "model" / "model.o").stat().st_size > 1000
print(f"svod {svod.__version__}: smoke suite passed")
