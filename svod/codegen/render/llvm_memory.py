"""LLVM IR of memory: addresses, loads and stores, of vectors and lanes, behind gates or not."""

from __future__ import annotations

from math import gcd
from typing import Any

from svod.codegen.render.llvm_types import constant, memory_type, stored, suffix, type_name, zero
from svod.codegen.render.llvm_values import LLVMValues
from svod.codegen.render.masks import bounds_of, only_lane, uniform
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.node import UOp, elements

PAGE_BYTES = 4096


class LLVMMemory(LLVMValues):
    """Writes accesses. With ``stream``, whole lines of an output go past the caches."""

    def __init__(self, stream: bool = False) -> None:
        super().__init__()
        self.blocks = 0
        self.block = "entry"
        self.pointers: dict[Any, str] = {}
        self.params: dict[int, str] = {}
        self.scratch: list[str] = []  # what the function begins with
        self.stream = stream
        self.streamed = False

    def _memory(self, node: UOp) -> str:
        """The address of an argument, or of scratch memory."""
        while node.op == O.AFTER:
            node = node.src[0]
        if node.op == O.PARAM:
            return self._param(node)
        name = f"%scratch{node.arg.id}"
        if node not in self.names:
            self.names[node] = name
            kind = memory_type(node.dtype)
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
        scalar = memory_type(index.src[0].dtype.scalar)
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
        scalar = memory_type(index.src[0].dtype.scalar)
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
        scalar = memory_type(index.src[0].dtype.scalar)
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
        kind = memory_type(dtype)
        align = index.src[0].dtype.itemsize  # a word of several elements lies at any of them
        gate = self._gate(index, lanes)
        if index.arg == "each":
            value = self._gather(index, dtype, gate)
        elif gate is None:
            value = self._emit(f"load {kind}, ptr {self._address(index)}, align {align}")
        elif lanes > 1:
            value = self._emit(
                self._call(
                    f"llvm.masked.load.{suffix(stored(dtype))}.p0",
                    kind,
                    [
                        (f"ptr align {align}", self._mapped(index, lanes)),
                        (f"<{lanes} x i1>", gate),
                        (kind, "zeroinitializer"),
                    ],
                )
            )
        else:
            read = self._emit(f"load {kind}, ptr {self._mapped(index, lanes)}, align {align}")
            value = self._emit(f"select i1 {gate}, {kind} {read}, {kind} {zero(kind)}")
        if dtype.scalar is dt.bool_:
            return self._emit(f"icmp ne {kind} {value}, {zero(kind)}")
        return value

    def _mapped(self, index: UOp, lanes: int) -> str:
        """The place of a gated load; that of element 0, which always exists, where none is wanted.

        A single element would be a fault there. Lanes that are all masked out are none, but the
        processor takes hundreds of cycles to find that out where a page is not mapped.
        """
        place, gate = self._address(index), index.src[2]
        if lanes > 1 and not _is_far(index):
            return place
        parts = [self._value(part) for part in uniform(gate)]
        if not parts:
            bits = self._emit(f"bitcast <{lanes} x i1> {self._value(gate)} to i{lanes}")
            parts = [self._emit(f"icmp ne i{lanes} {bits}, 0")]
        wanted = parts[0]
        for part in parts[1:]:
            wanted = self._emit(f"and i1 {wanted}, {part}")
        return self._emit(f"select i1 {wanted}, ptr {place}, ptr {self._memory(index.src[0])}")

    def _gather(self, index: UOp, dtype: DType, gate: str | None) -> str:
        lanes = dtype.lanes
        kind = memory_type(dtype)
        mask = gate or constant(True, dt.bool_.vec(lanes))
        return self._emit(
            self._call(
                f"llvm.masked.gather.{suffix(stored(dtype))}.v{lanes}p0",
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
        kind = memory_type(dtype)
        align = dtype.itemsize
        value = self._value(source)
        if dtype.scalar is dt.bool_:
            value = self._emit(f"zext {type_name(dtype)} {value} to {kind}")
        lane = only_lane(index, lanes)
        if lane is not None:
            # LLVM writes a truncated value in its old width where a mask is known to have one lane.
            one, memory = self._memory_lane(index, lane), memory_type(dtype.scalar)
            part = self._emit(f"extractelement {kind} {value}, i64 {lane}")
            self.lines.append(f"  store {memory} {part}, ptr {one}, align {align}")
            return
        gate = self._gate(index, lanes)
        if index.arg == "each":
            mask = gate or constant(True, dt.bool_.vec(lanes))
            call = self._call(
                f"llvm.masked.scatter.{suffix(stored(dtype))}.v{lanes}p0",
                "void",
                [
                    (kind, value),
                    (f"<{lanes} x ptr> align {align}", self._each_address(index)),
                    (f"<{lanes} x i1>", mask),
                ],
            )
            self.lines.append(f"  {call}")
        elif gate is None:
            place = self._address(index)
            if self.stream and _is_whole_lines(index, dtype):
                self.streamed = True
                self.lines.append(f"  store {kind} {value}, ptr {place}, align 64, !nontemporal !0")
            else:
                self.lines.append(f"  store {kind} {value}, ptr {place}, align {align}")
        elif lanes > 1:
            call = self._call(
                f"llvm.masked.store.{suffix(stored(dtype))}.p0",
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


def _is_far(index: UOp) -> bool:
    """Whether an access may begin more than a page away from its array."""
    memory = index.src[0]
    while memory.op == O.AFTER:
        memory = memory.src[0]
    if memory.op != O.PARAM:
        return False
    lowest, highest = bounds_of(index.src[1])
    page = PAGE_BYTES // memory.dtype.itemsize
    return lowest < -page or highest >= elements(memory.shape) + page


def _is_whole_lines(index: UOp, dtype: DType) -> bool:
    """Whether a store fills lines of the cache; scratch memory is read again soon: no."""
    start = factor_of(index.src[1]) * dtype.itemsize
    size = dtype.lanes * dtype.itemsize
    return index.src[0].op == O.PARAM and size % 64 == 0 and start % 64 == 0


def factor_of(node: UOp) -> int:
    """A number that divides the value whatever the loops do; 0 for zero itself."""
    if node.op == O.CONST:
        return abs(int(node.arg))
    if node.op == O.ADD:
        return gcd(factor_of(node.src[0]), factor_of(node.src[1]))
    if node.op == O.MUL:
        return factor_of(node.src[0]) * factor_of(node.src[1])
    return 1
