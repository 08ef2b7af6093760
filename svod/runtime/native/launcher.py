"""The process's one launcher: Python's side of running records in native code.

In: a `RecordArray`. Out: the record where the run stopped: the length of the array when all is
done, or a `Kind.PYTHON` record, after which the caller goes on with `start`. The GIL is free
during the whole run, except for a moment every 50 ms in which Python handles signals, so Ctrl-C
raises KeyboardInterrupt between two groups. Any number of Python threads may run records at once:
the pool serves one group at a time, and a thread that finds it busy runs its group itself.
Results do not depend on the number of threads: how a kernel is split belongs to the kernel.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections import deque
from collections.abc import Callable

from svod.base.errors import ConfigError, ExecutionError
from svod.base.knobs import knobs
from svod.base.threads import thread_budget as base_budget
from svod.runtime.native.clock import Clock
from svod.runtime.native.code import CacheGet, CachePut, Code, load_code
from svod.runtime.native.pool import Pool
from svod.runtime.native.records import Kind, RecordArray, Slice, Stamps

MOST_THREADS = 1024
_RETIRED = 64  # pools kept after their end, in case a run still uses one


class Launcher:
    """Runs records on the calling thread and on the pool; use `launcher()` to get it."""

    __slots__ = ("_call", "_code", "_knob", "_lock", "_pool", "_retired", "_state", "clock")

    _pool: Pool
    _state: int  # the address of the pool's state

    def __init__(self, code: Code) -> None:
        integer, pointer = ctypes.c_int64, ctypes.c_void_p
        signature = ctypes.CFUNCTYPE(integer, pointer, pointer, integer, integer, pointer)
        self._code = code
        self._call: Callable[[int, int, int, int, int], int] = signature(code.run)
        self.clock = Clock(ctypes.CFUNCTYPE(integer)(code.ticks))
        self._retired: deque[Pool] = deque(maxlen=_RETIRED)
        self._fresh_pool()

    def run(self, records: RecordArray, start: int = 0, stamps: Stamps | None = None) -> int:
        """Run from record `start` on; returns where it stopped (see the top of this file)."""
        if knobs.threads != self._knob:
            self.resize()
        address, count = records.address, records.count
        if not address:
            records.freeze()
            address = records.address
        stopped = self._call(self._state, address, start, count, stamps.address if stamps else 0)
        if stopped == count:
            return stopped
        return self._go_on(records, stopped, stamps)

    def _go_on(self, records: RecordArray, stopped: int, stamps: Stamps | None) -> int:
        """The rare reasons to be back in Python, until the run ends or asks for Python."""
        count = records.count
        if stopped > count:
            raise ExecutionError(f"a run cannot start at record {stopped} of {count}")
        while stopped != count:
            if stopped < 0:
                with self._lock:
                    self._pool.start()
                stopped = ~stopped
            elif self._pool.interrupted:
                raise ExecutionError(
                    f"the run was interrupted before record {stopped} of {count}: "
                    "set launcher().interrupted to False to run again"
                )
            elif records.kind(stopped) in (Kind.PYTHON, Kind.TEST):
                break
            stopped = self._call(
                self._state, records.address, stopped, count, stamps.address if stamps else 0
            )
        return stopped

    @property
    def threads(self) -> int:
        """Lanes of the pool, the calling thread included."""
        return self._pool.threads

    @property
    def workers(self) -> int:
        """Native threads that exist now: none before a run has needed them."""
        return self._pool.workers

    @property
    def interrupted(self) -> bool:
        """While set, every run stops before its next group and raises ExecutionError."""
        return self._pool.interrupted

    @interrupted.setter
    def interrupted(self, value: bool) -> None:
        self._pool.interrupted = value

    def stamps_for(self, records: RecordArray) -> Stamps:
        """An empty table of times for runs of these records with as many lanes as there are now."""
        return Stamps(records.count, self.threads)

    def slices(self, stamps: Stamps) -> list[Slice]:
        """What ran when on which lane, in the order of its start."""
        used = stamps.ticks[:, :, 0] != 0
        times = self.clock.nanoseconds(stamps.ticks[used]).tolist()
        places = zip(*(axis.tolist() for axis in used.nonzero()), strict=True)
        found = [
            Slice(record, lane, start, end)
            for (record, lane), (start, end) in zip(places, times, strict=True)
        ]
        return sorted(found, key=lambda piece: (piece.start, piece.lane))

    def resize(self) -> None:
        """Follow the thread budget: a pool of another size takes the place of this one."""
        with self._lock:
            old, wanted = self._pool, thread_budget()
            self._knob = knobs.threads
            if wanted == old.threads:
                return
            pool = Pool(wanted, self._code, self.clock)
            pool.interrupted = old.interrupted
            self._pool, self._state = pool, pool.address
            old.retire()
            self._retired.append(old)

    def _fresh_pool(self) -> None:
        """Also in a forked child: the parent's threads and locks do not exist there."""
        self._lock = threading.Lock()
        self._knob = knobs.threads
        self._pool = Pool(thread_budget(), self._code, self.clock)
        self._state = self._pool.address
        self._retired.clear()


_launcher: Launcher | None = None
_loading = threading.Lock()


def load(get: CacheGet | None = None, put: CachePut | None = None) -> Launcher:
    """The launcher; at the first call its code comes from `get`, or is compiled and `put`."""
    global _launcher
    if _launcher is None:
        with _loading:
            if _launcher is None:
                _launcher = Launcher(load_code(get, put))
    return _launcher


def launcher() -> Launcher:
    """The launcher of this process."""
    return _launcher or load()


def thread_budget() -> int:
    """How many threads this process runs kernels with."""
    return min(base_budget().threads, MOST_THREADS)


def set_threads(count: int) -> None:
    """Use so many threads from now on, for running and compiling; 0 for automatic.

    Runs under way keep the threads they have for the group they are in.
    """
    if not 0 <= count <= MOST_THREADS:
        raise ConfigError(f"{count} threads asked for: use 0 (automatic) to {MOST_THREADS}")
    knobs.threads = count
    if _launcher is not None:
        _launcher.resize()


def _reset_in_child() -> None:
    global _loading
    _loading = threading.Lock()
    if _launcher is not None:
        _launcher._fresh_pool()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_in_child)
