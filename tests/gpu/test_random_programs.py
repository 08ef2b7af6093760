"""Random programs give the values of NumPy on the GPU too."""

from __future__ import annotations

import warnings

import pytest

import svod
from tests.fuzz.programs import listing, make_program, shadows, tensors
from tests.fuzz.shadow import mismatch

BLOCK = 10


@pytest.mark.parametrize("first", range(0, 200, BLOCK))
def test_random_programs_agree_with_numpy(first: int) -> None:
    for seed in range(first, first + BLOCK):
        program = make_program(seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = shadows(program)
        found = tensors(program, "CUDA")
        svod.realize(*[found[i] for i in program.outputs])
        for number in program.outputs:
            wrong = mismatch(found[number].numpy(), wanted[number])
            assert wrong is None, f"program {seed}, v{number}: {wrong}\n{listing(program)}"
