"""`svod tune machine`: what the cost model takes for granted, measured on this machine.

Small plans and native loops are timed, each with more and with less of one thing; the difference is
what that costs. Results are printed beside the numbers of `svod.schedule.costs_cpu` and kept in the
cache folder. Plans go on using the table: code must not depend on what a machine did on one day.
"""

from __future__ import annotations

import ctypes
import json
from collections.abc import Callable
from time import perf_counter_ns
from typing import Any

import numpy as np

from svod.base.hashing import digest
from svod.base.knobs import knobs
from svod.base.paths import cache_folder
from svod.base.store import BlobStore
from svod.schedule.costs import costs_of
from svod.schedule.costs_cpu import CPU
from svod.tools.report import Report, table

ELEMENTS = 4096  # float32 in the first cache, and too few for a second core
MORE, LESS = 40, 8  # operations on each
RUNS = 300
STEPS = 200_000  # of a native loop
CHAIN = 32  # dependent instructions in a step
KEPT_BYTES = 1 << 20


def tune_machine() -> Report:
    """Measure, keep, and show beside what the table says."""
    found = measure()
    _keep(found)
    rows = [
        (c.name, f"{c.value:g}", f"{found[c.measurement]:.3g}", c.unit)
        for c in costs_of(CPU)
        if c.measurement is not None
    ]
    numbers = {name: round(value, 6) for name, value in found.items()}
    return Report({"costs": numbers}, table([("cost", "table", "measured", "unit"), *rows]))


def measure() -> dict[str, float]:
    """Every cost that can be measured here, by its name; `element_ns` is their unit."""
    unit = element_operation_ns()
    found = {"element_ns": unit}
    for name, step in FUNCTIONS.items():
        per_element = _per_step(step, 2, 8) / ELEMENTS
        found[name] = max(0.0, per_element / unit - 1)  # each step has one multiplication more
    found["integer_division"] = max(0.0, _integer_division_ns() / unit - 1)
    found["load"] = max(0.0, _load_ns() / unit - 1)  # and one addition
    found["store"] = _store_ns() / unit
    found["kernel"] = _kernel_ns() / unit
    found["thread_work"] = _thread_ns() / unit
    found.update(native_costs())
    return found


# -- plans ---------------------------------------------------------------------------------------


def _best(run: Callable[[], object], runs: int = RUNS) -> int:
    """Nanoseconds of the fastest run."""
    times = []
    for _ in range(runs):
        start = perf_counter_ns()
        run()
        times.append(perf_counter_ns() - start)
    return min(times)


def _time(tensor: Any, runs: int = RUNS) -> int:
    plan = tensor.prepare()
    plan.execute()
    return _best(plan.execute, runs)


def _values(count: int = ELEMENTS) -> Any:
    from svod import Tensor

    return Tensor(np.linspace(0.5, 1.5, count, dtype=np.float32))


def _per_step(step: Callable[[Any], Any], less: int, more: int) -> float:
    """Nanoseconds that one more step over all elements takes."""

    def chain(count: int) -> Any:
        y = _values()
        for _ in range(count):
            y = step(y)
        return y

    return (_time(chain(more)) - _time(chain(less))) / (more - less)


def element_operation_ns() -> float:
    """One addition or multiplication of one element, in vectors: the unit of the cost model."""
    both = _per_step(lambda y: y * 0.75 + 0.25, LESS // 2, MORE // 2)
    return max(1e-6, both / 2 / ELEMENTS)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "exponential": lambda y: y.exp() * 0.25,
    "hyperbolic": lambda y: y.log1p() * 1.5,
    "division": lambda y: (1.5 / y) * 0.9,
    "reciprocal_root": lambda y: y.rsqrt() * 0.9,
    "power": lambda y: y.pow(y) * 0.9,
    "arc_tangent": lambda y: y.atan2(y * 0.5) * 0.9,
}


def _integer_division_ns() -> float:
    from svod import Tensor

    x = Tensor(np.arange(1 << 20, (1 << 20) + ELEMENTS, dtype=np.int32))
    divisor = Tensor(np.full(ELEMENTS, 7, np.int32))

    def chain(count: int) -> Any:
        y = x
        for _ in range(count):
            y = y // divisor + x
        return y

    return (_time(chain(6)) - _time(chain(2))) / 4 / ELEMENTS


def _load_ns() -> float:
    """One more operand that is in cache, read and added."""

    def total(count: int) -> Any:
        tensors = [_values(ELEMENTS // 4) for _ in range(count)]
        result = tensors[0]
        for t in tensors[1:]:
            result = result + t
        return result

    return (_time(total(13)) - _time(total(5))) / 8 / (ELEMENTS // 4)


def _store_ns() -> float:
    """A value written and read again, between two kernels, past the first cache."""
    count = 1 << 17
    twice = (_values(count) * 0.5).contiguous() + 1.0
    once = _values(count) * 0.5 + 1.0
    return max(0.0, _time(twice) - _time(once) - _kernel_ns()) / count


def _kernel_ns() -> float:
    """One more kernel in a plan."""

    def chain(count: int) -> Any:
        y = _values(16)
        for _ in range(count):
            y = (y * 0.5).contiguous()
        return y

    return max(0.0, (_time(chain(9)) - _time(chain(1))) / 8)


def _thread_ns() -> float:
    """Work of one core that takes as long as sharing it with another: where splitting pays."""
    from svod import OptimizerConfig, PrepareConfig
    from svod.optimize.opts import Opt

    lane = Opt("LANE", 0, 16)

    def run(opts: list[Opt]) -> int:
        plan = (_values() * 0.5 + 1.0).prepare(config=PrepareConfig(OptimizerConfig(opts=opts)))
        plan.execute()
        return _best(plan.execute)

    alone, shared = run([lane]), run([lane, Opt("THREAD", 0, 2)])
    return max(0.0, 2.0 * (shared - alone / 2))


# -- native loops --------------------------------------------------------------------------------


def native_costs() -> dict[str, float]:
    """Latency and bytes per cycle; a cycle is what a dependent integer addition takes."""
    from svod.device.cpu.compiler import load_image, object_for
    from svod.device.cpu.host import host_machine
    from svod.runtime.roofline import chains_ir, reads_ir

    machine = host_machine()
    lanes = machine.lanes(4)
    image = load_image(object_for(_additions_ir() + chains_ir(lanes, 1) + reads_ir(lanes)))
    scratch = np.full(4096, 0.5, np.float32)
    additions = _function(image, "additions", 2)
    cycle = _best(lambda: additions(STEPS, 3), 10) / STEPS / CHAIN
    chain = _function(image, "fma_chains", 2)
    latency = _best(lambda: chain(STEPS, scratch.ctypes.data), 10) / STEPS / cycle
    read = _function(image, "read_all", 3)

    def bytes_per_cycle(size: int, runs: int) -> float:
        source = np.ones(size // 4, np.float32)
        count = size // (8 * lanes * 4)
        given = (source.ctypes.data, count, scratch.ctypes.data)
        return size / (_best(lambda: read(*given), runs) / cycle)

    return {
        "cycle_ns": cycle,
        "fma_latency": latency,
        "panel_bytes": bytes_per_cycle(machine.l2_bytes // 2, 200),
        "memory_bytes": bytes_per_cycle(256 << 20, 4),
    }


def _function(image: Any, name: str, count: int) -> Callable[..., None]:
    kind = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * count)
    return kind(image.symbol(name))


def _additions_ir() -> str:
    """A loop of instructions that wait for each other and take a cycle each."""
    lines = ["define void @additions(i64 %steps, i64 %k) {", "entry:", "  br label %loop", "loop:"]
    lines.append("  %i = phi i64 [ 0, %entry ], [ %next, %loop ]")
    lines.append(f"  %x0 = phi i64 [ %k, %entry ], [ %x{CHAIN}, %loop ]")
    for n in range(CHAIN):
        lines.append(f"  %x{n + 1} = {'add' if n % 2 else 'xor'} i64 %x{n}, %k")
    lines += ["  %next = add i64 %i, 1", "  %more = icmp slt i64 %next, %steps"]
    lines += ["  br i1 %more, label %loop, label %exit", "exit:"]
    lines += ["  %kept = alloca i64", f"  store volatile i64 %x{CHAIN}, ptr %kept"]
    return "\n".join([*lines, "  ret void", "}", ""])


# -- on disk -------------------------------------------------------------------------------------


def _key() -> str:
    from svod.device.cpu.host import cpu_identity, identity, target

    return f"costs-{digest(1, cpu_identity(), identity(target()))}"


def _keep(found: dict[str, float]) -> None:
    if knobs.object_cache:
        BlobStore(cache_folder("machine"), KEPT_BYTES).put(_key(), json.dumps(found).encode())


def kept() -> dict[str, float] | None:
    """What was measured on this machine before."""
    data = BlobStore(cache_folder("machine"), KEPT_BYTES).get(_key())
    return None if data is None else dict(json.loads(data))
