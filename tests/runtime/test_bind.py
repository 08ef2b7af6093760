"""Binding arrays to a native plan: the short way keeps every check of the long one."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))
from saved_plans import network, random

import svod
from svod.base.errors import (
    BufferNotFound,
    DeviceError,
    DTypeError,
    ExecutionError,
    IndexRangeError,
    ShapeError,
)
from svod.runtime import ExecutionPlan, wiring
from svod.tensor.recording.realize import prepare


def product() -> ExecutionPlan:
    a, b = (svod.Tensor(random(16, seed=n)) for n in range(2))
    return prepare([a * b], inputs={"a": a, "b": b}, outputs=["y"])


@pytest.fixture(params=["short", "long"])
def plan(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> ExecutionPlan:
    """A product of two inputs, bound the short way and as where the short way is not known."""
    monkeypatch.setattr(wiring, "_IS_AS_DESCRIBED", request.param == "short")
    return product()


def test_the_short_way_is_known_here() -> None:
    assert wiring._IS_AS_DESCRIBED
    assert sorted(product()._wiring._shortcuts) == ["a", "b", "y"]


def test_several_are_bound_in_one_call(plan: ExecutionPlan) -> None:
    a, b, y = random(16, seed=3), random(16, seed=4), np.zeros(16, np.float32)
    plan.bind(a=a, b=b, y=y)
    plan.execute()
    assert (y == a * b).all()
    a[:] = 2
    plan.execute()
    assert (y == 2 * b).all()
    assert plan.inputs["a"].address == a.ctypes.data
    plan.bind("b", a)
    plan.execute()
    assert (y == 4).all()


def test_a_read_only_array_is_an_input_but_no_output(plan: ExecutionPlan) -> None:
    a = random(16, seed=3)
    a.flags.writeable = False
    assert (plan(a=a, b=np.ones(16, np.float32)) == a).all()
    with pytest.raises(DeviceError, match="read-only"):
        plan.bind(y=a)


def test_an_input_that_is_not_contiguous_is_copied(plan: ExecutionPlan) -> None:
    a = random(32)[::2]
    assert (plan(a=a, b=np.ones(16, np.float32)) == a).all()
    with pytest.raises(ShapeError, match="needs an aligned, contiguous array"):
        plan.bind(y=a)


def test_what_does_not_fit_is_refused(plan: ExecutionPlan) -> None:
    with pytest.raises(DTypeError, match="got an array of float64: cast it first"):
        plan.bind(a=np.zeros(16))
    with pytest.raises(DTypeError, match="cast it first"):
        plan.bind(a=np.zeros(16, ">f4"))
    with pytest.raises(ShapeError, match="16 elements, got 17"):
        plan.bind(a=np.zeros(17, np.float32))
    with pytest.raises(DTypeError, match="takes an array or a buffer, got str"):
        plan.bind("a", "text")
    with pytest.raises(BufferNotFound, match="'c'"):
        plan.bind(c=np.zeros(16, np.float32))
    misaligned = np.zeros(65, np.uint8)[1:].view(np.float32)
    assert (plan(a=misaligned, b=misaligned) == 0).all()


def test_an_output_must_not_share_memory_with_an_input(plan: ExecutionPlan) -> None:
    memory = np.zeros(24, np.float32)
    plan.bind(a=memory[:16])
    with pytest.raises(ExecutionError, match=r"cannot bind 'y' to memory .* uses as 'a'"):
        plan.bind(y=memory[8:])
    plan.bind(b=memory[8:])  # both are only read


def test_nothing_may_share_memory_with_an_intermediate() -> None:
    plan, x = network()
    inner = next(
        buffer
        for place, buffer in enumerate(plan.buffers())
        if buffer.size == 8 * 96 and place not in plan.output_buffer_indices()
    )
    with pytest.raises(ExecutionError, match="an intermediate or a constant"):
        plan.bind(x=inner.numpy()[: x.size].reshape(x.shape))


def test_memory_that_is_bound_stays_alive(plan: ExecutionPlan) -> None:
    for seed in range(20):
        plan.bind(a=random(16, seed=seed), b=np.ones(16, np.float32))
    plan.execute()
    assert (plan.outputs["y"].numpy() == random(16, seed=19)).all()


def test_arrays_that_are_bound_together_must_not_overlap_where_one_is_written(
    plan: ExecutionPlan,
) -> None:
    memory = random(32, seed=5)
    before = memory.copy()
    with pytest.raises(ExecutionError, match="memory"):
        plan.bind(a=memory[:16], y=memory[8:24])
    plan(b=np.ones(16, np.float32))
    assert (memory == before).all(), "nothing was bound"
    with pytest.raises(ExecutionError, match="memory"):
        plan._wiring.rebind({"a": memory[:16], "y": memory[8:24]})
    plan.bind(a=memory[:16], b=memory[4:20])  # nobody writes these
    assert (plan() == memory[:16] * memory[4:20]).all()


def test_an_input_that_is_simplified_away_is_still_taken() -> None:
    a, b = (svod.Tensor(random(16, seed=n)) for n in range(2))
    chosen = svod.where(svod.ones(16).cast("bool"), a, b)
    plan = prepare([chosen], inputs={"a": a, "b": b}, outputs=["y"])
    assert list(plan.inputs) == ["a", "b"]
    given = random(16, seed=7)
    assert (plan(a=given, b=np.zeros(16, np.float32)) == given).all()


def test_checks_of_indices_belong_to_the_native_plan() -> None:
    table, index = svod.Tensor(random(16)), svod.Tensor(np.array([3, -1]))
    plan = prepare([table[index]], inputs={"index": index}, outputs=["y"])
    assert plan._flat is not None and not plan._flat.has_stops
    assert (plan(index=np.array([0, -16])) == random(16)[[0, 0]]).all()
    with pytest.raises(IndexRangeError, match="16"):
        plan(index=np.array([0, 16]))
