"""Checks of kernels: loops, memory accesses, reductions, vectors."""

from __future__ import annotations

from typing import Final

from svod.dtype import types as dt
from svod.ir import ops as O
from svod.ir.args import AxisKind, LocalArg, RangeArg
from svod.ir.checks.values import VALUES, Table, dtypes_of, effect, keeps_dtype
from svod.ir.node import UOp
from svod.ir.reductions import takes_reduction


def _range(node: UOp) -> str | None:
    arg = node.arg
    if type(arg) is not RangeArg or not isinstance(arg.kind, AxisKind) or type(arg.id) is not int:
        return "its argument must be RangeArg(id, kind)"
    if node.dtype is not dt.index or node.src[0].dtype is not dt.index:
        return (
            f"a loop counter and its size are index, not {node.dtype!r} and {dtypes_of(node.src)}"
        )
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
    return memory_and_gate(node)


def memory_and_gate(node: UOp) -> str | None:
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
    if node.arg not in (None, "ordered", "add", "max"):
        return f"its argument must be None, 'ordered', 'add' or 'max', not {node.arg!r}"
    return stored(node)


def stored(node: UOp) -> str | None:
    """What holds of every STORE, however it is made."""
    return effect(node) or _place(node, node.src[1].dtype, "writes")


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
    return keeps_dtype(node)


def _end(node: UOp) -> str | None:
    if node.src[0].op not in EFFECTS:
        return f"it closes loops around a {O.NAMES[node.src[0].op]}, which has no effect"
    if any(s.op != O.RANGE for s in node.src[1:]):
        return "it closes something that is not a RANGE"
    return effect(node)


def _sink(node: UOp) -> str | None:
    if any(s.op not in EFFECTS for s in node.src):
        return "it holds a source that is not an effect"
    return effect(node)


def _after(node: UOp) -> str | None:
    counters = (dt.index, dt.int64)  # a loop's counter is int64 once lowered
    if any(s.op not in EFFECTS and s.dtype not in counters for s in node.src[1:]):
        return "it waits for something that is neither an effect nor the step of a loop"
    return keeps_dtype(node)


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
        return f"it multiplies words of uint32, not {dtypes_of(node.src[:2])}"
    if any(s.dtype is not node.dtype for s in node.src[2:]):
        return f"it adds {dtypes_of(node.src[2:])} to {node.dtype!r}"
    return None


def _float_parts(node: UOp) -> str | None:
    if node.dtype.scalar not in (dt.float32, dt.float64):
        return f"it takes float32 and float64, not {node.dtype!r}"
    if any(s.dtype is not node.dtype for s in node.src):
        return f"it makes {node.dtype!r} of {dtypes_of(node.src)}"
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
        return f"it makes {node.dtype!r} of {dtypes_of(node.src)}"
    return None


def _shuffle(node: UOp) -> str | None:
    inner = node.src[0].dtype
    if node.src[-1].dtype is not inner or node.dtype is not inner.scalar.vec(len(node.arg)):
        return f"it makes {node.dtype!r} of {dtypes_of(node.src)}"
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


_BYTES: Final = ("u8s8", "s8u8", "s8s8", "u8u8")
_DOTS: Final = {"bf16": dt.float32, "i16": dt.int32, **dict.fromkeys(_BYTES, dt.int32)}
OFFSETS: Final = frozenset({dt.int32, dt.int64})  # what index becomes
EFFECTS: Final = frozenset({O.STORE, O.END, O.SINK})
KERNEL: Final[Table] = {
    **VALUES,
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


COPIED: Final[Table] = {
    **KERNEL,
    O.REDUCE: (1, None, _reduce),
}
