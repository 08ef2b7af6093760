"""The net under changes that only move code: digests of kernels are stable and tell changes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden import digests

FEW = ("matmul float32", "one query bfloat16", "long sort")


def test_digests_are_the_same_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "digests"
    assert digests.main("write", str(file), *FEW) == 0
    made = file.read_text().splitlines()
    assert {line.split(" | ")[0] for line in made} == {"avx512", "avx2", "sse4", "sm_90", "sm_80"}
    assert digests.main("compare", str(file), *FEW) == 0
    assert f"{len(made)} kernels, 0 gone, 0 new" in capsys.readouterr().out


def test_a_changed_kernel_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "digests"
    made = digests.lines(FEW)
    goal, form, name, mark, opts = made[0].split(" | ")
    other = " | ".join([goal, form, name, mark[::-1], opts])
    file.write_text("\n".join([other, *made[1:]]))
    assert digests.main("compare", str(file), *FEW) == 1
    said = capsys.readouterr().out
    assert f"- {other}" in said and f"+ {made[0]}" in said
