"""The order in which samples are taken: indices, and batches of indices."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from typing import Any

import numpy as np

from svod.base.errors import ArgumentError
from svod.tensor.random.threefry import Generator, default_generator


def host_random(generator: Generator | None = None) -> np.random.Generator:
    """NumPy's generator, seeded by the next numbers of ours: the same order for the same seed."""
    return np.random.default_rng((generator or default_generator).words(4))


def permutation(count: int, generator: Generator | None = None) -> list[int]:
    """The numbers from 0 to ``count`` - 1 in a random order."""
    found: list[int] = host_random(generator).permutation(count).tolist()
    return found


class Sampler:
    """An order of indices: define ``__iter__`` and ``__len__``."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")


class SequentialSampler(Sampler):
    """Every index, in order."""

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler):
    """Indices in a random order, another in every pass; drawn independently with replacement."""

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        self.data_source, self.replacement, self.generator = data_source, replacement, generator
        self.num_samples = len(data_source) if num_samples is None else num_samples

    def __iter__(self) -> Iterator[int]:
        size = len(self.data_source)
        if self.replacement:
            yield from host_random(self.generator).integers(0, size, self.num_samples).tolist()
            return
        left = self.num_samples
        while left > 0:
            order = permutation(size, self.generator)[:left]
            left -= len(order)
            yield from order

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler):
    """Given indices in a random order."""

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        return (self.indices[i] for i in permutation(len(self.indices), self.generator))

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler):
    """Indices drawn with given weights."""

    def __init__(
        self,
        weights: Any,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        self.weights = np.asarray(weights, np.float64)
        if self.weights.ndim != 1 or (self.weights < 0).any() or not self.weights.sum() > 0:
            raise ArgumentError("WeightedRandomSampler: weights are a row of numbers of at least 0")
        self.num_samples, self.replacement, self.generator = num_samples, replacement, generator

    def __iter__(self) -> Iterator[int]:
        share = self.weights / self.weights.sum()
        random = host_random(self.generator)
        drawn = random.choice(share.size, self.num_samples, replace=self.replacement, p=share)
        return iter(drawn.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler):
    """Lists of ``batch_size`` indices of another sampler."""

    def __init__(self, sampler: Any, batch_size: int, drop_last: bool = False) -> None:
        if batch_size < 1:
            raise ArgumentError(f"batch_size is at least 1, not {batch_size}")
        self.sampler, self.batch_size, self.drop_last = sampler, batch_size, drop_last

    def __iter__(self) -> Iterator[list[int]]:
        batch: list[int] = []
        for index in self.sampler:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        whole, rest = divmod(len(self.sampler), self.batch_size)
        return whole + (rest > 0 and not self.drop_last)
