"""Collections of samples: by index, or one after the other."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from svod.base.errors import ArgumentError, ShapeError
from svod.device.names import base_key
from svod.tensor.core.tensor_core import tensor_of
from svod.tensor.random.threefry import Generator
from svod.tensor.tensor import Tensor


class Dataset:
    """Samples by index: define ``__getitem__`` and ``__len__``.

    A dataset with a method ``__getitems__`` gives the samples of a list of indices at once.
    """

    def __getitem__(self, index: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    def __add__(self, other: Dataset) -> ConcatDataset:
        return ConcatDataset([self, other])


class IterableDataset(Dataset):
    """Samples one after the other: define ``__iter__``."""

    def __iter__(self) -> Iterator[Any]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")


class TensorDataset(Dataset):
    """Samples along the first axis of tensors of equal length."""

    def __init__(self, *tensors: Any) -> None:
        self.tensors = tuple(tensor_of(t) for t in tensors)
        sizes = [t.shape[0] if t.shape else None for t in self.tensors]
        if not sizes or None in sizes or len(set(sizes)) > 1:
            shapes = ", ".join(str(t.shape) for t in self.tensors)
            raise ShapeError(f"TensorDataset: tensors of one length are needed, not of {shapes}")

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(t[index] for t in self.tensors)

    def __len__(self) -> int:
        return int(self.tensors[0].shape[0])

    def collated(self, indices: Sequence[int]) -> list[Any]:
        """The samples of these indices as one batch: on the CPU rows are copied by NumPy, so
        that nothing is compiled."""
        rows = np.asarray(indices)
        on_host = [base_key(t.device) == "CPU" for t in self.tensors]
        return [
            (t.array_view() if is_host else t)[rows]
            for t, is_host in zip(self.tensors, on_host, strict=True)
        ]


class Subset(Dataset):
    """Some samples of another dataset."""

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, list):
            return self.dataset[[self.indices[i] for i in index]]
        return self.dataset[self.indices[index]]

    def __len__(self) -> int:
        return len(self.indices)


class ConcatDataset(Dataset):
    """Several datasets, one behind the other."""

    def __init__(self, datasets: Sequence[Any]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ArgumentError("ConcatDataset: at least one dataset is needed")
        self.ends = list(accumulate(len(d) for d in self.datasets))

    def __getitem__(self, index: int) -> Any:
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        which = bisect_right(self.ends, position)
        return self.datasets[which][position - (self.ends[which - 1] if which else 0)]

    def __len__(self) -> int:
        return self.ends[-1]


def random_split(
    dataset: Any, lengths: Sequence[float], generator: Generator | None = None
) -> list[Subset]:
    """A dataset in parts of random samples; lengths are counts, or shares that add up to 1."""
    total = len(dataset)
    if all(0 <= n <= 1 for n in lengths) and abs(sum(lengths) - 1) < 1e-6:
        counts = [int(total * share) for share in lengths]
        for i in range(total - sum(counts)):
            counts[i % len(counts)] += 1
    else:
        counts = [int(n) for n in lengths]
    if sum(counts) != total:
        raise ArgumentError(f"random_split: lengths {list(lengths)} do not add up to {total}")
    from svod.data.samplers import permutation

    order = permutation(total, generator)
    stops = list(accumulate(counts))
    return [Subset(dataset, order[b - n : b]) for n, b in zip(counts, stops, strict=True)]
