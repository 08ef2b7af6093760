"""The bars of CPU kernels and models: how fast against the best framework that is installed.

A ratio is the best framework's time over ours, both on two threads and in the same rounds. Every
result, theirs and ours, is compared with float64 first; a wrong one of ours is a failed line, a
wrong one of theirs does not compete. Without other frameworks, times are figures.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from time import perf_counter
from typing import Any

from svod.tools.bench.bar import (
    FAILED,
    NO_PEER,
    Case,
    Line,
    at_least,
    at_most,
    holds,
    percent,
    times,
    whole,
)
from svod.tools.bench.cpu.contest import OURS, Outcome, arena, compete
from svod.tools.bench.cpu.work import WORKS
from svod.tools.bench.measure import empty_folder, fresh
from svod.tools.report import byte_size, duration

MACHINE = "machine"
PREPARE_LIMIT = 1.5  # seconds
BEAM_LIMIT = 60.0  # seconds


@dataclass(frozen=True, slots=True)
class Bar:
    """A work, how it is called, and the ratio it must reach."""

    work: str
    name: str
    ratio: float
    kernels: int = 0  # at most; 0 for any number


SQUARES = [Bar(f"matmul_{n}", f"matmul {n}³", 1.0) for n in (256, 512, 1024, 2048)]
ODD = [
    *[Bar(f"matmul_{n}", f"matmul {n}³", 0.95) for n in (511, 1000, 1537)],
    Bar("matmul_777x333x555", "matmul 777×333×555", 0.95),
    Bar("matmul_65x1000x129", "matmul 65×1000×129", 0.95),
    Bar("matmul_4096x4096x7", "matmul 4096×4096×7", 0.95),
    Bar("matmul_aT_b", "matmul 1024³, aᵀ b", 0.95),
    Bar("matmul_a_bT", "matmul 1024³, a bᵀ", 0.95),
    Bar("matmul_aT_bT", "matmul 1024³, aᵀ bᵀ", 0.95),
]
OTHER_PRODUCTS = [
    Bar("matvec_4096", "matvec 4096²", 1.0),
    Bar("matmul_batch8", "batched matmul 8×(256×64×256)", 1.0),
]
NARROW = [
    Bar("matmul_bf16", "matmul 1024³ bfloat16", 0.8),
    Bar("matmul_int8", "matmul 1024³ int8", 0.8),
]
ROWS = [
    Bar("softmax", "softmax 4096×1024", 1.1, kernels=1),
    Bar("layernorm", "layernorm 4096×1024", 1.5, kernels=1),
    Bar("sum_columns", "sum over columns, 4096²", 1.5),
    Bar("sum_rows", "sum over rows, 4096²", 1.0),
    Bar("sum_all", "sum of all, 4096²", 1.0),
    Bar("gelu_chain", "gelu chain, 16M elements", 1.0),
]
IMAGES = [
    Bar("conv_3x3", "convolution 3×3, 64 to 64 channels, 56²", 0.95),
    Bar("conv_depthwise", "depthwise convolution 3×3, 256 channels, 56²", 0.8),
]
MODELS = [
    Bar("mlp", "MLP 784-512-512-10", 0.95),
    Bar("resnet18", "ResNet-18, 224²", 0.95),
    Bar("gpt2", "GPT-2 small, 128 tokens", 0.95),
    Bar("decode", "a decode step, 4 layers, d = 512", 1.15),
]


def contests(bars: Sequence[Bar]) -> Iterator[Line]:
    """The lines of some bars, with one process per framework for all of them."""
    with arena() as workers:
        for bar in bars:
            yield from lines_of(bar, compete(bar.work, workers))


def lines_of(bar: Bar, found: dict[str, Outcome]) -> Iterator[Line]:
    """The ratio of one work, and what else is asked of it."""
    ours = found[OURS]
    if ours.problem:
        yield Line(bar.name, "", "", None, FAILED, ours.problem)
        return
    rivals = {n: o for n, o in found.items() if n not in (OURS, MACHINE) and o.seconds}
    note = f"{speed(bar, ours)}, error {ours.error:.1g}"
    for name, outcome in sorted(rivals.items(), key=lambda pair: pair[1].time):
        note += f"; {name} {duration(outcome.time)}"
    for name, outcome in found.items():
        if outcome.problem and "failed" in outcome.facts:
            note += f"; {name} failed: {outcome.problem}"
    if rivals:
        best = min(rivals.values(), key=lambda outcome: outcome.time)
        yield at_least(bar.name, ratio_of(best, ours), bar.ratio, times, note)
    else:
        yield Line(bar.name, f"≥ {times(bar.ratio)}", "", None, NO_PEER, note)
    if bar.kernels:
        yield at_most(f"{bar.name}: kernels", ours.facts["kernels"], bar.kernels, whole)


def ratio_of(theirs: Outcome, ours: Outcome) -> float:
    """The middle of the ratios of all rounds."""
    return median([a / b for a, b in zip(theirs.seconds, ours.seconds, strict=True)])


def speed(bar: Bar, ours: Outcome) -> str:
    work = WORKS[bar.work]()
    if work.flops >= work.nbytes:
        return f"ours {duration(ours.time)}, {work.flops / ours.time / 1e9:.0f} GFLOP/s"
    return f"ours {duration(ours.time)}, {work.nbytes / ours.time / 1e9:.1f} GB/s"


# -- groups ----------------------------------------------------------------------------------------


def squares() -> Iterator[Line]:
    """Square products, and the share of the machine's peak at 1024."""
    with arena() as workers:
        for bar in SQUARES:
            found = compete(bar.work, workers)
            yield from lines_of(bar, found)
            if bar.work == "matmul_1024" and not found[OURS].problem:
                flops = found[MACHINE].facts["flops"]
                share = WORKS[bar.work]().flops / flops * ratio_of(found[MACHINE], found[OURS])
                note = f"peak {flops / found[MACHINE].time / 1e9:.0f} GFLOP/s"
                yield at_least(f"{bar.name}, share of the FMA peak", share, 0.9, percent, note)


def narrow() -> Iterator[Line]:
    """bfloat16 and int8, which must also be faster than our own float32."""
    with arena() as workers:
        plain = compete("matmul_1024", {OURS: workers[OURS]})[OURS]
        for bar in NARROW:
            found = compete(bar.work, workers)
            yield from lines_of(bar, found)
            if not found[OURS].problem:
                gain = plain.time / found[OURS].time
                yield at_least(f"{bar.name}, against our float32", gain, 1.0, times)


def rows() -> Iterator[Line]:
    """Reductions and chains; sums of 64 MB against what the machine reads."""
    with arena() as workers:
        for bar in ROWS:
            found = compete(bar.work, workers)
            yield from lines_of(bar, found)
            if bar.work in ("sum_rows", "sum_all") and not found[OURS].problem:
                nbytes = found[MACHINE].facts["nbytes"]
                share = WORKS[bar.work]().nbytes / nbytes * ratio_of(found[MACHINE], found[OURS])
                note = f"reads {nbytes / found[MACHINE].time / 1e9:.1f} GB/s at best"
                yield at_least(f"{bar.name}, share of the bandwidth", share, 0.9, percent, note)


def attention() -> Iterator[Line]:
    """Causal attention, and its memory when the length doubles."""
    with arena() as workers:
        found = compete("attention", workers)
        yield from lines_of(Bar("attention", "causal attention (1,8,512,64)", 1.1), found)
        longer = compete("attention_1024", {OURS: workers[OURS]}, 1)[OURS]
    if found[OURS].problem or longer.problem:
        return
    small, large = [outcome.facts["scratch"] for outcome in (found[OURS], longer)]
    note = f"{byte_size(small)} at 512, {byte_size(large)} at 1024"
    grows = large > 2.2 * small
    yield holds("its memory when the length doubles", "doubles at most", note, not grows)


def prepare_model(name: str) -> dict[str, Any]:
    """Seconds to prepare a model with frozen weights, in this process."""
    import svod
    from svod.tools.bench.cpu.operators import SvodOperators
    from svod.tools.bench.preparation import load_modules

    work = WORKS[name]()
    weights = {key: svod.Tensor.from_numpy(array) for key, array in work.weights.items()}
    given = [svod.Tensor.from_numpy(array) for array in work.inputs]
    load_modules()
    start = perf_counter()
    made = work.run(SvodOperators(), weights, *given)
    made = made if isinstance(made, tuple) else (made,)
    plan = svod.prepare(*made, inputs=given, freeze=True)
    seconds = perf_counter() - start
    kernels = len(plan.prepared_kernels())
    return {"seconds": seconds, "kernels": kernels, "constants": plan.memory.constant_bytes}


def preparation() -> Iterator[Line]:
    """The models, cold, with the heuristics, their weights packed."""
    for bar in MODELS:
        runs = [fresh(prepare_model, bar.work, SVOD_OBJECT_CACHE="0") for _ in range(3)]
        best = min(runs, key=lambda run: run["seconds"])
        note = f"{best['kernels']} kernels, constants of {byte_size(best['constants'])}"
        yield at_most(f"prepare {bar.name}", best["seconds"], PREPARE_LIMIT, note=note)


def search_once() -> dict[str, Any]:
    """Prepare 1024³ with a search: seconds, searches, and its speed over the heuristics'."""
    from svod.runtime.search import searches
    from svod.tools.bench import models
    from svod.tools.bench.measure import alternate

    model = models.matmul(1024, 1024, 1024)
    tensors = model.tensors()
    start = perf_counter()
    plan = model.run(tensors).prepare(config="beam")
    seconds = perf_counter() - start
    plain = models.matmul(1024, 1024, 1024)
    rival = plain.run(plain.tensors()).prepare(config="heuristic")
    rounds = alternate({"beam": plan.execute, "heuristic": rival.execute})
    speed = rounds.speed("beam", "heuristic")
    return {"seconds": seconds, "searches": searches["done"], "speed": speed}


def search() -> Iterator[Line]:
    """BEAM on 1024³: it ends, it does not lose, and what it found is kept."""
    with empty_folder() as folder:
        first, second = [fresh(search_once, SVOD_CACHE_DIR=folder) for _ in range(2)]
    yield at_most("BEAM on matmul 1024³", first["seconds"], BEAM_LIMIT)
    yield at_least("its result against the heuristics", first["speed"], 0.97, times)
    note = f"ready after {duration(second['seconds'])}"
    yield holds(
        "searches of a second process", "0", str(second["searches"]), not second["searches"], note
    )


CASES = (
    Case("cpu_squares", "square products against other frameworks and the peak", squares),
    Case("cpu_odd", "odd sizes and transposed operands", lambda: contests(ODD)),
    Case("cpu_products", "matvec and batched products", lambda: contests(OTHER_PRODUCTS)),
    Case("cpu_narrow", "bfloat16 and int8 products", narrow),
    Case("cpu_rows", "softmax, layernorm, sums, a chain of operations", rows),
    Case("cpu_images", "convolutions", lambda: contests(IMAGES)),
    Case("cpu_attention", "causal attention and its memory", attention),
    Case("cpu_models", "whole models, batch 1", lambda: contests(MODELS)),
    Case("cpu_preparation", "preparing these models, cold", preparation),
    Case("cpu_search", "BEAM on 1024³, and a second process", search),
)
