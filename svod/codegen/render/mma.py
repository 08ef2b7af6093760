"""Tiles on the tensor cores of one warp, which read their operands from registers."""

from __future__ import annotations

from svod.codegen.render.panels import LINE, Panel, assembly
from svod.codegen.render.ring import Ring
from svod.codegen.render.tile_parts import CountedLoop


class Mma(Ring):
    """A block of 8 warps: two along the rows of the tile, four along the columns.

    A warp has 64 rows and a quarter of the columns. Its part of an operand goes from shared memory
    into registers by ldmatrix, 16 rows or columns by 32 bytes of k at a time.
    """

    def emit(self) -> list[str]:
        r, e, ahead = self.r, self.r._emit, self.stages - 1
        start = self.prepare()
        warp = e(f"lshr i32 {self.thread}, 5")
        rows = e(f"mul i32 {e(f'and i32 {warp}, 1')}, 64")
        quarter = self.panels[1].outer // 4
        columns = e(f"mul i32 {e(f'lshr i32 {warp}, 1')}, {quarter}")
        places = [
            self._places(self.panels[0], rows, 4, False),
            self._places(self.panels[1], columns, quarter // 16, True),
        ]
        sixteens = (4, quarter // 16)

        def load(buffer: str, depth: int) -> list[list[list[str]]]:
            bases = (buffer, e(f"add i32 {buffer}, {self.panels[0].nbytes}"))
            return [
                [self._fragment(panel, base, place, depth, t) for t in range(count)]
                for panel, base, place, count in zip(
                    self.panels, bases, places, sixteens, strict=True
                )
            ]

        def wait() -> None:
            r.assembly(f"cp.async.wait_group {ahead - 1};", "~{memory}", "")
            r.barrier()

        turning = self.fill(start, ahead)
        wait()
        first = load(start, 0)
        words = [w for operand in first for part in operand for w in part] + turning
        kinds = [self.element.kind] * self.count + ["i32"] * len(words)
        begin = [self.element.zero] * self.count + words
        loop = CountedLoop(r, -(-self.k // self.depth), begin, kinds)
        sums, carried = loop.values[: self.count], iter(loop.values[self.count :])
        ready = [[[next(carried) for _ in range(4)] for _ in range(count)] for count in sixteens]
        following = e(f"add i32 {loop.counter}, {ahead}")
        buffer = self.buffer(start, following)
        self.copy(following, buffer)
        turning = self.turn(list(carried), buffer, e(f"add i32 {following}, 1"))
        here = self.buffer(start, loop.counter)
        last = self.depth // self.element.depth - 1
        for depth in range(last + 1):
            # What the next products need is on its way before these are made.
            if depth < last:
                coming = load(here, depth + 1)
            else:
                wait()
                coming = load(self.buffer(start, e(f"add i32 {loop.counter}, 1")), 0)
            sums = self._multiply(sums, *ready)
            ready = coming
        words = [w for operand in ready for part in operand for w in part]
        loop.end([*sums, *words, *turning])
        return sums

    def _places(self, panel: Panel, first: str, count: int, is_right: bool) -> list[str]:
        """Where this lane reads: by steps of depth, or by sixteens across where rows lie there."""
        e = self.r._emit
        lane = e(f"and i32 {self.thread}, 31")
        low = e(f"and i32 {lane}, 7")
        matrix = e(f"lshr i32 {lane}, 3")
        bits = [e(f"and i32 {matrix}, 1"), e(f"lshr i32 {matrix}, 1")]
        # Of the four 8x8 matrices of an operand, which of the two bits counts along k.
        deep, across = (bits[0], bits[1]) if is_right else (bits[1], bits[0])
        found = []
        if panel.along_depth:
            row = e(f"add i32 {e(f'shl i32 {across}, 3')}, {low}")
            row = e(f"add i32 {first}, {row}")
            line = e(f"mul i32 {row}, {LINE}")
            for step in range(self.depth // self.element.depth):
                part = e(f"xor i32 {e(f'add i32 {deep}, {2 * step}')}, {low}")
                found.append(e(f"add i32 {line}, {e(f'shl i32 {part}, 4')}"))
            return found
        row = e(f"add i32 {e(f'shl i32 {deep}, 3')}, {low}")
        line = e(f"mul i32 {row}, {LINE}")
        start = e(f"add i32 {e(f'lshr i32 {first}, 3')}, {across}")
        for sixteen in range(count):
            part = e(f"add i32 {start}, {2 * sixteen}")
            block = e(f"mul i32 {e(f'lshr i32 {part}, 3')}, {panel.rows * LINE}")
            inside = e(f"xor i32 {e(f'and i32 {part}, 7')}, {low}")
            place = e(f"add i32 {block}, {e(f'shl i32 {inside}, 4')}")
            found.append(e(f"add i32 {line}, {place}"))
        return found

    def _fragment(
        self, panel: Panel, base: str, places: list[str], depth: int, sixteen: int
    ) -> list[str]:
        """Four registers of one operand."""
        e = self.r._emit
        chosen, other = (depth, sixteen) if panel.along_depth else (sixteen, depth)
        address = e(f"add i32 {base}, {places[chosen]}")
        turned = "" if panel.along_depth else ".trans"
        text = (
            f"ldmatrix.sync.aligned.m8n8.x4{turned}.shared.b16 {{$0, $1, $2, $3}}, "
            f"[$4+{other * 16 * LINE}];"
        )
        found = assembly(self.r, [text], [], [("i32", "r", address)], 4, "i32")
        if self.element.name != "tf32":
            return found
        rounded = 'call i32 asm "cvt.rna.tf32.f32 $0, $1;", "=r,r"'
        return [e(f"{rounded}(i32 {word})") for word in found]

    def _multiply(self, sums: list[str], a: list[list[str]], b: list[list[str]]) -> list[str]:
        element = self.element
        if not element.is_float8:
            shape = f"m16n8k{element.depth}.row.col.{element.total}"
            return self._products(sums, a, b, f"{shape}.{element.factors}.{element.total}")
        # As float16, which loses nothing: two numbers of each word, then the other two. Both
        # operands take the same steps of k at a time, whichever those are.
        names = element.factors.split(".")
        left, right = (
            [self._widened(words, name) for words in operand]
            for operand, name in zip((a, b), names, strict=True)
        )
        for half in range(2):
            name = "m16n8k16.row.col.f32.f16.f16.f32"
            sums = self._products(sums, [w[half] for w in left], [w[half] for w in right], name)
        return sums

    def _widened(self, words: list[str], name: str) -> tuple[list[str], list[str]]:
        """The lower two 8-bit floats of each word as float16, and the upper two."""
        convert = f"cvt.rn.f16x2.{name}x2"
        text = [
            "{.reg .b16 low, high;",
            "mov.b32 {low, high}, $2;",
            f"{convert} $0, low;",
            f"{convert} $1, high;}}",
        ]
        pairs = [
            assembly(self.r, text, [], [("i32", "r", w)], 2, "i32", has_effects=False)
            for w in words
        ]
        return [p[0] for p in pairs], [p[1] for p in pairs]

    def _products(
        self, sums: list[str], a: list[list[str]], b: list[list[str]], name: str
    ) -> list[str]:
        text = (
            f"mma.sync.aligned.{name} {{$0, $1, $2, $3}}, {{$4, $5, $6, $7}}, {{$8, $9}}, "
            "{$0, $1, $2, $3};"
        )
        found: list[str] = []
        for i, left in enumerate(a):
            for j, right in enumerate(b):
                for half in range(2):
                    place = 4 * (2 * (i * len(b) + j) + half)
                    inputs = [*left, *right[2 * half : 2 * half + 2]]
                    words = [("i32", "r", v) for v in inputs]
                    found += assembly(
                        self.r, [text], sums[place : place + 4], words, 4, self.element.kind, False
                    )
        return found
