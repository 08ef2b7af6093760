"""The native path: a plan of machine code runs in one call and obeys the same rows."""

from __future__ import annotations

import itertools
import threading
import time
from itertools import pairwise

import numpy as np
import pytest

from svod.base.errors import ExecutionError, VariableError
from svod.device.launch import concrete_size
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import const, make, variable
from svod.runtime import ExecutionPlanBuilder, PreparedBufferView, PreparedCopy
from tests.spec.plan_parts import body, buffer, compiled, empty, launch, native, plan_of

ONE = const(1, dt.index)


@pytest.mark.row("T5", "T18")
def test_kernel_copy_view_in_one_native_call():
    copied = empty()
    ops = [
        launch(1, native("add"), [0, 1, 2]),
        PreparedCopy(2, [3, 2], [1]),
        PreparedBufferView(3, [4, 3], 4, 8, [2]),
    ]
    buffers = [buffer(1, 2, 3, 4), buffer(4, 5, 6, 7), empty(), copied, copied.view(4, 2)]
    plan = plan_of(buffers, ops)
    assert plan.is_native
    for _ in range(2):
        plan.execute()
        assert copied.copyout().tolist() == [5, 7, 9, 11]
        assert plan.output_buffer().copyout().tolist() == [7, 9]


@pytest.mark.row("S24", "S33")
def test_dependencies_order_native_kernels():
    ops = [launch(1, native("add"), [1, 1, 2], after=[2]), launch(2, native("add"), [0, 0, 1])]
    plan = plan_of([buffer(1, 2, 3, 4), empty(), empty()], ops)
    plan.execute()
    assert plan.output_buffer().copyout().tolist() == [4, 8, 12, 16]


@pytest.mark.row("S64")
def test_native_groups_run_one_after_another():
    """Each kernel takes some ten microseconds, so any overlap of dependent ones would show."""
    count = 40
    ops = [launch(i + 1, native("spin"), [i, i + 1], after=[i] if i else []) for i in range(count)]
    start = buffer(1)
    plan = plan_of([start, *[empty(1) for _ in range(count)]], ops)
    for turn in range(20):
        start.copyin(np.array([turn], np.float32))
        plan.execute()
        assert plan.output_buffer().copyout().tolist() == [turn]
    profiles = plan.execute_profiled()
    assert all(a.end_ns <= b.start_ns for a, b in pairwise(profiles))


@pytest.mark.row("S62")
def test_native_kernels_beside_a_threaded_one_run_one_after_another():
    wide = native("spin", global_size=concrete_size((2, 1, 1)))
    ops = [launch(0, native("spin"), [0, 1]), launch(1, wide, [0, 2]), launch(2, wide, [0, 3])]
    plan = plan_of([buffer(1), *[empty(1) for _ in range(3)]], ops)
    assert plan.groups == ((0, 1, 2),)
    for _ in range(5):
        profiles = plan.execute_profiled()
        assert all(a.end_ns <= b.start_ns for a, b in pairwise(profiles))


def threaded(**facts):
    size = (variable("n", 1, 8), ONE, ONE)
    kernel = native("core", var_names=["n"], global_size=size)
    return launch(1, kernel, [0], ast=body(("n", 1, 8)), vals=[1], **facts)


@pytest.mark.row("T11", "S47")
def test_values_and_sizes_are_patched_in_place():
    op = threaded()
    target = buffer(*[0] * 8)
    plan = plan_of([target], [op])
    assert plan.is_native
    for n in (5, 8, 2, 1):
        target.copyin(np.zeros(8, np.float32))
        plan.execute_with_vars({"n": n})
        assert target.copyout().tolist() == [n] * n + [0] * (8 - n)
    plan.execute()
    assert target.copyout()[0] == 1
    with pytest.raises(VariableError, match=r"n=9 is outside bounds \[1, 8\]"):
        plan.execute_with_vars({"n": 9})


@pytest.mark.row("S9", "T10")
def test_fixed_values_hold_on_the_native_path():
    target = buffer(*[0] * 8)
    plan = plan_of([target], [threaded(fixedvars={"n": 3})])
    op = plan.prepared_kernels()[0]
    assert op.vals == [1], "fixed values win in launch sizes, vals are as prepared"
    plan.execute_with_vars({"n": 6})
    assert target.copyout().tolist() == [1, 1, 1] + [0] * 5


@pytest.mark.row("S39")
def test_a_failing_launch_size_leaves_the_native_plan_as_it_was():
    size = make(O.SUB, dt.index, (variable("n", 1, 8), const(2, dt.index)))
    kernel = native("core", var_names=["n"], global_size=(size, ONE, ONE))
    target = buffer(*[0] * 8)
    plan = plan_of([target], [launch(5, kernel, [0], ast=body(("n", 1, 8)), vals=[4])])
    with pytest.raises(ExecutionError, match=r"Kernel 5 launch dimensions failed"):
        plan.execute_with_vars({"n": 2})
    assert plan.variables == {} and plan.prepared_kernels()[0].vals == [4]
    plan.execute()
    assert target.copyout().tolist() == [4, 4] + [0] * 6


@pytest.mark.row("S62")
def test_threaded_kernels_stay_alone_in_their_group():
    """Results do not depend on it, so this looks at the records."""
    ops = [launch(i, native("add"), [0, 0, i]) for i in (1, 2)]
    ops.append(
        launch(
            3, native("core", var_names=["n"], global_size=concrete_size((4, 1, 1))), [3], vals=[1]
        )
    )
    plan = plan_of([buffer(1, 2, 3, 4), empty(), empty(), empty()], ops)
    assert plan.groups == ((0, 1, 2),) and plan.is_native
    plan.execute()
    assert [found.copyout().tolist() for found in plan.buffers()[1:]] == [
        [2, 4, 6, 8], [2, 4, 6, 8], [1, 1, 1, 1],
    ]  # fmt: skip


@pytest.mark.row("S91")
def test_faulty_copies_and_views_are_reported_by_a_run():
    base = empty(8)
    for op in (PreparedCopy(9, [0, 7]), PreparedBufferView(9, [1, 0], 4, 4)):
        plan = plan_of([buffer(1, 2, 3, 4), empty()], [launch(1, native("add"), [0, 0, 1]), op])
        assert not plan.is_native
        with pytest.raises(ExecutionError, match=r"op 9"):
            plan.execute()
    assert not base.is_allocated


@pytest.mark.row("S5")
def test_plans_with_other_programs_use_the_plain_executor():
    seen = []
    ops = [
        launch(1, compiled(lambda *args: seen.append("python")), [0]),
        launch(2, compiled(lambda *args: seen.append("ref")), [1], device="REF", after=[1]),
    ]
    plan = plan_of([empty(), empty(4, "REF")], ops)
    assert not plan.is_native
    plan.execute()
    assert seen == ["python", "ref"]


@pytest.mark.row("S65", "S66", "Q15")
def test_profiles_come_from_native_stamps():
    ops = [launch(i, native("spin", entry_point=f"spin{i}"), [0, i]) for i in (1, 2, 3, 4)]
    ops.append(PreparedCopy(9, [5, 0]))
    ops.append(launch(6, native("spin", entry_point="last"), [1, 6], after=[1]))
    plan = plan_of([buffer(1, 2, 3, 4), *[empty() for _ in range(6)]], ops)
    assert plan.is_native
    plan.execute_profiled()  # the workers start here
    before = time.perf_counter_ns()
    profiles = plan.execute_profiled()
    after = time.perf_counter_ns()
    assert [p.kernel.entry_point for p in profiles] == ["spin1", "spin2", "spin3", "spin4", "last"]
    assert [p.index for p in profiles] == [0, 1, 2, 3, 5]
    slack = 100_000  # ns; two clocks are compared
    for profile in profiles:
        assert before - slack < profile.start_ns < profile.end_ns < after + slack
        assert (profile.device, profile.num_buffers) == ("CPU", 2)
    lanes = {}
    for profile in profiles:
        lanes.setdefault(profile.lane, []).append((profile.start_ns, profile.end_ns))
    for spans in lanes.values():
        spans.sort()
        assert all(a[1] <= b[0] for a, b in itertools.pairwise(spans))
    assert max(p.end_ns for p in profiles[:4]) <= profiles[4].start_ns


@pytest.mark.row("Q10")
def test_threads_on_one_native_plan_and_on_replicas():
    ops = [launch(i + 1, native("add"), [0, i, i + 1], after=[i] if i else []) for i in range(20)]
    plan = plan_of([buffer(1, 1, 1, 1), *[empty() for _ in range(20)]], ops)
    plans = [plan, plan, plan.replicate(), plan.replicate()]
    wrong = []

    def work(found):
        for _ in range(200):
            found.execute()
            if found.output_buffer().copyout().tolist() != [21] * 4:
                wrong.append(1)

    threads = [threading.Thread(target=work, args=(found,)) for found in plans]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not wrong and all(found.is_native for found in plans)


@pytest.mark.row("Q10")
def test_runs_of_one_native_plan_never_overlap():
    """A run reads a state, takes a while, and writes it plus one: runs at once would lose some."""
    state, one, sums, spun = buffer(0, 0, 0, 0), buffer(1, 1, 1, 1), empty(), empty()
    slow = [launch(i, native("spin"), [1, 3], after=[i - 1]) for i in range(2, 102)]
    ops = [launch(1, native("add"), [0, 1, 2]), *slow, PreparedCopy(102, [0, 2], [101])]
    plan = plan_of([state, one, sums, spun], ops, outputs=[0])
    assert plan.is_native
    threads = [
        threading.Thread(target=lambda: [plan.execute() for _ in range(50)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert state.copyout().tolist() == [200] * 4


@pytest.mark.row("Q16")
def test_bound_memory_reaches_every_use():
    builder = ExecutionPlanBuilder("CPU")
    for number, found in enumerate([buffer(1, 2, 3, 4), empty(), empty(), empty()]):
        builder.add_buffer(number, found)
    builder.add_kernel(launch(1, native("add"), [0, 0, 1]))
    builder.add_op(PreparedCopy(2, [2, 0]))
    builder.add_kernel(launch(3, native("add"), [1, 0, 3], after=[1]))
    builder.set_output_buffers([3, 2])
    builder.name_input("x", 0)
    builder.name_output("y", 3)
    plan = builder.build()
    for turn in range(3):
        x, y = np.full(4, turn, np.float32), np.zeros(4, np.float32)
        plan.bind("x", x)
        plan.bind("y", y)
        plan.execute()
        assert y.tolist() == [3 * turn] * 4
        assert plan.output_buffer_at(1).copyout().tolist() == [turn] * 4
    middle = plan.buffers()[1].numpy()
    with pytest.raises(ExecutionError, match=r"also uses as an intermediate or a constant"):
        plan.bind("x", middle)


def test_replicas_follow_their_own_bindings():
    builder = ExecutionPlanBuilder("CPU")
    builder.add_buffer(0, buffer(1, 2, 3, 4))
    builder.add_buffer(1, empty())
    builder.add_kernel(launch(1, native("add"), [0, 0, 1]))
    builder.set_output_buffer(1)
    builder.name_input("x", 0)
    builder.name_output("y", 1)
    plan = builder.build()
    out = np.zeros(4, np.float32)
    plan.bind("y", out)
    twin = plan.replicate()
    assert twin(x=np.ones(4, np.float32)).tolist() == [2] * 4
    assert out.tolist() == [0] * 4, "the replica does not write the caller's array"
    plan.execute()
    assert out.tolist() == [2, 4, 6, 8]


def test_execute_costs_little_python():
    """The bar is 1.5 us on a quiet machine; this catches a cost that grows with the kernels."""
    plan = plan_of(
        [buffer(1, 1, 1, 1), *[empty() for _ in range(500)]],
        [launch(i + 1, native("add"), [0, i, i + 1], after=[i] if i else []) for i in range(500)],
    )
    plan.execute()
    best = min(timed(plan.execute) for _ in range(50))
    assert best < 200e-6, f"{best * 1e6:.1f} us for 500 tiny kernels"


def timed(work):
    start = time.perf_counter()
    work()
    return time.perf_counter() - start
