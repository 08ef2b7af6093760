"""DataLoader: a dataset in batches, in order or shuffled, loaded here or by worker processes."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice, repeat
from typing import Any

from svod.base.errors import ArgumentError
from svod.base.progress import shown
from svod.data.collate import stacked, tensors_of
from svod.data.datasets import IterableDataset, TensorDataset
from svod.data.samplers import BatchSampler, RandomSampler, SequentialSampler, host_random
from svod.data.workers import End, Workers
from svod.tensor.random.threefry import Generator
from svod.tensor.tensor import Tensor


class DataLoader:
    """Batches of a dataset, as torch.utils.data.DataLoader gives them.

    With ``num_workers`` processes the batches are loaded ahead, ``prefetch_factor`` per worker;
    they end with each iteration, also with ``persistent_workers``, which torch takes.
    ``device`` moves them there, and ``progress`` (True, or a label) shows a line on a terminal.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool = False,
        sampler: Iterable[Any] | None = None,
        batch_sampler: Iterable[Any] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = 2,
        persistent_workers: bool = False,
        device: str | None = None,
        progress: bool | str = False,
    ) -> None:
        self.is_iterable = isinstance(dataset, IterableDataset) or not hasattr(
            dataset, "__getitem__"
        )
        prefetch_factor = 2 if prefetch_factor is None else prefetch_factor
        chosen = [shuffle or None, sampler, batch_sampler]
        if self.is_iterable and any(c is not None for c in chosen):
            raise ArgumentError("DataLoader: an iterable dataset has its own order: no shuffling")
        if batch_sampler is not None and (batch_size != 1 or shuffle or sampler or drop_last):
            raise ArgumentError("DataLoader: batch_sampler stands for size, shuffle and sampler")
        if sampler is not None and shuffle:
            raise ArgumentError("DataLoader: either sampler or shuffle")
        if batch_size is not None and batch_size < 1:
            raise ArgumentError(f"DataLoader: batch_size is at least 1, not {batch_size}")
        if num_workers < 0 or prefetch_factor < 1 or timeout < 0:
            raise ArgumentError(
                f"DataLoader: num_workers={num_workers}, prefetch_factor={prefetch_factor} and "
                f"timeout={timeout} are at least 0, 1 and 0"
            )
        self.dataset, self.batch_size, self.drop_last = dataset, batch_size, drop_last
        self.num_workers, self.prefetch_factor, self.timeout = num_workers, prefetch_factor, timeout
        self.collate_fn, self.worker_init_fn = collate_fn, worker_init_fn
        self.persistent_workers = persistent_workers
        self.multiprocessing_context, self.generator = multiprocessing_context, generator
        self.device, self.progress, self.pin_memory = device, progress, pin_memory
        if not self.is_iterable:
            order: Any = RandomSampler(dataset, generator=generator) if shuffle else sampler
            order = SequentialSampler(dataset) if order is None else order
            if batch_sampler is None and batch_size is not None:
                batch_sampler = BatchSampler(order, batch_size, drop_last)
            self.sampler, self.batch_sampler = order, batch_sampler

    def __len__(self) -> int:
        if self.is_iterable:
            count = len(self.dataset)
            size = self.batch_size or 1
            return count // size if self.drop_last else -(-count // size)
        order: Any = self.sampler if self.batch_sampler is None else self.batch_sampler
        return len(order)

    def __iter__(self) -> Iterator[Any]:
        found = self._parallel() if self.num_workers else self._serial()
        if self.device is not None:
            found = (_moved(batch, self.device) for batch in found)
        if self.progress:
            label = self.progress if isinstance(self.progress, str) else ""
            found = iter(shown(found, label, self._length()))
        return found

    def _length(self) -> int | None:
        try:
            return len(self)
        except TypeError:
            return None

    def _tasks(self) -> Iterator[Any]:
        """What one batch is made of: indices, or a plain request for the next one."""
        if self.is_iterable:
            return repeat(None)
        return iter(self.sampler if self.batch_sampler is None else self.batch_sampler)

    def _serial(self) -> Iterator[Any]:
        load = self._load()
        for task in self._tasks():
            batch = load(task)
            if isinstance(batch, End):
                return
            yield batch if self.collate_fn is not None else tensors_of(batch)

    def _parallel(self) -> Iterator[Any]:
        context = self.multiprocessing_context
        if context is None or isinstance(context, str):
            context = multiprocessing.get_context(context)
        seed = int(host_random(self.generator).integers(1 << 62))
        start = self.worker_init_fn
        workers = Workers(context, self.num_workers, self.dataset, self._load(), seed, start)
        try:
            for batch in workers.batches(self._tasks(), self.prefetch_factor, self.timeout):
                yield batch if self.collate_fn is not None else tensors_of(batch)
        finally:
            workers.close()

    def _load(self) -> Load:
        is_single = self.batch_size is None and (self.is_iterable or self.batch_sampler is None)
        size = None if is_single or not self.is_iterable else self.batch_size
        return Load(
            self.dataset, self.is_iterable, is_single, size, self.drop_last, self.collate_fn
        )


@dataclass
class Load:
    """Loads a batch: from indices, or the next one of an iterable dataset. Workers hold a copy."""

    dataset: Any
    is_iterable: bool
    is_single: bool  # samples as they are, not in batches
    size: int | None  # of the batches of an iterable dataset
    drop_last: bool
    collate: Callable[[list[Any]], Any] | None
    source: Iterator[Any] | None = None

    def __call__(self, task: Any) -> Any:
        if isinstance(self.dataset, TensorDataset) and self.collate is None and not self.is_single:
            return self.dataset.collated(task)
        samples = self._next() if self.is_iterable else self._at(task)
        if isinstance(samples, End):
            return samples
        if self.collate is not None:
            return self.collate(samples)
        return samples if self.is_single else stacked(samples)

    def _at(self, task: Any) -> Any:
        if self.is_single:
            return self.dataset[task]
        many = getattr(self.dataset, "__getitems__", None)
        return many(task) if many is not None else [self.dataset[i] for i in task]

    def _next(self) -> Any:
        if self.source is None:
            self.source = iter(self.dataset)
        if self.size is None:
            return next(self.source, End())
        batch = list(islice(self.source, self.size))
        return batch if batch and not (self.drop_last and len(batch) < self.size) else End()


def _moved(batch: Any, device: str) -> Any:
    if isinstance(batch, Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: _moved(part, device) for key, part in batch.items()}
    if isinstance(batch, (list, tuple)):
        parts = [_moved(part, device) for part in batch]
        return type(batch)(*parts) if hasattr(batch, "_fields") else type(batch)(parts)
    return batch
