"""Rows that one pass keeps for the next: in scratch memory, or where the result goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from svod import Tensor
from svod.codegen.pipeline import optimized
from svod.codegen.targets.cpu import cpu_target
from svod.ir import ops as O
from svod.ir.node import UOp
from svod.optimize.machine import Machine
from svod.optimize.rows import place_rows
from tests.optimize.kernels import floats
from tests.schedule.graphs import bodies

ONE_CORE = Machine(cores=1)


def kernel(out: Tensor, machine: Machine = ONE_CORE) -> UOp:
    (body,) = bodies(out)
    return optimized(body, cpu_target(machine))[0]


def has_scratch(sink: UOp) -> bool:
    return any(n.op == O.DEFINE_LOCAL for n in sink.toposort())


@pytest.mark.parametrize("columns", [17, 100, 1024, 32000])
@pytest.mark.parametrize("cores", [1, 2])
def test_softmax_keeps_its_rows_in_the_result(columns: int, cores: int) -> None:
    found = kernel(floats(4096, columns).softmax(-1), replace(ONE_CORE, cores=cores))
    assert has_scratch(found)
    assert not has_scratch(place_rows(found))


def test_light_values_are_kept_in_the_result_alone() -> None:
    found = kernel(floats(64, 512).log_softmax(-1))
    assert has_scratch(found)
    assert not has_scratch(place_rows(found))
    assert not has_scratch(kernel(floats(64, 512).log_softmax(-1) + floats(64, 512)))


@pytest.mark.parametrize("columns", [65536, 100000, 262144])
def test_long_rows_are_kept_in_the_result_alone(columns: int) -> None:
    found = kernel(floats(16, columns).softmax(-1))
    assert has_scratch(found)
    assert not has_scratch(place_rows(found))
    assert not has_scratch(kernel(floats(16, columns + 1).softmax(-1) + floats(16, columns + 1)))


def test_longer_rows_are_computed_again() -> None:
    assert not has_scratch(kernel(floats(16, 262145).softmax(-1)))


SCRATCH: dict[str, Callable[[], Tensor]] = {
    "reads the row again": lambda: floats(64, 512).softmax(-1) + floats(64, 512),
    "another dtype": lambda: floats(64, 512).softmax(-1).bfloat16(),
}


@pytest.mark.parametrize("name", SCRATCH)
def test_other_kernels_keep_their_rows_in_scratch_memory(name: str) -> None:
    found = kernel(SCRATCH[name]())
    assert has_scratch(found)
    assert place_rows(found) is found


def test_cores_that_share_a_row_have_scratch_memory_of_their_own() -> None:
    found = kernel(floats(3, 16000).softmax(-1), Machine(cores=4))
    assert has_scratch(found)
    assert place_rows(found) is found


def test_a_result_may_replace_what_it_is_made_of() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal((2, 40, 130), dtype=np.float32)
    weights = np.exp(y - y.max(1, keepdims=True))
    weights /= weights.sum(1, keepdims=True)
    target = Tensor(x).realize()
    target.assign(Tensor(y).softmax(-1) * target).realize()
    np.testing.assert_allclose(target.numpy(), weights * x, rtol=1e-5, atol=1e-7)
    target.assign(target.softmax(-1)).realize()
    grown = np.exp(weights * x)
    grown /= grown.sum(1, keepdims=True)
    np.testing.assert_allclose(target.numpy(), grown, rtol=1e-5)
    target.assign(target.log_softmax(-1)).realize()
    exact = grown - np.log(np.exp(grown).sum(1, keepdims=True))
    np.testing.assert_allclose(target.numpy(), exact, rtol=1e-5)
