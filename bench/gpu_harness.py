"""What the GPU benchmarks share: timing by events, checks of values, rows of the table.

ratio = best peer time / ours, so more is better. A row whose values are off or whose ratio is below
its bar is marked, and the command then ends with 1.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from svod import Tensor
from svod.device.cuda.driver import context
from svod.tensor.recording.realize import prepare

Array = np.ndarray[Any, Any]
ROUNDS = 15
WARM_SECONDS = 0.3
LONGEST_MS = 500.0  # of all rounds together
TOLERANCE = 2e-2  # of 16-bit models; float32 is far below
HEAD = (
    f"{'case':28} {'ours ms':>9} {'peer ms':>9} {'peer':>9} {'ratio':>6} {'bar':>5}  {'error':>9}"
)
RNG = np.random.default_rng(7)


@dataclass
class Result:
    """One row of the table; times in milliseconds."""

    name: str
    ours: float
    error: float
    peer: float | None
    peer_name: str
    bar: float
    note: str = ""
    spread: float = 0.0
    kernels: list[str] = field(default_factory=list)
    tolerance: float = float("inf")

    @property
    def ratio(self) -> float | None:
        return None if self.peer is None else self.peer / self.ours

    @property
    def complaint(self) -> str:
        """What is wrong with the row; empty where nothing is."""
        if not self.error <= self.tolerance:
            return f"WRONG: more than {self.tolerance:.0e}"
        return "SHORT" if self.ratio is not None and self.ratio < self.bar else ""

    def line(self) -> str:
        ratio = "" if self.ratio is None else f"{self.ratio:6.2f}"
        peer = "" if self.peer is None else f"{self.peer:9.4f}"
        return (
            f"{self.name:28} {self.ours:9.4f} {peer:>9} {self.peer_name:>9} {ratio:>6} "
            f"{self.bar:5.2f}  {self.error:9.2e}  {self.note} {self.complaint}"
        )


def gpu_ms(run: Callable[[], object], repeat: int) -> tuple[float, float]:
    """Median and spread of one run, by events on our stream."""
    owner = context(0)
    driver, stream = owner.use(), owner.stream
    start, stop = (driver.handle("cuEventCreate", 0) for _ in range(2))

    def measured(count: int) -> float:
        driver.call("cuEventRecord", start, stream)
        for _ in range(count):
            run()
        driver.call("cuEventRecord", stop, stream)
        driver.call("cuEventSynchronize", stop)
        return driver.elapsed_ms(start, stop)

    times = _rounds(measured, repeat)
    return statistics.median(times), max(times) - min(times)


def torch_ms(run: Callable[[], object], repeat: int) -> float:
    """Median of one run of torch, by its events."""
    import torch

    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def measured(count: int) -> float:
        start.record()
        for _ in range(count):
            run()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop))

    return statistics.median(_rounds(measured, repeat))


def _rounds(measured: Callable[[int], float], repeat: int) -> list[float]:
    """Times of one run, on a warm clock; what is slow runs less often."""
    deadline = time.perf_counter() + WARM_SECONDS
    while True:
        one = measured(3) / 3
        if time.perf_counter() > deadline:
            break
    count = max(1, min(repeat, int(LONGEST_MS / ROUNDS / max(one, 1e-3))))
    return [measured(count) / count for _ in range(ROUNDS)]


def as_graph(torch: Any, run: Callable[..., object], *arguments: Any) -> Callable[[], object]:
    """What torch does as a CUDA graph, which reads its arguments where they are."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run(*arguments)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        run(*arguments)
    return graph.replay  # type: ignore[no-any-return]


def error_of(found: Array, wanted: Array) -> float:
    """|found - wanted| / |wanted|, in float64; anything that is no number is infinite."""
    found = np.asarray(found, np.float64)
    if not np.isfinite(found).all():
        return float("inf")
    return float(np.linalg.norm(found - wanted) / (np.linalg.norm(wanted) or 1.0))


class Bench:
    """Cases over shared inputs."""

    def __init__(self, use_torch: bool, use_compile: bool) -> None:
        self.results: list[Result] = []
        facts = context(0).facts
        print(f"{facts.name}, driver {facts.driver}, {facts.multiprocessors} multiprocessors")
        print(HEAD, flush=True)
        self.use_compile = use_compile
        self.torch: Any = None
        if use_torch:
            try:
                import torch

                self.torch = torch if torch.cuda.is_available() else None
            except ImportError:
                self.torch = None

    def on_gpu(self, array: Array, dtype: str | None = None) -> Tensor:
        t = Tensor(array, device="CUDA")
        return (t.cast(dtype) if dtype else t).contiguous().realize()

    def for_torch(self, array: Array, dtype: str | None = None) -> Any:
        if self.torch is None:
            return None
        t = self.torch.from_numpy(array).cuda()
        return t.to(getattr(self.torch, dtype)) if dtype else t

    def case(
        self,
        name: str,
        ours: Tensor | list[Tensor],
        check: Callable[[Array], tuple[Array, Array]],
        peer: Callable[[], object] | None,
        page: float | None,
        bar: float,
        repeat: int = 10,
        compiled: Callable[..., object] | None = None,
        arguments: tuple[Any, ...] = (),
        note: Callable[[float], str] = lambda ms: "",
        tolerance: float = TOLERANCE,
    ) -> None:
        """One row: our plan, the values of its first result, the peer's best time."""
        results = ours if isinstance(ours, list) else [ours]
        began = time.perf_counter()
        plan = prepare(results)
        prepared = time.perf_counter() - began
        for _ in range(3):
            plan.execute()
        buffer = plan.output_buffer()
        assert buffer is not None
        found = buffer.copyout().reshape(results[0].shape)
        if found.dtype.kind not in "fiub" or found.dtype.itemsize < 4:
            found = found.astype(np.float32)
        error = error_of(*check(found))
        median, spread = gpu_ms(plan.execute, repeat)
        best, peer_name = page, "page"
        if self.torch is not None and peer is not None:
            best, peer_name = torch_ms(peer, repeat), "eager"
            if self.use_compile and compiled is not None:
                is_compiled = isinstance(compiled, partial)
                fast = compiled if is_compiled else self.torch.compile(compiled)
                fused = torch_ms(lambda: fast(*arguments), repeat)
                if fused < best:
                    best, peer_name = fused, "inductor"
        kernels = [k.entry_point for k in plan.kernels()]
        text = f"{note(median)}  prepare {prepared * 1e3:.0f} ms, {len(kernels)} kernels"
        row = Result(name, median, error, best, peer_name, bar, text, spread, kernels, tolerance)
        self.add(row)

    def add(self, result: Result) -> None:
        """Print and keep a row."""
        self.results.append(result)
        print(result.line(), flush=True)


def bandwidth(nbytes: float) -> Callable[[float], str]:
    return lambda ms: f"{nbytes / ms / 1e9:.2f} TB/s"


def rate(flops: float) -> Callable[[float], str]:
    return lambda ms: f"{flops / ms / 1e9:.1f} TFLOP/s"


def rounded(array: Array) -> Array:
    """The values bfloat16 keeps, as float64."""
    import ml_dtypes

    return array.astype(ml_dtypes.bfloat16).astype(np.float64)
