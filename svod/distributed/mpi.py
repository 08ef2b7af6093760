"""Ranks in processes of their own: collectives by MPI, through mpi4py.

Every collective opens with a line of text to the other ranks of its group: what it is, over what.
A rank that says something else is doing something else, and one that says nothing in time is late
or gone: the others raise an error with its number. Only then does the data move.
"""

from __future__ import annotations

import atexit
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from svod.base.errors import ConfigError, ExecutionError
from svod.ir import ops as O
from svod.ir.placement import mesh_of
from svod.schedule.buckets import ALL_GATHER, ALL_REDUCE, ALL_TO_ALL, REDUCE_SCATTER

LINE_BYTES = 256  # of what ranks tell each other before a collective
# Tags of these lines, of those that say why a rank gives up, of what it waits for, and of values.
OPENING, REASON, WAITING, HEADING, VALUE = 1, 2, 3, 4, 5
SPINS, NAP = 2000, 100e-6  # looks without a rest, and the seconds of each rest after them
LOOKS = 64  # at a transfer between two looks at the clock and the processes
_FOLDS = {
    O.ADD: np.add, O.MUL: np.multiply, O.MAX: np.maximum, O.MIN: np.minimum,
    O.AND: np.bitwise_and, O.OR: np.bitwise_or, O.XOR: np.bitwise_xor,
}  # fmt: skip

Array = np.ndarray[Any, Any]


class World:
    """The ranks of this run: who they are, and the groups they talk in."""

    def __init__(self) -> None:
        try:
            from mpi4py import MPI
        except ImportError as error:
            raise ConfigError(f"ranks in processes need mpi4py: {error}") from None
        self.MPI = MPI
        self.comm = MPI.COMM_WORLD
        self.rank: int = self.comm.Get_rank()
        self.size: int = self.comm.Get_size()
        self.seconds = 10.0  # that a rank may be late
        self.is_broken = False
        self._told: list[tuple[Any, Array]] = []  # messages under way, and their memory
        own = (socket.gethostname(), os.getpid())
        self.processes: list[tuple[str, int]] = self.comm.allgather(own)
        self._groups: dict[tuple[str, str], tuple[Any, tuple[int, ...]]] = {}
        atexit.register(self._leave)
        # Launchers tell of a rank that ended by this signal, which would end this one unheard.
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL:
            signal.signal(signal.SIGUSR1, signal.SIG_IGN)

    def _leave(self) -> None:
        """After a failure the library would wait for ranks that never come."""
        if self.is_broken:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)

    def group(self, mesh_name: str, axis: str) -> tuple[Any, tuple[int, ...]]:
        """The communicator of the ranks along a mesh axis, and their numbers."""
        key = (mesh_name, axis)
        found = self._groups.get(key)
        if found is None:
            raise ExecutionError(f"{mesh_name} is no mesh of this run, or has no axis {axis}")
        return found

    def add_groups(self, mesh_name: str) -> None:
        """Make the communicators of a mesh; all ranks do this together."""
        mesh = mesh_of(mesh_name)
        for axis, _ in mesh.axes:
            ranks = mesh.group(self.rank, axis)
            comm = self.comm.Split(ranks[0], mesh.coordinate(self.rank, axis))
            self._groups[mesh_name, axis] = (comm, ranks)

    def meet(self, group: Any, ranks: tuple[int, ...], line: str) -> None:
        """Tell the ranks of a group what comes, and hear the same from all of them."""
        said = _line_of(line)
        heard = np.zeros((len(ranks), LINE_BYTES), np.uint8)
        own = ranks.index(self.rank)
        others = [i for i in range(len(ranks)) if i != own]
        sent = [group.Isend(said, dest=i, tag=OPENING) for i in others]
        got = {i: group.Irecv(heard[i], source=i, tag=OPENING) for i in others}
        start = time.monotonic()
        for i in others:
            self._wait(got[i], start, [ranks[i]], line)
            if not np.array_equal(heard[i], said):
                other = _text_of(heard[i])
                self._fail(f"rank {ranks[i]} is at [{other}], rank {self.rank} at [{line}]")
        for request, i in zip(sent, others, strict=True):
            self._wait(request, start, [ranks[i]], line)

    def post(self, rank: int, line: str, value: Array) -> None:
        """Send a value; it is on its way when this returns."""
        for array, tag in ((_line_of(line), HEADING), (_bytes(value), VALUE)):
            self._told.append((self.comm.Isend(array, dest=rank, tag=tag), array))

    def is_sending(self) -> bool:
        """Whether something is still on its way."""
        self._told = [(request, array) for request, array in self._told if not request.Test()]
        return bool(self._told)

    def finish_sends(self) -> None:
        """Wait until everything that was sent has arrived, as long as a rank may be late."""
        start = time.monotonic()
        while self.is_sending() and time.monotonic() - start < self.seconds:
            time.sleep(NAP)

    def take(self, rank: int, line: str, got: Array, what: str) -> None:
        """Wait for a value of another rank, which must be what is expected."""
        heard = np.zeros(LINE_BYTES, np.uint8)
        self._wait(self.comm.Irecv(heard, source=rank, tag=HEADING), time.monotonic(), [rank], what)
        if not np.array_equal(heard, _line_of(line)):
            self._fail(f"rank {rank} sent [{_text_of(heard)}], rank {self.rank} expected [{line}]")
        value = self.comm.Irecv(_bytes(got), source=rank, tag=VALUE)
        self._wait(value, time.monotonic(), [rank], what)

    def finish(self, request: Any, ranks: tuple[int, ...], line: str) -> None:
        """Wait for a transfer among ranks that have met."""
        self._wait(request, time.monotonic(), [r for r in ranks if r != self.rank], line)

    def _wait(self, request: Any, start: float, ranks: list[int], line: str) -> None:
        looks = 0
        has_told = False
        while not request.Test():
            looks += 1
            if looks < SPINS:
                os.sched_yield()
            else:
                time.sleep(NAP)
            if looks % LOOKS:
                continue
            if self.comm.Iprobe(tag=REASON):
                self._fail("another rank gave up")
            for rank in ranks:
                if self._is_gone(rank):
                    self._fail(f"rank {rank} ended before [{line}] was done")
            waited = time.monotonic() - start
            if waited > self.seconds / 2 and not has_told and ranks:
                has_told = True
                self._tell_wait(ranks[0])
            if waited > self.seconds:
                self._fail_late(ranks, line)

    def _tell_wait(self, rank: int) -> None:
        """Tell the others that this rank is not the one that is late, but waits for another."""
        said = np.array([time.time(), rank], np.float64)
        for other in range(self.size):
            if other != self.rank:
                self._told.append((self.comm.Isend(said, dest=other, tag=WAITING), said))

    def _fail_late(self, ranks: list[int], line: str) -> None:
        """Name the rank that all others wait for, directly or not."""
        gone = [r for r in range(self.size) if self._is_gone(r)]
        if gone:
            self._fail(f"rank {gone[0]} ended before [{line}] was done")
        waits: dict[int, int] = {}
        status = self.MPI.Status()
        while self.comm.Iprobe(tag=WAITING, status=status):
            heard = np.zeros(2, np.float64)
            self.comm.Recv(heard, source=status.Get_source(), tag=WAITING)
            if time.time() - heard[0] < self.seconds:
                waits[status.Get_source()] = int(heard[1])
        last = ranks[0]
        for _ in waits:
            last = waits.get(last, last)
        self._fail(f"rank {last} was not at [{line}] within {self.seconds:g} s")

    def _is_gone(self, rank: int) -> bool:
        """Whether the process of a rank on this machine has ended."""
        host, number = self.processes[rank]
        if host != self.processes[self.rank][0]:
            return False
        try:
            with open(f"/proc/{number}/stat", encoding="utf-8", errors="replace") as file:
                return file.read().rpartition(")")[2].split()[0] in ("Z", "X")
        except FileNotFoundError:
            return True

    def _fail(self, what: str) -> None:
        """Raise an error that says why, or why the rank gave up that told so first."""
        self.is_broken = True
        if self.comm.Iprobe(tag=REASON):
            told = np.zeros(LINE_BYTES, np.uint8)
            self.comm.Recv(told, tag=REASON)
            what = _text_of(told)
        reason = _line_of(what)
        for rank in range(self.size):
            if rank != self.rank and not self._is_gone(rank):
                self.comm.Isend(reason, dest=rank, tag=REASON)
        raise ExecutionError(f"rank {self.rank} of {self.size} gives up: {what}")


def _line_of(text: str) -> Array:
    line = np.zeros(LINE_BYTES, np.uint8)
    words = text.encode()[:LINE_BYTES]
    line[: len(words)] = np.frombuffer(words, np.uint8)
    return line


def _text_of(line: Array) -> str:
    return line.tobytes().rstrip(b"\0").decode(errors="replace")


def _all_gather(
    world: World, group: Any, ranks: tuple[int, ...], line: str, got: Array, sent: Array, op: int
) -> None:
    world.finish(group.Iallgather(_bytes(sent), _bytes(got)), ranks, line)


def _all_to_all(
    world: World, group: Any, ranks: tuple[int, ...], line: str, got: Array, sent: Array, op: int
) -> None:
    world.finish(group.Ialltoall(_bytes(sent), _bytes(got)), ranks, line)


def _all_reduce(
    world: World, group: Any, ranks: tuple[int, ...], line: str, got: Array, sent: Array, op: int
) -> None:
    fold = _native_fold(world, op, sent)
    if fold is not None:
        world.finish(group.Iallreduce(sent, got, fold), ranks, line)
        return
    parts = np.empty((len(ranks), sent.size), sent.dtype)
    _all_gather(world, group, ranks, line, parts, sent, op)
    _fold(parts, got, op)


def _reduce_scatter(
    world: World, group: Any, ranks: tuple[int, ...], line: str, got: Array, sent: Array, op: int
) -> None:
    fold = _native_fold(world, op, sent)
    if fold is not None:
        world.finish(group.Ireduce_scatter_block(sent, got, fold), ranks, line)
        return
    parts = np.empty((len(ranks), got.size), sent.dtype)
    _all_to_all(world, group, ranks, line, parts, sent, op)
    _fold(parts, got, op)


def _native_fold(world: World, op: int, array: Array) -> Any:
    """The operation of MPI for a fold. NaN is the largest and the smallest number only here."""
    if array.dtype.char not in "fdbBhHiIlLqQ" or op not in (O.ADD, O.MUL):
        return None
    return world.MPI.SUM if op == O.ADD else world.MPI.PROD


def _fold(parts: Array, got: Array, op: int) -> None:
    """Terms folded in the order of their ranks."""
    total = parts[0]
    for part in parts[1:]:
        total = _FOLDS[op](total, part)
    got.reshape(-1)[:] = total.reshape(-1)


def _bytes(array: Array) -> Array:
    return array.reshape(-1).view(np.uint8)


MOVES: dict[str, Callable[..., Any]] = {
    ALL_REDUCE: _all_reduce,
    REDUCE_SCATTER: _reduce_scatter,
    ALL_GATHER: _all_gather,
    ALL_TO_ALL: _all_to_all,
}
