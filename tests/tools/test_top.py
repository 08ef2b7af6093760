"""What processes say of their plans, and how `svod top` shows it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

import svod
from svod.runtime import plan as plans
from svod.tools.publishing import Publisher, folder
from svod.tools.top import HELP, processes, text_of


@pytest.fixture
def publisher(tmp_path: Path) -> Iterator[Publisher]:
    with svod.knobs.scope(CACHE_DIR=tmp_path):
        found = Publisher()
        yield found
        found.close()


def test_a_process_says_which_plans_ran_how_often_and_how_long(publisher: Publisher) -> None:
    x = svod.ones(8, 8).realize()
    plan = svod.prepare((x @ x).softmax(-1))
    plan.execute()
    publisher._written -= 2  # two seconds ago
    plan.execute()
    (one,) = processes()
    assert one["pid"] == os.getpid()
    row = next(row for row in one["plans"] if row["runs"] == 2)
    assert row["ns"] > 0 and 0 < row["rate"] <= 1
    text = text_of([{**one, "age": 0.0}])
    assert f"pid {os.getpid()}" in text and "test_top.py" in text and "runs/s" in text


def test_a_process_that_has_been_quiet_is_not_busy(publisher: Publisher) -> None:
    svod.prepare(svod.ones(8) + 1).execute()
    publisher._written -= 2
    svod.prepare(svod.ones(8) + 2).execute()
    (one,) = processes()
    text = text_of([{**one, "age": 60.0}])
    assert "last run 60.00 s ago" in text
    assert " 0.0 " in text


def test_the_file_goes_with_the_process_and_those_of_dead_ones_too(publisher: Publisher) -> None:
    svod.prepare(svod.ones(8) + 1).execute()
    publisher._written -= 2
    svod.prepare(svod.ones(8) + 1).execute()
    assert len(list(folder().glob("*.json"))) == 1
    (folder() / "1.json").write_text("not json")
    child = os.fork()
    if not child:
        os._exit(0)
    os.waitpid(child, 0)
    dead = folder() / f"{child}.json"
    dead.write_text(json.dumps({"pid": child, "program": "x", "plans": []}))
    assert [one["pid"] for one in processes()] == [os.getpid()]
    assert not dead.exists()
    publisher.close()
    assert processes() == []
    assert publisher.note not in plans.watchers
    assert text_of([]) == HELP
