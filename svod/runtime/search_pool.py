"""Worker processes of a search: several compile at once, and one that takes too long is ended.

In: texts of kernels. Out: object code or the reason why there is none, in the same order. Workers
are started when they are needed and end with the pool, or by themselves when this process is gone.
They are fresh interpreters, so the program that searches is not imported again, and isolated ones:
no module of the current folder is.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from svod.base.knobs import knobs
from svod.base.threads import thread_budget
from svod.optimize.beam import Drop
from svod.runtime.search_worker import read_frame, write_frame

STARTUP_SECONDS = 60.0  # until a fresh interpreter has loaded the compiler
MOST_WORKERS = 16
# An isolated interpreter (-I) does not look into the current folder, nor at PYTHONPATH: it gets
# these packages from where this process has them, and everything else from its own library.
PACKAGES = ("svod", "numpy", "ml_dtypes", "llvmlite")
START = """
import importlib.util, json, sys
class Packages:
    known = json.loads(sys.argv[1])
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        origin = cls.known.get(name)
        return origin and importlib.util.spec_from_file_location(name, origin)
sys.meta_path.insert(0, Packages)
from svod.runtime.search_worker import main
main()
"""


@dataclass(frozen=True, slots=True)
class Job:
    """One kernel to compile: for the CPU from its loops, for a GPU from its LLVM IR."""

    name: str  # of the function
    text: str
    max_uops: int
    arch: str = ""  # of a GPU
    gpu: int = 0  # which one


class WorkerPool:
    """Processes that compile; use it as a context."""

    def __init__(self, count: int = 0, command: Sequence[str] = ()) -> None:
        self.count = count or min(thread_budget().threads, MOST_WORKERS)
        self.ended = 0  # workers that took too long
        self._command = tuple(command) or worker_command()
        self._answers: queue.Queue[_Answer] = queue.Queue()  # unbounded: no worker ever waits
        self._idle: list[_Worker] = []
        self._sent = 0

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End every worker."""
        for worker in self._idle:
            worker.end()
        self._idle.clear()

    def compile_all(self, jobs: Sequence[Job], seconds: float) -> list[bytes | Drop]:
        """Object code for each job, each within its time."""
        results: list[bytes | Drop] = [Drop("compile_timeout")] * len(jobs)
        waiting = deque(range(len(jobs)))
        running: dict[_Worker, _Turn] = {}
        try:
            while waiting or running:
                while waiting and len(running) < self.count:
                    worker = self._idle.pop() if self._idle else self._start()
                    place = waiting.popleft()
                    self._sent += 1
                    worker.send(self._sent, jobs[place])
                    allowed = seconds if worker.is_ready else seconds + STARTUP_SECONDS
                    running[worker] = _Turn(place, self._sent, time.monotonic() + allowed)
                self._wait(running, results, seconds)
        finally:
            for worker in running:  # an exception came between
                worker.end()
        return results

    def _wait(
        self, running: dict[_Worker, _Turn], results: list[bytes | Drop], seconds: float
    ) -> None:
        """Take one answer, or end the workers whose time is up."""
        nearest = min([turn.deadline for turn in running.values()])
        try:
            answer = self._answers.get(timeout=max(0.0, nearest - time.monotonic()))
        except queue.Empty:
            now = time.monotonic()
            for worker in [w for w, turn in running.items() if turn.deadline <= now]:
                del running[worker]
                worker.end()
                self.ended += 1
            return
        worker = answer.worker
        if worker not in running:
            return  # it was given up
        turn = running[worker]
        if answer.head is None:
            del running[worker]
            worker.end()
            results[turn.place] = Drop("panic_in_worker", "the worker process ended")
        elif "ready" in answer.head:
            worker.is_ready = True
            turn.deadline = time.monotonic() + seconds
        elif answer.head.get("job") == turn.job:  # else it is too late for its job
            del running[worker]
            self._idle.append(worker)
            results[turn.place] = _result(answer.head, answer.blob)

    def _start(self) -> _Worker:
        return _Worker(self._command, self._answers)


@dataclass(slots=True)
class _Turn:
    """What a worker is doing."""

    place: int
    job: int
    deadline: float


@dataclass(frozen=True, slots=True)
class _Answer:
    worker: _Worker
    head: dict[str, Any] | None  # None: the process has ended
    blob: bytes


def _result(head: dict[str, Any], blob: bytes) -> bytes | Drop:
    return Drop(head["drop"], head.get("detail", "")) if "drop" in head else blob


class _Worker:
    """One process, with a thread that reads what it says and one that writes to it."""

    def __init__(self, command: Sequence[str], answers: queue.Queue[_Answer]) -> None:
        self.is_ready = False
        self._answers = answers
        self._jobs: queue.Queue[tuple[int, Job] | None] = queue.Queue()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # candidates may fail in any way; nobody wants to read it
            env=_environment(),
        )
        for step in (self._write, self._read):
            threading.Thread(target=step, name="svod search", daemon=True).start()

    def send(self, number: int, job: Job) -> None:
        """Give the worker something to do; never waits."""
        self._jobs.put((number, job))

    def end(self) -> None:
        """End the process, whatever it does."""
        self._process.kill()
        self._jobs.put(None)
        self._process.wait()

    def _write(self) -> None:
        stream = self._process.stdin
        assert stream is not None
        try:
            while (turn := self._jobs.get()) is not None:
                number, job = turn
                head = {"job": number, "name": job.name, "max_uops": job.max_uops}
                if job.arch:
                    head |= {"arch": job.arch, "gpu": job.gpu}
                write_frame(stream, head, job.text.encode())  # type: ignore[arg-type]
        except OSError:
            return  # the process has ended; the reader says so
        finally:
            _close(stream)

    def _read(self) -> None:
        stream = self._process.stdout
        assert stream is not None
        try:
            while (frame := read_frame(stream)) is not None:  # type: ignore[arg-type]
                self._answers.put(_Answer(self, *frame))
        except (OSError, ValueError):
            pass
        finally:
            _close(stream)
            self._answers.put(_Answer(self, None, b""))


def _close(stream: Any) -> None:
    try:
        stream.close()
    except OSError:
        return  # what was not written any more is lost on purpose


def worker_command() -> tuple[str, ...]:
    """What starts a worker."""
    origins = {}
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.origin is not None:
            origins[name] = os.path.abspath(spec.origin)
    return (sys.executable, "-I", "-c", START, json.dumps(origins))


def _environment() -> dict[str, str]:
    """This process's environment, without output or a search."""
    return {**os.environ, "SVOD_DEBUG": "0", "SVOD_BEAM": "0", "SVOD_MACHINE": knobs.machine}
