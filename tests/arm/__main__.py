"""`python -m tests.arm FOLDER`: a part of the suite on aarch64, with and without dot products.

Arguments after the folder take the place of the chosen files.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.arm.sysroot import build

# What a processor could get wrong: machine code, its loader, threads, memory, facts, kernels.
CHOSEN = """
    tests/base/test_system.py
    tests/device/test_machines.py
    tests/runtime/test_native_elf.py
    tests/runtime/test_native_launcher.py
    tests/optimize/test_bands.py
"""
PROCESSORS = ("cortex-a57", "max")  # NEON alone, and everything qemu knows


def main(folder: str, *files: str) -> int:
    python = build(Path(folder))
    command = [str(python), "-m", "pytest", "-n", "0", "-p", "no:cacheprovider",
               "--timeout", "900", *(files or CHOSEN.split())]  # fmt: skip
    failed = 0
    for processor in PROCESSORS:
        print(f"-- {processor}", flush=True)
        cache = Path(folder).resolve() / f"cache-{processor}"
        environment = {**os.environ, "ARM_CPU": processor, "XDG_CACHE_HOME": str(cache)}
        failed |= subprocess.run(command, env=environment).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
