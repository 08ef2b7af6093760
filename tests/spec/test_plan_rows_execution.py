"""S50-S66, T4, T5, T12, Q5, Q9, Q13, Q15: running the four kinds of ops."""

from __future__ import annotations

import gc
import threading
import time

import numpy as np
import pytest

from svod.base.errors import ExecutionError, UnsupportedError
from svod.device.buffer import Buffer
from svod.device.launch import concrete_size
from svod.device.registry import get_device
from svod.dtype import types as dt
from svod.runtime import (
    PreparedBufferView,
    PreparedCopy,
    PreparedCustomFunction,
    RunErrors,
    register_custom_function,
    unregister_custom_function,
)
from svod.runtime.executor import partition, run_group
from svod.runtime.ops import requires_serial
from tests.spec.plan_parts import Calls, add, buffer, compiled, double, empty, launch, plan_of

# -- copies and views ------------------------------------------------------------------------


@pytest.mark.row("S50")
def test_faulty_copies():
    wrong = [
        (PreparedCopy(5, [0]), r"Copy op 5 requires at least two buffer indices .*, got 1"),
        (PreparedCopy(6, [0, 9]), "Copy op 6 buffer index out of range: dst=0, src=9, total_buf"),
        (PreparedCopy(7, [-1, 0]), "Copy op 7 buffer index out of range: dst=-1"),
        (PreparedCopy(8, [0, 1]), "Copy op 8 failed: "),
    ]
    for op, message in wrong:
        plan = plan_of([empty(4), empty(8)], [op])
        with pytest.raises(ExecutionError, match=message) as caught:
            plan.execute()
        assert caught.value.op_id == op.id


@pytest.mark.row("S51", "T4")
def test_copy_goes_into_the_storage_of_the_destination():
    target = buffer(0, 0, 0, 0)
    alias = target.view(0, 4)
    plan = plan_of([buffer(1, 2, 3, 4), target], [PreparedCopy(1, [1, 0])])
    plan.execute()
    assert target.copyout().tolist() == alias.copyout().tolist() == [1, 2, 3, 4]


@pytest.mark.row("S51")
def test_copy_between_two_cpu_devices():
    source, target = buffer(1, 2, 3, 4), empty(4, "CPU:1")
    plan_of([source, target], [PreparedCopy(1, [1, 0])]).execute()
    assert target.device == "CPU:1" and target.copyout().tolist() == [1, 2, 3, 4]


@pytest.mark.row("S52", "T4")
def test_a_view_moves_nothing_and_reads_its_part():
    base = buffer(0, 1, 2, 3, 4, 5, 6, 7)
    view = base.view(8, 4)
    plan = plan_of([base, view], [PreparedBufferView(1, [1, 0], 8, 16)])
    before = base.copyout()
    plan.execute()
    assert plan.output_buffer().copyout().tolist() == [2, 3, 4, 5]
    assert base.copyout().tolist() == before.tolist()


@pytest.mark.row("S52")
def test_offsets_of_views_count_from_the_base():
    whole = buffer(*range(12))
    base = whole.view(8, 8)
    plan_of([base, base.view(4, 2)], [PreparedBufferView(1, [1, 0], 4, 8)]).execute()
    with pytest.raises(ExecutionError):
        plan_of([base, whole.view(4, 2)], [PreparedBufferView(1, [1, 0], 4, 8)]).execute()


@pytest.mark.row("S53")
def test_faulty_views():
    base, other = buffer(*range(8)), empty(4)
    wrong = [
        (base.view(8, 4), PreparedBufferView(1, [0], 8, 16), "requires at least two .* got 1"),
        (base.view(8, 4), PreparedBufferView(1, [1, 5], 8, 16), "out of range: out=1, base=5"),
        (other, PreparedBufferView(1, [1, 0], 0, 16), "BufferView op 1 mismatch"),
        (base.view(8, 4), PreparedBufferView(1, [1, 0], 4, 16), "mismatch"),
        (base.view(8, 4), PreparedBufferView(1, [1, 0], 8, 12), "mismatch"),
    ]
    for view, op, message in wrong:
        with pytest.raises(ExecutionError, match=message):
            plan_of([base, view], [op]).execute()
    with pytest.raises(ExecutionError) as caught:
        plan_of([base, other], [PreparedBufferView(1, [1, 0], 8, 12)]).execute()
    assert str(caught.value) == (
        f"BufferView op 1 mismatch: out(storage={other.storage_id},off=0,size=16) "
        f"base(storage={base.storage_id},off=0) expected(off=8,size=12)"
    )


# -- custom functions ------------------------------------------------------------------------


@pytest.fixture
def failing():
    def fail(buffers, attrs, values):
        raise OSError("no such codec")

    register_custom_function("SpecFailing", fail, replace=True)
    yield
    unregister_custom_function("SpecFailing")


@pytest.mark.row("S54")
def test_custom_buffer_index_out_of_range_names_the_kind(failing):
    plan = plan_of([empty()], [PreparedCustomFunction(3, "SpecFailing", (), [0, 4])])
    with pytest.raises(
        ExecutionError,
        match=r"op 3 \(SpecFailing\) buffer index out of range: idx=4, total_buffers=1",
    ):
        plan.execute()


@pytest.mark.row("S55")
def test_unsupported_passes_unchanged_and_other_errors_are_wrapped(failing):
    plan = plan_of([empty()], [PreparedCustomFunction(3, "SpecNobodyHasThis", (), [0])])
    with pytest.raises(UnsupportedError) as caught:
        plan.execute()
    assert caught.value.kind == "SpecNobodyHasThis"
    assert not isinstance(caught.value, ExecutionError)
    plan = plan_of([empty()], [PreparedCustomFunction(4, "SpecFailing", (), [0])])
    with pytest.raises(
        ExecutionError, match=r"Custom function op 4 \(SpecFailing\) failed: no such codec"
    ) as wrapped:
        plan.execute()
    assert isinstance(wrapped.value.__cause__, OSError)


@pytest.mark.row("S56", "T5")
def test_all_kinds_in_one_chain():
    seen = []
    register_custom_function(
        "SpecRead", lambda found, attrs, values: seen.append(found[0].copyout().tolist()),
        replace=True,
    )  # fmt: skip
    calls = Calls(double)
    copied = empty(4)
    ops = [
        launch(1, compiled(calls), [0, 1]),
        PreparedCopy(2, [2, 1], [1]),
        PreparedBufferView(3, [3, 2], 4, 8, [2]),
        PreparedCustomFunction(4, "SpecRead", (), [3], {}, [3]),
    ]
    plan = plan_of([buffer(1, 2, 3, 4), empty(4), copied, copied.view(4, 2)], ops)
    plan.execute()
    unregister_custom_function("SpecRead")
    assert plan.output_buffer().copyout().tolist() == [4, 6]
    assert seen == [[4, 6]]
    assert len(calls.seen) == 1, "the kernel ran exactly once"


# -- what may run side by side -----------------------------------------------------------------


@pytest.mark.row("S57")
def test_only_kernels_that_say_so_leave_the_serial_path():
    assert not requires_serial(launch(1, compiled(safe=True), [0]))
    serial = [
        launch(1, compiled(safe=False), [0]),
        PreparedCopy(1, [0, 1]),
        PreparedBufferView(1, [0, 1], 0, 4),
        PreparedCustomFunction(1, "EncDec", (), [0]),
    ]
    assert all(requires_serial(op) for op in serial)


def groups_of(buffers, *launches):
    """How a plan groups kernels that read and write these places: (places, positions written)."""
    ops = [launch(i, compiled(safe=True), p, w) for i, (p, w) in enumerate(launches)]
    return plan_of(buffers, ops).groups


@pytest.mark.row("S58")
def test_hazards_between_two_kernels():
    four = [empty() for _ in range(4)]
    assert groups_of(four, ([0, 1], [1]), ([0, 2], [1])) == ((0, 1),), "two readers"
    assert groups_of(four, ([0, 1], [1]), ([2, 1], [1])) == ((0,), (1,)), "write and write"
    assert groups_of(four, ([0, 1], [1]), ([1, 2], [1])) == ((0,), (1,)), "write, then read"
    assert groups_of(four, ([1, 2], [1]), ([0, 1], [1])) == ((0,), (1,)), "read, then write"
    # In place: one argument that is written counts as written only, yet still meets a reader.
    assert groups_of(four, ([0], [0]), ([0, 1], [1])) == ((0,), (1,))
    assert groups_of(four, ([0], [0]), ([2, 1], [1])) == ((0, 1),)


@pytest.mark.row("S59")
def test_groups_run_one_after_another():
    five = [empty() for _ in range(5)]
    # 0 and 2 conflict, 1 and 3 conflict with nobody.
    found = groups_of(five, ([0, 1], [1]), ([0, 2], [1]), ([0, 1], [1]), ([0, 3], [1]))
    assert found == ((0, 1, 3), (2,))
    seen = []
    ops = [launch(i, compiled(lambda *a, i=i: seen.append(i), safe=True), [0, 1]) for i in range(3)]
    plan = plan_of([empty(), empty()], ops)
    plan.execute()
    assert seen == [0, 1, 2]


@pytest.mark.row("Q9")
def test_conflicting_kernels_of_a_level_keep_schedule_order():
    # First fit would put the third kernel beside the first, before the second.
    # 0 writes A; 1 reads A and writes B (conflicts with 0); 2 reads B (conflicts with 1 only).
    four = [empty() for _ in range(4)]
    found = groups_of(four, ([0, 1], [1]), ([1, 2], [1]), ([2, 3], [1]))
    assert found == ((0,), (1,), (2,))
    order = []
    ops = [
        launch(0, compiled(lambda *a: order.append(0), safe=True), [0, 1]),
        launch(1, compiled(lambda *a: order.append(1), safe=True), [1, 2]),
        launch(2, compiled(lambda *a: order.append(2), safe=True), [2, 3]),
    ]
    plan = plan_of(four, ops)
    assert plan.levels == ((0, 1, 2),), "no dependencies: only hazards order them"
    plan.execute()
    assert order == [0, 1, 2]


@pytest.mark.row("Q5")
def test_hazards_are_byte_ranges_not_handles():
    arena = Buffer.new("CPU", 64, dt.uint8)
    a, b, overlapping = (arena.view(offset, 4, dt.float32) for offset in (0, 16, 8))
    assert len({a.id, b.id, overlapping.id}) == 3 and a.storage_id == overlapping.storage_id
    source = empty()
    assert groups_of([source, a, b], ([0, 1], [1]), ([0, 2], [1])) == ((0, 1),)
    found = groups_of([source, a, overlapping], ([0, 1], [1]), ([0, 2], [1]))
    assert found == ((0,), (1,)), "two views of the same bytes conflict"


@pytest.mark.row("Q5")
def test_two_storages_around_the_same_memory_conflict():
    memory = np.zeros(8, np.float32)
    first, second = Buffer.from_numpy(memory[:4]), Buffer.from_numpy(memory[2:6])
    assert first.storage_id != second.storage_id
    found = groups_of([empty(), first, second], ([0, 1], [1]), ([0, 2], [1]))
    assert found == ((0,), (1,))


@pytest.mark.row("S60")
def test_only_kernels_can_be_grouped():
    ops = [launch(1, compiled(safe=True), [0]), PreparedCopy(2, [0, 1])]
    buffers = [empty(), empty()]
    with pytest.raises(ExecutionError, match=r"partition expected compiled kernel at op index 1"):
        partition(ops, [0, 1], buffers)
    with pytest.raises(ExecutionError, match=r"execution expected compiled kernel at op index 1"):
        run_group(ops, buffers, [0, 1], {})


class Overlap:
    """Counts how many programs are inside at the same time."""

    def __init__(self):
        self.lock = threading.Lock()
        self.inside = self.most = 0
        self.threads = set()

    def __call__(self, *args):
        with self.lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.threads.add(threading.get_ident())
        deadline = time.monotonic() + 0.3
        while self.most < 2 and time.monotonic() < deadline:
            time.sleep(0.001)
        with self.lock:
            self.inside -= 1


def overlap_of(*, safe=True, size=(1, 1, 1), copy_between=False, count=2):
    overlap = Overlap()
    ops = [
        launch(i, compiled(overlap, safe=safe, global_size=concrete_size(size)), [i])
        for i in range(count)
    ]
    if copy_between:
        ops.insert(1, PreparedCopy(9, [2, 3]))
    plan_of([empty() for _ in range(4)], ops).execute()
    return overlap


@pytest.mark.row("T12", "S63")
def test_independent_safe_kernels_overlap_in_time():
    overlap = overlap_of()
    assert overlap.most == 2 and len(overlap.threads) == 2


@pytest.mark.row("T12", "S62")
def test_threaded_cpu_kernels_run_one_after_another():
    overlap = overlap_of(size=(4, 1, 1))
    assert overlap.most == 1 and overlap.threads == {threading.get_ident()}


@pytest.mark.row("S62")
def test_one_threaded_kernel_makes_its_whole_group_sequential():
    overlap = Overlap()
    ops = [
        launch(0, compiled(overlap, safe=True), [0]),
        launch(1, compiled(overlap, safe=True, global_size=concrete_size((2, 1, 1))), [1]),
        launch(2, compiled(overlap, safe=True), [2]),
    ]
    plan = plan_of([empty() for _ in range(3)], ops)
    assert plan.groups == ((0, 1, 2),)
    plan.execute()
    assert overlap.most == 1


@pytest.mark.row("T12")
def test_unsafe_kernels_run_one_after_another():
    assert overlap_of(safe=False).most == 1


@pytest.mark.row("T12", "S64")
def test_a_copy_between_them_separates_safe_kernels():
    assert overlap_of(copy_between=True).most == 1


@pytest.mark.row("S61")
def test_a_group_of_one_runs_on_the_calling_thread():
    overlap = overlap_of(count=1)
    assert overlap.threads == {threading.get_ident()}


@pytest.mark.row("S63", "Q13")
def test_all_errors_of_a_group_are_reported():
    started = threading.Barrier(2, timeout=10)

    def fail(*args):
        started.wait()
        raise ValueError("broken")

    ops = [launch(i, compiled(fail, safe=True), [i]) for i in (0, 1)]
    ops.append(launch(2, compiled(safe=True), [2]))
    with pytest.raises(ExceptionGroup) as caught:
        plan_of([empty() for _ in range(3)], ops).execute()
    assert [str(error) for error in caught.value.exceptions] == [
        "Kernel 0 failed: broken", "Kernel 1 failed: broken",
    ]  # fmt: skip
    assert isinstance(caught.value, RunErrors) and isinstance(caught.value, ExecutionError)
    assert "2 of 3 kernels" in str(caught.value)


@pytest.mark.row("Q13")
def test_a_single_error_stays_itself():
    def fail(*args):
        raise ValueError("alone")

    ops = [launch(0, compiled(safe=True), [0]), launch(1, compiled(fail, safe=True), [1])]
    with pytest.raises(ExecutionError, match=r"Kernel 1 failed: alone") as caught:
        plan_of([empty(), empty()], ops).execute()
    assert not isinstance(caught.value, ExceptionGroup)


@pytest.mark.row("S64")
def test_levels_flush_before_serial_ops_and_at_their_end():
    order = []
    lock = threading.Lock()

    def note(name):
        def program(*args):
            with lock:
                order.append(name)

        return program

    ops = [
        launch(0, compiled(note("a"), safe=True), [0]),
        launch(1, compiled(note("b"), safe=True), [1]),
        launch(2, compiled(note("serial"), safe=False), [2]),
        launch(3, compiled(note("c"), safe=True), [3]),
        launch(4, compiled(note("next level"), safe=True), [4], after=[0]),
    ]
    plan = plan_of([empty() for _ in range(5)], ops)
    assert plan.groups == ((0, 1), (2,), (3,), (4,))
    plan.execute()
    assert sorted(order[:2]) == ["a", "b"]
    assert order[2:] == ["serial", "c", "next level"]


@pytest.mark.row("S65")
def test_one_profile_per_kernel_in_order_of_execution():
    seen = []
    register_custom_function("SpecNothing", lambda *a: seen.append("custom"), replace=True)
    calls = [Calls() for _ in range(4)]
    kernels = [compiled(found, safe=True, entry_point=f"k{i}") for i, found in enumerate(calls)]
    base = buffer(1, 2, 3, 4)
    ops = [
        launch(0, kernels[0], [0]),
        launch(1, kernels[1], [1]),
        launch(2, kernels[2], [2]),
        PreparedCopy(3, [4, 3]),
        PreparedBufferView(4, [5, 3], 0, 16),
        PreparedCustomFunction(5, "SpecNothing", (), [0]),
        launch(6, kernels[3], [0], after=[0]),
    ]
    buffers = [empty(), empty(), empty(), base, buffer(0, 0, 0, 0), base.view(0, 4)]
    plan = plan_of(buffers, ops)
    profiles = plan.execute_profiled()
    unregister_custom_function("SpecNothing")
    assert [profile.kernel.entry_point for profile in profiles] == ["k0", "k1", "k2", "k3"]
    assert [profile.index for profile in profiles] == [0, 1, 2, 6]
    assert [len(found.seen) for found in calls] == [1, 1, 1, 1]
    assert seen == ["custom"] and buffers[4].copyout().tolist() == [1, 2, 3, 4]


@pytest.mark.row("S66")
def test_a_profile_carries_kernel_device_buffers_and_time():
    kernel = compiled(lambda *args: time.sleep(0.01))
    memory = [Buffer.new("CPU:1", 4, dt.float32) for _ in range(2)]
    plan = plan_of(memory, [launch(1, kernel, [0, 1], device="CPU:1")])
    (profile,) = plan.execute_profiled()
    assert profile.kernel is kernel
    assert (profile.device, profile.num_buffers) == ("CPU:1", 2)
    assert 0.01 <= profile.elapsed < 1


@pytest.mark.row("Q15")
def test_profiles_have_start_end_and_lane_and_lanes_do_not_overlap():
    meet = threading.Barrier(2, timeout=10)
    ops = [
        launch(0, compiled(lambda *args: meet.wait(), safe=True), [0]),
        launch(1, compiled(lambda *args: meet.wait(), safe=True), [1]),
        launch(2, compiled(safe=True), [2], after=[0]),
    ]
    first, second, third = plan_of([empty() for _ in range(3)], ops).execute_profiled()
    assert first.lane != second.lane, "they ran at the same time"
    assert first.start_ns < second.end_ns and second.start_ns < first.end_ns
    assert third.start_ns >= max(first.end_ns, second.end_ns) and third.lane == 0
    assert all(p.elapsed_ns == p.end_ns - p.start_ns >= 0 for p in (first, second, third))


@pytest.mark.row("Q15")
def test_safety_is_a_fact_of_each_kernel():
    ops = [
        launch(0, compiled(safe=True), [0]),
        launch(1, compiled(safe=False), [1]),
        launch(2, compiled(safe=True), [2]),
    ]
    assert plan_of([empty() for _ in range(3)], ops).groups == ((0,), (1,), (2,))


@pytest.mark.row("T18")
def test_execute_twice_gives_the_same_sums():
    calls = Calls(add)
    plan = plan_of(
        [buffer(1, 2, 3, 0), buffer(4, 5, 6, 0), empty()],
        [launch(1, compiled(calls, safe=True), [0, 1, 2])],
    )
    for _ in range(2):
        plan.execute()
        assert plan.output_buffer().copyout()[:3].tolist() == [5, 7, 9]


@pytest.mark.row("T19")
def test_repeated_runs_hold_on_to_nothing():
    """The registry of tensors is a matter of `prepare`; here: no buffer and no byte more."""
    plan = plan_of(
        [buffer(1, 2, 3, 4), empty(), empty()],
        [launch(1, compiled(Calls(double)), [0, 1]), PreparedCopy(2, [2, 1], [1])],
    )
    plan.execute()
    allocator = get_device("CPU").allocator
    gc.collect()
    before, buffers, mapping = allocator.counters.live, plan.buffers(), plan.ast_to_buffer_map()
    for _ in range(100):
        plan.execute()
    gc.collect()
    assert allocator.counters.live <= before
    assert plan.buffers() == buffers and plan.ast_to_buffer_map() == mapping
