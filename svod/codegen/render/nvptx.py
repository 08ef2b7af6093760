"""LLVM IR text of one kernel for NVIDIA GPUs: the same tree of loops, seen by one thread.

Arguments are passed directly: one pointer per slot, then the run-time integers. SPECIAL nodes are
the thread's place in its block and the block's in the grid. BARRIER nodes exchange values between
threads: within a warp by shuffles, within a block through shared memory. There are no masked
intrinsics here: what a gate guards is a branch or a choice of address. Pointers of arguments are
taken to be aligned to 16 bytes where ``aligned``; otherwise no access is wider than an element.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from svod.codegen.linearize import Loop
from svod.codegen.render.attention import emit_attention
from svod.codegen.render.attention_gradient import emit_gradient, emit_logarithms
from svod.codegen.render.boxes import Boxes
from svod.codegen.render.llvm import SELDOM
from svod.codegen.render.llvm_types import memory_type, type_name, zero
from svod.codegen.render.nvptx_memory import (
    GLOBAL,
    SHARED,
    VECTOR_BYTES,
    NvptxMemory,
    power_of_two,
)
from svod.codegen.render.rare import behind_branches
from svod.codegen.render.tallies import emit_tallies, is_tally
from svod.codegen.render.tiles import emit_tile
from svod.codegen.render.tma import Fed, Tma, begin_fed, emit_fed
from svod.codegen.render.turns import emit_turns
from svod.codegen.render.windows import emit_windows
from svod.dtype import types as dt
from svod.dtype.types import DType
from svod.ir import ops as O
from svod.ir.needs import TensorMap
from svod.ir.node import UOp

_REGISTERS = {"g": "ctaid", "l": "tid", "i": "ctaid"}
_MAP = 'ptr byval([128 x i8]) align 64 "nvvm.grid_constant"'
# Of a loop that is not to be unrolled.
AS_IT_IS = ("!2 = distinct !{!2, !3}", '!3 = !{!"llvm.loop.unroll.disable"}')
_BARRIER = "llvm.nvvm.barrier.cta.sync.aligned.all"


_FED: dict[str, type[Tma] | type[Boxes]] = {"tma": Tma, "boxes": Boxes}
_TILES = {
    "attention": emit_attention, "attention_gradient": emit_gradient,
    "attention_logarithms": emit_logarithms, "windows": emit_windows,
    **dict.fromkeys(_FED, emit_fed),
}  # fmt: skip


class NvptxRenderer(NvptxMemory):
    """Writes one kernel; ``shared`` collects its shared memory, as globals of the module."""

    def __init__(self, aligned: bool = True) -> None:
        super().__init__(aligned)
        self.shared: list[str] = []
        self.resident = 1  # blocks a multiprocessor must be able to hold at once
        self.dynamic_bytes = 0  # of shared memory that the launch provides
        self.maps: list[TensorMap] = []  # arguments that the launch makes of addresses
        self.fed: Fed | None = None  # the tile that the copy engine feeds
        self._exchanged: dict[tuple[UOp, str], str] = {}
        self._depth = 0
        self._name = ""

    def render_kernel(
        self,
        name: str,
        root: Loop,
        slots: list[int],
        variables: list[str],
        writes: tuple[int, ...],
        threads: int,
    ) -> str:
        """The function's text for blocks of ``threads``."""
        self._name = name
        self._written = frozenset(writes)
        self.variables = variables
        for node in _nodes(root):
            if node.op == O.BARRIER and node.arg[0] == "tile":
                unit = node.arg[1].partition(".")[0]
                if unit in _FED:
                    begin_fed(self, _FED[unit](self, node))
        self.rare = behind_branches(root)
        self._items(root)
        parameters = [
            f"{GLOBAL} noalias {'' if s in self._written else 'readonly '}%p{s}" for s in slots
        ]
        parameters += [f"i64 %n{i}" for i in range(len(variables))]
        parameters += [f"{_MAP} %map{i}" for i in range(len(self.maps))]
        body = "\n".join([*self.scratch, *self.lines])
        attributes = f'nounwind "nvvm.maxntid"="{threads}"'
        if self.resident > 1:
            attributes += f' "nvvm.minctasm"="{self.resident}"'
        return (
            f"define ptx_kernel void @{name}({', '.join(parameters)}) {attributes} {{\n"
            f"entry:\n{body}\n  ret void\n}}\n"
        )

    def _alu(self, node: UOp) -> str:
        """Quotients are frozen: LLVM's search for cheaper forms of sums looks through them again
        for every pair of addresses, which took a second in a tile of odd axes."""
        found = super()._alu(node)
        if node.op not in (O.IDIV, O.MOD) or node.dtype is not dt.uint32:
            return found
        return self._emit(f"freeze i32 {found}")

    def _loop(self, loop: Loop) -> None:
        votes = [n for n in loop.items if not isinstance(n, Loop) and _is_vote(n)]
        turns = [n for n in loop.items if not isinstance(n, Loop) and _is_turn(n)]
        self._depth += 1
        tallies = [n for n in loop.items if not isinstance(n, Loop) and is_tally(n)]
        if tallies:
            emit_tallies(self, tallies, partial(super()._loop, loop))
        elif turns:
            emit_turns(self, loop, turns[0])
        elif votes and not loop.carried:
            self._voted_loop(loop, votes[0])
        else:
            super()._loop(loop)
        self._depth -= 1

    def _voted_loop(self, loop: Loop, vote: UOp) -> None:
        """A loop of which a warp does some steps: its threads ask for 32 of them at once."""
        r, e = loop.range, self._emit
        assert r is not None
        limit = self._value(r.src[0])
        thread = self._register("tid.x")
        lane = e(f"zext i32 {e(f'and i32 {thread}, 31')} to i64")
        self.blocks += 1
        number, entry = self.blocks, self.block
        self.lines += [f"  br label %scan{number}", f"scan{number}:"]
        self.block = f"scan{number}"
        base, slot = self._fresh(), len(self.lines)
        self.lines.append("")
        names, pointers = dict(self.names), dict(self.pointers)
        step = e(f"add i64 {base}, {lane}")
        exists = e(f"icmp slt i64 {step}, {limit}")
        self.names[r] = e(f"select i1 {exists}, i64 {step}, i64 0")
        wanted = e(f"and i1 {exists}, {self._value(vote.src[0])}")
        self.names, self.pointers = names, dict(pointers)
        ballot = "llvm.nvvm.vote.ballot.sync"
        first = e(self._call(ballot, "i32", [("i32", "-1"), ("i1", wanted)]))
        some = e(f"icmp ne i32 {first}, 0")
        asked = self.block
        self.lines.append(f"  br i1 {some}, label %take{number}, label %scanned{number}")
        self.lines.append(f"take{number}:")
        self.block = f"take{number}"
        steps, place = self._fresh(), len(self.lines)
        self.lines.append("")
        lowest = e(self._call("llvm.cttz.i32", "i32", [("i32", steps), ("i1", "true")]))
        self.names[r] = e(f"add i64 {base}, {e(f'zext i32 {lowest} to i64')}")
        self.names[vote] = "true"
        self._items(loop)
        self.pointers = pointers
        rest = e(f"and i32 {steps}, {e(f'sub i32 {steps}, 1')}")
        more = e(f"icmp ne i32 {rest}, 0")
        taken = f"[ {rest}, %{self.block} ]"
        self.lines[place] = f"  {steps} = phi i32 [ {first}, %{asked} ], {taken}"
        self.lines.append(f"  br i1 {more}, label %take{number}, label %scanned{number}")
        self.lines.append(f"scanned{number}:")
        self.block = f"scanned{number}"
        following = e(f"add nuw nsw i64 {base}, 32")
        again = e(f"icmp slt i64 {following}, {limit}")
        back = f"[ {following}, %{self.block} ]"
        self.lines[slot] = f"  {base} = phi i64 [ 0, %{entry} ], {back}"
        self.lines.append(f"  br i1 {again}, label %scan{number}, label %done{number}")
        self.lines.append(f"done{number}:")
        self.block = f"done{number}"

    # -- what only a GPU has -------------------------------------------------------------------

    def _node(self, node: UOp) -> None:
        if node in self.names:
            return
        if node.op == O.SPECIAL:
            self.names[node] = self._special(node)
        elif node.op == O.BARRIER and node.arg[0] == "tile":
            emit = _TILES.get(node.arg[1].partition(".")[0], emit_tile)
            self._tiles[node] = emit(self, node)
            self.names[node] = self._tiles[node][0]
        elif node.op == O.BARRIER and node.arg[0] == "piece":
            self.names[node] = self._piece(node)
        elif _is_vote(node):
            self.names[node] = self._value(node.src[0])
        elif node.op == O.BARRIER:
            value = self._value(node.src[0])
            if node.arg[0] == "shuffle":
                self.names[node] = self._shuffle(value, node.dtype, node.arg[1])
            else:
                self.names[node] = self._exchange(node, value, *node.arg)
        else:
            super()._node(node)

    def _piece(self, node: UOp) -> str:
        """Some sums of a tile as one value."""
        tile, first = node.src[0], int(node.arg[1])
        while tile.op == O.BROADCAST:
            tile = tile.src[0]
        self._value(tile)
        sums = self._tiles[tile]
        if node.dtype.lanes == 1:
            return sums[first]
        value = "poison"
        for i in range(node.dtype.lanes):
            kind, one = type_name(node.dtype), type_name(node.dtype.scalar)
            value = self._emit(f"insertelement {kind} {value}, {one} {sums[first + i]}, i64 {i}")
        return value

    def dynamic_shared(self, nbytes: int) -> str:
        """The address of shared memory that the launch provides, aligned to 1024 bytes."""
        self.dynamic_bytes = nbytes + 1024
        self.shared.append("@dynamic_shared = external addrspace(3) global [0 x i8], align 16")
        start = self._emit(f"ptrtoint {SHARED} @dynamic_shared to i32")
        up = self._emit(f"add i32 {start}, 1023")
        return self._emit(f"and i32 {up}, -1024")

    def tensor_map(self, tensor: TensorMap) -> int:
        """The number of a new argument that describes a matrix to the copy engine."""
        self.maps.append(tensor)
        return len(self.maps) - 1

    def _special(self, node: UOp) -> str:
        kind, axis = node.arg[0], "xyz"[int(node.arg[-1])]
        return self._emit(f"zext i32 {self._register(f'{_REGISTERS[kind]}.{axis}')} to i64")

    def _shuffle(self, value: str, dtype: DType, offset: int) -> str:
        if dtype.lanes == 1:
            return self._shuffle_scalar(value, dtype, offset)
        kind, result = type_name(dtype), "poison"
        scalar = type_name(dtype.scalar)
        for i in range(dtype.lanes):
            part = self._emit(f"extractelement {kind} {value}, i64 {i}")
            moved = self._shuffle_scalar(part, dtype.scalar, offset)
            result = self._emit(f"insertelement {kind} {result}, {scalar} {moved}, i64 {i}")
        return result

    def _shuffle_scalar(self, value: str, dtype: DType, offset: int) -> str:
        kind = type_name(dtype)
        bits = 1 if dtype.kind == "b" else dtype.bits
        if kind in ("float", "double", "half"):
            value = self._emit(f"bitcast {kind} {value} to i{bits}")
        if bits == 64:
            low = self._emit(f"trunc i64 {value} to i32")
            high = self._emit(f"trunc i64 {self._emit(f'lshr i64 {value}, 32')} to i32")
            low = self._emit(f"zext i32 {self._shuffle_word(low, offset)} to i64")
            high = self._emit(f"zext i32 {self._shuffle_word(high, offset)} to i64")
            high = self._emit(f"shl i64 {high}, 32")
            value = self._emit(f"or i64 {low}, {high}")
        elif bits == 32:
            value = self._shuffle_word(value, offset)
        else:
            word = self._shuffle_word(self._emit(f"zext i{bits} {value} to i32"), offset)
            value = self._emit(f"trunc i32 {word} to i{bits}")
        if kind in ("float", "double", "half"):
            value = self._emit(f"bitcast i{bits} {value} to {kind}")
        return value

    def barrier(self) -> None:
        """Wait for all threads of the block."""
        self.lines.append("  " + self._call(_BARRIER, "void", [("i32", "0")]))

    def shared_array(self, count: int, kind: str, align: int) -> str:
        """The name of a new array in shared memory."""
        name = f"@{self._name}_shared{len(self.shared)}"
        self.shared.append(
            f"{name} = internal addrspace(3) global [{count} x {kind}] poison, align {align}"
        )
        return name

    def _exchange(
        self, node: UOp, value: str, partner: str, slot: int, parts: int, width: int
    ) -> str:
        dtype = node.dtype
        kind = memory_type(dtype)
        align = min(VECTOR_BYTES, power_of_two(dtype.itemsize * dtype.lanes))
        key = (node.src[0], partner)
        array = self._exchanged.get(key)
        if array is None:
            size = parts if partner == "warp" else parts * width
            array = self._exchanged[key] = self.shared_array(size, kind, align)
            if dtype.scalar is dt.bool_:
                value = self._emit(f"zext {type_name(dtype)} {value} to {kind}")
            x = self._register("tid.x")
            if partner == "warp":
                place = self._emit(f"lshr i32 {x}, 5")
            else:
                row = self._emit(f"mul i32 {self._register('tid.y')}, {width}")
                place = self._emit(f"add i32 {row}, {x}")
            if self._depth:  # the last round's values may still be read
                self.barrier()
            target = self._emit(f"getelementptr {kind}, {SHARED} {array}, i32 {place}")
            self.lines.append(f"  store {kind} {value}, {SHARED} {target}, align {align}")
            self.barrier()
        if partner == "warp":
            place = str(slot)
        else:
            x = self._register("tid.x")
            place = self._emit(f"add i32 {x}, {slot * width}")
        source = self._emit(f"getelementptr {kind}, {SHARED} {array}, i32 {place}")
        found = self._emit(f"load {kind}, {SHARED} {source}, align {align}")
        if dtype.scalar is dt.bool_:
            found = self._emit(f"icmp ne {kind} {found}, {zero(kind)}")
        return found

    def _cast(self, node: UOp) -> str:
        if node.dtype.scalar is not dt.bfloat16:
            return super()._cast(node)
        source = node.src[0]
        kind = type_name(node.dtype)
        half = kind.replace("i16", "bfloat")
        value = self._emit(f"fptrunc {type_name(source.dtype)} {self._value(source)} to {half}")
        return self._emit(f"bitcast {half} {value} to {kind}")

    # -- arguments -----------------------------------------------------------------------------

    def _variable(self, node: UOp) -> str:
        return f"%n{self.variables.index(node.arg.name)}"


def _is_vote(node: UOp) -> bool:
    return node.op == O.BARRIER and node.arg[0] == "vote"


def _is_turn(node: UOp) -> bool:
    return node.op == O.BARRIER and node.arg[0] == "turn"


def _nodes(loop: Loop) -> Iterator[UOp]:
    """All that a loop and those inside it compute."""
    for item in loop.items:
        if isinstance(item, Loop):
            yield from _nodes(item)
        else:
            yield item


def nvptx_module(functions: list[str], shared: list[str], declarations: set[str]) -> str:
    """Kernels as one module."""
    head = 'target triple = "nvptx64-nvidia-cuda"'
    notes = ("!0 = !{}", SELDOM, *AS_IT_IS)
    return "\n".join([head, *shared, *functions, *sorted(declarations), *notes, ""])
