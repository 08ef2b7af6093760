"""Random networks: stacks of layers, with gradients of single parameters, against the evaluator.

``python -m tests.fuzz.networks 0 1000`` runs networks 0 to 999 and prints those that do not
compile, that need plainer loops, or whose values differ from what the definitions of the ops give.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import svod
import svod.nn.functional as F
from svod import Tensor
from tests.fuzz.check import compiling, evaluated

SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 31, 32, 33, 48, 64, 65)
SMALL = (1, 2, 3, 4, 5, 8)
TOLERANCE = 5e-3  # of the largest element: float32, through a dozen layers
LOOSE = {"float16": 0.1, "bfloat16": 0.4}
MOST_ELEMENTS = 1 << 16

Layer = Callable[["Network", Tensor], Tensor]


class Network:
    """One network, built by drawing layers that fit the shape so far."""

    def __init__(self, seed: int) -> None:
        self.draw = np.random.default_rng(seed)
        self.leaves: list[Tensor] = []
        self.lines: list[str] = []

    def pick(self, values: Any) -> Any:
        return values[int(self.draw.integers(len(values)))]

    def leaf(self, *shape: int, scale: float = 1.0) -> Tensor:
        values = (self.draw.standard_normal(shape) * scale).astype(np.float32)
        self.leaves.append(Tensor(values).requires_grad_())
        return self.leaves[-1]

    def outputs(self) -> list[Tensor]:
        """Values that are realised together: the result, a gradient, or a few."""
        rank = self.pick((2, 2, 3, 3, 4))
        sizes = SMALL if rank == 4 else SIZES
        shape = [self.pick(SMALL), *[self.pick(sizes) for _ in range(rank - 1)]]
        x = self.leaf(*shape)
        self.lines.append(f"x {tuple(shape)}")
        for _ in range(int(self.draw.integers(2, 8))):
            names = [n for n, (ranks, _) in LAYERS.items() if x.ndim in ranks]
            name = self.pick(names)
            x = LAYERS[name][1](self, x)
            self.lines.append(f"{name} -> {tuple(x.shape)}")
            if x.numel() > MOST_ELEMENTS or x.ndim == 0:
                break
        kind = self.pick(("value", "gradient", "gradient", "gradients", "both"))
        if kind == "value":
            return [x.detach()]
        weights = self.leaf(*x.shape)
        loss = (x * weights).sum()
        if kind == "gradient":
            index = int(self.draw.integers(len(self.leaves)))
            self.lines.append(f"gradient of leaf {index} {tuple(self.leaves[index].shape)}")
            leaves = [self.leaves[index]]
        else:
            leaves = self.leaves
            self.lines.append(kind)
        loss.backward()
        found = [leaf.grad for leaf in leaves]
        return found if kind != "both" else [x.detach(), *found]


def _linear(n: Network, x: Tensor) -> Tensor:
    wide, out = x.shape[-1], n.pick(SIZES)
    y = x @ n.leaf(wide, out, scale=wide**-0.5)
    return y + n.leaf(out) if n.draw.random() < 0.6 else y


def _layer_norm(n: Network, x: Tensor) -> Tensor:
    wide = x.shape[-1]
    if n.draw.random() < 0.5:
        return F.layer_norm(x, (wide,), n.leaf(wide), n.leaf(wide), eps=1e-2)
    return F.layer_norm(x, (wide,), eps=1e-2)


def _rms_norm(n: Network, x: Tensor) -> Tensor:
    wide = x.shape[-1]
    return F.rms_norm(x, (wide,), n.leaf(wide) if n.draw.random() < 0.5 else None, eps=1e-2)


def _softmax(n: Network, x: Tensor) -> Tensor:
    return x.softmax(n.pick((-1, -1, -1, 0, 1)))


def _attention(n: Network, x: Tensor) -> Tensor:
    wide = x.shape[-1]
    q, k, v = [x @ n.leaf(wide, wide, scale=wide**-0.5) for _ in range(3)]
    return F.scaled_dot_product_attention(q, k, v, is_causal=n.draw.random() < 0.4)


def _cross_attention(n: Network, x: Tensor) -> Tensor:
    wide, length, out = x.shape[-1], n.pick(SIZES), n.pick(SIZES)
    k, v = n.leaf(x.shape[0], length, wide), n.leaf(x.shape[0], length, out)
    return (x @ k.transpose(-1, -2) / wide**0.5).softmax(-1) @ v


def _heads(n: Network, x: Tensor) -> Tensor:
    batch, time_steps, wide = x.shape
    heads = n.pick([h for h in (1, 2, 4) if wide % h == 0])
    parts = x @ n.leaf(wide, 3 * wide, scale=wide**-0.5)
    q, k, v = [
        p.reshape(batch, time_steps, heads, wide // heads).transpose(1, 2)
        for p in parts.split(wide, dim=-1)
    ]
    y = F.scaled_dot_product_attention(q, k, v, is_causal=n.draw.random() < 0.5)
    return y.transpose(1, 2).reshape(batch, time_steps, wide)


def _activation(n: Network, x: Tensor) -> Tensor:
    name = n.pick(("relu", "gelu", "silu", "tanh", "sigmoid", "sin", "exp_small", "clamp", "abs"))
    if name == "exp_small":
        return (x * 0.1).exp()
    if name == "clamp":
        return x.clamp(-0.9, 0.8)
    return getattr(x, name)()


def _residual(n: Network, x: Tensor) -> Tensor:
    inner = n.pick((_linear_same, _layer_norm, _softmax, _activation))
    return x + inner(n, x)


def _linear_same(n: Network, x: Tensor) -> Tensor:
    wide = x.shape[-1]
    return x @ n.leaf(wide, wide, scale=wide**-0.5)


def _stack(n: Network, x: Tensor) -> Tensor:
    axis = int(n.draw.integers(x.ndim))
    other = n.pick((x.sin(), x * 2, x.flip(axis)))
    if n.draw.random() < 0.5:
        return svod.cat([x, other], axis)
    return svod.stack([x, other], 0).mean(n.pick(range(x.ndim + 1)))


def _reduce(n: Network, x: Tensor) -> Tensor:
    axis = int(n.draw.integers(x.ndim))
    name = n.pick(("sum", "mean", "amax", "var", "logsumexp"))
    keep = x.ndim <= 2 or n.draw.random() < 0.5
    if name == "var":
        return x.var(axis, keepdim=keep, unbiased=False)
    found = x.logsumexp(axis, keepdim=keep) if name == "logsumexp" else None
    if found is not None:
        return found
    found = getattr(x, name)(axis, keepdim=keep)
    return x - found if keep and n.draw.random() < 0.5 else found


def _movement(n: Network, x: Tensor) -> Tensor:
    name = n.pick(("transpose", "flip", "pad", "slice", "reshape"))
    axis = int(n.draw.integers(x.ndim))
    if name == "transpose":
        return x.transpose(axis, -1)
    if name == "flip":
        return x.flip(axis)
    if name == "pad":
        return F.pad(x, (int(n.draw.integers(3)), int(n.draw.integers(3))))
    if name == "slice" and x.shape[axis] > 2:
        return x.narrow(axis, 1, x.shape[axis] - 1)
    return x.reshape(*x.shape[::-1])


def _flatten(n: Network, x: Tensor) -> Tensor:
    return x.flatten(1) if n.draw.random() < 0.5 else x.flatten(0, 1)


def _unflatten(n: Network, x: Tensor) -> Tensor:
    return x.unsqueeze(int(n.draw.integers(x.ndim + 1)))


def _conv2d(n: Network, x: Tensor) -> Tensor:
    channels, out = x.shape[1], n.pick(SMALL)
    kernel = min(n.pick((1, 2, 3)), x.shape[2] + 2, x.shape[3] + 2)
    weight = n.leaf(out, channels, kernel, kernel, scale=(channels * kernel**2) ** -0.5)
    bias = n.leaf(out) if n.draw.random() < 0.5 else None
    return F.conv2d(x, weight, bias, stride=n.pick((1, 1, 2)), padding=1)


def _conv_transpose2d(n: Network, x: Tensor) -> Tensor:
    channels, out, kernel = x.shape[1], n.pick(SMALL), n.pick((1, 2, 3))
    weight = n.leaf(channels, out, kernel, kernel, scale=(channels * kernel**2) ** -0.5)
    return F.conv_transpose2d(x, weight, stride=n.pick((1, 2)))


def _conv1d(n: Network, x: Tensor) -> Tensor:
    channels, out, kernel = x.shape[1], n.pick(SMALL), n.pick((1, 3))
    weight = n.leaf(out, channels, kernel, scale=(channels * kernel) ** -0.5)
    return F.conv1d(x, weight, padding=1)


def _group_norm(n: Network, x: Tensor) -> Tensor:
    channels = x.shape[1]
    groups = n.pick([g for g in (1, 2, 4) if channels % g == 0])
    return F.group_norm(x, groups, n.leaf(channels), n.leaf(channels), eps=1e-2)


def _batch_norm(n: Network, x: Tensor) -> Tensor:
    channels = x.shape[1]
    axes = [a for a in range(x.ndim) if a != 1]
    shape = [channels if a == 1 else 1 for a in range(x.ndim)]
    mean, variance = x.mean(axes, keepdim=True), x.var(axes, keepdim=True, unbiased=False)
    y = (x - mean) / (variance + 1e-2).sqrt()
    return y * n.leaf(channels).reshape(*shape) + n.leaf(channels).reshape(*shape)


def _pool(n: Network, x: Tensor) -> Tensor:
    if min(x.shape[2:]) < 2:
        return x
    return F.avg_pool2d(x, 2) if n.draw.random() < 0.5 else F.max_pool2d(x, 2)


def _pixels(n: Network, x: Tensor) -> Tensor:
    return x.mean((2, 3)) if n.draw.random() < 0.5 else x.flatten(2)


def _embed(n: Network, x: Tensor) -> Tensor:
    table = n.leaf(n.pick(SIZES), x.shape[-1])
    count = n.pick(SMALL)
    indices = n.draw.integers(0, table.shape[0], (x.shape[0], count))
    rows = table[Tensor(indices)]
    return rows + (x.unsqueeze(1) if x.ndim == 2 else x.mean(1, keepdim=True))


LAYERS: dict[str, tuple[tuple[int, ...], Layer]] = {
    "linear": ((2, 3, 4), _linear),
    "linear again": ((2, 3), _linear),
    "layer_norm": ((2, 3, 4), _layer_norm),
    "rms_norm": ((2, 3), _rms_norm),
    "softmax": ((2, 3, 4), _softmax),
    "attention": ((3,), _attention),
    "cross_attention": ((3,), _cross_attention),
    "heads": ((3,), _heads),
    "activation": ((2, 3, 4), _activation),
    "residual": ((2, 3), _residual),
    "stack": ((2, 3, 4), _stack),
    "reduce": ((2, 3, 4), _reduce),
    "movement": ((2, 3, 4), _movement),
    "flatten": ((3, 4), _flatten),
    "unsqueeze": ((2, 3), _unflatten),
    "conv2d": ((4,), _conv2d),
    "conv_transpose2d": ((4,), _conv_transpose2d),
    "conv1d": ((3,), _conv1d),
    "group_norm": ((3, 4), _group_norm),
    "batch_norm": ((3, 4), _batch_norm),
    "pool": ((4,), _pool),
    "pixels": ((4,), _pixels),
    "embed": ((2, 3), _embed),
}


def network_failure(seed: int) -> str | None:
    """What a network gets wrong; None where nothing is."""
    network = Network(seed)
    try:
        found = network.outputs()
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            wanted = [evaluated(t) for t in found]
        svod.realize(*found)
        results = [t.numpy() for t in found]
    except Exception as problem:
        return f"{type(problem).__name__}: {problem}"
    for i, (result, exact) in enumerate(zip(results, wanted, strict=True)):
        wrong = difference(result, exact)
        if wrong:
            return f"output {i}: {wrong}"
    return None


def difference(result: Any, exact: Any) -> str | None:
    """How far an array is from the one wanted, relative to the largest element."""
    if result.shape != exact.shape:
        return f"shape {result.shape} for {exact.shape}"
    if not result.size:
        return None
    a, b = result.astype(np.float64), exact.astype(np.float64)
    if not np.array_equal(np.isnan(a), np.isnan(b)):
        return "NaN in other elements"
    scale = max(1.0, float(np.nanmax(np.abs(b), initial=0.0)))
    worst = float(np.nanmax(np.abs(a - b), initial=0.0)) / scale
    return f"off by {worst:.3g} of the largest" if worst > TOLERANCE else None


def main(first: int, last: int, way: str = "default") -> int:
    """Run networks and print those that fail."""
    start, failed = time.perf_counter(), 0
    with compiling(way):
        for seed in range(first, last):
            wrong = network_failure(seed)
            if wrong is not None:
                failed += 1
                network = Network(seed)
                try:
                    network.outputs()
                except Exception as problem:
                    network.lines.append(repr(problem))
                print(f"{seed}: {wrong[:300]}\n    " + "; ".join(network.lines), flush=True)
    seconds = time.perf_counter() - start
    print(f"{last - first} networks ({way}), {failed} failed, {seconds:.0f} s")
    return failed


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(bool(main(int(words[0]), int(words[1]), *words[2:3])))
