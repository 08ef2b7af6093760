"""S138-S141, T20, T21, Q5: the memory planner."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from svod.base.knobs import knobs
from svod.device.buffer import Buffer
from svod.device.registry import get_device
from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import ParamArg
from svod.ir.node import make
from svod.runtime import (
    ExecutionPlanBuilder,
    MemoryItem,
    MemoryMode,
    MemoryReport,
    plan_memory,
)
from svod.runtime.config import PrepareConfig
from svod.runtime.instantiate import create_schedule
from svod.runtime.memory import (
    ReuseDependency,
    apply_reuse_dependencies,
    masked_slots,
    pool_key,
    rounded,
)
from svod.runtime.order import execution_levels, execution_order
from svod.runtime.packing import Block, lower_bound, pack
from svod.runtime.prepare import _share_memory
from tests.spec.call_parts import after, call, memory, plus, sink
from tests.spec.plan_parts import Calls, buffer, compiled, empty, floats, launch

KB = 1024


def fresh(nbytes=4 * KB, dtype=dt.float32, device="CPU"):
    return Buffer.new(device, nbytes // dtype.itemsize, dtype)


def chain(*buffers, **facts):
    """Items that each read one buffer and write the next."""
    return [
        MemoryItem(
            number, (source, target), (number - 1,) if number else (), frozenset({1}), **facts
        )
        for number, (source, target) in enumerate(itertools.pairwise(buffers))
    ]


def allocated(nbytes=4 * KB):
    return fresh(nbytes).allocate()


def bytes_of(found):
    return found.storage_id, found.byte_range


# -- modes -------------------------------------------------------------------------------------


@pytest.mark.row("T20")
@pytest.mark.parametrize(
    ("text", "mode"),
    [(word, MemoryMode.DISABLED) for word in ("off", "none", "0", "disabled", " OFF ", "None")]
    + [(word, MemoryMode.REMAP) for word in ("remap", "pool", "Pool", "\tREMAP\n")]
    + [(word, MemoryMode.ARENA) for word in ("arena", "", "1", "on", "whatever")],
)
def test_mode_parsing(text, mode):
    assert MemoryMode.parse(text) is mode


@pytest.mark.row("S138")
def test_the_environment_chooses_the_mode(monkeypatch):
    monkeypatch.delenv("SVOD_MEMORY_PLANNER", raising=False)
    knobs.refresh()
    assert MemoryMode.from_environment() is MemoryMode.ARENA
    items = chain(allocated(), *[fresh() for _ in range(4)])
    assert plan_memory(items).report.mode is MemoryMode.ARENA
    monkeypatch.setenv("SVOD_MEMORY_PLANNER", "off")
    knobs.refresh()
    assert plan_memory(items).report.mode is MemoryMode.DISABLED
    monkeypatch.undo()
    knobs.refresh()


@pytest.mark.row("S138")
def test_arena_packs_into_one_allocation_per_device():
    buffers = [allocated(), *[fresh() for _ in range(5)]]
    plan = plan_memory(chain(*buffers), mode=MemoryMode.ARENA)
    assert len({found.storage_id for found in plan.replacements.values()}) == 1
    both = [fresh(), fresh(), fresh(device="CPU:1"), fresh(device="CPU:1")]
    plan = plan_memory(chain(allocated(), *both), mode=MemoryMode.ARENA)
    assert len({found.storage_id for found in plan.replacements.values()}) == 2
    for found in both:
        assert plan.replacements[found.id].device == found.device


@pytest.mark.row("S138")
def test_remap_hands_whole_buffers_on():
    first, second, third, fourth = (fresh() for _ in range(4))
    plan = plan_memory(chain(allocated(), first, second, third, fourth), mode=MemoryMode.REMAP)
    places = [bytes_of(plan.replacements[found.id]) for found in (first, second, third, fourth)]
    assert places[0] == places[2] and places[1] == places[3] and places[0] != places[1]
    assert plan.reused == 2 and plan.saved_bytes == 8 * KB


@pytest.mark.row("S138")
def test_disabled_leaves_everything_as_it_is():
    plan = plan_memory(chain(allocated(), fresh(), fresh(), fresh()), mode=MemoryMode.DISABLED)
    assert plan.replacements == {} and plan.dependencies == ()
    assert plan.report.planned_bytes == plan.report.logical_bytes == 12 * KB


@pytest.mark.row("S139")
@pytest.mark.parametrize("mode", [MemoryMode.ARENA, MemoryMode.REMAP])
def test_outputs_are_never_replaced(mode):
    buffers = [fresh() for _ in range(5)]
    outputs = {buffers[1].id, buffers[4].id}
    plan = plan_memory(chain(allocated(), *buffers), outputs, mode)
    assert set(plan.replacements) <= {found.id for found in buffers} - outputs


@pytest.mark.row("S140")
@pytest.mark.parametrize("mode", [MemoryMode.ARENA, MemoryMode.REMAP])
def test_replacements_counts_and_dependencies(mode):
    buffers = [fresh() for _ in range(4)]
    items = chain(allocated(), *buffers)
    plan = plan_memory(items, mode=mode)
    assert plan.reused == 2
    assert plan.saved_bytes == 8 * KB
    # Buffer 2 takes over bytes of buffer 0, which items 0 and 1 use; item 2 is the first on it.
    assert ReuseDependency(2, 0) in plan.dependencies and ReuseDependency(2, 1) in plan.dependencies
    for old in buffers:
        new = plan.replacements[old.id]
        assert (new.size, new.dtype, new.device) == (old.size, old.dtype, old.device)
    table = [[] for _ in items]
    apply_reuse_dependencies(plan.dependencies, table)
    assert execution_levels(items, table) == execution_levels(items), "levels stay what they were"


@pytest.mark.row("S141")
def test_without_replacements_nothing_is_asked_of_the_schedule():
    for items in ([], chain(allocated(), fresh()), chain(allocated(), allocated(), allocated())):
        plan = plan_memory(items, mode=MemoryMode.ARENA)
        assert plan.replacements == {} and plan.dependencies == () and plan.reused == 0


# -- what is planned, and how ----------------------------------------------------------------


@pytest.mark.row("T20")
def test_rounding_and_pool_key():
    assert [rounded(size) for size in (0, 1, 255, 256, 257)] == [0, 256, 256, 256, 512]
    flat, wide = fresh(1024), fresh(1024, dt.float64)
    assert pool_key(flat) == pool_key(wide) == pool_key(fresh(1000)) == ("CPU", 1024)
    assert pool_key(flat) != pool_key(fresh(1024, device="CPU:1"))
    plan = plan_memory(chain(allocated(), fresh(300), fresh(), fresh(500)), mode=MemoryMode.ARENA)
    assert all(found.offset % 256 == 0 for found in plan.replacements.values())


@pytest.mark.row("T20")
@pytest.mark.parametrize("mode", [MemoryMode.ARENA, MemoryMode.REMAP])
def test_what_is_left_alone(mode, tmp_path):
    path = tmp_path / "weights.bin"
    path.write_bytes(bytes(4 * KB))
    whole = fresh(8 * KB)
    twin = fresh()
    special = {
        "disk": fresh(device=f"DISK:{path}"),
        "disk again": fresh(device=f"DISK:{path}"),
        "an offset view": whole.view(4 * KB, KB),
        "allocated": allocated(),
        "an alias": twin,
        "an output": fresh(),
    }
    plain = [fresh() for _ in range(3)]
    items = chain(allocated(), *plain, *special.values(), fresh(), fresh())
    items.append(MemoryItem(99, (twin.view(0, KB), fresh()), (3,), frozenset({1})))
    plan = plan_memory(items, {special["an output"].id}, mode)
    for reason, found in special.items():
        assert found.id not in plan.replacements, reason
    assert plain[0].id in plan.replacements


@pytest.mark.row("T20")
def test_operands_of_other_ops_and_masked_outputs_are_left_alone():
    buffers = [fresh() for _ in range(7)]
    items = chain(allocated(), *buffers)
    items[2] = MemoryItem(2, items[2].buffers, (1,), frozenset({1}), is_kernel=False)
    items[5] = MemoryItem(5, items[5].buffers, (4,), frozenset({1}), masked_outputs=frozenset({1}))
    plan = plan_memory(items, mode=MemoryMode.ARENA)
    kept = {found.id for found in (buffers[1], buffers[2], buffers[5])}
    assert kept.isdisjoint(plan.replacements)
    assert {buffers[0].id, buffers[3].id} <= set(plan.replacements)


@pytest.mark.row("T20")
def test_masked_stores_are_found_in_the_body():
    def param(slot, dtype=dt.float32):
        return make(O.PARAM, dtype, (), ParamArg(slot, (4,)))

    plain = make(O.STORE, dt.void, (param(0), param(1)))
    target = make(O.RESHAPE, dt.float32, (param(3),), (2, 2))
    index = make(O.RESHAPE, dt.int64, (param(4, dt.int64),), (2, 2))
    masked = make(O.SCATTER, dt.float32, (target, param(2), index), "set")
    assert masked_slots(make(O.SINK, dt.void, (plain, masked))) == {3}
    assert masked_slots(make(O.SINK, dt.void, (plain,))) == frozenset()


@pytest.mark.row("T20")
@pytest.mark.parametrize("mode", [MemoryMode.ARENA, MemoryMode.REMAP])
def test_a_plan_never_places_a_buffer_whose_first_store_is_masked(mode):
    """What such a store leaves out would be leftovers of another buffer."""
    given, *steps = [memory() for _ in range(6)]
    place = B.new_buffer(4, dt.int64, "CPU")
    known = {
        given.sn: Buffer.new("CPU", 4, dt.float32).allocate(),
        place.sn: Buffer.new("CPU", 4, dt.int64).allocate(),
    }
    target, value = (make(O.PARAM, dt.float32, (), ParamArg(slot, (4,))) for slot in (0, 1))
    index = make(O.PARAM, dt.int64, (), ParamArg(2, (4,)))
    scatter = make(O.SCATTER, dt.float32, (target, value, index), "set")
    here = given
    for number, step in enumerate(steps):
        if number == 2:
            done = call(make(O.SINK, dt.void, (scatter,)), step, here, place)
        else:
            done = call(plus(1), step, here)
        here = after(step, done)
    schedule = create_schedule(sink(here), known)
    before = {item.buffer_ids[0]: item.buffers[0] for item in schedule.items}
    _share_memory(schedule, PrepareConfig(memory=mode))
    placed = [before[item.buffer_ids[0]] is not item.buffers[0] for item in schedule.items]
    assert any(placed) and not placed[2], "all but the masked one"
    assert not placed[4], "and the output"


@pytest.mark.row("T20")
def test_a_buffer_that_is_read_first_is_not_planned():
    never_written, buffers = fresh(), [fresh() for _ in range(3)]
    plan = plan_memory(chain(never_written, *buffers), mode=MemoryMode.ARENA)
    assert never_written.id not in plan.replacements


@pytest.mark.row("T21")
def test_a_reuse_dependency_is_added_once_and_only_by_index():
    items = chain(allocated(), *[fresh() for _ in range(4)])
    plan = plan_memory(items, mode=MemoryMode.ARENA)
    before = [tuple(item.dependencies) for item in items]
    table = [[] for _ in items]
    apply_reuse_dependencies(plan.dependencies, table)
    once = [list(row) for row in table]
    apply_reuse_dependencies(plan.dependencies, table)
    assert table == once and any(table)
    assert [tuple(item.dependencies) for item in items] == before, "id dependencies stay"
    assert all(len(set(row)) == len(row) for row in table)


# -- safety, shown on random graphs -------------------------------------------------------------


def random_items(chance, count):
    """Items that read some earlier buffers and write one; ids repeat nothing."""
    produced, items = [], []
    start = allocated()
    for number in range(count):
        reads = chance.sample(range(len(produced)), min(len(produced), chance.randrange(3)))
        target = fresh(chance.choice([256, 512, 4 * KB, 20 * KB, 100 * KB]))
        sources = [produced[index] for index in reads] or [start]
        items.append(
            MemoryItem(number, (*sources, target), tuple(reads), frozenset({len(sources)}))
        )
        produced.append(target)
    return items, {item.buffers[-1].id for item in chance.sample(items, 1 + count // 10)}


@pytest.mark.row("Q5")
@pytest.mark.parametrize("mode", [MemoryMode.ARENA, MemoryMode.REMAP])
def test_bytes_are_shared_only_across_levels_of_the_executor(mode):
    chance = random.Random(5)
    for _ in range(20):
        items, outputs = random_items(chance, 30)
        plan = plan_memory(items, outputs, mode)
        level_of = {i: n for n, row in enumerate(execution_levels(items)) for i in row}
        lives = {}
        for index, item in enumerate(items):
            for found in item.buffers:
                lives.setdefault(found.id, []).append(level_of[index])
        replaced = list(plan.replacements.items())
        for place, (old, new) in enumerate(replaced):
            for other_old, other_new in replaced[:place]:
                if new.overlaps(other_new):
                    mine, theirs = lives[old], lives[other_old]
                    assert max(mine) < min(theirs) or max(theirs) < min(mine)


@pytest.mark.row("Q5")
@pytest.mark.parametrize("mode", [MemoryMode.ARENA, MemoryMode.REMAP])
def test_any_order_that_respects_the_dependencies_is_safe(mode):
    """Play the schedule in the total order: every read must find what its producer wrote."""
    chance = random.Random(7)
    for _ in range(20):
        items, outputs = random_items(chance, 30)
        plan = plan_memory(items, outputs, mode)
        table = [[] for _ in items]
        apply_reuse_dependencies(plan.dependencies, table)
        for shuffled in range(3):
            order = execution_order(items, table)
            if shuffled:  # another valid order: highest ready index first
                order = highest_first(items, table)
            memory = {}
            for index in order:
                item = items[index]
                for found in item.buffers[:-1]:
                    if not found.is_allocated:
                        place = plan.replacements.get(found.id, found)
                        owner = memory.get(bytes_of(place)[0], {})
                        assert all(
                            owner.get(at) == found.id for at in range(*place.byte_range, 256)
                        )
                place = plan.replacements.get(item.buffers[-1].id, item.buffers[-1])
                owner = memory.setdefault(place.storage_id, {})
                owner.update(dict.fromkeys(range(*place.byte_range, 256), item.buffers[-1].id))


def highest_first(items, table):
    waiting = {i: set(table[i]) | set(items[i].dependencies) for i in range(len(items))}
    order = []
    while waiting:
        index = max(i for i, needs in waiting.items() if not needs)
        order.append(index)
        del waiting[index]
        for needs in waiting.values():
            needs.discard(index)
    return order


# -- the report ---------------------------------------------------------------------------------


def test_the_report_and_its_lower_bound():
    sizes = (4, 8, 2, 6)  # KB, each alive in two levels but the last
    buffers = [fresh(size * KB) for size in sizes]
    report = plan_memory(chain(allocated(), *buffers), mode=MemoryMode.ARENA).report
    assert report.logical_bytes == 20 * KB
    assert report.lower_bound == 12 * KB, "the first two together"
    assert report.planned_bytes == 12 * KB
    assert (report.saved_bytes, report.buffers) == (8 * KB, 4)


def test_packing_stays_close_to_the_lower_bound():
    chance = random.Random(1)
    worst = 1.0
    for _ in range(25):
        blocks = []
        for key in range(chance.randrange(2, 150)):
            first = chance.randrange(60)
            last = first + chance.choice([0, 1, 1, 2, 3, 12])
            blocks.append(Block(key, 256 * chance.randrange(1, 300), first, last))
        offsets, length = pack(blocks)
        for a in blocks:
            for b in blocks[: a.key]:
                if a.first <= b.last and b.first <= a.last:
                    assert (
                        offsets[a.key] + a.size <= offsets[b.key]
                        or offsets[b.key] + b.size <= offsets[a.key]
                    )
        worst = max(worst, length / lower_bound(blocks))
    assert worst <= 1.1
    assert pack([]) == ({}, 0)


def test_a_plan_in_an_arena_gives_the_same_result_and_its_report_is_what_is_allocated():
    """A chain of kernels over arena views: the counters of the allocator agree with the report."""

    def increment(source, target):
        floats(target, 4096)[:] = floats(source, 4096) + 1

    start, out = Buffer.new("CPU:3", 4096, dt.float32), Buffer.new("CPU:3", 4096, dt.float32)
    middle = [Buffer.new("CPU:3", 4096, dt.float32) for _ in range(6)]
    start.copyin(np.zeros(4096, np.float32))
    counters = get_device("CPU:3").allocator.counters
    buffers = [start, *middle, out]
    planned = plan_memory(chain(*buffers), {out.id}, MemoryMode.ARENA)
    builder = ExecutionPlanBuilder("CPU:3")
    for number, found in enumerate(buffers):
        builder.add_buffer(number, planned.replacements.get(found.id, found))
    table = [[] for _ in range(7)]
    apply_reuse_dependencies(planned.dependencies, table)
    for number in range(7):
        op = launch(
            number, compiled(Calls(increment), safe=True), [number, number + 1],
            after=[number - 1] if number else [], device="CPU:3",
        )  # fmt: skip
        builder.add_op_with_instance_dependencies(op, table[number])
    builder.set_output_buffer(7)
    builder.set_memory_report(planned.report)
    plan = builder.build()
    plan.execute()
    assert set(plan.output_buffer().copyout().tolist()) == {7.0}
    assert plan.memory.planned_bytes == 2 * 4096 * 4 == plan.memory.lower_bound
    assert plan.memory.fixed_bytes == 2 * 4096 * 4
    assert plan.memory.saved_bytes == 4 * 4096 * 4
    now = get_device("CPU:3").allocator.counters
    assert now.live - counters.live + start.nbytes == plan.memory.peak_bytes


def test_a_plan_without_a_planner_reports_its_buffers():
    builder = ExecutionPlanBuilder("CPU")
    whole = buffer(*range(8))
    builder.add_buffer(1, whole)
    builder.add_buffer(2, whole.view(0, 4))
    builder.add_buffer(3, empty(4))
    builder.set_output_buffer(2)
    plan = builder.build()
    assert plan.memory == MemoryReport(fixed_bytes=48)
    assert plan.memory.peak_bytes == 48
