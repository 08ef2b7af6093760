"""How long it takes from tensors to a plan.

Every measurement is in a fresh process with the disk cache off, so that nothing is reused. The
modules, LLVM included, are loaded before the clock starts; a figure shows what they cost on top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from time import perf_counter_ns
from typing import Any

from svod.tools.bench import models
from svod.tools.bench.bar import Case, Line, at_most, figure, times, whole
from svod.tools.bench.measure import fresh
from svod.tools.report import duration

ROUNDS = 3
MODELS: dict[str, Callable[[], models.Model]] = {
    "matmul": lambda: models.matmul(1024, 1024, 1024),
    "further": lambda: models.matmul(768, 1280, 896),
    "convolution": models.convolution,
    "transformer 4": lambda: models.transformer(4, 256, 4, 64),
    "transformer 48": lambda: models.transformer(48, 256, 4, 64),
    "gpt2": models.gpt2,
    "resnet18": models.resnet18,
}


def prepare_in_turn(names: list[str], is_loaded: bool = True) -> list[dict[str, Any]]:
    """Prepare models one after the other in this process; what each took and made."""
    if is_loaded:
        load_modules()
    return [prepare_once(MODELS[name]()) for name in names]


def prepare_once(model: models.Model) -> dict[str, Any]:
    """Seconds by step, kernels, and the work of the rewriting engine, for one model."""
    from svod.base import timing
    from svod.ir import node as nodes
    from svod.ir.rewrite import stats

    tensors = model.tensors()
    before = (stats.visits, stats.rewrites, nodes._next_sn)
    start = perf_counter_ns()
    output = model.run(tensors)
    built = perf_counter_ns()
    plan = output.prepare()
    end = perf_counter_ns()
    spans = timing.totals(start)
    kernels = [kernel.entry_point for kernel in plan.kernels()]
    return {
        "total": (end - start) / 1e9,
        "graph": (built - start) / 1e9,
        "llvm": spans.get("llvm", 0) / 1e9,
        "spans": {name: ns / 1e9 for name, ns in spans.items()},
        "launches": len(kernels),
        "kernels": len({id(kernel) for kernel in plan.kernels()}),
        "visits": stats.visits - before[0],
        "rewrites": stats.rewrites - before[1],
        "new_nodes": nodes._next_sn - before[2],
    }


def load_modules() -> None:
    """Load all code, ours and LLVM's, without preparing anything."""
    import svod
    import svod.tensor.recording.realize
    from svod.device.cpu.compiler import emit_object
    from svod.runtime.native import launcher

    assert svod.Tensor is not None
    emit_object("define void @nothing() {\n  ret void\n}\n")
    launcher()


def measured(*names: str, is_loaded: bool = True, rounds: int = ROUNDS) -> list[dict[str, Any]]:
    """The quickest of some fresh processes that prepare models in turn."""
    found = [
        fresh(prepare_in_turn, list(names), is_loaded, SVOD_OBJECT_CACHE="0") for _ in range(rounds)
    ]
    return [min(runs, key=lambda run: run["total"]) for runs in zip(*found, strict=True)]


def matmul() -> Iterator[Line]:
    """One matrix product, then one of another shape."""
    first, further = measured("matmul", "further", rounds=5)
    yield at_most("prepare matmul 1024³, cold", first["total"], 0.120, note=steps(first))
    yield at_most("of it LLVM", first["llvm"], 0.020)
    yield at_most("prepare a further shape", further["total"], 0.060, note=steps(further))
    (whole_cost,) = measured("matmul", is_loaded=False)
    yield figure("prepare matmul 1024³, loading of modules included", duration(whole_cost["total"]))


def depth() -> Iterator[Line]:
    """Equal layers are prepared once."""
    shallow, deep = [], []
    for _ in range(ROUNDS):
        shallow += measured("transformer 4", rounds=1)
        deep += measured("transformer 48", rounds=1)
    pairs = zip(deep, shallow, strict=True)
    ratio = median([one["total"] / other["total"] for one, other in pairs])
    note = f"{duration(min(run['total'] for run in deep))} for {whole(deep[0]['launches'])} kernels"
    note += (
        f", {duration(min(run['total'] for run in shallow))} for {whole(shallow[0]['launches'])}"
    )
    yield at_most("prepare 48 layers / 4 layers", ratio, 2.0, times, note)


def gpt2() -> Iterator[Line]:
    """12 layers of width 768 over 64 tokens."""
    (run,) = measured("gpt2")
    yield at_most("prepare GPT-2, 12 layers, 64 tokens", run["total"], 1.3, note=steps(run))


def resnet18() -> Iterator[Line]:
    """One image of 224 × 224."""
    (run,) = measured("resnet18")
    yield at_most("prepare ResNet-18, 224²", run["total"], 2.0, note=steps(run))


def steps(run: dict[str, Any]) -> str:
    """Where the time of a preparation went."""
    longest = sorted(run["spans"].items(), key=lambda item: -item[1])[:5]
    listed = ", ".join(f"{name} {duration(seconds)}" for name, seconds in longest)
    kernels = f"{run['launches']} kernels, {run['kernels']} distinct"
    return f"{kernels}; graph {duration(run['graph'])}, {listed}"


CASES = (
    Case("prepare_matmul", "1024³ matmul cold, then another shape", matmul),
    Case("prepare_depth", "a 48-layer transformer against a 4-layer one", depth),
    Case("prepare_gpt2", "the GPT-2 shape, 12 layers, d = 768, 64 tokens", gpt2),
    Case("prepare_resnet18", "ResNet-18 on one 224² image", resnet18),
)
