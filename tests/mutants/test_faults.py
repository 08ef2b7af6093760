"""The faults that `make mutants` plants: each is a change, the list is the same in every run."""

from __future__ import annotations

import ast

import pytest

from tests.mutants.__main__ import SEED, equivalent
from tests.mutants.faults import Fault, faults, planted
from tests.mutants.stages import ROOT, STAGES, chosen

TEXT = """
def first(a, b):
    if a < b and not b:
        return a + 1
    print(a)
    for x in a:
        continue
    return min(a, b)

def second(values: list[int]) -> bool:
    assert values == [1]
    return any(zip(values, values, strict=True))
"""


def found() -> dict[str, Fault]:
    return {f"{f.kind}: {f.before} -> {f.after}": f for f in faults(TEXT, "some.py")}


def test_slips_are_found_and_assertions_and_types_are_left_alone() -> None:
    assert set(found()) == {
        "branch: if a < b and (not b) -> if not (a < b and (not b))",
        "and or: a < b and (not b) -> a < b or not b", "comparison: a < b -> a <= b",
        "not: not b -> b", "operator: a + 1 -> a - 1", "number: 1 -> 2",
        "left out: print(a) -> pass", "loop: continue -> break", "twin: min(a, b) -> max(a, b)",
        "twin: any(zip(values, values, strict=True)) -> all(zip(values, values, strict=True))",
    }  # fmt: skip


@pytest.mark.parametrize("name", list(found()))
def test_a_fault_changes_one_spot(name: str) -> None:
    fault = found()[name]
    before = ast.unparse(ast.parse(TEXT)).splitlines()
    after = ast.unparse(planted(TEXT, fault)).splitlines()
    assert len(after) == len(before)
    assert sum(a != b for a, b in zip(before, after, strict=True)) == 1


def test_equal_spots_are_told_apart() -> None:
    text = "def f(a):\n    return a[0] * a[0]\n"
    first, second = [f for f in faults(text, "f.py") if f.kind == "number"]
    assert (first.turn, second.turn) == (0, 1) and first.name != second.name
    texts = {ast.unparse(planted(text, fault)) for fault in (first, second)}
    assert texts == {
        "def f(a):\n    return a[1] * a[0]",
        "def f(a):\n    return a[0] * a[1]",
    }


def test_the_faults_of_a_run_are_many_and_always_the_same() -> None:
    once = [fault.name for _, fault in chosen(SEED)]
    assert once == [fault.name for _, fault in chosen(SEED)]
    assert len(set(once)) == len(once) >= 150
    assert once != [fault.name for _, fault in chosen(SEED + 1)]
    assert {stage.name for stage, _ in chosen(SEED)} == {"schedule", "runtime", "tensor"}


def test_every_chosen_fault_can_be_planted() -> None:
    for _, fault in chosen(SEED):
        text = (ROOT / "svod" / fault.file).read_text(encoding="utf-8")
        compile(planted(text, fault), fault.file, "exec")


def test_tests_and_files_of_stages_exist() -> None:
    for stage in STAGES:
        assert [f for f in stage.files if not (ROOT / "svod" / f).is_file()] == []
        for file in stage.files:
            assert [t for t in stage.tests_of(file) if not (ROOT / "tests" / t).exists()] == []


def test_faults_that_change_nothing_exist_and_have_a_reason() -> None:
    known = equivalent()
    files = {name.split(" ", 1)[0] for name in known}
    possible = {
        fault.name
        for file in files
        for fault in faults((ROOT / "svod" / file).read_text(encoding="utf-8"), file)
    }
    assert sorted(set(known) - possible) == [], "take these out of equivalent.txt"
    assert all(len(reason) > 20 for reason in known.values())
