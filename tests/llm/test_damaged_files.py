"""Damaged files of models are refused, or give what can be used: some of what the command runs."""

from __future__ import annotations

from tests.llm.fuzz_files import run


def test_damaged_files_are_refused_or_usable() -> None:
    counts, problems = run(0, 41)
    assert not problems
    assert counts["refused"] > 20 and counts["loaded"] > 3
    # A token of a number that no memory has room for.
    assert run(383, 384) == ({"refused": 1}, [])
