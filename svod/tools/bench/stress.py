"""Large and deep graphs prepare without recursion and in time; results are checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import numpy as np

import svod
from svod.tools.bench.bar import Case, Line, at_most
from svod.tools.bench.models import Array, Model, Weights

LIMIT = 3.0  # seconds to build the graph and prepare it


@dataclass(frozen=True, slots=True)
class Strain:
    """A graph of a given size and its result in NumPy."""

    name: str
    size: int
    make: Callable[[int], Model]
    expected: Callable[[dict[str, Array], int], Array]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What preparing a graph took, and its largest error."""

    seconds: float
    kernels: int
    error: float


def evaluate(strain: Strain, size: int | None = None) -> Outcome:
    """Build, prepare, run and check a graph of that size."""
    size = size or strain.size
    model = strain.make(size)
    tensors = model.tensors()
    start = perf_counter()
    output = model.run(tensors)
    plan = output.prepare()
    seconds = perf_counter() - start
    plan.execute()
    expected = strain.expected(model.arrays, size)
    error = float(np.abs(output.numpy() - expected).max())
    return Outcome(seconds, len(list(plan.kernels())), error)


def strain(number: int) -> Callable[[], Iterator[Line]]:
    """The function of a case."""

    def run() -> Iterator[Line]:
        subject = STRAINS[number]
        outcome = evaluate(subject)
        if not outcome.error <= 1e-3:
            raise RuntimeError(f"{subject.name} differs from NumPy by {outcome.error:.2g}")
        note = f"{outcome.kernels} kernels"
        yield at_most(f"prepare {subject.name}", outcome.seconds, LIMIT, note=note)

    return run


def stacked(count: int) -> Model:
    """Many small tensors become one."""
    make = Weights()
    arrays = {str(i): make.normal(8) for i in range(count)}
    return Model(arrays, lambda t: svod.stack(list(t.values())))


def chained(count: int) -> Model:
    """A product and a sum in turn, `count` operations long."""
    make = Weights()
    arrays = {"x": make.normal(64), "y": make.normal(64, scale=0.1), "z": make.normal(64)}
    return Model(arrays, lambda t: chain(t, count))


def chain(t: dict[str, Any], count: int) -> Any:
    """The chain over tensors or arrays."""
    x = t["x"]
    for step in range(count):
        x = x + t["z"] if step % 2 else x * t["y"]
    return x


def nested(depth: int) -> Model:
    """Every level uses the level below twice, so a walk that forgets would never end."""
    make = Weights()
    arrays = {"x": make.normal(64), "y": make.normal(64)}
    return Model(arrays, lambda t: nest(t, depth))


def nest(t: dict[str, Any], depth: int) -> Any:
    """The nest over tensors or arrays."""
    x = t["x"]
    for _ in range(depth):
        x = x * 0.5 + (x - t["y"]) * 0.25
    return x


STRAINS = (
    Strain("a stack of 2,000 tensors", 2000, stacked, lambda a, n: np.stack(list(a.values()))),
    Strain("a 5,000-op chain", 5000, chained, chain),
    Strain("a 1,000-deep expression", 1000, nested, nest),
)

CASES = (
    Case("stack", "2,000 tensors stacked", strain(0)),
    Case("chain", "5,000 operations one after the other", strain(1)),
    Case("deep", "1,000 levels that share what is below them", strain(2)),
)
