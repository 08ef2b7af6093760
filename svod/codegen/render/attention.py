"""The loop of an attention tile: queries stay, keys and values go by.

A block has 128 rows of queries, a warpgroup 64 of them. Per step of 128 keys, or of 64 where heads
have more than 128 elements, the scores are made into registers, the weights replace them, and the
values are multiplied by the weights of the step before, so that the tensor cores work while the
exponentials are made. Each row keeps its maximum and its sum; sums are scaled where the maximum
grows. Keys are walked from the last to the first, those behind a triangle's edge not at all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from svod.codegen.render.panels import COMMIT, Panel
from svod.codegen.render.scores import MINUS, WAIT, Folded, Scores
from svod.ir.node import UOp
from svod.optimize.gpu_attention import ROWS, keys_of, side_of

if TYPE_CHECKING:
    from svod.codegen.render.nvptx import NvptxRenderer


@dataclass(slots=True)
class _State(Folded):
    """What goes from one step of keys to the next."""

    weights: list[str]  # pairs, as the second product reads them
    sums: list[str]

    def all(self) -> list[str]:
        return [*self.largest, *self.total, *self.weights, *self.sums]


def emit_attention(r: NvptxRenderer, node: UOp) -> list[str]:
    """The loop of a tile; returns the results of this thread in the order of the pieces."""
    return _Attention(r, node).emit()


class _Attention(Scores):
    def __init__(self, r: NvptxRenderer, node: UOp) -> None:
        kind, rows, columns, keys, depth, steps, self.is_guarded, *layouts = node.arg[2:]
        memories, bases, start = self.sources(r, node)
        super().__init__(r, kind, (rows, keys), keys_of(columns, depth), start)
        self.columns, self.depth = columns, depth
        self.wide_columns, self.wide_depth = side_of(columns), side_of(depth)
        sizes = (
            (ROWS, self.wide_depth),
            (self.span, self.wide_depth),
            (self.wide_columns, self.span),
        )
        self.query, self.key, self.value = map(self.panel, memories, bases, sizes, layouts)
        self.sort_steps(steps, list(zip(memories[3:], bases[3:], strict=True)))

    # -- the loop ------------------------------------------------------------------------------

    def emit(self) -> list[str]:
        r, e = self.r, self.e
        query, key, value = self.query, self.key, self.value
        self.buffer = r.dynamic_shared(query.nbytes + 2 * key.nbytes + 2 * value.nbytes)
        self.key_buffer = e(f"add i32 {self.buffer}, {query.nbytes}")
        self.value_buffer = e(f"add i32 {self.key_buffer}, {2 * key.nbytes}")
        self.places()
        self.query_at = self.rows_at(query, self.buffer)
        self.key_at = key.descriptor(self.key_buffer)
        self.value_at = value.descriptor(self.value_buffer)
        query.prepare(self.start)
        key.prepare()
        value.prepare()
        last = e(f"sub i32 {self.count()}, 1")
        self.copy_rows(query, self.buffer, self.depth)
        self._copy_key(last)
        r.assembly(COMMIT, "~{memory}", "")
        self.wait()
        scores = self._scores(last)
        self._copy_key(self.not_below(e(f"sub i32 {last}, 1"), "0"))
        self._copy_value(last)
        r.assembly(COMMIT, "~{memory}", "")
        scores = self.tied(f"{WAIT} 0;", scores)
        zeros = ["0.0"] * (self.wide_columns // 2)
        state = _State([MINUS, MINUS], ["0.0", "0.0"], [], zeros)
        weights, _ = self.softmax(self.masked(scores, last), state)
        state.weights = self.pairs(weights)
        packed = range(4, 4 + len(state.weights))
        kinds = ["i32" if i in packed else "float" for i in range(len(state.all()))]
        state = self._state(self.walk((last, "0"), state.all(), kinds, self._step))
        self.wait()
        sums = self.tied(f"{WAIT} 0;", self._product(state, "0"))
        totals = [self.quad("", t) for t in state.total]
        if self.is_guarded:
            empty = [e(f"fcmp oeq float {t}, 0.0") for t in totals]
            pairs = zip(empty, totals, strict=True)
            totals = [e(f"select i1 {none}, float 1.0, float {t}") for none, t in pairs]
        return [e(f"fdiv float {s}, {totals[i // 2 % 2]}") for i, s in enumerate(sums)]

    def _step(self, place: str, block: str, values: list[str]) -> list[str]:
        """One step of keys, ``block``, after that at ``place``."""
        e = self.e
        state = self._state(values)
        self.wait()
        scores = self._scores(block)
        state.sums = self._product(state, place)
        self._copy_key(self.not_below(e(f"sub i32 {block}, 1"), "0"))
        self._copy_value(block)
        self.r.assembly(COMMIT, "~{memory}", "")
        scores = self.tied(f"{WAIT} 1;", scores)
        scores = self.masked(scores, block)
        weights, shrink = self.softmax(scores, state)
        # The old weights are read until the product is there: their registers wait for it.
        done = self.tied(f"{WAIT} 0;", [*state.sums, *weights])
        sums, weights = done[: -self.own], done[-self.own :]
        state.sums = [e(f"fmul float {s}, {shrink[i // 2 % 2]}") for i, s in enumerate(sums)]
        state.weights = self.pairs(weights)
        return state.all()

    def _state(self, names: list[str]) -> _State:
        pairs = self.own // 2
        return _State(names[:2], names[2:4], names[4 : 4 + pairs], names[4 + pairs :])

    # -- copies --------------------------------------------------------------------------------

    def _copy_key(self, block: str) -> None:
        target = self._buffer(self.key_buffer, block, self.key.nbytes)
        self.copy_across(self.key, target, block, self.depth)

    def _copy_value(self, block: str) -> None:
        panel = self.value
        target = self._buffer(self.value_buffer, block, panel.nbytes)
        shift = self.shift(block, panel.depth_axes[-1][1])
        self.copy_panel(panel, target, shift, self.end_of(self.columns), self.left(block))

    def _buffer(self, first: str, block: str, nbytes: int) -> str:
        e = self.e
        shift = e(f"mul i32 {e(f'and i32 {block}, 1')}, {nbytes}")
        return e(f"add i32 {first}, {shift}")

    # -- products ------------------------------------------------------------------------------

    def _at(self, descriptor: str, block: str, panel: Panel) -> str:
        e = self.e
        shift = e(f"mul i32 {e(f'and i32 {block}, 1')}, {panel.nbytes // 16}")
        return e(f"add i64 {descriptor}, {e(f'zext i32 {shift} to i64')}")

    def _scores(self, block: str) -> list[str]:
        """Start the products of the queries with one step of keys."""
        keys = self._at(self.key_at, block, self.key), self.key
        return self.shared_product((self.query_at, self.query), keys, self.depth, self.span)

    def _product(self, state: _State, block: str) -> list[str]:
        """Start to add the values of one step times its weights."""
        values = self._at(self.value_at, block, self.value)
        return self.weighted_product(state.sums, state.weights, values, self.value)
