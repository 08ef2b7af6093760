"""Matmul tiles on Hopper fed by its copy engine: one warp copies, two warpgroups multiply.

The copying warp keeps a ring of stages full: a stage is one step of k of both operands. Two
barriers per stage say that its bytes have arrived, and that all who read them are done. A block
computes several tiles, one after another: copies for the next begin while the sums of the last are
still stored. Pieces of matrices are described by tensor maps, arguments which the host makes of
addresses; what lies past a matrix is read as zeros.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from svod.codegen.render.panels import LINE, Panel, assembly
from svod.codegen.render.tile_parts import ELEMENTS, THREADS, CountedLoop, Operand
from svod.codegen.render.wgmma import Wgmma, wgmma_for
from svod.ir import ops as O
from svod.ir.needs import TensorMap
from svod.ir.node import UOp
from svod.optimize.gpu_tile import Axes

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer

REGISTERS = (40, 232)  # of a thread that copies and of one that multiplies
WARPS = THREADS // 32


@dataclass(slots=True)
class Source:
    """One operand: its map, and what says where a tile begins along the map's axes."""

    panel: Panel
    number: int  # of the map
    corner: tuple[UOp, ...]  # the first row or column, then the place along each further axis
    pieces: int = 1  # boxes of one step

    def first(self, r: NvptxRenderer) -> list[str]:
        """The corner in numbers of 32 bits."""
        return [r._emit(f"trunc i64 {r._value(p)} to i32") for p in self.corner]


def begin_fed(r: NvptxRenderer, loop: Fed) -> None:
    """What comes before all tiles of a block; from here on only threads that multiply go on."""
    r.fed = loop
    if r.aligned:
        loop.begin()
    else:  # threads that would only copy have nothing to do
        number = r._branch(r._emit(f"icmp uge i32 {loop.thread}, {THREADS}"))
        r._end_here(number)


def emit_fed(r: NvptxRenderer, node: UOp) -> list[str]:
    """The loop of a tile; returns the sums of this thread in the order of the pieces."""
    loop = r.fed
    assert loop is not None
    if r.aligned:
        return loop.multiply_tile()
    base_a, base_b, m_start, n_start = [r._value(s) for s in node.src[2:6]]
    a, b = loop.operands
    a.base, a.start, b.base, b.start = base_a, m_start, base_b, n_start
    if loop.rounds is not None:  # others may still read the tile before
        r.barrier()
    copied = wgmma_for(loop.element)
    return copied(r, a, b, loop.k, loop.depth, loop.stages, loop.element).emit()


class Fed(Wgmma):
    """The two loops of a tile; what is copied in a step is for others to say."""

    node: UOp
    rounds: UOp | None  # the loop over the tiles of a block
    sources: list[Source]

    @property
    def steps(self) -> int:
        raise NotImplementedError

    def copy_step(self, firsts: list[list[str]], step: str, target: str, ready: str) -> None:
        """Start to copy a step of both operands; ``firsts`` are the corners of the tile."""
        raise NotImplementedError

    def begin(self) -> None:
        r, e = self.r, self.r._emit
        r.widest = 16
        self.start = r.dynamic_shared(self.stages * self.stage)
        array = r.shared_array(2 * self.stages, "i64", 8)
        self.full = e(f"ptrtoint ptr addrspace(3) {array} to i32")
        self.empty = e(f"add i32 {self.full}, {8 * self.stages}")
        self._make_barriers()
        number = r._branch(e(f"icmp uge i32 {self.thread}, {THREADS}"))
        self._copy_all()
        r._end_here(number)
        r.assembly(f"setmaxnreg.inc.sync.aligned.u32 {REGISTERS[1]};", "", "")
        a, b = self.panels
        group = e(f"lshr i32 {self.thread}, 7")
        mine = e(f"add i32 {self.start}, {e(f'mul i32 {group}, {a.down(1)}')}")
        right = e(f"add i32 {self.start}, {a.nbytes}")
        self.descriptors = [a.descriptor(mine), b.descriptor(right)]
        lane = e(f"and i32 {self.thread}, 31")
        self.speaks = e(f"zext i1 {e(f'icmp eq i32 {lane}, 0')} to i32")

    def _make_barriers(self) -> None:
        """Barriers that all threads see."""
        r, e = self.r, self.r._emit
        number = r._branch(e(f"icmp eq i32 {self.thread}, 0"))
        lines = []
        for stage in range(self.stages):
            lines.append(f"mbarrier.init.shared::cta.b64 [$0+{8 * stage}], 1;")
            lines.append(f"mbarrier.init.shared::cta.b64 [$1+{8 * stage}], {WARPS};")
        lines.append("fence.mbarrier_init.release.cluster;")
        r.assembly("\\0A".join(lines), "r,r,~{memory}", f"i32 {self.full}, i32 {self.empty}")
        r._join(number)
        r.barrier()

    def _wait(self, barrier: str, parity: str) -> None:
        text = (
            "{\\0A.reg .pred done;\\0Await:\\0A"
            "mbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\\0A"
            "@done bra over;\\0Abra wait;\\0Aover:\\0A}"
        )
        self.r.assembly(text, "r,r,~{memory}", f"i32 {barrier}, i32 {parity}")

    def _stage(self, step: str) -> tuple[str, str]:
        """The number of a step's stage, and the parity of its turn."""
        e = self.r._emit
        turn = e(f"udiv i32 {step}, {self.stages}")
        return e(f"urem i32 {step}, {self.stages}"), e(f"and i32 {turn}, 1")

    # -- the warp that copies --------------------------------------------------------------------

    def _copy_all(self) -> None:
        """Copy for all tiles of the block."""
        r, e = self.r, self.r._emit
        r.assembly(f"setmaxnreg.dec.sync.aligned.u32 {REGISTERS[0]};", "", "")
        number = r._branch(e(f"icmp eq i32 {self.thread}, {THREADS}"))
        names, pointers = dict(r.names), dict(r.pointers)
        if self.rounds is None:
            self._copy_tile("0")
        else:
            count = e(f"trunc i64 {r._value(self.rounds.src[0])} to i32")
            tiles = CountedLoop(r, count, [])
            r.names[self.rounds] = e(f"zext i32 {tiles.counter} to i64")
            self._copy_tile(e(f"mul i32 {tiles.counter}, {self.steps}"))
            tiles.end([])
        r._join(number)
        r.names, r.pointers = names, pointers

    def _copy_tile(self, before: str) -> None:
        """Copy for one tile, after so many steps of others."""
        r, e = self.r, self.r._emit
        firsts = [source.first(r) for source in self.sources]
        loop = CountedLoop(r, self.steps, [])
        stage, parity = self._stage(e(f"add i32 {before}, {loop.counter}"))
        there = e(f"mul i32 {stage}, 8")
        ready = e(f"add i32 {self.full}, {there}")
        self._wait(e(f"add i32 {self.empty}, {there}"), e(f"xor i32 {parity}, 1"))
        text = "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;"
        r.assembly(text, "r,r,~{memory}", f"i32 {ready}, i32 {self.stage}")
        target = e(f"add i32 {self.start}, {e(f'mul i32 {stage}, {self.stage}')}")
        self.copy_step(firsts, loop.counter, target, ready)
        loop.end([])

    def box(self, source: Source, place: str, corner: list[str], ready: str) -> None:
        """Start to copy a box; its bytes count for the barrier when they are there."""
        axes = len(corner)
        listed = ", ".join([f"${3 + i}" for i in range(axes)])
        text = (
            f"cp.async.bulk.tensor.{axes}d.shared::cluster.global.tile"
            f".mbarrier::complete_tx::bytes [$0], [$1, {{{listed}}}], [$2];"
        )
        arguments = [f"i32 {place}", f"ptr %map{source.number}", f"i32 {ready}"]
        arguments += [f"i32 {c}" for c in corner]
        constraints = ",".join(["r", "l", "r", *["r"] * axes, "~{memory}"])
        self.r.assembly(text, constraints, ", ".join(arguments))

    # -- the warpgroups that multiply ------------------------------------------------------------

    def multiply_tile(self) -> list[str]:
        """All steps of one tile."""
        r, e = self.r, self.r._emit
        before = "0"
        if self.rounds is not None:
            tile = e(f"trunc i64 {r._value(self.rounds)} to i32")
            before = e(f"mul i32 {tile}, {self.steps}")
        kind = self.element.kind
        zeros, kinds = [self.element.zero] * self.count, [kind] * self.count
        loop = CountedLoop(r, self.steps, zeros, kinds)
        step = e(f"add i32 {before}, {loop.counter}")
        stage, parity = self._stage(step)
        self._wait(e(f"add i32 {self.full}, {e(f'mul i32 {stage}, 8')}"), parity)
        current = e(f"zext i32 {e(f'mul i32 {stage}, {self.stage // 16}')} to i64")
        here = [e(f"add i64 {d}, {current}") for d in self.descriptors]
        if self.element.is_float8:  # whose sums are short: each step is added on its own
            sums = self.added(loop.values, self._multiply([], here))
            self._release(step, self.speaks)
            loop.end(sums)
            return sums
        sums = self._multiply(loop.values, here)
        wait = "wgmma.wait_group.sync.aligned"
        sums = assembly(r, [f"{wait} 1;"], sums, [], self.count, kind)
        # The step before is done: its stage may be filled again.
        exists = e(f"zext i1 {e(f'icmp ne i32 {loop.counter}, 0')} to i32")
        self._release(e(f"sub i32 {step}, 1"), e(f"and i32 {self.speaks}, {exists}"))
        loop.end(sums)
        sums = assembly(r, [f"{wait} 0;"], sums, [], self.count, kind)
        if self.rounds is not None:
            self._release(e(f"add i32 {before}, {self.steps - 1}"), self.speaks)
        return sums

    def _release(self, step: str, speaks: str) -> None:
        """One lane of every warp says that a step has been read."""
        r, e = self.r, self.r._emit
        stage = e(f"urem i32 {step}, {self.stages}")
        barrier = e(f"add i32 {self.empty}, {e(f'mul i32 {stage}, 8')}")
        text = (
            "{\\0A.reg .pred p;\\0Asetp.ne.u32 p, $1, 0;\\0A"
            "@p mbarrier.arrive.shared::cta.b64 _, [$0];\\0A}"
        )
        r.assembly(text, "r,r,~{memory}", f"i32 {barrier}, i32 {speaks}")


class Tma(Fed):
    """Plain matrices, or stacks of them."""

    def __init__(self, r: NvptxRenderer, node: UOp) -> None:
        unit, rows, columns, step, stages, m, n, k, *layout = node.arg[1:]
        a_outer, a_depth, _, b_outer, b_depth, _, a_map, b_map = layout
        memory = [r._memory(s) for s in node.src[:2]]
        a = Operand(memory[0], "0", "0", m, rows, a_outer, a_depth, False)
        b = Operand(memory[1], "0", "0", n, columns, b_outer, b_depth, False)
        super().__init__(r, a, b, k, step, stages, ELEMENTS[unit.partition(".")[2]])
        self.node = node
        self.rounds = node.src[6] if node.src[6].op == O.RANGE else None
        corners = node.src[7:]
        split = 1 + len(a_map[1])
        self.sources = [
            self._source(0, a_map, corners[:split]),
            self._source(1, b_map, corners[split:]),
        ]

    def _source(self, which: int, described: tuple[int, Axes], corner: tuple[UOp, ...]) -> Source:
        o, panel, item = self.operands[which], self.panels[which], self.element.item
        offset, axes = described
        far = o.outer if o.along_depth else o.depth
        size = o.outer[-1][0]
        sizes = (self.k, size) if o.along_depth else (size, self.k)
        tensor = TensorMap(
            self.node.src[which].arg.slot, offset * item, item,
            (*sizes, *[size for size, _ in axes]),
            (far[-1][1] * item, *[stride * item for _, stride in axes]),
            (LINE // item, panel.rows, *[1] * len(axes)),
        )  # fmt: skip
        number = self.r.tensor_map(tensor) if self.r.aligned else 0
        return Source(panel, number, corner, panel.columns * item // LINE)

    @property
    def steps(self) -> int:
        return -(-self.k // self.depth)

    def copy_step(self, firsts: list[list[str]], step: str, target: str, ready: str) -> None:
        e = self.r._emit
        depth = e(f"mul i32 {step}, {self.depth}")
        for source, (first, *places) in zip(self.sources, firsts, strict=True):
            panel = source.panel
            for piece in range(source.pieces):
                place = e(f"add i32 {target}, {piece * panel.rows * LINE}")
                skip = piece * LINE // panel.item
                if panel.along_depth:
                    corner = [e(f"add i32 {depth}, {skip}"), first]
                else:
                    corner = [e(f"add i32 {first}, {skip}"), depth]
                self.box(source, place, [*corner, *places], ready)
            target = e(f"add i32 {target}, {panel.nbytes}")
