"""The debug ladder: each level of SVOD_DEBUG prints what it says, on stderr; 0 prints nothing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from functools import cache

import pytest

PROGRAM = """
import numpy as np
import svod

x = svod.Tensor(np.ones((64, 32), np.float32))
w = svod.Tensor(np.ones((32, 16), np.float32))
y = (x @ w).relu().realize()
again = (svod.Tensor(np.zeros((64, 32), np.float32)) @ w).relu().realize()
plan = (y.sum(0) + 1).prepare()
print("result", y.numpy().sum())
"""


@cache
def said(level: int) -> str:
    """What the program prints to stderr."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("SVOD_")}
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        capture_output=True,
        text=True,
        env={**clean, "SVOD_DEBUG": str(level), "NO_COLOR": "1"},
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == "result 32768.0\n"
    return result.stderr


def test_level_0_prints_nothing() -> None:
    assert said(0) == ""


def test_level_1_prints_the_device_and_what_the_caches_gave() -> None:
    text = said(1)
    assert re.search(r"^svod device CPU: vectors of \d+ bytes, \d+ threads", text, re.MULTILINE)
    first, second = re.findall(r"^svod realize 1 tensor: prepared in .*$", text, re.MULTILINE)
    assert "schedule misses 1, kernel misses 1, objects " in first
    assert "schedule hits 1, kernel hits 1" in second and "objects" not in second
    assert len(re.findall(r"^svod realize 1 tensor: ran in \d+\.\d+ ms$", text, re.MULTILINE)) == 2
    assert re.search(r"^svod prepare 1 tensor: prepared in ", text, re.MULTILINE)
    assert "kernels\n" not in text


def test_level_2_prints_kernels_with_time_and_share_of_the_roofline() -> None:
    text = said(2)
    assert re.search(r"^kernel +calls +us +share +GB/s +GFLOP/s +roof$", text, re.MULTILINE)
    row = r"^matmul_max_64x16_32 +1 +[\d.]+ 100\.0% +[\d.]+ +[\d.]+ +\d+%$"
    assert len(re.findall(row, text, re.MULTILINE)) == 2
    assert "schedule of" not in text


def test_level_3_prints_the_calls_of_each_schedule() -> None:
    text = said(3)
    lines = r"^svod schedule of 1 call\n  0: (.*)$"
    first, second, third = re.findall(lines, text, re.MULTILINE)
    assert first == second
    assert first.startswith("matmul_max_64x16_32  out0 f32[64,16] <- in0 f32[64,1,32], in1 f32[")
    assert third.startswith("sum_add_16_64  out0 f32[16] <- in0 f32[64,16]")
    assert "-- rangeify" not in text


def test_level_4_prints_the_graph_after_each_pass() -> None:
    from svod.codegen.targets.cpu import CHOOSING, LOWERING
    from svod.schedule.schedule import SCHEDULE_PASSES

    text = said(4)
    for step in (*SCHEDULE_PASSES, *CHOOSING, *LOWERING):
        assert f"svod -- {step.name}" in text
    assert "%0 = PARAM f32" in text
    assert "define void @" not in text


def test_level_5_prints_llvm_ir() -> None:
    text = said(5)
    assert "define void @matmul_max_64x16_32" in text
    assert ".text" not in text


def test_level_6_prints_assembly() -> None:
    assert re.search(r"^\s*\.text$", said(6), re.MULTILINE)


@pytest.mark.parametrize("level", range(1, 7))
def test_every_level_says_what_the_levels_below_say(level: int) -> None:
    words = ["device CPU", "kernels\n", "schedule of", "-- rangeify", "define void", ".text"]
    for number, word in enumerate(words, 1):
        assert (word in said(level)) == (number <= level)
