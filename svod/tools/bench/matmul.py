"""The speed of a matrix product, as a share of what one core can do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

import numpy as np

from svod.tools.bench import models
from svod.tools.bench.bar import Case, Line, at_least, figure, percent, times
from svod.tools.bench.measure import alternate

SIZE = 512


def product() -> Iterator[Line]:
    """512³ with one thread against the peak of one core, and with two threads against one."""
    from svod.runtime.native import set_threads
    from svod.tools.bench.peak import Peak

    model = models.matmul(SIZE, SIZE, SIZE)
    output = model.run(model.tensors())
    plan = output.prepare()
    peak = Peak()

    def run_with(threads: int) -> None:
        set_threads(threads)
        plan.execute()

    contenders: dict[str, Callable[[], object]] = {
        "peak": peak,
        "one": lambda: run_with(1),
        "two": lambda: run_with(2),
    }
    rounds = alternate(contenders, rounds=21, calls=5)
    set_threads(0)
    expected = model.arrays["a"] @ model.arrays["b"]
    if not np.allclose(output.numpy(), expected, rtol=1e-3, atol=1e-3):
        raise RuntimeError("the product differs from NumPy's")

    flops = 2.0 * SIZE**3
    rates = [peak.flops / seconds for seconds in rounds.seconds["peak"]]
    shares = [
        flops / seconds / rate for seconds, rate in zip(rounds.seconds["one"], rates, strict=True)
    ]
    note = f"{flops / rounds.median('one') / 1e9:.0f} GFLOP/s"
    yield figure("FMA peak of one core", f"{median(rates) / 1e9:.0f} GFLOP/s")
    yield at_least(
        "matmul 512³, one thread, share of the peak", median(shares), 0.60, percent, note
    )
    note = f"{flops / rounds.median('two') / 1e9:.0f} GFLOP/s"
    yield at_least("matmul 512³, two threads / one", rounds.speed("two", "one"), 1.8, times, note)


CASES = (Case("matmul", "512³ matmul against the FMA peak, and two threads against one", product),)
