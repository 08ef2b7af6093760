"""What a kernel computes only behind a branch.

In: a tree of loops. Out: the nodes that nothing needs but the first values of WHEREs marked as
rare. The renderer writes them in a block of their own, which runs if some lane takes the value.
Whoever reads the tree without knowing of this sees selects and gets the same bits.
"""

from __future__ import annotations

from svod.codegen.formula import RARE
from svod.codegen.linearize import Loop
from svod.ir import ops as O
from svod.ir.node import UOp


def behind_branches(root: Loop) -> frozenset[UOp]:
    """Nodes whose every use ends in a rare value."""
    order: list[UOp] = []
    needed: set[UOp] = set()
    _collect(root, order, needed)
    if not any(_is_rare(node) for node in order):
        return frozenset()
    asked: set[UOp] = set()
    found: set[UOp] = set()
    for node in reversed(order):  # users come after what they use
        if node in asked and node not in needed and node.op in O.ELEMENTWISE:
            found.add(node)
            asked.update(node.src)
        elif _is_rare(node):
            needed.update((node.src[0], node.src[2]))
            asked.add(node.src[1])
        else:
            needed.update(node.src)
    return frozenset(found)


def _is_rare(node: UOp) -> bool:
    return node.op == O.WHERE and node.arg == RARE


def _collect(loop: Loop, order: list[UOp], needed: set[UOp]) -> None:
    if loop.range is not None:
        needed.update(loop.range.src)
    for reduce in loop.carried:
        needed.update(reduce.src)
        needed.update(reduce.src[0].src)
    for item in loop.items:
        if isinstance(item, Loop):
            _collect(item, order, needed)
        else:
            order.append(item)
