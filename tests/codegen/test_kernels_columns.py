"""Reductions down columns that are swept row by row, their sums in scratch memory."""

from __future__ import annotations

import numpy as np
import pytest

from svod import Tensor
from svod.codegen.pipeline import generate
from svod.codegen.targets.cpu import cpu_target
from svod.optimize.actions import OptimizeError, apply_opts
from svod.optimize.machine import Machine
from svod.optimize.opts import Opt
from tests.codegen.test_kernels import check, data
from tests.optimize.kernels import MACHINE, floats, loops_of
from tests.schedule.graphs import bodies

SMALL = Machine(vector_bytes=64, registers=32, cores=2, l2_bytes=1 << 10)
SHAPES = [(9, 130), (16, 256), (40, 257), (17, 1000), (65, 134), (33, 512), (100, 64), (24, 4099)]


def opts_of(x: Tensor, machine: Machine = SMALL) -> list[str]:
    return [opt.name for opt in generate(bodies(x)[0], cpu_target(machine)).opts]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_sums_and_extremes_down_columns(shape: tuple[int, int]) -> None:
    check(lambda x: x.sum(0) + 1, data(shape))
    check(lambda x: (x * x).amax(0), data(shape))


@pytest.mark.parametrize("shape", [(9, 130), (40, 257), (33, 512)], ids=str)
def test_a_sum_that_needs_a_sum(shape: tuple[int, int]) -> None:
    check(lambda x: ((x - x.mean(0)) ** 2).sum(0), data(shape), tolerance=1e-6)


def test_two_sums_of_the_same_rows() -> None:
    check(lambda x: (x * x).sum(0) - x.sum(0) * 2, data((40, 257)))


@pytest.mark.parametrize("dtype", ["float16", "float64", "int32", "int8", "bool"])
def test_dtypes(dtype: str) -> None:
    check(lambda x: x.sum(0), data((33, 300), dtype))


def test_blocks_begin_anew_in_every_step_of_the_loops_around_them() -> None:
    x = Tensor(np.ones((3, 40, 5000), np.float32)).sum(1)
    assert "SWEEP" in opts_of(x)
    check(lambda x: x.sum(1), data((3, 40, 5000)))


def test_rows_that_stay_in_cache_keep_their_sums_in_registers() -> None:
    assert "SWEEP" in opts_of(floats(64, 512).sum(0))
    assert "SWEEP" not in opts_of(floats(64, 512).sum(0), MACHINE)
    assert "SWEEP" in opts_of(floats(2048, 2048).sum(0), MACHINE)


def test_rows_along_memory_are_not_swept() -> None:
    assert "SWEEP" not in opts_of(floats(64, 512).sum(1))
    assert "SWEEP" not in opts_of(floats(64, 512).permute(1, 0).sum(0))


REFUSED = [
    (lambda: floats(9, 130).sum(0) * 1, Opt("SWEEP", 1, 64), "the innermost output axis"),
    (lambda: floats(9, 130) + 1, Opt("SWEEP", 0, 64), "nothing is reduced along columns"),
    (lambda: floats(9, 3, 130).permute(1, 0, 2).sum((0, 1)), Opt("SWEEP", 0, 64), "several loops"),
]


@pytest.mark.parametrize("make, opt, reason", REFUSED, ids=[r for _, _, r in REFUSED])
def test_a_sweep_that_does_not_fit_is_refused(make, opt: Opt, reason: str) -> None:
    with pytest.raises(OptimizeError, match=reason):
        apply_opts(loops_of(bodies(make())[0]), [opt], MACHINE)
