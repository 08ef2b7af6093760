"""Printed loop nests against golden files: after rangeify, and after single opts.

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
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp
from svod.ir.text import dump, parse
from svod.optimize.graph import renumber
from svod.optimize.opts import split, thread
from svod.tensor.core.tensor_core import wrap
from tests.schedule.graphs import bodies, loop_nest

GOLDEN = Path(__file__).parent.parent / "golden"
LANE, UPCAST = AxisKind.LANE, AxisKind.UPCAST


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
    return wrap(B.assign(part.uop, (part * 2).uop), part.device)


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


OPTS = {
    "lanes_with_a_rest": (lambda: floats(3, 70) * 2, lambda n: split(n, loop(n, 70), 16, LANE)),
    "lanes_of_a_sum": (lambda: floats(5, 70).sum(1), lambda n: split(n, loop(n, 70), 16, LANE)),
    "tile_with_a_rest": (lambda: floats(5, 70).sum(1), lambda n: split(n, loop(n, 5), 2, UPCAST)),
    "threads": (lambda: floats(7, 70).sum(1), lambda n: thread(n, loop(n, 7), 2)),
    "threads_and_a_rest": (
        lambda: floats(70, 9).permute(1, 0) + 1,
        lambda n: thread(split(n, loop(n, 70), 16, LANE), loop(n, 4), 2),
    ),
}  # fmt: skip


def loop(nest: UOp, size: int) -> UOp:
    """The loop of this size; after a split of 70 by 16 the outer one has 4 steps."""
    if size == 4:
        nest = split(nest, loop(nest, 70), 16, LANE)
    (found,) = [n for n in nest.toposort() if n.op == O.RANGE and n.vmax + 1 == size]
    return found


@pytest.mark.parametrize("name", OPTS)
def test_the_loops_after_an_opt_are_as_in_the_golden_file(name: str) -> None:
    build, opt = OPTS[name]
    (body,) = bodies(build())
    check(GOLDEN / f"opt_{name}.txt", dump(renumber(opt(loop_nest(body)))))
