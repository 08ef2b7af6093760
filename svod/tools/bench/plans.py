"""What plans cost beside their kernels: finding a schedule again, loops, memory, calls of jit.

Times of preparation are processor time, in a fresh process with the disk cache off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter, process_time
from typing import Any

import numpy as np

import svod
from svod.tools.bench import models
from svod.tools.bench.bar import Case, Line, at_most, figure, percent, times, whole
from svod.tools.bench.measure import fresh
from svod.tools.bench.preparation import load_modules
from svod.tools.report import duration

STEPS = (8, 512)
ROUNDS = 5


def hit_and_miss() -> dict[str, float]:
    """Seconds to prepare the 12 layers of GPT-2 for the first time, and again."""
    load_modules()
    model = models.gpt2(vocabulary=1024)
    tensors = model.tensors()

    def prepare() -> float:
        output = model.run(tensors)
        start = process_time()
        output.prepare()
        return process_time() - start

    miss = prepare()
    return {"miss": miss, "hit": min(prepare() for _ in range(ROUNDS))}


def schedule_hit() -> Iterator[Line]:
    """A graph of known structure is not scheduled again."""
    found = fresh(hit_and_miss, SVOD_OBJECT_CACHE="0")
    note = f"miss {duration(found['miss'])}, hit {duration(found['hit'])}"
    share = found["hit"] / found["miss"]
    yield at_most("a schedule hit of GPT-2, 12 layers / its miss", share, 0.05, percent, note)


def prepare_lstm(steps: int) -> dict[str, float]:
    """Seconds to prepare an LSTM over so many steps, and its launches and kernels."""
    load_modules()
    from svod import nn

    layer = nn.LSTM(64, 128).realize()
    x = svod.Tensor.from_numpy(np.zeros((steps, 8, 64), np.float32))
    start = process_time()
    output, last = layer(x)
    plan = svod.prepare(output, *last)
    seconds = process_time() - start
    kernels = {id(kernel) for kernel in plan.kernels()}
    launches = len(plan.prepared_kernels())
    return {"seconds": seconds, "launches": launches, "kernels": len(kernels)}


def loop() -> Iterator[Line]:
    """A recurrence is one loop body: its preparation hardly grows with its length."""
    short, long = (
        min(
            [fresh(prepare_lstm, steps, SVOD_OBJECT_CACHE="0") for _ in range(3)],
            key=lambda found: found["seconds"],
        )
        for steps in STEPS
    )
    note = f"{duration(long['seconds'])} for {whole(long['launches'])} launches of "
    note += f"{whole(long['kernels'])} kernels, {duration(short['seconds'])}"
    ratio = long["seconds"] / short["seconds"]
    yield at_most(f"prepare an LSTM of {STEPS[1]} steps / {STEPS[0]}", ratio, 1.5, times, note)
    more = (long["seconds"] - short["seconds"]) / (long["launches"] - short["launches"])
    yield figure("of it per launch", duration(more))


def arena() -> Iterator[Line]:
    """Intermediates are packed tightly, and the report is what is held."""
    shapes: dict[str, Callable[[], models.Model]] = {
        "ResNet-18, 224²": models.resnet18,
        "transformer, 12 layers": partial(models.transformer, 12, 768, 12, 64),
    }
    for name, make in shapes.items():
        model = make()
        plan = model.run(model.tensors()).prepare()
        report = plan.memory
        held = sum({b.storage.id: b.storage.nbytes for b in plan.buffers()}.values())
        note = f"{whole(report.planned_bytes)} bytes; held in all {whole(held)}"
        ratio = report.planned_bytes / report.lower_bound
        yield at_most(f"arena / lower bound, {name}", ratio, 1.15, times, note)
        yield at_most("held bytes / report", held / report.peak_bytes, 1.0, times)


def jit_call() -> Iterator[Line]:
    """What a call of a recorded function costs on top of its plan."""

    def formula(x: Any, y: Any, z: Any) -> Any:
        return x * y + z

    recorded = svod.jit(formula)
    arguments = [svod.Tensor(np.ones(16, np.float32)) for _ in range(3)]
    recorded(*arguments)
    plan = recorded.plan(*arguments)
    call, run = (_best(f) for f in (partial(recorded, *arguments), plan.execute))
    yield at_most("a call of a jit function with 3 tensors", call, 20e-6, note=duration(run))


def _best(run: Callable[[], object], calls: int = 200, rounds: int = 50) -> float:
    found = []
    for _ in range(rounds):
        start = perf_counter()
        for _ in range(calls):
            run()
        found.append((perf_counter() - start) / calls)
    return min(found)


CASES = (
    Case("schedule_hit", "the GPT-2 shape prepared again, against the first time", schedule_hit),
    Case("loop", "an LSTM of 512 steps prepared, against one of 8", loop),
    Case("arena", "memory of intermediates, against the lower bound", arena),
    Case("jit_call", "the cost of calling a jit function", jit_call),
)
