"""Text form of graphs: it parses back to the same node, and hostile text is refused politely."""

from __future__ import annotations

import copy
import math
import os
import pickle
import struct
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import svod.dtype as sd
from svod.base.errors import GraphError
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
from svod.ir.node import UOp, const, make
from svod.ir.text import brief, buffers_of, dump, parse, tree


def param(shape: tuple[int, ...], slot: int = 0) -> UOp:
    return make(O.PARAM, sd.float32, (), ParamArg(slot, shape))


def layer() -> UOp:
    """(x - mean-like) * -0.0, with a shared node."""
    x = make(O.ADD, sd.float32, (param((8, 512)), param((8, 512), 1)))
    total = make(O.REDUCE_AXIS, sd.float32, (x,), ReduceArg(O.ADD, (1,)))
    wide = make(O.EXPAND, sd.float32, (total,), (8, 512))
    difference = make(O.SUB, sd.float32, (x, wide))
    return make(O.MUL, sd.float32, (difference, const(-0.0, sd.float32)))


LAYER = """\
%0 = PARAM f32[8,512] : ParamArg(slot=0, shape=(8, 512))
%1 = PARAM f32[8,512] : ParamArg(slot=1, shape=(8, 512))
%2 = ADD f32[8,512] %0 %1
%3 = REDUCE_AXIS f32[8,1] %2 : ReduceArg(op=ADD, axes=(1,))
%4 = EXPAND f32[8,512] %3 : (8, 512)
%5 = SUB f32[8,512] %2 %4
%6 = CONST f32 : -0.0
%7 = MUL f32[8,512] %5 %6
"""

TREE = """\
MUL f32[8,512]  (CONST f32 : -0.0)
  SUB f32[8,512]
    %0 = ADD f32[8,512]
      PARAM f32[8,512] : ParamArg(slot=0, shape=(8, 512))
      PARAM f32[8,512] : ParamArg(slot=1, shape=(8, 512))
    EXPAND f32[8,512] : (8, 512)
      REDUCE_AXIS f32[8,1] : ReduceArg(op=ADD, axes=(1,))
        %0"""


def test_the_text_of_a_tensor_graph() -> None:
    assert dump(layer()) == LAYER
    assert parse(LAYER) is layer()
    assert tree(layer()) == TREE


def test_comments_blank_lines_and_other_numbers_are_read() -> None:
    text = "# a graph\n\n  %7 = PARAM f32[2] : ParamArg(slot=0, shape=(2,))\r\n%3 = NEG f32[2] %7"
    assert parse(text) is make(O.NEG, sd.float32, (param((2,)),))


def test_the_text_of_a_kernel() -> None:
    size = const(16, sd.index)
    lane = make(O.RANGE, sd.index, (size,), RangeArg(3, AxisKind.LANE))
    place = make(O.INDEX, sd.float32, (param((16,)), lane))
    value = make(O.LOAD, sd.float32, (place,))
    total = make(O.REDUCE, sd.float32, (value, lane), O.MAX)
    vector = make(O.BROADCAST, sd.float32.vec(4), (total,))
    root = make(O.LANE_REDUCE, sd.float32, (vector,), O.ADD)
    assert dump(root) == (
        "%0 = PARAM f32[16] : ParamArg(slot=0, shape=(16,))\n"
        "%1 = CONST idx : 16\n"
        "%2 = RANGE idx %1 : RangeArg(id=3, kind=LANE)\n"
        "%3 = INDEX f32 %0 %2\n"
        "%4 = LOAD f32 %3\n"
        "%5 = REDUCE f32 %4 %2 : MAX\n"
        "%6 = BROADCAST f32x4 %5\n"
        "%7 = LANE_REDUCE f32 %6 : ADD\n"
    )
    assert parse(dump(root)) is root


def test_brief_forms() -> None:
    vector = const(1, sd.float32.vec(16))
    assert repr(make(O.ADD, sd.float32.vec(16), (vector, vector))) == "ADD f32x16"
    assert brief(make(O.IOTA, sd.int32, (), 5)) == "IOTA i32[5] : 5"
    source = make(O.SOURCE, sd.void, (), "x" * 1000)
    assert len(brief(source)) < 130 and brief(source).endswith("...")
    broken = make(O.PERMUTE, sd.float32, (param((2, 3)),), (0, 7))
    assert brief(broken) == "PERMUTE f32[?] : (0, 7)"
    assert parse(dump(broken)) is broken
    assert brief(make(O.SOURCE, sd.void, (), object)) == "SOURCE void : <class 'object'>"


@pytest.mark.parametrize("dtype", sd.STORABLE, ids=repr)
def test_constants_of_every_dtype(dtype: sd.DType) -> None:
    for value in (0, 1, sd.pack_const(-1, dtype)):
        for wide in (dtype, dtype.vec(8)):
            node = const(value, wide)
            assert parse(dump(node)) is node


@given(st.floats(width=64))
def test_floats_keep_every_bit(value: float) -> None:
    node = const(value, sd.float64)
    assert parse(dump(node)) is node


@pytest.mark.parametrize("bits", [0x7FF8000000000000, 0xFFF8000000000000, 0x7FF8000000000123])
def test_nan_payloads_survive(bits: int) -> None:
    value = struct.unpack("<d", struct.pack("<Q", bits))[0]
    node = const(value, sd.float64)
    again = parse(dump(node))
    assert again is node
    assert struct.pack("<d", again.arg) == struct.pack("<Q", bits)


def test_not_a_number_and_infinity_print_as_words() -> None:
    assert dump(const(math.nan, sd.float32)) == "%0 = CONST f32 : nan\n"
    assert dump(const(-math.inf, sd.float32)) == "%0 = CONST f32 : -inf\n"
    assert parse("%0 = CONST f32 : 1e+30").arg == 1e30


RECORDS: list[tuple[int, sd.DType, tuple[UOp, ...], Any]] = [
    (O.BUFFER, sd.float32, (), BufferArg(7)),
    (O.BUFFER_VIEW, sd.int8, (), ViewArg(7, 3)),
    (O.PARAM, sd.bool_, (), ParamArg(2, ())),
    (O.PARAM, sd.bool_, (), ParamArg(2, (0, 1))),
    (O.DEFINE_VAR, sd.index, (), VarArg("n'\"\\\n\u2028 : %1", -3, 10**20)),
    (O.DEFINE_LOCAL, sd.float16, (), LocalArg(64, 1)),
    (O.PAD, sd.float32, (const(0, sd.float32),), ((1, 2), (0, 3))),
    (O.SCATTER, sd.float32, (const(0, sd.float32),), "add"),
    (O.BINARY, sd.void, (), bytes(range(256))),
    (O.SOURCE, sd.void, (), "line one\nline \x00two\t\ud800é"),
    (O.PROGRAM, sd.void, (), None),
    (O.PROGRAM, sd.void, (), ()),
    (O.PROGRAM, sd.void, (), ((((),),),)),
    (O.PROGRAM, sd.void, (), (sd.bfloat16.vec(4), None, True, -1, 1.5, b"'\"", "'")),
    (O.CUSTOM_FUNCTION, sd.float32, (), CustomArg("conv", (("pad", 1), (0.1, None)), (2, 3))),
]


@pytest.mark.parametrize("parts", RECORDS, ids=lambda p: O.NAMES[p[0]])
def test_arguments_parse_back(parts: tuple[Any, ...]) -> None:
    node = make(*parts)
    text = dump(node)
    assert parse(text) is node
    assert text.count("\n") == 1 + len(node.src)


literals = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=4).map(tuple),
    max_leaves=10,
)


@given(st.lists(literals, max_size=3).map(tuple))
def test_any_literal_parses_back(arg: tuple[Any, ...]) -> None:
    node = make(O.CUSTOM_FUNCTION, sd.float32, (), CustomArg("x", arg, (1,)))
    assert repr(parse(dump(node)).arg) == repr(node.arg)


@st.composite
def graphs(draw: st.DrawFn) -> UOp:
    nodes = [param((2, 3)), const(draw(st.floats(width=32)), sd.float32), param((2, 3), 1)]
    for _ in range(draw(st.integers(1, 12))):
        pick = st.sampled_from(nodes)
        kind = draw(st.integers(0, 3))
        if kind == 0:
            op = draw(st.sampled_from([O.ADD, O.MUL, O.MAX]))
            nodes.append(make(op, sd.float32, (draw(pick), draw(pick))))
        elif kind == 1:
            nodes.append(make(O.EXP, sd.float32, (draw(pick),)))
        elif kind == 2:
            condition = make(O.LT, sd.bool_, (draw(pick), draw(pick)))
            nodes.append(make(O.WHERE, sd.float32, (condition, draw(pick), draw(pick))))
        else:
            nodes.append(make(O.FLIP, sd.float32, (draw(pick),), (0,)))
    return nodes[-1]


@given(graphs())
def test_graphs_parse_back(root: UOp) -> None:
    text = dump(root)
    assert parse(text) is root
    assert dump(parse(text)) == text


def test_buffers_come_from_the_caller_or_are_new() -> None:
    device = make(O.DEVICE, sd.void, (), "CPU")
    reference = BufferRef(12)
    node = make(O.BUFFER, sd.float32, (device,), reference)
    double = make(O.ADD, sd.float32, (node, make(O.NEG, sd.float32, (node,))))
    text = dump(double)
    assert f"BUFFER f32[12] %0 : BufferRef(id={reference.id}, size=12)" in text
    assert buffers_of(double) == {reference.id: reference}
    assert parse(text, buffers_of(double)) is double
    fresh = parse(text)
    assert fresh is not double
    assert fresh.src[0] is fresh.src[1].src[0]
    assert fresh.src[0].arg.size == 12 and fresh.src[0].arg.buffer is None
    with pytest.raises(GraphError, match=r"line 2: buffer .* has 3 elements, not 12"):
        parse(text, {reference.id: BufferRef(3)})


def test_nodes_pickle_and_copy_as_the_same_object() -> None:
    root = layer()
    assert pickle.loads(pickle.dumps(root)) is root
    assert copy.deepcopy(root) is root


def test_text_is_the_same_in_every_process() -> None:
    program = (
        "import sys\nfrom svod.ir.text import dump, parse\n"
        "node = parse(sys.stdin.read())\nsys.stdout.write(dump(node) + node.content_hash)"
    )
    results = set()
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            input=LAYER, capture_output=True, text=True, check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )  # fmt: skip
        results.add(done.stdout)
    assert results == {LAYER + layer().content_hash}


def test_long_graphs_need_no_recursion() -> None:
    node = param((4,))
    for i in range(20_000):
        node = make(O.ADD, sd.float32, (node, const(float(i), sd.float32)))
    text = dump(node)
    assert parse(text) is node
    assert len(tree(node)) < 3_000_000
    assert "19990| ADD f32[4]" in tree(node)


def test_what_has_no_text_form() -> None:
    node = make(O.SOURCE, sd.void, (), object)
    with pytest.raises(GraphError, match="an argument of type type has no text form"):
        dump(node)


# -- hostile text ------------------------------------------------------------------------------

GOOD = "%0 = CONST f32 : 1.0\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: the text has no node"),
        ("# only a comment\n", "the text has no node"),
        ("hello", "line 1: expected '%number = OP dtype"),
        (GOOD + "%0 = NEG f32 %0", "line 2: %0 is defined twice"),
        (GOOD + "%1 = NEG f32 %2", "line 2: %2 is used before it is defined"),
        (GOOD + "%1 = NEG f32 %1", "line 2: %1 is used before it is defined"),
        (GOOD + "%1 = EVAL f32 %0", "line 2: there is no op 'EVAL'"),
        (GOOD + "%1 = NEG f33 %0", "line 2: there is no dtype 'f33'"),
        (GOOD + "%1 = NEG f32x0 %0", "there is no dtype 'f32x0'"),
        (GOOD + "%1 = NEG f32x9999 %0", "there is no dtype 'f32x9999'"),
        (GOOD + "%1 = NEG f32[3] %0", r"line 2: NEG has dtype and shape f32, but"),
        ("%0 = CONST f32 : 1", "a CONST of f32 cannot have the value 1"),
        ("%0 = CONST i32 : 1.5", "a CONST of i32 cannot have the value 1.5"),
        ("%0 = CONST i32 : True", "a CONST of i32 cannot have the value True"),
        ("%0 = CONST i32", "a CONST of i32 cannot have the value None"),
        ("%0 = CONST void : 1", "a CONST of void"),
        (GOOD + "%1 = CONST f32 %0 : 1.0", "a CONST of f32"),
        ("%0 = CONST f64 : nan(0x3ff0000000000000)", "are those of 1.0"),
        ("%0 = CONST f64 : nan(7)", "expected the bits of a NaN"),
        ("%0 = SOURCE void : __import__('os')", "there is no record or name '__import__'"),
        ("%0 = SOURCE void : print", "there is no record or name 'print'"),
        ("%0 = SOURCE void : 1 + 1", "cannot read the argument"),
        ("%0 = SOURCE void : [1]", "cannot read the argument"),
        ("%0 = SOURCE void : {}", "cannot read the argument"),
        ("%0 = SOURCE void : f'{1}'", "there is no record or name 'f'"),
        ("%0 = SOURCE void : 'a' 'b'", "expected the end of the line"),
        ("%0 = SOURCE void : 'a", "cannot read the argument"),
        ("%0 = SOURCE void : '\\q'", "cannot read the argument"),
        ("%0 = SOURCE void : '\\N{DIGIT ONE}'", "cannot read the argument"),
        ("%0 = SOURCE void : '\\xzz'", "not a well-formed node"),
        ("%0 = SOURCE void : '\\Uffffffff'", "not a well-formed node"),
        ("%0 = SOURCE void : '\x00'", "not a well-formed node"),
        ("%0 = SOURCE void : b'é'", "cannot read the argument|there is no record"),
        ("%0 = SOURCE void : (1)", "a tuple of one value needs a comma"),
        ("%0 = SOURCE void : (1 2)", r"expected ',' or '\)'"),
        ("%0 = SOURCE void : (1,", "expected a value"),
        ("%0 = SOURCE void : " + "(" * 100_000, "nested more than 64 deep"),
        ("%0 = SOURCE void : " + "9" * 5000, "not a well-formed node"),
        ("%0 = SOURCE void : DType(name='float99', lanes=1)", "there is no dtype 'float99'"),
        ("%0 = SOURCE void : DType(name='float32', lanes=0)", "of 0 lanes"),
        ("%0 = PARAM f32 : ParamArg(0, ())", "expected slot= of ParamArg"),
        ("%0 = PARAM f32 : ParamArg(slot=0)", "expected ','"),
        ("%0 = PARAM f32 : ParamArg(shape=(), slot=0)", "expected slot= of ParamArg"),
        ("%0 = PARAM f32 : ParamArg(slot='a', shape=())", "slot of ParamArg cannot be 'a'"),
        ("%0 = PARAM f32 : ParamArg(slot=True, shape=())", "slot of ParamArg cannot be True"),
        ("%0 = PARAM f32 : ParamArg(slot=0, shape=(1.5,))", "shape of ParamArg cannot be"),
        ("%0 = PARAM f32 : ParamArg", r"expected '\('"),
        ("%0 = RANGE idx : RangeArg(id=0, kind=LOOP)", "not a well-formed node"),
        ("%0 = CONST idx : 3\n%1 = RANGE idx %0 : RangeArg(id=0, kind=PRINT)", "line 2: there is"),
        ("%0 = CONST idx : 3\n%1 = RANGE idx %0 : RangeArg(id=0, kind=4)", "kind of RangeArg"),
        ("%0 = CONST f32 : 3.0\n%1 = ADD idx %0 %0", "line 2: not a well-formed node"),
        ("%0 = IOTA i32[5] : 'x'", "not a well-formed node"),
        ("%99999999999 = CONST f32 : 1.0", "expected '%number"),
    ],
)  # fmt: skip
def test_hostile_text_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        parse(text)


def test_repeated_squares_do_not_grow_without_end() -> None:
    lines = ["%0 = CONST idx : 1000"]
    lines += [f"%{i + 1} = MUL idx %{i} %{i}" for i in range(60)]
    with pytest.raises(GraphError, match=r"line 5: the bounds of this MUL pass 2\*\*128"):
        parse("\n".join(lines))


@given(st.integers(0, len(LAYER) - 1), st.text(max_size=3), st.integers(0, 5))
def test_damaged_text_gives_a_graph_or_a_graph_error(at: int, insert: str, skip: int) -> None:
    try:
        root = parse(LAYER[:at] + insert + LAYER[at + skip :])
    except GraphError as error:
        assert str(error).startswith("line ")
    else:
        assert isinstance(root, UOp)
