"""Verifiers: every rule refuses a graph that breaks it, with a text that names the node."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

import svod.dtype as sd
from svod.base.errors import VerifyError
from svod.dtype import DType
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
    VarArg,
    ViewArg,
)
from svod.ir.checks.threads import THREADS
from svod.ir.node import UOp, const, make
from svod.ir.verify import verify_kernel, verify_tensor_graph

F32, I32, BOOL, INDEX, VOID = sd.float32, sd.int32, sd.bool_, sd.index, sd.void


def param(shape: tuple[int, ...] = (2, 3), dtype: DType = F32, slot: int = 0) -> UOp:
    return make(O.PARAM, dtype, (), ParamArg(slot, shape))


X, Y, Z = param(), param(slot=1), param((3, 2), slot=2)
N, M, B = param(dtype=I32), param(dtype=I32, slot=1), param(dtype=BOOL)
U64 = param(dtype=sd.uint64)
CPU = make(O.DEVICE, VOID, (), "CPU")
BUFFER = make(O.BUFFER, F32, (CPU,), BufferRef(6))
ROWS = param((5,), sd.int64, 3)
ONE, ONE_INDEX = const(1.0, F32), const(1, INDEX)
VARIABLE = make(O.DEFINE_VAR, INDEX, (), VarArg("n", 1, 8))

GOOD_TENSOR: list[UOp] = [
    make(O.ADD, F32, (X, Y)),
    make(O.ADD, F32, (X, ONE)),
    make(O.LT, BOOL, (X, Y)),
    make(O.WHERE, F32, (B, X, ONE)),
    make(O.SHL, I32, (N, M)),
    make(O.AND, BOOL, (B, B)),
    make(O.CAST, sd.bfloat16, (X,)),
    make(O.BITCAST, I32, (X,)),
    make(O.RESHAPE, F32, (X,), (6,)),
    make(O.RESHAPE, F32, (ONE,), (1, 1)),
    make(O.PERMUTE, F32, (X,), (1, 0)),
    make(O.EXPAND, F32, (param((1, 3)),), (7, 3)),
    make(O.PAD, F32, (X,), ((0, 1), (2, 0))),
    make(O.SHRINK, F32, (X,), ((0, 1), (3, 3))),
    make(O.FLIP, F32, (X,), (0, 1)),
    make(O.REDUCE_AXIS, F32, (X,), ReduceArg(O.ADD, (1,))),
    make(O.REDUCE_AXIS, BOOL, (B,), ReduceArg(O.OR, (0, 1))),
    make(O.CONTIGUOUS, F32, (X,)),
    make(O.COPY, F32, (X, CPU)),
    make(O.BUFFER, F32, (make(O.LUNIQUE, VOID, (), 1), CPU), BufferArg(4)),
    make(O.BUFFER_VIEW, sd.uint8, (BUFFER,), ViewArg(8, 16)),
    make(O.ASSIGN, F32, (make(O.SHRINK, F32, (BUFFER,), ((0, 2),)), param((2,)))),
    make(O.SINK, VOID, (make(O.STORE, VOID, (X, Y)),)),
    make(O.IOTA, sd.int64, (), 4),
    make(O.GATHER, F32, (X, ROWS)),
    make(O.SCATTER, F32, (X, param((5, 3)), ROWS), "add"),
    make(O.CAT, F32, (X, Y, param((4, 3))), 0),
    make(O.BIND, INDEX, (VARIABLE, const(8, INDEX))),
    make(O.CUSTOM_FUNCTION, F32, (X, N), CustomArg("sort", (), (4, 4))),
    make(O.AFTER, F32, (BUFFER, make(O.SINK, VOID))),
]


@pytest.mark.parametrize("root", GOOD_TENSOR, ids=repr)
def test_good_tensor_graphs_pass(root: UOp) -> None:
    verify_tensor_graph(root)


# A plain tuple equals the record with its values, so it must not be one that others use.
BAD_TENSOR: list[tuple[UOp, str]] = [
    # elementwise
    (make(O.ADD, F32, (X,)), "it has 1 sources, not 2"),
    (make(O.ADD, F32, (X, N)), "its operands have different dtypes: f32, i32"),
    (make(O.ADD, F32, (X, Z)), r"its operands have different shapes: \(2, 3\), \(3, 2\)"),
    (make(O.ADD, F32, (X, param((1, 3)))), "its operands have different shapes"),
    (make(O.ADD, sd.float64, (X, Y)), "its dtype is f64, but its operands make it f32"),
    (make(O.LT, F32, (X, Y)), "its dtype is f32, but its operands make it bool"),
    (make(O.EXP, I32, (N,)), "EXP does not take i32"),
    (make(O.DIV, I32, (N, M)), "DIV does not take i32"),
    (make(O.SHL, F32, (X, Y)), "SHL does not take f32"),
    (make(O.IDIV, F32, (X, Y)), "IDIV does not take f32"),
    (make(O.MOD, BOOL, (B, B)), "MOD does not take bool"),
    (make(O.XOR, F32, (X, Y)), "XOR does not take f32"),
    (make(O.NEG, BOOL, (B,)), "NEG does not take bool"),
    (make(O.ADD, BOOL, (B, B)), "ADD does not take bool"),
    (make(O.WHERE, F32, (X, X, Y)), "the condition is f32, not bool"),
    (make(O.WHERE, F32, (B, X, N)), "its operands have different dtypes"),
    (make(O.WHERE, I32, (B, X, Y)), "its dtype is i32, but its operands make it f32"),
    (make(O.ADD, F32, (X, Y), 3), "it takes no argument"),
    (make(O.ADD, F32.vec(4), (const(0, F32.vec(4)),) * 2), "vectors belong to kernels"),
    (make(O.CAST, VOID, (X,)), "void has no values"),
    (make(O.BITCAST, sd.int16, (X,)), "a BITCAST keeps the width, but f32 and i16 differ"),
    (make(O.BITCAST, BOOL, (param(dtype=sd.uint8),)), "are no bool"),
    (make(O.CONST, F32, (), 1), "a constant of f32 cannot be 1"),
    (const(300, sd.uint8), "300 is outside u8"),
    # movement
    (make(O.RESHAPE, F32, (X,), (4, 2)), r"\(2, 3\) and \(4, 2\) have different numbers"),
    (make(O.RESHAPE, F32, (X,), 6), "6 is no shape"),
    (make(O.RESHAPE, F32, (X,), (-2, -3)), r"\(-2, -3\) is no shape"),
    (make(O.RESHAPE, I32, (X,), (6,)), "it changes the dtype from f32 to i32"),
    (make(O.PERMUTE, F32, (X,), (0, 0)), r"\(0, 0\) does not name every axis of \(2, 3\) once"),
    (make(O.PERMUTE, F32, (X,), (0,)), "does not name every axis"),
    (make(O.PERMUTE, F32, (X,), (0, 2)), "does not name every axis"),
    (make(O.EXPAND, F32, (X,), (4, 3)), "only axes of size 1 grow"),
    (make(O.EXPAND, F32, (X,), (1, 2, 3)), "is no shape of 2 axes"),
    (make(O.PAD, F32, (X,), ((0, -1), (0, 0))), "it pads by a negative amount"),
    (make(O.PAD, F32, (X,), ((0, 1),)), "is not a pair"),
    (make(O.SHRINK, F32, (X,), ((0, 3), (0, 3))), r"is not inside \(2, 3\)"),
    (make(O.SHRINK, F32, (X,), ((1, 0), (0, 3))), "is not inside"),
    (make(O.SHRINK, F32, (X,), (0, 1)), "is not a pair"),
    (make(O.FLIP, F32, (X,), (2,)), "names an axis that"),
    (make(O.FLIP, F32, (X,), (1, 1)), "is not a tuple of different axes"),
    # reductions, memory, indexing
    (make(O.REDUCE_AXIS, F32, (X,), ReduceArg(O.ADD, (2,))), "names an axis that"),
    (make(O.REDUCE_AXIS, F32, (X,), ReduceArg(O.SUB, (1,))), "with a reduction"),
    (make(O.REDUCE_AXIS, F32, (X,), (O.MIN, (7, 7))), "must be ReduceArg"),
    (make(O.REDUCE_AXIS, F32, (X,), ReduceArg(O.XOR, (1,))), "XOR is no reduction over f32"),
    (make(O.REDUCE_AXIS, BOOL, (B,), ReduceArg(O.ADD, (1,))), "ADD is no reduction over bool"),
    (make(O.REDUCE_AXIS, I32, (X,), ReduceArg(O.ADD, (1,))), "changes the dtype"),
    (make(O.CONTIGUOUS, I32, (X,)), "changes the dtype"),
    (make(O.COPY, F32, (X, Y)), "its second source is no DEVICE"),
    (make(O.BUFFER, F32, (X,), BufferArg(3)), "its sources must be"),
    (make(O.BUFFER, F32, (CPU,), ViewArg(3, 0)), "must be a BufferRef"),
    (make(O.BUFFER, INDEX, (CPU,), BufferArg(3)), "idx cannot be stored"),
    (make(O.BUFFER_VIEW, sd.float64, (BUFFER,), ViewArg(2, 2)), "past the 24 bytes"),
    (make(O.BUFFER_VIEW, F32, (make(O.NEG, F32, (X,)),), ViewArg(1, 0)), "must view a BUFFER"),
    (make(O.PARAM, F32, (), ParamArg(-1, (3,))), "slot -1"),
    (make(O.PARAM, F32, (), (0, (3, 7, 7))), "must be ParamArg"),
    (make(O.PARAM, F32, (X,), ParamArg(0, (3,))), "must be a DEVICE"),
    (make(O.ASSIGN, F32, (BUFFER, X)), r"it writes \(2, 3\) into \(6,\)"),
    (make(O.ASSIGN, F32, (X, N)), "it writes i32 into f32"),
    (make(O.ASSIGN, F32, (make(O.NEG, F32, (X,)), Y)), "its target is a NEG"),
    (make(O.ASSIGN, F32, (make(O.EXPAND, F32, (param((1, 3)),), (2, 3)), Y)), "is a EXPAND"),
    (make(O.STORE, VOID, (X, Z)), "it writes"),
    (make(O.STORE, F32, (X, Y)), "its dtype is void, not f32"),
    (make(O.IOTA, I32, (), -1), "an integer from 0 up"),
    (make(O.IOTA, BOOL, (), 2), "bool does not count"),
    (make(O.GATHER, F32, (X, X)), "indices are integers, not f32"),
    (make(O.GATHER, F32, (X, ROWS, ROWS, ROWS)), "3 indices address the 2 axes"),
    (make(O.GATHER, F32, (X, ROWS, param((4,), sd.int64))), "indices have different shapes"),
    (make(O.GATHER, I32, (X, ROWS)), "changes the dtype"),
    (make(O.SCATTER, F32, (X, param((5, 3)), ROWS), "mul"), "must be 'set', 'add' or 'max'"),
    (make(O.SCATTER, F32, (X, param((4, 3)), ROWS), "set"), r"shape \(4, 3\), not \(5, 3\)"),
    (make(O.SCATTER, F32, (X, param((5, 3), I32), ROWS), "set"), "it writes i32 into f32"),
    (make(O.SCATTER, BOOL, (B, param((5, 3), BOOL), ROWS), "add"), "bools do not add"),
    (make(O.CAT, F32, (X, N), 0), "its pieces have the dtypes"),
    (make(O.CAT, F32, (X, Z), 0), "its pieces differ outside axis 0"),
    (make(O.CAT, F32, (X, Y), 2), "2 is no axis"),
    (make(O.DEFINE_VAR, INDEX, (), VarArg("n", 3, 2)), "lo <= hi"),
    (make(O.BIND, INDEX, (VARIABLE, const(9, INDEX))), r"9\.\.9 is outside n = 1\.\.8"),
    (make(O.BIND, INDEX, (const(9, INDEX), ONE_INDEX)), "it binds a DEFINE_VAR"),
    (make(O.CUSTOM_FUNCTION, F32, (X,), CustomArg("a", (), (-1,))), "must be CustomArg"),
    (make(O.MSTACK, F32, (X, Z)), "its shards differ"),
    (make(O.DEVICE, VOID, (), 3), "must be a name"),
    (make(O.UNIQUE, VOID, (), "a"), "must be an integer"),
    (make(O.SINK, F32, (X,)), "its dtype is void, not f32"),
    # kernels' ops
    (make(O.LOAD, F32, (make(O.INDEX, F32, (X, ONE_INDEX)),)), "INDEX does not belong into tensor"),
]


@pytest.mark.parametrize(("root", "why"), BAD_TENSOR, ids=lambda p: repr(p)[:60])
def test_bad_tensor_graphs_are_refused(root: UOp, why: str) -> None:
    with pytest.raises(VerifyError, match=why) as caught:
        verify_tensor_graph(make(O.SINK, VOID, (root,)))
    assert caught.value.stage == "tensor graph"


def test_the_error_names_stage_node_and_sources() -> None:
    bad = make(O.ADD, F32, (X, Z))
    with pytest.raises(VerifyError) as caught:
        verify_tensor_graph(make(O.NEG, F32, (bad,)), "normalise")
    assert str(caught.value) == (
        "after normalise: its operands have different shapes: (2, 3), (3, 2)\n"
        "  at ADD f32[2,3]\n"
        "    source 0: PARAM f32[2,3] : ParamArg(slot=0, shape=(2, 3))\n"
        "    source 1: PARAM f32[3,2] : ParamArg(slot=2, shape=(3, 2))"
    )
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


# -- kernels -----------------------------------------------------------------------------------


def loop(number: int, size: int = 8, kind: AxisKind = AxisKind.LOOP) -> UOp:
    return make(O.RANGE, INDEX, (const(size, INDEX),), RangeArg(number, kind))


def load(memory: UOp, offset: UOp) -> UOp:
    return make(O.LOAD, memory.dtype, (make(O.INDEX, memory.dtype, (memory, offset)),))


def kernel(value: UOp, *loops: UOp, offset: UOp | None = None) -> UOp:
    place = make(O.INDEX, F32, (OUT, offset if offset is not None else loops[0]))
    store = make(O.STORE, VOID, (place, value))
    return make(O.SINK, VOID, (make(O.END, VOID, (store, *loops)),))


OUT, IN, INTS = param((8,)), param((8,), slot=1), param((8,), I32, 2)
R0, R1, R2 = loop(0), loop(1), loop(2, kind=AxisKind.REDUCE)
GATE = make(O.LT, BOOL, (R0, const(5, INDEX)))
SUM = make(O.REDUCE, F32, (load(IN, R2), R2), O.ADD)
LOCAL = make(O.DEFINE_LOCAL, F32, (), LocalArg(8, 0))
FILL = make(O.END, VOID, (make(O.STORE, VOID, (make(O.INDEX, F32, (LOCAL, R1)), ONE)), R1))
VALUE = load(IN, R0)
VECTOR = F32.vec(4)
WIDE = make(O.LOAD, VECTOR, (make(O.INDEX, VECTOR, (IN, ONE_INDEX)),))
LANES = make(O.LANES, INDEX.vec(4), (), 4)


def test_good_kernels_pass() -> None:
    verify_kernel(kernel(VALUE, R0))
    verify_kernel(kernel(make(O.ADD, F32, (VALUE, SUM)), R0))
    gated = make(O.LOAD, F32, (make(O.INDEX, F32, (IN, R0, GATE)), ONE))
    verify_kernel(kernel(gated, R0))
    verify_kernel(kernel(load(make(O.AFTER, F32, (LOCAL, FILL)), R0), R0))
    verify_kernel(kernel(ONE, offset=const(0, INDEX)))
    many = make(O.REDUCE, F32, (load(IN, R2), ONE, R2), O.ADD)
    verify_kernel(kernel(many, R0))
    folded = make(O.LANE_REDUCE, F32, (WIDE,), O.ADD)
    lane = make(O.GEP, F32, (make(O.VECTORIZE, VECTOR, (ONE, ONE, folded, ONE)),), 2)
    verify_kernel(kernel(lane, R0))
    spread = make(O.BROADCAST, VECTOR, (ONE,))
    places = make(O.INDEX, VECTOR, (OUT, LANES))
    store = make(O.STORE, VOID, (places, make(O.MUL, VECTOR, (spread, WIDE))), "ordered")
    verify_kernel(make(O.SINK, VOID, (store,)))


def test_copied_bodies_may_share_loops_when_allowed() -> None:
    other = make(O.REDUCE, F32, (make(O.NEG, F32, (load(IN, R2),)), R2), O.ADD)
    both = kernel(make(O.ADD, F32, (SUM, other)), R0)
    verify_kernel(both, shared_loops=True)
    with pytest.raises(VerifyError, match=r"it closes RANGE idx : RangeArg\(id=2.*closes too"):
        verify_kernel(both)
    nested = kernel(make(O.REDUCE, F32, (make(O.ADD, F32, (SUM, load(IN, R2))), R2), O.ADD), R0)
    with pytest.raises(VerifyError, match="which is already closed inside it"):
        verify_kernel(nested, shared_loops=True)


def store_of(value: UOp, place: UOp | None = None, arg: Any = None) -> UOp:
    where = place if place is not None else make(O.INDEX, F32, (OUT, R0))
    store = make(O.STORE, VOID, (where, value), arg)
    return make(O.SINK, VOID, (make(O.END, VOID, (store, R0)),))


BAD_KERNEL: list[tuple[UOp, str]] = [
    # no tensor ops left
    (kernel(make(O.RESHAPE, F32, (VALUE,), ()), R0), "RESHAPE does not belong into kernels"),
    (kernel(make(O.REDUCE_AXIS, F32, (VALUE,), ReduceArg(O.ADD, ())), R0), "REDUCE_AXIS does not"),
    (kernel(load(BUFFER, R0), R0), "BUFFER does not belong into kernels"),
    (kernel(make(O.CONTIGUOUS, F32, (VALUE,)), R0), "CONTIGUOUS does not belong"),
    (kernel(make(O.ADD, F32, (VALUE, IN)), R0), "it uses the PARAM itself, without INDEX and LOAD"),
    # values
    (kernel(make(O.ADD, F32, (VALUE, load(INTS, R0))), R0), "different dtypes: f32, i32"),
    (kernel(make(O.EXP, F32, (load(INTS, R0),)), R0), "EXP does not take i32"),
    (kernel(make(O.BROADCAST, VECTOR, (WIDE,)), R0), "it spreads f32x4"),
    (kernel(make(O.GEP, F32, (WIDE,), 4), R0), "f32x4 has no lane 4"),
    (kernel(make(O.GEP, VECTOR, (WIDE,), 1), R0), "a lane of f32x4 is f32, not f32x4"),
    (kernel(make(O.VECTORIZE, VECTOR, (ONE, ONE)), R0), "it makes f32x4 of f32, f32"),
    (kernel(make(O.LANE_REDUCE, F32, (WIDE,), O.SUB), R0), "SUB is no reduction"),
    (kernel(make(O.LANE_REDUCE, VECTOR, (WIDE,), O.ADD), R0), "it folds f32x4 into f32x4"),
    (kernel(load(IN, make(O.LANES, INDEX.vec(4), (), 3)), R0), "it counts 3 lanes in idxx4"),
    # memory
    (
        kernel(make(O.LOAD, F32, (make(O.INDEX, F32, (IN, const(1, I32))),)), R0),
        "its offset is i32",
    ),
    (kernel(make(O.LOAD, I32, (make(O.INDEX, F32, (IN, R0)),)), R0), "reads memory of f32 as i32"),
    (kernel(make(O.LOAD, F32, (make(O.INDEX, F32, (INTS, R0)),)), R0), "the memory holds i32"),
    (kernel(make(O.LOAD, F32, (make(O.INDEX, F32, (VALUE, R0)),)), R0), "it points into a LOAD"),
    (
        kernel(make(O.LOAD, F32, (make(O.INDEX, F32, (IN, R0, ONE)),)), R0),
        "its gate is f32, not bool",
    ),
    (
        kernel(make(O.LOAD, F32, (make(O.INDEX, F32, (IN, R0)), const(0, I32))), R0),
        "alternative is",
    ),
    (kernel(make(O.LOAD, F32, (VALUE,)), R0), "it reads a LOAD, not an INDEX"),
    (kernel(make(O.LOAD, F32.vec(8), (make(O.INDEX, VECTOR, (IN, LANES)),)), R0), "8 lanes at 4"),
    (kernel(make(O.NEG, F32, (make(O.INDEX, F32, (IN, R0)),)), R0), "without LOAD"),
    (store_of(load(INTS, R0)), "it writes memory of f32 as i32"),
    (store_of(ONE, VALUE), "it writes a LOAD, not an INDEX"),
    (store_of(ONE, arg="later"), "must be None, 'ordered'"),
    (kernel(load(make(O.DEFINE_LOCAL, F32, (), LocalArg(0, 0)), R0), R0), "a positive size"),
    # effects
    (
        make(O.END, VOID, (make(O.STORE, VOID, (make(O.INDEX, F32, (OUT, R0)), ONE)), R0)),
        "a SINK of",
    ),
    (make(O.SINK, VOID, (VALUE,)), "it holds a source that is not an effect"),
    (make(O.SINK, VOID, (make(O.END, VOID, (VALUE, R0)),)), "which has no effect"),
    (make(O.SINK, VOID, (make(O.END, VOID, (FILL, ONE)),)), "something that is not a RANGE"),
    (
        kernel(make(O.AFTER, F32, (VALUE, ONE)), R0),
        "waits for something that is neither an effect nor",
    ),
    # loops
    (kernel(make(O.REDUCE, F32, (VALUE, ONE), O.ADD), R0), "it folds over no RANGE"),
    (kernel(make(O.REDUCE, F32, (VALUE, R2, ONE), O.ADD), R0), "its values come first"),
    (kernel(make(O.REDUCE, F32, (VALUE, R2), O.SUB), R0), "SUB is no reduction over f32"),
    (kernel(make(O.REDUCE, F32, (load(INTS, R2), R2), O.ADD), R0), "it folds i32 into f32"),
    (
        kernel(make(O.ADD, F32, (SUM, load(IN, R2))), R0),
        "it is also used outside of REDUCE f32 : ADD",
    ),
    (kernel(load(IN, R1), R0), "no END or REDUCE closes this loop"),
    (kernel(make(O.ADD, F32, (SUM, make(O.REDUCE, F32, (ONE, R2), O.ADD))), R0), "closes too"),
    (kernel(make(O.REDUCE, F32, (SUM, R2), O.MAX), R0), "already closed inside it"),
    (kernel(VALUE, R0, R0), "already closed inside it"),
    (
        kernel(make(O.ADD, F32, (VALUE, load(IN, loop(0, 4)))), R0, loop(0, 4)),
        "its id is also that",
    ),
    (kernel(load(IN, make(O.RANGE, INDEX, (ONE_INDEX,), 5)), R0), "must be RangeArg"),
    (
        kernel(make(O.ADD, F32, (VALUE, make(O.ACC, F32, (ONE, VALUE)))), R0),
        "carried by RANGEs only",
    ),
]


@pytest.mark.parametrize(("root", "why"), BAD_KERNEL, ids=lambda p: str(p)[:50])
def test_bad_kernels_are_refused(root: UOp, why: str) -> None:
    with pytest.raises(VerifyError, match=why) as caught:
        verify_kernel(root)
    assert caught.value.stage == "rangeify"
    assert caught.value.node


def test_a_store_is_no_value() -> None:
    store = make(O.STORE, VOID, (make(O.INDEX, F32, (OUT, R0)), ONE))
    vote = make(O.BARRIER, sd.bool_, (make(O.AFTER, VOID, (store, FILL)),), ("vote",))
    gated = make(O.STORE, VOID, (make(O.INDEX, F32, (OUT, R0, vote)), ONE))
    root = make(O.SINK, VOID, (make(O.END, VOID, (store, R0)), make(O.END, VOID, (gated, R0))))
    with pytest.raises(VerifyError, match="it uses the STORE as a value"):
        verify_kernel(root, shared_loops=True, table=THREADS)


def test_long_graphs_need_no_recursion() -> None:
    node = X
    for _ in range(10_000):
        node = make(O.ADD, F32, (node, ONE))
    verify_tensor_graph(node)
    value = VALUE
    for _ in range(10_000):
        value = make(O.ADD, F32, (value, ONE))
    verify_kernel(kernel(value, R0))
