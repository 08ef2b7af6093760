"""Processes that load batches ahead: each gets work in turn, and batches come back in order.

A worker sends batches of NumPy arrays. One that dies, or raises, makes the loader raise with what
happened; all of them end with the iterator.
"""

from __future__ import annotations

import random
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

import numpy as np

from svod.base.errors import SvodError


class WorkerError(SvodError, RuntimeError):
    """A process of a DataLoader failed or ended."""


class WorkerInfo(NamedTuple):
    """Which worker this is, of how many, with which seed and copy of the dataset."""

    id: int
    num_workers: int
    seed: int
    dataset: Any


class End:
    """What loading answers when an iterable dataset has no further samples."""


_this: list[WorkerInfo] = []


def get_worker_info() -> WorkerInfo | None:
    """In a worker: which one it is. In the main process: None."""
    return _this[0] if _this else None


class Workers:
    """Worker processes behind pipes."""

    def __init__(
        self,
        context: Any,
        count: int,
        dataset: Any,
        load: Callable[[Any], Any],
        seed: int,
        start: Callable[[int], None] | None,
    ) -> None:
        self.pipes: list[Connection] = []
        self.processes: list[Any] = []
        for number in range(count):
            here, there = context.Pipe()
            info = WorkerInfo(number, count, seed + number, dataset)
            process = context.Process(target=_work, args=(there, info, load, start), daemon=True)
            process.start()
            there.close()
            self.pipes.append(here)
            self.processes.append(process)

    def batches(self, tasks: Iterator[Any], ahead: int, timeout: float) -> Iterator[Any]:
        """The results of tasks in their order, with ``ahead`` of them under way per worker.

        A worker that answers with the end is done, as its part of an iterable dataset is.
        """
        count = len(self.pipes)
        waiting: list[int] = []  # the worker of each task under way, in order
        alive = list(range(count))
        turn = 0

        def send() -> bool:
            nonlocal turn
            if not alive:
                return False
            task = next(tasks, End)
            if task is End:
                return False
            number = alive[turn % len(alive)]
            turn += 1
            self._send(number, task)
            waiting.append(number)
            return True

        while len(waiting) < ahead * count and send():
            pass
        while waiting:
            number = waiting.pop(0)
            found = self._receive(number, timeout)
            is_end = isinstance(found, End)
            if is_end and number in alive:
                alive.remove(number)
            send()
            if not is_end:
                yield found

    def _send(self, number: int, task: Any) -> None:
        try:
            self.pipes[number].send(task)
        except (BrokenPipeError, OSError):
            raise self._ended(number) from None

    def _receive(self, number: int, timeout: float) -> Any:
        pipe, process = self.pipes[number], self.processes[number]
        ready = wait([pipe, process.sentinel], timeout or None)
        if not ready:
            raise WorkerError(f"worker {number} of the DataLoader sent nothing for {timeout} s")
        try:
            is_result, found = pipe.recv()
        except (EOFError, OSError):
            raise self._ended(number) from None
        if is_result:
            return found
        name, text, trace = found
        raise WorkerError(f"worker {number} of the DataLoader: {name}: {text}\n{trace}")

    def _ended(self, number: int) -> WorkerError:
        process = self.processes[number]
        process.join(1)
        code = process.exitcode
        how = f"was killed by signal {-code}" if code and code < 0 else f"exited with code {code}"
        return WorkerError(f"worker {number} of the DataLoader {how}")

    def close(self) -> None:
        """End all workers."""
        for pipe in self.pipes:
            pipe.close()
        for process in self.processes:
            process.terminate()
            process.join()


def _work(pipe: Connection, info: WorkerInfo, load: Callable[[Any], Any], start: Any) -> None:
    _this[:] = [info]
    random.seed(info.seed)
    np.random.seed(info.seed & 0xFFFFFFFF)
    try:
        if start is not None:
            start(info.id)
        while True:
            task = pipe.recv()
            pipe.send((True, load(task)))
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        return  # the loader is gone
    except Exception as error:
        pipe.send((False, (type(error).__name__, str(error), traceback.format_exc())))
