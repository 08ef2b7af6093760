"""Channels last, for products with windows that a device reads where they are.

A convolution multiplies windows of its input, overlapping and padded. A device whose kernels read
boxes of memory needs no copy of each window, if the channels it sums over are neighbours in memory.
``channels_last`` finds such products, asks the device whether it takes one, and has both operands
stored in that order. What computes an operand then stores it so from the start.
"""

from __future__ import annotations

from math import prod

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import ParamArg
from svod.ir.node import UOp, is_symbolic, make
from svod.ir.symbolic import terms_of
from svod.schedule.attention import Takes
from svod.schedule.operands import moving_axes, product_factors
from svod.schedule.views import axis_range, output_indices, source_indices
from svod.schedule.windows import MIN_WORK, before_repeats, has_windows

KINDS = (dt.bfloat16, dt.float16)
_MEMORY = frozenset({O.BUFFER, O.BUFFER_VIEW, O.PARAM, O.AFTER})
_ORDERS = frozenset({O.PERMUTE, O.RESHAPE})
_WINDOWS = frozenset({O.PAD, O.SHRINK, O.EXPAND})  # and everything above them


def channels_last(sink: UOp, device: str, takes: Takes | None) -> tuple[UOp, frozenset[UOp]]:
    """The graph with operands in that order, and the products that read windows in place."""
    is_taken = takes(device) if takes is not None else None
    if is_taken is None:
        return sink, frozenset()
    order = sink.toposort()
    found: dict[UOp, tuple[_Base, _Base]] = {}
    for node in order:
        pair = _bases(node)
        if pair is not None and is_taken(_body(node, pair)):
            found[node] = pair
    if not found:
        return sink, frozenset()
    bases = {b.node: b for pair in found.values() for b in pair}
    done: dict[UOp, UOp] = {}
    read: set[UOp] = set()
    for node in order:
        src = tuple([done[s] for s in node.src])
        new = node if src == node.src else make(node.op, node.dtype, src, node.arg)
        if node in found:
            values = [b.stored(done[b.node]) for b in found[node]]
            new = _with_bases(new, values)
            read.add(new)
        elif node in bases and not _is_memory(node):  # whoever else reads it reads it there
            new = bases[node].stored(new)
        done[node] = new
    return done[sink], frozenset(read)


class _Base:
    """A value below the views of a factor, and which of its axes is the channels."""

    def __init__(self, node: UOp, axis: int) -> None:
        self.node, self.axis = node, axis
        count = len(node.shape)
        self.order = (*[a for a in range(count) if a != axis], axis)
        self.back = tuple([self.order.index(a) for a in range(count)])

    def moved(self, turned: UOp) -> UOp:
        """The value again, from itself with the channels last."""
        return make(O.PERMUTE, turned.dtype, (turned,), self.back)

    def stored(self, value: UOp) -> UOp:
        """A value like this one from memory in which channels are last."""
        if self._is_last(value):
            return value
        turned = make(O.PERMUTE, value.dtype, (value,), self.order)
        return self.moved(make(O.CONTIGUOUS, value.dtype, (turned,)))

    def _is_last(self, value: UOp) -> bool:
        """Whether memory holds a value so already."""
        places = output_indices(value.shape)
        while value.op in _ORDERS:
            places = source_indices(value, places)[0]
            value = value.src[0]
        if value.op not in (*_MEMORY, O.CONTIGUOUS) or not places:
            return False
        terms, _ = terms_of(places[-1])
        return terms.get(axis_range(self.axis, self.node.shape[self.axis])) == 1


def _is_memory(node: UOp) -> bool:
    while node.op in _ORDERS:
        node = node.src[0]
    return node.op in _MEMORY


def _bases(node: UOp) -> tuple[_Base, _Base] | None:
    """The values that both factors of a product are views of; None where none has windows."""
    factors = product_factors(node)
    if not factors or prod(factors[0].shape) < MIN_WORK:
        return None
    views = []
    for factor in factors:
        view = factor.src[0] if factor.op == O.CAST else factor
        if view.dtype not in KINDS or is_symbolic(view.shape):
            return None
        views.append(view)
    if not any(has_windows(before_repeats(view)) for view in views):
        return None
    found = [_summed_axes(view, node.arg.axes) for view in views]
    shared = [a for a in found[0][1] if a in found[1][1]]
    if not shared:
        return None
    channels = max(shared, key=lambda a: node.src[0].shape[a])
    first, second = (_Base(base, axes[channels]) for base, axes in found)
    return first, second


def _summed_axes(view: UOp, summed: tuple[int, ...]) -> tuple[UOp, dict[int, int]]:
    """What windows are made of, and the axes of it that are summed axes of the view, one each."""
    places = output_indices(view.shape)
    chain = _chain(view)
    for node in chain:
        places = source_indices(node, places)[0]
    base = chain[-1].src[0] if chain else view
    numbers = {axis_range(a, view.shape[a]): a for a in summed if view.shape[a] != 1}
    uses: dict[int, list[int]] = {}
    for axis, place in enumerate(places):
        terms, _ = terms_of(place)
        for r in place.ranges:
            if r in numbers:
                size = view.shape[numbers[r]]  # other loops, as of groups, count whole rows of it
                whole = all(factor % size == 0 for other, factor in terms.items() if other is not r)
                is_row = terms.get(r) == 1 and whole
                uses.setdefault(numbers[r], []).append(axis if is_row else -1)
    return base, {a: axes[0] for a, axes in uses.items() if len(axes) == 1 and axes[0] >= 0}


def _chain(view: UOp) -> list[UOp]:
    """The views from a factor down to the last that repeats, cuts or pads."""
    found, last = [], 0
    while view.op in O.MOVEMENT:
        found.append(view)
        if view.op in _WINDOWS:
            last = len(found)
        view = view.src[0]
    return found[:last]


def _with_bases(node: UOp, bases: list[UOp]) -> UOp:
    """A product with other values below the views of its factors."""
    factors = []
    for factor, base in zip(node.src[0].src, bases, strict=True):
        view = factor.src[0] if factor.op == O.CAST else factor
        for step in reversed(_chain(view)):
            base = make(step.op, base.dtype, (base,), step.arg)
        if factor.op == O.CAST:
            base = make(O.CAST, factor.dtype, (base,))
        factors.append(base)
    product = make(O.MUL, node.src[0].dtype, tuple(factors))
    return make(O.REDUCE_AXIS, node.dtype, (product,), node.arg)


def _body(node: UOp, bases: tuple[_Base, _Base]) -> UOp:
    """The product as a kernel by itself, of operands with channels last."""
    places = []
    for slot, base in enumerate(bases):
        shape = tuple([base.node.shape[a] for a in base.order])
        memory = make(O.PARAM, base.node.dtype, (), ParamArg(slot + 1, shape))
        places.append(base.moved(memory))
    value = _with_bases(node, places)
    first, second = map(moving_axes, node.src[0].src)
    axes = range(len(value.shape))  # a stack of products: their number goes first
    order = tuple(sorted(axes, key=lambda a: a not in first or a not in second))
    value = make(O.PERMUTE, value.dtype, (value,), order)
    target = make(O.PARAM, value.dtype, (), ParamArg(0, tuple(value.shape)))
    return make(O.SINK, dt.void, (make(O.STORE, dt.void, (target, value)),))
