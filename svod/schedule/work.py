"""What values of a tensor graph cost to compute, per element, as their users see it.

Leaves and effects are read, reductions and values that are used widely count as read too. A unit is
about one vector instruction's share of one element.
"""

from __future__ import annotations

from svod.ir import ops as O
from svod.ir.node import UOp, elements
from svod.ir.scan import outer_sources
from svod.schedule.costs_cpu import CPU
from svod.schedule.products import is_contraction

WEIGHT: dict[int, float] = dict.fromkeys(O.ELEMENTWISE, 1.0)
WEIGHT.update(dict.fromkeys(range(O.EXP, O.ERF + 1), CPU.exponential))
WEIGHT.update(dict.fromkeys(range(O.EXPM1, O.ATANH + 1), CPU.hyperbolic))
WEIGHT.update(dict.fromkeys((O.DIV, O.RECIP, O.SQRT), CPU.division))
WEIGHT.update({O.RSQRT: CPU.reciprocal_root, O.POW: CPU.power, O.ATAN2: CPU.arc_tangent})
WEIGHT.update(dict.fromkeys((O.IDIV, O.MOD, O.FMOD), CPU.integer_division))
COUNTED = frozenset({O.ADD, O.SUB, O.MUL, O.CAST})  # of loop counters: index arithmetic, free
LOAD_COST = CPU.load
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
        # A contraction and what follows it element by element, and which one that is.
        self.carries: dict[UOp, UOp] = {}
        carries = self.carries
        for node in order:
            if node.op == O.REDUCE_AXIS:
                if is_contraction(node):
                    carries[node] = node
                continue
            for s in node.src:
                if s in carries and users[s] == 1:
                    follows = node.op in O.ELEMENTWISE or node.op in (O.RESHAPE, O.PERMUTE)
                    if follows and elements(s.shape) == elements(node.shape):
                        carries[node] = carries[s]
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
