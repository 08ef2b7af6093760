"""Printed loop nests against golden files: after rangeify, and after the opts for simple kernels.

A golden file is rewritten with ``GOLDEN=write`` in the environment of the tests; read the
difference before keeping it.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.ir.node import UOp
from svod.ir.text import dump, parse
from svod.optimize.heuristics import optimize
from svod.optimize.machine import Machine
from tests.schedule.graphs import bodies, loop_nest

GOLDEN = Path(__file__).parent.parent / "golden"
MACHINE = Machine(vector_bytes=64, registers=32, cores=2)


def floats(*shape: int) -> Tensor:
    return Tensor(np.ones(shape, np.float32))


def one_hot_rows() -> Tensor:
    rows = Tensor(np.array([3, 1], np.int32)).reshape(2, 1)
    hot = rows == svod.arange(100, dtype=svod.int32)
    return svod.where(hot.reshape(2, 100, 1), floats(1, 100, 8), 0.0).sum(1)


def softmax() -> Tensor:
    x = floats(6, 10)
    grown = (x - x.amax(1, True)).exp()
    return grown / grown.sum(1, True)


def assigned() -> Tensor:
    x = floats(4, 6).realize()
    part = x[1:3, 2:]
    return part.assign(part * 2)


NESTS = {
    "turned": lambda: floats(4, 6).permute(1, 0).flip(0) + 1,
    "bordered": lambda: floats(4, 6).pad(((1, 0), (0, 2))) * 2,
    "joined": lambda: svod.cat([floats(2, 3), floats(4, 3)], dim=0),
    "reshaped": lambda: floats(4, 6).permute(1, 0).reshape(3, 8),
    "picked": lambda: floats(5, 8)[Tensor(np.array([0, 4, 2]))],
    "one_hot": one_hot_rows,
    "product": lambda: floats(4, 5) @ floats(5, 6),
    "softmax_rows": softmax,
    "assigned": assigned,
}


def body_of(name: str) -> UOp:
    found = bodies(NESTS[name]())
    return found[-1]


def check(path: Path, text: str) -> None:
    if os.environ.get("GOLDEN") == "write":
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8"), f"{path.name} differs"


@pytest.mark.parametrize("name", NESTS)
def test_the_loops_of_a_kernel_are_as_in_the_golden_file(name: str) -> None:
    nest = loop_nest(body_of(name))
    text = dump(nest)
    check(GOLDEN / f"rangeify_{name}.txt", text)
    assert parse(text) is nest


@pytest.mark.parametrize("size", [64, 70])
def test_lanes_and_their_rest_are_as_in_the_golden_file(size: int) -> None:
    (body,) = bodies(floats(3, size).permute(1, 0) + 1)
    kernel, opts = optimize(loop_nest(body), MACHINE)
    text = "".join([f"# {opt}\n" for opt in opts]) + dump(kernel)
    check(GOLDEN / f"optimize_lanes_{size}.txt", text)


def test_a_row_sum_is_as_in_the_golden_file() -> None:
    (body,) = bodies(floats(5, 70).sum(1))
    kernel, opts = optimize(loop_nest(body), MACHINE)
    text = "".join([f"# {opt}\n" for opt in opts]) + dump(kernel)
    check(GOLDEN / "optimize_row_sum.txt", text)
