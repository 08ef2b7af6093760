"""What a process says of its plans while it runs, for `svod top`: a small file, once a second.

A process with ``SVOD_TOP=1`` watches its plans and writes which of them ran, how often and how
long, into its user's cache folder. The file goes with the process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from svod.base.locks import reset_lock
from svod.base.paths import atomic_write, cache_folder, make_private
from svod.runtime import plan as plans
from svod.runtime.plan import ExecutionPlan

SECONDS = 1.0  # between two states of the file
MOST_PLANS = 30  # in the file, those that ran longest


def folder() -> Path:
    """Where processes write."""
    return cache_folder("top")


class _Runs:
    """The runs of one plan."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.runs = 0
        self.lately = 0  # since the file was written
        self.last: Any = None  # what is known of the last run
        self.ns = 0  # that it took


class Publisher:
    """Watches the plans of this process."""

    def __init__(self) -> None:
        self._lock = reset_lock()
        self._known: WeakKeyDictionary[ExecutionPlan, _Runs] = WeakKeyDictionary()
        self._written = time.monotonic()
        self._pid = 0
        plans.watchers.append(self.note)
        atexit.register(self.close)

    def note(self, plan: ExecutionPlan, run: Any) -> None:
        """Called after every run; about once a second it also writes."""
        with self._lock:
            found = self._known.get(plan)
            if found is None:
                from svod.tools.viz.shown import title_of

                found = self._known[plan] = _Runs(title_of(plan))
            found.runs += 1
            found.lately += 1
            found.last = run
            now = time.monotonic()
            if now - self._written >= SECONDS:
                self._write(now - self._written)
                self._written = now

    def _write(self, seconds: float) -> None:
        rows = []
        for plan, one in list(self._known.items()):
            rate, one.lately = one.lately / seconds, 0
            profiles = plan.profiles_of(one.last) if one.last is not None else []
            if profiles:
                one.ns = max(p.end_ns for p in profiles) - min(p.start_ns for p in profiles)
            one.last = None
            rows.append(
                {
                    "title": one.title, "runs": one.runs, "rate": rate, "ns": one.ns,
                    "bytes": plan.memory.peak_bytes,
                }
            )  # fmt: skip
        rows.sort(key=lambda row: (-row["rate"] * row["ns"], -row["runs"] * row["ns"]))
        program = os.path.basename(sys.argv[0]) or "python"
        data = {"pid": os.getpid(), "program": program, "plans": rows[:MOST_PLANS]}
        self._pid = os.getpid()
        with contextlib.suppress(OSError):  # a full disk stops no computation
            make_private(folder())
            atomic_write(folder() / f"{self._pid}.json", json.dumps(data).encode())

    def close(self) -> None:
        """Stop, and take the file away."""
        with contextlib.suppress(ValueError):
            plans.watchers.remove(self.note)
        if self._pid == os.getpid():
            with contextlib.suppress(OSError):
                (folder() / f"{self._pid}.json").unlink()


_publisher: list[Publisher] = []


def publish() -> None:
    """Begin, once per process."""
    if not _publisher:
        _publisher.append(Publisher())
