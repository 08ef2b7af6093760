"""S70-S79, Q10, Q16: looking at a plan, releasing it, naming its ends, using it from threads."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from svod.base.errors import (
    BufferNotFound,
    DeviceError,
    DTypeError,
    ExecutionError,
    ShapeError,
    VariableError,
)
from svod.device.buffer import Buffer
from svod.dtype import types as dt
from svod.ir.node import variable
from svod.runtime import (
    ExecutionPlanBuilder,
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    register_custom_function,
    unregister_custom_function,
)
from tests.spec.plan_parts import (
    Calls,
    add,
    body,
    buffer,
    compiled,
    double,
    empty,
    floats,
    launch,
    native,
    plan_of,
)


def three_outputs():
    buffers = [empty() for _ in range(4)]
    ops = [launch(i, compiled(), [0, i]) for i in (1, 2, 3)]
    return buffers, plan_of(buffers, ops, outputs=[3, 1, 2])


@pytest.mark.row("S70")
def test_output_buffer_is_the_first_output_or_none():
    buffers, plan = three_outputs()
    assert plan.output_buffer() is buffers[3]
    assert plan_of([], []).output_buffer() is None


@pytest.mark.row("S71")
def test_output_by_position_in_sink_order():
    buffers, plan = three_outputs()
    assert [plan.output_buffer_at(i) for i in range(4)] == [
        buffers[3],
        buffers[1],
        buffers[2],
        None,
    ]
    assert plan.output_buffer_at(-1) is None


@pytest.mark.row("S72")
def test_all_outputs():
    buffers, plan = three_outputs()
    assert plan.output_buffers() == [buffers[3], buffers[1], buffers[2]]
    assert plan.num_outputs() == 3


@pytest.mark.row("S73")
def test_any_buffer_by_graph_id():
    middle = empty()
    ops = [
        launch(1, compiled(Calls(double)), [0, 1]),
        launch(2, compiled(Calls(double)), [1, 2], after=[1]),
    ]
    plan = plan_of([buffer(1, 2, 3, 4), middle, empty()], ops)
    plan.execute()
    assert plan.buffer(1001) is middle
    assert plan.buffer(1001).copyout().tolist() == [2, 4, 6, 8]
    assert plan.buffer(4711) is None


@pytest.mark.row("S74")
def test_new_input_data_goes_in_through_the_same_accessor():
    plan = plan_of([buffer(1, 2, 3, 4), empty()], [launch(1, compiled(Calls(double)), [0, 1])])
    plan.buffer(1000).copyin(np.array([10, 20, 30, 40], np.float32))
    plan.execute()
    assert plan.output_buffer().copyout().tolist() == [20, 40, 60, 80]


@pytest.mark.row("S75")
def test_device_and_buffers():
    buffers, plan = three_outputs()
    assert plan.device() == "CPU"
    assert list(plan.buffers()) == buffers
    assert plan.buffer_at(2) is buffers[2]
    assert plan.buffer_at(9) is None and plan.buffer_at(-1) is None


@pytest.mark.row("S76")
def test_ops_and_kernels_in_schedule_order():
    one, two = compiled(source="one"), compiled(source="two")
    ops = [
        launch(1, one, [0], after=[2]),
        PreparedCopy(3, [1, 0]),
        launch(2, two, [1]),
    ]
    plan = plan_of([empty(), empty()], ops)
    assert plan.prepared_ops() == tuple(ops)
    assert plan.prepared_kernels() == [ops[0], ops[2]]
    assert [kernel.source for kernel in plan.kernels()] == ["one", "two"]


@pytest.mark.row("S77")
def test_first_output_index_and_the_map_of_ids():
    _, plan = three_outputs()
    assert plan.output_buffer_idx() == 3
    assert plan.ast_to_buffer_map() == {1000: 0, 1001: 1, 1002: 2, 1003: 3}
    with pytest.raises(ExecutionError, match=r"no output buffers"):
        plan_of([], []).output_buffer_idx()


def released(plan, everything):
    seen = []
    (plan.release_all_buffers if everything else plan.release_intermediate_buffers)(seen.append)
    return seen


def with_aliases():
    builder = ExecutionPlanBuilder("CPU")
    for number in range(3):
        builder.add_buffer(1000 + number, empty())
    builder.map_buffer(2000, 2)  # a second id of the output
    builder.map_buffer(2001, 1)
    builder.add_alias_ids([3000, 1002])  # aliases are released whatever they name
    builder.set_output_buffer(2)
    return builder.build()


@pytest.mark.row("S78")
def test_intermediates_are_released_and_outputs_kept():
    assert released(with_aliases(), False) == [1000, 1001, 2001, 3000, 1002]


@pytest.mark.row("S79")
def test_everything_is_released():
    assert released(with_aliases(), True) == [1000, 1001, 1002, 2000, 2001, 3000, 1002]


# -- threads -----------------------------------------------------------------------------------


def counting_plan():
    """Writes to an intermediate and reads it back: two runs at once would mix them up."""
    inside = []

    def slow(source, middle, out):
        inside.append(1)
        assert len(inside) == 1, "two threads run one plan at the same time"
        floats(middle)[:] = floats(source) * 2
        time.sleep(0.0005)
        floats(out)[:] = floats(middle) + 1
        inside.pop()

    buffers = [buffer(1, 2, 3, 4), empty(), empty()]
    return plan_of(buffers, [launch(1, compiled(Calls(slow)), [0, 1, 2], [1, 2])])


def run_in_threads(count, work):
    errors = []

    def guarded(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not errors, errors


@pytest.mark.row("Q10")
def test_one_plan_runs_under_its_lock():
    plan = counting_plan()
    run_in_threads(8, lambda number: [plan.execute() for _ in range(10)])
    assert plan.output_buffer().copyout().tolist() == [3, 5, 7, 9]


@pytest.mark.row("Q10")
def test_replicas_share_kernels_and_constants_but_nothing_that_is_written():
    plan = counting_plan()
    plan.execute()
    twin = plan.replicate()
    assert list(map(id, twin.kernels())) == list(map(id, plan.kernels()))
    assert twin.buffers()[0] is plan.buffers()[0], "only read: shared"
    for own, other in zip(plan.buffers()[1:], twin.buffers()[1:], strict=True):
        assert own.storage_id != other.storage_id and own.address != other.address
    assert (twin.order, twin.levels, twin.groups) == (plan.order, plan.levels, plan.groups)
    assert twin.output_buffer().copyout().tolist() == [3, 5, 7, 9], "contents come along"
    twin.output_buffer().copyin(np.zeros(4, np.float32))
    assert plan.output_buffer().copyout().tolist() == [3, 5, 7, 9]


@pytest.mark.row("Q10")
def test_replicas_keep_views_and_in_place_state():
    def step(state, out):
        floats(state)[:] += 1
        floats(out, 2)[:] = floats(state)[1:3]

    base = buffer(1, 2, 3, 4)
    ops = [
        PreparedBufferView(1, [1, 0], 4, 8),
        launch(2, compiled(Calls(step)), [0, 2], [0, 1], after=[1]),
    ]
    plan = plan_of([base, base.view(4, 2), empty(2)], ops)
    plan.execute()
    twin = plan.replicate()
    twin.execute()
    twin.execute()
    assert twin.output_buffer().copyout().tolist() == [5, 6]
    assert twin.buffers()[1].copyout().tolist() == [5, 6], "the view follows the new storage"
    plan.execute()
    assert plan.output_buffer().copyout().tolist() == [4, 5]


@pytest.mark.row("Q10")
def test_replicas_have_values_of_their_own():
    calls = Calls()
    found = compiled(calls, var_names=["n"])
    plan = plan_of([empty()], [launch(1, found, [0], ast=body(("n", 1, 9)), vals=[1])])
    plan.execute_with_vars({"n": 4})
    twin = plan.replicate()
    twin.execute_with_vars({"n": 8})
    plan.execute()
    assert [seen[1] for seen in calls.seen] == [[4], [8], [4]]
    assert (plan.variables, twin.variables) == ({"n": 4}, {"n": 8})


@pytest.mark.row("Q10")
def test_replicas_run_at_the_same_time():
    meet = threading.Barrier(2, timeout=10)
    plan = plan_of([empty()], [launch(1, compiled(lambda *args: meet.wait()), [0])])
    plans = [plan, plan.replicate()]
    run_in_threads(2, lambda number: plans[number].execute())


def test_a_custom_function_cannot_run_its_own_plan():
    register_custom_function("SpecAgain", lambda *args: plan.execute(), replace=True)
    plan = plan_of([empty()], [PreparedCustomFunction(1, "SpecAgain", (), [0])])
    with pytest.raises(ExecutionError, match=r"cannot run again while it is running"):
        plan.execute()
    unregister_custom_function("SpecAgain")


# -- inputs and outputs by name ------------------------------------------------------------------


def named(kernel=None, shape=None):
    builder = ExecutionPlanBuilder("CPU")
    for number, found in enumerate([buffer(1, 2, 3, 4), buffer(1, 1, 1, 1), empty()]):
        builder.add_buffer(number, found)
    builder.add_kernel(launch(1, kernel or compiled(Calls(add)), [0, 1, 2]))
    builder.set_output_buffer(2)
    builder.name_input("x", 0, shape)
    builder.name_input("y", 1, shape)
    builder.name_output("sum", 2, shape)
    return builder.build()


@pytest.fixture(params=["python", "native"])
def plan(request):
    """The same plan run by the plain executor and by one native call."""
    found = named(native("add") if request.param == "native" else None, (2, 2))
    assert found.is_native == (request.param == "native")
    return found


def array(*values):
    return np.array(values, np.float32)


@pytest.mark.row("Q16")
def test_inputs_and_outputs_have_names(plan):
    assert list(plan.inputs) == ["x", "y"] and list(plan.outputs) == ["sum"]
    assert plan.inputs["x"] is plan.buffers()[0]
    assert [port.text() for port in plan.ports] == ["f32[2,2]"] * 3
    plan.inputs["x"].copyin(array(9, 9, 9, 9))  # inputs stay wired to the plan's buffers
    plan.execute()
    assert plan.outputs["sum"].copyout().tolist() == [10] * 4


@pytest.mark.row("Q16")
def test_bind_uses_the_memory_it_is_given(plan):
    x, out = array(1, 2, 3, 4), array(0, 0, 0, 0)
    plan.bind("x", x)
    plan.bind("sum", out)
    plan.execute()
    assert out.tolist() == [2, 3, 4, 5]
    x[:] = 10
    plan.execute()
    assert out.tolist() == [11] * 4, "no copy was made"
    assert plan.inputs["x"].numpy().tolist() == [10] * 4
    assert plan.inputs["x"].address == x.ctypes.data
    assert plan.output_buffer().address == out.ctypes.data
    kernel = plan.prepared_kernels()[0]
    assert kernel.buffer_ptrs[0] == x.ctypes.data and kernel.buffer_ids[0] == plan.inputs["x"].id


@pytest.mark.row("Q16")
def test_bind_takes_buffers_and_keeps_arrays_alive(plan):
    plan.bind("x", buffer(5, 5, 5, 5))
    plan.bind("y", array(1, 2, 3, 4) * 1)
    plan.execute()
    assert plan.outputs["sum"].copyout().tolist() == [6, 7, 8, 9]


@pytest.mark.row("Q16")
def test_call_style(plan):
    first = plan(x=array(1, 1, 1, 1), y=array(2, 2, 2, 2))
    second = plan(x=array(5, 5, 5, 5))
    assert first.shape == (2, 2) and first.dtype == np.float32
    assert first.tolist() == [[3, 3], [3, 3]], "results are not overwritten by later calls"
    assert second.tolist() == [[7, 7], [7, 7]], "y stays bound"
    out = np.zeros((2, 2), np.float32)
    assert plan(sum=out) is out
    assert out.tolist() == [[7, 7], [7, 7]]


@pytest.mark.row("Q16")
def test_inputs_that_are_not_contiguous_are_copied(plan):
    wide = np.arange(8, dtype=np.float32).reshape(4, 2)
    plan.bind("x", wide[:, 0])
    frozen = array(1, 1, 1, 1)
    frozen.flags.writeable = False
    plan.bind("y", frozen)
    plan.execute()
    assert plan.outputs["sum"].copyout().tolist() == [1, 3, 5, 7]
    with pytest.raises(
        ShapeError, match=r"'sum' is written by the plan and needs an aligned, contiguous"
    ):
        plan.bind("sum", wide[:, 0])
    with pytest.raises(DeviceError, match=r"read-only"):
        plan.bind("sum", frozen)


@pytest.mark.row("Q16")
def test_wrong_dtype_size_device_and_name(plan):
    with pytest.raises(DTypeError, match=r"'x' is f32\[2,2\], got an array of float64"):
        plan.bind("x", np.zeros(4))
    with pytest.raises(DTypeError, match=r"got a buffer of f64"):
        plan.bind("x", Buffer.new("CPU", 4, dt.float64))
    with pytest.raises(ShapeError, match=r"'x' is f32\[2,2\] with 4 elements, got 5"):
        plan.bind("x", np.zeros(5, np.float32))
    with pytest.raises(DeviceError, match=r"'x' is on CPU, got a buffer on CPU:1"):
        plan.bind("x", empty(4, "CPU:1"))
    with pytest.raises(BufferNotFound, match=r"no buffer 'z' in the named .* \(x, y, sum\)"):
        plan.bind("z", array(1, 2, 3, 4))
    with pytest.raises(BufferNotFound, match=r"no buffer 'z'"):
        plan(z=3)
    plan.execute()
    assert plan.outputs["sum"].copyout().tolist() == [2, 3, 4, 5], "nothing changed"


@pytest.mark.row("Q16")
def test_memory_that_is_read_and_written_for_two_purposes_is_refused(plan):
    memory = np.zeros(8, np.float32)
    plan.bind("x", memory[:4])
    plan.bind("y", memory[2:6])  # two inputs may overlap: nobody writes them
    with pytest.raises(ExecutionError, match=r"cannot bind 'sum' to memory .* also uses as 'y'"):
        plan.bind("sum", memory[4:])
    out = np.zeros(4, np.float32)
    plan.bind("sum", out)
    with pytest.raises(ExecutionError, match=r"cannot bind 'x' to memory .* also uses as 'sum'"):
        plan.bind("x", out)


@pytest.mark.row("Q16")
def test_views_of_a_bound_input_follow_it():
    base = buffer(1, 2, 3, 4)
    builder = ExecutionPlanBuilder("CPU")
    builder.add_buffer(0, base)
    builder.add_buffer(1, base.view(8, 2))
    builder.add_buffer(2, empty(2))
    builder.add_op(PreparedBufferView(1, [1, 0], 8, 8))
    builder.add_op(PreparedCopy(2, [2, 1], [1]))
    builder.set_output_buffer(2)
    builder.name_input("x", 0)
    builder.name_input("part", 1)
    plan = builder.build()
    plan.bind("x", array(5, 6, 7, 8))
    plan.execute()
    assert plan.output_buffer().copyout().tolist() == [7, 8]
    with pytest.raises(ExecutionError, match=r"cannot bind 'part': it is a view"):
        plan.bind("part", array(1, 2))


@pytest.mark.row("Q16")
def test_views_of_views_follow_too():
    base = buffer(1, 2, 3, 4)
    half = base.view(8, 2)
    builder = ExecutionPlanBuilder("CPU")
    for number, found in enumerate([base, half, half.view(4, 1), empty(1)]):
        builder.add_buffer(number, found)
    builder.add_op(PreparedBufferView(1, [1, 0], 8, 8))
    builder.add_op(PreparedBufferView(2, [2, 1], 4, 4, [1]))
    builder.add_op(PreparedCopy(3, [3, 2], [2]))
    builder.set_output_buffer(3)
    builder.name_input("x", 0)
    plan = builder.build()
    plan.bind("x", array(5, 6, 7, 8))
    plan.execute()
    assert plan.output_buffer().copyout().tolist() == [8]


@pytest.mark.row("Q16")
def test_arrays_that_are_not_aligned_are_copied(plan):
    raw = bytearray(17)
    crooked = np.frombuffer(raw, np.float32, 4, 1)
    assert not crooked.flags.aligned and crooked.flags.writeable
    crooked[:] = [1, 2, 3, 4]
    plan.bind("x", crooked)
    plan.execute()
    assert plan.outputs["sum"].copyout().tolist() == [2, 3, 4, 5]
    assert plan.inputs["x"].address % 4 == 0
    with pytest.raises(ShapeError, match=r"'sum' is written by the plan and needs an aligned"):
        plan.bind("sum", crooked)


@pytest.mark.row("Q16")
def test_ports_with_variables_take_arrays_of_any_allowed_size():
    n = variable("n", 1, 4)

    def program(buffers, vals, *sizes):
        floats(buffers[1], vals[0])[:] = floats(buffers[0], vals[0]) + 1

    builder = ExecutionPlanBuilder("CPU")
    tensor = buffer(0, 0, 0, 0)
    builder.add_buffer(0, tensor)
    builder.add_buffer(1, empty(4))
    found = compiled(program, var_names=["n"])
    builder.add_kernel(launch(1, found, [0, 1], ast=body(("n", 1, 4)), vals=[1]))
    builder.set_output_buffer(1)
    builder.name_input("x", 0, (n,))
    builder.name_output("y", 1, (n,))
    plan = builder.build()
    assert plan.ports[0].text() == "f32[n]"
    assert plan(x=array(1, 2, 3)).tolist() == [2, 3, 4]
    assert plan(x=array(7)).tolist() == [8]
    assert plan(x=array(1, 2, 3, 4)).tolist() == [2, 3, 4, 5]
    assert plan(x=array(5, 6)).tolist() == [6, 7]
    assert plan.variables == {"n": 2}
    assert tensor.copyout().tolist() == [0, 0, 0, 0], "the caller's buffer was not written"
    with pytest.raises(VariableError, match=r"n=5 is outside bounds \[1, 4\]"):
        plan(x=array(1, 2, 3, 4, 5))
    with pytest.raises(
        ShapeError, match=r"'x' has 1 axes f32\[n\], got an array of shape \(2, 2\)"
    ):
        plan(x=np.zeros((2, 2), np.float32))
    assert plan(n=1).tolist() == [6], "variables may be given by name too"
