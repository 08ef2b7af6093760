"""Locks at a fork: short ones are waited for, long ones are free in the child."""

from __future__ import annotations

import os
import re
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from svod.base import locks

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def child_says(check: Callable[[], bool]) -> bool:
    """What a check gives in a forked child; one that hangs is False."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        status = 1
        try:
            status = 0 if check() else 2
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("make", [locks.held_lock, locks.held_rlock])
def test_a_fork_waits_for_a_short_lock_and_what_it_guards_is_whole(
    make: Callable[[], threading.Lock],
) -> None:
    lock, pair, has_begun = make(), [0, 0], threading.Event()

    def change() -> None:
        with lock:
            pair[0] = 1
            has_begun.set()
            time.sleep(0.3)
            pair[1] = 1

    thread = threading.Thread(target=change)
    thread.start()
    has_begun.wait()
    assert child_says(lambda: lock.acquire(timeout=0) and pair == [1, 1])
    thread.join()
    assert lock.acquire(timeout=0), "the parent has it back too"


@pytest.mark.parametrize("make", [locks.reset_lock, locks.reset_rlock])
def test_a_long_lock_is_free_in_the_child_and_held_in_the_parent(
    make: Callable[[], threading.Lock],
) -> None:
    lock, has_begun, ending = make(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            has_begun.set()
            ending.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    has_begun.wait()
    start = time.monotonic()
    assert child_says(lambda: lock.acquire(timeout=0))
    assert time.monotonic() - start < 5, "the fork did not wait"
    assert not lock.acquire(timeout=0)
    ending.set()
    thread.join()


def test_a_lock_that_is_not_given_back_in_time_is_free_in_the_child(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(locks, "PATIENCE", 0.2)
    lock, has_begun, ending = locks.held_lock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            has_begun.set()
            ending.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    has_begun.wait()
    assert child_says(lambda: lock.acquire(timeout=0))
    assert lock.locked(), "the holder keeps it"
    ending.set()
    thread.join()


def test_several_threads_fork_at_once() -> None:
    found: list[bool] = []
    lock = locks.held_lock()
    threads = [
        threading.Thread(target=lambda: found.append(child_says(lambda: lock.acquire(timeout=0))))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == [True] * 4


# Their locks are made anew in a child, together with what they guard.
RUNTIME = {"runtime/executor.py", "runtime/plan.py", "runtime/native/launcher.py"}


def test_every_lock_is_one_that_forks_know() -> None:
    package = Path(locks.__file__).parents[1]
    found = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"\b(threading\.)?R?Lock\(\)", path.read_text())
    }
    assert found == RUNTIME | {"base/locks.py"}, "use held_lock or reset_lock of svod.base.locks"
