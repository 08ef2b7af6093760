"""Constructors of tensor-graph nodes: they check shapes and dtypes and keep the graph small.

In: nodes and plain arguments. Out: a node, often an existing one: a movement that moves nothing
returns its input, and two of the same movement become one. Elementwise operands come out with
equal shapes, except rank-0 ones, which stay as they are and broadcast by meaning. A node
without elements never feeds one that has some, so later stages may ignore empty tensors; only
gradients know what a constant was made of (`EMPTY`).
Complex operands are refused below (`make`); what they mean is in `svod.ir.pairs`.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from svod.base.errors import ComplexOperand, DTypeError, ShapeError
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.args import BufferRef, ReduceArg, SortArg
from svod.ir.node import UOp, const, is_symbolic, largest, make, modules_above, stored_shape
from svod.ir.reductions import identity
from svod.ir.symbolic import shape_text, size_text, value_of

_COMPLEX = O.COMPLEX  # looked at in places that are often passed
EMPTY = "empty"  # the argument of a BITCAST (constant, x): what was made of an x without elements
Shape = tuple[int, ...]
Pairs = tuple[tuple[int, int], ...]


# -- leaves ------------------------------------------------------------------------------------


def full(shape: Shape, value: Any, dtype: DType) -> UOp:
    """A constant of this shape: one CONST behind a reshape and an expand."""
    return broadcast_to(const(value, dtype), shape)


def _from_empty(x: UOp, shape: Shape, value: Any) -> UOp:
    """What an operation on no elements gives: a constant that names where it comes from."""
    if x.op == _COMPLEX and value == 0:
        return complex_view(_from_empty(x.src[0], (*shape, 2), 0))
    found = full(shape, value, x.dtype)
    if x.dtype.kind != "f" or x.op == O.CONST:
        return found
    node = make(O.BITCAST, x.dtype, (found, x), EMPTY)
    node._shape = shape
    return node


def iota(size: int, dtype: DType = dt.int64) -> UOp:
    """0, 1, .. size-1."""
    return make(O.IOTA, dtype, (), size)


def device(name: str) -> UOp:
    """The node that stands for a device."""
    return make(O.DEVICE, dt.void, (), name)


def new_buffer(size: int, dtype: DType, device_name: str, buffer: object = None) -> UOp:
    """A new 1-d buffer of ``size`` elements; its node owns the memory, given now or later."""
    return make(O.BUFFER, dtype, (device(device_name),), BufferRef(size, buffer))


# -- shapes ------------------------------------------------------------------------------------


def broadcast_shapes(*shapes: Shape) -> Shape:
    """The common shape: axes are matched from the right, 1 stretches."""
    rank = max([len(s) for s in shapes])
    result = [1] * rank
    for shape in shapes:
        offset = rank - len(shape)
        for i, n in enumerate(shape, offset):
            if n != 1 and n != result[i]:
                if result[i] != 1:
                    if (value := _same_value(n, result[i])) is not None:
                        result[i] = value
                        continue
                    listed = " and ".join(map(shape_text, shapes))
                    raise ShapeError(
                        f"shapes {listed} do not broadcast: axis {i - rank} has sizes "
                        f"{size_text(result[i])} and {size_text(n)}"
                    )
                result[i] = n
    return tuple(result)


def _same_value(a: UOp | int, b: UOp | int) -> int | None:
    """The number that two sizes are, where variables are bound and make them equal."""
    values = [size if isinstance(size, int) else value_of(size) for size in (a, b)]
    return values[0] if values[0] == values[1] else None


def at_values(x: UOp, wanted: Shape) -> UOp:
    """x with the sizes that are wanted, where variables are bound to values that make them equal.

    A slice says so: it is checked for every value where a plan is made for all of them.
    """
    pairs = []
    for n, m in zip(x.shape, wanted, strict=True):
        is_size = n not in (1, m) and (isinstance(n, UOp) or isinstance(m, UOp))
        pairs.append((0, m if is_size and _same_value(n, m) is not None else n))
    return shrink(x, tuple(pairs))


def broadcast_to(x: UOp, shape: Shape) -> UOp:
    """x stretched to ``shape``: leading axes are added, axes of size 1 grow."""
    have = x.shape
    if have == shape:
        return x
    missing = len(shape) - len(have)
    if missing < 0:
        raise ShapeError(f"shape {have} does not broadcast to {shape}, which has fewer axes")
    if missing:
        x = reshape(x, (1,) * missing + have)
    return expand(x, shape)


# -- memory as tensors ---------------------------------------------------------------------------


def view_as(memory: UOp, shape: tuple[Any, ...]) -> UOp:
    """Memory as a tensor of this shape; run-time sizes are the front part of the largest ones."""
    largest_shape = stored_shape(shape)
    found = memory
    if found.shape != largest_shape:
        found = make(O.RESHAPE, memory.dtype, (found,), largest_shape)
    if not is_symbolic(shape):
        return found
    return make(O.SHRINK, memory.dtype, (found,), tuple([(0, n) for n in shape]))


def whole_of(node: UOp) -> UOp:
    """What a node is all of, under another shape; a run-time size counts as all of its axis."""
    while (
        node.op == O.COMPLEX
        or (node.op == O.RESHAPE and is_dense(node.shape) and is_dense(node.src[0].shape))
        or (node.op == O.SHRINK and _is_front(node))
    ):
        node = node.src[0]
    return node


def is_dense(shape: Shape) -> bool:
    """Whether a value of this shape is stored without gaps. Memory has room for the largest of its
    run-time sizes: behind the first axis these leave some, so another shape is another place."""
    return not is_symbolic(shape[1:])


def _is_front(node: UOp) -> bool:
    """A SHRINK that only names run-time sizes: memory is laid out for the largest ones."""
    return all(
        start == 0 and largest(stop) == size
        for (start, stop), size in zip(node.arg, node.src[0].shape, strict=True)
    )


def complex_view(pairs: UOp) -> UOp:
    """Floats of shape (.., 2) as complex numbers: parts lie side by side, as NumPy keeps them."""
    if pairs.dtype not in dt.COMPLEX_OF or pairs.shape[-1:] != (2,):
        raise DTypeError(
            f"complex numbers are pairs of float32 or float64: a shape that ends in 2, not "
            f"{pairs.dtype!r}{list(pairs.shape)}"
        )
    node = make(O.COMPLEX, dt.COMPLEX_OF[pairs.dtype], (pairs,))
    node._shape = pairs.shape[:-1]
    return node


def floats_of(node: UOp) -> UOp:
    """What is computed and stored for a tensor: of a complex one, its pairs of floats."""
    return node.src[0] if node.op == O.COMPLEX else node


def like(node: UOp, floats: UOp) -> UOp:
    """Floats as what another node is: complex numbers where it holds such."""
    return complex_view(floats) if node.op == O.COMPLEX else floats


# -- joining -----------------------------------------------------------------------------------

CAT_PARTS = 8  # a kernel picks among so many parts; more are joined in stored groups


def cat(parts: Sequence[UOp], axis: int) -> UOp:
    """The parts one after the other along an axis; work and graph stay linear in the parts."""
    parts = [p for p in parts if p.shape[axis]] or list(parts[:1])
    if parts[0].op == _COMPLEX and len(parts) > 1:
        return _pairs().cat(parts, axis)  # type: ignore[no-any-return]
    while len(parts) > CAT_PARTS:
        groups = [parts[i : i + CAT_PARTS] for i in range(0, len(parts), CAT_PARTS)]
        parts = [
            make(O.CONTIGUOUS, g[0].dtype, (_cat(g, axis),)) if len(g) > 1 else g[0] for g in groups
        ]
    return _cat(parts, axis)


def _cat(parts: Sequence[UOp], axis: int) -> UOp:
    return parts[0] if len(parts) == 1 else make(O.CAT, parts[0].dtype, tuple(parts), axis)


def _pairs() -> Any:
    """The meaning of complex operands, which is built on this module."""
    return modules_above().pairs


def side_by_side(parts: Sequence[UOp], axis: int) -> UOp:
    """Parts of one element each along an axis, in one kernel that writes all of them."""
    return _cat(parts, axis)


# -- movement ----------------------------------------------------------------------------------


def _movement(op: int, x: UOp, arg: Any, shape: Shape) -> UOp:
    try:
        node = make(op, x.dtype, (x,), arg)
    except ComplexOperand:
        return _pairs().moved(op, x, arg)  # type: ignore[no-any-return]
    node._shape = shape
    return node


def reshape(x: UOp, shape: Shape) -> UOp:
    """The same elements in row-major order under another shape."""
    have = x.shape
    if have == shape:
        return x
    if prod(have) != prod(shape):
        if is_symbolic(have) and _same_value(prod(have), prod(shape)) is not None:
            values = tuple([n if isinstance(n, int) else value_of(n) for n in have])
            return reshape(at_values(x, values), shape)
        raise ShapeError(
            f"cannot reshape {shape_text(have)} ({size_text(prod(have))} elements) to "
            f"{shape_text(shape)} ({size_text(prod(shape))})"
        )
    if x.op == O.RESHAPE:
        x = x.src[0]
        if x.shape == shape:
            return x
    return _movement(O.RESHAPE, x, shape, shape)


def expand(x: UOp, shape: Shape) -> UOp:
    """Axes of size 1 grow to the size in ``shape``; the rank stays."""
    have = x.shape
    if have == shape:
        return x
    if len(have) != len(shape):
        raise ShapeError(f"expand keeps the rank: {have} to {shape}")
    if is_symbolic(have) or is_symbolic(shape):
        x = at_values(x, shape)
        have = x.shape
        if have == shape:
            return x
    total = 1
    for n, m in zip(have, shape, strict=True):
        if n != m and n != 1:
            raise ShapeError(f"cannot expand {have} to {shape}: only axes of size 1 grow")
        total *= largest(m)
    if total >= 1 << 63:
        raise ShapeError(f"a tensor has less than 2**63 elements, not the {total} of {shape}")
    if x.op == O.EXPAND:
        x = x.src[0]
    return _movement(O.EXPAND, x, shape, shape)


def permute(x: UOp, axes: Shape) -> UOp:
    """Axis i of the result is axis ``axes[i]`` of x."""
    have = x.shape
    identity = tuple(range(len(have)))
    if axes == identity:
        return x
    if tuple(sorted(axes)) != identity:
        raise ShapeError(f"permute needs every axis of {have} once, got {axes}")
    if x.op == O.PERMUTE:
        inner = x.arg
        axes = tuple([inner[a] for a in axes])
        x = x.src[0]
        have = x.shape
        if axes == identity:
            return x
    return _movement(O.PERMUTE, x, axes, tuple([have[a] for a in axes]))


def pad(x: UOp, pairs: Pairs) -> UOp:
    """Zeros before and after each axis."""
    have = x.shape
    if len(pairs) != len(have):
        raise ShapeError(f"pad needs a pair per axis of {have}, got {pairs}")
    if not any(a or b for a, b in pairs):
        return x
    if min([min(p) for p in pairs]) < 0:
        raise ShapeError(f"pad takes sizes from 0 up, got {pairs}")
    shape = tuple([n + a + b for n, (a, b) in zip(have, pairs, strict=True)])
    if 0 in have:
        return _from_empty(x, shape, 0)
    if x.op == O.PAD:
        inner = x.arg
        pairs = tuple([(a + c, b + d) for (a, b), (c, d) in zip(pairs, inner, strict=True)])
        x = x.src[0]
    return _movement(O.PAD, x, pairs, shape)


def shrink(x: UOp, pairs: Pairs) -> UOp:
    """The part between start and stop of each axis."""
    have = x.shape
    if len(pairs) != len(have):
        raise ShapeError(f"shrink needs a pair per axis of {have}, got {pairs}")
    whole = True
    for n, (a, b) in zip(have, pairs, strict=True):
        if a or b != n:
            whole = False
            if not 0 <= a <= b <= n:
                raise ShapeError(f"shrink {pairs} is outside the shape {have}")
    if whole:
        return x
    shape = tuple([b - a for a, b in pairs])
    if x.op == O.SHRINK:
        inner = x.arg
        pairs = tuple([(a + c, b + c) for (a, b), (c, _) in zip(pairs, inner, strict=True)])
        x = x.src[0]
    return _movement(O.SHRINK, x, pairs, shape)


def flip(x: UOp, axes: Shape) -> UOp:
    """The axes in reverse order; an axis of at most one element has none."""
    have = x.shape
    axes = tuple([a for a in sorted(axes) if have[a] not in (0, 1)])
    if x.op == O.FLIP:
        axes = tuple(sorted(set(axes) ^ set(x.arg)))
        x = x.src[0]
    if not axes:
        return x
    return _movement(O.FLIP, x, axes, have)


# -- values ------------------------------------------------------------------------------------


def cast(x: UOp, dtype: DType) -> UOp:
    """x converted to ``dtype``."""
    if x.dtype is dtype:
        return x
    if x.op == _COMPLEX:
        return _pairs().cast(x, dtype)  # type: ignore[no-any-return]
    try:
        node = make(O.CAST, dtype, (x,))
    except ComplexOperand:
        return _pairs().cast(x, dtype)  # type: ignore[no-any-return]
    node._shape = x.shape
    return node


def bitcast(x: UOp, dtype: DType) -> UOp:
    """The same bits read as another dtype of the same width."""
    if x.dtype is dtype:
        return x
    if x.dtype.kind == "c":
        raise ComplexOperand(f"the bits of {x.dtype.name} are those of two floats")
    if x.dtype.bits != dtype.bits:
        raise DTypeError(
            f"bitcast keeps the width: {x.dtype.name} has {x.dtype.bits} bits, "
            f"{dtype.name} has {dtype.bits}"
        )
    node = make(O.BITCAST, dtype, (x,))
    node._shape = x.shape
    return node


def unary(op: int, x: UOp) -> UOp:
    """One operand, the same shape and dtype."""
    try:
        node = make(op, x.dtype, (x,))
    except ComplexOperand:
        return _pairs().unary(op, x)  # type: ignore[no-any-return]
    node._shape = x.shape
    return node


def binary(op: int, a: UOp, b: UOp) -> UOp:
    """Two operands of one dtype, broadcast against each other."""
    dtype = a.dtype
    if dtype is not b.dtype:
        raise DTypeError(f"{O.NAMES[op]} needs one dtype, got {dtype.name} and {b.dtype.name}")
    shape = a.shape
    other = b.shape
    if shape != other:
        if not shape:
            shape = other
        elif other:
            shape = broadcast_shapes(shape, other)
            a = broadcast_to(a, shape)
            b = broadcast_to(b, shape)
    try:
        node = make(op, dt.bool_ if O.LT <= op <= O.NE else dtype, (a, b))
    except ComplexOperand:
        return _pairs().binary(op, a, b)  # type: ignore[no-any-return]
    node._shape = shape
    return node


def extreme(op: int, a: UOp, b: UOp, owner: int) -> UOp:
    """MAX or MIN whose gradient goes to one of the operands alone where they are equal."""
    node = binary(op, a, b)
    if node.op != op or node.dtype.kind != "f":
        return node
    found = make(op, node.dtype, node.src, owner)
    found._shape = node._shape
    return found


def where(condition: UOp, a: UOp, b: UOp) -> UOp:
    """a where the condition holds, else b."""
    if condition.dtype is not dt.bool_:
        raise DTypeError(f"the condition of where must be bool, not {condition.dtype.name}")
    if a.dtype is not b.dtype:
        raise DTypeError(f"where needs one dtype, got {a.dtype.name} and {b.dtype.name}")
    shape = broadcast_shapes(condition.shape, a.shape, b.shape)
    operands = tuple([broadcast_to(x, shape) if x.shape else x for x in (condition, a, b)])
    try:
        node = make(O.WHERE, a.dtype, operands)
    except ComplexOperand:
        return _pairs().where(*operands)  # type: ignore[no-any-return]
    node._shape = shape
    return node


def reduce(x: UOp, op: int, axes: Shape) -> UOp:
    """x folded over the axes, which stay with size 1."""
    shape = x.shape
    axes = tuple([a for a in sorted(axes) if shape[a] != 1])
    if not axes:
        return x
    result = tuple([1 if i in axes else n for i, n in enumerate(shape)])
    if 0 in shape:
        if 0 not in result and op in (O.MAX, O.MIN):
            raise ShapeError(f"a maximum or minimum over axes {axes} of {shape} has no elements")
        return _from_empty(x, result, identity(op, x.dtype))
    try:
        node = make(O.REDUCE_AXIS, x.dtype, (x,), ReduceArg(op, axes))
    except ComplexOperand:
        return _pairs().reduce(x, op, axes)  # type: ignore[no-any-return]
    node._shape = result
    return node


# -- indexed access ----------------------------------------------------------------------------


def _check_indices(x: UOp, indices: Sequence[UOp]) -> Shape:
    shape = indices[0].shape
    if len(indices) > len(x.shape):
        raise ShapeError(f"{len(indices)} indices for the {len(x.shape)} axes of {x.shape}")
    for i in indices:
        if i.shape != shape:
            raise ShapeError(f"index tensors have shapes {shape} and {i.shape}")
        if not i.dtype.is_int:
            raise DTypeError(f"an index tensor must hold integers, not {i.dtype.name}")
    return shape


def gather(x: UOp, indices: Sequence[UOp]) -> UOp:
    """``out[I.., rest..] = x[i0[I], i1[I], .., rest..]``; outside an axis reads 0."""
    shape = _check_indices(x, indices) + x.shape[len(indices) :]
    if 0 in x.shape:
        return _from_empty(x, shape, 0)
    try:
        node = make(O.GATHER, x.dtype, (x, *indices))
    except ComplexOperand:
        return _pairs().gather(x, indices)  # type: ignore[no-any-return]
    node._shape = shape
    return node


def scatter(x: UOp, values: UOp, indices: Sequence[UOp], mode: str) -> UOp:
    """x with the values set or added at the indices; outside an axis is dropped."""
    shape = _check_indices(x, indices) + x.shape[len(indices) :]
    if values.shape != shape:
        raise ShapeError(f"scatter into {x.shape} needs values of shape {shape}: {values.shape}")
    if values.dtype is not x.dtype:
        raise DTypeError(f"scatter needs one dtype, got {x.dtype.name} and {values.dtype.name}")
    if 0 in shape or 0 in x.shape:
        return x
    if mode == "add" and x.dtype is dt.bool_:  # "or", as everywhere: counted, then looked at
        counts = scatter(cast(x, dt.int64), cast(values, dt.int64), indices, mode)
        return binary(O.NE, counts, const(0, dt.int64))
    try:
        node = make(O.SCATTER, x.dtype, (x, values, *indices), mode)
    except ComplexOperand:
        return _pairs().scatter(x, values, indices, mode)  # type: ignore[no-any-return]
    node._shape = x.shape
    return node


def sort(
    words: UOp, count: int | None = None, low: int = 0, high: int = 64, shown: int = 64
) -> UOp:
    """The smallest ``count`` words (uint64) of the last axis, or all, in ascending order.

    Words alike in the bits from ``low`` to ``high`` must be in order already, and the bits from
    ``high`` on zero: then a stable sort by the bits between is a sort of the words. With
    ``shown``, the result is so many of the lowest bits of each word, as int64.
    """
    if words.dtype is not dt.uint64 or not words.shape:
        raise DTypeError(f"sort needs uint64 along an axis, not {words.dtype.name}{words.shape}")
    size = words.shape[-1]
    kept = size if count is None else count
    if not 1 <= kept <= size or not 0 <= low < high <= 64 or not 1 <= shown <= 64:
        raise ShapeError(f"sort cannot keep {kept} of {size} words by bits {low} to {high}")
    if size >> 32:
        raise ShapeError(f"sort counts in 32 bits: {size} words of an axis are too many")
    kind = dt.uint64 if shown == 64 else dt.int64
    return make(O.SORT, kind, (words,), SortArg(kept, low, high, shown))


# -- memory ------------------------------------------------------------------------------------


def contiguous(x: UOp) -> UOp:
    """x stored in a buffer of its own."""
    if x.op == O.CONTIGUOUS:
        return x
    if x.op == _COMPLEX:
        return complex_view(contiguous(x.src[0]))
    node = make(O.CONTIGUOUS, x.dtype, (x,))
    node._shape = x.shape
    return node


def copy(x: UOp, device_name: str) -> UOp:
    """x on another device."""
    if x.op == O.COMPLEX:
        return complex_view(copy(x.src[0], device_name))
    node = make(O.COPY, x.dtype, (x, device(device_name)))
    node._shape = x.shape
    return node


def assign(target: UOp, value: UOp) -> UOp:
    """Write ``value`` into the buffer behind ``target``; the node's value is the new target."""
    if target.shape != value.shape or target.dtype is not value.dtype:
        raise ShapeError(
            f"cannot assign {value.dtype!r}{list(value.shape)} to "
            f"{target.dtype!r}{list(target.shape)}"
        )
    if target.op == O.COMPLEX:
        return complex_view(assign(target.src[0], value.src[0]))
    node = make(O.ASSIGN, target.dtype, (target, value))
    node._shape = target.shape
    return node
