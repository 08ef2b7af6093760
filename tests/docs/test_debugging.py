"""Every row of docs/debugging.md on a planted fault: the knob tells what the page says.

Each case is a program of its own process, once as it is and once with the knob of its row.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "debugging.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| ([^|]+?) \| `([^`]+)` \|", PAGE, re.MULTILINE))

START = """
import numpy as np
import svod
from svod.ir import ops as O
x = np.arange(1, 1238, dtype=np.float32)
def add():
    return (svod.Tensor(x) + svod.Tensor(x * 2)).numpy()
def says(right):
    print("right" if right else "wrong")
"""


class Page:
    """Runs programs, with the knob of a row if asked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, program: str, knob: str = "", **more: str) -> Any:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("SVOD_")}
        env = {**kept, "SVOD_CACHE_DIR": str(self.folder), "PYTHONPATH": str(ROOT), **more}
        if knob:
            name, _, value = knob.partition("=")
            env[name] = value
        file = self.folder / "program.py"
        file.write_text(START + program)
        return subprocess.run(
            [sys.executable, str(file)], env=env, capture_output=True, text=True, timeout=120
        )

    def verb(self, knob: str, **more: str) -> Any:
        env = {**os.environ, "PYTHONPATH": str(ROOT), **more}
        command = [sys.executable, "-m", *knob.split()]
        return subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)

    def first_knob(self, symptom: str) -> str:
        return ROWS[symptom]

    def pair(self, symptom: str, program: str) -> tuple[str, str]:
        """What the program prints without and with the knob of the row."""
        before, after = self.run(program), self.run(program, self.first_knob(symptom))
        assert before.returncode == after.returncode == 0, before.stderr + after.stderr
        return before.stdout.strip(), after.stdout.strip()


@pytest.fixture
def page(tmp_path: Path) -> Page:
    return Page(tmp_path)


WRONG_TEXT = """
from svod.codegen.render import llvm_values
llvm_values._FLOAT_OPS[O.ADD] = "fsub"
says(np.array_equal(add(), x * 3))
"""

WRONG_LOOPS = """
from svod.codegen.targets import cpu
from svod.ir.node import make, substitute
honest = cpu.optimize
def optimize(kernel, machine):
    found, opts = honest(kernel, machine)
    adds = [n for n in found.toposort() if n.op == O.ADD and n.dtype.kind == "f"]
    assert adds
    wrong = {n: make(O.SUB, n.dtype, n.src) for n in adds}
    return substitute((found,), wrong)[0], opts
"""


def test_a_wrong_result(page: Page) -> None:
    assert page.pair("the result is wrong", WRONG_TEXT) == ("wrong", "right")


def test_a_wrong_loop_choice(page: Page) -> None:
    program = WRONG_LOOPS + "cpu.optimize = optimize\nsays(np.array_equal(add(), x * 3))"
    assert page.pair("right on REF, wrong on the CPU", program) == ("wrong", "right")
    assert page.run(WRONG_TEXT, "SVOD_OPTIMIZE=0").stdout.strip() == "wrong"  # no loop choice


def test_a_pass_that_breaks_a_rule(page: Page) -> None:
    program = WRONG_LOOPS.replace("make(O.SUB, n.dtype", "make(O.LT, n.dtype")
    program += "cpu.optimize = optimize\nadd()"
    found = page.run(program, page.first_knob("a kernel is wrong, the pass is not known"))
    assert found.returncode != 0
    assert re.search(r"VerifyError: .*optimize: its dtype is f32", found.stderr), found.stderr


def test_the_graph_after_each_pass(page: Page) -> None:
    program = WRONG_LOOPS + "cpu.optimize = optimize\nadd()"
    symptom = "a graph is well-formed after every pass, and still wrong"
    text = page.run(program, page.first_knob(symptom)).stderr
    before, after = text.split("optimize", 1)[0], text.split("optimize", 1)[1]
    assert "rangeify" in before and "SUB" not in before and "SUB" in after


def test_last_bits(page: Page) -> None:
    program = """
values = np.random.default_rng(0).standard_normal(100_003).astype(np.float32)
print(svod.Tensor(values).sum().numpy().tobytes().hex())
"""
    lanes, plain = page.pair("last bits differ from run to run or machine to machine", program)
    assert lanes != plain
    assert page.run(program).stdout.strip() == lanes  # the same knobs give the same bits


def test_an_index_out_of_range(page: Page) -> None:
    program = "print(svod.Tensor(x)[svod.Tensor(np.array([5000]))].numpy())"
    found = page.run(program, page.first_knob("an index is out of range"))
    assert "5000 is out of range" in found.stderr and "program.py, line" in found.stderr
    assert page.run(program, "SVOD_CHECK_INDICES=0").stdout.strip() == "[0.]"


def test_loops_that_cannot_be_compiled(page: Page) -> None:
    program = """
from svod.codegen.targets import cpu
from svod.ir.args import AxisKind
for step in cpu.LOWERING:
    if step.name == "vectorize":
        run = step.run
        def planted(kernel, choices, run=run):
            if any(n.op == O.RANGE and n.arg.kind == AxisKind.LANE for n in kernel.toposort()):
                raise svod.base.errors.CompileError("planted: no lanes today")
            return run(kernel, choices)
        object.__setattr__(step, "run", planted)
says(np.array_equal(add(), x * 3))
from svod.codegen import plainer
print(plainer.latest[-1][1])
"""
    usual = page.run(program)
    assert usual.stdout.split("\n")[:2] == ["right", "planted: no lanes today"], usual.stderr
    strict = page.run(program, page.first_knob("loops cannot be compiled"))
    assert "CompileError: planted: no lanes today" in strict.stderr.replace("\n", " ")


def test_a_rewrite_that_does_not_end(page: Page) -> None:
    program = """
from svod.dtype import types as dt
from svod.ir.node import make, const, variable
from svod.ir.patterns import rule
from svod.ir.rewrite import compile_rules, rewrite
rules = [rule("left", (~O.SUB, "x", "y"), lambda x, y: make(O.MAX, x.dtype, (x, y))),
         rule("right", (~O.MAX, "x", "y"), lambda x, y: make(O.SUB, x.dtype, (x, y)))]
a, b = variable("a", 0, 9), variable("b", 0, 9)
rewrite((make(O.SUB, a.dtype, (a, b)),), compile_rules(rules, "planted"))
"""
    found = page.run(program, page.first_knob("a rewrite does not end"))
    assert "RewriteLoopError" in found.stderr and "left" in found.stderr


SLOW = "t = svod.Tensor(np.ones((256, 256), np.float32))\nplan = (t @ t).prepare()\n"


def test_a_slow_kernel(page: Page) -> None:
    program = SLOW + "(t @ t).realize()\nsvod.explain(plan)"
    knob = page.first_knob("a kernel is slow")
    quick = page.run(program, knob)
    slow = page.run(program, knob, SVOD_OPTIMIZE="0")
    assert re.search(r"matmul_256x256_256 .*%", quick.stderr) and "LANE(" in quick.stdout
    assert "LANE(" not in slow.stdout

    def micros(text: str) -> float:
        found = re.search(r"matmul_256x256_256 +\d+ +([\d.,]+)", text)
        assert found is not None, text
        return float(found[1].replace(",", ""))

    assert micros(slow.stderr) > 2 * micros(quick.stderr)


def test_a_search_for_loops(page: Page) -> None:
    program = "t = svod.Tensor(np.ones((96, 96), np.float32))\n(t @ t).realize()\nprint('done')"
    knob = page.first_knob("the opts are not what they could be")
    found = page.run(program, knob.replace("4", "1"), BEAM_TIMEOUT_SEC="5")
    assert found.stdout.strip() == "done"
    program = "t = svod.Tensor(np.ones((96, 96), np.float32))\nsvod.explain((t @ t).prepare())"
    tuned = page.run(program)
    plain = page.run(program, page.first_knob("searched loops may be to blame"))
    assert "(tuned)" not in plain.stdout and plain.returncode == tuned.returncode == 0


def test_too_many_kernels(page: Page) -> None:
    program = """
t = svod.Tensor(np.ones((64, 64), np.float32))
(t.exp().contiguous() + 1).realize()
"""
    text = page.run(program, page.first_knob("there are too many kernels")).stderr
    assert "schedule of 2 calls" in text and "after 0" in text


def test_slow_preparation(page: Page) -> None:
    program = """
import time
from svod.codegen.targets import cpu
honest = cpu.optimize
def slow(*given):
    time.sleep(1.5)
    return honest(*given)
cpu.optimize = slow
add()
from svod.base.timing import totals
print(next(iter(totals())))
"""
    found = page.run(program, page.first_knob("preparation is slow"))
    assert found.stdout.strip() == "optimize"
    took = re.search(r"prepared in ([\d.]+) ms", found.stderr)
    assert took is not None and float(took[1]) > 1500


def test_compiling_again_and_again(page: Page) -> None:
    program = """
for n in range(2, 6):
    (svod.Tensor(np.ones(n, np.float32)) * 3 + 1).realize()
"""
    knob = page.first_knob("it compiles again and again")
    text = page.run(program, knob, SVOD_WARN_RECOMPILE="2").stderr
    assert re.search(r"program.py:\d+ has compiled 2 different graphs", text)


def test_memory(page: Page) -> None:
    program = """
t = svod.Tensor(np.ones((128, 128), np.float32))
for _ in range(6):
    t = (t @ t).contiguous()
report = t.prepare().memory
print(report.logical_bytes, report.planned_bytes)
"""
    shared, apart = page.pair("it takes too much memory", program)
    logical, planned = map(int, shared.split())
    assert planned <= logical / 2
    assert int(apart.split()[1]) >= logical or apart == "0 0"


def test_a_crash(page: Page) -> None:
    program = """
from svod.codegen.render import llvm
honest = llvm.LLVMRenderer.render
def render(self, *given):
    crash = "  store volatile i8 0, ptr null\\n  ret void"
    return honest(self, *given).replace("  ret void", crash)
llvm.LLVMRenderer.render = render
add()
"""
    found = page.run(program, page.first_knob("the process crashes"))
    assert found.returncode < 0
    assert "Segmentation fault" in found.stderr and "program.py" in found.stderr


def test_what_is_kept_on_disk(page: Page) -> None:
    program = "says(np.array_equal(add(), x * 3))\nfrom svod.base.timing import totals\n"
    program += "print('llvm' in totals())"
    assert page.run(program).stdout.split() == ["right", "True"]
    assert page.run(program).stdout.split() == ["right", "False"]  # it came from disk
    knob = page.first_knob("something kept on disk may be to blame")
    assert page.run(program, knob).stdout.split() == ["right", "True"]


def test_a_knob_that_does_nothing(page: Page) -> None:
    found = page.verb(page.first_knob("a knob does nothing"), SVOD_DEBGU="1")
    assert "did you mean SVOD_DEBUG" in found.stdout


def test_a_gpu_that_is_not_found(page: Page) -> None:
    knob = page.first_knob("the GPU is not found")
    found = page.verb(knob, CUDA_VISIBLE_DEVICES="")
    assert re.search(r"gpu +CUDA is not available: ", found.stdout), found.stdout
    program = "svod.Tensor(x).to('CUDA')"
    assert "DeviceError: CUDA is not available" in page.run(program, CUDA_VISIBLE_DEVICES="").stderr


def test_tensor_cores(page: Page) -> None:
    """Loop choices for a GPU, which need none here, know what the knob leaves."""
    program = """
from svod.base.knobs import knobs
from svod.optimize.gpu_machine import GpuMachine
machine = GpuMachine(tensor_cores=knobs.tensor_cores)
print(machine.has_mma, machine.has_wgmma)
"""
    assert page.pair("a GPU kernel is wrong or does not compile", program) == (
        "True True", "False False",
    )  # fmt: skip


def test_every_row_is_tried_and_names_a_file() -> None:
    source = Path(__file__).read_text(encoding="utf-8")
    assert [symptom for symptom in ROWS if f'"{symptom}"' not in source] == []
    for file in re.findall(r"\| `([^`|]+)` \|$", PAGE, re.MULTILINE):
        assert (ROOT / file).exists(), file
