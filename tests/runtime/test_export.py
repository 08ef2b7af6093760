"""Plans as code for programs without Python: the same bits, no memory taken, several at once."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.base.errors import ConfigError, UnsupportedError
from svod.device.cpu.compiler import emit_object
from svod.device.cpu.elf import ObjectImage
from svod.device.cpu.features import V3, host_features
from svod.device.cpu.host import architecture
from svod.device.cpu.targets import parse_target
from svod.device.launch import evaluate
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import const, make, variable
from svod.runtime.export.c_files import c_type
from svod.runtime.export.helpers_ir import helpers_ir
from svod.runtime.export.module_ir import ERRORS, expression_ir
from tests.runtime.exported import (
    Model,
    aligned,
    built_example,
    defined,
    needs_gcc,
    pointer,
    undefined,
)

OK, UNALIGNED, NO_MEMORY, OTHER_WEIGHTS, OUT_OF_BOUNDS, BAD_INDEX = range(6)
# All that an exported object asks of the system: nothing there takes memory or opens files.
EXPECTED = {
    "fma", "memcpy", "memset", "syscall", "sigfillset", "pthread_create", "pthread_join",
    "pthread_attr_init", "pthread_attr_setstacksize", "pthread_attr_destroy", "pthread_sigmask",
}  # fmt: skip
pytestmark = needs_gcc


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def perceptron(target: str | None = None) -> tuple[Any, np.ndarray]:
    x = Tensor(numbers(4, 32)).realize()
    w, v = Tensor(numbers(32, 40, seed=1)).realize(), Tensor(numbers(40, 10, seed=2)).realize()
    result = ((x @ w).relu() @ v).softmax(-1)
    plan = svod.prepare(result, inputs={"x": x}, outputs=["y"], freeze=True, target=target)
    return plan, numbers(4, 32, seed=3)


# -- the same bits ---------------------------------------------------------------------------------


def test_an_exported_plan_has_the_bits_of_the_plan(tmp_path: Path) -> None:
    plan, data = perceptron()
    run = Model(plan, tmp_path).start()
    for scale in (1, 3):
        found = run(x=data * scale)
        assert run.result == OK
        np.testing.assert_array_equal(found["y"], plan(x=data * scale))
    run.stop()


def test_large_kernels_are_spread_over_threads_with_the_same_bits(tmp_path: Path) -> None:
    x = Tensor(numbers(1, 16, 40, 40)).realize()
    w = Tensor(numbers(32, 16, 3, 3, seed=1)).realize()
    deep = x.conv2d(w, padding=1).relu().mean((2, 3))
    plan = svod.prepare(deep, x.exp().sum(1), inputs={"x": x}, outputs=["y", "z"], freeze=True)
    model, data = Model(plan, tmp_path, name="net"), numbers(1, 16, 40, 40, seed=5)
    expected = plan(x=data)
    for threads in (1, 2, 5, -3):
        run = model.start(threads)
        for _ in range(5):
            found = run(x=data)
            assert run.result == OK
            np.testing.assert_array_equal(found["y"], expected[0])
            np.testing.assert_array_equal(found["z"], expected[1])
        run.stop()


def test_sizes_are_given_to_every_run(tmp_path: Path) -> None:
    n = svod.Variable("n", 1, 64)
    batch = Tensor(numbers(64, 300))[: n.bind(2)]
    plan = svod.prepare((batch * 2).exp().sum(1), inputs={"x": batch}, outputs=["y"])
    run = Model(plan, tmp_path).start(2)
    data = numbers(64, 300, seed=4)
    for size in (1, 2, 17, 63, 64):
        found = run(x=data, n=size)["y"]
        assert run.result == OK
        np.testing.assert_array_equal(found[:size], plan(x=data[:size]))
    for size in (0, 65, -1, 1 << 40):
        run(x=data, n=size)
        assert run.result == OUT_OF_BOUNDS
    run.stop()


def test_state_is_kept_by_each_instance_alone(tmp_path: Path) -> None:
    total = Tensor(np.full(6, 10, np.float32)).realize()
    x = Tensor(np.zeros(6, np.float32)).realize()
    plan = svod.prepare(total.assign(total + x), inputs={"x": x}, outputs=["y"])
    names = [port.name for port in plan.ports]
    assert "x" in names and "y" in names
    model = Model(plan, tmp_path, inputs=["x"])
    first, second = model.start(), model.start()
    step = np.arange(6, dtype=np.float32)
    for turn in range(1, 4):
        np.testing.assert_array_equal(first(x=step)["y"], 10 + turn * step)
    np.testing.assert_array_equal(second(x=step)["y"], 10 + step)
    assert first.result == second.result == OK


def test_inputs_that_are_not_asked_for_are_weights(tmp_path: Path) -> None:
    x, w = Tensor(numbers(3, 5)).realize(), Tensor(numbers(5, 2, seed=1)).realize()
    plan = svod.prepare(x @ w, x + 1, inputs={"x": x, "w": w}, outputs=["y", "z"])
    data = numbers(3, 5, seed=2)
    expected = plan(x=data)
    with pytest.raises(ConfigError, match=r"'v' is no input of the plan; its inputs are x, w"):
        plan.export(tmp_path, inputs=["v"])
    model = Model(plan, tmp_path, inputs=["x"])
    assert "float *w" not in model.header and model.weights.nbytes >= 64 + w.nbytes
    found = model.start()(x=data)
    np.testing.assert_array_equal(found["y"], expected[0])
    np.testing.assert_array_equal(found["z"], expected[1])
    both = Model(plan, tmp_path / "both")
    np.testing.assert_array_equal(both.start()(x=data, w=w.numpy())["y"], expected[0])


def test_an_input_that_is_an_output_is_copied(tmp_path: Path) -> None:
    x = Tensor(numbers(4, 6)).realize()
    plan = svod.prepare(x[1:3], x.T, inputs={"x": x}, outputs=["part", "turned"])
    data = numbers(4, 6, seed=9)
    found = Model(plan, tmp_path).start()(x=data)
    np.testing.assert_array_equal(found["part"], data[1:3])
    np.testing.assert_array_equal(found["turned"], data.T)


@pytest.mark.parametrize("name", ["bool", "int8", "uint16", "int64", "float16", "bfloat16"])
def test_elements_of_every_kind(name: str, tmp_path: Path) -> None:
    dtype = getattr(svod, name)
    data = np.arange(33).reshape(3, 11) % 2
    x = Tensor(data).cast(dtype).realize()
    plan = svod.prepare((x + x).cast(dtype).sum(1), x * x, inputs={"x": x}, outputs=["s", "p"])
    given = x.numpy()
    found, expected = Model(plan, tmp_path).start()(x=given), plan(x=given)
    np.testing.assert_array_equal(found["s"], expected[0])
    np.testing.assert_array_equal(found["p"], expected[1])
    assert c_type(dtype) in (tmp_path / "model.h").read_text()


def test_loops_over_time_and_copies(tmp_path: Path) -> None:
    svod.manual_seed(0)
    x = Tensor(numbers(7, 2, 5)).realize()
    cell = svod.nn.LSTM(5, 6)
    plan = svod.prepare(cell(x)[0], inputs={"x": x}, outputs=["y"], freeze=True)
    run, data = Model(plan, tmp_path).start(2), numbers(7, 2, 5, seed=3)
    for _ in range(2):
        np.testing.assert_array_equal(run(x=data)["y"], plan(x=data))
    run.stop()


def test_an_index_out_of_range_ends_the_run_and_only_that(tmp_path: Path) -> None:
    table = Tensor(numbers(10, 4)).realize()
    index = Tensor(np.zeros(3, np.int32)).realize()
    plan = svod.prepare(table[index] * 2, inputs={"index": index}, outputs=["y"], freeze=True)
    run = Model(plan, tmp_path).start()
    good = np.array([1, -1, 9], np.int32)
    for _ in range(2):
        np.testing.assert_array_equal(run(index=good)["y"], table.numpy()[good] * 2)
        assert run.result == OK
        run(index=np.array([1, 10, 0], np.int32))
        assert run.result == BAD_INDEX


# -- what is refused -------------------------------------------------------------------------------


def test_what_is_wrong_is_said(tmp_path: Path) -> None:
    plan, data = perceptron()
    model = Model(plan, tmp_path)
    assert [f"MODEL_{word.upper()} = {n}" in model.header for n, word in enumerate(ERRORS)] == [
        True
    ] * len(ERRORS)
    other = model.weights.copy()
    other[20] ^= 1
    assert model.start(weights=aligned(other.tobytes())).started == OTHER_WEIGHTS
    assert model.start(weights=model.weights[1:]).started == UNALIGNED
    assert model.code.model_start(None, None, 1) == NO_MEMORY
    run = model.start()
    assert run.started == OK
    assert model.code.model_run(pointer(run.block), None, None) == NO_MEMORY
    np.testing.assert_array_equal(run(x=data)["y"], plan(x=data))


def test_names_that_c_does_not_take_are_refused(tmp_path: Path) -> None:
    plan, _ = perceptron()
    for name in ("my model", "9", "double", "class", ""):
        with pytest.raises(ConfigError, match="cannot be a name in C"):
            plan.export(tmp_path, name=name)
    x = Tensor(numbers(3)).realize()
    plan = svod.prepare(x + 1, inputs={"a.b": x}, outputs=["y"])
    with pytest.raises(ConfigError, match=r"'a\.b' cannot be a name in C"):
        plan.export(tmp_path)
    plan = svod.prepare(x + 1, inputs={"a": x}, outputs=["A"])
    with pytest.raises(ConfigError, match="'a' and another name of the plan differ in case alone"):
        plan.export(tmp_path)


def test_code_of_this_process_cannot_leave_it(tmp_path: Path) -> None:
    x = Tensor(np.eye(3, dtype=np.float32)).realize()
    plan = svod.prepare(svod.linalg.inv(x), inputs={"x": x})
    with pytest.raises(UnsupportedError, match="code of this process: it cannot be exported"):
        plan.export(tmp_path)


def test_machine_code_from_a_file_is_not_exported_but_graphs_are(tmp_path: Path) -> None:
    plan, data = perceptron()
    plan.save(tmp_path / "code.svod")
    with pytest.raises(UnsupportedError, match="holds no sources"):
        svod.load_plan(tmp_path / "code.svod").export(tmp_path)
    plan.save(tmp_path / "graphs.svod", portable=True)
    loaded = svod.load_plan(tmp_path / "graphs.svod")
    np.testing.assert_array_equal(Model(loaded, tmp_path).start()(x=data)["y"], plan(x=data))


# -- what an object holds --------------------------------------------------------------------------


def test_an_object_asks_for_nothing_that_takes_memory(tmp_path: Path) -> None:
    """Also where the processor lacks instructions: helpers are part of the object."""
    x = Tensor(numbers(8, 8)).realize()
    half = Tensor(numbers(8, 8).astype(np.float16)).realize()
    for target in (None, "x86-64-linux", "aarch64-linux"):
        result = ((x / 3).sin() + (half * half).float()).exp().sum(1)
        plan = svod.prepare(result, inputs={"x": x}, outputs=["y"], target=target)
        plan.export(tmp_path, inputs=["x"])
        code = (tmp_path / "model.o").read_bytes()
        assert undefined(code) <= EXPECTED, target
        assert defined(code) == {"model_start", "model_run", "model_stop"}


def test_systems_without_our_threads_get_none(tmp_path: Path) -> None:
    plan, _ = perceptron("aarch64-macos")
    plan.export(tmp_path)
    assert (tmp_path / "model.o").read_bytes()[:4] == b"\xcf\xfa\xed\xfe", "Mach-O"
    assert "Threads" not in (tmp_path / "CMakeLists.txt").read_text()
    plan, _ = perceptron("x86-64-v3-windows")
    plan.export(tmp_path)
    assert (tmp_path / "model.o").read_bytes()[:2] == b"\x64\x86", "COFF for x86-64"


def test_weights_of_the_same_model_can_be_exchanged(tmp_path: Path) -> None:
    """Trained further and exported again, only the file of weights is another one."""
    x, w = Tensor(numbers(2, 8)).realize(), Tensor(numbers(8, 8, seed=1)).realize()
    models = []
    for scale in (1.0, 2.0):
        weight = (w * scale).realize()
        plan = svod.prepare(x @ weight, inputs={"x": x}, outputs=["y"], freeze=True)
        models.append(Model(plan, tmp_path / str(scale)))
    data = numbers(2, 8, seed=2)
    run = models[0].start(weights=models[1].weights)
    assert run.started == OK
    np.testing.assert_array_equal(run(x=data)["y"], models[1].start()(x=data)["y"])


def test_expressions_of_sizes_round_as_launches_do() -> None:
    n = variable("n", -40, 40)
    trees = [
        make(op, dt.index, (n, const(m, dt.index)))
        for op in (O.ADD, O.SUB, O.MUL, O.IDIV, O.MOD, O.MAX)
        for m in (7, -3)
    ]
    trees += [make(O.NEG, dt.index, (n,)), make(O.ABS, dt.index, (n,)), const(7, dt.index), n]
    bodies = []
    for number, tree in enumerate(trees):
        lines, value = expression_ir(tree, {"n": "%n"}, "e")
        head = f"define i64 @f{number}(i64 %n) {{"
        bodies += [head, *lines, f"  ret i64 {value}", "}", ""]
    image = ObjectImage(emit_object("\n".join(bodies)))
    for number, tree in enumerate(trees):
        call = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(image.symbol(f"f{number}"))
        for value_of_n in range(-40, 41):
            assert call(value_of_n) == evaluate(tree, {"n": value_of_n}), O.NAMES[tree.op]


def test_helpers_give_the_bits_of_numpy() -> None:
    """All of float16, and floats around every place where rounding changes."""
    helpers = helpers_ir(parse_target("x86-64"))
    assert not helpers_ir(parse_target("x86-64-v3")) and not helpers_ir(parse_target("aarch64"))
    ends = """
define void @widen(ptr %from, ptr %to) {
  %h = load half, ptr %from
  %f = call float @__extendhfsf2(half %h)
  store float %f, ptr %to
  ret void
}
define void @narrow(ptr %from, ptr %to) {
  %f = load float, ptr %from
  %h = call half @__truncsfhf2(float %f)
  store half %h, ptr %to
  ret void
}
"""
    image = ObjectImage(emit_object(helpers + ends))
    kinds = ctypes.CFUNCTYPE(None, ctypes.c_size_t, ctypes.c_size_t)
    widen, narrow = kinds(image.symbol("widen")), kinds(image.symbol("narrow"))
    halves = np.arange(0, 1 << 16, 5, dtype=np.uint16).view(np.float16)
    wide = np.empty(halves.size, np.float32)
    for i in range(halves.size):
        widen(halves.ctypes.data + 2 * i, wide.ctypes.data + 4 * i)
    quiet = np.isnan(halves)
    assert np.isnan(wide[quiet]).all()
    expected = halves.astype(np.float32)
    np.testing.assert_array_equal(wide[~quiet].view("u4"), expected[~quiet].view("u4"))
    near = wide[~quiet].view(np.int32)
    floats = np.concatenate([near + d for d in (0, 1, -1, 0xFFF, 0x1000, 0x1001)]).view(np.float32)
    found = np.empty(floats.size, np.float16)
    for i in range(floats.size):
        narrow(floats.ctypes.data + 4 * i, found.ctypes.data + 2 * i)
    with np.errstate(over="ignore"):
        wanted = floats.astype(np.float16)
    numbers_only = ~np.isnan(floats)
    np.testing.assert_array_equal(found[numbers_only].view("u2"), wanted[numbers_only].view("u2"))
    assert np.isnan(found[~numbers_only]).all()


# -- many at once, and programs --------------------------------------------------------------------


def test_a_hundred_instances_in_threads(tmp_path: Path) -> None:
    x = Tensor(numbers(64, 96)).realize()
    w = Tensor(numbers(96, 64, seed=1)).realize()
    plan = svod.prepare((x @ w).softmax(-1), inputs={"x": x}, outputs=["y"], freeze=True)
    model = Model(plan, tmp_path)
    wrong: list[int] = []

    def work(number: int) -> None:
        data = numbers(64, 96, seed=number)
        run = model.start(1 + number % 3)
        found = [run(x=data)["y"] for _ in range(3)]
        run.stop()
        results[number] = (data, found, run.result)

    results: dict[int, Any] = {}
    threads = [threading.Thread(target=work, args=(number,)) for number in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, (data, found, result) in results.items():
        expected = plan(x=data)
        if result != OK or not all(np.array_equal(expected, each) for each in found):
            wrong.append(number)
    assert len(results) == 100 and not wrong


def test_the_example_runs_and_knows_its_files(tmp_path: Path) -> None:
    plan, data = perceptron()
    plan.export(tmp_path)
    data.tofile(tmp_path / "x.bin")
    program = built_example(tmp_path)
    subprocess.run([program, tmp_path, "2"], check=True, timeout=60)
    found = np.fromfile(tmp_path / "y.bin", np.float32).reshape(4, 10)
    np.testing.assert_array_equal(found, plan(x=data))
    (tmp_path / "model.weights").write_bytes(bytes((tmp_path / "model.weights").stat().st_size))
    failed = subprocess.run([program, tmp_path], capture_output=True, text=True, timeout=60)
    assert failed.returncode == 1
    assert "model_start: the weights were not exported with this code" in failed.stderr


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
@pytest.mark.skipif(
    architecture() != "x86_64" or not host_features() >= V3, reason="valgrind here is for x86-64"
)
@pytest.mark.long
def test_valgrind_finds_nothing(tmp_path: Path) -> None:
    """It knows no AVX-512, so the code is for a machine without."""
    x = Tensor(numbers(1, 3, 17, 17)).realize()
    w = Tensor(numbers(10, 3, 3, 3, seed=1)).realize()
    deep = x.conv2d(w, padding=1).relu().max_pool2d(2).softmax(1)
    plan = svod.prepare(deep, inputs={"x": x}, outputs=["y"], freeze=True, target="x86-64-v3")
    plan.export(tmp_path)
    data = numbers(1, 3, 17, 17, seed=4)
    data.tofile(tmp_path / "x.bin")
    program = built_example(tmp_path)
    for threads in ("1", "3"):
        found = subprocess.run(
            ["valgrind", "-q", "--error-exitcode=9", "--leak-check=full",
             program, tmp_path, threads],
            capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert found.returncode == 0, found.stderr
    expected = plan(x=data)
    np.testing.assert_array_equal(
        np.fromfile(tmp_path / "y.bin", np.float32).reshape(expected.shape), expected
    )


ARM_GCC, QEMU = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
ARM_LIBRARIES = "/usr/aarch64-linux-gnu"


@pytest.mark.skipif(
    not (ARM_GCC and QEMU and os.path.isdir(ARM_LIBRARIES)),
    reason="gcc-aarch64-linux-gnu, libc6-dev-arm64-cross and qemu-user are not all installed",
)
@pytest.mark.long
def test_an_export_for_aarch64_runs_under_qemu(tmp_path: Path) -> None:
    plan, data = perceptron("aarch64-linux")
    here, _ = perceptron("x86-64-v3-linux" if architecture() == "x86_64" else None)
    plan.export(tmp_path)
    data.tofile(tmp_path / "x.bin")
    program = built_example(tmp_path, compiler=str(ARM_GCC))
    for threads in ("1", "3"):
        subprocess.run([str(QEMU), "-L", ARM_LIBRARIES, program, tmp_path, threads], check=True)
        found = np.fromfile(tmp_path / "y.bin", np.float32).reshape(4, 10)
        np.testing.assert_allclose(found, here(x=data), rtol=2e-6)
