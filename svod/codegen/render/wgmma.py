"""Tiles on Hopper's tensor cores, which read both operands from shared memory."""

from __future__ import annotations

from svod.codegen.render.panels import assembly
from svod.codegen.render.ring import Ring
from svod.codegen.render.tile_parts import CountedLoop, Element

_WAIT = "wgmma.wait_group.sync.aligned"


def wgmma_for(element: Element) -> type[Wgmma]:
    return _ShortWgmma if element.is_float8 else Wgmma


class Wgmma(Ring):
    """Each of two warpgroups has 64 rows of the tile."""

    def emit(self) -> list[str]:
        ahead = self.stages - 2
        start, descriptors = self.first_stage()
        words = self.fill(start, ahead)
        kind = self.element.kind
        loop, sums, words = self.loop(words)
        self.arrived(ahead)
        sums = self._multiply(sums, self.here(descriptors, loop.counter))
        words = self.refill(start, loop.counter, ahead, words)
        sums = assembly(self.r, [f"{_WAIT} 1;"], sums, [], self.count, kind)
        loop.end([*sums, *words])
        return assembly(self.r, [f"{_WAIT} 0;"], sums, [], self.count, kind)

    def first_stage(self) -> tuple[str, list[str]]:
        """Shared memory, and the descriptors of its first stage."""
        e, start = self.r._emit, self.prepare()
        a, b = self.panels
        group = e(f"lshr i32 {self.thread}, 7")
        mine = e(f"add i32 {start}, {e(f'mul i32 {group}, {a.down(1)}')}")
        return start, [a.descriptor(mine), b.descriptor(e(f"add i32 {start}, {a.nbytes}"))]

    def loop(self, words: list[str]) -> tuple[CountedLoop, list[str], list[str]]:
        """The loop over steps of k, the sums in it and the words that are turned."""
        kinds = [self.element.kind] * self.count + ["i32"] * len(words)
        first = [self.element.zero] * self.count + words
        # Unrolled, steps of 128 sums took the assembler seconds.
        loop = CountedLoop(self.r, -(-self.k // self.depth), first, kinds, unrolls=False)
        return loop, loop.values[: self.count], loop.values[self.count :]

    def arrived(self, ahead: int) -> None:
        """A step has arrived for every thread once all have waited and met."""
        wait = f"cp.async.wait_group {ahead - 1}; fence.proxy.async.shared::cta;"
        self.r.assembly(wait, "~{memory}", "")
        self.r.barrier()

    def added(self, sums: list[str], started: list[str]) -> list[str]:
        """Sums and those of a step that began anew, once it is done."""
        kind = self.element.kind
        parts = assembly(self.r, [f"{_WAIT} 0;"], started, [], self.count, kind)
        return [self.r._emit(f"fadd float {x}, {y}") for x, y in zip(sums, parts, strict=True)]

    def here(self, descriptors: list[str], step: str) -> list[str]:
        """The descriptors of a step of k."""
        e = self.r._emit
        place = e(f"urem i32 {step}, {self.stages}")
        current = e(f"zext i32 {e(f'mul i32 {place}, {self.stage // 16}')} to i64")
        return [e(f"add i64 {d}, {current}") for d in descriptors]

    def refill(self, start: str, step: str, ahead: int, words: list[str]) -> list[str]:
        """Start what comes ``ahead`` steps later; returns the words of the step after it."""
        e = self.r._emit
        following = e(f"add i32 {step}, {ahead}")
        buffer = self.buffer(start, following)
        self.copy(following, buffer)
        return self.turn(words, buffer, e(f"add i32 {following}, 1"))

    def _multiply(self, sums: list[str], descriptors: list[str]) -> list[str]:
        """Start one step of k: an instruction for every 32 bytes of it. Without sums before it the
        first one begins at zero."""
        e = self.r._emit
        count, element = self.count, self.element
        inputs: list[tuple[str, str, str]] = []
        lines = ["wgmma.fence.sync.aligned;"]
        registers = ", ".join([f"${i}" for i in range(count)])
        options = "" if element.total == "s32" else ", 1, 1"
        if element.item == 2:
            options += "".join([f", {p.turned}" for p in self.panels])
        for depth in range(self.depth // element.depth):
            place = count + len(inputs)
            for panel, descriptor in zip(self.panels, descriptors, strict=True):
                inputs.append(("i64", "l", e(f"add i64 {descriptor}, {panel.step(depth)}")))
            adds = 1 if sums or depth else 0
            lines.append(
                f"wgmma.mma_async.sync.aligned.m64n{2 * count}k{element.depth}.{element.total}."
                f"{element.factors} {{{registers}}}, ${place}, ${place + 1}, {adds}{options};"
            )
        lines.append("wgmma.commit_group.sync.aligned;")
        return assembly(self.r, lines, sums, inputs, count, element.kind)


class _ShortWgmma(Wgmma):
    """The same for 8-bit floats, whose sums keep only 14 bits there: every step of k, which is 128
    of them, begins anew and is added to the sums in float32. What the next step needs has arrived
    before this one is waited for."""

    def emit(self) -> list[str]:
        ahead = self.stages - 2
        start, descriptors = self.first_stage()
        words = self.fill(start, ahead)
        self.arrived(ahead)
        loop, sums, words = self.loop(words)
        started = self._multiply([], self.here(descriptors, loop.counter))
        words = self.refill(start, loop.counter, ahead, words)
        self.arrived(ahead)
        sums = self.added(sums, started)
        loop.end([*sums, *words])
        return sums
