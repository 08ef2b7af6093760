"""What CPU kernels are compiled for: one description, for the optimiser and for LLVM.

``SVOD_MACHINE`` names it. ``host`` is the processor of this process with all it has; the others are
what processors of a kind have in common, so that their code can be tried where there is more.
"""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from svod.base.errors import DeviceError
from svod.base.hashing import digest
from svod.base.knobs import knobs
from svod.device.cpu.features import BASELINE, V2, V3, V4, host_features, system_line
from svod.optimize.machine import Machine

_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}
_TRIPLES = {"x86_64": "x86_64-unknown-linux-gnu", "aarch64": "aarch64-unknown-linux-gnu"}
_AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})


@dataclass(frozen=True, slots=True)
class Target:
    """A processor, or what several have in common."""

    name: str
    architecture: str
    cpu: str  # LLVM's name of it; empty for that of this processor
    features: frozenset[str] | None  # by LLVM's names; None for what ``cpu`` has by itself

    def identity(self) -> str:
        """Everything of it that compiled code depends on."""
        features = "" if self.features is None else " ".join(sorted(self.features))
        model = "" if self.cpu else cpu_identity()
        return digest(self.architecture, self.cpu, features, model)

    def triple(self) -> str:
        """LLVM's name of the processor and the system; empty for those of this process."""
        is_here = self.architecture == architecture()
        return "" if is_here else _TRIPLES.get(self.architecture, self.architecture)

    def refuse_if_foreign(self) -> None:
        """Raise where this processor cannot run its code."""
        if self.architecture != architecture():
            lacks = f"is {architecture()}, not {self.architecture}"
        elif self.features is not None and not self.features <= host_features():
            lacks = f"lacks {', '.join(sorted(self.features - host_features()))}"
        else:
            return
        raise DeviceError(
            f"SVOD_MACHINE={self.name} makes code that this processor cannot run: it {lacks}; "
            "use SVOD_MACHINE=host"
        )


def architecture() -> str:
    """The processor family of this process, by LLVM's name."""
    found = platform.machine().lower()
    return _NAMES.get(found, found)


def target() -> Target:
    """What kernels are compiled for now."""
    return target_of(knobs.machine)


@cache
def target_of(name: str) -> Target:
    """The target that a value of ``SVOD_MACHINE`` names."""
    here = architecture()
    if name == "host":
        return Target(name, here, "", host_features() if here == "x86_64" else None)
    if name == "neon" or (name == "generic" and here == "aarch64"):
        return Target(name, "aarch64", "generic", None)
    if name == "generic" and here != "x86_64":
        return Target(name, here, "generic", None)
    cpu, features = {
        "avx512": ("x86-64-v4", V4),
        "avx2": ("x86-64-v3", V3),
        "sse4": ("x86-64-v2", V2),
        "generic": ("x86-64", BASELINE),
    }[name]
    return Target(name, "x86_64", cpu, features)


def host_machine() -> Machine:
    """The facts of what kernels are compiled for: vectors, registers, instructions, caches."""
    return machine_of(knobs.machine)


@cache
def machine_of(name: str) -> Machine:
    """The facts of a target; cores and caches are those of this processor."""
    found = target_of(name)
    features = found.features or frozenset()
    width, registers = 16, 16
    if found.architecture == "aarch64":
        registers = 32
    elif features >= _AVX512:
        width, registers = 64, 32
    elif "avx2" in features:
        width = 32
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
        has_fma=found.architecture != "x86_64" or "fma" in features,
        dots=_dots(features) if width == 64 else (),
    )


def _dots(features: frozenset[str]) -> tuple[str, ...]:
    """Which words of narrow numbers the processor multiplies."""
    bf16 = ("bf16",) if "avx512bf16" in features else ()
    return (*bf16, "i16", "u8s8") if "avx512vnni" in features else bf16


@cache
def cpu_identity() -> str:
    """Architecture, model and features of this processor, as a part of keys."""
    keys = ("model name", "cpu family", "model", "stepping", "CPU part")
    model = " | ".join([system_line(key) for key in keys])
    return f"{platform.machine()} {model or platform.processor()} {sorted(host_features())}"


def cpu_model() -> str:
    """This processor's name, for people."""
    return system_line("model name") or system_line("CPU part") or platform.processor()


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
