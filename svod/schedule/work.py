"""What values of a tensor graph cost to compute, per element, as their users see it.

Leaves and effects are read, reductions and values that are used widely count as read too. A unit is
about one vector instruction's share of one element.
"""

from __future__ import annotations

from svod.ir import ops as O
from svod.ir.node import UOp, elements
from svod.ir.scan import outer_sources

WEIGHT: dict[int, float] = dict.fromkeys(O.ELEMENTWISE, 1.0)
WEIGHT.update(dict.fromkeys(range(O.EXP, O.ERF + 1), 4.0))
WEIGHT.update(dict.fromkeys(range(O.EXPM1, O.ATANH + 1), 6.0))
WEIGHT.update(
    {O.DIV: 1.5, O.RECIP: 1.5, O.SQRT: 1.5, O.RSQRT: 2.0, O.POW: 15.0, O.ATAN2: 10.0}
)  # fmt: skip
WEIGHT.update({O.IDIV: 20.0, O.MOD: 20.0, O.FMOD: 20.0})
COUNTED = frozenset({O.ADD, O.SUB, O.MUL, O.CAST})  # of loop counters: index arithmetic, free
LOAD_COST = 1.0
MAX_WORK = 1e6
EFFECTS = frozenset({O.CONTIGUOUS, O.COPY, O.ASSIGN, O.SCATTER, O.CUSTOM_FUNCTION, O.SCAN})
EFFECTS |= {O.SORT, O.RADIX}
LEAVES = frozenset(
    {O.BUFFER, O.BUFFER_VIEW, O.PARAM, O.CONST, O.IOTA, O.DEFINE_VAR, O.BIND, O.DEVICE, O.MSELECT,
     O.MSTACK, O.UNIQUE, O.LUNIQUE, O.AFTER}
)  # fmt: skip


class Work:
    """Work per element of every node, as its users see it, and which nodes end contractions."""

    def __init__(self, order: list[UOp]) -> None:
        self.users = users = dict.fromkeys(order, 0)
        for node in order:
            sources = outer_sources(node)
            for s in sources if len(sources) < 2 else set(sources):
                users[s] += 1
        self.carries: set[UOp] = set()  # a contraction and what follows it element by element
        carries = self.carries
        for node in order:
            if node.op == O.REDUCE_AXIS:
                if is_contraction(node):
                    carries.add(node)
                continue
            for s in node.src:
                if s in carries and users[s] == 1:
                    follows = node.op in O.ELEMENTWISE or node.op in (O.RESHAPE, O.PERMUTE)
                    if follows and elements(s.shape) == elements(node.shape):
                        carries.add(node)
        self.of = _work_per_element(order, self)

    def as_source(self, node: UOp, work: dict[UOp, float]) -> float:
        """What is stored in any case is a value to read: reductions, and values used widely."""
        if node.op == O.REDUCE_AXIS or self.users[node] > 2:
            return min(LOAD_COST, work.get(node, 0.0))
        if node in self.carries and self.users[node] > 1:
            return LOAD_COST
        return work.get(node, 0.0)


def _work_per_element(order: list[UOp], facts: Work) -> dict[UOp, float]:
    work: dict[UOp, float] = {}
    for node in order:
        op = node.op
        if op == O.CONST or op == O.IOTA:
            work[node] = 0.0
        elif op in LEAVES or op in EFFECTS:
            work[node] = LOAD_COST
        elif op == O.EXPAND:
            # Computed once for all its copies: loops that do not change it are inside.
            few = 4 * elements(node.src[0].shape) <= elements(node.shape)
            source = facts.as_source(node.src[0], work)
            work[node] = min(LOAD_COST, source) if few else source
        elif op in O.MOVEMENT:
            work[node] = facts.as_source(node.src[0], work)
        elif op == O.REDUCE_AXIS:
            count = elements(tuple([node.src[0].shape[a] for a in node.arg.axes]))
            work[node] = min(MAX_WORK, count * (facts.as_source(node.src[0], work) + 1.0))
        else:
            total = 0.0
            for s in node.src:
                total += facts.as_source(s, work)
            if total or op not in COUNTED or node.dtype.kind not in "iu":
                total += WEIGHT.get(op, 1.0)
            work[node] = min(MAX_WORK, total)
    return work


def is_contraction(node: UOp) -> bool:
    """A sum of products over an axis that matters: matmul, convolution."""
    if node.arg.op != O.ADD:
        return False
    value = node.src[0]
    while value.op == O.CAST:
        value = value.src[0]
    if value.op != O.MUL or value.src[0] is value.src[1]:
        return False
    size = elements(tuple([value.shape[a] for a in node.arg.axes])) if value.shape else 1
    return size >= 4 and all(_reads_memory(s) for s in value.src)


def _reads_memory(node: UOp) -> bool:
    while node.op in O.MOVEMENT or node.op == O.CAST:
        node = node.src[0]
    return node.op != O.CONST
