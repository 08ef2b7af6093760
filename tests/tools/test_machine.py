"""`svod tune machine`: every cost that says so is measured, plausible and kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from svod.schedule.costs import costs_of
from svod.schedule.costs_cpu import CPU
from svod.schedule.costs_gpu import GPU
from svod.tools import machine
from svod.tools.cli import main


def test_the_numbers_of_this_machine_are_measured_printed_and_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SVOD_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(machine, "RUNS", 30)
    assert main(["tune", "machine", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["costs"]
    wanted = [c.measurement for c in costs_of(CPU) if c.measurement is not None]
    assert set(wanted) <= set(found) and len(wanted) >= 14
    assert 0.05 < found["cycle_ns"] < 5 and 1.5 < found["fma_latency"] < 20
    assert found["panel_bytes"] > 1 and found["memory_bytes"] > 0.1
    assert found["exponential"] > 1 and found["power"] > found["division"]
    kept = machine.kept()
    assert kept is not None and kept.keys() == found.keys()


def test_numbers_of_a_gpu_are_not_said_to_be_measured_here() -> None:
    assert [c.name for c in costs_of(GPU) if c.measurement is not None] == []
