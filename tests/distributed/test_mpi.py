"""Programs in four processes give what one process gives, and no fault of a rank makes them hang"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mpi4py", reason="ranks in processes need mpi4py")
from svod.base.errors import ConfigError
from svod.tools.launching import command

PROGRAM = Path(__file__).with_name("ranks.py")
pytestmark = pytest.mark.long


def _run(folder: Path, kind: str) -> dict[int, dict[str, Any]]:
    try:
        started = command(4, str(PROGRAM), str(folder), kind)
    except ConfigError as error:
        pytest.skip(str(error))
    subprocess.run(started, check=False, timeout=90, capture_output=True)
    return {int(f.stem): json.loads(f.read_text()) for f in folder.glob("*.json")}


def test_four_processes_train_as_one_does(tmp_path: Path) -> None:
    found = _run(tmp_path, "ok")
    assert sorted(found) == [0, 1, 2, 3]
    assert all(f["hosted"] == 1 for f in found.values())
    alone = tmp_path / "alone"
    alone.mkdir()
    subprocess.run([sys.executable, str(PROGRAM), str(alone), "ok"], check=True, timeout=60)
    one = json.loads((alone / "0.json").read_text())
    assert one["hosted"] == 4
    for f in found.values():
        assert f["losses"] == pytest.approx(one["losses"], rel=1e-5)
        assert f["largest"] == pytest.approx(one["largest"], rel=1e-5)


@pytest.mark.parametrize(
    ("kind", "rank", "says"),
    [
        ("die", 2, "rank 2 ended before"),
        ("late", 1, "rank 1 was not at"),
        ("other", 3, "rank 3 at [distributed.all_reduce"),
    ],
)
def test_a_fault_of_a_rank_is_named_by_the_others(
    tmp_path: Path, kind: str, rank: int, says: str
) -> None:
    found = _run(tmp_path, kind)
    others = {0, 1, 2, 3} - {rank}
    assert others <= set(found)
    for other in others:
        error = found[other]["error"]
        assert says in error or f"rank {rank} is at [" in error
        assert found[other]["seconds"] < 10


def test_a_rank_that_is_killed_is_named_and_fewer_ranks_go_on(tmp_path: Path) -> None:
    from bench.soak.ranks import goes_on, kill_one, losses_alone

    try:
        command(4, "")
    except ConfigError as error:
        pytest.skip(str(error))
    wanted = losses_alone(tmp_path)
    kill_one(tmp_path, 1, 0.1)
    goes_on(tmp_path, wanted)
