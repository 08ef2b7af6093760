"""Loads of which no lane is wanted stay at the beginning of their array: pages may be missing."""

from __future__ import annotations

import re
from collections.abc import Callable

import numpy as np
import pytest

from svod import Tensor, cat
from svod.codegen.pipeline import generate
from svod.codegen.targets.cpu import cpu_target
from svod.optimize.machine import Machine
from tests.codegen.test_kernels import check, data
from tests.optimize.kernels import floats
from tests.schedule.graphs import bodies

WIDE = Machine(vector_bytes=64, registers=32)
LONG = 1 << 16


def places(x: Tensor) -> list[str]:
    """The address of every masked load, by the instruction that makes it."""
    (body,) = bodies(x)
    text = generate(body, cpu_target(WIDE)).text().function
    names = re.findall(r"@llvm\.masked\.load[^(]*\(ptr align \d+ (%\w+)", text)
    assert names
    made = dict(re.findall(r"(%\w+) = (\w+)", text))
    return [made.get(name, "") for name in names]


FAR: dict[str, Callable[[], Tensor]] = {
    "lines": lambda: cat([floats(LONG), floats(LONG)], 0),
    "lines of odd lengths": lambda: cat([floats(LONG - 5), floats(LONG)], 0),
    "rows": lambda: cat([floats(64, 1024), floats(64, 1024)], 0),
    "rolled": lambda: floats(64, 1024).roll(30, 0),
    "padded in front": lambda: floats(LONG).pad((LONG + 3, 0)),
}


@pytest.mark.parametrize("name", FAR)
def test_far_places_are_not_touched(name: str) -> None:
    assert "select" in places(FAR[name]())


def test_near_places_cost_nothing() -> None:
    assert "select" not in places(floats(8, 100).pad((3, 0)))


@pytest.mark.parametrize("lengths", [(70000, 70000), (69995, 65537), (5, 70000), (70000, 5)])
def test_lines_in_a_row(lengths: tuple[int, int]) -> None:
    check(lambda x, y: cat([x, y], 0) + 0, *[data((n,)) for n in lengths])


def test_a_window_inside_one_vector() -> None:
    """The gate holds for some lanes in the middle of a vector alone."""
    x = Tensor(np.arange(7, dtype=np.float32)).realize()
    wanted = np.pad(np.arange(7, dtype=np.float32), (40005, 40000))
    np.testing.assert_array_equal((x.pad((40005, 40000)) + 0).numpy(), wanted)
