"""From a graph to an order: one flat list with loops opened and closed.

A node sits in the innermost loop it depends on, so everything that does not change in a loop is
computed before it. Loops over the same RANGE are one loop. Inside a loop, items follow their
dependencies, ties broken by structure, so the order is the same in every process.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from dataclasses import dataclass, field

from svod.base.errors import GraphError
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.node import UOp, depth_first, make


@dataclass(slots=True, eq=False)
class Loop:
    """One loop: its RANGE (None for the whole kernel), what is inside, what it carries."""

    range: UOp | None
    depth: int = 0
    parent: Loop | None = None
    items: list[UOp | Loop] = field(default_factory=list)
    carried: list[UOp] = field(default_factory=list)  # REDUCEs whose accumulators it carries


Item = UOp | Loop
Waits = dict[Item, set[Item]]  # what an item needs of the loop it is in


def linearize(sink: UOp) -> Loop:
    """The kernel as a tree of loops with ordered items."""
    order = list(depth_first(sink))
    root, loops = _loop_tree(order)
    for node in order:
        if node.op == O.REDUCE:
            for r in node.src[2:]:
                loops[r].carried.append(node)
    home = _homes(order, root, loops)
    makers = _makers(order, root, loops, home)
    waits = _waits(order, root, loops, home, makers)
    _memory_order(order, home, waits)
    _fill(order, root, loops, home, waits)
    return root


def flat(loop: Loop) -> list[UOp]:
    """One list: a RANGE opens a loop, the reductions it carries follow, END(RANGE) closes it."""
    found: list[UOp] = []
    for item in loop.items:
        if not isinstance(item, Loop):
            found.append(item)
            continue
        assert item.range is not None
        end = make(O.END, dt.void, (item.range,))
        found += [item.range, *item.carried, *flat(item), end]
    return found


def _homes(order: list[UOp], root: Loop, loops: dict[UOp, Loop]) -> dict[UOp, Loop]:
    """The loop each value is computed in, and each store happens in."""
    home: dict[UOp, Loop] = {}
    for node in order:
        if node.op not in (O.END, O.SINK, O.RANGE):
            home[node] = _innermost(node.ranges, loops, root)
    for end in order:  # a store sits inside all its loops, needed or not
        if end.op == O.END and end.src[0].op == O.STORE:
            around = frozenset(end.src[1:]) | end.ranges
            home[end.src[0]] = _innermost(around, loops, root)
            if end.src[0].arg == "ordered":
                _stay_inside(end.src[0], home)
    return home


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


def _makers(
    order: list[UOp], root: Loop, loops: dict[UOp, Loop], home: dict[UOp, Loop]
) -> dict[UOp, Item]:
    """The item that others wait for to have a node: itself, or the loop that makes it.

    Stores get the home of what makes them on the way.
    """
    makers: dict[UOp, Item] = {}
    for node in order:
        if node.op == O.REDUCE:
            makers[node] = loops[node.src[2]]
        elif node.op == O.END and len(node.src) > 1:
            # What comes after it waits for its outermost loop.
            outermost = loops[min(node.src[1:], key=lambda r: loops[r].depth)]
            makers[node] = outermost
            home[node] = outermost.parent or root
        elif node.op == O.END:  # its lanes were its only loops
            makers[node] = node.src[0]
            home[node] = home[node.src[0]]
        elif node in home and node.op != O.ACC:
            makers[node] = node
    return makers


def _waits(
    order: list[UOp],
    root: Loop,
    loops: dict[UOp, Loop],
    home: dict[UOp, Loop],
    makers: dict[UOp, Item],
) -> Waits:
    waits: Waits = defaultdict(set)

    def depend(user: Item, where: Loop | None, source: UOp) -> None:
        made = makers.get(source)
        if made is None:
            return
        # Climb from the user to the item that sits in the loop where the source is made.
        place = home[source]
        while where is not None and where is not place:
            user, where = where, where.parent
        if where is None:
            raise GraphError(f"{source!r} is not visible where it is used")
        if user is not made:
            waits[user].add(made)

    for node in order:
        if node.op == O.REDUCE:
            inner, outer = loops[node.src[-1]], loops[node.src[2]]
            depend(inner, inner, node.src[1])  # the update is made inside
            start = node.src[0].src[0]
            if start.op != O.CONST:
                depend(outer, outer.parent or root, start)
        elif node in home and node.op not in (O.ACC, O.END):
            where = home[node]
            for s in node.src:
                depend(node, where, s)
    for r, loop in loops.items():
        depend(loop, loop.parent, r.src[0])
    return waits


def _memory_order(order: list[UOp], home: dict[UOp, Loop], waits: Waits) -> None:
    """A store comes after loads of the same memory that sit beside it."""
    loads: dict[UOp, list[UOp]] = {}
    for node in order:
        if node.op == O.LOAD:
            loads.setdefault(node.src[0].src[0], []).append(node)
    for node in order:
        if node.op == O.STORE:
            for load in loads.get(node.src[0].src[0], ()):
                if home[load] is home[node]:
                    waits[node].add(load)


def _fill(
    order: list[UOp], root: Loop, loops: dict[UOp, Loop], home: dict[UOp, Loop], waits: Waits
) -> None:
    """Sort each loop's items: its own nodes and the loops directly inside it."""
    members: dict[Loop, list[Item]] = {loop: [] for loop in (root, *loops.values())}
    key: dict[Item, int] = {}  # a loop follows the last of its own nodes
    for loop in loops.values():
        key[loop] = -1
        members[loop.parent or root].append(loop)
    for position, node in enumerate(order):
        if node in home and node.op not in (O.ACC, O.REDUCE, O.END):  # these a loop makes
            key[node] = position
            members[home[node]].append(node)
    for loop in loops.values():
        key[loop] = max([key[item] for item in members[loop]], default=-1)
    for loop, items in members.items():
        loop.items = _sorted(items, waits, key)


def _sorted(items: list[Item], waits: Waits, key: dict[Item, int]) -> list[Item]:
    users: dict[Item, list[Item]] = {}
    missing: dict[Item, int] = {}
    here = set(items)
    for item in items:
        needs = [w for w in waits.get(item, ()) if w in here]
        missing[item] = len(needs)
        for w in needs:
            users.setdefault(w, []).append(item)
    ready = [(key[item], n, item) for n, item in enumerate(items) if missing[item] == 0]
    heapq.heapify(ready)
    count = len(items)
    result: list[Item] = []
    while ready:
        _, _, item = heapq.heappop(ready)
        result.append(item)
        for user in users.get(item, ()):
            missing[user] -= 1
            if missing[user] == 0:
                count += 1
                heapq.heappush(ready, (key[user], count, user))
    if len(result) != len(items):
        raise GraphError("a kernel's items wait for each other")
    return result
