"""`svod doctor`: what is installed, what the machine offers, and whether a computation is right.

Each check is one line: a name, what was found, and what to do where it is not well. A check that
fails with an exception is reported as such; the others still run.
"""

from __future__ import annotations

import platform
import sys
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from svod._version import __version__
from svod.base import paths
from svod.base.knobs import knobs, unknown_variables
from svod.base.threads import thread_budget
from svod.base.trust import Untrusted, check_folder, resolved
from svod.tools.report import Report, byte_size, table


@dataclass(slots=True)
class Check:
    """One line of the report."""

    name: str
    found: str
    ok: bool = True
    remedy: str = ""
    facts: dict[str, Any] = field(default_factory=dict)  # JSON values


def doctor() -> Report:
    """Run every check."""
    checks = [check for run in CHECKS for check in _guarded(run)]
    ok = all(check.ok for check in checks)
    rows = [("ok" if each.ok else "BAD", each.name, each.found) for each in checks]
    lines = table(rows).splitlines()
    text = []
    for each, line in zip(checks, lines, strict=True):
        text.append(line)
        if not each.ok and each.remedy:
            text.append(f"     → {each.remedy}")
    data = {"svod": __version__, "ok": ok, "checks": [asdict(check) for check in checks]}
    return Report(data, "\n".join(text), ok)


def versions() -> list[Check]:
    """Svod, Python and the three libraries it stands on."""
    import llvmlite
    import llvmlite.binding as llvm
    import ml_dtypes
    import numpy

    facts = {
        "svod": __version__,
        "python": platform.python_version(),
        "numpy": numpy.__version__,
        "llvmlite": llvmlite.__version__,
        "llvm": ".".join(map(str, llvm.llvm_version_info)),
        "ml_dtypes": ml_dtypes.__version__,
        "system": f"{platform.system()} {platform.machine()}",
    }
    found = ", ".join(f"{name} {version}" for name, version in facts.items())
    return [Check("versions", found, facts=facts)]


def processor() -> list[Check]:
    """The CPU as LLVM names it, its features, and the vector width that follows."""
    import llvmlite.binding as llvm

    name = llvm.get_host_cpu_name()
    features = sorted(k for k, present in llvm.get_host_cpu_features().items() if present)
    bits = vector_bits(set(features))
    facts = {"name": name, "vector_bits": bits, "features": features}
    listed = [each for each in features if each.startswith(NOTEWORTHY)]
    return [
        Check("cpu", f"{name}, {bits}-bit vectors ({bits // 32} × f32)", facts=facts),
        Check("cpu features", " ".join(listed) or "none of note"),
    ]


NOTEWORTHY = ("avx", "fma", "amx", "f16c", "sse4", "neon", "sve", "bf16", "fullfp16", "dotprod")


def vector_bits(features: set[str]) -> int:
    """The width of the widest vector registers, in bits."""
    if "avx512f" in features:
        return 512
    return 256 if features & {"avx", "avx2"} else 128


def threads() -> list[Check]:
    """The budget and the limits it comes from."""
    budget = thread_budget()
    limits = [f"{budget.cpus} processors", f"affinity {budget.affinity}"]
    limits += [f"cgroup {budget.cgroup:.2g}"] if budget.cgroup is not None else []
    limits += [f"OMP_NUM_THREADS {budget.omp}"] if budget.omp is not None else []
    limits += [f"SVOD_THREADS {budget.knob}"] if budget.knob else []
    crowded = budget.threads > budget.affinity
    return [
        Check(
            "threads",
            f"{budget.threads} ({', '.join(limits)})",
            not crowded,
            "SVOD_THREADS asks for more threads than processors; lower it" if crowded else "",
            asdict(budget),
        )
    ]


def caches() -> list[Check]:
    """The cache folders that exist, their sizes, and whether they can be written."""
    root = paths.cache_root()
    writable = paths.is_writable(root)
    folders = [each for each in sorted(root.iterdir()) if each.is_dir()] if root.is_dir() else []
    sizes = {folder.name: folder_bytes(folder) for folder in folders}
    shown = ", ".join(f"{name} {byte_size(size)}" for name, size in sizes.items()) or "empty"
    state = "" if knobs.object_cache else ", switched off by SVOD_OBJECT_CACHE=0"
    facts = {"folder": str(root), "writable": writable, "bytes": sizes}
    remedy = "" if writable else "give SVOD_CACHE_DIR a folder that can be written"
    try:
        check_folder(resolved(root / "objects"))
    except Untrusted as problem:
        remedy = remedy or str(problem)
    return [Check("caches", f"{root}: {shown}{state}", not remedy, remedy, facts)]


def folder_bytes(folder: Path) -> int:
    """The bytes of all files below a folder."""
    total = 0
    for each in folder.rglob("*"):
        try:
            total += each.stat().st_size if each.is_file() else 0
        except OSError:
            continue
    return total


def variables() -> list[Check]:
    """`SVOD_*` variables that mean nothing."""
    unknown = unknown_variables()
    if not unknown:
        return []
    return [Check("environment", " ".join(unknown), False, "no such variables; see `svod env`")]


def devices() -> list[Check]:
    """The devices that can be opened here."""
    from svod.device.registry import device_kinds

    names = device_kinds()
    default_known = knobs.device.split(":")[0].upper() in {n.split(":")[0].upper() for n in names}
    return [
        Check(
            "devices",
            f"{', '.join(names)}; default {knobs.device}",
            default_known,
            f"SVOD_DEVICE={knobs.device} names none of them",
            {"devices": names, "default": knobs.device},
        )
    ]


def gpus() -> list[Check]:
    """What the CUDA driver says of each GPU, or why there is none."""
    from svod.base.errors import DeviceError
    from svod.device.cuda.driver import gpu_facts, version_text

    try:
        found = gpu_facts()
    except DeviceError as problem:
        is_wanted = knobs.device.upper().startswith("CUDA")
        remedy = "SVOD_DEVICE asks for it" if is_wanted else ""
        return [Check("gpu", str(problem), not is_wanted, remedy)]
    checks = []
    for number, gpu in enumerate(found):
        capability = ".".join(map(str, gpu.capability))
        said = (
            f"CUDA:{number} {gpu.name}, capability {capability}, {gpu.multiprocessors} "
            f"multiprocessors, {byte_size(gpu.memory_bytes)}, driver for CUDA "
            f"{version_text(gpu.driver)}"
        )
        checks.append(Check("gpu", said, facts=gpu._asdict()))
    return checks


def self_test() -> list[Check]:
    """A small add and a small matmul on the default device, against NumPy."""
    import numpy as np

    import svod

    a = np.arange(35, dtype=np.float32).reshape(5, 7)
    b = np.arange(21, dtype=np.float32).reshape(7, 3) / 7
    checks = []
    for name, got, expected in (
        ("add", svod.Tensor(a) + svod.Tensor(a), a + a),
        ("matmul", svod.Tensor(a) @ svod.Tensor(b), a @ b),
    ):
        error = float(np.abs(got.numpy() - expected).max())
        right = error <= 1e-4 * float(np.abs(expected).max())
        remedy = "" if right else "wrong results: please report this with `svod doctor --json`"
        found = f"largest error {error:.2g}"
        checks.append(Check(f"self-test {name}", found, right, remedy, {"error": error}))
    return checks


CHECKS: tuple[Callable[[], list[Check]], ...] = (
    versions,
    processor,
    threads,
    caches,
    variables,
    devices,
    gpus,
    self_test,
)


def _guarded(run: Callable[[], list[Check]]) -> list[Check]:
    try:
        return run()
    except Exception as error:  # a doctor reports what is ill and goes on
        if knobs.debug:
            traceback.print_exc(file=sys.stderr)
        name = run.__name__.replace("_", "-")
        return [Check(name, f"{type(error).__name__}: {error}", False, "SVOD_DEBUG=1 shows where")]
