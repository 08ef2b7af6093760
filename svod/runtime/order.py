"""In which order prepared operations run, and which of them may run side by side.

In: operations with an id and the ids they depend on, and extra dependencies by index.
Out: a total order, levels, and groups without hazards inside a level.
The planner of memory and the executor both use `execution_levels`, so that memory is reused only
where the run really has finished with it. Conflicting kernels of a level keep schedule order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heappush
from typing import NamedTuple, Protocol

from svod.base.errors import ExecutionError


class Ordered(Protocol):
    """Whatever has an id and names the ids that come before it."""

    @property
    def id(self) -> int: ...
    @property
    def dependencies(self) -> Sequence[int]: ...


class DependencyGraph(NamedTuple):
    """Edges by index. Parallel edges are kept: each raises the degree and is released once."""

    ids: list[int]
    in_degree: list[int]
    successors: list[list[int]]


def dependency_graph(
    ops: Sequence[Ordered], instance_dependencies: Sequence[Iterable[int]] = ()
) -> DependencyGraph:
    """Resolve the dependencies of every op; an empty instance table means there are none.

    With unique ids a dependency may name any op. Schedules with unrolled loops repeat ids; then a
    dependency is the most recent op before this one with that id.
    """
    if instance_dependencies and len(instance_dependencies) != len(ops):
        raise ExecutionError(
            "prepared op instance dependency table length mismatch: "
            f"ops={len(ops)}, instance_deps={len(instance_dependencies)}"
        )
    ids = [op.id for op in ops]
    graph = DependencyGraph(ids, [0] * len(ids), [[] for _ in ids])
    if len(set(ids)) == len(ids):
        _link_unique(ops, graph)
    else:
        _link_most_recent(ops, graph)
    count = len(ids)
    successors, in_degree = graph.successors, graph.in_degree
    for index, wanted in enumerate(instance_dependencies):
        for before in wanted:
            if not 0 <= before < count:
                raise ExecutionError(
                    f"prepared op {ids[index]} depends on unknown op index {before}"
                )
            if before == index:
                raise ExecutionError(
                    f"prepared op {ids[index]} cannot depend on itself by op index {before}"
                )
            in_degree[index] += 1
            successors[before].append(index)
    return graph


def order_and_levels(
    ops: Sequence[Ordered], instance_dependencies: Sequence[Iterable[int]] = ()
) -> tuple[list[int], list[list[int]]]:
    """`execution_order` and `execution_levels`, both at once."""
    depths = _depths(ops, instance_dependencies)
    if depths is not None:
        return list(range(len(depths))), _waves(depths)
    return (
        execution_order(ops, instance_dependencies),
        execution_levels(ops, instance_dependencies),
    )


def execution_order(
    ops: Sequence[Ordered], instance_dependencies: Sequence[Iterable[int]] = ()
) -> list[int]:
    """Indices of the ops, dependencies first; among the ready ones the smallest index first."""
    graph = dependency_graph(ops, instance_dependencies)
    degree = graph.in_degree
    ready = [index for index, count in enumerate(degree) if count == 0]
    heapify(ready)
    order = []
    while ready:
        index = heappop(ready)
        order.append(index)
        for after in graph.successors[index]:
            degree[after] -= 1
            if degree[after] == 0:
                heappush(ready, after)
    if len(order) != len(ops):
        raise _cycle(graph)
    return order


def execution_levels(
    ops: Sequence[Ordered], instance_dependencies: Sequence[Iterable[int]] = ()
) -> list[list[int]]:
    """Waves of ops: each holds, in ascending order, what became ready because of the last one."""
    depths = _depths(ops, instance_dependencies)
    if depths is not None:
        return _waves(depths)
    graph = dependency_graph(ops, instance_dependencies)
    degree = graph.in_degree
    ready = [index for index, count in enumerate(degree) if count == 0]
    levels: list[list[int]] = []
    placed = 0
    while ready:
        levels.append(ready)
        placed += len(ready)
        released = []
        for index in ready:
            for after in graph.successors[index]:
                degree[after] -= 1
                if degree[after] == 0:
                    released.append(after)
        released.sort()
        ready = released
    if placed != len(ops):
        raise _cycle(graph)
    return levels


class Access(NamedTuple):
    """A range of bytes `[start, end)` of one memory that an op reads or writes."""

    memory: object  # what the range counts in: a storage, or the memory of the host
    start: int
    end: int
    writes: bool


def conflicts(first: Iterable[Access], second: Iterable[Access]) -> bool:
    """Whether two ops touch the same bytes and at least one of them writes there."""
    there = list(second)
    return any(
        (a.writes or b.writes) and a.memory == b.memory and a.start < b.end and b.start < a.end
        for a in first
        for b in there
    )


def hazard_groups(
    indices: Sequence[int], accesses: Callable[[int], Sequence[Access]]
) -> list[list[int]]:
    """Split ops of one level into groups without conflicts, which run one after another.

    An op goes into the first group after every earlier op it conflicts with: nobody in there
    conflicts with it, and conflicting ops run in schedule order.
    """
    if len(indices) < 2:
        return [list(indices)] if indices else []
    touched = {index: accesses(index) for index in indices}
    if not _any_overlap(touched):
        return [list(indices)]
    groups: list[list[int]] = []
    for index in indices:
        place = len(groups)
        while place and not any(
            conflicts(touched[other], touched[index]) for other in groups[place - 1]
        ):
            place -= 1
        if place == len(groups):
            groups.append([])
        groups[place].append(index)
    return groups


def _any_overlap(touched: dict[int, Sequence[Access]]) -> bool:
    """Whether some written range overlaps another range: one sweep, the usual answer is no."""
    ranges = [
        (access.start, access.end, access.writes, access.memory)
        for accesses in touched.values()
        for access in accesses
    ]
    ranges.sort(key=lambda found: found[0])
    ends: dict[object, list[int]] = {}  # memory -> the largest end of a read, of a write
    for start, end, writes, memory in ranges:
        reached = ends.setdefault(memory, [-1, -1])
        if start < reached[1] or (writes and start < reached[0]):
            return True
        reached[writes] = max(reached[writes], end)
    return False


def _depths(
    ops: Sequence[Ordered], instance_dependencies: Sequence[Iterable[int]]
) -> list[int] | None:
    """Per op how many others must run one after the other before it.

    The short way for ops that stand in an order that works, as schedules do; None for others, and
    for whatever is wrong with them.
    """
    waits = instance_dependencies or [()] * len(ops)
    if len(waits) != len(ops):
        return None
    latest: dict[int, int] = {}
    depths: list[int] = []
    for index, (op, wanted) in enumerate(zip(ops, waits, strict=True)):
        depth = 0
        for name in op.dependencies:
            before = latest.get(name)
            if before is None:
                return None
            if depths[before] >= depth:
                depth = depths[before] + 1
        for before in wanted:
            if not 0 <= before < index:
                return None
            if depths[before] >= depth:
                depth = depths[before] + 1
        depths.append(depth)
        latest[op.id] = index
    return depths


def _waves(depths: Sequence[int]) -> list[list[int]]:
    levels: list[list[int]] = [[] for _ in range(max(depths, default=-1) + 1)]
    for index, depth in enumerate(depths):
        levels[depth].append(index)
    return levels


def _link(graph: DependencyGraph, before: int, after: int) -> None:
    graph.in_degree[after] += 1
    graph.successors[before].append(after)


def _link_unique(ops: Sequence[Ordered], graph: DependencyGraph) -> None:
    place = {op_id: index for index, op_id in enumerate(graph.ids)}
    for index, op in enumerate(ops):
        for wanted in op.dependencies:
            before = place.get(wanted)
            if before is None:
                raise ExecutionError(f"prepared op {op.id} depends on unknown op id {wanted}")
            _link(graph, before, index)


def _link_most_recent(ops: Sequence[Ordered], graph: DependencyGraph) -> None:
    latest: dict[int, int] = {}
    successors, in_degree = graph.successors, graph.in_degree
    for index, op in enumerate(ops):
        for wanted in op.dependencies:
            before = latest.get(wanted)
            if before is None:
                raise ExecutionError(
                    f"prepared op {op.id} depends on unknown prior op id {wanted} "
                    "(duplicate-id schedule mode)"
                )
            in_degree[index] += 1
            successors[before].append(index)
        latest[op.id] = index  # only now: an op that names its own id means the one before


def _cycle(graph: DependencyGraph) -> ExecutionError:
    blocked = [op_id for op_id, count in zip(graph.ids, graph.in_degree, strict=True) if count]
    return ExecutionError(f"cycle detected in prepared op dependencies: blocked_ids={blocked}")
