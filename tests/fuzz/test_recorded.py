"""Random functions give back and change the same things recorded as not."""

from __future__ import annotations

import random

import pytest

from tests.fuzz.recorded import difference

FRESH = random.SystemRandom().randrange(1 << 40)


@pytest.mark.parametrize("part", range(2))
def test_recorded_functions_do_what_the_functions_do(part: int) -> None:
    for seed in range(40 * part, 40 * part + 40):
        assert not difference(seed), f"seed {seed}"


def test_readers_without_elements_wait_for_nothing() -> None:
    assert not difference(9944)


def test_recorded_functions_of_fresh_seeds_do_too() -> None:
    for seed in range(FRESH, FRESH + 40):
        assert not difference(seed), f"seed {seed}"
