"""Runs graphs of basic ops as machine code: a minimal LLVM IR printer for the tests.

One function per graph, a loop over blocks of 16 lanes, no LLVM passes: the same path that
kernels take, so accuracy and instruction counts are those of the real code.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import re
import struct
from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import ml_dtypes
import numpy as np

from svod.codegen.decompose import decompose
from svod.codegen.formula import RARE
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.node import UOp, make

LANES = 16
NUMPY: dict[DType, Any] = {
    dt.bool_: np.bool_, dt.int8: np.int8, dt.uint8: np.uint8, dt.int16: np.int16,
    dt.uint16: np.uint16, dt.int32: np.int32, dt.uint32: np.uint32, dt.int64: np.int64,
    dt.uint64: np.uint64, dt.float16: np.float16, dt.bfloat16: ml_dtypes.bfloat16,
    dt.float8_e4m3: ml_dtypes.float8_e4m3fn, dt.float8_e5m2: ml_dtypes.float8_e5m2,
    dt.float32: np.float32, dt.float64: np.float64, dt.index: np.int64,
}  # fmt: skip
_FLOATS = {dt.float32: "float", dt.float64: "double", dt.float16: "half"}
_INTEGER_OPS = {
    O.ADD: "add", O.SUB: "sub", O.MUL: "mul", O.AND: "and", O.OR: "or", O.XOR: "xor", O.SHL: "shl",
}  # fmt: skip
_FLOAT_OPS = {O.ADD: "fadd", O.SUB: "fsub", O.MUL: "fmul", O.DIV: "fdiv"}
_INTRINSICS = {
    O.SQRT: "sqrt", O.ABS: "fabs", O.TRUNC: "trunc", O.FLOOR: "floor", O.CEIL: "ceil",
    O.ROUND: "roundeven", O.MAX: "maximum", O.MIN: "minimum", O.FMA: "fma",
}  # fmt: skip
_PARTS = {O.LDEXP: "scalef", O.EXPONENT: "getexp", O.SIGNIFICAND: "getmant"}
_serial = itertools.count()
_engine: list[Any] = []


def argument(number: int, dtype: DType, lanes: int) -> UOp:
    """A stand-in for a loaded value; its arg is the number of the array."""
    return make(O.PARAM, dtype.vec(lanes), (), f"in{number}")


def lower(
    op: int, dtype: DType, sources: list[DType], lanes: int = LANES, has_parts: bool = False
) -> UOp:
    """The basic graph of one op on loaded arguments."""
    src, arg = tuple([argument(i, s, lanes) for i, s in enumerate(sources)]), None
    found = decompose(op, dtype.vec(lanes), src, arg, has_parts)
    return make(op, dtype.vec(lanes), src, arg) if found is None else found


def usual(root: UOp) -> UOp:
    """The graph without what kernels branch over."""
    done: dict[UOp, UOp] = {}
    for node in root.toposort():
        src = tuple([done[s] for s in node.src])
        rare = node.op == O.WHERE and node.arg == RARE
        done[node] = src[2] if rare else make(node.op, node.dtype, src, node.arg)
    return done[root]


def _element(dtype: DType) -> str:
    scalar = dtype.scalar
    if scalar in _FLOATS:
        return _FLOATS[scalar]
    return "i1" if scalar is dt.bool_ else f"i{scalar.bits}"


def _type(dtype: DType) -> str:
    return _element(dtype) if dtype.lanes == 1 else f"<{dtype.lanes} x {_element(dtype)}>"


def _suffix(dtype: DType) -> str:
    element = {"float": "f32", "double": "f64", "half": "f16"}.get(_element(dtype), _element(dtype))
    return element if dtype.lanes == 1 else f"v{dtype.lanes}{element}"


def _constant(value: Any, dtype: DType) -> str:
    if dtype.scalar is dt.float32:
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    if dtype.is_float:
        assert dtype.scalar in (dt.float32, dt.float64), dtype
        text = "0x" + struct.pack(">d", value).hex().upper()
        if math.isnan(value):
            text = "0x7FF8000000000000"
    elif dtype.scalar is dt.bool_:
        text = "true" if value else "false"
    else:
        text = str(value)
    return text if dtype.lanes == 1 else f"splat ({_element(dtype)} {text})"


class Printer:
    """Prints basic nodes; refuses everything else."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names: dict[UOp, str] = {}
        self.declared: set[str] = set()

    def emit(self, text: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {text}")
        return name

    def call(self, name: str, result: str, *arguments: tuple[str, str]) -> str:
        kinds = ", ".join([kind for kind, _ in arguments])
        self.declared.add(f"declare {result} @{name}({kinds})")
        return self.emit(f"call {result} @{name}({', '.join([f'{k} {v}' for k, v in arguments])})")

    def node(self, node: UOp) -> str:
        found = self.names.get(node)
        if found is None:
            for source in node.toposort():
                if source not in self.names:
                    self.names[source] = self._print(source)
            found = self.names[node]
        return found

    def _print(self, node: UOp) -> str:
        op, dtype = node.op, node.dtype
        kind = _type(dtype)
        if op == O.CONST:
            return _constant(node.arg, dtype)
        assert decompose(op, dtype, node.src, node.arg) is None, O.NAMES[op]
        names = [self.names[s] for s in node.src]
        source = node.src[0].dtype
        typed = [(_type(s.dtype), n) for s, n in zip(node.src, names, strict=True)]
        if op == O.WHERE:
            return self.emit("select " + ", ".join([f"{k} {n}" for k, n in typed]))
        if op == O.BITCAST:
            if _type(source) == kind:
                return names[0]
            return self.emit(f"bitcast {typed[0][0]} {names[0]} to {kind}")
        if op == O.CAST:
            return self._cast(node, typed[0])
        if op in O.COMPARE:
            return self._compare(op, source, typed[0][0], names)
        if dtype.scalar in (dt.float32, dt.float64):
            if op in _FLOAT_OPS:
                return self.emit(f"{_FLOAT_OPS[op]} {kind} {names[0]}, {names[1]}")
            if op == O.NEG:
                return self.emit(f"fneg {kind} {names[0]}")
            if op == O.SHUFFLE:
                places = ", ".join([f"i32 {place}" for place in node.arg])
                pair = f"{typed[0][0]} {names[0]}, {typed[-1][0]} {names[-1]}"
                return self.emit(f"shufflevector {pair}, <{len(node.arg)} x i32> <{places}>")
            if op in _PARTS:
                return self._float_parts(op, dtype, kind, typed)
            return self.call(f"llvm.{_INTRINSICS[op]}.{_suffix(dtype)}", kind, *typed)
        assert not dtype.is_float, (O.NAMES[op], dtype)
        return self._integer(node, kind, names, typed)

    def _integer(self, node: UOp, kind: str, names: list[str], typed: list[tuple[str, str]]) -> str:
        op, dtype = node.op, node.dtype
        if op in _INTEGER_OPS:
            return self.emit(f"{_INTEGER_OPS[op]} {kind} {names[0]}, {names[1]}")
        letter = "s" if dtype.is_signed else "u"
        if op == O.SHR:
            return self.emit(f"{'ashr' if letter == 's' else 'lshr'} {kind} {names[0]}, {names[1]}")
        if op in (O.IDIV, O.MOD):
            assert node.arg == "trunc"
            return self.emit(
                f"{letter}{'div' if op == O.IDIV else 'rem'} {kind} {names[0]}, {names[1]}"
            )
        if op in (O.MAX, O.MIN):
            name = f"llvm.{letter}{'max' if op == O.MAX else 'min'}.{_suffix(dtype)}"
            return self.call(name, kind, *typed)
        if op == O.NOT:
            return self.emit(
                f"xor {kind} {names[0]}, {_constant(-1 if dtype.kind != 'b' else True, dtype)}"
            )
        if op == O.NEG:
            return self.emit(f"sub {kind} zeroinitializer, {names[0]}" if dtype.lanes > 1
                             else f"sub {kind} 0, {names[0]}")  # fmt: skip
        assert op == O.ABS, O.NAMES[op]
        return self.call(f"llvm.abs.{_suffix(dtype)}", kind, *typed, ("i1", "false"))

    def _float_parts(self, op: int, dtype: DType, kind: str, typed: list[tuple[str, str]]) -> str:
        register = dtype.lanes * dtype.bits
        option = [("i32", "12")] if op == O.SIGNIFICAND else []
        rest = [(kind, "zeroinitializer"), (f"i{max(8, dtype.lanes)}", "-1")]
        rest += [("i32", "4")] if register == 512 else []
        name = f"llvm.x86.avx512.mask.{_PARTS[op]}.p{'s' if dtype.bits == 32 else 'd'}.{register}"
        return self.call(name, kind, *typed, *option, *rest)

    def _compare(self, op: int, source: DType, kind: str, names: list[str]) -> str:
        if source.is_float:
            word = {O.LT: "olt", O.LE: "ole", O.EQ: "oeq", O.NE: "une"}[op]
            return self.emit(f"fcmp {word} {kind} {names[0]}, {names[1]}")
        letter = "s" if source.is_signed else "u"
        word = {O.LT: f"{letter}lt", O.LE: f"{letter}le", O.EQ: "eq", O.NE: "ne"}[op]
        return self.emit(f"icmp {word} {kind} {names[0]}, {names[1]}")

    def _cast(self, node: UOp, value: tuple[str, str]) -> str:
        target, source = node.dtype, node.src[0].dtype
        kind = _type(target)
        if source.is_float and target.is_float:
            word = "fpext" if source.bits < target.bits else "fptrunc"
            pair = {source.scalar, target.scalar}
            assert pair in ({dt.float32, dt.float64}, {dt.float32, dt.float16}), pair
        elif source.is_float:
            assert node.arg == "saturate"
            letter = "s" if target.is_signed else "u"
            name = f"llvm.fpto{letter}i.sat.{_suffix(target)}.{_suffix(source)}"
            return self.call(name, kind, value)
        elif target.is_float:
            word = "sitofp" if source.is_signed else "uitofp"
        elif source.scalar is dt.bool_:
            word = "zext"
        elif source.bits == target.bits:
            return value[1]
        else:
            word = "trunc" if source.bits > target.bits else "sext" if source.is_signed else "zext"
        return self.emit(f"{word} {value[0]} {value[1]} to {kind}")


def source_text(root: UOp, sources: list[DType], name: str) -> str:
    """The module: inputs and the result are arrays, ``blocks`` is the trip count."""
    lanes = root.dtype.lanes
    printer = Printer()
    for i, dtype in enumerate(sources):
        printer.lines.append(_address(f"%a{i}", f"%p{i}", dtype, lanes))
        memory = "i8" if dtype is dt.bool_ else _element(dtype)
        wide = memory if lanes == 1 else f"<{lanes} x {memory}>"
        loaded = printer.emit(f"load {wide}, ptr %a{i}, align 1")
        if dtype is dt.bool_:
            loaded = printer.emit(f"trunc {wide} {loaded} to {_type(dtype.vec(lanes))}")
        printer.names[argument(i, dtype, lanes)] = loaded
    result = printer.node(root)
    kind = _type(root.dtype)
    if root.dtype.scalar is dt.bool_:
        kind = "i8" if lanes == 1 else f"<{lanes} x i8>"
        result = printer.emit(f"zext {_type(root.dtype)} {result} to {kind}")
    printer.lines.append(_address("%out", "%q", root.dtype.scalar, lanes))
    printer.lines.append(f"  store {kind} {result}, ptr %out, align 1")
    parameters = ", ".join(["ptr %q", *[f"ptr %p{i}" for i in range(len(sources))], "i64 %blocks"])
    head = f"define void @{name}({parameters}) {{\nentry:\n  br label %loop\nloop:\n"
    counter = "  %i = phi i64 [ 0, %entry ], [ %j, %loop ]\n"
    tail = "  %j = add i64 %i, 1\n  %more = icmp ult i64 %j, %blocks\n"
    tail += "  br i1 %more, label %loop, label %done\ndone:\n  ret void\n}\n"
    body = "\n".join(printer.lines) + "\n"
    return head + counter + body + tail + "\n".join(sorted(printer.declared)) + "\n"


def _address(name: str, base: str, dtype: DType, lanes: int) -> str:
    return f"  {name} = getelementptr [{dtype.itemsize * lanes} x i8], ptr {base}, i64 %i"


def _machine() -> tuple[Any, Any]:
    if not _engine:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        target = llvm.Target.from_triple(llvm.get_process_triple()).create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=llvm.get_host_cpu_features().flatten(),
            opt=2,
            jit=True,
            codemodel="jitdefault",
        )
        _engine.extend([target, llvm.create_lljit_compiler(target, use_jit_link=True)])
    return _engine[0], _engine[1]


def compiled(root: UOp, sources: list[DType]) -> Callable[..., Any]:
    """A function from NumPy arrays to a NumPy array."""
    target, jit = _machine()
    name = f"k{next(_serial)}"
    module = llvm.parse_assembly(source_text(root, sources, name))
    module.verify()
    image = target.emit_object(module)
    library = llvm.JITLibraryBuilder().add_object_img(image).export_symbol(name)
    loaded = library.add_current_process().link(jit, "lib" + name)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * (1 + len(sources)), ctypes.c_int64)(
        loaded[name]
    )
    lanes, result = root.dtype.lanes, NUMPY[root.dtype.scalar]

    def run(*arrays: Any) -> Any:
        assert loaded is not None  # dropping it would unload the code
        count = len(arrays[0])
        blocks = -(-count // lanes)
        padded = []
        for array, dtype in zip(arrays, sources, strict=True):
            whole = np.ones(blocks * lanes, NUMPY[dtype])
            whole[:count] = array
            padded.append(whole)
        out = np.empty(blocks * lanes, result)
        call(out.ctypes.data, *[a.ctypes.data for a in padded], blocks)
        return out[:count]

    return run


def assembly(root: UOp, sources: list[DType]) -> str:
    """The machine code, as text."""
    target, _ = _machine()
    return str(target.emit_assembly(llvm.parse_assembly(source_text(root, sources, "listed"))))


def host_features() -> list[str]:
    """What the processor has."""
    return [name for name, present in llvm.get_host_cpu_features().items() if present]


def instructions(root: UOp, sources: list[DType]) -> int:
    """Vector instructions of the loop body, without the loads of arguments and the store."""
    match = re.search(r"^(\.LBB\d+_\d+):(.*?)\bj\w+\s+\1", assembly(root, sources), re.S | re.M)
    assert match is not None
    body = re.findall(r"^\s+([vk]\w+\s.*)$", match.group(2), re.M)
    moves = [line for line in body if re.match(r"vmov[ua]\w+\s.*\(%r[^i]", line)]
    return len(body) - len(moves)
