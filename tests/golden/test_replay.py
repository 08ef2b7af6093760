"""What is printed of the opts of a kernel makes the same kernel again, on every target."""

from __future__ import annotations

import pytest

from svod.base.errors import ArgumentError
from svod.optimize.actions import OptimizeError
from svod.optimize.opts import Opt, read_opts
from svod.schedule.sorts import is_sort
from tests.golden import digests
from tests.golden.forms import forms

GOALS = {goal.name: goal for goal in digests.goals()}


@pytest.mark.parametrize("name", GOALS)
def test_the_opts_of_every_kernel_replay(name: str) -> None:
    goal, count = GOALS[name], 0
    for form, program in forms(digests.new_on(goal.target.name)):
        for body in goal.bodies(program()):
            if is_sort(body):
                continue
            first = goal.kernel(body)
            again = goal.kernel(body, read_opts(first.opts))
            assert again.text == first.text, f"{form}: {first.name}: {first.opts}"
            count += 1
    assert count > 400


def test_a_plan_of_other_amounts_replays_too() -> None:
    goal = GOALS["sm_90"]
    new = digests.new_on("CUDA")
    (body,) = goal.bodies([new(512, 512) + 1])
    found = [
        digests.generate(body, digests.cuda_target(m)) for m in digests.GpuMachine().variants()
    ]
    for code in found:
        assert goal.kernel(body, code.opts).text.count(code.symbol)
    assert len({code.opts for code in found}) > 1
    with pytest.raises(OptimizeError, match=r"no plan has the opts TC\(axis=0, amount=7\)"):
        goal.kernel(body, (Opt("TC", 0, 7),))


def test_texts_that_are_no_opts() -> None:
    assert read_opts("") == ()
    assert read_opts("LANE(axis=0, amount=8), MOVE(axis=1, amount=0)") == (
        Opt("LANE", 0, 8), Opt("MOVE", 1, 0),
    )  # fmt: skip
    for text in ("LANE", "LANE(axis=0)", "LANE(axis=0, amount=8) THREAD(axis=0, amount=2)"):
        with pytest.raises(ArgumentError, match="no list of opts"):
            read_opts(text)
