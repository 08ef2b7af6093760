"""Random programs with random placements give what one device gives"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import svod
from svod import Tensor
from svod.distributed import Mesh, mesh

Values = list[Tensor]
Random = np.random.Generator


def _pair(random: Random, a: Tensor) -> Tensor:
    """A tensor of the same shape, or one that broadcasts against it."""
    shape = [n if random.random() < 0.7 else 1 for n in a.shape]
    return Tensor(random.integers(-3, 4, shape).astype(np.float32))


def _elementwise(random: Random, a: Tensor, place: Callable[[Tensor], Tensor]) -> Tensor:
    b = place(_pair(random, a))
    return [a + b, a - b, a * b, a.maximum(b), (a > b).where(a, b)][random.integers(5)]


def _movement(random: Random, a: Tensor, place: Callable[[Tensor], Tensor]) -> Tensor:
    order = [int(i) for i in random.permutation(a.ndim)]
    axis = int(random.integers(a.ndim))
    n = a.shape[axis]
    sizes = list(a.shape)
    choice = int(random.integers(6))
    if choice == 0:
        return a.permute(*order)
    if choice == 1:
        return a.flip(axis)
    if choice == 2 and n > 1:
        return a.narrow(axis, 1, n - 1)
    if choice == 3:
        return svod.cat([a, place(_pair(random, a)) + a * 0], axis)
    if choice == 4 and n % 2 == 0:
        return a.reshape(*sizes[:axis], 2, n // 2, *sizes[axis + 1 :])
    if choice == 5 and axis + 1 < a.ndim:
        return a.reshape(*sizes[:axis], n * sizes[axis + 1], *sizes[axis + 2 :])
    return a.reshape(*[m for m in sizes if m != 1] or [1])


def _reduction(random: Random, a: Tensor, place: Callable[[Tensor], Tensor]) -> Tensor:
    axis = int(random.integers(a.ndim))
    keep = bool(random.random() < 0.5)
    return [a.sum(axis, keepdim=keep), a.amax(axis, keepdim=keep)][random.integers(2)]


def _product(random: Random, a: Tensor, place: Callable[[Tensor], Tensor]) -> Tensor:
    width = int(random.choice([2, 4]))
    return a @ place(Tensor(random.integers(-2, 3, (a.shape[-1], width)).astype(np.float32)))


def _indexed(random: Random, a: Tensor, place: Callable[[Tensor], Tensor]) -> Tensor:
    if random.random() < 0.5:
        return a.sort(-1).values
    return a[place(Tensor(random.integers(0, a.shape[0], (4,))))]


STEPS = (_elementwise, _elementwise, _movement, _movement, _reduction, _product, _indexed)


def _program(seed: int, grid: Mesh | None) -> np.ndarray[Any, Any]:
    """One program; whole numbers, small enough that no order of sums matters."""
    random, choices = np.random.default_rng(seed), np.random.default_rng(seed + 1_000_000)

    def place(t: Tensor) -> Tensor:
        if grid is None:
            return t
        dims: list[str | None] = [None] * t.ndim
        for axis, size in grid.axes:
            free = [i for i, n in enumerate(t.shape) if dims[i] is None and n % size == 0]
            if free and choices.random() < 0.7:
                dims[int(choices.choice(free))] = axis
        return t.shard(grid, dims)

    a = place(Tensor(random.integers(-3, 4, (4, 8, 4)).astype(np.float32)))
    for _ in range(int(random.integers(2, 7))):
        if not a.ndim or a.numel() > 4096:
            break
        step = STEPS[int(random.integers(len(STEPS)))]
        a = step(random, a, place).clamp(-50, 50)
        if choices.random() < 0.2:
            a = place(a)
    return a.numpy()


@pytest.mark.parametrize("seed", range(8))
def test_a_random_program_over_a_mesh_is_what_one_device_gives(seed: int) -> None:
    _compare(seed)


@pytest.mark.long
@pytest.mark.parametrize("hundred", range(2))
def test_hundreds_of_random_programs_give_what_one_device_gives(hundred: int) -> None:
    for seed in range(100 + 100 * hundred, 200 + 100 * hundred):
        _compare(seed)


def _compare(seed: int) -> None:
    grid = mesh([{"data": 2}, {"data": 4}, {"data": 2, "model": 2}][seed % 3])
    np.testing.assert_array_equal(_program(seed, grid), _program(seed, None), err_msg=f"{seed}")
