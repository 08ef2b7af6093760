"""How many kernels common pieces of a model become; results are checked against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import svod
from svod.tools.bench.bar import Case, Line, at_most, whole
from svod.tools.bench.models import Array, Model, Weights

CHAIN = 60


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of a model, what it should be, and how many kernels it may take."""

    name: str
    limit: int
    make: Callable[[], Model]
    expected: Callable[[dict[str, Array]], Array]


@dataclass(frozen=True, slots=True)
class Outcome:
    """Names of the kernels of a piece, and its largest error."""

    kernels: list[str]
    error: float


def evaluate(piece: Piece) -> Outcome:
    """Prepare, run and check a piece; the error is relative to the largest value."""
    model = piece.make()
    output = model.run(model.tensors())
    plan = output.prepare()
    plan.execute()
    arrays = {
        name: array.astype(np.float64) if array.dtype == np.float32 else array
        for name, array in model.arrays.items()
    }
    expected = piece.expected(arrays)
    found = output.numpy()
    if found.shape != expected.shape:
        raise RuntimeError(f"{piece.name}: shape {found.shape}, NumPy has {expected.shape}")
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    return Outcome([kernel.entry_point for kernel in plan.kernels()], error)


def counts() -> Iterator[Line]:
    """One line per piece."""
    for piece in PIECES:
        outcome = evaluate(piece)
        if not outcome.error <= 1e-4:
            raise RuntimeError(f"{piece.name} differs from NumPy by {outcome.error:.2g}")
        note = ", ".join(outcome.kernels[:6])
        yield at_most(f"kernels of {piece.name}", len(outcome.kernels), piece.limit, whole, note)


def chain() -> Model:
    """Elementwise operations of several kinds, one after the other."""
    make = Weights()
    arrays = {name: make.normal(256, 300) for name in "xyz"}
    return Model(arrays, lambda t: chain_steps(t, svod))


def chain_steps(t: dict[str, Any], space: Any) -> Any:
    """The chain over svod's or NumPy's namespace."""
    x = t["x"]
    for step in range(CHAIN // 6):
        x = space.tanh(x * t["y"] + t["z"])
        x = space.where(x > 0, x, space.exp(x) - (1 + step))
    return x


def softmax() -> Model:
    """Rows of 1,000."""
    return Model({"x": Weights().normal(64, 1000)}, lambda t: t["x"].softmax(-1))


def softmax_of(x: Array) -> Array:
    """softmax in NumPy."""
    grown = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(grown / grown.sum(-1, keepdims=True))


def layernorm() -> Model:
    """Rows of 768, scaled and shifted."""
    make = Weights()
    arrays = {"x": make.normal(64, 768), "w": make.normal(768), "b": make.normal(768)}
    return Model(arrays, lambda t: t["x"].layer_norm(768, t["w"], t["b"]))


def layernorm_of(a: dict[str, Array]) -> Array:
    """layernorm in NumPy."""
    x = a["x"]
    centred = x - x.mean(-1, keepdims=True)
    return np.asarray(centred / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * a["w"] + a["b"])


def residual_block() -> Model:
    """A convolution with bias, batchnorm, a residual and relu."""
    make = Weights()
    arrays = {
        "x": make.normal(1, 32, 28, 28),
        "w": make.normal(32, 32, 3, 3, scale=0.05),
        "variance": np.abs(make.normal(32, scale=0.1, shift=1.0)),
        **{name: make.normal(32, scale=0.5) for name in ("bias", "mean", "scale", "shift")},
    }

    def run(t: dict[str, Any]) -> Any:
        y = t["x"].conv2d(t["w"], t["bias"], padding=1)
        y = y.batch_norm(t["mean"], t["variance"], t["scale"], t["shift"])
        return (y + t["x"]).relu()

    return Model(arrays, run)


def residual_block_of(a: dict[str, Array]) -> Array:
    """The block in NumPy."""
    padded = np.pad(a["x"], ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3))
    y = np.einsum("nchwij,ocij->nohw", windows, a["w"], optimize=True)
    columns = {name: a[name].reshape(1, -1, 1, 1) for name in ("bias", "mean", "scale", "shift")}
    y = (y + columns["bias"] - columns["mean"]) / np.sqrt(a["variance"].reshape(1, -1, 1, 1) + 1e-5)
    return np.asarray(np.maximum(y * columns["scale"] + columns["shift"] + a["x"], 0))


def hidden_layer() -> Model:
    """A matmul with bias and gelu."""
    make = Weights()
    arrays = {"x": make.normal(64, 256), "w": make.normal(256, 512, scale=0.06)}
    arrays["b"] = make.normal(512)
    return Model(arrays, lambda t: (t["x"] @ t["w"] + t["b"]).gelu())


def hidden_layer_of(a: dict[str, Array]) -> Array:
    """The layer in NumPy."""
    x = a["x"] @ a["w"] + a["b"]
    return np.asarray(0.5 * x * (1 + np.vectorize(math.erf)(x / math.sqrt(2))))


def cross_entropy() -> Model:
    """128 rows over 1,000 classes."""
    make = Weights()
    arrays = {"x": make.normal(128, 1000), "y": make.integers(1000, 128)}
    return Model(arrays, lambda t: t["x"].cross_entropy(t["y"]))


def cross_entropy_of(a: dict[str, Array]) -> Array:
    """The loss in NumPy."""
    chosen = softmax_of(a["x"])[np.arange(len(a["y"])), a["y"]]
    return np.asarray(-np.log(chosen).mean())


PIECES = (
    Piece("an elementwise chain", 1, chain, lambda a: chain_steps(a, np)),
    Piece("softmax", 2, softmax, lambda a: softmax_of(a["x"])),
    Piece("layernorm", 2, layernorm, layernorm_of),
    Piece("conv + bias + batchnorm + residual + relu", 1, residual_block, residual_block_of),
    Piece("matmul + bias + gelu", 1, hidden_layer, hidden_layer_of),
    Piece("cross-entropy", 3, cross_entropy, cross_entropy_of),
)

CASES = (Case("kernels", "kernel counts of common pieces", counts),)
