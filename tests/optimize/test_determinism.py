"""The same bits on every run, with any number of threads; the same text in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from svod import Tensor
from svod.runtime.native import set_threads
from tests.fuzz.check import WAYS, Way, compiling

RANDOM = np.random.default_rng(7)
SQUARE = RANDOM.normal(size=(300, 257)).astype(np.float32)
LONG = RANDOM.normal(size=(700_001,)).astype(np.float32)
WIDE = RANDOM.normal(size=(64, 5003)).astype(np.float32)


def results() -> dict[str, bytes]:
    """Values whose last bits depend on the order of additions."""
    x, long, wide = Tensor(SQUARE), Tensor(LONG), Tensor(WIDE)
    grown = (wide - wide.amax(1, True)).exp()
    found = {
        "matmul": x.permute(1, 0) @ x,
        "sum of all": long.sum(),
        "sum of rows": wide.sum(1),
        "sum of columns": wide.sum(0),
        "softmax": grown / grown.sum(1, True),
        "mean of squares": (wide * wide).mean(),
        "product": (x * 0.01 + 1).prod(0),
    }
    return {name: value.numpy().tobytes() for name, value in found.items()}


@pytest.fixture
def threads() -> Iterator[None]:
    yield
    set_threads(0)


def test_any_number_of_threads_gives_the_same_bits(threads: None) -> None:
    set_threads(1)
    one = results()
    for count in (2, 3):
        set_threads(count)
        assert results() == one


def test_every_run_gives_the_same_bits() -> None:
    first = results()
    for _ in range(3):
        assert results() == first


@pytest.mark.parametrize("cores", [1, 2, 7])
def test_any_number_of_parts_gives_the_same_bits(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = results()
    monkeypatch.setitem(WAYS, "parts", Way(machine={"cores": cores}))
    with compiling("parts"):
        assert results() == want


def test_kernels_are_the_same_text_in_every_process(tmp_path: Path) -> None:
    def run(way: str, seed: str) -> str:
        command = [sys.executable, "-W", "ignore", "-m", "tests.optimize.texts", way]
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [*command, str(tmp_path / "graphs")],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout

    first = run("left", "1")
    assert len(first.splitlines()) > 60
    assert run("right", "2") == first
