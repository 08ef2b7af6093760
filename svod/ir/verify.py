"""What must hold of a graph at each stage; a stage that breaks its own rules is stopped here.

``verify_tensor_graph`` is for graphs of tensors: what the user built, and kernel bodies before
rangeify. ``verify_kernel`` is for kernel bodies as loops over scalars and vectors. Both visit
every node once, sources first, so a check may trust the sources of its node. A broken rule
raises VerifyError with the stage, the reason and the node.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any, Final, TypeAlias

from svod.base.errors import VerifyError
from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import (
    AxisKind,
    BufferArg,
    BufferRef,
    CustomArg,
    LocalArg,
    ParamArg,
    RangeArg,
    ReduceArg,
    ScanArg,
    VarArg,
    ViewArg,
)
from svod.ir.evaluate import takes_dtype
from svod.ir.node import UOp, elements
from svod.ir.reductions import takes_reduction
from svod.ir.text import brief

Check: TypeAlias = Callable[[UOp], "str | None"]  # why the node is wrong, or None


def verify_tensor_graph(root: UOp, stage: str = "tensor graph") -> None:
    """Shapes, dtypes and arguments of every op agree with its sources."""
    for node in root.toposort():
        why = _check(node, _TENSOR)
        if why is None and node.dtype.lanes != 1:
            why = "a tensor has a scalar dtype; vectors belong to kernels"
        if why is not None:
            _fail(stage, node, why)


def verify_kernel(
    root: UOp, stage: str = "rangeify", *, shared_loops: bool = False, lowered: bool = False
) -> None:
    """A kernel body holds no tensor op, and its loops, loads and stores are well formed.

    A loop is closed once. With ``shared_loops``, for stages after the optimiser has copied a
    body, several reductions or stores may close the same loop, side by side but not nested, and
    a reduction may have copies of its value instead of loops.
    With ``lowered``, indices are machine integers and arguments tell the renderer which form of
    an operation is meant.
    """
    order = root.toposort()
    table = _LOWERED if lowered else _COPIED if shared_loops else _KERNEL
    for node in order:
        why = _check(node, table)
        if why is not None:
            _fail(stage, node, why)
    if root.op != O.SINK:
        _fail(stage, root, "a kernel is a SINK of stores")
    _check_users(order, stage)
    _check_loops(root, order, stage, shared_loops)


def _fail(stage: str, node: UOp, why: str) -> None:
    sources = "".join([f"\n    source {i}: {brief(s)}" for i, s in enumerate(node.src[:8])])
    raise VerifyError(why, stage, brief(node) + sources)


def _check(node: UOp, table: dict[int, tuple[int, int | None, Check]]) -> str | None:
    rule = table.get(node.op)
    if rule is None:
        name = O.NAMES.get(node.op, str(node.op))
        return f"{name} does not belong into {'tensor graphs' if table is _TENSOR else 'kernels'}"
    least, most, check = rule
    if len(node.src) < least or (most is not None and len(node.src) > most):
        upper = "or more" if most is None else f"to {most}"
        wanted = f"{least}" if most == least else f"{least} {upper}"
        return f"it has {len(node.src)} sources, not {wanted}"
    return check(node)


# -- elementwise, in both stages ---------------------------------------------------------------


def _alu(node: UOp) -> str | None:
    op, dtype, src = node.op, node.dtype, node.src
    operand = src[-1].dtype
    if any(s.dtype is not operand for s in src[1 if op == O.WHERE else 0 :]):
        return f"its operands have different dtypes: {_dtypes(src)}"
    if op == O.WHERE and src[0].dtype is not dt.bool_.vec(operand.lanes):
        return f"the condition is {src[0].dtype!r}, not {dt.bool_.vec(operand.lanes)!r}"
    if not takes_dtype(op, operand):
        return f"{O.NAMES[op]} does not take {operand!r}"
    wanted = dt.bool_.vec(operand.lanes) if op in O.COMPARE else operand
    if dtype is not wanted:
        return f"its dtype is {dtype!r}, but its operands make it {wanted!r}"
    return _same_shapes(node)


def _plain_alu(node: UOp) -> str | None:
    return _alu(node) if node.arg is None else "it takes no argument"


def _dtypes(src: tuple[UOp, ...]) -> str:
    return ", ".join([repr(s.dtype) for s in src])


def _same_shapes(node: UOp) -> str | None:
    shapes = {s.shape for s in node.src if s.shape}
    if len(shapes) > 1:
        return f"its operands have different shapes: {', '.join(sorted(map(str, shapes)))}"
    return None


def _cast(node: UOp) -> str | None:
    if node.dtype.kind == "v" or node.src[0].dtype.kind == "v":
        return "void has no values to cast"
    if node.dtype.lanes != node.src[0].dtype.lanes:
        return f"it changes the lanes of {node.src[0].dtype!r}"
    return None


def _bitcast(node: UOp) -> str | None:
    source = node.src[0].dtype
    if "v" in (node.dtype.kind, source.kind) or node.dtype.bits != source.bits:
        return f"a BITCAST keeps the width, but {source!r} and {node.dtype!r} differ"
    if node.dtype.kind == "b":
        return "bits other than 0 and 1 are no bool; compare with zero instead"
    return _cast(node)


def _constant(node: UOp) -> str | None:
    kinds = {"b": bool, "f": float, "u": int, "i": int, "x": int}
    if type(node.arg) is not kinds.get(node.dtype.kind):
        return f"a constant of {node.dtype!r} cannot be {node.arg!r}"
    if type(node.arg) is int:
        lo, hi = dt.integer_limits(node.dtype)
        if not lo <= node.arg <= hi:
            return f"{node.arg} is outside {node.dtype!r}"
    return None


def _variable(node: UOp) -> str | None:
    if type(node.arg) is not VarArg or not node.arg.lo <= node.arg.hi:
        return "its argument must be VarArg(name, lo, hi) with lo <= hi"
    return None


def _bind(node: UOp) -> str | None:
    variable, value = node.src
    if variable.op != O.DEFINE_VAR or value.op not in (O.CONST, O.RANGE):
        return "it binds a DEFINE_VAR to a CONST or a RANGE"
    if value.vmin < variable.arg.lo or value.vmax > variable.arg.hi:
        lo, hi = variable.arg.lo, variable.arg.hi
        return f"the value {value.vmin}..{value.vmax} is outside {variable.arg.name} = {lo}..{hi}"
    return _keeps_dtype(node)


def _param(node: UOp) -> str | None:
    arg = node.arg
    if type(arg) is not ParamArg or type(arg.slot) is not int or not _is_shape(arg.shape):
        return "its argument must be ParamArg(slot, shape)"
    if node.dtype.kind == "v" or arg.slot < 0:
        return f"slot {arg.slot} of {node.dtype!r} is no parameter"
    if node.src and node.src[0].op != O.DEVICE:
        return "its source must be a DEVICE"
    return None


def _effect(node: UOp) -> str | None:
    return (
        None
        if node.dtype is dt.void
        else f"it has no value, so its dtype is void, not {node.dtype!r}"
    )


def _keeps_dtype(node: UOp) -> str | None:
    if node.dtype is not node.src[0].dtype:
        return f"it changes the dtype from {node.src[0].dtype!r} to {node.dtype!r}"
    return None


def _is_ints(value: Any) -> bool:
    return type(value) is tuple and all(type(n) is int for n in value)


def _is_size(value: Any) -> bool:
    """A number, or an index expression of variables."""
    return type(value) is int or (type(value) is UOp and value.dtype is dt.index)


def _is_shape(value: Any) -> bool:
    return type(value) is tuple and all(_is_size(n) and _may_be(n, 0) for n in value)


def _may_be(size: Any, least: Any) -> bool:
    """Whether some values of the variables make the size at least so large."""
    difference = size - least
    return bool((difference.vmax if isinstance(difference, UOp) else difference) >= 0)


def _is_pairs(value: Any, rank: int) -> bool:
    return (
        type(value) is tuple
        and len(value) == rank
        and all(type(p) is tuple and len(p) == 2 and all(map(_is_size, p)) for p in value)
    )


# -- tensor graph ------------------------------------------------------------------------------


def _movement(node: UOp) -> str | None:
    why = _keeps_dtype(node)
    return why if why is not None else _MOVEMENT[node.op](node)


def _reshape(node: UOp) -> str | None:
    if not _is_shape(node.arg):
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
    if not _is_shape(node.arg) or len(node.arg) != len(inner):
        return f"{node.arg!r} is no shape of {len(inner)} axes"
    if any(a != b and a != 1 for a, b in zip(inner, node.arg, strict=True)):
        return f"{inner} cannot grow to {node.arg}: only axes of size 1 grow"
    return None


def _pad(node: UOp) -> str | None:
    if not _is_pairs(node.arg, len(node.src[0].shape)):
        return f"{node.arg!r} is not a pair (before, after) for each axis"
    if any(not _may_be(amount, 0) for pair in node.arg for amount in pair):
        return f"it pads by a negative amount: {node.arg}"
    return None


def _shrink(node: UOp) -> str | None:
    inner = node.src[0].shape
    if not _is_pairs(node.arg, len(inner)):
        return f"{node.arg!r} is not a pair (start, stop) for each axis"
    pairs = zip(inner, node.arg, strict=True)
    if any(not (_may_be(a, 0) and _may_be(b, a) and _may_be(n, b)) for n, (a, b) in pairs):
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
    return _keeps_dtype(node) or _axes(arg.axes, node.src[0].shape)


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
    return _keeps_dtype(node) if node.src[1].op == O.DEVICE else "its second source is no DEVICE"


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
    return _effect(node) or _assign(node)


def _iota(node: UOp) -> str | None:
    if not _is_shape((node.arg,)):
        return f"its length must be an integer from 0 up, not {node.arg!r}"
    return f"{node.dtype!r} does not count" if node.dtype.kind in "bv" else None


def _gather(node: UOp) -> str | None:
    return _keeps_dtype(node) or _indices(node.src[0], node.src[1:])


def _scatter(node: UOp) -> str | None:
    x, values, indices = node.src[0], node.src[1], node.src[2:]
    if node.arg not in ("set", "add"):
        return f"its argument must be 'set' or 'add', not {node.arg!r}"
    if values.dtype is not x.dtype:
        return f"it writes {values.dtype!r} into {x.dtype!r}"
    if node.arg == "add" and x.dtype.kind == "b":
        return "bools do not add"
    why = _keeps_dtype(node) or _indices(x, indices)
    if why is not None:
        return why
    wanted = indices[0].shape + x.shape[len(indices) :]
    if values.shape != wanted:
        return f"its values have shape {values.shape}, not {wanted}"
    return None


def _indices(x: UOp, indices: tuple[UOp, ...]) -> str | None:
    if len(indices) > len(x.shape):
        return f"{len(indices)} indices address the {len(x.shape)} axes of {x.shape}"
    if any(not i.dtype.is_int for i in indices):
        return f"indices are integers, not {_dtypes(indices)}"
    if any(i.shape != indices[0].shape for i in indices):
        return f"its indices have different shapes: {', '.join([str(i.shape) for i in indices])}"
    return None


def _concatenation(node: UOp) -> str | None:
    axis, first = node.arg, node.src[0].shape
    if any(s.dtype is not node.dtype for s in node.src):
        return f"its pieces have the dtypes {_dtypes(node.src)}, not {node.dtype!r}"
    if type(axis) is not int or not 0 <= axis < len(first):
        return f"{axis!r} is no axis of {first}"
    rest = {(*s.shape[:axis], 0, *s.shape[axis + 1 :]) for s in node.src}
    if len(rest) > 1 or any(len(s.shape) != len(first) for s in node.src):
        return (
            f"its pieces differ outside axis {axis}: {', '.join([str(s.shape) for s in node.src])}"
        )
    return None


def _custom(node: UOp) -> str | None:
    if type(node.arg) is not CustomArg or not _is_shape(node.arg.shape):
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


def _device(node: UOp) -> str | None:
    return None if type(node.arg) is str else f"its argument must be a name, not {node.arg!r}"


def _shards(node: UOp) -> str | None:
    if any(s.dtype is not node.dtype or s.shape != node.src[0].shape for s in node.src):
        return "its shards differ in dtype or shape"
    return None


_IDENTITY: Final = frozenset({O.UNIQUE, O.LUNIQUE})
_MEMORY: Final = frozenset({O.BUFFER, O.BUFFER_VIEW, O.PARAM, O.MSELECT, O.MSTACK})
# EXPAND and PAD are missing: elements would overlap, or have no place.
_WRITABLE_VIEWS: Final = frozenset(
    {O.RESHAPE, O.PERMUTE, O.SHRINK, O.FLIP, O.BITCAST, O.ASSIGN, O.AFTER}
    | {O.CONTIGUOUS, O.COPY, O.SCATTER, O.CUSTOM_FUNCTION}  # whose result is a buffer
)
_VALUES: Final[dict[int, tuple[int, int | None, Check]]] = {
    **dict.fromkeys(O.UNARY, (1, 1, _plain_alu)),
    **dict.fromkeys(O.BINARY_OPS, (2, 2, _plain_alu)),
    **dict.fromkeys(O.TERNARY, (3, 3, _plain_alu)),
    O.CONST: (0, 0, _constant),
    O.CAST: (1, 1, _cast),
    O.BITCAST: (1, 1, _bitcast),
    O.DEFINE_VAR: (0, 0, _variable),
    O.BIND: (2, 2, _bind),
    O.PARAM: (0, 1, _param),
    O.SINK: (0, None, _effect),
    O.DEVICE: (0, 0, _device),
}
# Op to the least and largest number of sources (None: any) and the check.
_TENSOR: Final[dict[int, tuple[int, int | None, Check]]] = {
    **_VALUES,
    **dict.fromkeys(O.MOVEMENT, (1, 1, _movement)),
    O.CONTIGUOUS: (1, 1, _keeps_dtype),
    O.BUFFER: (1, 2, _buffer),
    O.BUFFER_VIEW: (1, 1, _buffer_view),
    O.COPY: (2, 2, _copy),
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
    O.CAT: (1, None, _concatenation),
    O.SCAN: (2, None, _scan),
    O.AFTER: (1, None, _keeps_dtype),
}


# -- kernels -----------------------------------------------------------------------------------


def _range(node: UOp) -> str | None:
    arg = node.arg
    if type(arg) is not RangeArg or not isinstance(arg.kind, AxisKind) or type(arg.id) is not int:
        return "its argument must be RangeArg(id, kind)"
    if node.dtype is not dt.index or node.src[0].dtype is not dt.index:
        return f"a loop counter and its size are index, not {node.dtype!r} and {_dtypes(node.src)}"
    return None


def _special(node: UOp) -> str | None:
    if type(node.arg) is not str or node.dtype is not dt.index:
        return "its argument must be the name of a hardware index, its dtype index"
    return None


def _local(node: UOp) -> str | None:
    if type(node.arg) is not LocalArg or node.arg.size <= 0:
        return "its argument must be LocalArg(size, id) with a positive size"
    return None


def _memory_of(place: UOp) -> UOp:
    memory = place.src[0]
    while memory.op == O.AFTER:
        memory = memory.src[0]
    return memory


def _index(node: UOp) -> str | None:
    if node.src[1].dtype.scalar is not dt.index:
        return f"its offset is {node.src[1].dtype!r}, not index"
    return _memory_and_gate(node)


def _memory_and_gate(node: UOp) -> str | None:
    memory, offset = _memory_of(node), node.src[1]
    if memory.op not in (O.PARAM, O.DEFINE_LOCAL):
        return f"it points into a {O.NAMES[memory.op]}, not a PARAM or DEFINE_LOCAL"
    if node.dtype.scalar is not memory.dtype.scalar and not _is_word(node.dtype, memory.dtype):
        return f"its dtype is {node.dtype!r}, but the memory holds {memory.dtype!r}"
    if len(node.src) == 3:
        gate = node.src[2].dtype
        # A vector at one place has a gate per lane; LOAD and STORE compare the lanes.
        if gate.scalar is not dt.bool_ or (
            node.arg != "vector" and gate.lanes not in (1, offset.dtype.lanes)
        ):
            return f"its gate is {gate!r}, not bool"
    if node.arg not in (None, "vector", "each"):
        return f"its argument must be None, 'vector' or 'each', not {node.arg!r}"
    if node.arg is not None and (offset.dtype.lanes > 1) != (node.arg == "each"):
        return f"its offset is {offset.dtype!r}, which does not fit {node.arg!r}"
    return None


def _is_word(value: dt.DType, memory: dt.DType) -> bool:
    """Whether a value is a word of several elements, as DOT takes them."""
    return value.scalar is dt.uint32 and memory.itemsize < value.scalar.itemsize


def _place(node: UOp, value: dt.DType, verb: str) -> str | None:
    place = node.src[0]
    if place.op != O.INDEX:
        return f"it {verb} a {O.NAMES[place.op]}, not an INDEX"
    memory = _memory_of(place).dtype
    if value.scalar is not memory.scalar and not (verb == "reads" and _is_word(value, memory)):
        return f"it {verb} memory of {memory!r} as {value!r}"
    lanes = place.src[1].dtype.lanes
    if lanes not in (1, value.lanes):
        return f"it {verb} {value.lanes} lanes at {lanes} places"
    if len(place.src) == 3 and place.src[2].dtype.lanes not in (1, value.lanes):
        return f"it {verb} {value.lanes} lanes through a gate of {place.src[2].dtype.lanes}"
    return None


def _load(node: UOp) -> str | None:
    why = _place(node, node.dtype, "reads")
    if why is None and len(node.src) == 2 and node.src[1].dtype is not node.dtype:
        return f"its alternative is {node.src[1].dtype!r}, not {node.dtype!r}"
    return why


def _store(node: UOp) -> str | None:
    if node.arg not in (None, "ordered"):
        return f"its argument must be None or 'ordered', not {node.arg!r}"
    return _effect(node) or _place(node, node.src[1].dtype, "writes")


def _reduce(node: UOp) -> str | None:
    if node.arg not in O.REDUCTIONS or not takes_reduction(node.arg, node.dtype):
        return f"{O.NAMES.get(node.arg, node.arg)} is no reduction over {node.dtype!r}"
    values = [s for s in node.src[1:] if s.op != O.RANGE]
    if any(s.op == O.RANGE for s in node.src[1 : len(values) + 1]):
        return "its values come first, then its RANGEs"
    for value in (node.src[0], *values):
        if value.dtype is not node.dtype:
            return f"it folds {value.dtype!r} into {node.dtype!r}"
    return None


def _reduce_with_loops(node: UOp) -> str | None:
    has_loop = any(s.op == O.RANGE for s in node.src)
    return _reduce(node) if has_loop else "it folds over no RANGE"


def _accumulator(node: UOp) -> str | None:
    if any(s.op != O.RANGE for s in node.src[1:]):
        return "it is carried by RANGEs only"
    return _keeps_dtype(node)


def _end(node: UOp) -> str | None:
    if node.src[0].op not in _EFFECTS:
        return f"it closes loops around a {O.NAMES[node.src[0].op]}, which has no effect"
    if any(s.op != O.RANGE for s in node.src[1:]):
        return "it closes something that is not a RANGE"
    return _effect(node)


def _sink(node: UOp) -> str | None:
    if any(s.op not in _EFFECTS for s in node.src):
        return "it holds a source that is not an effect"
    return _effect(node)


def _after(node: UOp) -> str | None:
    counters = (dt.index, dt.int64)  # a loop's counter is int64 once lowered
    if any(s.op not in _EFFECTS and s.dtype not in counters for s in node.src[1:]):
        return "it waits for something that is neither an effect nor the step of a loop"
    return _keeps_dtype(node)


def _broadcast(node: UOp) -> str | None:
    if node.src[0].dtype.lanes != 1 or node.src[0].dtype is not node.dtype.scalar:
        return f"it spreads {node.src[0].dtype!r} over the lanes of {node.dtype!r}"
    return None


def _lanes(node: UOp) -> str | None:
    if node.dtype.scalar is not dt.index or node.arg != node.dtype.lanes:
        return f"it counts {node.arg!r} lanes in {node.dtype!r}"
    return None


def _dot(node: UOp) -> str | None:
    if node.arg not in _DOTS:
        return f"{node.arg!r} is not one of {', '.join(_DOTS)}"
    lanes = node.dtype.lanes
    if node.dtype is not _DOTS[node.arg].vec(lanes):
        return f"its sum is {_DOTS[node.arg].vec(lanes)!r}, not {node.dtype!r}"
    if any(s.dtype is not dt.uint32.vec(lanes) for s in node.src[:2]):
        return f"it multiplies words of uint32, not {_dtypes(node.src[:2])}"
    if any(s.dtype is not node.dtype for s in node.src[2:]):
        return f"it adds {_dtypes(node.src[2:])} to {node.dtype!r}"
    return None


def _float_parts(node: UOp) -> str | None:
    if node.dtype.scalar not in (dt.float32, dt.float64):
        return f"it takes float32 and float64, not {node.dtype!r}"
    if any(s.dtype is not node.dtype for s in node.src):
        return f"it makes {node.dtype!r} of {_dtypes(node.src)}"
    return None


def _element(node: UOp) -> str | None:
    inner = node.src[0].dtype
    if type(node.arg) is not int or not 0 <= node.arg < inner.lanes:
        return f"{inner!r} has no lane {node.arg!r}"
    if node.dtype is not inner.scalar:
        return f"a lane of {inner!r} is {inner.scalar!r}, not {node.dtype!r}"
    return None


def _vectorize(node: UOp) -> str | None:
    if node.dtype.lanes != len(node.src) or any(s.dtype is not node.dtype.scalar for s in node.src):
        return f"it makes {node.dtype!r} of {_dtypes(node.src)}"
    return None


def _shuffle(node: UOp) -> str | None:
    inner = node.src[0].dtype
    if node.src[-1].dtype is not inner or node.dtype is not inner.scalar.vec(len(node.arg)):
        return f"it makes {node.dtype!r} of {_dtypes(node.src)}"
    lanes = inner.lanes * len(node.src)
    if not all(-1 <= lane < lanes for lane in node.arg):
        return f"it takes lanes {node.arg} of {lanes}"
    return None


def _lane_reduce(node: UOp) -> str | None:
    if node.arg not in O.REDUCTIONS or not takes_reduction(node.arg, node.dtype):
        return f"{O.NAMES.get(node.arg, node.arg)} is no reduction over {node.dtype!r}"
    if node.dtype is not node.src[0].dtype.scalar:
        return f"it folds {node.src[0].dtype!r} into {node.dtype!r}"
    return None


_DOTS: Final = {"bf16": dt.float32, "i16": dt.int32, "u8s8": dt.int32, "s8u8": dt.int32}
_OFFSETS: Final = frozenset({dt.int32, dt.int64})  # what index becomes
_EFFECTS: Final = frozenset({O.STORE, O.END, O.SINK, O.BARRIER})
_KERNEL: Final[dict[int, tuple[int, int | None, Check]]] = {
    **_VALUES,
    O.SINK: (1, None, _sink),
    O.RANGE: (1, 1, _range),
    O.SPECIAL: (1, 1, _special),
    O.DEFINE_LOCAL: (0, 0, _local),
    O.INDEX: (2, 3, _index),
    O.LOAD: (1, 2, _load),
    O.STORE: (2, 2, _store),
    O.REDUCE: (2, None, _reduce_with_loops),
    O.ACC: (2, None, _accumulator),
    O.END: (1, None, _end),
    O.AFTER: (2, None, _after),
    O.BARRIER: (0, None, _effect),
    O.BROADCAST: (1, 1, _broadcast),
    O.LANES: (0, 0, _lanes),
    O.DOT: (2, 3, _dot),
    O.LDEXP: (2, 2, _float_parts),
    O.EXPONENT: (1, 1, _float_parts),
    O.SIGNIFICAND: (1, 1, _float_parts),
    O.GEP: (1, 1, _element),
    O.VECTORIZE: (1, None, _vectorize),
    O.SHUFFLE: (1, 2, _shuffle),
    O.LANE_REDUCE: (1, 1, _lane_reduce),
}


_COPIED: Final[dict[int, tuple[int, int | None, Check]]] = {
    **_KERNEL,
    O.REDUCE: (1, None, _reduce),
}

# -- lowered kernels ---------------------------------------------------------------------------


def _lowered_alu(node: UOp) -> str | None:
    if node.arg in _FORMS.get(node.op, _NO_FORM) or _is_harmless(node):
        return _alu(node)
    return f"{node.arg!r} is no form of {O.NAMES[node.op]}"


def _is_harmless(node: UOp) -> bool:
    """A shift whose amount is below the width, whatever happens."""
    amount = node.src[-1]
    if node.op not in (O.SHL, O.SHR) or node.arg is not None:
        return False
    return bool(amount.vmin >= 0 and amount.vmax < node.dtype.scalar.bits)


def _lowered_constant(node: UOp) -> str | None:
    """Integers stand for their bits, so -1 is a constant of every machine type."""
    if type(node.arg) is int and node.dtype.kind == "u" and -(1 << 63) <= node.arg < 0:
        return None
    return _constant(node)


def _lowered_range(node: UOp) -> str | None:
    if type(node.arg) is not RangeArg or node.dtype is not dt.int64:
        return f"a lowered loop counter is int64, not {node.dtype!r}"
    return None if node.src[0].dtype is dt.int64 else f"its size is {node.src[0].dtype!r}"


def _lowered_index(node: UOp) -> str | None:
    offset = node.src[1].dtype
    if offset is not dt.int64 and (offset.lanes == 1 or offset.scalar not in _OFFSETS):
        return f"its offset is {offset!r}, not int64 or a vector of int32 or int64"
    return _memory_and_gate(node)


def _lowered_lanes(node: UOp) -> str | None:
    if node.dtype.scalar not in _OFFSETS or node.arg != node.dtype.lanes:
        return f"it counts {node.arg!r} lanes in {node.dtype!r}"
    return None


_NO_FORM: Final[tuple[str | None, ...]] = (None,)
# What the argument of a lowered operation may say; the renderer has one form for each.
_FORMS: Final[dict[int, tuple[str | None, ...]]] = {
    O.IDIV: ("trunc", "nonneg"),
    O.MOD: ("trunc", "nonneg"),
    O.SHL: ("inrange",),
    O.SHR: ("inrange",),
}
_LOWERED: Final[dict[int, tuple[int, int | None, Check]]] = {
    **_COPIED,
    **dict.fromkeys(O.UNARY, (1, 1, _lowered_alu)),
    **dict.fromkeys(O.BINARY_OPS, (2, 2, _lowered_alu)),
    **dict.fromkeys(O.TERNARY, (3, 3, _lowered_alu)),
    O.CONST: (0, 0, _lowered_constant),
    O.RANGE: (1, 1, _lowered_range),
    O.INDEX: (2, 3, _lowered_index),
    O.LANES: (0, 0, _lowered_lanes),
}
del _LOWERED[O.LANE_REDUCE]  # folded in halves by now


def _check_users(order: list[UOp], stage: str) -> None:
    """Effects are held by effects and waited for by AFTER; memory is only pointed into."""
    for node in order:
        for position, source in enumerate(node.src):
            if source.op in _EFFECTS and not (
                node.op in _EFFECTS or (node.op == O.AFTER and position)
            ):
                _fail(stage, node, f"it uses the {O.NAMES[source.op]} as a value")
            if source.op in (O.PARAM, O.DEFINE_LOCAL) and node.op not in (O.INDEX, O.AFTER):
                _fail(
                    stage, node, f"it uses the {O.NAMES[source.op]} itself, without INDEX and LOAD"
                )
            if source.op == O.INDEX and node.op not in (O.LOAD, O.STORE):
                _fail(stage, node, "it uses a place in memory as a value, without LOAD")
            if source.op == O.DEVICE and node.op != O.PARAM:
                _fail(stage, node, "it uses a DEVICE")


def _check_loops(root: UOp, order: list[UOp], stage: str, shared_loops: bool) -> None:
    closers: dict[UOp, UOp] = {}
    closed: dict[UOp, frozenset[UOp]] = {}  # the loops that end below a node
    numbers: dict[int, UOp] = {}
    for node in order:
        below: frozenset[UOp] = frozenset()
        for source in node.src[:1] if node.op == O.AFTER else node.src:
            if not closed[source] <= below:
                below |= closed[source]
        if node.op == O.RANGE and numbers.setdefault(node.arg.id, node) is not node:
            other = brief(numbers[node.arg.id])
            _fail(stage, node, f"its id is also that of another loop: {other}")
        if node.op in (O.END, O.REDUCE):
            ranges = [s for s in node.src[1:] if s.op == O.RANGE]
            for loop in ranges:
                if loop in below or ranges.count(loop) > 1:
                    _fail(
                        stage, node, f"it closes {brief(loop)}, which is already closed inside it"
                    )
                if closers.setdefault(loop, node) is not node and not shared_loops:
                    other = brief(closers[loop])
                    _fail(stage, node, f"it closes {brief(loop)}, which {other} closes too")
            below = below.union(ranges)
        closed[node] = below
    for node in order:
        if node.op == O.RANGE and node not in closers:
            _fail(stage, node, "no END or REDUCE closes this loop")
    if root.ranges:
        loop = min(root.ranges, key=lambda r: r.sn)
        _fail(stage, loop, f"it is also used outside of {brief(closers[loop])}, which closes it")
