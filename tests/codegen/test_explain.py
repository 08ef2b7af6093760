"""Kernels as people see them: loop nests and C-like text, against golden files.

A golden file is rewritten with ``GOLDEN=write`` in the environment of the tests; read the
difference before keeping it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest

import svod
from svod.base.errors import EmptySchedule
from svod.base.knobs import knobs
from svod.codegen.choice import explicit_loops
from svod.codegen.explain import explain
from svod.codegen.linearize import linearize
from svod.codegen.render.c import render_c
from svod.codegen.render.expression import constant, expression
from svod.codegen.render.nest import render_nest
from svod.codegen.target import Choices
from svod.codegen.targets.cpu import LOWERING, cpu_target
from svod.device.cpu.host import host_machine
from svod.device.cuda.compiler import CudaCompiler, CudaRenderer
from svod.device.device import Device, Program, Toolchain
from svod.device.registry import get_device
from svod.device.spec import CompiledSpec
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, const, make, variable
from svod.ir.passes import run_passes
from svod.ir.text import parse
from svod.optimize.gpu_machine import GpuMachine
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from svod.optimize.tuned import Entry, tuned_store
from svod.runtime.chosen import known_loops
from svod.runtime.config import OptimizerConfig, PrepareConfig, Strategy
from svod.runtime.tuning import tuning_identity
from svod.tensor.recording.realize import schedule_of
from svod.tools.explain import explain as show
from svod.tools.explain import explanation
from tests.golden.digests import new_on

GOLDEN = Path(__file__).parent.parent / "golden"
NAMES = sorted([path.stem for path in GOLDEN.glob("*.kernel")])
MACHINE = Machine(vector_bytes=32, registers=16, cores=2)


def tensor(*shape: int) -> svod.Tensor:
    return svod.Tensor(np.zeros(shape, np.float32))


def bodies(result: svod.Tensor) -> list[UOp]:
    schedule, _ = schedule_of([result])
    return [item.body for item in schedule.items if item.body.op == O.SINK]


def check(path: Path, text: str) -> None:
    if os.environ.get("GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def golden_kernel(name: str) -> UOp:
    """A kernel after the opts, from its text."""
    return parse((GOLDEN / f"{name}.kernel").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", NAMES)
def test_the_loop_nest_is_as_in_the_golden_file(name: str) -> None:
    text = render_nest(golden_kernel(name)) + "\n"
    check(GOLDEN / f"{name}.nest", text)
    assert 2 <= text.count("\n") <= 20
    assert max(map(len, text.split("\n"))) <= 104


@pytest.mark.parametrize("name", NAMES)
def test_the_c_text_is_as_in_the_golden_file(name: str) -> None:
    lowered = run_passes(LOWERING, golden_kernel(name), Choices(MACHINE))
    text = render_c(name, lowered, linearize(lowered))
    check(GOLDEN / f"{name}.c", text)
    assert text.count("{") == text.count("}")


def test_explain_names_the_kernel_its_opts_and_its_work() -> None:
    product = (tensor(64, 96) @ tensor(96, 48) + tensor(48)).relu()
    (body,) = bodies(product)
    lines = explain(body, cpu_target(MACHINE)).split("\n")
    assert lines[0].startswith("kernel matmul")
    assert lines[1].startswith("opts   ") and "LANE" in lines[1]
    flops = 2 * 64 * 96 * 48  # and two per element for bias and relu
    assert lines[2] == f"work   {flops + 2 * 64 * 48:,} flops, 55,488 bytes at least"
    assert lines[3].startswith("panels none: the columns are read in place")
    assert lines[4] == "loops"
    text = "\n".join(lines)
    for name in ("p0[", "p1[", "p2[", "p3[", "acc0", "fma("):
        assert name in text


def test_explain_says_why_a_contraction_is_not_packed() -> None:
    for product, wanted in (
        (tensor(64, 96) @ tensor(96, 4), "panels none: 64 rows, 4 columns and 96 steps are few"),
        (tensor(96) @ tensor(96, 48), "loops"),
        (tensor(300, 700) @ tensor(700, 900), "loops"),
        (tensor(64, 96).softmax(-1), "loops"),
    ):
        (body,) = bodies(product)
        assert explain(body, cpu_target(MACHINE)).split("\n")[3] == wanted


def test_expressions_have_the_brackets_they_need() -> None:
    a, b, c = (variable(name, 0, 9) for name in "abc")
    names = {a: "a", b: "b", c: "c"}
    total = make(O.ADD, dt.index, (a, b))
    assert expression(make(O.MUL, dt.index, (total, c)), names) == "(a + b)*c"
    assert expression(make(O.ADD, dt.index, (a, make(O.MUL, dt.index, (b, c)))), names) == "a + b*c"
    assert expression(make(O.SUB, dt.index, (a, total)), names) == "a - (a + b)"
    assert expression(make(O.ADD, dt.index, (a, total)), names) == "a + a + b"
    minus = make(O.MUL, dt.index, (a, const(-1, dt.index)))
    assert expression(make(O.ADD, dt.index, (b, minus)), names) == "b - a"
    assert expression(make(O.LT, dt.bool_, (minus, const(1, dt.index))), names) == "a >= 0"


def test_constants_are_as_short_as_their_type_allows() -> None:
    assert constant(0.1, dt.float32) == "0.1"
    assert constant(0.10000000149011612, dt.float32) == "0.1"
    assert constant(0.1, dt.float64) == "0.1"
    assert constant(0.10000000149011612, dt.float64) == "0.10000000149011612"
    assert constant(float("inf"), dt.float32) == "inf"
    assert constant(float("nan"), dt.float32) == "nan"
    assert constant(True, dt.bool_) == "true"
    assert constant(-3, dt.int32) == "-3"


def test_explain_of_a_tensor_counts_calls_of_equal_kernels(
    capsys: pytest.CaptureFixture[str],
) -> None:
    x, w = tensor(64, 64), tensor(64, 64)
    for _ in range(4):
        x = (x @ w).relu()
    show(x)
    text = capsys.readouterr().out
    assert re.match(r"4 calls of [12] distinct kernels?\n", text)
    assert re.search(r"[34] calls of\nkernel matmul_max_64x64_64\n", text)
    assert "code\n" not in text


def test_explain_of_a_plan_shows_its_kernels_and_runs_nothing() -> None:
    plan = (tensor(32, 32) + 1).prepare()
    text = explanation(plan, code=True)
    assert text.startswith("1 call of 1 distinct kernel\n")
    assert "void add_32x32(" in text


def opts_line(text: str) -> str:
    return next(line for line in text.split("\n") if line.startswith("opts"))


def test_explain_shows_the_opts_a_plan_was_made_with() -> None:
    x = tensor(32, 32) + 1
    lanes = (Opt("LANE", 0, 4),)
    given, plain = OptimizerConfig(opts=lanes), OptimizerConfig(Strategy.NONE)
    assert opts_line(explanation(x, config=given)) == "opts   LANE(axis=0, amount=4) (given)"
    assert opts_line(explanation(x, config=plain)) == "opts   none (nobody)"
    plan = (tensor(32, 32) + 1).prepare(config=given)
    assert opts_line(explanation(plan)) == "opts   LANE(axis=0, amount=4) (given)"
    assert "lane" in explanation(plan) and "lane" not in explanation(x, config=plain)


def test_explain_shows_what_the_tuned_store_says(tmp_path: Path) -> None:
    (body,) = bodies(tensor(16, 48) * 3)
    with knobs.scope(cache_dir=str(tmp_path), tuned=True):
        before = opts_line(explanation(tensor(16, 48) * 3))
        entry = Entry((Opt("LANE", 0, 2),), 1e-6, 4)
        tuned_store().put(body.content_hash, tuning_identity(host_machine()), entry)
        after = opts_line(explanation(tensor(16, 48) * 3))
    assert after == "opts   LANE(axis=0, amount=2) (tuned)" and before != after


@pytest.mark.parametrize("kind", ["matmul", "softmax", "attention", "columns", "plain"])
def test_the_opts_of_the_heuristics_make_the_same_loops_again(kind: str) -> None:
    x = tensor(64, 96)
    made = {
        "matmul": lambda: x @ tensor(96, 48),
        "softmax": lambda: x.softmax(-1),
        "attention": lambda: x.scaled_dot_product_attention(x, x),
        "columns": lambda: tensor(4000, 700).sum(0),
        "plain": lambda: (x + 1).T,
    }[kind]()
    for body in bodies(made):
        found = known_loops(body, host_machine(), OptimizerConfig())
        assert explicit_loops(body, found.opts, host_machine()) is found.loops


def test_there_is_nothing_to_explain_of_a_realised_tensor() -> None:
    with pytest.raises(EmptySchedule, match="nothing to explain: every tensor is realised"):
        explanation((tensor(2, 2) + 1).realize())


def test_explain_shows_kernels_of_a_gpu_as_its_target_makes_them() -> None:
    """The GPU is one that no machine needs: texts are made, nothing runs."""
    toolchain = Toolchain(((CudaRenderer(GpuMachine()), CudaCompiler("sm_90a")),), _no_runtime)
    gpu = Device("CUDA", get_device("CPU").allocator, toolchain)
    config = PrepareConfig(device_resolver=lambda name: gpu if name == "CUDA" else get_device(name))
    new = new_on("CUDA")
    large = new(512, 512, dtype=dt.bfloat16) @ new(512, 512, dtype=dt.bfloat16)
    text = explanation(large, config=config, code=True)
    assert "TC(" in opts_line(text) and "none:" not in text and "wgmma" in text
    few = explanation(new(64, 96) @ new(96, 4), config=config)
    assert few.split("\n")[5] == "tile   none: 24576 multiplications are few"
    assert few.split("\n")[6] == "grid   g0:8, l0:32, l1:32" and "k0*128 + l" in few
    assert few.split("\n")[4] == f"work   {2 * 64 * 96 * 4:,} flops, 27,136 bytes at least"


def _no_runtime(compiled: CompiledSpec) -> Program:
    raise AssertionError("nothing is run")
