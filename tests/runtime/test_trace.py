"""`svod.profile`: a trace of everything that ran, which a viewer can open."""

from __future__ import annotations

import json
import sys
import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from saved_plans import network, random

import svod
from svod.base.knobs import knobs
from svod.runtime import plan as plans
from svod.runtime import roofline
from svod.runtime.native import set_threads
from svod.runtime.trace import PREPARING, RUNNING, profile
from tests.spec.plan_parts import compiled, empty, launch, plan_of


def events(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text())["traceEvents"]
    assert isinstance(found, list)
    return found


def slices(found: list[dict[str, Any]], group: int) -> dict[int, list[tuple[float, float, str]]]:
    """Start, end and name of the slices of each track of a group."""
    tracks = defaultdict(list)
    for event in found:
        if event["ph"] == "X" and event["pid"] == group:
            tracks[event["tid"]].append((event["ts"], event["ts"] + event["dur"], event["name"]))
    return {track: sorted(rows) for track, rows in tracks.items()}


def assert_no_overlaps(rows: list[tuple[float, float, str]], may_nest: bool = False) -> None:
    open_ends: list[float] = []
    for start, end, name in sorted(rows, key=lambda row: (row[0], -row[1])):
        while open_ends and open_ends[-1] <= start + 1e-6:
            open_ends.pop()
        if open_ends:
            assert may_nest and end <= open_ends[-1] + 1e-6, name
        open_ends.append(end)


def heavy() -> Any:
    """A product that is large enough to be spread over the threads."""
    x, y = svod.Tensor(random(256, 256)), svod.Tensor(random(256, 256, seed=1))
    return (x @ y).prepare()


def test_kernels_and_preparation_are_traced(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    with profile(path):
        plan, x = network()
        for _ in range(5):
            plan(x=x)
    found = events(path)
    kernels = [event for event in found if event["ph"] == "X" and event["pid"] == RUNNING]
    names = [kernel.entry_point for kernel in plan.kernels()]
    assert sorted(event["name"] for event in kernels) == sorted(names * 5)
    assert all(event["args"]["bytes"] > 0 and event["args"]["flops"] > 0 for event in kernels)
    steps = {name for rows in slices(found, PREPARING).values() for _, _, name in rows}
    assert "build plan" in steps
    assert plans.watchers == []
    plan.execute()
    assert events(path) == found


@pytest.mark.skipif(sys.platform != "linux", reason="the pool needs Linux")
def test_every_lane_has_a_track_without_overlaps(tmp_path: Path) -> None:
    set_threads(2)
    try:
        first, second = heavy(), heavy()
        with profile(tmp_path / "trace.json"):
            threads = [
                threading.Thread(target=lambda p=p: [p.execute() for _ in range(20)])
                for p in (first, second)
            ]
            for thread in threads:
                thread.start()
            for _ in range(20):
                heavy().execute()
            for thread in threads:
                thread.join()
    finally:
        set_threads(0)
    found = events(tmp_path / "trace.json")
    running = slices(found, RUNNING)
    for rows in running.values():
        assert_no_overlaps(rows)
    for rows in slices(found, PREPARING).values():
        assert_no_overlaps(rows, may_nest=True)
    named = {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in found
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
    assert {track for group, track in named if group == RUNNING} == set(running)
    titles = [name for (group, _), name in named.items() if group == RUNNING]
    assert any("worker 1" in title for title in titles)
    assert len(titles) >= 4  # three threads that call and a worker
    assert all(event["ts"] >= 0 for event in found if event["ph"] == "X")


def test_plans_that_are_not_native_are_traced(tmp_path: Path) -> None:
    plan = plan_of([empty()], [launch(1, compiled(entry_point="python", bytes_moved=16), [0])])
    with profile(tmp_path / "trace.json"):
        plan.execute()
    (event,) = [event for event in events(tmp_path / "trace.json") if event["ph"] == "X"]
    assert (event["name"], event["args"]) == ("python", {"bytes": 16})


def test_a_trace_is_bounded(tmp_path: Path) -> None:
    plan, _ = network()
    with profile(tmp_path / "trace.json", most_slices=4) as trace:
        for _ in range(10):
            plan.execute()
    assert trace.dropped == 10 - -(-4 // len(plan.prepared_kernels()))
    content = json.loads((tmp_path / "trace.json").read_text())
    assert content["otherData"] == {"runs_not_shown": trace.dropped}


def test_a_trace_is_written_when_the_block_fails(tmp_path: Path) -> None:
    plan, _ = network()
    with pytest.raises(ValueError, match="no"), profile(tmp_path / "trace.json"):
        plan.execute()
        raise ValueError("no")
    assert slices(events(tmp_path / "trace.json"), RUNNING)
    assert plans.watchers == []


def test_traced_runs_give_the_same_bits(tmp_path: Path) -> None:
    plan, x = network()
    expected = plan(x=x)
    with profile(tmp_path / "outer.json"), profile(tmp_path / "inner.json"):
        assert (plan(x=x) == expected).all()
    assert events(tmp_path / "outer.json") and events(tmp_path / "inner.json")


def test_a_profile_shows_shares_of_a_measured_roofline() -> None:
    plan = heavy()
    table = plan.profile(runs=5)
    (row,) = table.rows
    assert row.gigaflops is not None and row.gigabytes_per_second is not None
    assert row.of_roofline is not None and 0.005 < row.of_roofline < 3
    assert "%" in str(table).splitlines()[1]


def test_the_roofline_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(knobs, "cache_dir", str(tmp_path))
    monkeypatch.setattr(knobs, "object_cache", True)
    monkeypatch.setattr(roofline, "_measured", {})
    first = roofline.measured_roofline()
    assert first.gigaflops > 1 and first.gigabytes_per_second > 0.5
    assert roofline.measured_roofline() is first
    (kept,) = (tmp_path / "machine").glob("*.blob")
    monkeypatch.setattr(roofline, "_measured", {})
    monkeypatch.setattr(roofline, "_measure", lambda threads: pytest.fail("measured again"))
    assert roofline.measured_roofline() == first
    kept.write_bytes(b"damaged")
    monkeypatch.setattr(roofline, "_measured", {})
    monkeypatch.setattr(roofline, "_measure", lambda threads: first)
    assert roofline.measured_roofline() is first
