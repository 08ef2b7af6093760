"""What CPU kernels are compiled for: one description, for the optimiser and for LLVM.

``SVOD_MACHINE`` names it. ``host`` is the processor of this process with all it has; the others are
what processors of a kind have in common, so that their code can be tried where there is more. A
text such as ``aarch64-linux+dotprod`` is a machine elsewhere, with facts of its own.
"""

from __future__ import annotations

import platform
from functools import cache

from svod.base.errors import DeviceError
from svod.base.knobs import knobs
from svod.base.system import system
from svod.device.cpu.features import (
    BASELINE,
    V2,
    V3,
    V4,
    cache_sizes,
    host_features,
    processor_model,
)
from svod.device.cpu.targets import SYSTEMS, Target, parse_target
from svod.optimize.machine import Machine

_NAMES = {"amd64": "x86_64", "arm64": "aarch64"}
_AVX512 = frozenset({"avx512f", "avx512bw", "avx512dq", "avx512vl"})
KINDS = ("host", "avx512", "avx2", "sse4", "neon", "generic")  # what SVOD_MACHINE takes
CORES = 8  # of a machine elsewhere: into how many parts a large kernel is split


def architecture() -> str:
    """The processor family of this process, by LLVM's name."""
    found = platform.machine().lower()
    return _NAMES.get(found, found)


def target() -> Target:
    """What kernels are compiled for now."""
    return target_of(knobs.machine)


@cache
def target_of(name: str) -> Target:
    """The target that a value of ``SVOD_MACHINE``, or the text of a machine, names."""
    here = architecture()
    if name not in KINDS:
        return parse_target(name)
    if name == "host":
        return Target(name, here, "", host_features() or None)
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


def triple(wanted: Target) -> str:
    """LLVM's name of the processor and the system of a target; empty for those of this process."""
    if runs_here(wanted) or (not wanted.is_named and wanted.architecture == architecture()):
        return ""
    return f"{wanted.architecture}-{SYSTEMS[wanted.system or 'linux']}"


def runs_here(wanted: Target) -> bool:
    """Whether this process can run the code of a target."""
    return not _obstacle(wanted)


def refuse_if_foreign(wanted: Target) -> None:
    """Raise where this processor cannot run the code of a target."""
    obstacle = _obstacle(wanted)
    if not obstacle:
        return
    if wanted.is_named:
        raise DeviceError(
            f"the plan was prepared for {wanted.name} and cannot run here: this processor "
            f"{obstacle}; save it and load it there, or export it"
        )
    raise DeviceError(
        f"SVOD_MACHINE={wanted.name} makes code that this processor cannot run: it {obstacle}; "
        "use SVOD_MACHINE=host"
    )


def _obstacle(wanted: Target) -> str:
    if wanted.architecture != architecture():
        return f"is {architecture()}, not {wanted.architecture}"
    if wanted.system and wanted.system != system().name:
        return f"runs {system().name}, not {wanted.system}"
    lacking = (wanted.features or frozenset()) - host_features()
    return f"lacks {', '.join(sorted(lacking))}" if lacking else ""


def host_machine() -> Machine:
    """The facts of what kernels are compiled for: vectors, registers, instructions, caches."""
    return machine_of(knobs.machine)


@cache
def machine_of(name: str) -> Machine:
    """The facts of a target; cores and caches are those of this processor, or usual ones where
    the target is elsewhere."""
    found = target_of(name)
    features = found.features or frozenset()
    width, registers = 16, 16
    if found.architecture == "aarch64":
        registers = 32
    elif features >= _AVX512:
        width, registers = 64, 32
    elif "avx2" in features:
        width = 32
    caches = {} if found.is_named else cache_sizes()
    return Machine(
        vector_bytes=width,
        registers=registers,
        cores=CORES if found.is_named else min(len(system().processors()), 64),
        l1_bytes=caches.get(1, 32 << 10),
        l2_bytes=caches.get(2, 1 << 20),
        stream_bytes=caches.get(3, 32 << 20),
        multipliers=1 if width == 64 else 2,
        has_masks=width == 64,
        has_parts=width == 64,
        has_fma=found.architecture != "x86_64" or "fma" in features,
        is_arm=found.architecture == "aarch64",
        dots=_dots(features, width),
    )


def _dots(features: frozenset[str], width: int) -> tuple[str, ...]:
    """Which words of narrow numbers the processor multiplies: of bytes with unlike signs u8s8,
    with like signs s8s8."""
    if width < 64:
        words = ("i16", "u8s8") if "avxvnni" in features and width == 32 else ()
        bytes_alike = ("s8s8",) if "dotprod" in features else ()
        return (*words, *bytes_alike, *(("u8s8",) if "i8mm" in features else ()))
    bf16 = ("bf16",) if "avx512bf16" in features else ()
    return (*bf16, "i16", "u8s8") if "avx512vnni" in features else bf16


def identity(wanted: Target) -> str:
    """Everything of a target that compiled code depends on."""
    return wanted.identity(cpu_identity())


@cache
def cpu_identity() -> str:
    """Architecture, model and features of this processor, as a part of keys."""
    model, number = processor_model()
    return f"{platform.machine()} {model} {number:x} {sorted(host_features())}"


def cpu_model() -> str:
    """This processor's name, for people."""
    return processor_model()[0]
