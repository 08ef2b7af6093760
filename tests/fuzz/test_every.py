"""Random programs of every kind with fresh seeds: CI has never run these before."""

from __future__ import annotations

from random import SystemRandom

import pytest

from tests.fuzz.every import KINDS, problem
from tests.fuzz.sizes import difference

FRESH = 300
BLOCK = 25
START = SystemRandom().randrange(1 << 30) * len(KINDS)


@pytest.mark.long
def test_programs_of_fresh_seeds_agree() -> None:
    for seed in range(START, START + FRESH):
        wrong = problem(seed)
        assert not wrong, f"python -m tests.fuzz {seed} {seed + 1}\n{wrong}"


@pytest.mark.parametrize("first", range(0, 50, BLOCK))
def test_one_plan_serves_every_size(first: int) -> None:
    for seed in range(first, first + BLOCK):
        assert not difference(seed), f"python -m tests.fuzz.sizes {seed} {seed + 1}"
