"""A training step as one plan: forward, backward and optimizer, against torch and jax.

An MLP of 784-512-512-10 with a batch of 128. All sides start from the same weights, and take steps
in turn in one process with two threads; after them the losses must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from time import perf_counter
from typing import Any

import numpy as np

from svod.tools.bench.bar import Case, Line, MissingPeer, at_least, at_most, figure, peer, times
from svod.tools.bench.measure import alternate, fresh
from svod.tools.report import duration

SIZES = (784, 512, 512, 10)
BATCH = 128
RATE = 0.01
PREPARING = 3.0  # seconds
Step = Callable[[], float]
Layers = list[tuple[Any, Any]]


def data() -> tuple[Any, Any]:
    """Inputs and the classes they belong to."""
    random = np.random.default_rng(1)
    x = random.standard_normal((BATCH, SIZES[0]), dtype=np.float32)
    return x, random.integers(0, SIZES[-1], BATCH)


def weights() -> Layers:
    """Matrices (outputs by inputs, as in torch) and biases."""
    random = np.random.default_rng(0)
    found = []
    for inner, outer in pairwise(SIZES):
        matrix = random.standard_normal((outer, inner), dtype=np.float32) / np.float32(inner**0.5)
        found.append((matrix, np.zeros(outer, np.float32)))
    return found


def our_step(kind: str) -> tuple[Any, Step]:
    """The jit function, and one call of it."""
    import svod
    from svod import nn

    layers: list[Any] = []
    for matrix, bias in weights():
        layer = nn.Linear(matrix.shape[1], matrix.shape[0])
        layer.load_state_dict({"weight": svod.Tensor(matrix), "bias": svod.Tensor(bias)})
        layers += [layer, nn.ReLU()]
    model = nn.Sequential(*layers[:-1])
    optimizer = getattr(nn.optim, kind)(model.parameters(), lr=RATE)
    x, y = (svod.Tensor(array) for array in data())

    @svod.jit(state=(model, optimizer))  # type: ignore[untyped-decorator]
    def train(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x).cross_entropy(y)
        loss.backward()
        optimizer.step()
        return loss

    return train, lambda: float(train(x, y).item())


def torch_step(kind: str) -> Step:
    """The same in torch, op by op."""
    torch = peer("torch")
    torch.set_num_threads(2)
    layers: list[Any] = []
    for matrix, bias in weights():
        layer = torch.nn.Linear(matrix.shape[1], matrix.shape[0])
        arrays = {"weight": matrix, "bias": bias}
        layer.load_state_dict({name: torch.from_numpy(array) for name, array in arrays.items()})
        layers += [layer, torch.nn.ReLU()]
    model = torch.nn.Sequential(*layers[:-1])
    optimizer = getattr(torch.optim, kind)(model.parameters(), lr=RATE)
    x, y = (torch.from_numpy(array) for array in data())

    def train() -> float:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return float(loss.item())

    return train


def jax_step(kind: str) -> Step:
    """The same in jax, compiled, with donated weights and state."""
    jax = peer("jax")
    jnp = jax.numpy

    def loss_of(layers: Any, x: Any, y: Any) -> Any:
        for i, (matrix, bias) in enumerate(layers):
            x = (jnp.maximum(x, 0) if i else x) @ matrix + bias
        chosen = jnp.take_along_axis(jax.nn.log_softmax(x), y[:, None], 1)
        return -chosen.mean()

    def descend(state: Any, x: Any, y: Any) -> Any:
        layers, means, squares, count = state
        loss, slopes = jax.value_and_grad(loss_of)(layers, x, y)
        every = jax.tree.map
        if kind == "SGD":
            layers = every(lambda p, g: p - RATE * g, layers, slopes)
            return (layers, means, squares, count), loss
        count = count + 1
        means = every(lambda m, g: m + (g - m) * 0.1, means, slopes)
        squares = every(lambda v, g: v * 0.999 + g * g * 0.001, squares, slopes)
        rate = RATE / (1 - 0.9**count)
        root = jnp.sqrt(1 - 0.999**count)
        layers = every(
            lambda p, m, v: p - rate * m / (jnp.sqrt(v) / root + 1e-8), layers, means, squares
        )
        return (layers, means, squares, count), loss

    step = jax.jit(descend, donate_argnums=0)
    layers = [(jnp.asarray(matrix.T), jnp.asarray(bias)) for matrix, bias in weights()]
    zeros = jax.tree.map(jnp.zeros_like, layers)
    state = [(layers, zeros, jax.tree.map(jnp.zeros_like, layers), jnp.float32(0))]
    x, y = (jnp.asarray(array) for array in data())

    def train() -> float:
        state[0], loss = step(state[0], x, y)
        jax.block_until_ready(state[0])
        return float(loss)

    return train


def prepare_step(kind: str) -> dict[str, float]:
    """Seconds until the first step of a fresh process is done, and kernels; nothing is cached."""
    from svod.tools.bench.preparation import load_modules

    load_modules()
    train, step = our_step(kind)
    start = perf_counter()
    step()
    seconds = perf_counter() - start
    return {"seconds": seconds, "plans": train.plans}


def compare(kind: str) -> Iterator[Line]:
    """Steps against the peers that are there, and what preparing costs."""
    title = f"MLP step, {kind}"
    runs = [fresh(prepare_step, kind, SVOD_OBJECT_CACHE="0") for _ in range(3)]
    first = min(run["seconds"] for run in runs)
    yield at_most(f"{title}: recording, preparing and running it once", first, PREPARING)
    train, ours = our_step(kind)
    contenders: dict[str, Step] = {"ours": ours}
    missing = []
    for name, make in (("torch", torch_step), ("jax", jax_step)):
        try:
            contenders[name] = make(kind)
        except MissingPeer as error:
            missing.append(error)
    losses: dict[str, float] = {}

    def kept(name: str, step: Step) -> Callable[[], None]:
        return lambda: losses.update({name: step()})

    rounds = alternate({name: kept(name, step) for name, step in contenders.items()})
    for name in contenders:
        if abs(losses[name] - losses["ours"]) > 1e-2 * abs(losses["ours"]):
            raise RuntimeError(f"{title}: the losses differ after the same steps: {losses}")
    own = duration(rounds.median("ours"))
    for name in list(contenders)[1:]:
        note = f"{own}, {name} {duration(rounds.median(name))}, {train.plans} plan"
        yield at_least(f"{title}, speed / {name}", rounds.speed("ours", name), 1.0, times, note)
    if len(contenders) == 1:
        yield figure(title, own)
    if missing:
        raise missing[0]


def sgd() -> Iterator[Line]:
    """Gradient descent."""
    return compare("SGD")


def adam() -> Iterator[Line]:
    """Adam, with its running means."""
    return compare("Adam")


CASES = (
    Case("train_mlp_sgd", "a training step of an MLP, SGD, against torch and jax", sgd),
    Case("train_mlp_adam", "a training step of an MLP, Adam, against torch and jax", adam),
)
