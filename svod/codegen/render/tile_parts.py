"""What the loops of all tiles share: operands, elements, and the loop over steps of k."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from svod.optimize.gpu_tile import Axes

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer

THREADS = 256


@dataclass(slots=True)
class Operand:
    """One factor as a block sees it."""

    memory: str
    base: str  # elements before the batch
    start: str  # first row or column of the tile
    limit: int  # rows or columns there are
    tile: int  # of the tile
    outer: Axes  # of its rows or columns
    depth: Axes  # of k
    wide: bool

    @property
    def along_depth(self) -> bool:
        """Whether neighbours in memory are neighbours along k."""
        return self.depth[-1][1] == 1


@dataclass(frozen=True, slots=True)
class Element:
    """What tensor cores multiply, and what they sum in."""

    name: str  # or two, joined by a dot
    item: int  # bytes
    total: str = "f32"

    @property
    def depth(self) -> int:
        """Of one instruction: 32 bytes."""
        return 32 // self.item

    @property
    def factors(self) -> str:
        """As instructions name both operands."""
        return self.name if "." in self.name else f"{self.name}.{self.name}"

    @property
    def is_float8(self) -> bool:
        return self.item == 1 and self.total == "f32"

    @property
    def kind(self) -> str:
        return "float" if self.total == "f32" else "i32"

    @property
    def zero(self) -> str:
        return "0.0" if self.total == "f32" else "0"


ELEMENTS = {
    "bf16": Element("bf16", 2),
    "f16": Element("f16", 2),
    "tf32": Element("tf32", 4),
    **{n: Element(n, 1, "s32") for n in ("s8", "u8", "s8.u8", "u8.s8")},
    **{n: Element(n, 1) for n in ("e4m3", "e5m2", "e4m3.e5m2", "e5m2.e4m3")},
}


class CountedLoop:
    """A loop over steps that changes values: open from its making to ``end``."""

    def __init__(
        self,
        r: NvptxRenderer,
        steps: int | str,
        first: list[str],
        kinds: list[str] | None = None,
        unrolls: bool = True,
    ) -> None:
        self.r, self.steps, self.first, self.unrolls = r, steps, first, unrolls
        self.kinds = kinds or ["float"] * len(first)
        r.blocks += 1
        self.number = r.blocks
        self.before = r.block
        r.lines.append(f"  br label %tile{self.number}")
        r.lines.append(f"tile{self.number}:")
        r.block = f"tile{self.number}"
        self.counter = r._fresh()
        self.values = [r._fresh() for _ in first]
        self.place = len(r.lines)
        r.lines.extend([""] * (1 + len(first)))

    def end(self, values: list[str]) -> None:
        """Close the loop; afterwards these are what it changed."""
        r, number = self.r, self.number
        following = r._emit(f"add nuw nsw i32 {self.counter}, 1")
        test = r._emit(f"icmp ult i32 {following}, {self.steps}")
        inside = r.block
        names = [("i32", self.counter, "0", following)]
        names += zip(self.kinds, self.values, self.first, values, strict=True)
        for i, (kind, name, old, new) in enumerate(names):
            text = f"phi {kind} [ {old}, %{self.before} ], [ {new}, %{inside} ]"
            r.lines[self.place + i] = f"  {name} = {text}"
        as_it_is = "" if self.unrolls else ", !llvm.loop !2"
        r.lines.append(f"  br i1 {test}, label %tile{number}, label %rest{number}{as_it_is}")
        r.lines.append(f"rest{number}:")
        r.block = f"rest{number}"
