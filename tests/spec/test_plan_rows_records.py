"""S1-S22: what a plan is made of."""

from __future__ import annotations

import numpy as np
import pytest

from svod.base.errors import ExecutionError
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import const, make, variable
from svod.runtime import (
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    PreparedKernel,
    RuntimeVar,
    collect_runtime_vars,
)
from svod.runtime.ops import op_identity
from tests.spec.plan_parts import Calls, add, body, buffer, compiled, double, empty, launch, plan_of


@pytest.mark.row("S1")
def test_prepare_once_then_run_many_times():
    calls = Calls(add)
    inputs = buffer(1, 2, 3, 4)
    plan = plan_of([inputs, buffer(1, 1, 1, 1), empty()], [launch(1, compiled(calls), [0, 1, 2])])
    assert not calls.seen, "building runs nothing"
    for turn in range(3):
        inputs.copyin(np.full(4, turn, np.float32))
        plan.execute()
        assert plan.output_buffer().copyout().tolist() == [turn + 1] * 4
    assert len(calls.seen) == 3


@pytest.mark.row("S2")
def test_kernel_ids_are_the_names_of_dependencies():
    seen = []
    ops = [
        launch(70, compiled(lambda *a: seen.append("second")), [0, 1], after=[41]),
        launch(41, compiled(lambda *a: seen.append("first")), [0]),
    ]
    plan = plan_of([empty(), empty()], ops)
    plan.execute()
    assert seen == ["first", "second"]
    assert [kernel.id for kernel in plan.prepared_kernels()] == [70, 41]


@pytest.mark.row("S3", "S13")
def test_the_body_is_kept_and_its_variables_are_found_once(monkeypatch):
    ast = body(("n", 1, 8))
    op = launch(1, compiled(var_names=["n"]), [0], ast=ast, vals=[1])
    assert op.ast is ast
    assert op.runtime_vars == (RuntimeVar("n", 1, 8),)
    plan = plan_of([empty()], [op])
    monkeypatch.setattr("svod.runtime.ops.toposort", lambda *a: pytest.fail("walked the graph"))
    plan.execute_with_vars({"n": 5})


@pytest.mark.row("S4", "S76")
def test_compiled_kernels_are_shared_not_copied():
    kernel = compiled(source="the source")
    plan = plan_of([empty(), empty()], [launch(1, kernel, [0]), launch(2, kernel, [1])])
    assert [found is kernel for found in plan.kernels()] == [True, True]
    assert [found.source for found in plan.kernels()] == ["the source"] * 2


@pytest.mark.row("S5")
def test_a_kernel_has_a_device_of_its_own():
    op = launch(1, compiled(), [0], device="CPU:1")
    plan = plan_of([empty(device="CPU:1")], [op])
    assert plan.device() == "CPU"
    assert plan.prepared_kernels()[0].device == "CPU:1"
    assert plan.execute_profiled()[0].device == "CPU:1"


@pytest.mark.row("S6")
def test_arguments_follow_buffer_indices():
    calls = Calls()
    buffers = [empty(), empty(), empty()]
    plan = plan_of(buffers, [launch(1, compiled(calls), [2, 0, 1], [0])])
    plan.execute()
    assert calls.seen[0][0] == [buffers[2].address, buffers[0].address, buffers[1].address]


@pytest.mark.row("S7")
def test_output_indices_are_positions_within_the_arguments():
    shared = empty()
    # Both kernels write place 0 of the table, which is position 1 of their arguments.
    ops = [launch(i, compiled(safe=True), [i + 1, 0], [1]) for i in range(2)]
    plan = plan_of([shared, empty(), empty()], ops)
    assert plan.groups == ((0,), (1,)), "two writers of one buffer must not run together"
    ops = [launch(i, compiled(safe=True), [0, i + 1], [1]) for i in range(2)]
    assert plan_of([shared, empty(), empty()], ops).groups == ((0, 1),)


@pytest.mark.row("S8")
def test_values_are_positional():
    calls = Calls()
    ast = body(("a", 0, 9), ("b", 0, 9))
    op = launch(1, compiled(calls, var_names=["b", "a"]), [0], ast=ast, vals=[5, 7])
    plan = plan_of([empty()], [op])
    plan.execute_with_vars([("a", 1)])
    assert calls.seen[0][1] == [5, 1]


@pytest.mark.row("S9")
def test_fixed_values_are_never_overridden():
    calls = Calls()
    op = launch(
        1, compiled(calls, var_names=["i"]), [0], ast=body(("i", 0, 9)), vals=[3],
        fixedvars={"i": 3},
    )  # fmt: skip
    plan = plan_of([empty()], [op])
    plan.execute_with_vars({"i": 8})
    assert calls.seen[0][1] == [3]


@pytest.mark.row("S10")
def test_dependencies_finish_first():
    seen = []
    ops = [
        launch(1, compiled(lambda *a: seen.append(1)), [0]),
        launch(2, compiled(lambda *a: seen.append(2)), [1], after=[3]),
        launch(3, compiled(lambda *a: seen.append(3)), [2], after=[1]),
    ]
    plan_of([empty(), empty(), empty()], ops).execute()
    assert seen == [1, 3, 2]


@pytest.mark.row("S11", "S12")
def test_addresses_and_ids_are_there_after_build():
    buffers = [buffer(1, 2, 3, 4), empty()]
    op = launch(1, compiled(), [0, 1])
    assert op.buffer_ptrs == [] and op.buffer_ids == []
    plan = plan_of(buffers, [op])
    kernel = plan.prepared_kernels()[0]
    assert kernel.buffer_ptrs == [found.address for found in buffers]
    assert kernel.buffer_ids == [found.id for found in buffers]


@pytest.mark.row("S14")
def test_bounds_of_a_variable_are_inclusive():
    record = RuntimeVar("n", 2, 4)
    assert (record.name, record.min_val, record.max_val) == ("n", 2, 4)
    op = launch(1, compiled(var_names=["n"]), [0], ast=body(("n", 2, 4)), vals=[2])
    plan = plan_of([empty()], [op])
    plan.execute_with_vars({"n": 2})
    plan.execute_with_vars({"n": 4})


@pytest.mark.row("S15")
def test_variables_in_topological_order_one_per_name():
    first, second = variable("rows", 1, 9), variable("columns", 2, 5)
    clash = variable("rows", 1, 100)  # made later, so it comes later
    total = make(O.ADD, dt.index, (make(O.MUL, dt.index, (second, first)), clash))
    assert collect_runtime_vars(total) == (RuntimeVar("rows", 1, 9), RuntimeVar("columns", 2, 5))
    assert collect_runtime_vars(const(3, dt.index)) == ()


@pytest.mark.row("S16")
def test_copy_names_destination_then_source():
    copy = PreparedCopy(5, [1, 0], [4])
    assert (copy.id, copy.buffer_indices, copy.dependencies) == (5, [1, 0], [4])
    plan = plan_of([buffer(1, 2, 3, 4), buffer(0, 0, 0, 0)], [PreparedCopy(5, [1, 0])])
    plan.execute()
    assert plan.buffers()[1].copyout().tolist() == [1, 2, 3, 4]
    assert plan.buffers()[0].copyout().tolist() == [1, 2, 3, 4]


@pytest.mark.row("S17")
def test_view_names_view_then_base_with_what_is_expected():
    base = buffer(0, 1, 2, 3, 4, 5, 6, 7)
    view = PreparedBufferView(6, [1, 0], 8, 16, [2])
    assert (view.id, view.byte_offset, view.byte_size, view.dependencies) == (6, 8, 16, [2])
    plan_of([base, base.view(8, 4)], [PreparedBufferView(6, [1, 0], 8, 16)]).execute()
    wrong = plan_of([base, base.view(8, 4)], [PreparedBufferView(6, [1, 0], 4, 16)])
    with pytest.raises(ExecutionError):
        wrong.execute()


@pytest.mark.row("S18")
def test_custom_function_finds_the_variables_of_its_attributes():
    attrs = ("h264", variable("frames", 1, 30), 2)
    op = PreparedCustomFunction(9, "EncDec", attrs, [0], {"quality": 3}, [8])
    assert op.runtime_vars == (RuntimeVar("frames", 1, 30),)
    assert (op.kind, op.attrs, op.fixedvars, op.dependencies) == (
        "EncDec", attrs, {"quality": 3}, [8],
    )  # fmt: skip


@pytest.mark.row("S19", "S20")
def test_four_kinds_of_ops_with_one_identity():
    ops = [
        launch(1, compiled(Calls(double)), [0, 1], after=[]),
        PreparedCopy(2, [2, 1], [1]),
        PreparedBufferView(3, [3, 2], 0, 16, [2]),
        PreparedCustomFunction(4, "EncDec", (), [3], {}, [3]),
    ]
    assert [op_identity(op) for op in ops] == [(1, []), (2, [1]), (3, [2]), (4, [3])]
    copied = empty()
    plan = plan_of([buffer(1, 2, 3, 4), empty(), copied, copied.view(0, 4)], ops)
    assert [type(op) for op in plan.prepared_ops()] == [
        PreparedKernel, PreparedCopy, PreparedBufferView, PreparedCustomFunction,
    ]  # fmt: skip
    assert plan.levels == ((0,), (1,), (2,), (3,))


@pytest.mark.row("S21")
def test_a_plan_holds_everything_it_was_built_from():
    buffers = [empty(), empty(), empty()]
    ops = [launch(1, compiled(), [0, 1]), launch(2, compiled(), [0, 2])]
    plan = plan_of(buffers, ops, outputs=[2, 1], instance=[(), (0,)])
    assert plan.prepared_ops() == tuple(ops)
    assert plan.instance_dependencies == ((), (0,))
    assert (plan.order, plan.levels) == ((0, 1), ((0,), (1,)))
    assert list(plan.buffers()) == buffers
    assert plan.ast_to_buffer_map() == {1000: 0, 1001: 1, 1002: 2}
    assert plan.output_buffers() == [buffers[2], buffers[1]]
    assert (plan.device(), plan.variables, plan.alias_ids) == ("CPU", {}, ())


@pytest.mark.row("S22")
def test_debug_text_shows_counts_and_never_source_or_data():
    kernel = compiled(source="SECRET SOURCE", var_names=["n"])
    op = launch(
        7, kernel, [0, 1], ast=body(("n", 0, 9)), vals=[3], fixedvars={"i": 2}, after=[],
    )  # fmt: skip
    plan = plan_of([buffer(123456, 2, 3, 4), empty()], [op, PreparedCopy(8, [1, 0], [7])])
    assert repr(plan) == (
        "ExecutionPlan(ops=2, op_instance_dependencies=2, op_order=2, kernels=1, buffers=2, "
        "device=CPU)"
    )
    assert repr(op) == (
        "PreparedKernel(id=7, device=CPU, buffer_indices=[0, 1], output_indices=[1], vals=[3], "
        "fixedvars={'i': 2}, dependencies=[])"
    )
    assert "SECRET" not in repr(op) + repr(plan) + repr(kernel)
