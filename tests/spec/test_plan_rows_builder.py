"""S80-S92, T1-T3, T7, Q12: building plans."""

from __future__ import annotations

import numpy as np
import pytest

from svod.base.errors import ExecutionError, UnsupportedError
from svod.device.buffer import Buffer
from svod.runtime import (
    ExecutionPlanBuilder,
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
)
from tests.spec.plan_parts import Calls, buffer, compiled, double, empty, launch, plan_of


@pytest.mark.row("T1", "S80")
def test_an_empty_builder_builds():
    plan = ExecutionPlanBuilder("cpu:0").build()
    assert plan.device() == "CPU"
    assert plan.prepared_kernels() == [] and plan.buffers() == ()
    assert plan.output_buffer_at(0) is None and plan.output_buffer_at(7) is None
    assert plan.output_buffer() is None and plan.num_outputs() == 0
    plan.execute()
    assert plan.execute_profiled() == []


@pytest.mark.row("S80")
def test_alias_ids_accumulate():
    builder = ExecutionPlanBuilder("CPU")
    builder.add_alias_ids([1, 2])
    builder.add_alias_ids(iter([3]))
    assert builder.build().alias_ids == (1, 2, 3)


@pytest.mark.row("S81")
def test_add_buffer_appends_maps_and_returns_the_place():
    builder = ExecutionPlanBuilder("CPU")
    buffers = [empty(), empty()]
    assert [builder.add_buffer(50 + i, found) for i, found in enumerate(buffers)] == [0, 1]
    builder.set_output_buffer(0)
    plan = builder.build()
    assert plan.buffer(50) is buffers[0] and plan.buffer(51) is buffers[1]


@pytest.mark.row("T2", "S82")
def test_two_ids_may_name_one_place():
    builder = ExecutionPlanBuilder("CPU")
    place = builder.add_buffer(1, empty())
    builder.map_buffer(2, place)
    builder.set_output_buffer(place)
    plan = builder.build()
    assert len(plan.buffers()) == 1
    assert plan.buffer(1) is plan.buffer(2) is plan.buffers()[0]


@pytest.mark.row("S83")
def test_replace_buffer_swaps_a_view_in():
    base = buffer(*range(8))
    builder = ExecutionPlanBuilder("CPU")
    builder.add_buffer(1, base)
    place = builder.add_buffer(2, empty())
    builder.replace_buffer(place, base.view(8, 4))
    builder.set_output_buffer(place)
    builder.add_op(PreparedBufferView(1, [place, 0], 8, 16))
    plan = builder.build()
    plan.execute()
    assert plan.buffer(2).copyout().tolist() == [2, 3, 4, 5]


@pytest.mark.row("S84")
def test_setting_outputs_overwrites():
    builder = ExecutionPlanBuilder("CPU")
    buffers = [empty(), empty(), empty()]
    for number, found in enumerate(buffers):
        builder.add_buffer(number, found)
    builder.set_output_buffers([0, 1])
    builder.set_output_buffers([2, 0])
    assert builder.build().output_buffers() == [buffers[2], buffers[0]]
    builder.set_output_buffer(1)
    assert builder.build().output_buffers() == [buffers[1]]


@pytest.mark.row("S85")
def test_three_ways_to_add_ops():
    builder = ExecutionPlanBuilder("CPU")
    builder.add_buffer(1, buffer(1, 2, 3, 4))
    builder.add_buffer(2, empty())
    builder.set_output_buffer(1)
    builder.add_kernel(launch(1, compiled(Calls(double)), [0, 1]))
    builder.add_op(PreparedCopy(2, [0, 1], [1]))
    builder.add_op_with_instance_dependencies(launch(3, compiled(Calls(double)), [0, 1]), [1])
    plan = builder.build()
    assert plan.instance_dependencies == ((), (), (1,))
    assert plan.levels == ((0,), (1,), (2,))
    plan.execute()
    assert plan.output_buffer().copyout().tolist() == [4, 8, 12, 16]


@pytest.mark.row("S86")
def test_a_kernel_must_write_something():
    with pytest.raises(ExecutionError, match=r"CompiledProgram 5 has no output indices"):
        plan_of([empty()], [launch(5, compiled(), [0], [])])


@pytest.mark.row("S87", "T7")
@pytest.mark.parametrize("wrong", [1, 7, -1])
def test_output_index_outside_the_arguments(wrong):
    with pytest.raises(
        ExecutionError,
        match=rf"CompiledProgram 5 output index out of range: output_idx={wrong}, kernel_buffers=1",
    ):
        plan_of([empty()], [launch(5, compiled(), [0], [wrong])])


@pytest.mark.row("S88", "T7")
@pytest.mark.parametrize("wrong", [1, 9, -1])
def test_buffer_index_outside_the_plan(wrong):
    with pytest.raises(
        ExecutionError,
        match=rf"CompiledProgram 5 buffer index out of range: idx={wrong}, total_buffers=1",
    ):
        plan_of([empty()], [launch(5, compiled(), [0, wrong], [0])])


@pytest.mark.row("S89")
def test_build_fills_addresses_of_allocated_buffers():
    lazy = [empty(), empty()]
    assert not any(found.is_allocated for found in lazy)
    plan = plan_of(lazy, [launch(1, compiled(), [0, 1])])
    assert all(found.is_allocated for found in lazy)
    (kernel,) = plan.prepared_kernels()
    assert kernel.buffer_ptrs == [found.address for found in lazy] and all(kernel.buffer_ptrs)
    assert kernel.buffer_ids == [found.id for found in lazy]


@pytest.mark.row("T3", "S90")
def test_outputs_must_be_set_when_there_are_buffers():
    builder = ExecutionPlanBuilder("CPU")
    builder.add_buffer(1, empty())
    with pytest.raises(ExecutionError, match=r"output buffers must be set explicitly"):
        builder.build()
    builder.set_output_buffer(0)
    builder.build()


@pytest.mark.row("S91", "T7")
@pytest.mark.parametrize(
    "op",
    [
        PreparedCopy(1, [0, 9]),
        PreparedCopy(1, []),
        PreparedBufferView(1, [9, 0], 0, 4),
        PreparedBufferView(1, [0], 0, 4),
        PreparedCustomFunction(1, "EncDec", (), [9]),
    ],
)
def test_faults_of_other_ops_surface_when_they_run(op):
    plan = plan_of([empty()], [op])
    with pytest.raises((ExecutionError, UnsupportedError)):
        plan.execute()


@pytest.mark.row("T7")
def test_unknown_dependencies_and_cycles_fail_in_build():
    with pytest.raises(ExecutionError, match=r"unknown op id 8"):
        plan_of([empty()], [launch(1, compiled(), [0], after=[8])])
    looped = [launch(1, compiled(), [0], after=[2]), launch(2, compiled(), [0], after=[1])]
    with pytest.raises(ExecutionError, match=r"cycle"):
        plan_of([empty()], looped)


@pytest.mark.row("S92")
def test_a_fresh_plan_remembers_no_values():
    assert plan_of([empty()], [launch(1, compiled(), [0])]).variables == {}


@pytest.mark.row("Q12")
@pytest.mark.parametrize("wrong", [1, -1])
def test_output_buffer_indices_are_checked_in_build(wrong):
    with pytest.raises(
        ExecutionError, match=rf"output buffer index out of range: idx={wrong}, total_buffers=1"
    ):
        plan_of([empty()], [], outputs=[0, wrong])


@pytest.mark.row("Q12")
def test_so_are_mapped_ids_and_names():
    builder = ExecutionPlanBuilder("CPU")
    builder.add_buffer(1, empty())
    builder.set_output_buffer(0)
    builder.map_buffer(2, 5)
    with pytest.raises(ExecutionError, match=r"graph id 2 .* out of range: idx=5"):
        builder.build()
    builder.map_buffer(2, 0)
    builder.name_input("x", 3)
    with pytest.raises(ExecutionError, match=r"'x' names a buffer index out of range: idx=3"):
        builder.build()


def test_two_ports_cannot_have_one_name():
    builder = ExecutionPlanBuilder("CPU")
    builder.add_buffer(1, empty())
    builder.set_output_buffer(0)
    builder.name_input("x", 0)
    builder.name_output("x", 0)
    with pytest.raises(ExecutionError, match=r"called 'x'"):
        builder.build()


def test_a_kernel_that_writes_read_only_memory_is_refused():
    array = np.zeros(4, np.float32)
    array.flags.writeable = False
    with pytest.raises(ExecutionError, match=r"CompiledProgram 1 writes .* read-only"):
        plan_of([Buffer.from_numpy(array)], [launch(1, compiled(), [0])])
