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

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from math import prod
from typing import Any

from svod.base.errors import GraphError
from svod.dtype.types import DType, integer_limits
from svod.ir import ops as O
from svod.ir.args import AxisKind
from svod.ir.node import UOp, elements
from svod.ir.scan import outer_order
from svod.ir.symbolic import ZERO
from svod.schedule.attention import Whole
from svod.schedule.costs_cpu import CPU
from svod.schedule.costs_gpu import GPU
from svod.schedule.products import interleaves, is_contraction, large_product, unmoved
from svod.schedule.reasons import Reason
from svod.schedule.views import (
    MAX_STACKED,
    Indices,
    Shape,
    axis_range,
    is_stack,
    output_indices,
    source_indices,
)
from svod.schedule.work import EFFECTS, LEAVES, LOAD_COST, Work

STORE_COST = CPU.store  # writing it and reading it again from memory that is not the closest cache
KERNEL_COST = CPU.kernel  # one more launch and one more kernel to compile
REPEATED = GPU.repeated_elements  # elements that blocks add up in vain, about what a launch costs
MAX_USES = CPU.most_uses  # more places than this and the value is stored
# a reduction inside another one may repeat at most this much in one kernel
INNER_WORK = CPU.inner_work
PLAIN_COST = CPU.plain_product  # of a product's element in plain loops, in a tile's
BAND_COLUMN = CPU.band_column  # the loop over a row of scores, which all passes over it share

_EFFECT, _FORM, _SOURCE = [Reason(rule, True) for rule in ("effect", "form", "source")]
Use = tuple[UOp, Indices, tuple[UOp, ...]]  # kernel root, indices, loops around, outermost first


@dataclass(slots=True)
class Held:
    """Values that stay inside the kernel that needs them, in bands of rows."""

    values: set[UOp] = field(default_factory=set)
    passes: set[UOp] = field(default_factory=set)  # the reductions along such rows


def decide_storage(
    sink: UOp,
    order: list[UOp] | None = None,
    whole: Whole | None = None,
    held: Held | None = None,
    inside: Set[UOp] = frozenset(),
    has_blocks: Callable[[UOp], bool] | None = None,
    reasons: dict[UOp, Reason] | None = None,
) -> set[UOp]:
    """The nodes to store: a matter of structure alone, so the order of visits is one too.

    ``whole`` says which formulas are one kernel each, whatever they cost; what is ``held`` or
    ``inside`` stays in the kernel that needs it. Kernels of nodes that have blocks make a reduction
    again in each of them. What was decided for a reason worth telling is noted in ``reasons``.
    """
    order = outer_order((sink,)) if order is None else order
    whole, held = whole or Whole(), held or Held()
    decision = _Decision(order, whole, held, inside)
    again = set() if has_blocks is None else decision.repeated(has_blocks)
    if again:
        stored = whole.stored | again
        decision = _Decision(order, Whole(whole.roots, stored, whole.inside), held, inside)
    if reasons is not None:
        reasons.update(decision.reasons)
    return decision.stored


class _Decision:
    """What is known of uses and of stored nodes, from the users down to one node."""

    def __init__(self, order: list[UOp], whole: Whole, held: Held, inside: Set[UOp]) -> None:
        self.whole, self.held, self.inside = whole, held, inside
        self.work = Work(order)
        self.reducing = _reducing(order)
        self.places, self.stacks = _Places(), _Stacks()
        self.uses: dict[UOp, list[Use]] = {}
        self.stored: set[UOp] = set()
        self.wanted: set[UOp] = set()  # stored for what is made of them: conversions, gathers
        self.contraction_in: set[UOp] = set()  # kernels that hold one
        self.reduce_numbers: dict[UOp, int] = {}
        self.reasons: dict[UOp, Reason] = {}
        self.sums: dict[UOp, list[tuple[UOp, tuple[UOp, ...]]]] = {}  # of a kernel, with loops
        for node in reversed(order):
            if node.op not in LEAVES and node.op != O.SINK:
                self.visit(node)

    def visit(self, node: UOp) -> None:
        """Decide about a node all of whose uses are known, and note what it uses."""
        op = node.op
        if op in EFFECTS:
            self.effect(node)
            return
        here = self.uses.get(node)
        is_held = node in self.held.values
        if node in self.whole.stored or (node in self.wanted and not is_held):
            self.reasons[node] = _FORM if node in self.whole.stored else _SOURCE
            here = [self.start(node)]
        if here is None or node in self.whole.roots:
            return
        if op in O.MOVEMENT or op == O.CAT or op == O.GATHER:
            self.moved(node, here)
            return
        here = _placed_in_band(here) if is_held else self.settled(node, here)
        if op == O.REDUCE_AXIS:
            self.reduced(node, here)
            return
        for root, indices, nest in here:
            for s in node.src:
                self.use(s, root, indices if s.shape else (), nest)

    def use(self, node: UOp, root: UOp, indices: Indices, nest: tuple[UOp, ...]) -> None:
        if node.op in LEAVES:
            return
        found = self.uses.get(node)
        entry = (root, indices, nest)
        if found is None:
            self.uses[node] = [entry]
        elif entry not in found:
            found.append(entry)

    def start(self, node: UOp) -> Use:
        """Store a node: it is the root of a kernel, over the loops of its shape."""
        indices = self.places.outputs(node.shape)
        self.stored.add(node)
        return node, indices, _loops(indices)

    def settled(self, node: UOp, here: list[Use]) -> list[Use]:
        """The uses of a value, which is stored where that is cheaper."""
        merged = _placed(here, self.places)
        if node in self.stored or node in self.inside:
            return merged
        if self.leaves_product(node, here):
            self.reasons[node] = Reason("product", True, len(merged))
        elif not self.must_store(node, merged):
            return merged
        source = _narrower(node)
        if source is None:
            return [self.start(node)]
        if source.op in O.ELEMENTWISE:
            self.wanted.add(source)  # fewer bytes, and as good
        return merged

    def effect(self, node: UOp) -> None:
        """Effects are stored in any case."""
        op = node.op
        self.reasons[node] = _EFFECT
        root, indices, nest = self.start(node)
        if op == O.CONTIGUOUS:
            self.use(node.src[0], root, indices, nest)
        elif op == O.ASSIGN:
            self.use(node.src[1], root, indices, nest)
            target = node.src[0]  # an earlier assignment behind views is an effect of its own
            while target.op in O.MOVEMENT:
                target = target.src[0]
            if target.op not in LEAVES and target.op not in EFFECTS:
                raise GraphError(f"ASSIGN needs a buffer as its target, not {target!r}")
        elif op == O.SCATTER:
            loops = self.places.outputs(node.src[1].shape)
            nest = _loops(loops)
            self.use(node.src[1], node, loops, nest)
            lead = len(node.src[2].shape)
            for s in node.src[2:]:
                self.use(s, node, loops[:lead], nest[:lead])
            self.use(node.src[0], node, indices, ())
        elif op == O.SCAN:  # where its carries start is computed into their memory
            for s in node.src[2 : 2 + node.arg.carries]:
                loops = self.places.outputs(s.shape)
                self.use(s, node, loops, _loops(loops))
        # Copies, sorts and custom functions read whole buffers: their sources are stored already.

    def moved(self, node: UOp, here: list[Use]) -> None:
        """Movement, joining and indexed reads: their sources are used at other places."""
        is_many = len(here) > MAX_USES and node.op != O.CAT
        if is_many and _overlap(node, here, self.places) and self.is_worth_storing(node):
            self.reasons[node] = Reason("windows", True, len(here))
            here = [self.start(node)]  # many windows into one value: store what they look into
        for root, indices, nest in here:
            if node.op == O.CAT:
                self.joined(node, root, indices, nest)
            elif node.op == O.GATHER:
                if self.gathers_product(node, nest):
                    self.wanted.add(unmoved(node.src[0]))
                lead = len(node.src[1].shape)
                for s in node.src[1:]:
                    self.use(s, root, indices[:lead], nest)
                # Where it reads depends on data: every loop around may change it.
                around = nest[: len(node.src) - 1]
                missing = len(node.src) - 1 - len(around)
                self.use(node.src[0], root, around + (ZERO,) * missing + indices[lead:], nest)
            else:
                self.use(node.src[0], root, self.places.source(node, indices), nest)

    def gathers_product(self, node: UOp, nest: tuple[UOp, ...]) -> bool:
        """Whether a gather reads much of a finished product, which tiles compute as a whole."""
        source = unmoved(node.src[0])
        product = self.work.carries.get(source)
        if product is None or large_product(product) is None:
            return False
        return PLAIN_COST * _evaluations(nest) >= elements(source.shape)

    def joined(self, node: UOp, root: UOp, indices: Indices, nest: tuple[UOp, ...]) -> None:
        counter = indices[node.arg]
        is_pure = is_stack(node, indices) and node not in self.reducing
        if is_pure and self.stacks.takes(root, counter):
            indices = tuple([ZERO if i is counter else i for i in indices])
            nest = tuple([r for r in nest if r is not counter])
        for s in _reached(node, indices):
            # Positions differ by an offset along the axis; loops are the same.
            self.use(s, root, indices, nest)

    def reduced(self, node: UOp, here: list[Use]) -> None:
        """The source of a reduction is used in loops of its own."""
        is_heavy = node not in self.held.values and is_contraction(node)
        for root, indices, nest in here:
            self.sums.setdefault(root, []).append((node, nest))
            if is_heavy:
                self.contraction_in.add(root)
            inner = list(indices)
            for axis in node.arg.axes:
                if node in self.held.passes:
                    number = BAND_COLUMN
                else:
                    number = self.reduce_numbers.get(root, 100) + 1
                    self.reduce_numbers[root] = number
                inner[axis] = axis_range(number, node.src[0].shape[axis], AxisKind.REDUCE)
            more = _loops([inner[axis] for axis in node.arg.axes])
            self.use(node.src[0], root, tuple(inner), (*nest, *more))

    def leaves_product(self, node: UOp, uses: list[Use]) -> bool:
        """Whether a value is a finished product, used in loops that are not those of its sides:
        a tile is one of the output then, and computes each product once."""
        product = self.work.carries.get(node)
        if product is None or (found := large_product(product)) is None:
            return False
        if any(_has_more_loops(indices, nest) for _, indices, nest in uses):
            return True
        is_bare = node is product or (node.op == O.CAST and node.src[0] is product)
        return is_bare and any(interleaves(found, indices, nest) for _, indices, nest in uses)

    def must_store(self, node: UOp, uses: list[Use]) -> bool:
        """Whether a value is stored, for what it costs or for what a kernel cannot hold."""
        if is_one_hot(node):
            return False
        work = self.work.of[node]
        size = elements(node.shape)
        counts = [_evaluations(nest) for _, _, nest in uses]
        total = sum(counts)
        if node.op == O.REDUCE_AXIS:
            heavy = is_contraction(node)
            for (root, _, nest), count in zip(uses, counts, strict=True):
                rule = ""
                if count > size:
                    rule = "repeated"
                elif _is_inner(nest) and (heavy or count * work > INNER_WORK):
                    rule = "nested"
                elif heavy and root in self.contraction_in:
                    rule = "second"
                if rule:
                    self.reasons[node] = Reason(rule, True, len(uses), total, size)
                    return True
            if len(uses) == 1:
                return False
        elif len(uses) == 1 and counts[0] <= size:
            return False
        if work <= LOAD_COST:
            return False  # a load would cost as much
        if len(uses) > MAX_USES and total > size:
            self.reasons[node] = Reason("uses", True, len(uses), total, size)
            return True
        if node in self.work.carries:
            # The contraction is stored anyway, in several uses or inside another sum: store it
            # finished.
            in_sum = total >= size and any(_is_inner(nest) for _, _, nest in uses)
            if len(uses) > 1 or in_sum:
                self.reasons[node] = Reason("finished", True, len(uses), total, size)
                return True
        inline = total * work
        keep = size * (work + STORE_COST) + total * LOAD_COST + KERNEL_COST
        is_stored = inline > keep
        self.reasons[node] = Reason("costs", is_stored, len(uses), total, size, inline, keep)
        return is_stored

    def repeated(self, has_blocks: Callable[[UOp], bool]) -> set[UOp]:
        """Long reductions of few results in kernels with a block for each of many results."""
        found: set[UOp] = set()
        for root, sums in self.sums.items():
            apart = [(n, nest) for n, nest in sums if not _is_inner(nest)]
            blocks = _evaluations(tuple({r for _, nest in apart for r in nest}))
            for node, nest in apart if len(apart) > 1 and has_blocks(root) else ():
                wasted = blocks - _evaluations(nest)
                length = elements(node.src[0].shape) // max(1, elements(node.shape))
                if wasted > blocks // 2 and wasted * length > REPEATED and node is not root:
                    found.add(node)
        return found

    def is_worth_storing(self, node: UOp) -> bool:
        """Whether what a node shows is computed, and for more than a load."""
        while node.op in O.MOVEMENT:
            node = node.src[0]
        return node.op not in LEAVES and node.op not in EFFECTS and self.work.of[node] > LOAD_COST


def _has_more_loops(indices: Indices, nest: tuple[UOp, ...]) -> bool:
    """Whether loops go around a use that its indices do not need."""
    used = frozenset().union(*[i.ranges for i in indices])
    return not used.issuperset(nest)


def _is_inner(nest: tuple[UOp, ...]) -> bool:
    return any(r.arg.kind is AxisKind.REDUCE for r in nest)


def _loops(indices: Sequence[UOp]) -> tuple[UOp, ...]:
    return tuple([i for i in indices if i.op == O.RANGE])


def _narrower(node: UOp) -> UOp | None:
    """The narrower value that a converted one is exactly: computed element by element, or memory.

    Other values stay as they are: what joins or gathers is decided with its parts.
    """
    if node.op != O.CAST:
        return None
    source = node.src[0]
    is_wider = _is_wider(node.dtype, source.dtype)
    while source.op in O.MOVEMENT:
        source = source.src[0]
    is_either = source.op in O.ELEMENTWISE or source.op in LEAVES or source.op in EFFECTS
    return source if is_wider and is_either else None


def _is_wider(wide: DType, narrow: DType) -> bool:
    """Whether a type has more bytes than another, and all of its values."""
    if wide.kind in "iu" and narrow.kind in "iu":
        (low, high), (least, most) = integer_limits(narrow), integer_limits(wide)
        return narrow.bits < wide.bits and least <= low and high <= most
    return wide.kind == narrow.kind == "f" and narrow.bits < wide.bits


def is_one_hot(node: UOp) -> bool:
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
