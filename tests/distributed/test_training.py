"""A GPT and a convnet trained in four processes follow the losses of one"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("mpi4py", reason="ranks in processes need mpi4py")
from svod.base.errors import ConfigError
from svod.tools.launching import command

PROGRAM = Path(__file__).with_name("training.py")
STEPS = 50


@pytest.mark.long
@pytest.mark.parametrize("way", ["data", "zero", "tensor"])
@pytest.mark.parametrize("model", ["gpt", "convnet"])
def test_four_processes_follow_the_losses_of_one(tmp_path: Path, model: str, way: str) -> None:
    try:
        start = command(4, str(PROGRAM))
    except ConfigError as error:
        pytest.skip(str(error))
    one = _losses(tmp_path / "one", [sys.executable, str(PROGRAM)], model, "alone")
    four = _losses(tmp_path / "four", start, model, way)
    assert len(one) == 1 and len(four) == 4
    assert len(one[0]) == STEPS and one[0][-1] < one[0][0]
    for losses in four:
        assert losses == pytest.approx(one[0], rel=1e-5)


def _losses(folder: Path, start: list[str], model: str, way: str) -> list[list[float]]:
    folder.mkdir()
    started = [*start, str(folder), model, way, str(STEPS)]
    environment = {**os.environ, "SVOD_THREADS": "1"}
    subprocess.run(started, check=True, timeout=120, env=environment)
    return [json.loads(f.read_text()) for f in sorted(folder.glob("*.json"))]
