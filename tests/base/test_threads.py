from __future__ import annotations

import os
from pathlib import Path

import pytest

from svod.base import threads
from svod.base.knobs import knobs
from svod.base.threads import cgroup_limit, thread_budget


@pytest.fixture(autouse=True)
def eight_of_sixteen_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 16)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)
    monkeypatch.setattr(threads, "cgroup_limit", lambda: None)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)


def test_the_affinity_mask_counts_not_the_machine() -> None:
    budget = thread_budget()
    assert (budget.cpus, budget.affinity, budget.threads) == (16, 8, 8)


@pytest.mark.parametrize(("quota", "expected"), [(3.0, 3), (0.5, 1), (2.6, 3), (100.0, 8)])
def test_a_container_limits(quota: float, expected: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "cgroup_limit", lambda: quota)
    assert thread_budget().threads == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("2", 2), ("4,2", 4), ("99", 8), ("0", 8), ("all", 8), ("-1", 8)]
)
def test_openmp_is_an_upper_bound(
    text: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", text)
    assert thread_budget().threads == expected


def test_the_knob_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    with knobs.scope(threads=12):
        assert thread_budget().threads == 12
    assert thread_budget().threads == 2


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_cgroup_2_takes_the_smallest_limit_on_the_way_down(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    write(own, "0::/user/job\n")
    write(root / "user" / "cpu.max", "400000 100000\n")
    assert cgroup_limit(root, own) == 4
    write(root / "user" / "job" / "cpu.max", "150000 100000\n")
    assert cgroup_limit(root, own) == 1.5
    write(root / "user" / "job" / "cpu.max", "max 100000\n")
    assert cgroup_limit(root, own) == 4


def test_cgroup_1_is_read_from_the_cpu_controller(tmp_path: Path) -> None:
    root, own = tmp_path / "cgroup", tmp_path / "own"
    write(own, "5:memory:/job\n4:cpu,cpuacct:/job\n")
    write(root / "cpu" / "job" / "cpu.cfs_quota_us", "250000\n")
    write(root / "cpu" / "job" / "cpu.cfs_period_us", "100000\n")
    write(root / "cpu" / "cpu.cfs_quota_us", "-1\n")
    write(root / "cpu" / "cpu.cfs_period_us", "100000\n")
    assert cgroup_limit(root, own) == 2.5


def test_no_cgroup_or_nonsense_is_no_limit(tmp_path: Path) -> None:
    assert cgroup_limit(tmp_path / "none", tmp_path / "none") is None
    write(tmp_path / "own", "nonsense\n0::/\n")
    write(tmp_path / "cpu.max", "a b c\n")
    assert cgroup_limit(tmp_path, tmp_path / "own") is None
