"""The bar of the search: it ends in time, and what it returns is never slower than before."""

from __future__ import annotations

import time
from pathlib import Path

from svod.base.knobs import knobs
from svod.device.cpu.host import host_machine
from svod.optimize.beam import BeamConfig
from svod.runtime.chosen import tuned_loops
from svod.runtime.search import search_kernel
from svod.tools.tune import target_kernels

PATIENCE = 60.0  # seconds


def test_the_search_for_a_large_matmul_ends_and_never_loses(tmp_path: Path) -> None:
    (body,) = target_kernels("matmul:1024x1024x1024")
    machine = host_machine()
    with knobs.scope(cache_dir=str(tmp_path)):
        start = time.monotonic()
        result = search_kernel(body, machine, BeamConfig(width=2, seconds=6.0))
        assert time.monotonic() - start < PATIENCE
        assert result.seconds <= result.heuristic_seconds
        assert result.tried >= 2  # the loops of the rules and others, however slow the machine is
        found = tuned_loops(body, machine, 2)
        assert found is not None and found.loops is result.kernel
