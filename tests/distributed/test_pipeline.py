"""A pipeline trains as its stages one after the other do, in one process and in several"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import svod
from svod import Tensor, nn
from svod.base.errors import ConfigError, ShapeError
from svod.distributed import Pipeline, mesh
from svod.distributed.stages import order_of_parts

PROGRAM = Path(__file__).with_name("pipelines.py")


@pytest.mark.parametrize(("stages", "parts"), [(1, 3), (2, 4), (4, 8), (4, 2)])
def test_every_part_goes_forwards_before_backwards_and_few_wait(stages: int, parts: int) -> None:
    for place in range(stages):
        order = order_of_parts(place, stages, parts)
        assert sorted(order) == sorted([(f, i) for i in range(parts) for f in (True, False)])
        waiting = 0
        for is_forward, i in order:
            waiting += 1 if is_forward else -1
            assert (True, i) in order[: order.index((is_forward, i)) + 1]
            assert 0 <= waiting <= stages - place


@pytest.mark.parametrize(("stages", "parts"), [(2, 4), (3, 5), (4, 2)])
def test_the_stages_never_wait_for_each_other_in_a_circle(stages: int, parts: int) -> None:
    """Each stage runs its passes in order, as soon as what it receives has been sent."""
    orders = [order_of_parts(place, stages, parts) for place in range(stages)]
    at = [0] * stages
    done: set[tuple[int, bool, int]] = set()
    while True:
        moved = False
        for place in range(stages):
            while at[place] < len(orders[place]):
                is_forward, i = orders[place][at[place]]
                source = place - 1 if is_forward else place + 1
                if 0 <= source < stages and (source, is_forward, i) not in done:
                    break
                done.add((place, is_forward, i))
                at[place] += 1
                moved = True
        if not moved:
            break
    assert at == [2 * parts] * stages


def test_parts_of_a_batch_give_the_gradients_of_the_batch() -> None:
    def pair() -> list[nn.Module]:
        svod.manual_seed(1)
        return [nn.Linear(4, 5), nn.Linear(5, 2)]

    x, y = svod.rand(6, 4).realize(), svod.rand(6, 2).realize()

    def loss(found: Tensor, wanted: Tensor) -> Tensor:
        return ((found - wanted) ** 2).mean()

    pipeline = Pipeline(pair(), loss, mesh({"stage": 2}), 3)
    found = pipeline.backward(x, y)
    first, second = pair()
    wanted = loss(second(first(x)), y)
    wanted.backward()
    assert found.item() == pytest.approx(wanted.item(), rel=1e-6)
    for p, q in zip(
        pipeline.parameters(), [*first.parameters(), *second.parameters()], strict=True
    ):
        assert p.grad is not None and q.grad is not None
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-6)
    with pytest.raises(ShapeError, match="6 samples do not make 4 equal parts"):
        Pipeline(pair(), loss, mesh({"stage": 2}), 4).backward(x, y)
    with pytest.raises(ConfigError, match="2 stages over 3 ranks"):
        Pipeline(pair(), loss, mesh({"stage": 3}), 1)


@pytest.mark.long
def test_a_gpt_in_four_processes_follows_the_losses_of_one(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="ranks in processes need mpi4py")
    from svod.tools.launching import command

    try:
        four = command(4, str(PROGRAM))
    except ConfigError as error:
        pytest.skip(str(error))
    losses = {}
    for name, start in (("one", [sys.executable, str(PROGRAM)]), ("four", four)):
        (tmp_path / name).mkdir()
        subprocess.run(
            [*start, str(tmp_path / name), "4", "50"], check=True, timeout=240,
            env={**os.environ, "SVOD_THREADS": "1"},
        )  # fmt: skip
        files = sorted((tmp_path / name).glob("*.json"))
        losses[name] = [json.loads(f.read_text()) for f in files]
    (wanted,) = losses["one"]
    assert len(wanted) == 50 and wanted[-1] < wanted[0]
    assert len(losses["four"]) == 4
    for found in losses["four"]:
        assert found == pytest.approx(wanted, rel=1e-5)
