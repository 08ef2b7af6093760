"""What a kernel call waits for, read off the graph of calls.

In: a graph of CALLs whose arguments are buffers or AFTERs. Out: for each call the calls before it.
An edge comes from a call's own arguments, never from a guess about who wrote a buffer last; AFTER
alone orders calls that share no buffer. END(CALL, RANGE) stands for its call.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from svod.base.errors import GraphError
from svod.ir import ops as O
from svod.ir.node import UOp

SOURCES = frozenset({O.AFTER, O.BUFFER, O.PARAM, O.MSELECT, O.MSTACK, O.BIND})
_WAITED_FOR = "CALL, END(CALL), STORE or AFTER"


class DependencyCycles(GraphError):
    """Calls that wait for each other."""


def canonical_source(node: UOp) -> UOp:
    """What an argument really is: the first source, and its first, up to a buffer or an order."""
    while node.op not in SOURCES and node.src:
        node = node.src[0]
    return node


def base_buffer(node: UOp) -> UOp:
    """The memory behind an argument, a shard or a result."""
    node = canonical_source(node)
    while node.op == O.AFTER or node.op == O.MSELECT or node.op == O.MSTACK:
        if node.op == O.MSELECT:
            node = _selected(node)
        else:
            node = node.src[0]
        node = canonical_source(node)
    return node


def primary_buffer(source: UOp) -> UOp | None:
    """The buffer an argument stands for; of several shards the selected or the first one.

    None for a value that is no memory.
    """
    found = base_buffer(source)
    return found if found.op in (O.BUFFER, O.PARAM) else None


def split_after(after: UOp) -> tuple[list[UOp], list[UOp]]:
    """The calls an AFTER waits for, as CALL or END(CALL), and the AFTERs inside it."""
    if after.op != O.AFTER:
        raise GraphError(f"expected AFTER when splitting dependencies, got {O.NAMES[after.op]}")
    calls: list[UOp] = []
    afters: list[UOp] = []
    for dependency in after.src[1:]:
        if dependency.op == O.AFTER:
            afters.append(dependency)
        elif dependency.op != O.STORE:
            call_of(dependency)
            calls.append(dependency)
    return calls, afters


def call_of(dependency: UOp) -> UOp:
    """The CALL of a CALL or an END(CALL)."""
    if dependency.op == O.CALL:
        return dependency
    if dependency.op == O.END:
        if dependency.src[0].op == O.CALL:
            return dependency.src[0]
        found = O.NAMES[dependency.src[0].op]
        raise GraphError(f"AFTER dependency END must wrap CALL, got {found}")
    raise GraphError(f"AFTER dependency must be {_WAITED_FOR}, got {O.NAMES[dependency.op]}")


def calls_waited_for(dependency: UOp) -> list[UOp]:
    """The calls behind one dependency of an AFTER; a STORE belongs to the call that has it."""
    if dependency.op == O.STORE:
        return []
    if dependency.op == O.AFTER:
        return [call for d in dependency.src[1:] for call in calls_waited_for(d)]
    return [call_of(dependency)]


def source_calls(source: UOp) -> list[UOp]:
    """The calls an argument waits for: through AFTERs, and all shards of a stack."""
    source = canonical_source(source)
    if source.op == O.AFTER:
        calls, afters = split_after(source)
        if source.src[0].op == O.AFTER:  # the value itself waits
            afters.append(source.src[0])
        found = [call_of(c) for c in calls]
        return found + [c for after in afters for c in source_calls(after)]
    if source.op == O.MSTACK or source.op == O.MSELECT:
        return [c for shard in source.src for c in source_calls(shard)]
    if source.op in SOURCES or source.op == O.DEFINE_LOCAL:
        return []
    wanted = "AFTER/BUFFER/PARAM/MSELECT/MSTACK/BIND"
    raise GraphError(f"input to callable must resolve to {wanted}, got {O.NAMES[source.op]}")


def walk_calls(root: UOp) -> list[UOp]:
    """Every node sources first, left to right, without entering the bodies of calls."""
    order: list[UOp] = []
    seen: set[UOp] = set()
    stack = [(root, False)]
    while stack:
        node, ready = stack.pop()
        if ready:
            order.append(node)
            continue
        if node in seen:
            continue
        seen.add(node)
        stack.append((node, True))
        below = node.src[1:] if node.op == O.CALL else node.src
        stack.extend([(s, False) for s in reversed(below) if s not in seen])
    return order


def call_dependencies(calls: Sequence[UOp], order: Sequence[UOp]) -> list[set[int]]:
    """For each call the places in ``calls`` of those before it; ``order`` is the walked graph."""
    place = {call: number for number, call in enumerate(calls)}
    before: list[set[int]] = [set() for _ in calls]

    def wait(consumer: int, producers: Sequence[UOp]) -> None:
        for producer in producers:
            found = place.get(producer)
            if found is None:
                raise GraphError(f"callable dependency names unknown callable id {producer.sn}")
            if found != consumer:
                before[consumer].add(found)

    for number, call in enumerate(calls):
        for source in call.src[1:]:
            wait(number, source_calls(source))
    for node in order:
        if node.op != O.AFTER:
            continue
        finished, afters = split_after(node)
        if not afters:
            continue
        earlier = [c for after in afters for c in source_calls(after)]
        for dependency in finished:
            call = call_of(dependency)
            if call not in place:
                raise GraphError(f"AFTER dependency names unknown callable id {call.sn}")
            wait(place[call], earlier)
    return before


def sort_calls(calls: Sequence[UOp], before: Sequence[set[int]]) -> list[int]:
    """Places of the calls, producers first; ready ones in the order they became ready."""
    missing = [len(b) for b in before]
    users: list[list[int]] = [[] for _ in calls]
    for number, needed in enumerate(before):
        for producer in sorted(needed):
            users[producer].append(number)
    queue = deque([number for number, count in enumerate(missing) if count == 0])
    order = []
    while queue:
        number = queue.popleft()
        order.append(number)
        for user in users[number]:
            missing[user] -= 1
            if missing[user] == 0:
                queue.append(user)
    if len(order) < len(calls):
        blocked = [calls[n].sn for n, count in enumerate(missing) if count]
        raise DependencyCycles(f"kernel calls wait for each other: ids {blocked}")
    return order


def _selected(node: UOp) -> UOp:
    stack, shard = node.src[0], int(node.arg)
    return stack.src[shard] if stack.op == O.MSTACK and 0 <= shard < len(stack.src) else stack
