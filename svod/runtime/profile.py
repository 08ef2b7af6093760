"""What a run took: records per kernel, a table for people, a trace for a viewer.

In: clock readings (nanoseconds of `time.perf_counter_ns`) with the lane that did the work.
Out: `KernelProfile` records, `ProfileTable`, and a file in the trace-event format that Perfetto
opens, with one track per lane. Slices of one lane never overlap: a lane does one thing at a time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from svod.base.above import above
from svod.base.timing import Span
from svod.runtime.ops import CompiledKernel


@dataclass(frozen=True, slots=True)
class KernelProfile:
    """One launch: which kernel, where, when, on how many buffers."""

    kernel: CompiledKernel
    device: str
    num_buffers: int
    start_ns: int
    end_ns: int
    lane: int = 0  # 0 is the thread that called; workers and streams count from 1
    index: int = 0  # of the op in the plan
    lanes: tuple[LaneTime, ...] = ()  # all lanes of a kernel that was spread, else empty

    @property
    def elapsed_ns(self) -> int:
        return self.end_ns - self.start_ns

    @property
    def elapsed(self) -> float:
        """Seconds."""
        return self.elapsed_ns * 1e-9


@dataclass(frozen=True, slots=True)
class LaneTime:
    """The part of a launch that one lane did."""

    lane: int
    start_ns: int
    end_ns: int


@dataclass(frozen=True, slots=True)
class Roofline:
    """What the machine can do at best, measured: bytes and operations per nanosecond."""

    gigabytes_per_second: float
    gigaflops: float


@dataclass(frozen=True, slots=True)
class ProfileRow:
    """All launches of one kernel."""

    name: str
    device: str
    calls: int
    total_ns: int
    share: float  # of the sum over all kernels
    gigabytes_per_second: float | None
    gigaflops: float | None
    of_roofline: float | None  # the larger share of the two limits


@dataclass(frozen=True, slots=True)
class ProfileTable:
    """Rows by time, the longest first. `print` it."""

    rows: tuple[ProfileRow, ...]
    total_ns: int  # sum over kernels; side by side kernels count each
    wall_ns: int  # from the first start to the last end

    def __str__(self) -> str:
        width = max([6, *(len(row.name) for row in self.rows)])
        lines = [
            f"{'kernel':{width}}  {'calls':>6} {'us':>11} {'share':>6} "
            f"{'GB/s':>8} {'GFLOP/s':>9} {'roof':>5}"
        ]
        for row in self.rows:
            lines.append(
                f"{row.name:{width}}  {row.calls:6} {row.total_ns / 1e3:11.3f} "
                f"{row.share:6.1%} {_number(row.gigabytes_per_second):>8} "
                f"{_number(row.gigaflops):>9} "
                f"{'-' if row.of_roofline is None else f'{row.of_roofline:.0%}':>5}"
            )
        lines.append(
            f"{'total':{width}}  {sum(row.calls for row in self.rows):6} "
            f"{self.total_ns / 1e3:11.3f}  wall {self.wall_ns / 1e3:.3f} us"
        )
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return str(above("notebook").profile_html(self))


def profile_table(
    profiles: Iterable[KernelProfile], roofline: Roofline | None = None
) -> ProfileTable:
    """Sum the launches of each kernel."""
    launches: dict[tuple[int, str], list[KernelProfile]] = {}
    for profile in profiles:
        launches.setdefault((id(profile.kernel), profile.device), []).append(profile)
    everything = [profile for group in launches.values() for profile in group]
    total = sum(profile.elapsed_ns for profile in everything)
    rows = [_row(group, total, roofline) for group in launches.values()]
    rows.sort(key=lambda row: -row.total_ns)
    wall = 0
    if everything:
        wall = max(p.end_ns for p in everything) - min(p.start_ns for p in everything)
    return ProfileTable(tuple(rows), total, wall)


def trace_events(
    profiles: Sequence[KernelProfile], spans: Sequence[Span] = ()
) -> list[dict[str, object]]:
    """Trace events of launches and of the steps of preparation, times in microseconds."""
    starts = [profile.start_ns for profile in profiles] + [span.start_ns for span in spans]
    origin = min(starts, default=0)
    events: list[dict[str, object]] = []
    lanes: set[int] = set()
    for profile in profiles:
        parts = profile.lanes or (LaneTime(profile.lane, profile.start_ns, profile.end_ns),)
        for part in parts:
            lanes.add(part.lane)
            events.append(
                _slice(profile.kernel.entry_point, 1, part.lane, part.start_ns - origin,
                       part.end_ns - part.start_ns,
                       {"device": profile.device, "buffers": profile.num_buffers})
            )  # fmt: skip
    threads: dict[int, int] = {}
    for span in spans:
        track = threads.setdefault(span.thread, len(threads))
        events.append(
            _slice(span.name, 2, track, span.start_ns - origin, span.end_ns - span.start_ns, {})
        )
    names = [_track_name(1, lane, f"lane {lane}") for lane in sorted(lanes)]
    names += [_track_name(2, track, f"preparation {track}") for track in threads.values()]
    return names + events


def write_trace(
    path: str | Path, profiles: Sequence[KernelProfile], spans: Sequence[Span] = ()
) -> None:
    """Write a trace that Perfetto and chrome://tracing open."""
    content = {"traceEvents": trace_events(profiles, spans), "displayTimeUnit": "ns"}
    Path(path).write_text(json.dumps(content), encoding="utf-8")


def _row(group: list[KernelProfile], total_ns: int, roofline: Roofline | None) -> ProfileRow:
    kernel = group[0].kernel
    elapsed = sum(profile.elapsed_ns for profile in group)
    moved = _rate(kernel.bytes_moved, len(group), elapsed)
    flops = _rate(kernel.flops, len(group), elapsed)
    shares = []
    if roofline is not None:
        limits = ((moved, roofline.gigabytes_per_second), (flops, roofline.gigaflops))
        shares = [rate / limit for rate, limit in limits if rate is not None and limit > 0]
    return ProfileRow(
        kernel.entry_point,
        group[0].device,
        len(group),
        elapsed,
        elapsed / total_ns if total_ns else 0.0,
        moved,
        flops,
        max(shares, default=None),
    )


def _rate(estimate: int | None, calls: int, elapsed_ns: int) -> float | None:
    """Per nanosecond, which is giga per second; None without an estimate."""
    return None if estimate is None or elapsed_ns <= 0 else estimate * calls / elapsed_ns


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _slice(
    name: str, process: int, track: int, start_ns: int, length_ns: int, args: dict[str, object]
) -> dict[str, object]:
    return {"name": name, "ph": "X", "pid": process, "tid": track,
            "ts": start_ns / 1e3, "dur": length_ns / 1e3, "args": args}  # fmt: skip


def _track_name(process: int, track: int, name: str) -> dict[str, object]:
    return {"name": "thread_name", "ph": "M", "pid": process, "tid": track,
            "args": {"name": name}}  # fmt: skip
