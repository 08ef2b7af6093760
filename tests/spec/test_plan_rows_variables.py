"""S37-S49, S67-S69, T10, T11: launch sizes and variables at run time."""

from __future__ import annotations

import numpy as np
import pytest

from svod.base.errors import ExecutionError, VariableError
from svod.device.launch import BoundsError, concrete_size, default_size
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import const, make, variable
from svod.runtime import (
    PreparedCopy,
    PreparedCustomFunction,
    register_custom_function,
    unregister_custom_function,
)
from svod.runtime.executor import launch_dims, uses_cpu_threading
from tests.spec.plan_parts import Calls, body, compiled, empty, launch, plan_of

ONE = const(1, dt.index)


def grid(first):
    """A launch size whose first axis is an expression."""
    return (first, ONE, ONE)


def kernel_with(name="n", low=1, high=10, *, vals=(1,), program=None, **facts):
    calls = program or Calls()
    found = compiled(calls, var_names=facts.pop("var_names", [name]), **facts.pop("kernel", {}))
    op_id = facts.pop("op_id", 1)
    op = launch(op_id, found, [0], ast=body((name, low, high)), vals=list(vals), **facts)
    return calls, op


@pytest.mark.row("S37")
def test_fixed_values_win_over_values_in_launch_sizes():
    size = make(O.MUL, dt.index, (variable("n", 0, 99), variable("m", 0, 99)))
    found = compiled(var_names=["n", "m"], global_size=grid(size), local_size=grid(ONE))
    op = launch(1, found, [0], vals=[3, 4], fixedvars={"m": 5, "unused": 1})
    assert launch_dims(op).global_size == (15, 1, 1)
    calls = Calls()
    found.program = calls
    plan_of([empty()], [op]).execute()
    assert calls.seen[0][1:] == ([3, 4], (15, 1, 1), (1, 1, 1))


@pytest.mark.row("S38")
def test_fewer_values_than_names():
    calls, op = kernel_with(var_names=["n", "m"], vals=[1])
    plan = plan_of([empty()], [op])
    with pytest.raises(ExecutionError, match=r"Kernel 1 has 2 var names but only 1 values"):
        plan.execute()
    assert not calls.seen


@pytest.mark.row("S39")
def test_a_launch_size_that_fails_names_the_kernel():
    size = make(O.SUB, dt.index, (variable("n", 0, 10), const(5, dt.index)))
    calls, op = kernel_with(low=0, kernel={"global_size": grid(size)}, op_id=77)
    plan = plan_of([empty()], [op])
    with pytest.raises(ExecutionError, match=r"Kernel 77 launch dimensions failed: .*non-positive"):
        plan.execute()
    missing = launch(8, compiled(global_size=grid(variable("k", 1, 4))), [0])
    with pytest.raises(ExecutionError, match=r"Kernel 8 launch dimensions failed: missing .* k"):
        plan_of([empty()], [missing]).execute()
    assert not calls.seen


@pytest.mark.row("S40")
@pytest.mark.parametrize(
    ("device", "size", "expected"),
    [("CPU", (4, 1, 1), True), ("CPU:1", (2, 1, 1), True), ("CPU", (1, 8, 8), False),
     ("REF", (4, 1, 1), False)],
)  # fmt: skip
def test_cpu_threaded_means_a_cpu_and_a_first_axis_above_one(device, size, expected):
    op = launch(1, compiled(global_size=concrete_size(size)), [0], device=device)
    assert uses_cpu_threading(op) is expected


@pytest.mark.row("S41")
def test_a_program_gets_addresses_values_and_sizes_and_its_error_names_the_kernel():
    target = empty()
    calls, op = kernel_with(vals=[6], kernel={"global_size": concrete_size((2, 3, 4))}, op_id=31)
    plan_of([target], [op]).execute()
    assert calls.seen == [([target.address], [6], (2, 3, 4), (1, 1, 1))]

    def fail(*args):
        raise ValueError("the bus is late")

    _, broken = kernel_with(program=Calls(fail), op_id=32)
    with pytest.raises(ExecutionError, match=r"Kernel 32 failed: the bus is late") as caught:
        plan_of([empty()], [broken]).execute()
    assert isinstance(caught.value.__cause__, ValueError)
    assert caught.value.op_id == 32


@pytest.mark.row("S42", "S45")
def test_nothing_changes_when_a_value_is_refused():
    first, one = kernel_with("n", 1, 10, vals=[2])
    second, two = kernel_with("m", 1, 5, vals=[2], op_id=2)
    plan = plan_of([empty()], [one, two, PreparedCopy(3, [0, 0], [2])])
    with pytest.raises(VariableError):
        plan.execute_with_vars([("n", 7), ("m", 6)])
    assert not first.seen and not second.seen
    assert (one.vals, two.vals, plan.variables) == ([2], [2], {})


@pytest.mark.row("S42")
def test_custom_functions_are_validated_too():
    op = PreparedCustomFunction(1, "SpecChecked", (variable("n", 1, 4),), [0])
    plan = plan_of([empty()], [op])
    with pytest.raises(VariableError, match=r"n=5 is outside bounds \[1, 4\]"):
        plan.execute_with_vars({"n": 5})


@pytest.mark.row("S43")
def test_fixed_names_and_core_id_are_not_validated():
    calls, op = kernel_with("n", 1, 10, vals=[2], fixedvars={"n": 2})
    core, threaded = kernel_with("core_id", 0, 3, vals=[0], op_id=2)
    plan = plan_of([empty()], [op, threaded])
    plan.execute_with_vars({"n": 999, "core_id": 999})
    assert calls.seen[0][1] == [2] and core.seen[0][1] == [0]


@pytest.mark.row("S44")
def test_the_last_value_of_a_repeated_name_counts():
    calls, op = kernel_with(high=10)
    plan = plan_of([empty()], [op])
    plan.execute_with_vars([("n", 99), ("n", 4)])
    assert calls.seen[0][1] == [4]
    with pytest.raises(VariableError):
        plan.execute_with_vars([("n", 4), ("n", 99)])
    plan.execute_with_vars([("other", 10**6)])  # not a name of this plan: nothing to validate


@pytest.mark.row("S45")
@pytest.mark.parametrize("value", [0, 11, -5])
def test_value_outside_the_inclusive_bounds(value):
    _, op = kernel_with(low=1, high=10)
    with pytest.raises(
        VariableError, match=rf"^variable n={value} is outside bounds \[1, 10\]$"
    ) as caught:
        plan_of([empty()], [op]).execute_with_vars({"n": value})
    assert isinstance(caught.value, BoundsError)
    assert (caught.value.variable, caught.value.value) == ("n", value)
    assert (caught.value.low, caught.value.high) == (1, 10)


@pytest.mark.row("S45")
def test_a_value_that_is_no_whole_number_is_refused():
    _, op = kernel_with()
    plan = plan_of([empty()], [op])
    with pytest.raises(VariableError, match=r"variable n takes a whole number, got 2.5"):
        plan.execute_with_vars({"n": 2.5})
    plan.execute_with_vars({"n": np.int32(3)})
    assert op.vals == [3]


@pytest.mark.row("S46")
def test_bindings_stay_for_later_runs_and_unknown_names_are_remembered():
    calls, op = kernel_with()
    plan = plan_of([empty()], [op])
    plan.execute_with_vars({"n": 7, "stranger": 3, "core_id": 5})
    plan.execute()
    assert [seen[1] for seen in calls.seen] == [[7], [7]]
    assert plan.variables == {"n": 7, "stranger": 3}, "core_id is never recorded"


@pytest.mark.row("S47")
def test_every_kernel_that_uses_a_name_is_updated_in_place():
    first, one = kernel_with(vals=[1])
    second, two = kernel_with(vals=[1], op_id=2)
    fixed, three = kernel_with(vals=[1], fixedvars={"n": 1}, op_id=3)
    lists = [one.vals, two.vals, three.vals]
    plan = plan_of([empty()], [one, two, three])
    plan.execute_with_vars({"n": 9})
    assert [calls.seen[0][1] for calls in (first, second, fixed)] == [[9], [9], [1]]
    assert [found is op.vals for found, op in zip(lists, (one, two, three), strict=True)] == [
        True
    ] * 3


@pytest.mark.row("S48")
def test_a_name_without_a_slot():
    calls, op = kernel_with("m", 0, 9, var_names=["n", "m"], vals=[1])
    plan = plan_of([empty()], [op])
    with pytest.raises(ExecutionError, match=r"Kernel 1 has 2 var names but only 1 values"):
        plan.execute_with_vars({"m": 3})
    assert not calls.seen and plan.variables == {}


@pytest.fixture
def spy():
    seen = []
    register_custom_function(
        "SpecSpy", lambda buffers, attrs, values: seen.append(dict(values)), replace=True
    )
    yield seen
    unregister_custom_function("SpecSpy")


@pytest.mark.row("S49")
def test_custom_functions_get_bindings_overlaid_by_their_fixed_values(spy):
    op = PreparedCustomFunction(1, "SpecSpy", (variable("n", 2, 9),), [0], {"i": 4, "n2": 6})
    plan = plan_of([empty()], [op])
    plan.execute()
    plan.execute_with_vars({"n": 5, "i": 8, "other": 1})
    plan.execute()
    assert spy[0] == {"n": 2, "i": 4, "n2": 6}, "an unbound variable has its minimum"
    assert spy[1] == spy[2] == {"n": 5, "i": 4, "n2": 6, "other": 1}


@pytest.mark.row("S67", "S69")
def test_new_values_without_compiling():
    """Pairs or a mapping; the contract on bounds is in the documentation."""
    calls, op = kernel_with(high=64)
    plan = plan_of([empty(64)], [op])
    before = list(plan.kernels())
    for value in (1, 64, 17):
        plan.execute_with_vars([("n", value)])
    plan.execute_with_vars({"n": 2})
    assert [seen[1] for seen in calls.seen] == [[1], [64], [17], [2]]
    assert [a is b for a, b in zip(before, plan.kernels(), strict=True)] == [True]
    assert "bounds" in plan.execute_with_vars.__doc__


@pytest.mark.row("S68")
def test_profiled_with_values():
    calls, op = kernel_with()
    plan = plan_of([empty()], [op])
    profiles = plan.execute_with_vars_profiled([("n", 3)])
    assert calls.seen[0][1] == [3] and plan.variables == {"n": 3}
    assert [profile.kernel for profile in profiles] == [op.kernel]
    with pytest.raises(VariableError):
        plan.execute_with_vars_profiled({"n": 11})


@pytest.mark.row("T10")
def test_fixed_values_beat_given_ones_and_core_id_is_left_alone():
    calls = Calls()
    found = compiled(calls, var_names=["fixed", "free", "core_id"])
    ast = body(("fixed", 0, 9), ("free", 0, 9), ("core_id", 0, 3))
    op = launch(1, found, [0], ast=ast, vals=[2, 2, 0], fixedvars={"fixed": 2})
    plan = plan_of([empty()], [op])
    plan.execute_with_vars([("fixed", 7), ("free", 7), ("core_id", 3)])
    assert calls.seen[0][1] == [2, 7, 0]


@pytest.mark.row("T11")
def test_a_symbolic_grid_follows_the_variable():
    calls, op = kernel_with("N", 1, 8, kernel={"global_size": grid(variable("N", 1, 8))})
    plan = plan_of([empty()], [op])
    kernel = next(plan.kernels())
    plan.execute_with_vars({"N": 5})
    assert calls.seen[-1][2] == (5, 1, 1)
    assert next(plan.kernels()) is kernel
    count = len(calls.seen)
    for wrong in (0, 9):
        with pytest.raises(VariableError, match=rf"N={wrong} is outside bounds \[1, 8\]"):
            plan.execute_with_vars({"N": wrong})
    assert len(calls.seen) == count, "nothing was dispatched"
    plan.execute()
    assert calls.seen[-1][2] == (5, 1, 1)


def test_default_launch_size_is_one_everywhere():
    found = compiled()
    assert (found.global_size, found.local_size) == (default_size(), default_size())
