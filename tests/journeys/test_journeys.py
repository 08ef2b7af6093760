"""Whole programs against torch: eager, under jit, on the interpreter, on a GPU from the CPU."""

from __future__ import annotations

import importlib.util

import pytest

import svod
from tests.journeys.harness import NAMES, Env, compare, expected, run

HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.mark.parametrize("name", NAMES)
def test_a_program_gives_what_torch_gives(name, tmp_path):
    compare(run(name, Env(svod, folder=tmp_path)), expected(name)["full"])


@pytest.mark.parametrize("name", NAMES)
def test_a_program_under_jit_gives_what_torch_gives(name, tmp_path):
    compare(run(name, Env(svod, is_jit=True, folder=tmp_path)), expected(name)["full"])


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_a_program_on_the_interpreter_gives_what_torch_gives(name, tmp_path):
    env = Env(svod, device="REF", small=True, folder=tmp_path)
    compare(run(name, env), expected(name)["small"])


@pytest.mark.long
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
@pytest.mark.parametrize("name", NAMES)
def test_the_recorded_results_are_those_of_torch(name, tmp_path):
    import torch

    compare(run(name, Env(torch, folder=tmp_path)), expected(name)["full"])
    compare(run(name, Env(torch, small=True, folder=tmp_path)), expected(name)["small"])
