"""Random programs of views, writes and recorded functions give what NumPy's views give."""

from __future__ import annotations

from random import SystemRandom

import pytest

from tests.fuzz.aliases import Program

BLOCK = 25
PROGRAMS = 75
FRESH = 25


def _run(seed: int, device: str | None = None) -> None:
    try:
        Program(seed, device).run()
    except Exception as error:
        error.add_note(f"python -m tests.fuzz.aliases {seed} {seed + 1}")
        raise


@pytest.mark.parametrize("first", range(0, PROGRAMS, BLOCK))
def test_tensors_that_show_each_others_elements_equal_arrays_that_do(first: int) -> None:
    for seed in range(first, first + BLOCK):
        _run(seed)


def test_fresh_programs_of_views_and_writes_equal_arrays() -> None:
    draw = SystemRandom()
    for _ in range(FRESH):
        _run(draw.randrange(100_000, 1 << 40))


def test_views_and_writes_on_the_reference_device_equal_arrays() -> None:
    for seed in range(5):
        _run(seed, "REF")
