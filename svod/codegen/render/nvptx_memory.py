"""Memory as one thread of a GPU sees it: addresses, alignment, gates as branches, wide stores."""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import Final

from svod.codegen.render.llvm import LLVMRenderer
from svod.codegen.render.llvm_memory import factor_of
from svod.codegen.render.llvm_types import memory_type, type_name, zero
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.node import UOp

VECTOR_BYTES: Final = 16  # the widest access of one thread
GLOBAL, SHARED = "ptr addrspace(1)", "ptr addrspace(3)"

# Of a store by bytes: its name, the constraint and the type of a word, and how many there are.
_STORES = {
    1: ("b8", "h", "i8", 1), 2: ("b16", "h", "i16", 1), 4: ("b32", "r", "i32", 1),
    8: ("b64", "l", "i64", 1), 16: ("v4.b32", "r", "<4 x i32>", 4),
}  # fmt: skip


class NvptxMemory(LLVMRenderer):
    """Loads and stores. Only where pointers are ``aligned`` is an access wider than an element."""

    def __init__(self, aligned: bool = True) -> None:
        super().__init__()
        self.aligned = aligned
        self.widest = 1  # bytes of the widest access that rests on aligned arguments
        self.shared_stores: dict[UOp, Callable[[UOp, str], None]] = {}  # that go elsewhere
        self._tiles: dict[UOp, list[str]] = {}
        self._quads: dict[int, dict[int, tuple[UOp, str]]] = {}
        self._written: frozenset[int] = frozenset()

    def assembly(self, text: str, constraints: str, arguments: str) -> None:
        """Assembly without a result."""
        self.lines.append(f'  call void asm sideeffect "{text}", "{constraints}"({arguments})')

    def _register(self, name: str) -> str:
        return self._emit(self._call(f"llvm.nvvm.read.ptx.sreg.{name}", "i32", []))

    def _shuffle_word(self, word: str, offset: int) -> str:
        name = "llvm.nvvm.shfl.sync.bfly.i32"
        numbers = [("i32", "-1"), ("i32", word), ("i32", str(offset)), ("i32", "31")]
        return self._emit(self._call(name, "i32", numbers))

    def _memory(self, node: UOp) -> str:
        while node.op == O.AFTER:
            node = node.src[0]
        return f"%p{node.arg.slot}"

    def _address(self, index: UOp) -> str:
        memory = self._memory(index.src[0])
        scalar = memory_type(index.src[0].dtype.scalar)
        offset = index.src[1]
        extra = 0
        base = memory
        if offset.op == O.CONST:
            extra = offset.arg
        else:
            if offset.op == O.ADD and offset.src[1].op == O.CONST:
                extra, offset = offset.src[1].arg, offset.src[0]
            found = self.pointers.get((memory, offset))
            if found is None:
                found = self._step(scalar, memory, self._value(offset))
                self.pointers[memory, offset] = found
            base = found
        return self._step(scalar, base, str(extra)) if extra else base

    def _step(self, scalar: str, base: str, offset: str) -> str:
        return self._emit(f"getelementptr inbounds {scalar}, {GLOBAL} {base}, i64 {offset}")

    def _align(self, index: UOp, dtype: DType) -> int:
        """Bytes an access is known to be aligned to."""
        item = dtype.scalar.itemsize
        whole = item * dtype.lanes
        if not self.aligned or whole == item:
            return item
        step = factor_of(index.src[1]) * item  # 0 where the offset is zero
        align = min(gcd(gcd(step, VECTOR_BYTES), power_of_two(whole)), VECTOR_BYTES)
        align = max(align, item)
        self.widest = max(self.widest, align)
        return align

    def _load(self, node: UOp) -> str:
        index, dtype = node.src[0], node.dtype
        gate = index.src[2] if len(index.src) > 2 else None
        kind = memory_type(dtype)
        if index.arg == "each" or (gate is not None and gate.dtype.lanes > 1):
            value = self._load_each(index, dtype, gate)
        elif gate is None:
            value = self._read(index, kind, self._address(index), self._align(index, dtype))
        elif dtype.lanes > 1:
            value = self._load_behind(index, dtype, gate)
        else:
            value = self._read_or_zero(index, kind, self._address(index), self._value(gate))
        if dtype.scalar is dt.bool_:
            return self._emit(f"icmp ne {kind} {value}, {zero(kind)}")
        return value

    def _read(self, index: UOp, kind: str, address: str, align: int) -> str:
        memory = index.src[0]
        fixed = memory.op == O.PARAM and memory.arg.slot not in self._written
        note = ", !invariant.load !0" if fixed else ""
        return self._emit(f"load {kind}, {GLOBAL} {address}, align {align}{note}")

    def _read_or_zero(self, index: UOp, kind: str, address: str, gate: str) -> str:
        """Where the gate is closed, read element 0, which always exists, and drop it."""
        base = self._memory(index.src[0])
        place = self._emit(f"select i1 {gate}, {GLOBAL} {address}, {GLOBAL} {base}")
        item = index.src[0].dtype.scalar.itemsize
        read = self._read(index, kind, place, item)
        return self._emit(f"select i1 {gate}, {kind} {read}, {kind} {zero(kind)}")

    def _load_behind(self, index: UOp, dtype: DType, gate: UOp) -> str:
        """A vector that is read only where the gate is open."""
        kind, test = memory_type(dtype), self._value(gate)
        before = self.block
        number = self._branch(test)
        saved = dict(self.pointers)
        read = self._read(index, kind, self._address(index), self._align(index, dtype))
        self.pointers = saved
        inside = self.block
        self._join(number)
        return self._emit(f"phi {kind} [ {read}, %{inside} ], [ {zero(kind)}, %{before} ]")

    def _load_each(self, index: UOp, dtype: DType, gate: UOp | None) -> str:
        """Lanes one by one: they lie apart, or some do not exist."""
        kind, scalar = memory_type(dtype), memory_type(dtype.scalar)
        result = "poison"
        for lane, address in enumerate(self._lane_addresses(index, dtype.lanes)):
            if gate is None:
                read = self._read(index, scalar, address, dtype.scalar.itemsize)
            else:
                read = self._read_or_zero(index, scalar, address, self._lane(gate, lane))
            result = self._emit(f"insertelement {kind} {result}, {scalar} {read}, i64 {lane}")
        return result

    def _lane(self, node: UOp, lane: int) -> str:
        value = self._value(node)
        if node.dtype.lanes == 1:
            return value
        return self._emit(f"extractelement {type_name(node.dtype)} {value}, i64 {lane}")

    def _lane_addresses(self, index: UOp, lanes: int) -> list[str]:
        scalar = memory_type(index.src[0].dtype.scalar)
        if index.arg != "each":
            base = self._address(index)
            return [self._step(scalar, base, str(lane)) for lane in range(lanes)]
        memory, offsets = self._memory(index.src[0]), index.src[1]
        found = []
        for lane in range(lanes):
            offset = self._lane(offsets, lane)
            if offsets.dtype.scalar.bits == 32:
                offset = self._emit(f"sext i32 {offset} to i64")
            found.append(self._step(scalar, memory, offset))
        return found

    def _store(self, node: UOp) -> None:
        index, source = node.src
        dtype = source.dtype
        kind = memory_type(dtype)
        value = self._value(source)
        if dtype.scalar is dt.bool_:
            value = self._emit(f"zext {type_name(dtype)} {value} to {kind}")
        if self.aligned and node.arg is not None and node.arg[0] == "quad":
            assert index.arg != "each"
            self._store_quad(node, self._emit(f"bitcast {kind} {value} to i32"))
            return
        gate = index.src[2] if len(index.src) > 2 else None
        if node in self.shared_stores:
            self.shared_stores[node](index, value)
            return
        if node.arg in ("add", "max"):
            self._combine(node.arg, index, dtype, value)
            return
        if index.arg == "each" or (gate is not None and gate.dtype.lanes > 1):
            self._store_each(index, dtype, value, gate)
            return
        if gate is None:
            self._write(kind, value, self._address(index), self._align(index, dtype))
            return
        align, size = self._align(index, dtype), dtype.scalar.itemsize * dtype.lanes
        if self._tiles and align >= size:
            self._write_where(self._value(gate), kind, value, self._address(index), size)
            return
        number = self._branch(self._value(gate))
        saved = dict(self.pointers)
        self._write(kind, value, self._address(index), align)
        self.pointers = saved
        self._join(number)

    def _combine(self, how: str, index: UOp, dtype: DType, value: str) -> None:
        """What memory holds and a value, combined by the memory itself."""
        test = self._value(index.src[2]) if len(index.src) > 2 else "true"
        how = f"u{how}" if how == "max" and dtype.kind == "u" else how
        number = self._branch(test)
        saved = dict(self.pointers)
        place = f"{GLOBAL} {self._address(index)}"
        scope = 'syncscope("device") monotonic'
        self._emit(f"atomicrmw {how} {place}, {memory_type(dtype)} {value} {scope}")
        self.pointers = saved
        self._join(number)

    def _store_quad(self, node: UOp, word: str) -> None:
        """Pairs of columns of four threads: each gets all four of one piece, and stores them."""
        _, group, number = node.arg
        words = self._quads.setdefault(group, {})
        words[number] = (node, word)
        if len(words) < 4:
            return
        e = self._emit
        self.widest = VECTOR_BYTES
        lane = e(f"and i32 {self._register('tid.x')}, 3")
        found = [words[i][1] for i in range(4)]
        for bit in (1, 2):
            is_high = e(f"icmp ne i32 {e(f'and i32 {lane}, {bit}')}, 0")
            for low in range(4):
                if low & bit:
                    continue
                a, b = found[low], found[low | bit]
                sent = e(f"select i1 {is_high}, i32 {a}, i32 {b}")
                came = self._shuffle_word(sent, bit)
                found[low] = e(f"select i1 {is_high}, i32 {came}, i32 {a}")
                found[low | bit] = e(f"select i1 {is_high}, i32 {b}, i32 {came}")
        vector = "poison"
        for i, part in enumerate(found):
            vector = e(f"insertelement <4 x i32> {vector}, i32 {part}, i64 {i}")
        index = words[0][0].src[0]
        skip = e(f"zext i32 {e(f'mul i32 {lane}, 6')} to i64")
        address = self._step("i16", self._address(index), skip)
        if len(index.src) == 2:
            self._write("<4 x i32>", vector, address, VECTOR_BYTES)
        else:
            test = self._value(index.src[2])
            self._write_where(test, "<4 x i32>", vector, address, VECTOR_BYTES)

    def _write_where(self, test: str, kind: str, value: str, address: str, size: int) -> None:
        """A store by a predicate. A tile has a hundred of them, and as many branches take LLVM
        seconds."""
        e = self._emit
        wanted = e(f"zext i1 {test} to i32")
        name, constraint, form, words = _STORES[size]
        if kind != form:
            value = e(f"bitcast {kind} {value} to {form}")
        if size == 1:
            value, form = e(f"zext i8 {value} to i16"), "i16"
        values = [f"{form} {value}"]
        if words > 1:
            values = [f"i32 {e(f'extractelement {form} {value}, i64 {i}')}" for i in range(words)]
        listed = ", ".join([f"${2 + i}" for i in range(words)])
        listed = f"{{{listed}}}" if words > 1 else listed
        text = f"{{.reg .pred q; setp.ne.u32 q, $0, 0; @q st.global.{name} [$1], {listed};}}"
        constraints = ",".join(["r", "l", *[constraint] * words])
        self.assembly(
            text, constraints, ", ".join([f"i32 {wanted}", f"{GLOBAL} {address}", *values])
        )

    def _write(self, kind: str, value: str, address: str, align: int) -> None:
        self.lines.append(f"  store {kind} {value}, {GLOBAL} {address}, align {align}")

    def _store_each(self, index: UOp, dtype: DType, value: str, gate: UOp | None) -> None:
        kind, scalar = memory_type(dtype), memory_type(dtype.scalar)
        addresses = self._lane_addresses(index, dtype.lanes)
        for lane, address in enumerate(addresses):
            part = self._emit(f"extractelement {kind} {value}, i64 {lane}")
            number = 0 if gate is None else self._branch(self._lane(gate, lane))
            self._write(scalar, part, address, dtype.scalar.itemsize)
            if gate is not None:
                self._join(number)

    def _branch(self, test: str) -> int:
        self.blocks += 1
        number = self.blocks
        self.lines.append(f"  br i1 {test}, label %then{number}, label %next{number}")
        self.lines.append(f"then{number}:")
        self.block = f"then{number}"
        return number

    def _end_here(self, number: int) -> None:
        """Threads in the branch are done."""
        self.lines.append("  ret void")
        self.lines.append(f"next{number}:")
        self.block = f"next{number}"

    def _join(self, number: int) -> None:
        self.lines.append(f"  br label %next{number}")
        self.lines.append(f"next{number}:")
        self.block = f"next{number}"


def power_of_two(value: int) -> int:
    """The largest power of two that divides a number."""
    return value & -value
