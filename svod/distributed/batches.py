"""Batches of a data set over the ranks: the same order for all, each process reads its own part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Any

import numpy as np

from svod.base.errors import ConfigError
from svod.data.samplers import Sampler
from svod.dtype.convert import from_numpy
from svod.ir import build as B
from svod.ir.placement import Mesh, Placed
from svod.schedule.collectives import local_shape, part_of
from svod.tensor.tensor import Tensor


class BatchesOfRank(Sampler):
    """Batches of indices, of which each process gets those of its own ranks.

    The order comes from ``seed`` and the number of the pass alone: whatever the number of ranks, a
    step trains with the same samples. Set ``first`` to go on within a pass.
    """

    def __init__(
        self,
        data_source: Sized,
        batch_size: int,
        grid: Mesh,
        axis: str = "data",
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = True,
    ) -> None:
        if batch_size < 1:
            raise ConfigError(f"a batch has at least one sample, not {batch_size}")
        grid.size(axis)
        self.data_source, self.batch_size, self.grid, self.axis = (
            data_source, batch_size, grid, axis,
        )  # fmt: skip
        self.shuffle, self.seed, self.drop_last = shuffle, seed, drop_last
        self.epoch, self.first = 0, 0

    def set_epoch(self, epoch: int) -> None:
        """Which pass comes next, and from its first batch."""
        self.epoch, self.first = epoch, 0

    def __len__(self) -> int:
        whole, rest = divmod(len(self.data_source), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        count = len(self.data_source)
        order = np.arange(count)
        if self.shuffle:
            order = np.random.default_rng((self.seed, self.epoch)).permutation(count)
        for number in range(self.first, len(self)):
            batch = order[number * self.batch_size : (number + 1) * self.batch_size]
            yield [int(i) for i in own_rows(batch, self.grid, self.axis)]
        self.epoch, self.first = self.epoch + 1, 0


def own_rows(rows: Any, grid: Mesh, axis: str = "data") -> Any:
    """Of rows for all ranks, those that the ranks of this process have."""
    if grid.is_whole:
        return rows
    size = part_of(len(rows), grid.size(axis))
    place = grid.coordinate(grid.hosted[0], axis)
    return rows[place * size : (place + 1) * size]


def from_own_rows(array: Any, grid: Mesh, count: int | None = None, axis: str = "data") -> Tensor:
    """A tensor that is split along its first axis, of the rows that this process has read.

    ``count`` is how many rows all ranks have together, where that is not this many for each.
    """
    given = np.ascontiguousarray(array)
    if grid.is_whole:
        return Tensor(given).shard(grid, (axis,))
    size = grid.size(axis)
    whole = (len(given) * size if count is None else count, *given.shape[1:])
    dims = (axis, *[None] * (given.ndim - 1))
    grid.check(dims, whole)
    shape = local_shape(grid, whole, dims)
    if len(given) > shape[0]:
        raise ConfigError(
            f"rank {grid.hosted[0]} has {len(given)} rows of {whole[0]}, not up to {shape[0]}"
        )
    return of_part(_filled(given, shape), grid, whole, dims)


def of_part(
    part: np.ndarray[Any, Any], grid: Mesh, shape: Sequence[int], dims: Sequence[str | None]
) -> Tensor:
    """A tensor on a mesh, of the parts that this process has, one after the other."""
    from svod.device.buffer import Buffer
    from svod.tensor.core.tensor_core import wrap

    memory = Buffer.new("CPU", part.size, from_numpy(part.dtype)).allocate()
    memory.numpy()[:] = part.reshape(-1)
    size = int(np.prod(tuple(shape)))
    node = B.new_buffer(size, memory.dtype, grid.name, memory)
    if any(dims):
        node.arg.placed = Placed(tuple(shape), tuple(dims))
    return wrap(B.view_as(node, tuple(shape)), grid.name)


def _filled(array: np.ndarray[Any, Any], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    if array.shape == shape:
        return array
    found = np.zeros(shape, array.dtype)
    found[tuple([slice(0, n) for n in array.shape])] = array
    return found
