"""Facts of the host CPU that shape kernels, found without loading LLVM."""

from __future__ import annotations

import os
import platform
import re
from functools import cache
from pathlib import Path

from svod.optimize.machine import Machine


@cache
def cpu_identity() -> str:
    """Architecture, model and feature flags: what compiled code depends on."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    lines = []
    for key in ("model name", "cpu family", "model", "stepping", "flags", "Features", "CPU part"):
        found = re.search(rf"^{key}\s*:\s*(.*)$", text, re.MULTILINE)
        if found:
            lines.append(found.group(1))
    return f"{platform.machine()} " + " | ".join(lines)


@cache
def host_machine() -> Machine:
    """Vector width, registers and caches of this CPU."""
    flags = set(cpu_identity().split())
    architecture = platform.machine().lower()
    if "avx512f" in flags and "avx512vl" in flags:
        width, registers = 64, 32
    elif "avx2" in flags:
        width, registers = 32, 16
    elif architecture in ("aarch64", "arm64"):
        width, registers = 16, 32
    else:
        width, registers = 16, 16
    if not hasattr(os, "sched_getaffinity"):
        cores = os.cpu_count() or 1
    else:
        cores = len(os.sched_getaffinity(0))
    return Machine(
        vector_bytes=width,
        registers=registers,
        cores=min(cores, 64),
        l1_bytes=_cache_bytes(1, 32 << 10),
        l2_bytes=_cache_bytes(2, 1 << 20),
        stream_bytes=_cache_bytes(3, 32 << 20),
        has_masks=width == 64,
        has_parts=width == 64,
        dots=_dots(flags, width),
    )


def _dots(flags: set[str], width: int) -> tuple[str, ...]:
    """Which words of narrow numbers the processor multiplies."""
    if width != 64:
        return ()
    bf16 = ("bf16",) if "avx512_bf16" in flags else ()
    return (*bf16, "i16", "u8s8") if "avx512_vnni" in flags else bf16


def _cache_bytes(level: int, default: int) -> int:
    base = Path("/sys/devices/system/cpu/cpu0/cache")
    for index in range(8):
        folder = base / f"index{index}"
        try:
            if int((folder / "level").read_text()) != level:
                continue
            if (folder / "type").read_text().strip() == "Instruction":
                continue
            size = (folder / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        if size.endswith("K"):
            return int(size[:-1]) << 10
        if size.endswith("M"):
            return int(size[:-1]) << 20
    return default
