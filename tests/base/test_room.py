"""How much memory is left: limits of the process, of control groups, of the machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from svod.base.room import room

MB = 1 << 20


@pytest.fixture
def system(tmp_path: Path) -> dict[str, Path]:
    """A machine with 4 GB left and nothing else that limits."""
    (tmp_path / "self").mkdir()
    (tmp_path / "meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable: 4194304 kB\n")
    return {"root": tmp_path, "process": tmp_path / "self", "machine": tmp_path / "meminfo"}


def put(path: Path, **files: object) -> None:
    path.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (path / name.replace("__", ".")).write_text(f"{text}\n")


def test_the_machine(system: dict[str, Path]) -> None:
    assert room(**system) == 4 << 30
    system["machine"].unlink()
    assert room(**system) is None


def test_a_control_group_and_its_parents(system: dict[str, Path]) -> None:
    put(system["process"], cgroup="0::/a/b")
    put(system["root"] / "a", memory__max=100 * MB, memory__current=30 * MB)
    put(system["root"] / "a/b", memory__max="max", memory__current=30 * MB)
    assert room(**system) == 70 * MB
    put(system["root"] / "a", memory__stat=f"anon 5\ninactive_file {20 * MB}")
    assert room(**system) == 90 * MB, "pages of files can be had"


def test_the_first_version_of_control_groups(system: dict[str, Path]) -> None:
    put(system["process"], cgroup="3:cpuset:/\n4:memory:/job")
    group = system["root"] / "memory/job"
    put(group, memory__limit_in_bytes=50 * MB, memory__usage_in_bytes=60 * MB)
    assert room(**system) == 0
    put(group, memory__limit_in_bytes=9223372036854771712)
    assert room(**system) == 4 << 30


LIMITED = """
import resource
import numpy as np
from svod import Tensor
from svod.base.errors import CompileError
from svod.base.room import room
(Tensor(np.ones(8, np.float32)) + 1).realize()  # LLVM is loaded
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
x = y = Tensor(np.ones(64, np.float32)).realize()
for i in range(600):
    y = (y * 1.01 + x * (i * 0.1)).sin() if i % 3 == 0 else y * y + i * 0.3
resource.setrlimit(resource.RLIMIT_AS, (size + (60 << 20),) * 2)
assert room() < 61 << 20
try:
    y.realize()
except CompileError as problem:
    print(problem)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")
def test_a_kernel_that_llvm_has_no_memory_for_is_an_error_of_ours() -> None:
    """Without the check LLVM prints "out of memory" and aborts."""
    environment = {**os.environ, "SVOD_OBJECT_CACHE": "0", "SVOD_THREADS": "1"}
    found = subprocess.run(
        [sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=120,
        env=environment,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr[-2000:]
    assert "MiB are left: give the process more memory" in found.stdout
    assert "could not compile" in found.stdout
