"""Locks that a forked child can use.

A child has one thread. A lock that another thread held at the fork would stay locked in it for
ever, and what the lock guards may be half changed. So short locks are taken before a fork and
released after it, in the parent and in the child (`held_lock`): what they guard is whole. Locks
that are held for long, while a plan runs or a function is recorded, are free again in the child
(`reset_lock`): what they guard is put in place by one assignment at the end.

A fork also waits for modules that other threads are loading: the child could never load them.
"""

from __future__ import annotations

import _imp
import concurrent.futures.thread  # noqa: F401  # these two have hooks of their own: loaded
import gc
import logging  # noqa: F401  # while a fork waits, they would run half of them
import os
import sys
import threading
import time
from importlib import _bootstrap
from typing import Any
from weakref import ref

PATIENCE = 60.0  # seconds a fork waits for a lock; after that the child gets it fresh
# The order in which a fork takes locks: whoever holds one may take only those of later ranks.
COMPILER, OUTER, LEAF = range(3)
_OURS = frozenset({"svod", "numpy", "ml_dtypes", "llvmlite"})

# Sets of weak references: one call copies such a set, whatever other threads add meanwhile.
_held: tuple[set[ref[Any]], ...] = (set(), set(), set())
_reset: set[ref[Any]] = set()
_forking = threading.Lock()  # two threads may fork at once
_taken: list[Any] = []
_missed: list[Any] = []
_collects = [False]  # whether the garbage collector was on before the fork


def held_lock(rank: int = LEAF) -> threading.Lock:
    """A lock that forks take; whoever holds it is soon done."""
    lock = threading.Lock()
    hold_at_fork(lock, rank)
    return lock


def held_rlock(rank: int = LEAF) -> threading.RLock:
    """The same, for a thread that may take it again."""
    lock = threading.RLock()
    hold_at_fork(lock, rank)
    return lock


def hold_at_fork(lock: Any, rank: int) -> None:
    """Have forks take a lock, also one that another library made."""
    _held[rank].add(ref(lock, _held[rank].discard))


def reset_lock() -> threading.Lock:
    """A lock that is free in a forked child, whoever holds it in the parent."""
    lock = threading.Lock()
    _reset.add(ref(lock, _reset.discard))
    return lock


def reset_rlock() -> threading.RLock:
    """The same, for a thread that may take it again."""
    lock = threading.RLock()
    _reset.add(ref(lock, _reset.discard))
    return lock


def _before() -> None:
    _forking.acquire()
    _collects[0] = gc.isenabled()
    gc.disable()  # a finaliser must not ask for a lock that this thread holds now
    deadline = time.monotonic() + PATIENCE
    while True:
        for rank in _held:
            for each in list(rank):
                _take(each(), deadline)
        _imp.acquire_lock()  # no other thread begins to load a module now
        if time.monotonic() > deadline or not _is_loading():
            return
        _imp.release_lock()  # what it loads may need one of the locks
        _release()
        time.sleep(0.001)


def _take(lock: Any, deadline: float) -> None:
    if lock is not None:
        taken = lock.acquire(timeout=max(0.0, deadline - time.monotonic()))
        (_taken if taken else _missed).append(lock)


def _release() -> None:
    while _taken:
        _taken.pop().release()
    _missed.clear()


def _is_loading() -> bool:
    """Whether another thread is loading a module that the child may want too.

    Python has a lock for each module that is being loaded, which no public name leads to.
    """
    locks: dict[str, Any] = getattr(_bootstrap, "_module_locks", {})
    for name, each in list(locks.items()):
        if getattr(each(), "owner", None) not in (None, threading.get_ident()):
            top = name.partition(".")[0]
            if top in _OURS or top in sys.stdlib_module_names:
                return True
    return False


def _after_in_parent() -> None:
    _imp.release_lock()
    _release()
    if _collects[0]:
        gc.enable()
    _forking.release()


def _after_in_child() -> None:
    for lock in (*_missed, *[each() for each in list(_reset)]):
        if lock is not None:
            lock._at_fork_reinit()  # what the standard library does with its own locks
    _after_in_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before, after_in_parent=_after_in_parent, after_in_child=_after_in_child
    )
