"""What this machine can do at best: the limits that a profile is compared with.

Two small kernels are generated, compiled and run on all threads: chains of fused multiply-adds
that never touch memory, and sums over far more memory than the caches hold. The result is measured
once per process, and kept on disk under the processor and the number of threads. A kernel whose
data is in cache may move more bytes than the second limit allows.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from time import perf_counter_ns

import numpy as np

from svod.base.hashing import digest
from svod.base.knobs import knobs
from svod.base.paths import cache_folder
from svod.base.store import BlobStore
from svod.runtime.native import RecordArray, launcher
from svod.runtime.profile import Roofline

FORMAT = 1  # of what is kept; changes when the measurement does
TURNS = 100_000  # of the chains: about 1.5 ms
READ_BYTES = 64 << 20  # each thread reads its part; no cache of today holds all of it
RUNS = 8
KEPT_BYTES = 1 << 20  # the folder holds one small file per machine

_measured: dict[int, Roofline] = {}  # by the number of threads


def measured_roofline() -> Roofline:
    """The limits with the present number of threads."""
    threads = launcher().threads
    found = _measured.get(threads)
    if found is None:
        found = _measured[threads] = _kept(threads) or _measure(threads)
    return found


def chains_ir(lanes: int, chains: int) -> str:
    """x = x * m + m, many times, for `chains` vectors; every x goes to 1 when m is a half."""
    vector = f"<{lanes} x float>"
    numbers = range(chains)
    function = f"@llvm.fmuladd.v{lanes}f32"
    return "\n".join(
        [
            f"declare {vector} {function}({vector}, {vector}, {vector})",
            "define void @fma_chains(i64 %turns, ptr %values) {",
            "entry:",
            f"  %m = load {vector}, ptr %values, align 4",
            "  br label %loop",
            "loop:",
            "  %turn = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *[f"  %x{i} = phi {vector} [ %m, %entry ], [ %y{i}, %loop ]" for i in numbers],
            *[
                f"  %y{i} = call {vector} {function}({vector} %x{i}, {vector} %m, {vector} %m)"
                for i in numbers
            ],
            "  %next = add i64 %turn, 1",
            "  %more = icmp slt i64 %next, %turns",
            "  br i1 %more, label %loop, label %exit",
            "exit:",
            *[f"  %p{i} = getelementptr {vector}, ptr %values, i64 {i}" for i in numbers],
            *[f"  store {vector} %y{i}, ptr %p{i}, align 4" for i in numbers],
            "  ret void",
            "}",
            "",
        ]
    )


def reads_ir(lanes: int) -> str:
    """Eight sums over a run of `count` times eight vectors, stored so that they are not dropped."""
    vector = f"<{lanes} x float>"
    numbers = range(8)
    return "\n".join(
        [
            "define void @read_all(ptr %from, i64 %count, ptr %to) {",
            "entry:",
            "  br label %loop",
            "loop:",
            "  %turn = phi i64 [ 0, %entry ], [ %next, %loop ]",
            *[f"  %x{i} = phi {vector} [ zeroinitializer, %entry ], [ %y{i}, %loop ]"
              for i in numbers],
            "  %first = shl i64 %turn, 3",
            *[f"  %at{i} = add i64 %first, {i}" for i in numbers],
            *[f"  %p{i} = getelementptr {vector}, ptr %from, i64 %at{i}" for i in numbers],
            *[f"  %v{i} = load {vector}, ptr %p{i}, align 4" for i in numbers],
            *[f"  %y{i} = fadd {vector} %x{i}, %v{i}" for i in numbers],
            "  %next = add i64 %turn, 1",
            "  %more = icmp slt i64 %next, %count",
            "  br i1 %more, label %loop, label %exit",
            "exit:",
            *[f"  %q{i} = getelementptr {vector}, ptr %to, i64 {i}" for i in numbers],
            *[f"  store {vector} %y{i}, ptr %q{i}, align 4" for i in numbers],
            "  ret void",
            "}",
            "",
        ]
    )  # fmt: skip


# Kernels as the launcher calls them: each core has its own 4 KB of the first buffer to write to,
# and its own part of the second to read.
_ENTRIES = """
define void @chains(ptr %buffers, ptr %values, i64 %core) {
  %to = load ptr, ptr %buffers
  %turns = load i64, ptr %values
  %offset = shl i64 %core, 12
  %own = getelementptr i8, ptr %to, i64 %offset
  call void @fma_chains(i64 %turns, ptr %own)
  ret void
}
define void @reads(ptr %buffers, ptr %values, i64 %core) {
  %to = load ptr, ptr %buffers
  %second = getelementptr ptr, ptr %buffers, i64 1
  %from = load ptr, ptr %second
  %count = load i64, ptr %values
  %part.at = getelementptr i64, ptr %values, i64 1
  %part = load i64, ptr %part.at
  %skip = mul i64 %core, %part
  %mine = getelementptr i8, ptr %from, i64 %skip
  %offset = shl i64 %core, 12
  %own = getelementptr i8, ptr %to, i64 %offset
  call void @read_all(ptr %mine, i64 %count, ptr %own)
  ret void
}
"""


class Limits:
    """The two kernels, ready to run: `compute` does `flops` operations, `read` reads `nbytes`."""

    def __init__(self, threads: int) -> None:
        from svod.device.cpu.compiler import load_image, object_for
        from svod.device.cpu.host import host_machine

        machine = host_machine()
        lanes = machine.lanes(4)
        chains = 16 if machine.registers >= 32 else 12  # more would spill with 16 registers
        image = load_image(object_for(chains_ir(lanes, chains) + reads_ir(lanes) + _ENTRIES))
        scratch = np.full(threads << 10, 0.5, np.float32)
        source = np.ones(READ_BYTES // 4, np.float32)
        step = 8 * lanes * 4
        count = READ_BYTES // threads // step
        self.flops = 2 * lanes * chains * TURNS * threads
        self.nbytes = threads * count * step
        self._held = image, scratch, source
        self._work, self._reads = RecordArray(), RecordArray()
        self._work.append(image.symbol("chains"), [scratch.ctypes.data], [TURNS], threads)
        self._reads.append(
            image.symbol("reads"), [scratch.ctypes.data, source.ctypes.data],
            [count, count * step], threads,
        )  # fmt: skip

    def compute(self) -> None:
        launcher().run(self._work)

    def read(self) -> None:
        launcher().run(self._reads)


def _measure(threads: int) -> Roofline:
    limits = Limits(threads)
    found = Roofline(limits.nbytes / _best(limits.read), limits.flops / _best(limits.compute))
    _keep(threads, found)
    return found


def _best(run: Callable[[], None]) -> int:
    """Nanoseconds of the fastest run."""
    times = []
    for _ in range(RUNS):
        start = perf_counter_ns()
        run()
        times.append(perf_counter_ns() - start)
    return max(1, min(times))


# -- on disk --------------------------------------------------------------------------------------


def _key(threads: int) -> str:
    from svod.device.cpu.host import cpu_identity, identity, target

    return f"roofline-{digest(FORMAT, cpu_identity(), identity(target()), threads)}"


def _kept(threads: int) -> Roofline | None:
    store = _store()
    data = store.get(_key(threads)) if store is not None else None
    try:
        return None if data is None else Roofline(**json.loads(data))
    except (ValueError, TypeError):
        return None


def _keep(threads: int, found: Roofline) -> None:
    store = _store()
    if store is not None:
        store.put(_key(threads), json.dumps(asdict(found)).encode())


def _store() -> BlobStore | None:
    if not knobs.object_cache:
        return None
    return BlobStore(cache_folder("machine"), KEPT_BYTES)
