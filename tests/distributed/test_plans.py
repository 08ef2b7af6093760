"""Recorded and prepared functions over a mesh, padded axes, complex numbers, partial writes"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.distributed import Mesh, mesh
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.node import make
from svod.schedule.buckets import ALL_GATHER, ALL_REDUCE, Move, buckets

RANDOM = np.random.default_rng(8)
A = RANDOM.standard_normal((5, 7)).astype(np.float32)
W = RANDOM.standard_normal((7, 3)).astype(np.float32)
C = (RANDOM.standard_normal((4, 6)) + 1j * RANDOM.standard_normal((4, 6))).astype(np.complex64)


@pytest.fixture(name="grid")
def _grid() -> Mesh:
    return mesh({"data": 2, "model": 2})


def test_a_training_step_is_one_plan_over_a_mesh(grid: Mesh) -> None:
    def trained(place: Callable[[Tensor, str], Tensor]) -> tuple[list[float], int]:
        weight = place(Tensor(W), "model").realize().requires_grad_()
        optimizer = svod.optim.AdamW([weight], lr=0.05)

        @svod.jit
        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = ((place(x, "data") @ weight - 1) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss

        losses = [step(Tensor(A + i)).item() for i in range(4)]
        return [*losses, *weight.numpy().ravel()], step.plans

    wanted, _ = trained(lambda t, axis: t)
    found, plans = trained(lambda t, axis: t.shard(grid, (axis,)))
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    assert plans == 1


def test_the_placement_of_an_argument_is_part_of_the_signature(grid: Mesh) -> None:
    double = svod.jit(lambda x: x * 2)
    for spec in ((), ("data",), ("data",), (None, "model")):
        found = double(Tensor(A).shard(grid, spec))
        np.testing.assert_array_equal(found.numpy(), A * 2)
    assert double.plans == 3


def test_a_plan_that_writes_a_cache_reads_what_it_wrote(grid: Mesh) -> None:
    cache = Tensor(np.zeros((5, 7), np.float32)).shard(grid, ("data",)).realize()

    @svod.jit
    def write(x: Tensor) -> Tensor:
        cache[1:3] = x[:2] * 2
        cache[4] = x[4]
        return cache.sum(0)

    for i in range(2):
        wanted = np.zeros((5, 7), np.float32)
        wanted[1:3], wanted[4] = (A[:2] + i) * 2, A[4] + i
        np.testing.assert_allclose(write(Tensor(A + i)).numpy(), wanted.sum(0), rtol=1e-5)
        np.testing.assert_array_equal(cache.numpy(), wanted)


def test_a_prepared_plan_has_the_parts_as_its_ports(grid: Mesh) -> None:
    x = Tensor(A).shard(grid, ("data",))
    plan = svod.prepare(x * 2 + 1, inputs={"x": x})
    parts = np.zeros((4, 3, 7), np.float32)
    parts[:2], parts[2:, :2] = A[:3], A[3:]
    np.testing.assert_array_equal(plan(x=parts)[:, 0], parts[:, 0] * 2 + 1)


PADDED: dict[str, Callable[[Tensor], Tensor]] = {
    "sum": lambda a: a.sum(0),
    "product": lambda a: a.prod(1),
    "largest": lambda a: (a - 9).amax(0),
    "smallest": lambda a: (a + 9).amin(),
    "all": lambda a: (a > -9).all(1),
    "flip": lambda a: a.flip(0),
    "softmax": lambda a: a.softmax(0),
    "reshape": lambda a: a.reshape(7, 5),
    "expand": lambda a: a[:1].expand(4, 7) + 1,
    "sort": lambda a: a.sort(0).values,
    "scatter": lambda a: svod.zeros(3, 7).to(a.device).index_add(0, _rows(a), a),
    "gather": lambda a: a[_rows(a)],
    "assign": lambda a: a.clone().realize().add_(1),
}


def _rows(like: Tensor) -> Tensor:
    rows = Tensor(np.array([2, 0, 1, 2, 2]))
    return rows.to(like.device)


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", PADDED)
def test_an_axis_that_does_not_divide_has_no_influence(name: str, ranks: int) -> None:
    wanted = PADDED[name](Tensor(A)).numpy()
    for spec in (("data",), (None, "data")):
        found = PADDED[name](Tensor(A).shard(mesh({"data": ranks}), spec)).numpy()
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_complex_tensors_are_split_by_their_numbers(grid: Mesh) -> None:
    c = Tensor(C).shard(grid, ("data", "model"))
    np.testing.assert_array_equal(c.realize().numpy(), C)
    np.testing.assert_allclose((c @ c.T).numpy(), C @ C.T, rtol=1e-4, atol=1e-5)


def test_parts_of_a_sharded_tensor_are_written_in_order(grid: Mesh) -> None:
    x, wanted = Tensor(A).shard(grid, ("data",)).realize(), A.copy()
    x[1:3] = 0
    wanted[1:3] = 0
    x[2, ::2] += 1
    wanted[2, ::2] += 1
    x.T[3] = 5
    wanted.T[3] = 5
    np.testing.assert_array_equal(x.numpy(), wanted)


def _move(number: int, depends: int, depth: int, kind: str = ALL_REDUCE) -> Move:
    sent = B.full((1000,), number, dt.float32)
    node = make(O.CONTIGUOUS, dt.float32, (sent,))
    return Move(node, kind, "data", O.ADD, number, depends, depth)


def test_folds_that_are_ready_first_go_first_and_together() -> None:
    moves = [_move(0, 0, 9), _move(1, 0, 5), _move(2, 0, 7)]
    assert [[m.number for m in b] for b in buckets(moves, 8000)] == [[1, 2], [0]]
    # What depends on a fold comes after it, in another bucket; a gather waits for what it needs.
    moves = [_move(0, 0, 2), _move(1, 1, 4), _move(2, 1, 5, ALL_GATHER), _move(3, 0, 9)]
    assert [[m.number for m in b] for b in buckets(moves, 1 << 20)] == [[0], [2], [1, 3]]
