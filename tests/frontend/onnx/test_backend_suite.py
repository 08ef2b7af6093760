"""ONNX's own backend suite: what is not excluded with a reason gives the wanted results.

Cases run in shards, for making the cases takes longer than running some. `python -m
tests.frontend.onnx.coverage` prints a table by operator.
"""

from __future__ import annotations

import pytest

from tests.frontend.onnx.cases import cases, outcome
from tests.frontend.onnx.excluded import reason

SHARDS = 16  # the first is in the quick lane


def _run(kind: str, shard: int, shards: int) -> None:
    chosen = [c for c in cases(kind) if reason(c.name) is None][shard::shards]
    assert chosen
    found = {c.name: outcome(c) for c in chosen}
    failed = {name: problem for name, problem in found.items() if problem}
    assert not failed, "\n".join(f"{n}: {p[:200]}" for n, p in failed.items())


@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["simple", "pytorch-operator"])
def test_small_models_are_right(kind: str) -> None:
    _run(kind, 0, 1)


@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "shard", [s if s == 0 else pytest.param(s, marks=pytest.mark.long) for s in range(SHARDS)]
)
def test_nodes_are_right(shard: int) -> None:
    _run("node", shard, SHARDS)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")
def test_converted_models_are_right() -> None:
    _run("pytorch-converted", 0, 1)
