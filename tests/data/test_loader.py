"""DataLoader: batches in order, shuffled, by workers, and what happens when loading fails."""

from __future__ import annotations

import io
import os
from typing import Any, NamedTuple

import numpy as np
import pytest

import svod
from svod.base.errors import ArgumentError, ShapeError
from svod.base.progress import shown
from svod.data import (
    BatchSampler,
    ConcatDataset,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
    Subset,
    TensorDataset,
    WeightedRandomSampler,
    get_worker_info,
    random_split,
)
from svod.data.workers import WorkerError

ROWS = np.arange(20, dtype=np.float32).reshape(10, 2)


class Named(Dataset):
    """Ten samples with an array, a number and a text."""

    def __len__(self) -> int:
        return 10

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": ROWS[index], "y": index, "name": f"n{index}"}


class Counting(IterableDataset):
    """The numbers from 0 to 6, shared out among the workers."""

    def __iter__(self) -> Any:
        info = get_worker_info()
        return iter(range(7) if info is None else range(info.id, 7, info.num_workers))


class Failing(Named):
    def __getitem__(self, index: int) -> Any:
        raise KeyError(f"no file {index}")


class Ending(Named):
    def __getitem__(self, index: int) -> Any:
        os._exit(3)


class Point(NamedTuple):
    x: float
    y: int


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_come_in_order_with_the_rest_at_the_end(workers):
    batches = list(DataLoader(Named(), batch_size=4, num_workers=workers))
    assert [b["y"].tolist() for b in batches] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert batches[2]["x"].numpy().tolist() == ROWS[8:].tolist()
    assert batches[2]["name"] == ["n8", "n9"] and batches[0]["y"].dtype == svod.int64
    assert len(list(DataLoader(Named(), 4, drop_last=True, num_workers=workers))) == 2
    assert [len(DataLoader(Named(), 4, drop_last=d)) for d in (False, True)] == [3, 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_shuffled_epoch_has_every_sample_once_and_repeats_with_its_seed(workers):
    def epochs() -> list[list[int]]:
        svod.manual_seed(7)
        loader = DataLoader(Named(), 3, shuffle=True, num_workers=workers)
        return [[y for b in loader for y in b["y"].tolist()] for _ in range(2)]

    first, second = epochs()
    assert sorted(first) == sorted(second) == list(range(10)) and first != second
    assert epochs() == [first, second]


@pytest.mark.parametrize("workers", [0, 2])
def test_an_iterable_dataset_is_read_once_between_its_workers(workers):
    found = [b.tolist() for b in DataLoader(Counting(), 3, num_workers=workers)]
    assert sorted(n for batch in found for n in batch) == list(range(7))
    assert sorted(DataLoader(Counting(), None, num_workers=workers)) == list(range(7))


def test_tensors_are_batched_without_compiling_and_follow_writes():
    x, y = svod.Tensor(ROWS), svod.Tensor(np.arange(10))
    data = TensorDataset(x, y)
    with svod.no_grad():
        x[9] = 100.0
    a, b = list(DataLoader(data, 6))[1]
    assert a.numpy()[-1].tolist() == [100.0, 100.0] and b.tolist() == [6, 7, 8, 9]
    assert [t.tolist() for t in data[3]] == [[6.0, 7.0], 3]
    with pytest.raises(ShapeError, match="one length"):
        TensorDataset(svod.zeros(3), svod.zeros(4))


def test_samples_of_containers_keep_their_form():
    batch = next(iter(DataLoader([Point(0.5, 1), Point(1.5, 2)], 2)))
    assert isinstance(batch, Point) and batch.x.dtype == svod.float64 and batch.y.tolist() == [1, 2]
    pairs = next(iter(DataLoader([(svod.ones(2), "a"), (svod.zeros(2), "b")], 2)))
    assert pairs[0].tolist() == [[1, 1], [0, 0]] and pairs[1] == ["a", "b"]


def test_a_failing_or_dying_worker_is_an_error_that_says_so():
    with pytest.raises(WorkerError, match=r"KeyError.*no file 0[\s\S]*__getitem__"):
        list(DataLoader(Failing(), 2, num_workers=1))
    with pytest.raises(WorkerError, match=r"worker 0 .* exited with code 3"):
        list(DataLoader(Ending(), 2, num_workers=1))
    with pytest.raises(KeyError):
        list(DataLoader(Failing(), 2))


def test_samples_of_different_shapes_ask_for_a_collate_function():
    ragged = [np.zeros(2), np.zeros(3)]
    with pytest.raises(ShapeError, match="collate_fn"):
        list(DataLoader(ragged, 2))
    assert list(DataLoader(ragged, 2, collate_fn=lambda b: [len(r) for r in b])) == [[2, 3]]


def test_leaving_a_loader_early_ends_its_workers():
    batches = iter(DataLoader(Named(), 1, num_workers=2))
    next(batches)
    workers = batches.gi_frame.f_locals["workers"]
    batches.close()
    assert all(not p.is_alive() for p in workers.processes)


def test_splits_joins_and_samplers():
    svod.manual_seed(1)
    parts = random_split(Named(), [0.75, 0.25])
    assert [len(p) for p in parts] == [8, 2]
    assert sorted(s["y"] for p in parts for s in p) == list(range(10))
    joined = ConcatDataset([Subset(Named(), [3, 4]), Named()])
    assert [joined[i]["y"] for i in (0, 1, 2, -1)] == [3, 4, 0, 9] and len(joined) == 12
    assert list(BatchSampler(SequentialSampler(range(5)), 2)) == [[0, 1], [2, 3], [4]]
    assert set(WeightedRandomSampler([0, 0, 1.0], 20)) == {2}
    with pytest.raises(ArgumentError, match="add up"):
        random_split(Named(), [3, 3])


def test_arguments_that_contradict_each_other_are_refused():
    for options in (
        {"batch_size": 0},
        {"num_workers": -1},
        {"shuffle": True, "sampler": SequentialSampler(Named())},
        {"batch_size": 2, "batch_sampler": [[0]]},
    ):
        with pytest.raises(ArgumentError):
            DataLoader(Named(), **options)
    with pytest.raises(ArgumentError, match="order"):
        DataLoader(Counting(), 2, shuffle=True)


def test_progress_is_shown_on_a_terminal_and_nowhere_else():
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for stream, shows in ((Terminal(), True), (io.StringIO(), False)):
        assert list(shown(range(3), "epoch 1", stream=stream)) == [0, 1, 2]
        assert ("epoch 1" in stream.getvalue() and "3/3" in stream.getvalue()) == shows
        assert bool(stream.getvalue()) == shows


def test_torch_name_of_the_module():
    from svod.utils.data import DataLoader as same

    assert same is DataLoader


def test_torchs_keywords_of_workers_are_taken():
    loader = DataLoader(
        list(range(6)), batch_size=2, num_workers=2, persistent_workers=True, prefetch_factor=None
    )
    for _ in range(2):
        assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
