"""Channels last, for products with windows that a device reads where they are.

A convolution multiplies windows of its input, overlapping and padded. A device whose kernels read
boxes of memory needs no copy of each window, if the channels are neighbours in memory: those it
sums over, or in the gradient of a weight those of its outputs.
``channels_last`` finds such products, asks the device whether it takes one, and has both operands
stored in that order. What computes an operand then stores it so from the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from svod.dtype import types as dt
from svod.ir import build as B
from svod.ir import ops as O
from svod.ir.args import ParamArg
from svod.ir.capabilities import Capabilities
from svod.ir.node import UOp, make
from svod.ir.symbolic import terms_of
from svod.schedule.costs_gpu import GPU
from svod.schedule.products import (
    HALVES,
    large_product,
    moving_axes,
    narrow_view,
    with_operands,
)
from svod.schedule.views import axis_range, output_indices, source_indices
from svod.schedule.work import EFFECTS

MIN_WORK = GPU.window_work  # multiplications
WIDE_STEP = 16  # of float32 in a tile
_MEMORY = frozenset({O.BUFFER, O.BUFFER_VIEW, O.PARAM, O.AFTER})
_ORDERS = frozenset({O.PERMUTE, O.RESHAPE})
_WINDOWS = frozenset({O.PAD, O.SHRINK, O.EXPAND})  # and everything above them


def channels_last(sink: UOp, able: Capabilities) -> tuple[UOp, frozenset[UOp]]:
    """The graph with operands in that order, and the products that read windows in place."""
    is_taken = able.takes
    if is_taken is None:
        return sink, frozenset()
    order = sink.toposort()
    found: dict[UOp, tuple[_Base, _Base, int]] = {}
    taken: dict[UOp, bool] = {}  # layers that are alike have one body
    for node in order:
        for first, second, last in _bases(node):
            body = _body(node, (first, second))
            if body not in taken:
                taken[body] = is_taken(body)
            if taken[body]:
                found[node] = (first, second, last)
                break
    if not found:
        return sink, frozenset()
    bases = _stored_once(found)
    done: dict[UOp, UOp] = {}
    read: set[UOp] = set()
    for node in order:
        src = tuple([done[s] for s in node.src])
        new = node.with_sources(src)
        if node in found:
            *pair, last = found[node]
            new = _with_bases(node, [b.stored(_rebuilt(b.node, done)) for b in pair])
            read.add(new)
            if last >= 0:
                new = _Base(new, last).stored(new)
        elif node in bases and not _is_memory(node):  # whoever else reads it reads it there
            new = bases[node].stored(new)
        done[node] = new
    return done[sink], frozenset(read)


def _stored_once(found: dict[UOp, tuple[_Base, _Base, int]]) -> dict[UOp, _Base]:
    """The order in which each value is stored where it is computed: its own where a product reads
    that, else the one that most products read. Others make a copy in theirs."""
    wanted: dict[UOp, dict[int | None, list[_Base]]] = {}
    for *pair, _ in found.values():
        for base in pair:
            wanted.setdefault(base.node, {}).setdefault(base.axis, []).append(base)
    chosen = {}
    for node, orders in wanted.items():
        best = None if None in orders else max(orders, key=lambda axis: len(orders[axis]))
        chosen[node] = orders[best][0]
    return chosen


class _Base:
    """A value below the views of a factor, and which of its axes is the channels that are to be
    last; None where it stays as it is."""

    def __init__(self, node: UOp, axis: int | None) -> None:
        self.node, self.axis = node, axis
        count = len(node.shape)
        last = () if axis is None else (axis,)
        self.order = (*[a for a in range(count) if a != axis], *last)
        self.back = tuple([self.order.index(a) for a in range(count)])

    def moved(self, turned: UOp) -> UOp:
        """The value again, from itself with the channels last."""
        return make(O.PERMUTE, turned.dtype, (turned,), self.back)

    def stored(self, value: UOp) -> UOp:
        """A value like this one from memory in which channels are last."""
        if self._is_there(value) if self.axis is None else self._is_last(value, self.axis):
            return value
        # Without axes of one place, so that who reads a value with and without them reads one copy.
        wide = [a for a in range(len(value.shape)) if value.shape[a] != 1]
        narrow = B.reshape(value, tuple([value.shape[a] for a in wide]))
        order = [wide.index(a) for a in self.order if a in wide]
        turned = make(O.CONTIGUOUS, value.dtype, (B.permute(narrow, tuple(order)),))
        back = tuple([order.index(a) for a in range(len(order))])
        return B.reshape(B.permute(turned, back), tuple(value.shape))

    def _is_there(self, value: UOp) -> bool:
        """Whether memory holds a value, in its own order or in another."""
        while value.op in _ORDERS:
            value = value.src[0]
        return value.op in (*_MEMORY, O.CONTIGUOUS)

    def _is_last(self, value: UOp, axis: int) -> bool:
        """Whether memory holds a value with this axis last."""
        places = output_indices(value.shape)
        while value.op in _ORDERS:
            places = source_indices(value, places)[0]
            value = value.src[0]
        if value.op not in (*_MEMORY, O.CONTIGUOUS) or not places:
            return False
        terms, _ = terms_of(places[-1])
        return terms.get(axis_range(axis, self.node.shape[axis])) == 1


def _is_memory(node: UOp) -> bool:
    """Whether a value is in memory whatever reads it, and in an order that some may rely on."""
    while node.op in _ORDERS:
        node = node.src[0]
    return node.op in _MEMORY or node.op in EFFECTS


def _bases(node: UOp) -> Iterator[tuple[_Base, _Base, int]]:
    """The values that both factors of a product are views of, with the axes that could be the
    channels, the better choice first; nothing where no factor has windows. The number is the axis
    of the result that should be last in memory, or -1."""
    product = large_product(node)
    if product is None or prod(product.sizes) < MIN_WORK:
        return
    views = [narrow_view(f) for f in product.operands]
    is_wide = all(view.dtype is dt.float32 for view in views)
    if not is_wide and any(view.dtype not in HALVES for view in views):
        return
    overlap = list(map(_overlaps, views))
    if not any(overlap):
        return
    (first, rows), (second, columns) = map(_lone_axes, views)
    shape, summed = node.src[0].shape, set(node.arg.axes)
    shared = [a for a in rows if a in columns and a in summed]
    if is_wide and not all(overlap) and shared:
        # Ordinary units read windows in any order; channels of the weight must be neighbours.
        channels = max(shared, key=lambda a: shape[a])
        one, other = rows[channels], columns[channels]
        yield (
            _Base(first, None if overlap[0] else one),
            _Base(second, None if overlap[1] else other),
            -1,
        )
        yield _Base(first, one), _Base(second, other), -1
    if is_wide:
        return
    for left, right, last in _narrow_choices(node, rows, columns):
        yield _Base(first, rows[left]), _Base(second, columns[right]), last


def _narrow_choices(
    node: UOp, rows: dict[int, int], columns: dict[int, int]
) -> list[tuple[int, int, int]]:
    """The axes that could be the channels of both factors, and that of the result to be last; what
    takes fewer products in turn comes first."""
    shape, summed = node.src[0].shape, set(node.arg.axes)
    choices = []
    shared = [a for a in rows if a in columns and a in summed]
    if shared:
        channels = max(shared, key=lambda a: shape[a])
        choices.append((prod([shape[a] for a in summed - {channels}]), channels, channels, -1))
    own = [[a for a in axes if a not in summed] for axes in (rows, columns)]
    apart = [[a for a in one if a not in other] for one, other in (own, own[::-1])]
    if all(apart):
        # What is summed then are windows of outputs, or all of them.
        left, right = (max(axes, key=lambda a: shape[a]) for axes in apart)
        taken = prod([shape[a] for a in range(len(shape)) if a not in (*summed, left, right)])
        is_one = not any(a in rows and a in columns for a in range(len(shape)) if a not in summed)
        choices.append((taken, left, right, max(left, right) if is_one else -1))
    return [(left, right, last) for _, left, right, last in sorted(choices)]


def stepped_axes(node: UOp) -> list[int]:
    """The summed axes along which tiles of a float32 product with windows go in steps, of which it
    needs one: they are rows of both operands."""
    product = large_product(node)
    views = [narrow_view(f) for f in product.operands] if product is not None else []
    if not any(map(_overlaps, views)) or any(view.dtype is not dt.float32 for view in views):
        return []
    (_, rows), (_, columns) = map(_lone_axes, views)
    shape = node.src[0].shape
    shared = [a for a in node.arg.axes if a in rows and a in columns and shape[a] % WIDE_STEP == 0]
    return shared if len(shared) < len(node.arg.axes) else []


def _lone_axes(view: UOp) -> tuple[UOp, dict[int, int]]:
    """What windows are made of, and the axes of it that are axes of the view, one each."""
    places = output_indices(view.shape)
    chain = _chain(view)
    for node in chain:
        places = source_indices(node, places)[0]
    base = chain[-1].src[0] if chain else view
    numbers = {axis_range(a, n): a for a, n in enumerate(view.shape) if n != 1}
    uses: dict[int, list[int]] = {}
    for axis, place in enumerate(places):
        terms, _ = terms_of(place)
        for r in place.ranges:
            size = view.shape[numbers[r]]  # other loops, as of groups, count whole rows of it
            whole = all(factor % size == 0 for other, factor in terms.items() if other is not r)
            is_row = terms.get(r) == 1 and whole
            uses.setdefault(numbers[r], []).append(axis if is_row else -1)
    return base, {a: axes[0] for a, axes in uses.items() if len(axes) == 1 and axes[0] >= 0}


def _overlaps(view: UOp) -> bool:
    """Whether a view shows elements of memory more than once, beside those that repeat as such."""
    shown = view.src[0] if view.op == O.EXPAND else view
    size, repeats = prod(shown.shape), False
    while shown.op in O.MOVEMENT:
        repeats = repeats or shown.op == O.EXPAND
        shown = shown.src[0]
    return repeats and size > prod(shown.shape)


def _chain(view: UOp) -> list[UOp]:
    """The views of a factor above its base. In windows all that repeat, cut or pad; then those that
    only change the order of axes or divide some: a value has one base, whoever reads it."""
    found, last = [], 0
    in_windows = _overlaps(view)
    while view.op in O.MOVEMENT:
        found.append(view)
        is_window = view.op in _WINDOWS and (in_windows or not last)
        if is_window or (last == len(found) - 1 and _keeps_axes(view)):
            last = len(found)
        view = view.src[0]
    return found[:last]


def _keeps_axes(view: UOp) -> bool:
    """Whether a view has the axes of its source, in another order, or some of them divided."""
    if view.op != O.RESHAPE:
        return view.op == O.PERMUTE
    sizes = iter([n for n in view.shape if n != 1])
    for wanted in view.src[0].shape:
        size = 1
        while size < wanted:
            size *= next(sizes, wanted + 1)
        if size != wanted:
            return False
    return view.src[0].op not in _MEMORY


def _rebuilt(node: UOp, done: dict[UOp, UOp]) -> UOp:
    """A node of the new graph, which the old one had or which was made of one it had."""
    if node in done:
        return done[node]
    src = tuple([_rebuilt(s, done) for s in node.src])
    return make(node.op, node.dtype, src, node.arg)


def _with_bases(node: UOp, bases: list[UOp]) -> UOp:
    """A product with other values below the views of its factors."""
    factors = []
    for factor, base in zip(node.src[0].src, bases, strict=True):
        for step in reversed(_chain(narrow_view(factor))):
            base = make(step.op, base.dtype, (base,), step.arg)
        factors.append(base if base.dtype is factor.dtype else make(O.CAST, factor.dtype, (base,)))
    return with_operands(node, factors)


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
