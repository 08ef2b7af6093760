"""The launcher in the life of a process: fork, signals, exit, a start without LLVM."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import llvmlite.binding as llvm
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from native_kernels import kernel, turns_in, zeros

from svod.runtime.native import RecordArray, launcher, set_threads
from svod.runtime.native.code import load_code
from svod.runtime.native.ir import launcher_ir
from svod.runtime.native.machine import machine_of

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs POSIX processes")

PREAMBLE = f"""
import os, signal, sys, threading, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
from native_kernels import kernel, turns_in, zeros
from svod.runtime.native import Kind, RecordArray, launcher, set_threads
out = zeros(64)
def plan(count, microseconds, cores):
    records = RecordArray()
    for _ in range(count):
        records.append(kernel("busy"), [out.ctypes.data], [turns_in(microseconds)], cores)
    return records
set_threads(2)
launcher().run(plan(3, 1, 2))
"""


def start(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PREAMBLE + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    try:
        output, errors = process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        output, errors = process.communicate()
        raise AssertionError(f"the process hangs: {output} {errors}") from None
    return process.returncode, output, errors


def in_child(body: object) -> int:
    """Run a function in a forked child; its exit status."""
    assert callable(body)
    child = os.fork()
    if child == 0:
        try:
            signal.alarm(20)
            body()
            os._exit(0)
        except BaseException as failure:
            os.write(2, f"{failure!r}\n".encode())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_a_forked_child_gets_a_pool_of_its_own() -> None:
    set_threads(2)
    out = zeros(16)
    records = RecordArray()
    for _ in range(100):
        records.append(kernel("count"), [out.ctypes.data], [], 16)
    launcher().run(records)

    def child() -> None:
        assert launcher().workers == 0
        for _ in range(20):
            launcher().run(records)
        assert (out == 2100).all() and launcher().workers == 1
        assert in_child(lambda: launcher().run(records)) == 0

    for _ in range(5):
        assert in_child(child) == 0
    launcher().run(records)
    assert (out == 200).all()


def test_fork_while_another_thread_uses_the_pool() -> None:
    set_threads(2)
    out, own = zeros(4), zeros(4)
    records, others = RecordArray(), RecordArray()
    for _ in range(50):
        records.append(kernel("busy"), [out.ctypes.data], [turns_in(20)], 4)
        others.append(kernel("count"), [own.ctypes.data], [], 4)
    ending = threading.Event()

    def keep_busy() -> None:
        while not ending.is_set():
            launcher().run(records)

    thread = threading.Thread(target=keep_busy)
    thread.start()
    try:
        for _ in range(5):
            assert in_child(lambda: launcher().run(others)) == 0
            launcher().run(others)
    finally:
        ending.set()
        thread.join()
    assert (own == 250).all()


@pytest.mark.parametrize("cores", [1, 2])
def test_control_c_comes_through_between_groups(cores: int) -> None:
    process = start(
        f"""
import signal; signal.signal(signal.SIGINT, signal.default_int_handler)  # also where it was ignored
records = plan(4000, 5000, {cores})
print("ready", flush=True)
try:
    launcher().run(records)
    print("finished")
except KeyboardInterrupt:
    print("interrupted", out[0] < 4000, len(os.sched_getaffinity(0)), flush=True)
launcher().run(plan(3, 1, 2))
print("again", flush=True)
"""
    )
    assert process.stdout is not None and process.stdout.readline() == "ready\n"
    time.sleep(0.15)
    sent = time.monotonic()
    process.send_signal(signal.SIGINT)
    status, output, errors = finish(process)
    mask = len(os.sched_getaffinity(0))
    assert (status, output) == (0, f"interrupted True {mask}\nagain\n"), errors
    assert time.monotonic() - sent < 3  # of which the end of the interpreter is a part


@pytest.mark.parametrize(
    ("program", "status"),
    [
        ("", 0),
        ("time.sleep(0.05)", 0),
        ("sys.exit(3)", 3),
        ("os._exit(4)", 4),
        ("raise ValueError", 1),
        ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(5)", -15),
        (
            "records = plan(100000, 1000, 2)\n"
            "threading.Thread(target=lambda: launcher().run(records), daemon=True).start()\n"
            "time.sleep(0.05)",
            0,
        ),
        ("import atexit\natexit.register(lambda: launcher().run(plan(3, 1, 2)))", 0),
        ("import atexit\natexit.register(set_threads, 1)", 0),
    ],
)
def test_the_process_ends_cleanly(program: str, status: int) -> None:
    got, _, errors = finish(start(program))
    assert got == status, errors
    assert "Fatal" not in errors


def test_a_warm_start_imports_no_llvm(tmp_path: Path) -> None:
    store: dict[str, bytes] = {}
    load_code(store.get, store.__setitem__)
    (data,) = store.values()
    (tmp_path / "launcher.o").write_bytes(data)
    program = f"""
import sys
from svod.runtime.native import Kind, RecordArray, load
data = open({str(tmp_path / "launcher.o")!r}, "rb").read()
records = RecordArray()
records.append(0, [], kind=Kind.NOTHING)
print(load(lambda key: data).run(records), "llvmlite" in sys.modules)
"""
    result = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert result.stdout == "1 False\n", result.stderr


@pytest.mark.parametrize(
    ("system", "processor", "triple"),
    [
        ("linux", "x86_64", "x86_64-unknown-linux-gnu"),
        ("linux", "aarch64", "aarch64-unknown-linux-gnu"),
        ("darwin", "arm64", "arm64-apple-macosx"),
        ("win32", "AMD64", "x86_64-pc-windows-msvc"),
    ],
)
def test_the_launcher_compiles_for_every_system(system: str, processor: str, triple: str) -> None:
    machine = machine_of(system, processor)
    assert machine is not None and (machine.calls is not None) == (system == "linux")
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    text = launcher_ir(machine)
    assert ("@syscall" in text) == (system == "linux")
    module = llvm.parse_assembly(text)
    module.verify()
    target = llvm.Target.from_triple(triple).create_target_machine(opt=2, reloc="pic")
    assert len(target.emit_object(module)) > 1000
