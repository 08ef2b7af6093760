"""A program as a user would write it, out of the examples of the documentation.

Type checkers find nothing in it, in their strictest mode: every public name has a type.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

import svod
import svod.nn.functional as F
from svod import nn, optim
from svod.autograd.functional import hessian, jacobian
from svod.data import DataLoader, Dataset, TensorDataset
from svod.distributions import Normal, kl_divergence
from svod.errors import IndexRangeError, ShapeError
from svod.func import grad, vmap
from svod.optim.lr_scheduler import CosineAnnealingLR
from svod.testing import assert_close

Array = npt.NDArray[np.float32]


# -- tensors -------------------------------------------------------------------------------------


def make_tensors() -> list[svod.Tensor]:
    """Tensors are made from lists, arrays and numbers."""
    x = svod.tensor([[1.0, 2.0], [3.0, 4.0]])
    y = svod.Tensor(np.ones((2, 2), np.float32))
    z = svod.zeros(2, 2, dtype=svod.float64)
    w = svod.arange(4).reshape(2, 2)
    return [x, y, z, w, svod.full((2, 2), 7.0), svod.eye(2), svod.rand(2, 2)]


def compute(x: svod.Tensor, y: svod.Tensor) -> svod.Tensor:
    """Operators, methods and functions, with both spellings of keywords."""
    z = (x @ y + 2 * x - y / 3).relu()
    z = z.sum(dim=0, keepdim=True) + z.sum(axis=0, keepdims=True)
    z = z + svod.mean(x, axis=1) + svod.cumsum(x, 0) + x.cumsum(axis=1)
    z += svod.where(x > 1, x, 0.0)
    z[0, 0] = 3.0
    parts = svod.cat([z, x], dim=0).split(2)
    return svod.stack(parts).sum(0).softmax(-1)


def look(x: svod.Tensor) -> str:
    """What a tensor says of itself."""
    shape: tuple[int, ...] = x.shape
    kind: svod.DType = x.dtype
    place: str = x.device
    values: list[object] = list(x.tolist())
    return f"{shape} {kind.name} {place} {len(values)} {x.ndim} {x.numel()}"


def shapes(x: svod.Tensor) -> svod.Tensor:
    """Movement, indexing, and in-place forms."""
    turned = x.permute(1, 0).unsqueeze(0).squeeze(0).flatten()
    picked = x[0] + x[:, 1] + x[..., 0]
    changed = x.clone()
    changed.add_(1.0).mul_(2).clamp_(min=0.0, max=9.0)
    values, places = x.sort(dim=1)
    assert places.dtype == svod.int64
    return turned[:2] + picked + changed[0] + values[0]


def sizes(x: svod.Tensor) -> float:
    """A size that is known only at run time."""
    n = svod.Variable("n", 1, 8)
    total: float = x.ravel()[: n.bind(3)].sum().item()
    return total


def mistakes(x: svod.Tensor) -> int:
    """Errors are Svod's own, and those that Python users catch."""
    found = 0
    try:
        x.reshape(3, 5)
    except ShapeError:
        found += 1
    try:
        print(x[svod.tensor([5])])
    except IndexRangeError:
        found += 1
    return found


# -- plans ---------------------------------------------------------------------------------------


def plans(x: svod.Tensor) -> Array:
    """A plan is prepared once and runs as often as wanted."""
    x = x.realize()
    config = svod.PrepareConfig(svod.OptimizerConfig(svod.Strategy.HEURISTIC))
    plan = svod.prepare([x * 3], config=config, inputs={"x": x}, outputs=["y"])
    plan.execute()
    for kernel in plan.kernels():
        assert kernel.entry_point
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.svod"
        plan.save(path)
        loaded: svod.ExecutionPlan = svod.load_plan(path)
    found = loaded(x=np.ones((2, 2), np.float32))
    assert isinstance(found, np.ndarray)
    return found


@svod.jit
def double(x: svod.Tensor) -> svod.Tensor:
    """A function as a plan."""
    return x * 2


@svod.jit(freeze=True)
def halve(x: svod.Tensor) -> svod.Tensor:
    """A function whose constants are folded."""
    return x / 2


def settings() -> None:
    """Knobs, for a block and for the process."""
    with svod.knobs.scope(OPTIMIZE=0):
        svod.tensor([1.0]).exp().realize()
    with svod.no_grad():
        svod.tensor([1.0]).exp().realize()
    svod.set_threads(0)
    svod.manual_seed(7)


# -- gradients -----------------------------------------------------------------------------------


def loss_of(x: svod.Tensor) -> svod.Tensor:
    """A function of one tensor."""
    return (x * x).sum()


def gradients() -> list[svod.Tensor]:
    """Gradients of tensors, and of functions."""
    x = svod.tensor([1.0, 2.0], requires_grad=True)
    loss_of(x).backward()
    assert x.grad is not None
    slope: svod.Tensor = grad(loss_of)(x)
    rows: svod.Tensor = vmap(loss_of)(svod.ones(3, 2))
    first = svod.autograd.grad(loss_of(x), [x])[0]
    assert first is not None
    return [x.grad, slope, rows, first, jacobian(loss_of, x), hessian(loss_of, x)]


# -- modules -------------------------------------------------------------------------------------


class Block(nn.Module):
    """A layer with a shortcut."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.wide = nn.Linear(width, 4 * width)
        self.back = nn.Linear(4 * width, width)

    def forward(self, x: svod.Tensor) -> svod.Tensor:
        """x and what the layer adds."""
        inner: svod.Tensor = self.wide(self.norm(x))
        added: svod.Tensor = self.back(F.gelu(inner))
        return x + added


class Classifier(nn.Module):
    """Blocks between two linear layers."""

    def __init__(self, inputs: int, width: int, classes: int, depth: int = 2) -> None:
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.blocks = nn.Sequential(*[Block(width) for _ in range(depth)])
        self.drop = nn.Dropout(0.1)
        self.last = nn.Linear(width, classes)

    def forward(self, x: svod.Tensor) -> svod.Tensor:
        """The logits of the classes."""
        hidden: svod.Tensor = self.blocks(self.first(x))
        logits: svod.Tensor = self.last(self.drop(hidden))
        return logits


def convolutions() -> tuple[int, ...]:
    """A small network of images."""
    model = nn.Sequential(
        nn.Conv2d(1, 4, kernel_size=3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.LazyLinear(3),
    )
    found: svod.Tensor = model(svod.ones(2, 1, 4, 4))
    return found.shape


def recurrent() -> tuple[int, ...]:
    """A sequence."""
    layer = nn.LSTM(2, 3, batch_first=True)
    out: svod.Tensor
    out, (_, _) = layer(svod.ones(1, 5, 2))
    return out.shape


# -- data and training ---------------------------------------------------------------------------


class Squares(Dataset):
    """Numbers and their squares."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> tuple[float, float]:
        return float(index), float(index * index)


def batches() -> Iterator[svod.Tensor]:
    """The first column of every batch."""
    for numbers, _ in DataLoader(Squares(), batch_size=4):
        yield numbers


def train(steps: int = 3) -> float:
    """Some steps of training."""
    svod.manual_seed(0)
    samples = TensorDataset(svod.randn(16, 4), svod.randint(0, 3, (16,)))
    model = Classifier(4, 8, 3)
    optimizer = optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01)
    schedule = CosineAnnealingLR(optimizer, steps)
    last = 0.0
    for _ in range(steps):
        for x, y in DataLoader(samples, batch_size=8, shuffle=True):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            loss.backward()
            optim.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            last = loss.item()
        schedule.step()
    model.eval()
    return last


def keep(model: nn.Module) -> None:
    """Weights to a file and back."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        svod.save(model.state_dict(), path)
        model.load_state_dict(svod.load(path))


# -- other modules -------------------------------------------------------------------------------


def mathematics(x: svod.Tensor) -> list[svod.Tensor]:
    """Linear algebra, transforms, special functions, masks, windows."""
    q, r = svod.linalg.qr(x)
    return [
        svod.linalg.inv(x),
        q @ r,
        svod.fft.rfft(x).real,
        svod.special.expit(x),
        svod.masked.sum(x, mask=x > 1),
        svod.signal.windows.hann(4),
        kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)),
        svod.einsum("ij,jk->ik", x, x),
    ]


def many(x: svod.Tensor) -> svod.Tensor:
    """Two ranks in this process."""
    grid = svod.distributed.mesh({"data": 2})
    return x.shard(grid, ("data", None)).sum()


def main() -> None:
    """Run everything."""
    x, y, *_ = make_tensors()
    print(compute(x, y), look(x), shapes(x), sizes(x), mistakes(x))
    print(plans(x), double(x), halve(x))
    settings()
    print(gradients(), convolutions(), recurrent(), train(), list(batches()))
    keep(Classifier(4, 8, 3))
    print(mathematics(x), many(x.clone().realize()))
    assert_close(double(x), [[2.0, 4.0], [6.0, 8.0]])
    print("done")


if __name__ == "__main__":
    main()
