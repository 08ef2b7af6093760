"""Panels: pieces of matrices in shared memory, in the layout tensor cores read.

A panel has rows of 128 bytes of neighbouring elements, whose 16-byte parts are permuted by the
row's number modulo 8; longer rows are cut into such columns of rows, one after another. ``copy``
brings one from global memory with asynchronous copies, zeros where the matrix ends;
``descriptor`` and ``step`` say where wgmma finds the next 32 bytes of the summed axis.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from svod.optimize.gpu_tile import Axes

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer

GLOBAL, SHARED = "ptr addrspace(1)", "ptr addrspace(3)"
LINE: Final = 128  # bytes of a row
PART: Final = 16  # bytes copied at once
COMMIT: Final = "cp.async.commit_group;"


@dataclass(slots=True)
class Panel:
    """One operand as a block sees it: ``outer`` rows or columns by ``depth`` of the summed axis."""

    r: NvptxRenderer
    memory: str
    base: str  # elements before the first one, i64
    outer: int
    depth: int
    outer_axes: Axes
    depth_axes: Axes
    wide: bool  # sixteen bytes at a time
    threads: int  # that copy
    thread: str  # number of this one among them
    item: int = 2  # bytes of an element
    along_depth: bool = False
    offsets: list[str] | None = None
    place: str = ""
    row: str = ""
    part: str = ""
    inside: str = ""  # of a part that may go over the end of the inner of two axes: where it begins

    def __post_init__(self) -> None:
        self.along_depth = self.depth_axes[-1][1] == 1

    @property
    def rows(self) -> int:
        return self.outer if self.along_depth else self.depth

    @property
    def columns(self) -> int:
        return self.depth if self.along_depth else self.outer

    @property
    def nbytes(self) -> int:
        return self.rows * self.columns * self.item

    @property
    def passes(self) -> int:
        return self.nbytes // PART // self.threads

    @property
    def rows_per_pass(self) -> int:
        return self.threads * PART // (self.columns * self.item)

    @property
    def turned(self) -> int:
        """What the instruction is told: whether neighbours lie across the summed axis."""
        return 0 if self.along_depth else 1

    # -- where the tensor cores look -----------------------------------------------------------

    def descriptor(self, address: str) -> str:
        """The panel at a shared address: strides in units of 16 bytes, 128-byte rows."""
        e = self.r._emit
        leading = 1 if self.along_depth else self.rows * LINE // 16
        fixed = (1 << 62) | (64 << 32) | (leading << 16)
        short = e(f"lshr i32 {address}, 4")
        return e(f"or i64 {e(f'zext i32 {short} to i64')}, {fixed}")

    def step(self, number: int) -> int:
        """From the descriptor of a panel to that of its 32 bytes number ``number`` of depth."""
        if not self.along_depth:
            return number * 16 * LINE // 16
        return number // 4 * (self.rows * LINE // 16) + number % 4 * 2

    def down(self, groups: int) -> int:
        """Bytes to the rows number 64 * groups of ``outer``."""
        return groups * (64 * LINE if self.along_depth else self.rows * LINE)

    # -- copies --------------------------------------------------------------------------------

    def prepare(self, start: str = "0") -> None:
        """Where this thread copies; the panel begins at the outer number ``start``, an i64."""
        e = self.r._emit
        per_row = self.columns * self.item // PART
        low = e(f"urem i32 {self.thread}, {per_row}")
        self.row = e(f"udiv i32 {self.thread}, {per_row}")
        self.part = e(f"mul i32 {low}, {PART // self.item}")
        column = e(f"mul i32 {e(f'lshr i32 {low}, 3')}, {self.rows * LINE}")
        inside = e(f"xor i32 {e(f'and i32 {low}, 7')}, {e(f'and i32 {self.row}, 7')}")
        place = e(f"add i32 {e(f'mul i32 {self.row}, {LINE}')}, {e(f'shl i32 {inside}, 4')}")
        self.place = e(f"add i32 {place}, {column}")
        if self._may_cross:
            first = e(f"add i64 {start}, {e(f'zext i32 {self.part} to i64')}")
            place = e(f"urem i64 {first}, {self.outer_axes[-1][0]}")
            self.inside = e(f"trunc i64 {place} to i32")
        one_axis = len(self.outer_axes if self.along_depth else self.depth_axes) == 1
        count = 1 if one_axis else self.passes
        self.offsets = [self._offset(i, start) for i in range(count)]

    @property
    def _may_cross(self) -> bool:
        """Whether sixteen bytes may be the end of one inner axis and the start of the next."""
        inner = self.outer_axes[-1][0]
        return not self.along_depth and len(self.outer_axes) > 1 and inner % (PART // self.item) > 0

    def _offset(self, number: int, start: str) -> str:
        """Elements to what this thread copies first in a pass."""
        e = self.r._emit
        row = e(f"add i32 {self.row}, {number * self.rows_per_pass}")
        outer, depth = (row, self.part) if self.along_depth else (self.part, row)
        first = e(f"add i64 {start}, {e(f'zext i32 {outer} to i64')}")
        total = e(f"add i64 {self.base}, {place_of(self.r, first, self.outer_axes)}")
        deep = e(f"zext i32 {depth} to i64")
        return e(f"add i64 {total}, {e(f'mul i64 {deep}, {self.depth_axes[-1][1]}')}")

    def copy(self, target: str, shift: str, rows: str | None, columns: str | None) -> None:
        """Start to copy: ``target`` a shared address, ``shift`` elements to this panel, then how
        many rows and columns exist from here on, as i32; None where all do."""
        for number in range(self.passes):
            if self.wide:
                self._copy_wide(number, target, shift, rows, columns)
            else:
                self._copy_narrow(number, target, shift, rows, columns)

    def _from(self, number: int, shift: str) -> tuple[str, int]:
        """A pointer and the bytes after it where a pass begins for this thread."""
        assert self.offsets is not None
        e = self.r._emit
        is_regular = len(self.offsets) == 1
        offset = self.offsets[0 if is_regular else number]
        extra = 0
        if is_regular:
            axes = self.outer_axes if self.along_depth else self.depth_axes
            extra = number * self.rows_per_pass * axes[-1][1] * self.item
        total = e(f"add i64 {offset}, {shift}")
        return e(f"getelementptr {self._kind}, {GLOBAL} {self.memory}, i64 {total}"), extra

    @property
    def _kind(self) -> str:
        return f"i{8 * self.item}"

    def _copy_wide(
        self, number: int, target: str, shift: str, rows: str | None, columns: str | None
    ) -> None:
        e = self.r._emit
        address, extra = self._from(number, shift)
        there = e(f"add i32 {target}, {self.place}")
        after = number * self.rows_per_pass * LINE
        tests = []
        if rows is not None:
            row = e(f"add i32 {self.row}, {number * self.rows_per_pass}")
            tests.append(e(f"icmp slt i32 {row}, {rows}"))
        if columns is not None:
            tests.append(e(f"icmp slt i32 {self.part}, {columns}"))
        text = f"cp.async.cg.shared.global [$0+{after}], [$1+{extra}], 16"
        if not tests:
            self._asm(f"{text};", "r,l,~{memory}", f"i32 {there}, {GLOBAL} {address}")
            return
        test = tests[0] if len(tests) == 1 else e(f"and i1 {tests[0]}, {tests[1]}")
        nbytes = e(f"select i1 {test}, i32 16, i32 0")
        arguments = f"i32 {there}, {GLOBAL} {address}, i32 {nbytes}"
        self._asm(f"{text}, $2;", "r,l,r,~{memory}", arguments)

    def _copy_narrow(
        self, number: int, target: str, shift: str, rows: str | None, columns: str | None
    ) -> None:
        """Elements one by one: rows are not aligned, or end inside the sixteen bytes."""
        e = self.r._emit
        address, extra = self._from(number, shift)
        in_row = "true"
        if rows is not None:
            row = e(f"add i32 {self.row}, {number * self.rows_per_pass}")
            in_row = e(f"icmp slt i32 {row}, {rows}")
        count, kind = PART // self.item, self._kind
        vector = "poison"
        for i in range(count):
            test = in_row
            if columns is not None:
                column = e(f"add i32 {self.part}, {i}")
                test = e(f"and i1 {test}, {e(f'icmp slt i32 {column}, {columns}')}")
            after = str(extra // self.item + i)
            if self._may_cross and i:
                (_, outer), (inner, _) = self.outer_axes
                over = e(f"icmp sge i32 {self.inside}, {inner - i}")
                next_row = extra // self.item + i + outer - inner
                after = e(f"select i1 {over}, i64 {next_row}, i64 {after}")
            here = e(f"getelementptr {kind}, {GLOBAL} {address}, i64 {after}")
            here = e(f"select i1 {test}, {GLOBAL} {here}, {GLOBAL} {self.memory}")
            read = e(f"load {kind}, {GLOBAL} {here}, align {self.item}, !invariant.load !0")
            word = e(f"select i1 {test}, {kind} {read}, {kind} 0")
            vector = e(f"insertelement <{count} x {kind}> {vector}, {kind} {word}, i64 {i}")
        place = e(f"add i32 {target}, {self.place}")
        place = e(f"add i32 {place}, {number * self.rows_per_pass * LINE}")
        there = e(f"inttoptr i32 {place} to {SHARED}")
        self.r.lines.append(f"  store <{count} x {kind}> {vector}, {SHARED} {there}, align 16")

    def _asm(self, text: str, constraints: str, arguments: str) -> None:
        self.r.assembly(text, constraints, arguments)


def place_of(r: NvptxRenderer, number: str, axes: Axes) -> str:
    """Elements before the row-major number of some axes, both i64."""
    e = r._emit
    total = "0"
    for axis, (size, step) in enumerate(reversed(axes)):
        here = number
        if axis < len(axes) - 1:
            here = e(f"urem i64 {number}, {size}")
            number = e(f"udiv i64 {number}, {size}")
        total = e(f"add i64 {total}, {e(f'mul i64 {here}, {step}')}")
    return total


def assembly(
    r: NvptxRenderer,
    lines: list[str],
    tied: list[str],
    inputs: list[tuple[str, str, str]],  # kind, constraint, value
    count: int,
    kind: str = "float",
    has_effects: bool = True,
) -> list[str]:
    """Assembly with ``count`` numbers as results, changed in place where tied."""
    kinds = "{ " + ", ".join([kind] * count) + " }"
    constraints = ["=f" if kind == "float" else "=r"] * count + [c for _, c, _ in inputs]
    constraints += [str(i) for i in range(len(tied))] + ["~{memory}"] * has_effects
    arguments = [f"{k} {v}" for k, _, v in inputs] + [f"{kind} {v}" for v in tied]
    text = "\\0A".join(lines)
    effect = "sideeffect " if has_effects else ""
    found = r._emit(
        f'call {kinds} asm {effect}"{text}", "{",".join(constraints)}"({", ".join(arguments)})'
    )
    return [r._emit(f"extractvalue {kinds} {found}, {i}") for i in range(count)]
