"""Convolutions and their transposes as graphs, each the gradient of the other.

A convolution is a product of sliding windows with the weight under a sum. Its transpose takes every
output back to where its window was: also a convolution, of the outputs, by the flipped weight.
Under a stride inputs that are a stride apart meet the same taps of a window, so there the phases
are further channels of one convolution with few taps, and are laid between each other afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import NamedTuple

from svod.ir import build as B
from svod.ir.node import UOp, is_symbolic
from svod.tensor.gradients.reverse_mode import Mark, custom_rules, gradient, mark
from svod.tensor.ops.matrix_products import multiply_sum
from svod.tensor.ops.sliding_windows import windows

WHOLE = (32, 8)  # outputs that are best stored at once
MOST_MORE = 1.15  # times the outputs


class Shape(NamedTuple):
    """How windows lie."""

    pads: tuple[tuple[int, int], ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    groups: int
    is_whole: bool = False  # whether phases of a stride are one product in any case


def _product(x: UOp, weight: UOp, shape: Shape) -> UOp:
    """Windows of x times the weight, summed over channels and window."""
    outputs, depth, *kernel = weight.shape
    batch, groups, space = x.shape[0], shape.groups, len(kernel)
    padded = B.pad(x, ((0, 0), (0, 0), *shape.pads))
    cut = windows(padded, tuple(kernel), shape.strides, shape.dilations)
    outer = cut.shape[2 : 2 + space]
    per_group = outputs // groups
    # (batch, group, output, o.., channel, k..)
    cut = B.reshape(cut, (batch, groups, 1, depth, *outer, *kernel))
    order = (0, 1, 2, *range(4, 4 + space), 3, *range(4 + space, 4 + 2 * space))
    full = (batch, groups, per_group, *outer, depth, *kernel)
    left = B.expand(B.permute(cut, order), full)
    row = (1, groups, per_group, *[1] * space, depth, *kernel)
    right = B.expand(B.reshape(weight, row), full)
    found = multiply_sum(left, right, tuple(range(3 + space, len(full))))
    return B.reshape(found, (batch, outputs, *outer))


# -- the gradients of both are the other ----------------------------------------------------------

_FORWARD, _BACK = "convolution", "transposed convolution"  # names of their gradients


def convolution(x: UOp, weight: UOp, shape: Shape) -> UOp:
    """Windows of (n, channels, *space) times a weight (outputs, channels / groups, *window)."""
    if not _has_own_gradient(x, weight):
        return _product(x, weight, shape)
    inputs = _marked(_FORWARD, x, weight)
    return mark(_product(*inputs, shape), Mark(_FORWARD, "output", 0, shape))


def transposed(x: UOp, weight: UOp, shape: Shape, sizes: tuple[int, ...]) -> UOp:
    """What a convolution of (n, channels, *sizes) passes back to it from its outputs ``x``, the
    first of those that there are."""
    if not _has_own_gradient(x, weight):
        return _returned(x, weight, shape, sizes)
    inputs = _marked(_BACK, x, weight)
    found = _returned(*inputs, shape, sizes)
    return mark(found, Mark(_BACK, "output", 0, (*shape, sizes)))


def _has_own_gradient(x: UOp, weight: UOp) -> bool:
    """Derived step by step it would be windows of products, added up."""
    if is_symbolic(x.shape) or is_symbolic(weight.shape) or 0 in (*x.shape, *weight.shape):
        return False
    return x.dtype.kind == weight.dtype.kind == "f" and prod(weight.shape[2:]) > 1


def _marked(name: str, *nodes: UOp) -> list[UOp]:
    return [mark(n, Mark(name, "input", i)) for i, n in enumerate(nodes)]


def _gradients(output: UOp, grad: UOp, inputs: Sequence[UOp]) -> list[UOp | None]:
    x, weight = (n.src[0] for n in inputs)
    shape = Shape(*output.arg.options)
    by_x = transposed(grad, weight, shape, tuple(x.shape[2:]))
    return [B.cast(by_x, x.dtype), _by_weight(x, weight, shape, grad)]


def _transposed_gradients(output: UOp, grad: UOp, inputs: Sequence[UOp]) -> list[UOp | None]:
    x, weight = (n.src[0] for n in inputs)
    shape = Shape(*output.arg.options[:-1])
    by_x = _first(convolution(grad, weight, shape), x.shape)
    return [B.cast(by_x, x.dtype), _by_weight(grad, weight, shape, x)]


def _by_weight(x: UOp, weight: UOp, shape: Shape, seed: UOp) -> UOp | None:
    """The gradient of a convolution's weight, by the first of its outputs."""
    target = mark(weight, Mark(_FORWARD, "argument"))
    found = _first(_product(x, target, shape), seed.shape)
    return gradient(found, seed, [target])[0]


def _first(x: UOp, sizes: tuple[int, ...]) -> UOp:
    return B.shrink(x, tuple([(0, n) for n in sizes]))


custom_rules[_FORWARD] = _gradients
custom_rules[_BACK] = _transposed_gradients


# -- the transpose --------------------------------------------------------------------------------


def _returned(x: UOp, weight: UOp, shape: Shape, sizes: tuple[int, ...]) -> UOp:
    if max(shape.strides) > 1:
        return _by_phases(x, weight, shape, sizes)
    spans = [d * (k - 1) for k, d in zip(weight.shape[2:], shape.dilations, strict=True)]
    each = zip(spans, shape.pads, sizes, x.shape[2:], strict=True)
    borders = [(span - a, n + a - count) for span, (a, _), n, count in each]
    inner = shape._replace(pads=((0, 0),) * len(sizes))
    return _product(_bordered(x, 2, borders), _turned(weight, shape.groups), inner)


class _Part(NamedTuple):
    """Phases that follow each other and meet taps of the same outputs: the first meets tap
    ``first`` and every ``step``-th from there on, the next the taps after those, and so on."""

    phases: int
    first: int
    step: int
    taps: int
    lowest: int  # of the outputs, after the number of the place in its phase
    apart: int  # from an output to the next


class _Axis(NamedTuple):
    """How places of an axis are phases: place ``stride * i + r - early`` is number i of phase r."""

    stride: int
    early: int
    count: int  # of each phase
    parts: list[_Part]

    @property
    def phases(self) -> int:
        """Those after the last that meets any are zeros."""
        return sum([part.phases for part in self.parts])


def _axis_of(window: int, pad: int, stride: int, dilation: int, size: int, is_whole: bool) -> _Axis:
    """Phases of the axis itself, unless those of the padded one make fewer products."""
    found = []
    for early in {0, pad % stride}:
        parts = _parts(window, pad - early, stride, dilation)
        if is_whole and dilation == 1:
            parts = [_joined(parts, pad - early, stride)]
        cost = (sum([p.phases * p.taps for p in parts]), len(parts), early)
        found.append((cost, _Axis(stride, early, -(-(size + early) // stride), parts)))
    return min(found)[1]


def _parts(window: int, ahead: int, stride: int, dilation: int) -> list[_Part]:
    """All phases up to the last that meets a tap, in as few parts as multiply no zeros."""
    common = gcd(stride, dilation)
    found: list[_Part] = []
    for r in range(stride):
        taps = [k for k in range(window) if (r + ahead - k * dilation) % stride == 0]
        lowest = (r + ahead - taps[-1] * dilation) // stride if taps else 0
        first = taps[0] if taps else 0
        part = _Part(1, first, stride // common, len(taps), lowest, dilation // common)
        before = found[-1] if found else part
        follows = found and dilation == 1 and first == before.first + before.phases
        if (follows or not taps) and found and part[2:] == before[2:]:
            found[-1] = before._replace(phases=before.phases + 1)
        else:
            found.append(part)
    while not found[-1].taps:
        found.pop()
    return found


def _joined(parts: list[_Part], ahead: int, stride: int) -> _Part:
    """One part for all, some of whose taps are zeros."""
    wanted = [part for part in parts if part.taps]
    lowest = min([part.lowest for part in wanted])
    highest = max([part.lowest + part.taps - 1 for part in wanted])
    phases = sum([part.phases for part in parts])
    return _Part(phases, ahead - stride * highest, stride, highest - lowest + 1, lowest, 1)


def _by_phases(x: UOp, weight: UOp, shape: Shape, sizes: tuple[int, ...]) -> UOp:
    """Under a stride: convolutions by the taps of some phases, whose channels are those of each.
    There is one for all where they meet as many, or where another kernel costs more than zeros."""
    groups, space = shape.groups, len(sizes)
    each = zip(weight.shape[2:], shape.pads, shape.strides, shape.dilations, sizes, strict=True)
    axes = [_axis_of(k, a, s, d, n, shape.is_whole) for k, (a, _), s, d, n in each]
    if shape.is_whole and any(part.taps > 1 for a in axes for part in a.parts):
        # What is stored has rows of whole sectors of memory; without windows it is flat anyway.
        axes[-1] = axes[-1]._replace(count=_whole(axes[-1].count))
    batch, channels, counts = x.shape[0], weight.shape[1], [a.count for a in axes]
    inner = Shape(((0, 0),) * space, (1,) * space, (1,) * space, groups)

    def product(parts: tuple[_Part, ...]) -> UOp:
        """(n, group, channel, count.., phase..)"""
        phases = [part.phases for part in parts]
        if not all(part.taps for part in parts):
            return B.full((batch, groups, channels, *counts, *phases), 0, x.dtype)
        borders = []
        for count, n, part in zip(counts, x.shape[2:], parts, strict=True):
            highest = part.lowest + (part.taps - 1) * part.apart
            borders.append((-part.lowest, count + highest - n))
        taps = _taps(weight, parts, groups)
        apart = inner._replace(dilations=tuple([part.apart for part in parts]))
        found = _product(_bordered(x, 2, borders), taps, apart)
        found = B.reshape(found, (batch, groups, *phases, channels, *counts))
        order = (0, 1, 2 + space, *range(3 + space, 3 + 2 * space), *range(2, 2 + space))
        return B.permute(found, order)

    def joined(first: tuple[_Part, ...]) -> UOp:
        """All phases that begin with these, side by side."""
        at = len(first)
        if at == space:
            return product(first)
        found = [joined((*first, part)) for part in axes[at].parts]
        return found[0] if len(found) == 1 else B.cat(found, 3 + space + at)

    missing = [(0, a.stride - a.phases) for a in axes]
    found = B.pad(joined(()), (*[(0, 0)] * (3 + space), *missing))
    between = [p for i in range(space) for p in (3 + i, 3 + space + i)]
    found = B.permute(found, (0, 1, 2, *between))
    whole = [a.count * a.stride for a in axes]
    found = B.reshape(found, (batch, groups * channels, *whole))
    middle = [(a.early, a.early + n) for a, n in zip(axes, sizes, strict=True)]
    return B.shrink(found, ((0, batch), (0, groups * channels), *middle))


def _whole(count: int) -> int:
    """A few more, in groups that are stored at once."""
    for size in WHOLE:
        found = -(-count // size) * size
        if found <= MOST_MORE * count:
            return found
    return count


def _taps(weight: UOp, parts: tuple[_Part, ...], groups: int) -> UOp:
    """Taps of some phases as a weight: (group, phase.., channel) by (output, tap..), zeros where a
    phase has fewer."""
    outputs, channels, *window = weight.shape
    space = len(window)
    each = list(zip(parts, window, strict=True))
    borders = [(-part.first, part.first + part.taps * part.step - k) for part, k in each]
    found = _bordered(weight, 2, borders)
    pairs = [n for part in parts for n in (part.taps, part.step)]
    found = B.reshape(found, (groups, outputs // groups, channels, *pairs))
    pairs = [n for part in parts for n in (part.taps, part.phases)]
    found = _first(found, (*found.shape[:3], *pairs))
    places = range(3, 3 + 2 * space)
    found = B.permute(B.flip(found, tuple(places[::2])), (0, *places[1::2], 2, 1, *places[::2]))
    rows = groups * prod(pairs[1::2]) * channels
    return B.reshape(found, (rows, outputs // groups, *pairs[::2]))


def _bordered(x: UOp, lead: int, borders: list[tuple[int, int]]) -> UOp:
    """Zeros around the axes after the first ones; a border below 0 is cut off."""
    rest = [(0, n) for n in x.shape[:lead]]
    sides = zip(x.shape[lead:], borders, strict=True)
    x = B.shrink(x, (*rest, *[(min(n, max(0, -a)), max(0, n - max(0, -b))) for n, (a, b) in sides]))
    return B.pad(x, (*[(0, 0)] * lead, *[(max(0, a), max(0, b)) for a, b in borders]))


def _turned(weight: UOp, groups: int) -> UOp:
    """A weight whose inputs and outputs change places, per group, and whose windows are flipped."""
    outputs, depth, *kernel = weight.shape
    rest = range(3, 3 + len(kernel))
    found = B.reshape(weight, (groups, outputs // groups, depth, *kernel))
    found = B.reshape(
        B.permute(found, (0, 2, 1, *rest)), (groups * depth, outputs // groups, *kernel)
    )
    return B.flip(found, tuple(range(2, 2 + len(kernel))))
