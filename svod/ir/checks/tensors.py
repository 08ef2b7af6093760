"""Checks of graphs of tensors: shapes, movement, memory, indexed access, loops of scans."""

from __future__ import annotations

from math import prod
from typing import Any, Final

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import (
    BufferArg,
    BufferRef,
    CustomArg,
    RadixArg,
    ReduceArg,
    ScanArg,
    SortArg,
    ViewArg,
)
from svod.ir.checks.values import (
    VALUES,
    Check,
    Table,
    dtypes_of,
    effect,
    is_shape,
    is_size,
    keeps_dtype,
    may_be,
)
from svod.ir.node import UOp, elements
from svod.ir.reductions import takes_reduction


def _movement(node: UOp) -> str | None:
    why = keeps_dtype(node)
    return why if why is not None else _MOVEMENT[node.op](node)


def _reshape(node: UOp) -> str | None:
    if not is_shape(node.arg):
        return f"{node.arg!r} is no shape"
    if prod(node.arg) - prod(node.src[0].shape) != 0:
        return f"{node.src[0].shape} and {node.arg} have different numbers of elements"
    return None


def _permute(node: UOp) -> str | None:
    if not _is_ints(node.arg) or sorted(node.arg) != list(range(len(node.src[0].shape))):
        return f"{node.arg!r} does not name every axis of {node.src[0].shape} once"
    return None


def _expand(node: UOp) -> str | None:
    inner = node.src[0].shape
    if not is_shape(node.arg) or len(node.arg) != len(inner):
        return f"{node.arg!r} is no shape of {len(inner)} axes"
    if any(a != b and a != 1 for a, b in zip(inner, node.arg, strict=True)):
        return f"{inner} cannot grow to {node.arg}: only axes of size 1 grow"
    return None


def _pad(node: UOp) -> str | None:
    if not _is_pairs(node.arg, len(node.src[0].shape)):
        return f"{node.arg!r} is not a pair (before, after) for each axis"
    if any(not may_be(amount, 0) for pair in node.arg for amount in pair):
        return f"it pads by a negative amount: {node.arg}"
    return None


def _shrink(node: UOp) -> str | None:
    inner = node.src[0].shape
    if not _is_pairs(node.arg, len(inner)):
        return f"{node.arg!r} is not a pair (start, stop) for each axis"
    pairs = zip(inner, node.arg, strict=True)
    if any(not (may_be(a, 0) and may_be(b, a) and may_be(n, b)) for n, (a, b) in pairs):
        return f"{node.arg} is not inside {inner}"
    return None


def _flip(node: UOp) -> str | None:
    return _axes(node.arg, node.src[0].shape)


def _axes(axes: Any, shape: tuple[int, ...]) -> str | None:
    if not _is_ints(axes) or len(set(axes)) != len(axes):
        return f"{axes!r} is not a tuple of different axes"
    if any(not 0 <= a < len(shape) for a in axes):
        return f"{axes} names an axis that {shape} does not have"
    return None


_MOVEMENT: Final[dict[int, Check]] = {
    O.RESHAPE: _reshape,
    O.PERMUTE: _permute,
    O.EXPAND: _expand,
    O.PAD: _pad,
    O.SHRINK: _shrink,
    O.FLIP: _flip,
}


def _reduce_axis(node: UOp) -> str | None:
    arg = node.arg
    if type(arg) is not ReduceArg or arg.op not in O.REDUCTIONS:
        return "its argument must be ReduceArg(op, axes) with a reduction"
    if not takes_reduction(arg.op, node.dtype):
        return f"{O.NAMES[arg.op]} is no reduction over {node.dtype!r}"
    return keeps_dtype(node) or _axes(arg.axes, node.src[0].shape)


def _buffer(node: UOp) -> str | None:
    if type(node.arg) not in (BufferRef, BufferArg) or node.arg.size < 0:
        return "its argument must be a BufferRef, or BufferArg(size)"
    if node.dtype.kind in "vx":
        return f"{node.dtype!r} cannot be stored"
    if node.src[-1].op != O.DEVICE or any(s.op not in _IDENTITY for s in node.src[:-1]):
        return "its sources must be (DEVICE) or (LUNIQUE, DEVICE)"
    return None


def _buffer_view(node: UOp) -> str | None:
    base, arg = node.src[0], node.arg
    if base.op not in _MEMORY:
        return "it must view a BUFFER"
    if type(arg) is not ViewArg or arg.size < 0 or arg.offset < 0:
        return "its argument must be ViewArg(size, offset), both from 0 up"
    held = elements(base.shape) * base.dtype.itemsize
    if (arg.offset + arg.size) * node.dtype.itemsize > held:
        return f"it reaches past the {held} bytes of its buffer"
    return None


def _copy(node: UOp) -> str | None:
    return keeps_dtype(node) if node.src[1].op == O.DEVICE else "its second source is no DEVICE"


def _assign(node: UOp) -> str | None:
    target, value = node.src
    if node.op == O.ASSIGN and node.dtype is not target.dtype:
        return f"it changes the dtype from {target.dtype!r} to {node.dtype!r}"
    if value.dtype is not target.dtype:
        return f"it writes {value.dtype!r} into {target.dtype!r}"
    if value.shape and value.shape != target.shape:
        return f"it writes {value.shape} into {target.shape}"
    while target.op in _WRITABLE_VIEWS:
        target = target.src[0]
    if target.op not in _MEMORY:
        return f"its target is a {O.NAMES[target.op]}, not memory behind movement ops"
    return None


def _store_tensor(node: UOp) -> str | None:
    return effect(node) or _assign(node)


def _iota(node: UOp) -> str | None:
    if not is_shape((node.arg,)):
        return f"its length must be an integer from 0 up, not {node.arg!r}"
    return f"{node.dtype!r} does not count" if node.dtype.kind in "bv" else None


def _gather(node: UOp) -> str | None:
    return keeps_dtype(node) or _indices(node.src[0], node.src[1:])


def _scatter(node: UOp) -> str | None:
    x, values, indices = node.src[0], node.src[1], node.src[2:]
    if node.arg not in ("set", "add", "max"):
        return f"its argument must be 'set', 'add' or 'max', not {node.arg!r}"
    if node.arg == "max" and not x.dtype.is_int:
        return f"it keeps the larger whole number, not {x.dtype!r}"
    if values.dtype is not x.dtype:
        return f"it writes {values.dtype!r} into {x.dtype!r}"
    if node.arg == "add" and x.dtype.kind == "b":
        return "bools do not add"
    why = keeps_dtype(node) or _indices(x, indices)
    if why is not None:
        return why
    wanted = indices[0].shape + x.shape[len(indices) :]
    if values.shape != wanted:
        return f"its values have shape {values.shape}, not {wanted}"
    return None


def _sort(node: UOp) -> str | None:
    x, arg = node.src[0], node.arg
    if type(arg) is not SortArg or not 0 <= arg.low < arg.high <= 64 or not 1 <= arg.shown <= 64:
        return "its argument must be SortArg(kept, low, high, shown) with bits of a word"
    if x.dtype is not dt.uint64 or not x.shape:
        return f"it sorts uint64 along an axis, not {x.dtype!r} of shape {x.shape}"
    if not 1 <= arg.kept <= x.shape[-1]:
        return f"it keeps {arg.kept} of {x.shape[-1]} words"
    gives = dt.uint64 if arg.shown == 64 else dt.int64
    return None if node.dtype is gives else f"it gives {gives!r}, not {node.dtype!r}"


def _radix(node: UOp) -> str | None:
    arg = node.arg
    if type(arg) is not RadixArg or not 0 <= arg.low <= 56 or arg.block < 1:
        return "its argument must be RadixArg(step, low, block) with a digit of a word"
    takes = {"count": (dt.uint64,), "start": (dt.uint32,), "deal": (dt.uint64, dt.uint32)}
    if arg.step not in takes:
        return f"it has no step {arg.step!r}: there are {', '.join(takes)}"
    if tuple([s.dtype for s in node.src]) != takes[arg.step]:
        return f"{arg.step!r} takes {takes[arg.step]}, not {dtypes_of(node.src)}"
    gives = dt.uint64 if arg.step == "deal" else dt.uint32
    return None if node.dtype is gives else f"{arg.step!r} gives {gives!r}, not {node.dtype!r}"


def _indices(x: UOp, indices: tuple[UOp, ...]) -> str | None:
    if len(indices) > len(x.shape):
        return f"{len(indices)} indices address the {len(x.shape)} axes of {x.shape}"
    if any(not i.dtype.is_int for i in indices):
        return f"indices are integers, not {dtypes_of(indices)}"
    if any(i.shape != indices[0].shape for i in indices):
        return f"its indices have different shapes: {', '.join([str(i.shape) for i in indices])}"
    return None


def _concatenation(node: UOp) -> str | None:
    axis, first = node.arg, node.src[0].shape
    if any(s.dtype is not node.dtype for s in node.src):
        return f"its pieces have the dtypes {dtypes_of(node.src)}, not {node.dtype!r}"
    if type(axis) is not int or not 0 <= axis < len(first):
        return f"{axis!r} is no axis of {first}"
    rest = {(*s.shape[:axis], 0, *s.shape[axis + 1 :]) for s in node.src}
    if len(rest) > 1 or any(len(s.shape) != len(first) for s in node.src):
        return (
            f"its pieces differ outside axis {axis}: {', '.join([str(s.shape) for s in node.src])}"
        )
    return None


def _custom(node: UOp) -> str | None:
    if type(node.arg) is not CustomArg or not is_shape(node.arg.shape):
        return "its argument must be CustomArg(kind, attrs, shape)"
    return None


def _scan(node: UOp) -> str | None:
    arg, body, value = node.arg, node.src[0], node.src[1]
    if type(arg) is not ScanArg or arg.length < 1:
        return "its argument must be ScanArg with at least one step"
    if body.op != O.SINK or len(body.src) != arg.carries:
        return f"its body must be a SINK of {arg.carries} carries"
    inputs = node.src[2:]
    if len(inputs) < arg.carries + arg.sequences:
        return (
            f"it has {len(inputs)} inputs for {arg.carries} carries and {arg.sequences} sequences"
        )
    for new, old in zip(body.src, inputs, strict=False):
        if new.shape != old.shape or new.dtype is not old.dtype:
            return f"a carry changes from {old.dtype!r}{old.shape} to {new.dtype!r}{new.shape}"
    for s in inputs[arg.carries : arg.carries + arg.sequences]:
        if not s.shape or s.shape[0] != arg.length:
            return f"a sequence of shape {s.shape} does not have {arg.length} steps"
    return None if node.dtype is value.dtype else f"its value is {value.dtype!r}"


def _number(node: UOp) -> str | None:
    return None if type(node.arg) is int else f"its argument must be an integer, not {node.arg!r}"


def _shards(node: UOp) -> str | None:
    if any(s.dtype is not node.dtype or s.shape != node.src[0].shape for s in node.src):
        return "its shards differ in dtype or shape"
    return None


def _is_ints(value: Any) -> bool:
    return type(value) is tuple and all(type(n) is int for n in value)


def _is_pairs(value: Any, rank: int) -> bool:
    return (
        type(value) is tuple
        and len(value) == rank
        and all(type(p) is tuple and len(p) == 2 and all(map(is_size, p)) for p in value)
    )


_IDENTITY: Final = frozenset({O.UNIQUE, O.LUNIQUE})
_MEMORY: Final = frozenset({O.BUFFER, O.BUFFER_VIEW, O.PARAM, O.MSELECT, O.MSTACK})
# EXPAND and PAD are missing: elements would overlap, or have no place.
_WRITABLE_VIEWS: Final = frozenset(
    {O.RESHAPE, O.PERMUTE, O.SHRINK, O.FLIP, O.BITCAST, O.ASSIGN, O.AFTER}
    # Those whose result is a buffer.
    | {O.CONTIGUOUS, O.COPY, O.SCATTER, O.CUSTOM_FUNCTION, O.SORT, O.RADIX}
)
TENSOR: Final[Table] = {
    **VALUES,
    **dict.fromkeys(O.MOVEMENT, (1, 1, _movement)),
    O.CONTIGUOUS: (1, 1, keeps_dtype),
    O.BUFFER: (1, 2, _buffer),
    O.BUFFER_VIEW: (1, 1, _buffer_view),
    O.COPY: (2, 2, _copy),
    O.SHARD: (1, 1, keeps_dtype),
    O.UNIQUE: (0, 0, _number),
    O.LUNIQUE: (0, 0, _number),
    O.ASSIGN: (2, 2, _assign),
    O.STORE: (2, 2, _store_tensor),
    O.REDUCE_AXIS: (1, 1, _reduce_axis),
    O.CUSTOM_FUNCTION: (0, None, _custom),
    O.MSELECT: (1, 1, _number),
    O.MSTACK: (1, None, _shards),
    O.IOTA: (0, 0, _iota),
    O.GATHER: (2, None, _gather),
    O.SCATTER: (3, None, _scatter),
    O.SORT: (1, 1, _sort),
    O.RADIX: (1, 2, _radix),
    O.CAT: (1, None, _concatenation),
    O.SCAN: (2, None, _scan),
    O.AFTER: (1, None, keeps_dtype),
}
