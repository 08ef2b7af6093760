"""S200-S242: dependencies between calls, schedule loops, the pre-schedule and its buffers."""

from __future__ import annotations

import pytest

from svod.base.errors import BufferNotFound, EmptySchedule, GraphError
from svod.device.buffer import Buffer
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import LocalArg, ParamArg
from svod.ir.node import const, make, variable
from svod.runtime.instantiate import create_schedule, device_of, instantiate
from svod.runtime.prepare import prepare_plan
from svod.schedule.dependencies import (
    DependencyCycles,
    call_dependencies,
    calls_waited_for,
    canonical_source,
    primary_buffer,
    sort_calls,
    source_calls,
    split_after,
    walk_calls,
)
from svod.schedule.loops import (
    BoundRangeRef,
    CallOp,
    EndOp,
    KernelInvocation,
    RangeOp,
    bound_ranges,
    control_stream,
    range_bounds,
    scheduled_ranges,
    unroll,
)
from svod.schedule.preschedule import NoKernelsFound, PreSchedule, create_pre_schedule
from tests.spec.call_parts import (
    after,
    bind,
    body,
    call,
    end,
    held,
    loop,
    memory,
    numbers,
    param,
    plus,
    plus_variable,
    select,
    sink,
    stack,
)


def store():
    return make(O.STORE, dt.void, (param(0), param(1)))


# -- dependencies ----------------------------------------------------------------------------


@pytest.mark.row("S200")
def test_an_argument_is_followed_to_a_buffer_or_an_order():
    buffer = memory()
    placed = after(buffer, call(plus(1), buffer, memory()))
    marked = make(O.PARAM, dt.float32, (B.device("CPU"),), ParamArg(0, (4,)))
    shards = stack(buffer, memory())
    for stop in (buffer, placed, marked, shards, select(shards, 1), bind("n", 3)):
        seen = B.cast(B.reshape(stop, (2, 2)) if stop.shape else stop, dt.float64)
        assert canonical_source(seen) is stop
    leaf = const(1.0, dt.float32)
    assert canonical_source(B.cast(leaf, dt.float64)) is leaf


@pytest.mark.row("S201")
def test_the_primary_buffer_of_a_source():
    first, second = memory(), memory(device="CPU:1")
    placed = after(second, call(plus(1), second, memory()))
    shards = stack(first, placed)
    assert primary_buffer(first) is first
    assert primary_buffer(B.reshape(first, (2, 2))) is first
    assert primary_buffer(placed) is second
    assert primary_buffer(param(3)) is param(3)
    assert primary_buffer(bind("n", 3)) is None
    assert primary_buffer(shards) is first
    assert primary_buffer(select(shards, 1)) is second
    assert primary_buffer(select(shards, 0)) is first


@pytest.mark.row("S202")
def test_what_an_after_may_wait_for():
    buffer = memory()
    one = call(plus(1), buffer, memory())
    two = call(plus(2), buffer, memory())
    counter = loop(3)
    assert calls_waited_for(one) == [one]
    assert calls_waited_for(end(two, counter)) == [two]
    assert calls_waited_for(store()) == []
    nested = after(buffer, end(two, counter), store())
    assert calls_waited_for(after(buffer, one, nested)) == [one, two]
    calls, afters = split_after(after(buffer, one, store(), nested))
    assert calls == [one] and afters == [nested]


@pytest.mark.row("S203")
def test_what_an_after_must_not_wait_for():
    buffer = memory()
    with pytest.raises(GraphError, match="END must wrap CALL, got STORE"):
        split_after(after(buffer, end(store(), loop(2))))
    with pytest.raises(GraphError, match="must be CALL, END\\(CALL\\), STORE or AFTER, got BUFFER"):
        split_after(after(buffer, memory()))
    with pytest.raises(GraphError, match="expected AFTER when splitting dependencies, got BUFFER"):
        split_after(buffer)


@pytest.mark.row("S204")
def test_source_dependencies_go_through_orders_and_shards():
    buffer, other = memory(), memory(device="CPU:1")
    one = call(plus(1), buffer, memory())
    two = call(plus(2), other, memory())
    three = call(plus(3), buffer, memory())
    placed, there = after(buffer, one), after(other, two)
    assert source_calls(after(buffer, three, placed)) == [three, one]
    assert source_calls(stack(placed, there)) == [one, two]
    assert source_calls(select(stack(placed, there), 0)) == [one, two]
    assert source_calls(B.reshape(placed, (2, 2))) == [one]
    for plain in (buffer, param(0), bind("n", 3)):
        assert source_calls(plain) == []


@pytest.mark.row("S205")
def test_an_argument_that_is_no_memory_is_refused():
    with pytest.raises(GraphError, match=r"must resolve to AFTER/BUFFER/PARAM.*got CONST"):
        source_calls(const(1.0, dt.float32))


@pytest.mark.row("S206")
def test_edges_come_from_a_calls_own_arguments():
    source, shared, out = memory(), memory(), memory()
    writer = call(plus(1), shared, source)
    unordered = call(plus(2), shared, source)  # writes the same buffer, nobody waits for it
    reader = call(plus(3), out, after(shared, writer))
    order = walk_calls(sink(after(out, reader), after(shared, unordered)))
    calls = [writer, unordered, reader]
    assert call_dependencies(calls, order) == [set(), set(), {0}]


@pytest.mark.row("S206")
def test_an_edge_to_itself_is_dropped():
    buffer = memory()
    one = call(plus(1), buffer, memory())
    assert call_dependencies([one], [one]) == [set()]
    # A call cannot be its own argument in an immutable graph; what waits for several keeps others.
    two = call(plus(2), memory(), after(buffer, one), after(buffer, one))
    assert call_dependencies([one, two], walk_calls(sink(two))) == [set(), {0}]


@pytest.mark.row("S207")
def test_an_after_orders_calls_that_share_no_buffer():
    first, second = memory(), memory()
    one = call(plus(1), first, memory())
    two = call(plus(2), second, memory())
    ordered = after(second, two, after(first, one))
    order = walk_calls(sink(ordered))
    assert call_dependencies([one, two], order) == [set(), {0}]
    schedule = create_pre_schedule(sink(ordered))
    assert [i.call for i in schedule.items] == [one, two]
    assert schedule.items[1].dependencies == (one.sn,)


@pytest.mark.row("S208")
def test_unknown_calls_are_refused():
    first, second = memory(), memory()
    one = call(plus(1), first, memory())
    two = call(plus(2), second, after(first, one))
    with pytest.raises(GraphError, match=f"unknown callable id {one.sn}"):
        call_dependencies([two], walk_calls(sink(two)))
    ordered = after(second, two, after(first, one))
    with pytest.raises(GraphError, match=f"AFTER dependency names unknown callable id {two.sn}"):
        call_dependencies([one], [ordered])


# -- loops -----------------------------------------------------------------------------------


def counted(name="i", size=3, number=0):
    """A loop that adds its counter to a buffer, in place; the graph and its parts."""
    state = memory()
    counter = loop(size, number)
    step = call(plus_variable(name, slot=0), state, bind(name, counter))
    return sink(after(state, end(step, counter))), state, step, counter


@pytest.mark.row("S209")
def test_a_range_is_a_schedule_loop_where_an_end_closes_a_call():
    graph, _, step, counter = counted()
    found = scheduled_ranges(walk_calls(graph))
    assert list(found) == [counter] and found[counter].src[0] is step
    lone = loop(5, 9)  # only bound, never closed
    assert scheduled_ranges(walk_calls(sink(call(plus(1), memory(), bind("j", lone))))) == {}


@pytest.mark.row("S210")
def test_only_counters_of_schedule_loops_are_bound():
    counter, other = loop(3), loop(5, 9)
    step = call(
        plus_variable(), memory(), memory(), bind("i", counter), bind("j", other), bind("n", 7)
    )
    found = bound_ranges(step, {counter: end(step, counter)})
    assert found == (BoundRangeRef("i", counter),)


@pytest.mark.row("S211")
def test_errors_of_bound_arguments():
    broken = make(O.BIND, dt.index, (const(1, dt.index), loop(3)))
    with pytest.raises(GraphError, match="BIND source must wrap DEFINE_VAR, got CONST"):
        bound_ranges(call(plus(1), memory(), broken), {})
    with pytest.raises(GraphError, match="expected a CALL, got BUFFER"):
        bound_ranges(memory(), {})


@pytest.mark.row("S212")
def test_the_control_stream_does_not_enter_bodies():
    graph, _, step, counter = counted()
    order = walk_calls(graph)
    assert not any(node.op == O.STORE for node in order)
    calls = [n for n in order if n.op == O.CALL]
    stream = control_stream(calls, call_dependencies(calls, order), order)
    assert stream == [RangeOp(counter), CallOp(step.sn), EndOp(counter, step.sn)]


@pytest.mark.row("S212")
def test_what_does_not_need_the_counter_runs_before_the_loop():
    setup, state = memory(), memory()
    counter = loop(3)
    first = call(plus(1), setup, memory())
    one = call(plus_variable(slot=0), state, bind("i", counter))
    value = B.binary(O.ADD, param(0), param(1))
    two = call(body(value), after(state, one), after(setup, first))
    graph = sink(after(state, end(two, counter)))
    schedule = create_pre_schedule(graph)
    ids = [i.call for i in schedule.invocations]
    assert ids == [first.sn] + 3 * [one.sn, two.sn]


@pytest.mark.row("S213")
def test_an_end_closes_one_range_and_a_stream_is_not_empty():
    step = call(plus(1), memory(), memory())
    double = end(step, loop(2, 0), loop(3, 1))
    with pytest.raises(GraphError, match="at most one wrapper range, got 2"):
        scheduled_ranges(walk_calls(sink(after(memory(), double))))
    with pytest.raises(GraphError, match="empty control stream"):
        control_stream([], [], [])


@pytest.mark.row("S214")
def test_streams_are_checked_before_they_run():
    _, _, step, counter = counted()
    item = create_pre_schedule(counted()[0]).items[0]
    with pytest.raises(GraphError, match=f"range {counter.sn} is missing its END"):
        unroll([RangeOp(counter), CallOp(step.sn)], [])
    with pytest.raises(GraphError) as error:
        unroll([CallOp(item.id)], [item])
    wanted = (str(item.id), "'i'", str(item.bound_ranges[0].range.sn))
    assert all(text in str(error.value) for text in wanted)


@pytest.mark.row("S215", "S216")
def test_counters_run_from_the_first_to_the_last_value():
    graph, _, step, _ = counted(size=4)
    schedule = create_pre_schedule(graph)
    assert [i.call for i in schedule.invocations] == [step.sn] * 4
    assert [i.fixedvars for i in schedule.invocations] == [{"i": n} for n in range(4)]
    assert len(schedule.items) == 1, "a call is one item, however often it runs"


@pytest.mark.row("S216")
def test_loops_nest_and_hold_several_calls():
    inner_state, outer_state = memory(), memory()
    outer, inner = loop(2, 0), loop(3, 1)
    prepare_row = call(plus_variable("o", slot=0), inner_state, bind("o", outer))
    add = call(
        plus_variable("i", slot=0), after(inner_state, prepare_row), bind("i", inner),
        bind("o", outer),
    )  # fmt: skip
    row = after(inner_state, end(add, inner))
    value = B.binary(O.ADD, param(0), param(1))
    collect = call(body(value), outer_state, row, bind("o", outer))
    graph = sink(after(outer_state, end(collect, outer)))
    schedule = create_pre_schedule(graph)
    turn = [prepare_row.sn, add.sn, add.sn, add.sn, collect.sn]
    assert [i.call for i in schedule.invocations] == turn + turn
    assert [i.fixedvars.get("i") for i in schedule.invocations][1:4] == [0, 1, 2]
    assert [i.fixedvars["o"] for i in schedule.invocations] == [0] * 5 + [1] * 5
    start = {inner_state.sn: held(inner_state, 0, 0, 0, 0)}
    start[outer_state.sn] = held(outer_state, 0, 0, 0, 0)
    plan = prepare_plan(create_schedule(graph, start))
    plan.execute()
    # rows: 0+0+1+2 = 3, then 3+1+0+1+2 = 7; collected 3 + 7
    assert numbers(plan.output_buffer()) == [10.0] * 4


@pytest.mark.row("S216")
def test_a_loop_reads_what_its_last_turn_wrote():
    state, scratch = memory(), memory()
    counter = loop(5)
    doubled = call(body(B.binary(O.ADD, param(1), param(1))), scratch, state, bind("i", counter))
    back = call(plus_variable("i"), state, after(scratch, doubled), bind("i", counter))
    graph = sink(after(state, end(back, counter)))
    plan = prepare_plan(create_schedule(graph, {state.sn: held(state, 1, 2, 3, 4)}))
    plan.execute()
    expected = [1.0, 2.0, 3.0, 4.0]
    for turn in range(5):
        expected = [2 * n + turn for n in expected]
    assert numbers(plan.output_buffer()) == expected


@pytest.mark.row("S216")
def test_a_loop_overwrites_only_what_was_read():
    slow = [memory() for _ in range(4)]  # makes the reader wait for a long chain
    late = slow[0]
    for target in slow[1:]:
        late = after(target, call(plus(1), target, late))
    scratch, total = memory(), memory()
    counter = loop(4)
    value = B.cast(variable("i", 0, 63), dt.float32)
    filled = call(body(B.broadcast_to(value, (4,))), scratch, bind("i", counter))
    both = B.binary(O.ADD, B.binary(O.ADD, param(0), param(1)), param(2))
    add = call(body(both), total, after(scratch, filled), late, bind("i", counter))
    graph = sink(after(total, end(add, counter)))
    given = {slow[0].sn: held(slow[0], 0, 0, 0, 0), total.sn: held(total, 0, 0, 0, 0)}
    plan = prepare_plan(create_schedule(graph, given))
    plan.execute()
    assert numbers(plan.output_buffer()) == [0 + 1 + 2 + 3 + 4 * 3.0] * 4


@pytest.mark.row("S217")
def test_errors_of_the_interpreter():
    _, _, step, counter = counted()
    item = create_pre_schedule(counted()[0]).items[0]
    bound = item.bound_ranges[0].range
    whole = [RangeOp(bound), CallOp(item.id), EndOp(bound, item.id)]
    with pytest.raises(GraphError, match=f"END names unknown CALL id {step.sn}"):
        unroll([RangeOp(counter), EndOp(counter, step.sn)], [])
    with pytest.raises(GraphError, match=f"range {bound.sn} that is not active"):
        unroll([EndOp(bound, item.id), *whole], [item])
    with pytest.raises(GraphError, match=f"CALL names unknown kernel id {step.sn}"):
        unroll([*whole, CallOp(step.sn)], [item])
    with pytest.raises(GraphError, match=f"'i' refers to inactive schedule range {bound.sn}"):
        unroll([CallOp(item.id), *whole], [item])
    with pytest.raises(GraphError, match="not active"):  # its jump target is gone as well
        unroll([*whole, EndOp(bound, item.id)], [item])


@pytest.mark.row("S218")
def test_loop_bounds_are_numbers():
    assert range_bounds(loop(4)) == (0, 3)
    with pytest.raises(GraphError, match="expected RANGE for schedule loop control, got BUFFER"):
        range_bounds(memory())
    with pytest.raises(GraphError, match="must be a concrete integer"):
        range_bounds(loop(variable("n", 1, 8)))
    with pytest.raises(GraphError, match="invalid schedule range bounds: vmin=0, vmax=-1"):
        range_bounds(loop(0))


@pytest.mark.row("S219", "S220")
def test_the_records_of_loops():
    graph, _, step, counter = counted(name="t", size=2)
    schedule = create_pre_schedule(graph)
    assert schedule.invocations[1] == KernelInvocation(step.sn, {"t": 1})
    assert schedule.items[0].bound_ranges == (BoundRangeRef("t", counter),)
    assert schedule.items[0].bound_ranges[0].range is counter


# -- the pre-schedule ------------------------------------------------------------------------


def chain():
    """out = (source + 1) + 2, and the parts."""
    source, between, out = memory(), memory(), memory()
    one = call(plus(1), between, source)
    two = call(plus(2), out, after(between, one))
    return sink(after(out, two)), source, between, out, one, two


@pytest.mark.row("S221")
def test_an_item_holds_a_call_and_no_buffers():
    graph, source, between, out, one, _two = chain()
    first, second = create_pre_schedule(graph).items
    assert first.call is one and first.body is one.src[0] and first.id == one.sn
    assert first.arguments == (between, source) and first.dependencies == ()
    assert second.arguments == (out, between) and second.dependencies == (one.sn,)
    assert second.bound_ranges == ()
    assert not any(isinstance(a, Buffer) for a in first.arguments)


@pytest.mark.row("S222")
def test_a_pre_schedule_has_items_invocations_and_outputs():
    _graph, _, between, out, one, two = chain()
    schedule = create_pre_schedule(sink(after(out, two), after(between, one)))
    assert [i.call for i in schedule.items] == [one, two]
    assert [i.call for i in schedule.invocations] == [one.sn, two.sn]
    assert schedule.outputs == (out, between)


@pytest.mark.row("S223", "S224")
def test_a_schedule_item_and_the_result():
    graph, source, between, out, one, two = chain()
    given = held(source, 1, 2, 3, 4)
    result = create_schedule(graph, {source.sn: given})
    first, second = result.items
    assert first.call is one and first.body is one.src[0]
    assert first.buffers[1] is given and first.buffers[0] is second.buffers[1]
    assert first.buffer_ids == [between.sn, source.sn]
    assert second.dependencies == (one.sn,) and second.instance_dependencies == []
    assert first.fixedvars == {} and first.loop_var_names == frozenset()
    assert second.alias_ids == (two.src[2].sn,), "the AFTER under which the buffer was reached"
    assert result.output_ids == [out.sn]


@pytest.mark.row("S225")
def test_calls_are_sorted_producers_first_and_stable():
    source = memory()
    outs = [memory() for _ in range(4)]
    a = call(plus(1), outs[0], source)
    b = call(plus(2), outs[1], source)
    c = call(plus(3), outs[2], after(outs[1], b), after(outs[0], a))
    d = call(plus(4), outs[3], source)
    graph = sink(after(outs[2], c), after(outs[3], d))
    schedule = create_pre_schedule(graph)
    # found left to right: b, a, c, d; c waits, so d, which is ready, comes before it
    assert [i.call for i in schedule.items] == [b, a, d, c]
    assert schedule.items[3].dependencies == tuple(sorted([a.sn, b.sn]))


@pytest.mark.row("S226")
def test_no_calls_and_cycles_are_errors():
    with pytest.raises(NoKernelsFound):
        create_pre_schedule(sink(memory()))
    assert issubclass(NoKernelsFound, GraphError)
    one, two = call(plus(1), memory(), memory()), call(plus(2), memory(), memory())
    with pytest.raises(DependencyCycles, match=f"{one.sn}.*{two.sn}"):
        sort_calls([one, two], [{1}, {0}])


@pytest.mark.row("S227")
def test_outputs_are_the_buffers_of_the_roots():
    _graph, _, _, out, _, two = chain()
    viewed = B.reshape(after(out, two), (2, 2))
    assert create_pre_schedule(sink(viewed)).outputs == (out,)
    assert create_pre_schedule(after(out, two)).outputs == (out,), "a root that is no SINK"


# -- instantiation ---------------------------------------------------------------------------


@pytest.mark.row("S228")
def test_invocations_of_a_call_share_its_buffers():
    graph, state, *_ = counted(size=3)
    given = held(state, 0, 0, 0, 0)
    items = create_schedule(graph, {state.sn: given}).items
    assert len(items) == 3
    assert items[0].buffers is items[1].buffers is items[2].buffers
    assert items[0].buffers == [given]
    assert items[2].instance_dependencies == [1], "each turn waits for the one before"


@pytest.mark.row("S229")
def test_values_go_to_the_calls_that_mention_the_variable():
    source, between, out = memory(), memory(), memory()
    one = call(plus_variable("n"), between, source, bind("n", 5))
    two = call(plus(1), out, after(between, one))
    graph = sink(after(out, two))
    first, second = create_schedule(graph, {}, {"n": 5, "m": 7}).items
    assert first.fixedvars == {"n": 5} and second.fixedvars == {}
    # a variable inside a shape counts as mentioned, too
    n = variable("n", 1, 4)
    shrunk = make(O.SHRINK, dt.float32, (param(1),), ((0, n),))
    store_part = make(O.SHRINK, dt.float32, (param(0),), ((0, n),))
    front = make(O.SINK, dt.void, (make(O.STORE, dt.void, (store_part, shrunk)),))
    (item,) = create_schedule(sink(after(out, call(front, out, source))), {}, {"n": 2}).items
    assert item.fixedvars == {"n": 2}


@pytest.mark.row("S230")
def test_loop_counters_win_over_given_values():
    graph, state, *_ = counted(name="i", size=2)
    items = create_schedule(graph, {state.sn: held(state, 0, 0, 0, 0)}, {"i": 40}).items
    assert [i.fixedvars for i in items] == [{"i": 0}, {"i": 1}]
    assert all(i.loop_var_names == {"i"} for i in items)


@pytest.mark.row("S231")
def test_unknown_kernels_and_empty_schedules():
    made = create_pre_schedule(chain()[0])
    wrong = PreSchedule(made.items, (KernelInvocation(12345),), made.outputs)
    with pytest.raises(GraphError, match="invocation of unknown kernel id 12345"):
        instantiate(wrong, {})
    with pytest.raises(EmptySchedule):
        instantiate(PreSchedule((), (), made.outputs), {})


@pytest.mark.row("S232")
def test_create_schedule_is_both_steps():
    graph, source, *_ = chain()
    given = {source.sn: held(source, 1, 2, 3, 4)}
    one, two = create_schedule(graph, given), instantiate(create_pre_schedule(graph), given)
    assert [i.call for i in one.items] == [i.call for i in two.items]
    plan = prepare_plan(one)
    plan.execute()
    assert numbers(plan.output_buffer()) == [4.0, 5.0, 6.0, 7.0]


@pytest.mark.row("S233")
def test_intermediates_belong_to_one_schedule():
    graph, source, between, out, *_ = chain()
    schedule = create_pre_schedule(graph)
    given = {source.sn: held(source, 1, 2, 3, 4)}
    one, two = instantiate(schedule, given), instantiate(schedule, given)
    assert one.buffers[between.sn] is not two.buffers[between.sn]
    assert between.arg.buffer is None and out.arg.buffer is None
    assert list(given) == [source.sn], "what was passed in stays as it was"


@pytest.mark.row("S234")
def test_a_call_runs_where_its_first_known_buffer_is(tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(16))
    disk, here, there = memory(device=f"DISK:{path}"), memory(), memory(device="CPU:1")
    plain = make(O.PARAM, dt.float32, (), ParamArg(7, (4,)))  # no device of its own
    given = {n.sn: Buffer.new(n.src[-1].arg, 4, dt.float32) for n in (disk, here, there)}

    def target(*sources):
        graph = sink(after(plain, call(plus(1), plain, *sources)))
        return create_schedule(graph, given).buffers[plain.sn].device

    assert target(there, here) == "CPU:1"
    assert target(here, there) == "CPU"
    assert target(disk, there) == "CPU:1", "a disk runs nothing"
    assert target(disk) == "CPU"
    assert target(memory()) == "CPU", "nothing known"
    assert device_of([]) == "CPU"


@pytest.mark.row("S235")
def test_the_buffer_of_an_after_must_exist():
    missing = memory()
    ordered = after(missing, store())  # nobody made it and nobody gave it
    graph = sink(after(memory(), call(plus(1), memory(), ordered)))
    with pytest.raises(BufferNotFound) as error:
        create_schedule(graph, {})
    assert error.value.buffer == missing.sn
    given = Buffer.new("CPU", 4, dt.float32)
    (item,) = create_schedule(graph, {missing.sn: given}).items
    assert item.buffers[1] is given and item.buffer_ids[1] == missing.sn


@pytest.mark.row("S236")
def test_the_primary_shard_must_exist():
    first, second, out = memory(), memory(device="CPU:1"), memory(device="CPU:1")
    shards = stack(first, second)
    graph = sink(after(out, call(plus(1), out, select(shards, 1))))
    with pytest.raises(BufferNotFound):
        create_schedule(graph, {first.sn: held(first, 1, 2, 3, 4)})
    given = {second.sn: held(second, 5, 6, 7, 8)}
    plan = prepare_plan(create_schedule(graph, given))
    plan.execute()
    assert plan.device() == "CPU:1" and plan.prepared_kernels()[0].device == "CPU:1"
    assert numbers(plan.output_buffer()) == [6.0, 7.0, 8.0, 9.0]
    nothing = stack(const(1.0, dt.float32))
    with pytest.raises(GraphError):
        create_pre_schedule(sink(after(out, call(plus(1), out, nothing))))


@pytest.mark.row("S237")
def test_local_memory_has_the_size_it_says():
    out, source = memory(), memory(device="CPU:1")
    scratch = make(O.DEFINE_LOCAL, dt.float64, (), LocalArg(24, 0))
    graph = sink(after(out, call(plus(1), out, source, scratch)))
    given = {source.sn: Buffer.new("CPU:1", 4, dt.float32)}
    (item,) = create_schedule(graph, given).items
    found = item.buffers[2]
    assert (found.size, found.dtype, found.device) == (24, dt.float64, "CPU:1")


@pytest.mark.row("S238")
def test_local_memory_without_a_size_is_refused():
    out = memory()
    for arg, dtype in ((None, dt.float32), (LocalArg(0, 0), dt.float32), (LocalArg(4, 0), dt.void)):
        scratch = make(O.DEFINE_LOCAL, dtype, (), arg)
        graph = sink(after(out, call(plus(1), out, memory(), scratch)))
        with pytest.raises(GraphError, match="DEFINE_LOCAL"):
            create_schedule(graph, {})


@pytest.mark.row("S239")
def test_inputs_first_then_what_exists_then_new_memory():
    graph, source, between, _out, *_ = chain()
    given = held(between, 9, 9, 9, 9)
    result = create_schedule(graph, {between.sn: given})
    first, second = result.items
    assert first.buffers[0] is given and second.buffers[1] is given
    made = second.buffers[0]
    assert (made.size, made.dtype, made.device) == (4, dt.float32, "CPU")
    assert not made.is_allocated, "memory is taken later"
    assert result.buffers[source.sn] is first.buffers[1]
    far = memory(device="CPU:1")
    (item,) = create_schedule(sink(after(far, call(plus(1), far, source))), {}).items
    assert item.buffers[0].device == "CPU:1", "a node that names its device gets it"


@pytest.mark.row("S240")
def test_a_bound_variable_is_no_buffer():
    out, source = memory(), memory()
    graph = sink(after(out, call(plus_variable("n"), out, source, bind("n", 3))))
    (item,) = create_schedule(graph, {}).items
    assert len(item.buffers) == 2 and len(item.buffer_ids) == 2


@pytest.mark.row("S241")
def test_other_arguments_are_refused():
    out = memory()
    graph = sink(after(out, call(plus(1), out, const(1.0, dt.float32))))
    with pytest.raises(GraphError, match="CONST"):
        create_pre_schedule(graph)


@pytest.mark.row("S242")
def test_alias_ids_are_sorted_and_listed_once():
    source, between, out = memory(), memory(), memory()
    one = call(plus(1), between, source)
    placed = after(between, one)
    seen = B.reshape(placed, (2, 2))
    two = call(body(B.binary(O.ADD, param(1), param(2))), out, seen, seen)
    (_, item) = create_schedule(sink(after(out, two)), {}).items
    assert item.alias_ids == tuple(sorted({placed.sn, seen.sn}))
