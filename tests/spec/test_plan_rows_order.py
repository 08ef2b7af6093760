"""S23-S36, T6-T9: dependencies, order and levels."""

from __future__ import annotations

import random

import pytest

from svod.base.errors import ExecutionError
from svod.runtime import PreparedCopy
from svod.runtime.order import dependency_graph, execution_levels, execution_order
from tests.spec.plan_parts import Calls, buffer, compiled, empty, launch, plan_of


def ops(*wanted: tuple[int, list[int]]) -> list[PreparedCopy]:
    """Ops with these ids and dependencies."""
    return [PreparedCopy(op_id, [], list(after)) for op_id, after in wanted]


@pytest.mark.row("S23")
@pytest.mark.parametrize("compute", [execution_order, execution_levels, dependency_graph])
def test_instance_table_of_another_length(compute):
    with pytest.raises(ExecutionError, match=r"length mismatch: ops=2, instance_deps=1"):
        compute(ops((1, []), (2, [])), [[]])


@pytest.mark.row("S24", "T6")
def test_a_dependency_may_come_later_in_insertion_order():
    assert execution_order(ops((1, [2]), (2, []))) == [1, 0]
    seen = []
    source, middle, out = buffer(1, 2, 3, 4), empty(), empty()

    def note(*args):
        seen.append(middle.copyout().tolist())

    plan = plan_of(
        [source, middle, out],
        [launch(1, compiled(Calls(note)), [1, 2], after=[2]), PreparedCopy(2, [1, 0])],
    )
    plan.execute()
    assert seen == [[1, 2, 3, 4]], "the kernel runs after the copy it names"


@pytest.mark.row("S25")
def test_unknown_dependency():
    with pytest.raises(ExecutionError, match=r"prepared op 2 depends on unknown op id 9"):
        execution_order(ops((1, []), (2, [9])))


@pytest.mark.row("S26", "T8")
def test_duplicate_ids_mean_the_most_recent_one_before():
    assert execution_levels(ops((42, []), (42, [42]))) == [[0], [1]]
    repeated = ops((42, []), (9, [42]), (42, [9]))
    assert execution_order(repeated) == [0, 1, 2]
    assert execution_levels(repeated) == [[0], [1], [2]]
    assert execution_levels(ops((42, []), (42, [42]), (42, [42]))) == [[0], [1], [2]]
    # The second op 9 depends on the second op 42, not on the first.
    assert execution_levels(ops((42, []), (9, [42]), (42, []), (9, [42]))) == [[0, 2], [1, 3]]


@pytest.mark.row("T8")
def test_repeated_ids_execute_in_order():
    seen = []
    kernels = [
        launch(42, compiled(lambda *a: seen.append(0)), [0]),
        launch(42, compiled(lambda *a: seen.append(1)), [0], after=[42]),
    ]
    plan_of([empty()], kernels).execute()
    assert seen == [0, 1]


@pytest.mark.row("S27")
def test_duplicate_mode_needs_an_op_before():
    with pytest.raises(
        ExecutionError,
        match=r"prepared op 1 depends on unknown prior op id 5 \(duplicate-id schedule mode\)",
    ):
        execution_order(ops((1, [5]), (5, []), (5, [])))


@pytest.mark.row("S28", "T9")
def test_instance_dependencies_name_one_exact_duplicate():
    repeated = ops((7, []), (7, []), (8, []), (8, []))
    assert execution_levels(repeated, [[], [], [0], [0]]) == [[0, 1], [2, 3]]
    assert execution_levels(repeated, [[], [], [0], [2]]) == [[0, 1], [2], [3]]


@pytest.mark.row("S29", "T9")
def test_unknown_op_index():
    for wrong in (2, -1):
        with pytest.raises(ExecutionError, match=rf"op 2 depends on unknown op index {wrong}"):
            execution_order(ops((1, []), (2, [])), [[], [wrong]])


@pytest.mark.row("S30")
def test_an_op_cannot_wait_for_itself_by_index():
    with pytest.raises(ExecutionError, match=r"op 2 cannot depend on itself by op index 1"):
        execution_order(ops((1, []), (2, [])), [[], [1]])


@pytest.mark.row("S31")
def test_parallel_edges_are_counted_and_released_as_often():
    graph = dependency_graph(ops((1, []), (2, [1, 1])), [[], [0]])
    assert graph.in_degree == [0, 3]
    assert graph.successors == [[1, 1, 1], []]
    assert execution_levels(ops((1, []), (2, [1, 1])), [[], [0]]) == [[0], [1]]


@pytest.mark.row("S32")
def test_an_empty_instance_table_means_none():
    assert execution_order(ops((1, []), (2, [1])), []) == [0, 1]
    assert execution_levels(ops((1, []), (2, [1])), ()) == [[0], [1]]


@pytest.mark.row("S33")
def test_the_smallest_ready_index_comes_first():
    # 3 frees 0, which must then come before 4 although 4 was ready earlier.
    found = execution_order(ops((0, [3]), (1, [0]), (2, [4]), (3, []), (4, [])))
    assert found == [3, 0, 1, 4, 2]


@pytest.mark.row("S34")
def test_a_cycle_lists_the_ids_that_are_blocked():
    looped = ops((1, []), (20, [30]), (30, [20]), (40, [30]))
    for compute in (execution_order, execution_levels):
        with pytest.raises(ExecutionError, match=r"cycle detected.*blocked_ids=\[20, 30, 40\]"):
            compute(looped)


@pytest.mark.row("S35")
def test_levels_are_waves_in_ascending_order():
    wanted = ops((0, [4]), (1, []), (2, [1]), (3, [1]), (4, []), (5, [2, 0]))
    assert execution_levels(wanted) == [[1, 4], [0, 2, 3], [5]]


@pytest.mark.row("S35", "S33")
def test_order_and_levels_respect_random_dependencies():
    chance = random.Random(0)
    for _ in range(50):
        count = chance.randrange(1, 25)
        wanted = ops(
            *[(i, chance.sample(range(i), chance.randrange(min(i, 3) + 1))) for i in range(count)]
        )
        chance.shuffle(wanted)
        order, levels = execution_order(wanted), execution_levels(wanted)
        place = {wanted[index].id: at for at, index in enumerate(order)}
        level = {wanted[index].id: at for at, row in enumerate(levels) for index in row}
        assert sorted(order) == list(range(count)) == sorted(i for row in levels for i in row)
        for op in wanted:
            assert all(place[before] < place[op.id] for before in op.dependencies)
            latest = max([level[before] for before in op.dependencies], default=-1)
            assert level[op.id] == latest + 1


@pytest.mark.row("S36")
def test_order_and_levels_are_computed_once_in_build(monkeypatch):
    plan = plan_of([empty()], [launch(1, compiled(), [0]), launch(2, compiled(), [0], after=[1])])
    for name in ("execution_order", "execution_levels", "dependency_graph"):
        monkeypatch.setattr(f"svod.runtime.order.{name}", lambda *a: pytest.fail("computed again"))
    plan.execute()
    plan.execute()
    assert (plan.order, plan.levels) == ((0, 1), ((0,), (1,)))
