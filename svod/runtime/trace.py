"""`svod.profile("trace.json")`: everything that ran in a block, as a trace.

In: the stamps of every run of every plan, and the spans of preparation. Out: a file in the
trace-event format that Perfetto opens. Each thread that runs plans has a track, each worker of the
pool has one, and each thread that prepared has another. Slices of a track never overlap (spans of
preparation nest): what would is moved to a further track.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable
from pathlib import Path
from time import perf_counter_ns
from types import TracebackType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from svod.base import timing
from svod.base.locks import reset_lock
from svod.runtime import plan as plans
from svod.runtime.flat import FlatPlan
from svod.runtime.native import Stamps, launcher
from svod.runtime.ops import CompiledKernel
from svod.runtime.profile import KernelProfile

MOST_SLICES = 1_000_000  # of about 200 bytes each in the file; later runs are counted, not shown
RUNNING, PREPARING = 1, 2  # the two groups of tracks; trace viewers call them processes

Event: TypeAlias = dict[str, Any]


class _Run(NamedTuple):
    """One native run: what it was, its times, and the thread that called."""

    flat: FlatPlan
    stamps: Stamps
    thread: int


class _Slice(NamedTuple):
    start: int  # ns
    end: int
    kernel: CompiledKernel


class profile:
    """A context manager: `with svod.profile("trace.json"): ...` writes a trace of the block.

    Plans run with stamps meanwhile, which costs some percent for kernels of a few microseconds.
    """

    def __init__(self, path: str | os.PathLike[str], most_slices: int = MOST_SLICES) -> None:
        self.path = Path(path)
        self.most_slices = most_slices
        self.dropped = 0  # runs that came after the limit
        self._slices = 0
        self._lock = reset_lock()
        self._runs: list[_Run] = []
        self._profiles: list[tuple[int, KernelProfile]] = []
        self._names: dict[int, str] = {}

    def __enter__(self) -> profile:
        self._start = perf_counter_ns()
        plans.watchers.append(self._note)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        plans.watchers.remove(self._note)
        content = {
            "traceEvents": self.events(),
            "displayTimeUnit": "ns",
            "otherData": {"runs_not_shown": self.dropped},
        }
        self.path.write_text(json.dumps(content), encoding="utf-8")

    def events(self) -> list[Event]:
        """What was noted so far, as trace events; times in microseconds from the start."""
        tracks = self._tracks()
        events = _running_events(tracks, self._names, self._start)
        return events + _preparing_events(timing.spans(self._start), self._names, self._start)

    def _note(self, plan: plans.ExecutionPlan, found: Stamps | list[KernelProfile]) -> None:
        """Called after every run, by the thread that ran."""
        here = threading.current_thread()
        with self._lock:
            self._names[threading.get_ident()] = here.name
            if self._slices >= self.most_slices:
                self.dropped += 1
            elif isinstance(found, Stamps):
                flat = plan.flat
                assert flat is not None
                self._slices += flat.records.count
                self._runs.append(_Run(flat, found, threading.get_ident()))
            else:
                self._slices += len(found)
                self._profiles += [(threading.get_ident(), one) for one in found]

    def _tracks(self) -> dict[tuple[str, int], list[_Slice]]:
        """Slices by lane; lane 0 of a run is the thread that called."""
        with self._lock:
            runs, profiles = list(self._runs), list(self._profiles)
        tracks: dict[tuple[str, int], list[_Slice]] = {}
        for thread, one in profiles:
            key = ("worker", one.lane) if one.lane else ("thread", thread)
            tracks.setdefault(key, []).append(_Slice(one.start_ns, one.end_ns, one.kernel))
        if not runs:
            return tracks
        # All ticks together: a second look at the clock would map them slightly differently.
        used = [run.stamps.ticks[:, :, 0] != 0 for run in runs]
        ticks = [run.stamps.ticks[mask] for run, mask in zip(runs, used, strict=True)]
        times = launcher().clock.nanoseconds(np.concatenate(ticks)).tolist()
        at = 0
        for run, mask in zip(runs, used, strict=True):
            for record, lane in np.argwhere(mask).tolist():
                start, end = times[at]
                at += 1
                op = run.flat.kernel_of(record)
                if op is not None:
                    key = ("worker", lane) if lane else ("thread", run.thread)
                    tracks.setdefault(key, []).append(_Slice(start, end, op.kernel))
        return tracks


def _running_events(
    tracks: dict[tuple[str, int], list[_Slice]], names: dict[int, str], origin: int
) -> list[Event]:
    events = [_name("process_name", RUNNING, 0, "plans")]
    threads = [key for key in tracks if key[0] == "thread"]
    workers = sorted(key for key in tracks if key[0] == "worker")
    track = 0
    for key in threads + workers:
        title = f"worker {key[1]}" if key[0] == "worker" else names.get(key[1], "thread")
        for number, row in enumerate(_without_overlaps(tracks[key])):
            shown = f"lane {track}: {title}" + (f" ({number + 1})" if number else "")
            events.append(_name("thread_name", RUNNING, track, shown))
            events += [_kernel_event(piece, track, origin) for piece in row]
            track += 1
    return events


def _without_overlaps(slices: list[_Slice]) -> list[list[_Slice]]:
    """One row where nothing overlaps, else as few as it takes."""
    rows: list[list[_Slice]] = []
    for piece in sorted(slices, key=lambda piece: (piece.start, piece.end)):
        for row in rows:
            if row[-1].end <= piece.start:
                row.append(piece)
                break
        else:
            rows.append([piece])
    return rows


def _kernel_event(piece: _Slice, track: int, origin: int) -> Event:
    kernel = piece.kernel
    facts = {"bytes": kernel.bytes_moved, "flops": kernel.flops}
    shown = {name: value for name, value in facts.items() if value is not None}
    return _slice(kernel.entry_point, RUNNING, track, piece.start, piece.end, origin, shown)


def _preparing_events(
    spans: Iterable[timing.Span], names: dict[int, str], origin: int
) -> list[Event]:
    events: list[Event] = []
    tracks: dict[int, int] = {}
    for span in spans:
        track = tracks.setdefault(span.thread, len(tracks))
        events.append(_slice(span.name, PREPARING, track, span.start_ns, span.end_ns, origin, {}))
    titles = [
        _name("thread_name", PREPARING, track, f"preparation: {names.get(thread, 'thread')}")
        for thread, track in tracks.items()
    ]
    return [_name("process_name", PREPARING, 0, "preparation"), *titles, *events] if events else []


def _slice(
    name: str, group: int, track: int, start: int, end: int, origin: int, facts: Event
) -> Event:
    return {
        "name": name, "ph": "X", "pid": group, "tid": track, "ts": (start - origin) / 1e3,
        "dur": (end - start) / 1e3, "args": facts,
    }  # fmt: skip


def _name(what: str, group: int, track: int, name: str) -> Event:
    return {"name": what, "ph": "M", "pid": group, "tid": track, "args": {"name": name}}
