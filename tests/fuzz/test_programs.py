"""Random programs give the same values on the CPU, in the evaluator, on REF and in NumPy."""

from __future__ import annotations

import pytest

from tests.fuzz.check import WAYS, compiling, failure
from tests.fuzz.programs import listing, make_program

BLOCK = 20
PROGRAMS = 500
WAY_PROGRAMS = 60


def _check(seeds: range, ref_device: bool = False, is_stored: bool = False) -> None:
    for seed in seeds:
        program = make_program(seed)
        wrong = failure(program, ref_device, is_stored)
        assert wrong is None, f"program {seed}: {wrong}\n{listing(program)}"


@pytest.mark.parametrize("first", range(0, PROGRAMS, BLOCK))
def test_random_programs_agree_everywhere(first: int) -> None:
    _check(range(first, first + BLOCK), ref_device=True)


@pytest.mark.parametrize("first", range(0, WAY_PROGRAMS, BLOCK))
@pytest.mark.parametrize("way", [w for w in WAYS if w != "default"])
def test_random_programs_agree_however_they_are_compiled(way: str, first: int) -> None:
    start = PROGRAMS + first
    with compiling(way):
        _check(range(start, start + BLOCK))


@pytest.mark.parametrize("first", range(0, WAY_PROGRAMS, BLOCK))
def test_random_programs_agree_with_every_value_stored(first: int) -> None:
    start = PROGRAMS + WAY_PROGRAMS + first
    _check(range(start, start + BLOCK), is_stored=True)
