"""`svod demo`: a small model from tensors to machine code, checked against NumPy.

The model is one block of a classifier: layernorm, a hidden layer with gelu, a residual, softmax.
"""

from __future__ import annotations

import math
import time
from typing import Any

import numpy as np
import numpy.typing as npt

import svod
from svod.base import timing
from svod.tools.report import Report, duration, table

Array = npt.NDArray[np.float32]

BATCH, WIDTH, HIDDEN, CLASSES = 64, 256, 1024, 10
EPSILON = 1e-5
TOLERANCE = 1e-4


def demo(runs: int = 200) -> Report:
    """Prepare the model once, run it `runs` times, compare the last result with NumPy."""
    arrays = make_arrays()
    output = model({name: svod.Tensor(array) for name, array in arrays.items()})

    start = time.perf_counter_ns()
    plan = output.prepare()
    prepared = time.perf_counter_ns() - start
    passes = {name: ns / 1e9 for name, ns in timing.totals(start).items()}

    plan.execute()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        plan.execute()
        times.append(time.perf_counter() - begin)

    error = float(np.abs(output.numpy() - reference(arrays)).max())
    ok = error <= TOLERANCE
    kernels = [describe(profile) for profile in plan.execute_profiled()]
    median = sorted(times)[len(times) // 2]
    data = {
        "model": f"layernorm, {WIDTH}→{HIDDEN} gelu →{WIDTH}, residual, {CLASSES}-way softmax",
        "batch": BATCH,
        "kernels": kernels,
        "prepare_seconds": prepared / 1e9,
        "passes_seconds": passes,
        "run_seconds": {"median": median, "best": min(times), "runs": runs},
        "largest_error": error,
        "ok": ok,
    }
    return Report(data, _text(data), ok)


def make_arrays(seed: int = 0) -> dict[str, Array]:
    """The input and the weights, the same on every run."""
    random = np.random.default_rng(seed)

    def normal(*shape: int) -> Array:
        return (random.standard_normal(shape) / math.sqrt(shape[0])).astype(np.float32)

    return {
        "x": random.standard_normal((BATCH, WIDTH)).astype(np.float32),
        "w1": normal(WIDTH, HIDDEN),
        "b1": normal(HIDDEN),
        "w2": normal(HIDDEN, WIDTH),
        "b2": normal(WIDTH),
        "w3": normal(WIDTH, CLASSES),
    }


def model(t: dict[str, Any]) -> Any:
    """The model over tensors, lazy: nothing is computed here."""
    normed = t["x"].layernorm(-1, eps=EPSILON)
    hidden = (normed @ t["w1"] + t["b1"]).gelu()
    mixed = t["x"] + (hidden @ t["w2"] + t["b2"])
    return (mixed @ t["w3"]).softmax(-1)


def reference(a: dict[str, Array]) -> npt.NDArray[np.float64]:
    """The same in NumPy, in double precision."""
    x = a["x"].astype(np.float64)
    centred = x - x.mean(-1, keepdims=True)
    normed = centred / np.sqrt(x.var(-1, keepdims=True) + EPSILON)
    before = normed @ a["w1"] + a["b1"]
    hidden = 0.5 * before * (1 + np.vectorize(math.erf)(before / math.sqrt(2)))
    logits = (x + hidden @ a["w2"] + a["b2"]) @ a["w3"]
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return np.asarray(powers / powers.sum(-1, keepdims=True))


def describe(profile: Any) -> dict[str, Any]:
    """What the table shows of a kernel: its name, its time in one run, what that comes to."""
    kernel = profile.kernel
    seconds = max(profile.end_ns - profile.start_ns, 1) / 1e9
    return {
        "name": kernel.entry_point,
        "device": profile.device,
        "time": duration(seconds),
        "GFLOP/s": f"{(kernel.flops or 0) / seconds / 1e9:.1f}",
        "GB/s": f"{(kernel.bytes_moved or 0) / seconds / 1e9:.1f}",
    }


def _text(data: dict[str, Any]) -> str:
    columns = list(dict.fromkeys(name for kernel in data["kernels"] for name in kernel))
    rows = [["kernel", *columns[1:]]]
    rows += [[kernel.get(name, "") for name in columns] for kernel in data["kernels"]]
    run = data["run_seconds"]
    verdict = "agrees with NumPy" if data["ok"] else "DIFFERS from NumPy"
    steps = [(name, duration(seconds)) for name, seconds in data["passes_seconds"].items()]
    return "\n".join(
        [
            f"{data['model']}, batch {data['batch']}",
            "",
            table(rows, 2),
            "",
            f"prepared in {duration(data['prepare_seconds'])}",
            *([table(steps[:12], 2, frozenset({1}))] if steps else []),
            f"one run takes {duration(run['median'])} (median of {run['runs']}; "
            f"best {duration(run['best'])})",
            f"{verdict}: largest error {data['largest_error']:.2g}",
        ]
    )
