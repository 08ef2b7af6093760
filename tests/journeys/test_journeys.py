"""Whole programs against torch: eager, under jit, on the interpreter, on a GPU from the CPU."""

from __future__ import annotations

import importlib.util

import pytest

import svod
from tests.journeys.harness import FOLDER, Env, compare, expected, needs, run, runnable

JOURNEYS = [pytest.param(n, marks=[pytest.mark.long] if needs(n) else []) for n in runnable()]
HAS_TORCH = importlib.util.find_spec("torch") is not None


@pytest.mark.parametrize("name", JOURNEYS)
def test_a_program_gives_what_torch_gives(name, tmp_path):
    compare(run(name, Env(svod, folder=tmp_path)), expected(name)["full"])


@pytest.mark.parametrize("name", JOURNEYS)
def test_a_program_under_jit_gives_what_torch_gives(name, tmp_path):
    env = Env(svod, is_jit=True, folder=tmp_path)
    compare(run(name, env), expected(name)["full"])
    assert env.compiled, "a part of it is compiled"


@pytest.mark.long
@pytest.mark.parametrize("name", JOURNEYS)
def test_a_program_on_the_interpreter_gives_what_torch_gives(name, tmp_path):
    env = Env(svod, device="REF", small=True, folder=tmp_path)
    compare(run(name, env), expected(name)["small"])


@pytest.mark.long
@pytest.mark.skipif(not HAS_TORCH, reason="torch is not installed")
@pytest.mark.parametrize("name", JOURNEYS)
def test_the_recorded_results_are_those_of_torch(name, tmp_path):
    import torch

    compare(run(name, Env(torch, folder=tmp_path)), expected(name)["full"])
    compare(run(name, Env(torch, small=True, folder=tmp_path)), expected(name)["small"])


def test_there_are_sixty_programs_of_30_to_100_lines():
    files = list((FOLDER / "programs").glob("*.py"))
    assert len(files) >= 60
    for file in files:
        assert 30 <= len(file.read_text().splitlines()) <= 100, file.name
