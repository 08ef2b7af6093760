"""Bodies that become the same program: compiled once, and each bound to its own arguments."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import svod
from svod.ir import ops as O
from svod.ir.node import UOp, make, substitute
from svod.runtime.caches import clear_kernel_cache, compiled_kernels
from svod.runtime.config import PrepareConfig
from svod.tensor.recording.realize import schedule_of


@pytest.fixture(autouse=True)
def nothing_is_known() -> Iterator[None]:
    clear_kernel_cache()
    yield
    clear_kernel_cache()


def body_over(body: UOp, slots: dict[int, int]) -> UOp:
    """The body with other numbers for its arguments."""
    mapping = {
        n: make(O.PARAM, n.dtype, (), n.arg._replace(slot=slots[n.arg.slot]))
        for n in body.toposort()
        if n.op == O.PARAM and not n.src
    }
    return substitute((body,), mapping)[0]


def test_a_program_is_bound_to_the_arguments_of_each_body() -> None:
    x, y = svod.rand(37).realize(), svod.rand(37).realize()
    schedule, _ = schedule_of([x * 2 + y])
    (item,) = schedule.items
    bodies = [
        item.body,
        body_over(item.body, {0: 0, 1: 2, 2: 3}),
        body_over(item.body, {0: 1, 1: 3, 2: 4}),
    ]
    found = compiled_kernels(bodies, "CPU", PrepareConfig.of(None))
    assert [found[body].globals for body in bodies] == [(0, 1, 2), (0, 2, 3), (1, 3, 4)]
    assert [found[body].outs for body in bodies] == [(0,), (0,), (1,)]
    assert len({found[body].entry_point for body in bodies}) == 1
