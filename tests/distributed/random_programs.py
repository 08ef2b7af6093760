"""Random programs over random meshes with random placements, against one device.

python -m tests.distributed.random_programs FIRST LAST: the seeds that differ, and how many agree.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import svod
from svod import Tensor
from svod.distributed import Mesh, mesh

Random = np.random.Generator
GRIDS = ({"data": 2}, {"data": 4}, {"data": 2, "model": 2}, {"data": 3})


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


def _written(random: Random, a: Tensor, place: Callable[[Tensor], Tensor]) -> Tensor:
    """A copy, of which a part is overwritten."""
    start = int(random.integers(a.shape[0]))
    value = int(random.integers(-3, 4))
    a = a.clone()
    a[start : start + 2] = value
    return a


def _scattered(random: Random, a: Tensor, place: Callable[[Tensor], Tensor]) -> Tensor:
    rows = place(Tensor(random.integers(0, 4, (a.shape[0],))))
    return svod.zeros(4, *a.shape[1:]).to(a.device).index_add(0, rows, a)


def _folded(random: Random, a: Tensor, place: Callable[[Tensor], Tensor]) -> Tensor:
    axis = int(random.integers(a.ndim))
    return [a.cumsum(axis), a.argmax(axis).float(), (a > 0).any(axis).float()][random.integers(3)]


STEPS = (
    _elementwise, _elementwise, _movement, _movement, _reduction, _product, _indexed, _written,
    _scattered, _folded,
)  # fmt: skip


def _program(seed: int, grid: Mesh | None) -> np.ndarray[Any, Any]:
    """One program; whole numbers, small enough that no order of sums matters."""
    random, choices = np.random.default_rng(seed), np.random.default_rng(seed + 1_000_000)

    def place(t: Tensor) -> Tensor:
        if grid is None:
            return t
        dims: list[str | None] = [None] * t.ndim
        for axis, size in grid.axes:
            free = [
                i for i, n in enumerate(t.shape) if dims[i] is None and (n % size == 0 or n > 2)
            ]
            if free and choices.random() < 0.7:
                dims[int(choices.choice(free))] = axis
        return t.shard(grid, dims)

    shape = [int(n) for n in random.choice([3, 4, 5, 8], 3)]
    start = random.integers(-3, 4, shape).astype(np.float32)

    def run(a: Tensor) -> Tensor:
        for _ in range(int(random.integers(2, 7))):
            if not a.ndim or a.numel() > 4096:
                break
            step = STEPS[int(random.integers(len(STEPS)))]
            a = step(random, a, place).clamp(-50, 50)
            if choices.random() < 0.2:
                a = place(a)
        return a

    is_recorded = grid is not None and choices.random() < 0.3
    given = place(Tensor(start))
    return (svod.jit(run) if is_recorded else run)(given).numpy()


def compare(seed: int) -> None:
    """Raise where one program differs."""
    grid = mesh(GRIDS[seed % len(GRIDS)])
    np.testing.assert_array_equal(_program(seed, grid), _program(seed, None), err_msg=f"{seed}")


def main(first: int, last: int) -> int:
    """How many programs of a range differ."""
    wrong = 0
    for seed in range(first, last):
        try:
            compare(seed)
        except Exception as error:
            wrong += 1
            print(f"{seed}: {type(error).__name__}: {str(error).strip().splitlines()[0]}")
    print(f"{last - first - wrong} of {last - first} programs agree")
    return wrong


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])) > 0)
