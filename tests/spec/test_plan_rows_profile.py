"""S66, Q15: tables and traces of profiles."""

from __future__ import annotations

import json

import pytest

from svod.base.timing import Span
from svod.runtime import KernelProfile, Roofline, profile_table, write_trace
from svod.runtime.profile import LaneTime, trace_events
from tests.spec.plan_parts import compiled, empty, launch, plan_of


def profile(kernel, start, end, lane=0, **facts):
    return KernelProfile(kernel, "CPU", 3, start, end, lane, **facts)


@pytest.mark.row("S66")
def test_elapsed_is_end_minus_start():
    found = profile(compiled(), 1_000, 3_500)
    assert found.elapsed_ns == 2500 and found.elapsed == pytest.approx(2.5e-6)


def test_table_sums_launches_and_gives_rates():
    matmul = compiled(entry_point="matmul", bytes_moved=3_000, flops=40_000)
    copy = compiled(entry_point="copy", bytes_moved=1_000)
    plain = compiled(entry_point="plain")
    table = profile_table(
        [profile(copy, 0, 100), profile(matmul, 100, 500), profile(matmul, 500, 900),
         profile(plain, 900, 1000)],
        Roofline(gigabytes_per_second=20, gigaflops=200),
    )  # fmt: skip
    assert [(row.name, row.calls, row.total_ns) for row in table.rows] == [
        ("matmul", 2, 800), ("copy", 1, 100), ("plain", 1, 100),
    ]  # fmt: skip
    first, second, third = table.rows
    assert (first.share, first.gigabytes_per_second, first.gigaflops) == (0.8, 7.5, 100)
    assert first.of_roofline == 0.5 and second.of_roofline == 0.5
    assert second.gigaflops is None and third.gigabytes_per_second is None
    assert (table.total_ns, table.wall_ns) == (1000, 1000)
    text = str(table)
    assert text.splitlines()[0].split() == [
        "kernel", "calls", "us", "share", "GB/s", "GFLOP/s", "roof",
    ]  # fmt: skip
    assert "matmul" in text and "80.0%" in text and "100.0" in text and "50%" in text
    assert profile_table([]).rows == ()


def test_plan_profile_is_a_table_of_its_runs():
    plan = plan_of([empty()], [launch(1, compiled(entry_point="kernel_a"), [0])])
    table = plan.profile(runs=3)
    assert [(row.name, row.calls) for row in table.rows] == [("kernel_a", 3)]


@pytest.mark.row("Q15")
def test_a_trace_has_one_track_per_lane_and_one_for_preparation(tmp_path):
    kernel = compiled(entry_point="spread")
    parts = (LaneTime(0, 2_000, 3_000), LaneTime(1, 2_100, 2_900))
    profiles = [profile(kernel, 1_000, 2_000, 1), profile(kernel, 2_000, 3_000, lanes=parts)]
    path = tmp_path / "trace.json"
    write_trace(path, profiles, [Span("rangeify", 500, 900, 77)])
    events = json.loads(path.read_text())["traceEvents"]
    assert events == trace_events(profiles, [Span("rangeify", 500, 900, 77)])
    names = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["ph"] == "M"}
    assert names == {(1, 0): "lane 0", (1, 1): "lane 1", (2, 0): "preparation 0"}
    slices = [e for e in events if e["ph"] == "X"]
    assert [(e["name"], e["tid"], e["ts"], e["dur"]) for e in slices] == [
        ("spread", 1, 0.5, 1.0), ("spread", 0, 1.5, 1.0), ("spread", 1, 1.6, 0.8),
        ("rangeify", 0, 0.0, 0.4),
    ]  # fmt: skip
    assert slices[0]["args"] == {"device": "CPU", "buffers": 3}
