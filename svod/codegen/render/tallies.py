"""Sums of whole numbers at few places: the threads of a block add them up in shared memory, which
then goes to where they are wanted, in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from svod.codegen.render.llvm_types import memory_type
from svod.ir import ops as O
from svod.ir.node import UOp

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer

GLOBAL, SHARED = "ptr addrspace(1)", "ptr addrspace(3)"


@dataclass(frozen=True, slots=True)
class Tally:
    """An array in shared memory that stands for one of the kernel's."""

    array: str
    memory: str
    kind: str
    size: int
    threads: int

    def count(self, renderer: NvptxRenderer, index: UOp, value: str) -> None:
        """Add a value at a place, where the gate is open."""
        gate = renderer._value(index.src[2]) if len(index.src) > 2 else "true"
        place = renderer._value(index.src[1])
        number = renderer._branch(gate)
        self._add(renderer, SHARED, self.array, f"i64 {place}", value, "block")
        renderer._join(number)

    def clear(self, renderer: NvptxRenderer) -> None:
        for place in self._places(renderer):
            where = self._at(renderer, SHARED, self.array, f"i32 {place}")
            renderer.lines.append(f"  store {self.kind} 0, {SHARED} {where}")
        renderer.barrier()

    def give(self, renderer: NvptxRenderer) -> None:
        renderer.barrier()
        e = renderer._emit
        for place in self._places(renderer):
            where = self._at(renderer, SHARED, self.array, f"i32 {place}")
            found = e(f"load {self.kind}, {SHARED} {where}")
            number = renderer._branch(e(f"icmp ne {self.kind} {found}, 0"))
            self._add(renderer, GLOBAL, self.memory, f"i32 {place}", found, "device")
            renderer._join(number)

    def _places(self, renderer: NvptxRenderer) -> Iterator[str]:
        """The places of a thread, each in a branch of its own."""
        thread = renderer._register("tid.x")
        for first in range(0, self.size, self.threads):
            place = renderer._emit(f"add i32 {thread}, {first}")
            number = renderer._branch(renderer._emit(f"icmp ult i32 {place}, {self.size}"))
            yield place
            renderer._join(number)

    def _at(self, renderer: NvptxRenderer, space: str, base: str, place: str) -> str:
        return renderer._emit(f"getelementptr {self.kind}, {space} {base}, {place}")

    def _add(
        self, renderer: NvptxRenderer, space: str, base: str, place: str, value: str, scope: str
    ) -> None:
        where = f"{space} {self._at(renderer, space, base, place)}"
        order = f'syncscope("{scope}") monotonic'
        renderer._emit(f"atomicrmw add {where}, {self.kind} {value} {order}")


def is_tally(node: UOp) -> bool:
    return node.op == O.STORE and isinstance(node.arg, tuple) and node.arg[0] == "tally"


def emit_tallies(renderer: NvptxRenderer, stores: list[UOp], loop: Callable[[], None]) -> None:
    """A loop of stores into one array, between clearing and giving away what stands for it."""
    first = stores[0]
    _, size, threads = first.arg
    kind = memory_type(first.src[1].dtype)
    array = renderer.shared_array(size, kind, 16)
    tally = Tally(array, renderer._memory(first.src[0].src[0]), kind, size, threads)
    tally.clear(renderer)
    count = partial(tally.count, renderer)
    renderer.shared_stores.update(dict.fromkeys(stores, count))
    loop()
    tally.give(renderer)
