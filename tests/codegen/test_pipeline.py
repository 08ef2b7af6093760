"""The list of passes, and the verifiers that run after each of them."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

import svod
from svod.base.errors import VerifyError
from svod.base.knobs import knobs
from svod.codegen import pipeline
from svod.codegen.pipeline import optimized
from svod.codegen.target import Choices
from svod.codegen.targets.cpu import CHOOSING, LOWERING, cpu_target
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, const, make
from svod.ir.passes import run_passes
from svod.ir.verify import verify_kernel
from svod.optimize.machine import Machine
from svod.tensor.recording.realize import schedule_of

MACHINE = Machine(cores=2)
TARGET = cpu_target(MACHINE)
PASSES = CHOOSING + LOWERING


def body() -> UOp:
    x = svod.Tensor(np.zeros((48, 40), np.float32))
    schedule, _ = schedule_of([x.softmax(1)])
    return schedule.items[-1].body


def break_it(kernel: UOp, choices: Choices) -> UOp:
    """The kernel with a value of the wrong dtype stored."""
    end = kernel.src[0]
    store = end.src[0]
    wrong = make(O.STORE, dt.void, (store.src[0], const(1, dt.int64)))
    return make(O.SINK, dt.void, (make(O.END, dt.void, (wrong, *end.src[1:])),))


def test_passes_have_names_reasons_and_verifiers() -> None:
    names = [step.name for step in PASSES]
    assert len(set(names)) == len(names)
    assert names[:2] == ["rangeify", "optimize"]
    for step in PASSES:
        assert step.why and callable(step.run) and callable(step.verify)


def test_the_test_suite_runs_with_verification() -> None:
    assert knobs.verify


@pytest.mark.parametrize("number", range(len(PASSES)))
def test_a_pass_that_makes_a_malformed_kernel_is_named(number: int) -> None:
    with knobs.scope(VERIFY=0):
        before = run_passes(PASSES[:number], body(), choices := Choices(MACHINE))
    step = PASSES[number]
    broken = replace(step, run=lambda g, c: break_it(step.run(g, c), c))
    with knobs.scope(VERIFY=1), pytest.raises(VerifyError, match=f"after {step.name}: "):
        run_passes((broken,), before, choices)
    with knobs.scope(VERIFY=0):
        run_passes((broken,), before, choices)  # nothing is checked, nothing is said


def test_a_malformed_body_is_stopped_before_the_first_pass() -> None:
    store = body().src[0]
    wrong = make(O.SINK, dt.void, (make(O.STORE, dt.void, (store.src[0], const(1, dt.int8))),))
    with knobs.scope(VERIFY=1), pytest.raises(VerifyError, match="after cut: it writes i8"):
        optimized(wrong, TARGET)


def test_indices_are_machine_integers_after_lowering() -> None:
    kernel, opts = optimized(body(), TARGET)
    lowered = run_passes(LOWERING, kernel, Choices(MACHINE, opts))
    verify_kernel(lowered, shared_loops=True, lowered=True)
    with pytest.raises(VerifyError):  # the other way round each is refused
        verify_kernel(lowered, shared_loops=True)
    with pytest.raises(VerifyError, match="int64"):
        verify_kernel(kernel, shared_loops=True, lowered=True)


def test_verification_is_not_loaded_when_it_is_off() -> None:
    program = (
        "import sys, svod\n"
        "(svod.Tensor([1.0, 2.0]) + 1).realize()\n"
        "assert 'svod.ir.verify' not in sys.modules\n"
    )
    environment = {**os.environ, "SVOD_VERIFY": "0"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def test_work_counts_all_cores() -> None:
    x = svod.Tensor(np.zeros((128, 256), np.float32))
    w = svod.Tensor(np.zeros((256, 128), np.float32))
    schedule, _ = schedule_of([x @ w])
    (item,) = schedule.items
    for machine in (MACHINE, Machine(cores=1)):
        kernel, _ = optimized(item.body, cpu_target(machine))
        flops, moved = pipeline.work_of(item.body, kernel)
        assert flops == 2 * 128 * 256 * 128
        assert moved == 4 * (128 * 256 + 256 * 128 + 128 * 128)
