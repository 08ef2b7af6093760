"""Scans: folds of an axis up to each of its places, which a GPU does in one pass over a row.

As a graph a scan is a reduction of an axis against itself: ``sum of where(j <= i, x[j], 0)``. What
it reads looks as if it were computed n times for each element; the loops that
``svod.optimize.gpu_scan`` makes of it compute it once, so it stays inside the kernel.
"""

from __future__ import annotations

from collections.abc import Callable

from svod.ir import ops as O
from svod.ir.capabilities import Capabilities
from svod.ir.node import UOp
from svod.schedule.costs_cpu import CPU
from svod.schedule.products import unmoved

MOST_OPERATIONS = CPU.scanned_operations  # of what is scanned


def scanned_values(order: list[UOp], able: Callable[[UOp], Capabilities]) -> set[UOp]:
    """The values that scans compute on the way, as far as that is little work."""
    found: set[UOp] = set()
    for node in order:
        value = _scanned(node)
        if value is not None and able(node).scans_rows:
            found.update(_computed(value))
    return found


def _scanned(node: UOp) -> UOp | None:
    """What a scan folds; None for other nodes."""
    if node.op != O.REDUCE_AXIS or len(node.arg.axes) != 1 or node.src[0].op != O.WHERE:
        return None
    test, value, _ = node.src[0].src
    if test.op in O.MOVEMENT:
        test = unmoved(test)
    is_scan = test.op == O.LE and all(unmoved(s).op == O.IOTA for s in test.src)
    return value if is_scan else None


def _computed(value: UOp) -> set[UOp]:
    """The elementwise operations below a value; none where they are many or heavy."""
    found: set[UOp] = set()
    stack, seen = [value], {value}
    while stack:
        node = stack.pop()
        if node.op in O.HEAVY:
            return set()
        if node.op in O.ELEMENTWISE:
            found.add(node)
        elif node.op not in O.MOVEMENT:
            continue
        stack += [s for s in node.src if s not in seen]
        seen.update(node.src)
    return found if len(found) <= MOST_OPERATIONS else set()
