"""`svod demo`: a small network is trained on two spirals before your eyes.

Then the trained network beside NumPy, and torch where it is installed, and where the time went.
"""

from __future__ import annotations

import importlib.util
import math
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

import svod
from svod import nn
from svod.base import timing
from svod.nn import functional as F
from svod.tools.report import Report, duration, table

POINTS, HIDDEN, BATCH = 2000, 128, 4096
COLUMNS, ROWS = 56, 20
TOLERANCE = 1e-4


def demo(steps: int = 600) -> Report:
    """Train, draw what was learnt, compare the network with NumPy, and tell the times."""
    svod.manual_seed(0)
    x, y = spirals(POINTS)
    model = nn.Sequential(
        nn.Linear(2, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, HIDDEN), nn.SiLU(), nn.Linear(HIDDEN, 2)
    )
    optimizer = svod.optim.AdamW(model.parameters(), lr=5e-3)
    inputs, labels = svod.Tensor(x), svod.Tensor(y)

    @svod.jit
    def step() -> Any:
        optimizer.zero_grad()
        logits = model(inputs)
        loss = F.cross_entropy(logits, labels)
        loss.backward()
        optimizer.step()
        return loss.detach(), (logits.argmax(1) == labels).float().mean()

    start = time.perf_counter_ns()
    step()
    prepared = (time.perf_counter_ns() - start) / 1e9
    passes = {name: ns / 1e9 for name, ns in timing.totals(start).items()}
    curve = []
    begin = time.perf_counter()
    for i in range(1, steps + 1):
        loss, right = step()
        if i % max(1, steps // 10) == 0 or i == steps:
            curve.append({"step": i, "loss": loss.item(), "accuracy": right.item()})
            _say(f"  step {i:4d}   loss {loss.item():.4f}   right {right.item():6.1%}")
    trained = time.perf_counter() - begin

    weights = [p.numpy() for p in model.parameters()]
    rows, error, kernels = compared(weights)
    ok = error <= TOLERANCE and curve[-1]["accuracy"] > 0.9
    data = {
        "points": POINTS,
        "prepare_seconds": prepared,
        "passes_seconds": passes,
        "step_seconds": trained / steps,
        "curve": curve,
        "forward_seconds": dict(rows),
        "kernels": kernels,
        "largest_error": error,
        "picture": picture(weights),
        "ok": ok,
    }
    return Report(data, _text(data), ok)


def spirals(count: int) -> tuple[Any, Any]:
    """Points on two arms of a spiral, and which arm each is on."""
    random = np.random.default_rng(0)
    arm = np.arange(count) % 2
    angle = np.sqrt(random.random(count)) * 3 * math.pi
    radius = angle / (3 * math.pi)
    turn = angle + math.pi * arm
    points = np.stack([radius * np.cos(turn), radius * np.sin(turn)], 1)
    points += random.normal(size=points.shape) * 0.015
    return (points * 2).astype(np.float32), arm.astype(np.int64)


def network(x: Any, weights: list[Any], lib: Any) -> Any:
    """The trained network in NumPy, torch or Svod."""
    for i in range(0, 6, 2):
        x = x @ weights[i].T + weights[i + 1]
        if i < 4:
            x = x / (1 + lib.exp(-x))
    return x


def compared(weights: list[Any]) -> tuple[list[tuple[str, float]], float, list[dict[str, str]]]:
    """How long a batch takes here and elsewhere, how far results are apart, and the kernels."""
    batch = np.random.default_rng(1).normal(size=(BATCH, 2)).astype(np.float32)
    output = network(svod.Tensor(batch), [svod.Tensor(w) for w in weights], svod)
    plan = output.prepare()
    rows = [("Svod", median(plan.execute))]
    exact = network(batch.astype(np.float64), [w.astype(np.float64) for w in weights], np)
    error = float(np.abs(output.numpy() - exact).max() / np.abs(exact).max())
    rows.append(("NumPy", median(lambda: network(batch, weights, np))))
    if importlib.util.find_spec("torch"):
        import torch

        tensors = [torch.from_numpy(w) for w in weights]
        given = torch.from_numpy(batch)
        with torch.no_grad():
            rows.append(("torch", median(lambda: network(given, tensors, torch))))
    return rows, error, [describe(profile) for profile in plan.execute_profiled()]


def median(run: Callable[[], Any], times: int = 30) -> float:
    """The middle of some times, in seconds."""
    for _ in range(3):
        run()
    found = []
    for _ in range(times):
        begin = time.perf_counter()
        run()
        found.append(time.perf_counter() - begin)
    return sorted(found)[times // 2]


def describe(profile: Any) -> dict[str, str]:
    """What the table shows of a kernel: its name, its time in one run, what that comes to."""
    kernel = profile.kernel
    seconds = max(profile.end_ns - profile.start_ns, 1) / 1e9
    return {
        "kernel": kernel.entry_point,
        "time": duration(seconds),
        "GFLOP/s": f"{(kernel.flops or 0) / seconds / 1e9:.1f}",
        "GB/s": f"{(kernel.bytes_moved or 0) / seconds / 1e9:.1f}",
    }


def picture(weights: list[Any]) -> list[str]:
    """What the network thinks of each position of the plane."""
    across, down = np.linspace(-2.2, 2.2, COLUMNS), np.linspace(2.2, -2.2, ROWS)
    grid = np.stack(np.meshgrid(across, down), -1).reshape(-1, 2).astype(np.float32)
    logits = network(svod.Tensor(grid), [svod.Tensor(w) for w in weights], svod)
    sure = (logits[:, 1] - logits[:, 0]).reshape(ROWS, COLUMNS).numpy()
    signs = np.select([sure > 2, sure > 0, sure > -2], ["█", "▓", "░"], " ")
    return ["".join(row) for row in signs]


def _say(text: str) -> None:
    """A line while something runs; nothing where nobody looks."""
    if sys.stderr.isatty():
        print(text, file=sys.stderr, flush=True)


def _text(data: dict[str, Any]) -> str:
    curve = [["step", "loss", "right"]]
    curve += [[c["step"], f"{c['loss']:.4f}", f"{c['accuracy']:.1%}"] for c in data["curve"]]
    ours = data["forward_seconds"]["Svod"]
    times = [
        [name, duration(seconds), f"{seconds / ours:.2f} ×"]
        for name, seconds in data["forward_seconds"].items()
    ]
    kernels = [list(data["kernels"][0])] + [list(k.values()) for k in data["kernels"]]
    steps = [(name, duration(seconds)) for name, seconds in data["passes_seconds"].items()]
    verdict = "agrees with" if data["largest_error"] <= TOLERANCE else "DIFFERS from"
    return "\n".join(
        [
            f"A network of 3 layers learns which arm of a spiral {data['points']} points are on.",
            "",
            table(curve, 2, frozenset({0, 1, 2})),
            "",
            *["  " + line for line in data["picture"]],
            "",
            f"The training step was prepared in {duration(data['prepare_seconds'])} and takes "
            f"{duration(data['step_seconds'])}.",
            "",
            f"The network on {BATCH} points:",
            table(times, 2, frozenset({1, 2})),
            f"Its result {verdict} NumPy's in float64: largest error {data['largest_error']:.1g} "
            "of the largest value.",
            "",
            table(kernels, 2, frozenset({1, 2, 3})),
            "",
            "Where the preparation of the training step spent its time:",
            table(steps[:8], 2, frozenset({1})),
        ]
    )
