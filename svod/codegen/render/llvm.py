"""LLVM IR text for one kernel: a tree of loops becomes blocks, phis and vector instructions.

The text is SSA with rotated loops and explicit vectors, so no LLVM pass runs on it, only code
generation. Only operations and intrinsics listed here are ever written: LLVM ends the process
on what a target cannot select.
"""

from __future__ import annotations

import struct
from math import gcd
from typing import Any

from svod.base.errors import CompileError
from svod.codegen.formula import RARE
from svod.codegen.linearize import Loop
from svod.codegen.render.dot import dot_form
from svod.codegen.render.masks import only_lane
from svod.codegen.render.rare import behind_branches
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.node import UOp

_TYPES = {
    dt.bool_: "i1", dt.int8: "i8", dt.uint8: "i8", dt.int16: "i16", dt.uint16: "i16",
    dt.int32: "i32", dt.uint32: "i32", dt.int64: "i64", dt.uint64: "i64", dt.float16: "half",
    dt.bfloat16: "i16", dt.float8_e4m3: "i8", dt.float8_e5m2: "i8", dt.float32: "float",
    dt.float64: "double",
}  # fmt: skip
_INT_OPS = {O.ADD: "add", O.SUB: "sub", O.MUL: "mul", O.AND: "and", O.OR: "or", O.XOR: "xor"}
_FLOAT_OPS = {O.ADD: "fadd", O.SUB: "fsub", O.MUL: "fmul", O.DIV: "fdiv"}
_FLOAT_CALLS = {
    O.SQRT: "sqrt", O.ABS: "fabs", O.TRUNC: "trunc", O.FLOOR: "floor", O.CEIL: "ceil",
    O.ROUND: "roundeven",
}  # fmt: skip
_ORDERED = {O.LT: "olt", O.LE: "ole", O.EQ: "oeq", O.NE: "une"}
_SIGNED = {O.LT: "slt", O.LE: "sle", O.EQ: "eq", O.NE: "ne"}
_UNSIGNED = {O.LT: "ult", O.LE: "ule", O.EQ: "eq", O.NE: "ne"}

# 3 << 2 leaves signs out and makes NaN of what is negative.
_FLOAT_PARTS = {
    O.LDEXP: ("scalef", ""), O.EXPONENT: ("getexp", ""), O.SIGNIFICAND: ("getmant", "12")
}  # fmt: skip


def type_name(dtype: DType) -> str:
    scalar = _TYPES[dtype.scalar]
    return scalar if dtype.lanes == 1 else f"<{dtype.lanes} x {scalar}>"


def _memory_type(dtype: DType) -> str:
    """As stored: a bool is a byte."""
    scalar = "i8" if dtype.scalar is dt.bool_ else _TYPES[dtype.scalar]
    return scalar if dtype.lanes == 1 else f"<{dtype.lanes} x {scalar}>"


def _suffix(dtype: DType) -> str:
    scalar = dtype.scalar
    name = {dt.float32: "f32", dt.float64: "f64", dt.float16: "f16"}.get(scalar)
    if name is None:
        name = "i1" if scalar is dt.bool_ else f"i{scalar.bits}"
    return name if dtype.lanes == 1 else f"v{dtype.lanes}{name}"


def constant(value: Any, dtype: DType) -> str:
    scalar = dtype.scalar
    if scalar.kind == "f":
        text = _float_constant(float(value), scalar)
    elif scalar.kind == "b":
        text = "true" if value else "false"
    else:
        text = str(int(value))
    if dtype.lanes == 1:
        return text
    return f"splat ({type_name(scalar)} {text})"


def _float_constant(value: float, scalar: DType) -> str:
    if scalar is dt.float64:
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    if scalar is dt.float32:
        try:
            value = struct.unpack("<f", struct.pack("<f", value))[0]
        except OverflowError:
            value = float("inf") if value > 0 else float("-inf")
        return f"0x{struct.unpack('<Q', struct.pack('<d', value))[0]:016X}"
    import numpy as np

    from svod.dtype.convert import to_numpy

    bits = np.array(value, dtype=to_numpy(scalar)).view(f"u{scalar.itemsize}")
    number = int(bits)
    return f"0xH{number:04X}" if scalar is dt.float16 else str(number)


class LLVMRenderer:
    """Writes one kernel. ``declarations`` collects the intrinsics it used."""

    def __init__(self, stream: bool = False) -> None:
        self.lines: list[str] = []
        self.names: dict[UOp, str] = {}
        self.declarations: set[str] = set()
        self.count = 0
        self.blocks = 0
        self.block = "entry"
        self.pointers: dict[Any, str] = {}
        self.params: dict[int, str] = {}
        self.current: dict[UOp, str] = {}  # ACC -> its value now
        self.stream = stream
        self.scratch: list[str] = []
        self.rare: frozenset[UOp] = frozenset()  # made where a branch needs them

    def render(self, name: str, root: Loop, variables: list[str]) -> str:
        """The function's text. ``variables`` are the run-time integers, in the order of vals."""
        self.variables = variables
        self.streamed = False
        self.rare = behind_branches(root)
        self._items(root)
        body = "\n".join(self.lines)
        head = f"define void @{name}(ptr %bufs, ptr %vals, i64 %core) #0 {{\nentry:\n"
        prologue = "\n".join(self.scratch)
        fence = "\n  fence seq_cst" if self.streamed else ""
        return f"{head}{prologue}\n{body}{fence}\n  ret void\n}}\n"

    def _fresh(self) -> str:
        self.count += 1
        return f"%v{self.count}"

    def _emit(self, text: str) -> str:
        name = self._fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def _items(self, loop: Loop) -> None:
        for item in loop.items:
            if isinstance(item, Loop):
                self._loop(item)
            elif item not in self.rare:
                self._node(item)

    # -- loops ---------------------------------------------------------------------------------

    def _loop(self, loop: Loop) -> None:
        r = loop.range
        assert r is not None
        size = r.src[0]
        limit = self._value(size)
        self.blocks += 1
        number = self.blocks
        carried = []
        for node in loop.carried:
            acc = node.src[0]
            start = self.current.get(acc)
            if start is None:
                start = self._value(acc.src[0])
            carried.append((node, acc, start))
        guard = size.vmin < 1
        entry = self.block
        if guard:
            test = self._emit(f"icmp sgt i64 {limit}, 0")
            self.lines.append(f"  br i1 {test}, label %loop{number}, label %done{number}")
        else:
            self.lines.append(f"  br label %loop{number}")
        self.lines.append(f"loop{number}:")
        self.block = f"loop{number}"
        counter = self._fresh()
        self.names[r] = counter
        slot = len(self.lines)
        self.lines.append("")
        phis = []
        for _, acc, start in carried:
            phi = self._fresh()
            self.current[acc] = phi
            self.names[acc] = phi
            phis.append((phi, type_name(acc.dtype), start))
        slots = list(range(slot + 1, slot + 1 + len(phis)))
        self.lines.extend([""] * len(phis))
        saved = dict(self.pointers)
        self._items(loop)
        self.pointers = saved
        step = self._emit(f"add nuw nsw i64 {counter}, 1")
        test = self._emit(f"icmp slt i64 {step}, {limit}")
        latch = self.block
        self.lines[slot] = f"  {counter} = phi i64 [ 0, %{entry} ], [ {step}, %{latch} ]"
        ends = []
        for (node, acc, start), (phi, kind, _), place in zip(carried, phis, slots, strict=True):
            inner = node.src[1]
            # Of several loops around one accumulator only the innermost makes the update.
            value = self._value(inner) if node.src[-1] is r else self.current[acc]
            self.lines[place] = f"  {phi} = phi {kind} [ {start}, %{entry} ], [ {value}, %{latch} ]"
            ends.append((node, acc, start, kind, value))
        self.lines.append(f"  br i1 {test}, label %loop{number}, label %done{number}")
        self.lines.append(f"done{number}:")
        self.block = f"done{number}"
        for node, acc, start, kind, value in ends:
            if guard:
                value = self._emit(f"phi {kind} [ {start}, %{entry} ], [ {value}, %{latch} ]")
            self.current[acc] = value
            self.names[node] = value

    # -- values --------------------------------------------------------------------------------

    def _value(self, node: UOp) -> str:
        if node.op == O.CONST:
            return constant(node.arg, node.dtype)
        name = self.names.get(node)
        if name is None:
            self._node(node)
            name = self.names[node]
        return name

    def _call(self, name: str, result: str, arguments: list[tuple[str, str]]) -> str:
        kinds = ", ".join([k.partition(" align ")[0] for k, _ in arguments])
        self.declarations.add(f"declare {result} @{name}({kinds})")
        text = ", ".join([f"{k} {v}" for k, v in arguments])
        return f"call {result} @{name}({text})"

    def _node(self, node: UOp) -> None:
        op = node.op
        if op in (O.CONST, O.PARAM, O.INDEX, O.DEFINE_LOCAL) or node in self.names:
            return
        if op == O.AFTER and node.src[0].op in (O.PARAM, O.DEFINE_LOCAL):
            return
        if op == O.STORE:
            self._store(node)
            return
        if op == O.LOAD:
            self.names[node] = self._load(node)
        elif op == O.DEFINE_VAR:
            self.names[node] = self._variable(node)
        elif op == O.BIND or op == O.AFTER:
            self.names[node] = self._value(node.src[0])
        elif op == O.LANES:
            kind = type_name(node.dtype.scalar)
            self.names[node] = (
                "<" + ", ".join([f"{kind} {i}" for i in range(node.dtype.lanes)]) + ">"
            )
        elif op == O.BROADCAST:
            self.names[node] = self._broadcast(self._value(node.src[0]), node.dtype)
        elif op == O.GEP:
            source = node.src[0]
            self.names[node] = self._emit(
                f"extractelement {type_name(source.dtype)} {self._value(source)}, i64 {node.arg}"
            )
        elif op == O.VECTORIZE:
            self.names[node] = self._vectorize(node)
        elif op == O.SHUFFLE:
            self.names[node] = self._shuffled(node)
        elif op == O.CAST:
            self.names[node] = self._cast(node)
        elif op == O.BITCAST:
            self.names[node] = self._bitcast(node)
        elif op == O.DOT:
            self.names[node] = self._dot(node)
        elif op in _FLOAT_PARTS:
            self.names[node] = self._float_parts(node)
        elif op == O.WHERE and node.arg == RARE and node.src[1] in self.rare:
            self.names[node] = self._rarely(node)
        else:
            self.names[node] = self._alu(node)

    def _rarely(self, node: UOp) -> str:
        """A select whose first value is computed only if some lane takes it."""
        condition, kind = node.src[0], type_name(node.dtype)
        test, usual = self._value(condition), self._value(node.src[2])
        lanes = type_name(condition.dtype)
        some = test
        if condition.dtype.lanes > 1:
            name = f"llvm.vector.reduce.or.{_suffix(condition.dtype)}"
            some = self._emit(self._call(name, "i1", [(lanes, test)]))
        self.blocks += 1
        number, before, known = self.blocks, self.block, len(self.names)
        self.lines.append(f"  br i1 {some}, label %rare{number}, label %usual{number}, !prof !1")
        self.lines.append(f"rare{number}:")
        self.block = f"rare{number}"
        value = self._value(node.src[1])
        mixed = self._emit(f"select {lanes} {test}, {kind} {value}, {kind} {usual}")
        while len(self.names) > known:  # nothing behind the branch is known after it
            self.names.popitem()
        self.lines.append(f"  br label %usual{number}")
        self.lines.append(f"usual{number}:")
        behind, self.block = self.block, f"usual{number}"
        return self._emit(f"phi {kind} [ {usual}, %{before} ], [ {mixed}, %{behind} ]")

    def _variable(self, node: UOp) -> str:
        if node.arg.name == "core_id":
            return "%core"
        position = self.variables.index(node.arg.name)
        self.count += 1
        place = f"%v{self.count}"
        self.count += 1
        value = f"%v{self.count}"
        self.scratch.append(f"  {place} = getelementptr i64, ptr %vals, i64 {position}")
        self.scratch.append(f"  {value} = load i64, ptr {place}, align 8")
        return value

    def _vectorize(self, node: UOp) -> str:
        kind = type_name(node.dtype)
        value = "poison"
        for i, s in enumerate(node.src):
            value = self._emit(
                f"insertelement {kind} {value}, {type_name(s.dtype)} {self._value(s)}, i64 {i}"
            )
        return value

    def _shuffled(self, node: UOp) -> str:
        kind = type_name(node.src[0].dtype)
        values = [self._value(s) for s in node.src]
        second = values[1] if len(values) == 2 else "poison"
        mask = ", ".join([f"i32 {lane}" if lane >= 0 else "i32 poison" for lane in node.arg])
        return self._emit(
            f"shufflevector {kind} {values[0]}, {kind} {second}, <{len(node.arg)} x i32> <{mask}>"
        )

    def _broadcast(self, value: str, dtype: DType) -> str:
        kind, scalar = type_name(dtype), type_name(dtype.scalar)
        one = self._emit(f"insertelement {kind} poison, {scalar} {value}, i64 0")
        return self._emit(
            f"shufflevector {kind} {one}, {kind} poison, <{dtype.lanes} x i32> zeroinitializer"
        )

    # -- memory --------------------------------------------------------------------------------

    def _memory(self, node: UOp) -> str:
        """The address of an argument, or of scratch memory."""
        while node.op == O.AFTER:
            node = node.src[0]
        if node.op == O.PARAM:
            return self._param(node)
        name = f"%scratch{node.arg.id}"
        if node not in self.names:
            self.names[node] = name
            kind = _memory_type(node.dtype)
            self.scratch.insert(0, f"  {name} = alloca [{node.arg.size} x {kind}], align 64")
        return name

    def _param(self, node: UOp) -> str:
        found = self.params.get(node.arg.slot)
        if found is None:
            found = self.params[node.arg.slot] = f"%p{node.arg.slot}"
            place = f"%q{node.arg.slot}"
            self.scratch.append(
                f"  {place} = getelementptr ptr, ptr %bufs, i64 {node.arg.slot}\n"
                f"  {found} = load ptr, ptr {place}, align 8"
            )
        return found

    def _address(self, index: UOp) -> str:
        """Pointer to the first element; a constant part of the offset comes last."""
        memory = self._memory(index.src[0])
        scalar = _memory_type(index.src[0].dtype.scalar)
        offset = index.src[1]
        extra = 0
        if offset.op == O.ADD and offset.src[1].op == O.CONST:
            extra = offset.src[1].arg
            offset = offset.src[0]
        elif offset.op == O.CONST:
            extra, offset = offset.arg, None  # type: ignore[assignment]
        base = memory
        if offset is not None:
            key = (memory, offset)
            found = self.pointers.get(key)
            if found is None:
                value = self._value(offset)
                found = self._emit(f"getelementptr {scalar}, ptr {memory}, i64 {value}")
                self.pointers[key] = found
            base = found
        if extra:
            return self._emit(f"getelementptr {scalar}, ptr {base}, i64 {extra}")
        return base

    def _each_address(self, index: UOp) -> str:
        memory = self._memory(index.src[0])
        scalar = _memory_type(index.src[0].dtype.scalar)
        offsets = index.src[1]
        kind = type_name(offsets.dtype)
        return self._emit(f"getelementptr {scalar}, ptr {memory}, {kind} {self._value(offsets)}")

    def _memory_lane(self, index: UOp, lane: int) -> str:
        """The place of one lane of a vector access."""
        if index.arg == "each":
            places = self._each_address(index)
            return self._emit(
                f"extractelement <{index.src[1].dtype.lanes} x ptr> {places}, i64 {lane}"
            )
        scalar = _memory_type(index.src[0].dtype.scalar)
        return self._emit(f"getelementptr {scalar}, ptr {self._address(index)}, i64 {lane}")

    def _gate(self, index: UOp, lanes: int) -> str | None:
        if len(index.src) < 3:
            return None
        gate = index.src[2]
        value = self._value(gate)
        if lanes > 1 and gate.dtype.lanes == 1:
            return self._broadcast(value, dt.bool_.vec(lanes))
        return value

    def _load(self, node: UOp) -> str:
        index = node.src[0]
        dtype = node.dtype
        lanes = dtype.lanes
        kind = _memory_type(dtype)
        align = index.src[0].dtype.itemsize  # a word of several elements lies at any of them
        gate = self._gate(index, lanes)
        if index.arg == "each":
            value = self._gather(index, dtype, gate)
        elif gate is None:
            value = self._emit(f"load {kind}, ptr {self._address(index)}, align {align}")
        elif lanes > 1:
            value = self._emit(
                self._call(
                    f"llvm.masked.load.{_memory_suffix(dtype)}.p0",
                    kind,
                    [
                        (f"ptr align {align}", self._address(index)),
                        (f"<{lanes} x i1>", gate),
                        (kind, "zeroinitializer"),
                    ],
                )
            )
        else:
            # Outside the gate, read element 0, which always exists, and drop it.
            base = self._memory(index.src[0])
            place = self._emit(f"select i1 {gate}, ptr {self._address(index)}, ptr {base}")
            read = self._emit(f"load {kind}, ptr {place}, align {align}")
            value = self._emit(f"select i1 {gate}, {kind} {read}, {kind} {_zero(kind)}")
        if dtype.scalar is dt.bool_:
            return self._emit(f"icmp ne {kind} {value}, {_zero(kind)}")
        return value

    def _gather(self, index: UOp, dtype: DType, gate: str | None) -> str:
        lanes = dtype.lanes
        kind = _memory_type(dtype)
        mask = gate or constant(True, dt.bool_.vec(lanes))
        return self._emit(
            self._call(
                f"llvm.masked.gather.{_memory_suffix(dtype)}.v{lanes}p0",
                kind,
                [
                    (
                        f"<{lanes} x ptr> align {index.src[0].dtype.itemsize}",
                        self._each_address(index),
                    ),
                    (f"<{lanes} x i1>", mask),
                    (kind, "zeroinitializer"),
                ],
            )
        )

    def _store(self, node: UOp) -> None:
        index, source = node.src
        dtype = source.dtype
        lanes = dtype.lanes
        kind = _memory_type(dtype)
        align = dtype.itemsize
        value = self._value(source)
        if dtype.scalar is dt.bool_:
            value = self._emit(f"zext {type_name(dtype)} {value} to {kind}")
        lane = only_lane(index, lanes)
        if lane is not None:
            # LLVM writes a truncated value in its old width where a mask is known to have one lane.
            one, memory = self._memory_lane(index, lane), _memory_type(dtype.scalar)
            part = self._emit(f"extractelement {kind} {value}, i64 {lane}")
            self.lines.append(f"  store {memory} {part}, ptr {one}, align {align}")
            return
        gate = self._gate(index, lanes)
        if index.arg == "each":
            mask = gate or constant(True, dt.bool_.vec(lanes))
            call = self._call(
                f"llvm.masked.scatter.{_memory_suffix(dtype)}.v{lanes}p0",
                "void",
                [
                    (kind, value),
                    (f"<{lanes} x ptr> align {align}", self._each_address(index)),
                    (f"<{lanes} x i1>", mask),
                ],
            )
            self.lines.append(f"  {call}")
        elif gate is None:
            start = factor_of(index.src[1]) * dtype.itemsize
            place = self._address(index)
            past = self.stream and index.src[0].op == O.PARAM  # scratch memory is read again soon
            if past and lanes * dtype.itemsize % 64 == 0 and start % 64 == 0:
                self.streamed = True
                self.lines.append(f"  store {kind} {value}, ptr {place}, align 64, !nontemporal !0")
            else:
                self.lines.append(f"  store {kind} {value}, ptr {place}, align {align}")
        elif lanes > 1:
            call = self._call(
                f"llvm.masked.store.{_memory_suffix(dtype)}.p0",
                "void",
                [
                    (kind, value),
                    (f"ptr align {align}", self._address(index)),
                    (f"<{lanes} x i1>", gate),
                ],
            )
            self.lines.append(f"  {call}")
        else:
            self.blocks += 1
            number = self.blocks
            self.lines.append(f"  br i1 {gate}, label %then{number}, label %next{number}")
            self.lines.append(f"then{number}:")
            saved = dict(self.pointers)
            address = self._address(index)
            self.pointers = saved
            self.lines.append(f"  store {kind} {value}, ptr {address}, align {align}")
            self.lines.append(f"  br label %next{number}")
            self.lines.append(f"next{number}:")
            self.block = f"next{number}"

    # -- arithmetic ----------------------------------------------------------------------------

    def _cast(self, node: UOp) -> str:
        source = node.src[0]
        a, b = source.dtype, node.dtype
        value, old, new = self._value(source), type_name(source.dtype), type_name(node.dtype)
        if a.kind == "f" and b.kind == "f":
            word = "fpext" if b.bits > a.bits else "fptrunc"
            return self._emit(f"{word} {old} {value} to {new}")
        if a.kind == "f":
            name = "fptosi" if b.kind in "ix" else "fptoui"
            return self._emit(
                self._call(f"llvm.{name}.sat.{_suffix(b)}.{_suffix(a)}", new, [(old, value)])
            )
        if b.kind == "f":
            word = "sitofp" if a.kind == "i" else "uitofp"
            return self._emit(f"{word} {old} {value} to {new}")
        bits_a = 1 if a.kind == "b" else a.bits
        bits_b = 1 if b.kind == "b" else b.bits
        if bits_a == bits_b:
            return value
        if bits_b < bits_a:
            return self._emit(f"trunc {old} {value} to {new}")
        word = "sext" if a.kind == "i" else "zext"
        return self._emit(f"{word} {old} {value} to {new}")

    def _bitcast(self, node: UOp) -> str:
        old, new = type_name(node.src[0].dtype), type_name(node.dtype)
        value = self._value(node.src[0])
        return value if old == new else self._emit(f"bitcast {old} {value} to {new}")

    def _dot(self, node: UOp) -> str:
        """The sum of products of words, on vectors of a size that an instruction takes."""
        form = dot_form(node)
        a, b = [self._emit(f"bitcast {type_name(s.dtype)} {self._value(s)} to {form.words}")
                for s in node.src[:2]]  # fmt: skip
        if form.swaps:
            a, b = b, a
        kind = type_name(node.dtype)
        total = self._value(node.src[2]) if len(node.src) == 3 else "zeroinitializer"
        return self._emit(
            self._call(form.name, kind, [(kind, total), (form.words, a), (form.words, b)])
        )

    def _float_parts(self, node: UOp) -> str:
        """AVX-512's instruction for one register: in all lanes, rounding as always."""
        kind = type_name(node.dtype)
        register = node.dtype.lanes * node.dtype.bits
        word, option = _FLOAT_PARTS[node.op]
        arguments = [(kind, self._value(s)) for s in node.src]
        arguments += [("i32", option)] if option else []
        arguments += [(kind, "zeroinitializer"), (f"i{max(node.dtype.lanes, 8)}", "-1")]
        arguments += [("i32", "4")] if register == 512 else []
        name = f"llvm.x86.avx512.mask.{word}.{'ps' if node.dtype.bits == 32 else 'pd'}.{register}"
        return self._emit(self._call(name, kind, arguments))

    def _alu(self, node: UOp) -> str:
        op, dtype = node.op, node.dtype
        kind = type_name(dtype)
        values = [self._value(s) for s in node.src]
        operand = node.src[-1].dtype
        is_float = operand.kind == "f"
        if op in O.COMPARE:
            word = "fcmp" if is_float else "icmp"
            signed = operand.kind == "i"
            table = _ORDERED if is_float else (_SIGNED if signed else _UNSIGNED)
            return self._emit(f"{word} {table[op]} {type_name(operand)} {values[0]}, {values[1]}")
        if op == O.WHERE:
            test = type_name(node.src[0].dtype)
            return self._emit(f"select {test} {values[0]}, {kind} {values[1]}, {kind} {values[2]}")
        if op == O.FMA:
            name = f"llvm.fma.{_suffix(dtype)}"
            return self._emit(self._call(name, kind, [(kind, v) for v in values]))
        if op == O.NEG:
            if is_float:
                return self._emit(f"fneg {kind} {values[0]}")
            return self._emit(f"sub {kind} {_zero(kind)}, {values[0]}")
        if op == O.NOT:
            ones = constant(True, dtype) if dtype.kind == "b" else constant(-1, dtype)
            return self._emit(f"xor {kind} {values[0]}, {ones}")
        if op in (O.MAX, O.MIN):
            return self._extreme(op, dtype, values)
        if is_float:
            if op in _FLOAT_OPS:
                return self._emit(f"{_FLOAT_OPS[op]} {kind} {values[0]}, {values[1]}")
            if op in _FLOAT_CALLS:
                name = f"llvm.{_FLOAT_CALLS[op]}.{_suffix(dtype)}"
                return self._emit(self._call(name, kind, [(kind, values[0])]))
        else:
            if op in _INT_OPS:
                return self._emit(f"{_INT_OPS[op]} {kind} {values[0]}, {values[1]}")
            if op == O.ABS:
                negative = self._emit(f"sub {kind} {_zero(kind)}, {values[0]}")
                test = self._emit(f"icmp slt {kind} {values[0]}, {_zero(kind)}")
                bools = type_name(dt.bool_.vec(dtype.lanes))
                return self._emit(f"select {bools} {test}, {kind} {negative}, {kind} {values[0]}")
            if op == O.SHL:
                return self._emit(f"shl {kind} {values[0]}, {values[1]}")
            if op == O.SHR:
                word = "ashr" if dtype.kind == "i" else "lshr"
                return self._emit(f"{word} {kind} {values[0]}, {values[1]}")
            if op in (O.IDIV, O.MOD) and node.arg in ("trunc", "nonneg"):
                unsigned = node.arg == "nonneg" or dtype.kind != "i"
                word = ("u" if unsigned else "s") + ("div" if op == O.IDIV else "rem")
                return self._emit(f"{word} {kind} {values[0]}, {values[1]}")
        raise CompileError(f"no LLVM form for {O.NAMES[op]} on {dtype!r} with arg {node.arg!r}")

    def _extreme(self, op: int, dtype: DType, values: list[str]) -> str:
        kind = type_name(dtype)
        bools = type_name(dt.bool_.vec(dtype.lanes))
        a, b = values
        if dtype.kind == "b":
            return self._emit(f"{'or' if op == O.MAX else 'and'} {kind} {a}, {b}")
        if dtype.kind != "f":
            signed = dtype.kind == "i"
            test = ("s" if signed else "u") + ("gt" if op == O.MAX else "lt")
            chosen = self._emit(f"icmp {test} {kind} {a}, {b}")
            return self._emit(f"select {bools} {chosen}, {kind} {a}, {kind} {b}")
        # One hardware max, then NaN of the first operand (the second already passes through).
        test = "ogt" if op == O.MAX else "olt"
        chosen = self._emit(f"fcmp {test} {kind} {a}, {b}")
        larger = self._emit(f"select {bools} {chosen}, {kind} {a}, {kind} {b}")
        bad = self._emit(f"fcmp uno {kind} {a}, {a}")
        return self._emit(f"select {bools} {bad}, {kind} {a}, {kind} {larger}")


def factor_of(node: UOp) -> int:
    """A number that divides the value whatever the loops do; 0 for zero itself."""
    if node.op == O.CONST:
        return abs(int(node.arg))
    if node.op == O.ADD:
        return gcd(factor_of(node.src[0]), factor_of(node.src[1]))
    if node.op == O.MUL:
        return factor_of(node.src[0]) * factor_of(node.src[1])
    return 1


def streaming_choice(name: str, streaming: str, plain: str, slot: int) -> str:
    """A function that runs ``streaming`` where the output is aligned for it, else ``plain``."""
    return f"""define void @{name}(ptr %bufs, ptr %vals, i64 %core) #0 {{
  %place = getelementptr ptr, ptr %bufs, i64 {slot}
  %out = load ptr, ptr %place, align 8
  %address = ptrtoint ptr %out to i64
  %low = and i64 %address, 63
  %aligned = icmp eq i64 %low, 0
  br i1 %aligned, label %fast, label %slow
fast:
  tail call void @{streaming}(ptr %bufs, ptr %vals, i64 %core)
  ret void
slow:
  tail call void @{plain}(ptr %bufs, ptr %vals, i64 %core)
  ret void
}}
"""


def _memory_suffix(dtype: DType) -> str:
    scalar = dtype.scalar
    name = {dt.float32: "f32", dt.float64: "f64", dt.float16: "f16"}.get(scalar, f"i{scalar.bits}")
    return f"v{dtype.lanes}{name}"


def _zero(kind: str) -> str:
    if kind.startswith("<"):
        return "zeroinitializer"
    return "0.0" if kind in ("float", "double", "half") else "0"


SELDOM = '!1 = !{ !"branch_weights", i32 1, i32 2000 }'
ATTRIBUTES = 'attributes #0 = { nounwind "no-trapping-math"="true" }\n!0 = !{ i32 1 }\n'
ATTRIBUTES += SELDOM + "\n"


def module(functions: list[str], declarations: set[str]) -> str:
    """All kernels of a plan as one module."""
    return "\n".join([*functions, *sorted(declarations), ATTRIBUTES])
