"""Whole programs that begin on the CPU and move to the GPU, against torch's recorded results."""

from __future__ import annotations

import pytest

import svod
from svod.base.knobs import knobs
from tests.journeys.harness import Env, compare, expected, run, runnable


@pytest.mark.parametrize("is_jit", [False, True], ids=["eager", "jit"])
@pytest.mark.parametrize("name", runnable())
def test_a_program_that_moves_to_the_gpu_gives_what_torch_gives(name, is_jit, tmp_path):
    with knobs.scope(device="CPU"):
        found = run(name, Env(svod, device="CUDA", is_jit=is_jit, folder=tmp_path))
    compare(found, expected(name)["full"], 1e-3)
