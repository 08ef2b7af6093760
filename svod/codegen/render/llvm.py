"""LLVM IR text for one kernel: a tree of loops becomes blocks, phis and vector instructions.

The text is SSA with rotated loops and explicit vectors, so no LLVM pass runs on it, only code
generation.
"""

from __future__ import annotations

from svod.codegen.formula import RARE
from svod.codegen.linearize import Loop
from svod.codegen.render.llvm_memory import LLVMMemory
from svod.codegen.render.llvm_types import suffix, type_name
from svod.codegen.render.llvm_values import FLOAT_PARTS
from svod.codegen.render.rare import behind_branches
from svod.ir import ops as O
from svod.ir.node import UOp


class LLVMRenderer(LLVMMemory):
    """Writes one kernel. ``declarations`` collects the intrinsics it used."""

    def __init__(self, stream: bool = False, has_fma: bool = True, is_arm: bool = False) -> None:
        super().__init__(stream)
        self.has_fma, self.is_arm = has_fma, is_arm
        self.variables: list[str] = []
        self.current: dict[UOp, str] = {}  # ACC -> its value now
        self.rare: frozenset[UOp] = frozenset()  # made where a branch needs them

    def render(self, name: str, root: Loop, variables: list[str]) -> str:
        """The function's text. ``variables`` are the run-time integers, in the order of vals."""
        self.variables = variables
        self.rare = behind_branches(root)
        self._items(root)
        body = "\n".join(self.lines)
        head = f"define void @{name}(ptr %bufs, ptr %vals, i64 %core) #0 {{\nentry:\n"
        prologue = "\n".join(self.scratch)
        fence = "\n  fence seq_cst" if self.streamed else ""
        return f"{head}{prologue}\n{body}{fence}\n  ret void\n}}\n"

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

    # -- nodes ---------------------------------------------------------------------------------

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
        elif op in FLOAT_PARTS:
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
            name = f"llvm.vector.reduce.or.{suffix(condition.dtype)}"
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
        place, value = self._fresh(), self._fresh()
        self.scratch.append(f"  {place} = getelementptr i64, ptr %vals, i64 {position}")
        self.scratch.append(f"  {value} = load i64, ptr {place}, align 8")
        return value


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


SELDOM = '!1 = !{ !"branch_weights", i32 1, i32 2000 }'
ATTRIBUTES = 'attributes #0 = { nounwind "no-trapping-math"="true" }\n!0 = !{ i32 1 }\n'
ATTRIBUTES += SELDOM + "\n"


def module(functions: list[str], declarations: set[str]) -> str:
    """All kernels of a plan as one module."""
    return "\n".join([*functions, *sorted(declarations), ATTRIBUTES])
