"""Sums down the long columns of a large matrix: in pieces of whole rows, and what is not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from svod import Tensor
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import make
from svod.optimize.actions import chain
from svod.schedule import down
from svod.schedule.split_reduce import split_reductions
from tests.fuzz.check import evaluated
from tests.schedule.graphs import MACHINE, bodies, code, kernel_count

ROWS, COLUMNS = 4096, 1024


def matrix(rows: int = ROWS, columns: int = COLUMNS) -> Tensor:
    rng = np.random.default_rng(rows)
    return Tensor(rng.integers(-4, 5, (rows, columns)).astype(np.float32)).realize()


def vector(size: int) -> Tensor:
    return Tensor(np.random.default_rng(size).integers(-4, 5, size).astype(np.float32)).realize()


DOWN: dict[str, Callable[[], Tensor]] = {
    "a row times a matrix": lambda: vector(ROWS) @ matrix(),
    "one row": lambda: vector(ROWS).reshape(1, ROWS) @ matrix(),
    "with something after it": lambda: (vector(ROWS) @ matrix() + vector(COLUMNS)).relu(),
    "sum": lambda: matrix().sum(0),
    "sum of squares": lambda: (matrix() * matrix()).sum(0),
    "largest": lambda: matrix().amax(0),
    "with numbers": lambda: (matrix() * 0.5 + 1).masked_fill(matrix() < 0, 3.0).sum(0),
    "kept axis": lambda: matrix().sum(0, keepdim=True),
    "transposed twice": lambda: matrix(COLUMNS, ROWS).T.contiguous().sum(0),
    "long rows": lambda: matrix(512, 8192).sum(0),
}
WHOLE: dict[str, Callable[[], Tensor]] = {
    "along rows": lambda: matrix().sum(1),
    "a matrix times a column": lambda: matrix() @ vector(COLUMNS),
    "columns that lie in memory": lambda: matrix(COLUMNS, ROWS).T.sum(0),
    "small": lambda: matrix(ROWS // 2).sum(0),
    "short rows": lambda: matrix(1 << 13, 1 << 9).sum(0),
    "very long rows": lambda: matrix(256, 1 << 14).sum(0),
    "rows that cannot be shared": lambda: matrix(4097).sum(0),
    "every second column": lambda: matrix(ROWS, 2 * COLUMNS)[:, ::2].sum(0),
    "borders": lambda: matrix(ROWS - 8).pad((0, 0, 4, 4)).sum(0),
    "several rows": lambda: matrix(8, ROWS) @ matrix(),
}


@pytest.mark.parametrize("name", DOWN)
def test_values_in_pieces(name: str) -> None:
    want = evaluated(DOWN[name]())
    assert (DOWN[name]().numpy() == want).all()


@pytest.mark.parametrize("name", DOWN)
def test_pieces_are_whole_rows(name: str) -> None:
    first, last = bodies(DOWN[name]())[-2:]
    columns = 8192 if name == "long rows" else COLUMNS
    assert f"SWEEP(axis=1, amount={columns})" in chain(code(first, MACHINE).opts)
    assert "SWEEP" not in chain(code(last, MACHINE).opts)


@pytest.mark.parametrize("name", WHOLE)
def test_what_stays_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = kernel_count(WHOLE[name]())
    monkeypatch.setattr(down, "FROM", 1 << 60)
    assert found == kernel_count(WHOLE[name]())


def test_gpus_have_their_own_way() -> None:
    sink = make(O.SINK, dt.void, (matrix().sum(0).uop,))
    pieces = {}
    for in_blocks in (False, True):
        done = split_reductions(sink, None, in_blocks)
        (pieces[in_blocks],) = [n.shape for n in done.toposort() if n.op == O.CONTIGUOUS]
    assert pieces[False][0] == down.DOWN_PIECES
    assert pieces[True] == (ROWS // 1024, 1, COLUMNS)
