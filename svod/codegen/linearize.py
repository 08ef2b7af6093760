"""From a graph to an order: one flat list with loops opened and closed.

A node sits in the innermost loop it depends on, so everything that does not change in a loop is
computed before it. Loops over the same RANGE are one loop. Inside a loop, items follow their
dependencies, ties broken by structure, so the order is the same in every process.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from svod.base.errors import GraphError
from svod.ir import ops as O
from svod.ir.node import UOp, depth_first


@dataclass(slots=True)
class Loop:
    """One loop: its RANGE (None for the whole kernel), what is inside, what it carries."""

    range: UOp | None
    depth: int = 0
    parent: Loop | None = None
    items: list[UOp | Loop] = field(default_factory=list)
    carried: list[UOp] = field(default_factory=list)  # REDUCEs whose accumulators it carries


def linearize(sink: UOp) -> Loop:
    """The kernel as a tree of loops with ordered items."""
    order = list(depth_first(sink))
    position = {node: i for i, node in enumerate(order)}
    root, loops = _loop_tree(order)
    home: dict[UOp, Loop] = {}
    for node in order:
        if node.op in (O.END, O.SINK, O.RANGE):
            continue
        home[node] = _innermost(node.ranges, loops, root)
    for node in order:
        if node.op == O.STORE:
            continue
        if node.op == O.REDUCE:
            for r in node.src[2:]:
                loops[r].carried.append(node)
    for end in order:  # a store sits inside all its loops, needed or not
        if end.op == O.END and end.src[0].op == O.STORE:
            around = frozenset(end.src[1:]) | end.ranges
            home[end.src[0]] = _innermost(around, loops, root)
            if end.src[0].arg == "ordered":
                _stay_inside(end.src[0], home)
    _fill(root, order, position, home, loops)
    return root


def _stay_inside(store: UOp, home: dict[UOp, Loop]) -> None:
    """What reads the memory of a store in order reads it anew in every step."""
    memory = store.src[0].src[0]
    changing: set[UOp] = set()
    for node in store.src[1].toposort():
        reads = node.op == O.LOAD and node.src[0].src[0] is memory
        if reads or any(s in changing for s in node.src):
            changing.add(node)
            home[node] = home[store]


def _loop_tree(order: list[UOp]) -> tuple[Loop, dict[UOp, Loop]]:
    """Each range's place: inside the loops that everything closed over it needs."""
    after: dict[UOp, set[UOp]] = {}  # range -> ranges that must be around it
    ranges: list[UOp] = []

    def around(r: UOp, outer: set[UOp]) -> None:
        if r not in after:
            after[r] = set()
            ranges.append(r)
        after[r] |= outer

    for node in order:
        if node.op == O.END:
            closed = [r for r in node.src[1:] if r.op == O.RANGE]
            outer: set[UOp] = set(node.ranges)
        elif node.op == O.REDUCE:
            closed = [r for r in node.src if r.op == O.RANGE]
            outer = set(node.ranges)
        else:
            continue
        for r in closed:
            around(r, outer | set(r.src[0].ranges))
            outer = outer | {r}
    root = Loop(None)
    loops: dict[UOp, Loop] = {}
    # Close over what the outer ones need, then place by number of ranges around.
    changed = True
    while changed:
        changed = False
        for r in ranges:
            wider = set(after[r])
            for o in after[r]:
                wider |= after.get(o, set())
            if wider != after[r]:
                after[r] = wider
                changed = True
    for r in ranges:
        if r in after[r]:
            raise GraphError(f"loops around each other: {r!r}")
    for r in sorted(ranges, key=lambda r: len(after[r])):
        parent = root
        if after[r]:
            parent = loops[max(after[r], key=lambda o: loops[o].depth)]
        chain = set()
        walk: Loop | None = parent
        while walk is not None and walk.range is not None:
            chain.add(walk.range)
            walk = walk.parent
        if not after[r] <= chain:
            raise GraphError(f"loops of {r!r} do not nest")
        loops[r] = Loop(r, parent.depth + 1, parent)
    return root, loops


def _innermost(ranges: frozenset[UOp], loops: dict[UOp, Loop], root: Loop) -> Loop:
    best = root
    for r in ranges:
        if r.op == O.RANGE:
            found = loops[r]
            if found.depth > best.depth:
                best = found
    return best


def _fill(
    root: Loop,
    order: list[UOp],
    position: dict[UOp, int],
    home: dict[UOp, Loop],
    loops: dict[UOp, Loop],
) -> None:
    """Sort each loop's items: its own nodes and the loops directly inside it."""
    members: dict[int, list[UOp | Loop]] = {id(root): []}
    for loop in loops.values():
        members.setdefault(id(loop), [])
    key: dict[int, int] = {}
    waits: dict[int, set[int]] = {}  # item -> items of the same loop it needs
    objects: dict[int, UOp | Loop] = {}

    def register(item: UOp | Loop, where: Loop, number: int) -> None:
        identity = id(item)
        if identity not in objects:
            objects[identity] = item
            waits[identity] = set()
            members[id(where)].append(item)
        key[identity] = max(key.get(identity, -1), number)

    for loop in loops.values():
        assert loop.parent is not None
        register(loop, loop.parent, -1)
    for node in order:
        where = home.get(node)
        if where is None:
            continue
        if node.op in (O.ACC, O.REDUCE, O.END):
            continue  # made by the loop itself
        register(node, where, position[node])
    producer: dict[UOp, Loop | UOp] = {}
    for node in order:
        if node.op == O.REDUCE:
            producer[node] = loops[node.src[2]]
        elif node.op == O.END and len(node.src) > 1:
            # What comes after it waits for its outermost loop.
            outermost = loops[min(node.src[1:], key=lambda r: loops[r].depth)]
            producer[node] = outermost
            home[node] = outermost.parent or root
        elif node.op == O.END:  # its lanes were its only loops
            producer[node] = node.src[0]
            home[node] = home[node.src[0]]
        elif node in home and node.op != O.ACC:
            producer[node] = node

    def depend(user_home: Loop, user: UOp | Loop, source: UOp) -> None:
        if source.op == O.ACC or source not in producer:
            return
        made = producer[source]
        place = home[source]
        # Climb from the user to the item that sits in the loop where the source is made.
        item: UOp | Loop = user
        where: Loop | None = user_home
        while where is not None and where is not place:
            item = where
            where = where.parent
        if where is None:
            raise GraphError(f"{source!r} is not visible where it is used")
        if item is not made:
            waits[id(item)].add(id(made))

    for node in order:
        where = home.get(node)
        if where is None:
            continue
        if node.op == O.REDUCE:
            inner = loops[node.src[-1]]
            depend(inner, inner, node.src[1])  # the update is made inside
            if node.src[0].src[0].op != O.CONST:
                depend(loops[node.src[2]].parent or root, loops[node.src[2]], node.src[0].src[0])
            continue
        if node.op in (O.ACC, O.END):
            continue
        for s in node.src:
            depend(where, node, s)
    for loop in loops.values():
        assert loop.range is not None and loop.parent is not None
        size = loop.range.src[0]
        depend(loop.parent, loop, size)
        for identity in members[id(loop)]:
            key[id(loop)] = max(key[id(loop)], key[id(identity)])
    _memory_order(order, home, waits, position)
    for loop in [root, *loops.values()]:
        loop.items = _sorted(members[id(loop)], waits, key)


def _memory_order(
    order: list[UOp], home: dict[UOp, Loop], waits: dict[int, set[int]], position: dict[UOp, int]
) -> None:
    """A store comes after loads of the same memory that sit beside it."""
    loads: dict[UOp, list[UOp]] = {}
    for node in order:
        if node.op == O.LOAD:
            loads.setdefault(node.src[0].src[0], []).append(node)
    for node in order:
        if node.op == O.STORE:
            for load in loads.get(node.src[0].src[0], ()):
                if home[load] is home[node]:
                    waits[id(node)].add(id(load))


def _sorted(
    items: list[UOp | Loop], waits: dict[int, set[int]], key: dict[int, int]
) -> list[UOp | Loop]:
    here = {id(i): i for i in items}
    users: dict[int, list[int]] = {}
    missing: dict[int, int] = {}
    for identity in here:
        needs = [w for w in waits[identity] if w in here]
        missing[identity] = len(needs)
        for w in needs:
            users.setdefault(w, []).append(identity)
    ready = [(key[i], n, i) for n, i in enumerate(here) if missing[i] == 0]
    heapq.heapify(ready)
    count = len(here)
    result: list[UOp | Loop] = []
    while ready:
        _, _, identity = heapq.heappop(ready)
        result.append(here[identity])
        for user in users.get(identity, ()):
            missing[user] -= 1
            if missing[user] == 0:
                count += 1
                heapq.heappush(ready, (key[user], count, user))
    if len(result) != len(items):
        raise GraphError("a kernel's items wait for each other")
    return result
