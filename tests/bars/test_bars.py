"""The bars that need neither a quiet machine nor another framework."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from svod.tools.bench import kernels, stress

PATIENCE = 10.0  # seconds; the bar is 3 on a quiet machine


def run(program: str, **variables: str) -> str:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SVOD_")}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env={**clean, **variables}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("piece", kernels.PIECES, ids=lambda piece: piece.name)
def test_a_piece_of_a_model_takes_few_kernels(piece: kernels.Piece) -> None:
    outcome = kernels.evaluate(piece)
    assert outcome.error <= 1e-4
    assert len(outcome.kernels) <= piece.limit, outcome.kernels


@pytest.mark.parametrize("length", [1, 7, 300])
def test_an_elementwise_chain_of_any_length_is_one_kernel(length: int) -> None:
    model = stress.chained(length)
    plan = model.run(model.tensors()).prepare()
    assert len(list(plan.kernels())) == 1


@pytest.mark.parametrize("strain", stress.STRAINS, ids=lambda strain: strain.name)
def test_a_large_graph_prepares_without_recursion(strain: stress.Strain) -> None:
    outcome = stress.evaluate(strain)
    assert outcome.error <= 1e-3
    assert outcome.seconds < PATIENCE


def test_import_loads_no_compiler_and_no_small_dtypes() -> None:
    program = "import svod, sys; print([m for m in ('llvmlite', 'ml_dtypes') if m in sys.modules])"
    assert run(program) == "[]"


def test_a_warm_process_does_not_load_llvm(tmp_path: Path) -> None:
    program = (
        "import svod, sys\n"
        "x = svod.Tensor([[1.0, 2.0], [3.0, 4.0]])\n"
        "print((x @ x).sum().item(), (x + 1).tolist(), 'llvmlite.binding' in sys.modules)"
    )
    cold = run(program, SVOD_CACHE_DIR=str(tmp_path))
    assert cold == "54.0 [[2.0, 3.0], [4.0, 5.0]] True"
    assert run(program, SVOD_CACHE_DIR=str(tmp_path)) == cold.replace("True", "False")
