"""Which values of a tensor graph are stored: the fusion decision.

In: a SINK whose sources are effects (CONTIGUOUS, COPY, ASSIGN, ...). Out: the set of nodes that
get a buffer; everything else is computed inside the kernels that use it.

The rule. Walk from users to producers. Every use of a node is known as (kernel, indices, loops
around it). Computing the node inside its users costs ``evaluations * work``; storing it costs
``elements * (work + STORE) + evaluations * LOAD + KERNEL``. The cheaper one wins. Loops the
indices do not need do not count when they are inside the others, so a row maximum used along its
row costs one evaluation per row. Reductions that a kernel cannot hold well are stored.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass, field
from math import prod
from typing import Any

from svod.base.errors import GraphError
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, RangeArg
from svod.ir.node import UOp, elements, make
from svod.ir.scan import outer_order, outer_sources
from svod.ir.symbolic import ZERO
from svod.schedule.attention import Whole
from svod.schedule.views import (
    MAX_STACKED,
    Indices,
    Shape,
    is_stack,
    node_of,
    source_indices,
)

# Work units: about one vector instruction's share of one element.
WEIGHT: dict[int, float] = dict.fromkeys(O.ELEMENTWISE, 1.0)
WEIGHT.update(dict.fromkeys(range(O.EXP, O.ERF + 1), 4.0))
WEIGHT.update(dict.fromkeys(range(O.EXPM1, O.ATANH + 1), 6.0))
WEIGHT.update(
    {O.DIV: 1.5, O.RECIP: 1.5, O.SQRT: 1.5, O.RSQRT: 2.0, O.POW: 15.0, O.ATAN2: 10.0}
)  # fmt: skip
WEIGHT.update({O.IDIV: 20.0, O.MOD: 20.0, O.FMOD: 20.0})
COUNTED = frozenset({O.ADD, O.SUB, O.MUL, O.CAST})  # of loop counters: index arithmetic, free
LOAD_COST = 1.0
STORE_COST = 6.0  # writing it and reading it again from memory that is not the closest cache
KERNEL_COST = 2000.0  # one more launch and one more kernel to compile
MAX_USES = 6  # more places than this and the value is stored
MAX_WORK = 1e6
INNER_WORK = 1 << 16  # a reduction inside another one may repeat at most this much in one kernel
EFFECTS = frozenset({O.CONTIGUOUS, O.COPY, O.ASSIGN, O.SCATTER, O.CUSTOM_FUNCTION, O.SCAN})
LEAVES = frozenset(
    {O.BUFFER, O.BUFFER_VIEW, O.PARAM, O.CONST, O.IOTA, O.DEFINE_VAR, O.BIND, O.DEVICE, O.MSELECT,
     O.MSTACK, O.UNIQUE, O.LUNIQUE, O.AFTER}
)  # fmt: skip

Use = tuple[UOp, Indices, tuple[UOp, ...]]  # kernel root, indices, loops around, outermost first


BAND_COLUMN = 100  # the loop over a row of scores, which all passes over it share


@dataclass(slots=True)
class Held:
    """Values that stay inside the kernel that needs them, in bands of rows."""

    values: set[UOp] = field(default_factory=set)
    passes: set[UOp] = field(default_factory=set)  # the reductions along such rows


def axis_range(number: int, size: UOp | int, kind: AxisKind = AxisKind.LOOP) -> UOp:
    """The loop counter of one axis; an axis of one element needs none."""
    if size == 1:
        return ZERO
    return make(O.RANGE, dt.index, (node_of(size),), RangeArg(number, kind))


def output_indices(shape: Shape) -> Indices:
    return tuple([axis_range(axis, size) for axis, size in enumerate(shape)])


def decide_storage(
    sink: UOp,
    order: list[UOp] | None = None,
    whole: Whole | None = None,
    held: Held | None = None,
    inside: Set[UOp] = frozenset(),
) -> set[UOp]:
    """The nodes to store: a matter of structure alone, so the order of visits is one too.

    ``whole`` says which formulas are one kernel each, whatever they cost; what is ``held`` or
    ``inside`` stays in the kernel that needs it.
    """
    held = held or Held()
    order = outer_order((sink,)) if order is None else order
    whole = whole or Whole()
    facts = _Work(order)
    places = _Places()
    uses: dict[UOp, list[Use]] = {}
    stored: set[UOp] = set()
    reducing, stacks = _reducing(order), _Stacks()
    contraction_in: set[UOp] = set()
    reduce_numbers: dict[UOp, int] = {}
    narrower: set[UOp] = set()

    def use(node: UOp, root: UOp, indices: Indices, nest: tuple[UOp, ...]) -> None:
        if node.op in LEAVES:
            return
        found = uses.get(node)
        entry = (root, indices, nest)
        if found is None:
            uses[node] = [entry]
        elif entry not in found:
            found.append(entry)

    def start(node: UOp) -> Use:
        indices = places.outputs(node.shape)
        stored.add(node)
        return node, indices, tuple([i for i in indices if i.op == O.RANGE])

    for node in reversed(order):
        op = node.op
        if op in LEAVES or op == O.SINK:
            continue
        if op in EFFECTS:
            _start_effect(node, start, use)
            continue
        here = uses.get(node)
        if node in whole.stored or (node in narrower and node not in held.values):
            here = [start(node)]
        if here is None or node in whole.roots:
            continue
        if op in O.MOVEMENT or op == O.CAT or op == O.GATHER:
            if len(here) > MAX_USES and op != O.CAT and _overlap(node, here, places):
                # Many windows into one value: store what they look into.
                here = [start(node)] if _worth_storing(node, facts) else here
            for root, indices, nest in here:
                _use_sources(node, root, indices, nest, use, places, reducing, stacks)
            continue
        if node in held.values:
            merged = _placed_in_band(here)
        else:
            merged = _placed(here, places)
            kept = node in stored or node in inside
            if not kept and _must_store(node, merged, facts, contraction_in):
                source = _narrower(node)
                if source is not None:
                    narrower.add(source)  # fewer bytes, and as good
                else:
                    merged = [start(node)]
        if op == O.REDUCE_AXIS:
            for root, indices, nest in merged:
                if node not in held.values and is_contraction(node):
                    contraction_in.add(root)
                inner = list(indices)
                loops = list(nest)
                for axis in node.arg.axes:
                    size = node.src[0].shape[axis]
                    if node in held.passes:
                        number = BAND_COLUMN
                    else:
                        number = reduce_numbers[root] = reduce_numbers.get(root, 100) + 1
                    inner[axis] = axis_range(number, size, AxisKind.REDUCE)
                    if size != 1:
                        loops.append(inner[axis])
                use(node.src[0], root, tuple(inner), tuple(loops))
        else:
            for root, indices, nest in merged:
                for s in node.src:
                    use(s, root, indices if s.shape else (), nest)
    return stored


def _narrower(node: UOp) -> UOp | None:
    """The narrower value that a converted one is exactly, where it is computed too."""
    if node.op != O.CAST:
        return None
    source = node.src[0]
    is_wider = source.dtype.kind == node.dtype.kind == "f" and source.dtype.bits < node.dtype.bits
    while source.op in O.MOVEMENT:
        source = source.src[0]
    return source if is_wider and source.op in O.ALU else None


def _start_effect(node: UOp, start, use) -> None:  # type: ignore[no-untyped-def]
    op = node.op
    if op == O.CONTIGUOUS:
        root, indices, nest = start(node)
        use(node.src[0], root, indices, nest)
    elif op == O.ASSIGN:
        root, indices, nest = start(node)
        use(node.src[1], root, indices, nest)
        target = node.src[0]  # an earlier assignment behind views is an effect of its own
        while target.op in O.MOVEMENT:
            target = target.src[0]
        if target.op not in LEAVES and target.op not in EFFECTS:
            raise GraphError(f"ASSIGN needs a buffer as its target, not {target!r}")
    elif op == O.SCATTER:
        start(node)
        loops = output_indices(node.src[1].shape)
        nest = tuple([i for i in loops if i.op == O.RANGE])
        use(node.src[1], node, loops, nest)
        lead = len(node.src[2].shape)
        for s in node.src[2:]:
            use(s, node, loops[:lead], nest[:lead])
        use(node.src[0], node, output_indices(node.shape), ())
    elif op == O.SCAN:  # where its carries start is computed into their memory
        start(node)
        for s in node.src[2 : 2 + node.arg.carries]:
            loops = output_indices(s.shape)
            use(s, node, loops, tuple([i for i in loops if i.op == O.RANGE]))
    else:  # COPY and CUSTOM_FUNCTION read whole buffers: their sources are stored already
        stored = start(node)
        del stored


class _Places:
    """Index arithmetic done once for layers that repeat: they move the same shapes alike."""

    def __init__(self) -> None:
        self._outputs: dict[Shape, Indices] = {}
        self._sources: dict[Any, Indices] = {}
        self._needed: dict[tuple[Indices, tuple[UOp, ...]], tuple[UOp, ...]] = {}

    def outputs(self, shape: Shape) -> Indices:
        found = self._outputs.get(shape)
        if found is None:
            found = self._outputs[shape] = output_indices(shape)
        return found

    def needed(self, indices: Indices, nest: tuple[UOp, ...]) -> tuple[UOp, ...]:
        """The loops out of ``nest``, down to the innermost that the indices depend on."""
        key = (indices, nest)
        found = self._needed.get(key)
        if found is None:
            used: set[UOp] = set()
            for i in indices:
                used.update(i.ranges)
            depth = 0
            for position, r in enumerate(nest):
                if r in used:
                    depth = position + 1
            found = self._needed[key] = nest[:depth]
        return found

    def source(self, node: UOp, indices: Indices) -> Indices:
        key = (node.op, node.arg, node.src[0].shape, indices)
        found = self._sources.get(key)
        if found is None:
            found = self._sources[key] = source_indices(node, indices)[0]
        return found


def _use_sources(  # type: ignore[no-untyped-def]
    node: UOp,
    root: UOp,
    indices: Indices,
    nest: tuple[UOp, ...],
    use,
    places: _Places,
    reducing: Set[UOp],
    stacks: _Stacks,
) -> None:
    if node.op == O.CAT:
        counter = indices[node.arg]
        is_pure = is_stack(node, indices) and node not in reducing
        if is_pure and stacks.takes(root, counter):
            inner = tuple([ZERO if i is counter else i for i in indices])
            indices, nest = inner, tuple([r for r in nest if r is not counter])
        for s in _reached(node, indices):
            # Positions differ by an offset along the axis; loops are the same.
            use(s, root, indices, nest)
    elif node.op == O.GATHER:
        lead = len(node.src[1].shape)
        for s in node.src[1:]:
            use(s, root, indices[:lead], nest)
        # Where it reads depends on data: every loop around may change it.
        around = (*nest[: len(node.src) - 1],)
        missing = len(node.src) - 1 - len(around)
        use(node.src[0], root, around + (ZERO,) * missing + indices[lead:], nest)
    else:
        use(node.src[0], root, places.source(node, indices), nest)


class _Stacks:
    """Axes of kernels along which values lie side by side: as many as can be written out."""

    def __init__(self) -> None:
        self._counters: dict[UOp, set[UOp]] = {}

    def takes(self, root: UOp, counter: UOp) -> bool:
        known = self._counters.setdefault(root, set())
        if counter not in known:
            if _evaluations((counter, *known)) > MAX_STACKED:
                return False
            known.add(counter)
        return True


def _reached(node: UOp, indices: Indices) -> tuple[UOp, ...]:
    """The parts of a CAT that indices look at: one where the place along its axis is a number."""
    place = indices[node.arg]
    if place.op == O.CONST:
        start = 0
        for s in node.src:
            start = start + s.shape[node.arg]
            if isinstance(start, UOp):
                break
            if place.arg < start:
                return (s,)
    return node.src


def _reducing(order: list[UOp]) -> set[UOp]:
    """Nodes with a reduction in what they are computed from, as far as nothing is stored."""
    found: set[UOp] = set()
    for node in order:
        is_one = node.op == O.REDUCE_AXIS
        if is_one or (node.op not in EFFECTS and not found.isdisjoint(node.src)):
            found.add(node)
    return found


def _placed(uses: list[Use], places: _Places) -> list[Use]:
    """Each use with only the loops around it that its indices need; equal ones merged."""
    merged: list[Use] = []
    for root, indices, nest in uses:
        entry = (root, indices, places.needed(indices, nest))
        if entry not in merged:
            merged.append(entry)
    return merged


def _overlap(node: UOp, uses: list[Use], places: _Places) -> bool:
    """Whether uses evaluate a value more often than it has elements."""
    counts = [_evaluations(nest) for _, _, nest in _placed(uses, places)]
    return sum(counts) > elements(node.shape)


def _placed_in_band(uses: list[Use]) -> list[Use]:
    """Each use with only the loops it needs: what a band holds is computed once for its rows."""
    merged: list[Use] = []
    for root, indices, nest in uses:
        used = frozenset().union(*[i.ranges for i in indices])
        entry = (root, indices, tuple([r for r in nest if r in used]))
        if entry not in merged:
            merged.append(entry)
    return merged


def _evaluations(nest: tuple[UOp, ...]) -> int:
    return prod([r.vmax + 1 for r in nest])


def _must_store(node: UOp, uses: list[Use], facts: _Work, contraction_in: set[UOp]) -> bool:
    if _is_one_hot(node):
        return False
    work = facts.of[node]
    size = elements(node.shape)
    counts = [_evaluations(nest) for _, _, nest in uses]
    if node.op == O.REDUCE_AXIS:
        heavy = is_contraction(node)
        for (root, _, nest), count in zip(uses, counts, strict=True):
            if count > size:
                return True
            inside = any(r.arg.kind is AxisKind.REDUCE for r in nest)
            if inside and (heavy or count * work > INNER_WORK):
                return True
            if heavy and root in contraction_in:
                return True
        if len(uses) == 1:
            return False
    elif len(uses) == 1 and counts[0] <= size:
        return False
    if work <= LOAD_COST:
        return False  # a load would cost as much
    if len(uses) > MAX_USES and sum(counts) > size:
        return True
    if len(uses) > 1 and node in facts.carries:
        return True  # the contraction is stored anyway: store it finished
    total = sum(counts)
    inline = total * work
    keep = size * (work + STORE_COST) + total * LOAD_COST + KERNEL_COST
    return inline > keep


def _is_one_hot(node: UOp) -> bool:
    """A counter compared with data: stored, its sum could not become a load."""
    if node.op == O.CAST and node.src[0].dtype.kind == "b":
        node = node.src[0]
    if node.op != O.EQ:
        return False
    for s in node.src:
        while s.op in O.MOVEMENT or s.op == O.CAST:
            s = s.src[0]
        if s.op == O.IOTA:
            return True
    return False


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


def _worth_storing(node: UOp, facts: _Work) -> bool:
    while node.op in O.MOVEMENT:
        node = node.src[0]
    return node.op not in LEAVES and node.op not in EFFECTS and facts.of[node] > LOAD_COST


class _Work:
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


def _work_per_element(order: list[UOp], facts: _Work) -> dict[UOp, float]:
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
