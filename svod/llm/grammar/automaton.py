"""An automaton over bytes, made of rules as it is walked.

A state is a set of stacks: what has to follow, in every way the bytes so far can be read. States
get numbers when they are first reached, and a row of the table: the state after every byte, or
`DEAD`. Rules may nest without bound; a state that has more than `WAYS` stacks is refused.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from svod.llm.errors import RequestError
from svod.llm.grammar.expressions import Rules, Symbol

Array = np.ndarray[Any, Any]
DEAD = -1
WAYS = 2_000
DEPTH = 2_000  # of nested rules
STATES = 200_000
_END = 0  # the stack of nothing


class Automaton:
    """Rules, with the states that were reached so far."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        # A stack is what is left of an alternative, and the stack below it.
        self._stacks: list[tuple[tuple[Symbol, ...], int, int]] = [((), 0, 0)]
        self._stack_numbers: dict[tuple[tuple[Symbol, ...], int], int] = {}
        self._states: list[tuple[int, ...]] = []
        self._state_numbers: dict[tuple[int, ...], int] = {}
        self._rows = np.empty((64, 256), np.int32)
        self._has_row = np.zeros(64, bool)
        first: set[int] = set()
        for way in rules[0]:
            self._open(self._stack(way, _END), first)
        self.first = self._state(first)

    def is_complete(self, state: int) -> bool:
        """Whether what was read may end here."""
        return self._states[state][:1] == (_END,)

    def rows(self, states: Array) -> Array:
        """The table, with the rows of these states filled."""
        for state in np.unique(states[~self._has_row[states]]).tolist():
            self._fill(state)
        return self._rows

    def after(self, state: int, content: bytes) -> int:
        """The state after some bytes."""
        for byte in content:
            if state == DEAD:
                return DEAD
            state = int(self.rows(np.array([state]))[state, byte])
        return state

    def _fill(self, state: int) -> None:
        moves = []
        for stack in self._states[state]:
            if stack != _END:
                (symbol, *_), below, _ = self._stacks[stack]
                assert isinstance(symbol, tuple)
                moves.append((symbol, stack, below))
        edges = sorted({0, 256} | {s[0] for s, _, _ in moves} | {s[1] + 1 for s, _, _ in moves})
        row = np.full(256, DEAD, np.int32)
        for low, end in pairwise(edges):
            found: set[int] = set()
            for symbol, stack, below in moves:
                if symbol[0] <= low and end - 1 <= symbol[1]:
                    self._open(self._stack(self._stacks[stack][0][1:], below), found)
            if found:
                row[low:end] = self._state(found)
        self._rows[state] = row
        self._has_row[state] = True

    def _stack(self, symbols: tuple[Symbol, ...], below: int) -> int:
        """The number of a stack; nothing is put on top of another."""
        if not symbols:
            return below
        key = (symbols, below)
        number = self._stack_numbers.get(key)
        if number is None:
            depth = self._stacks[below][2] + 1
            if depth > DEPTH:
                raise RequestError(f"rules of the grammar nest deeper than {DEPTH}")
            number = self._stack_numbers[key] = len(self._stacks)
            self._stacks.append((symbols, below, depth))
        return number

    def _open(self, stack: int, found: set[int]) -> None:
        """Stacks whose next symbol is a range of bytes, instead of one that begins with a rule."""
        waiting, seen = [stack], {stack}
        while waiting:
            stack = waiting.pop()
            symbols, below, _ = self._stacks[stack]
            if stack == _END or isinstance(symbols[0], tuple):
                found.add(stack)
                if len(found) > WAYS:
                    raise RequestError("the grammar can be read in too many ways at once")
                continue
            after = self._stack(symbols[1:], below)
            for way in self.rules[symbols[0]]:
                opened = self._stack(way, after)
                if opened not in seen:
                    seen.add(opened)
                    waiting.append(opened)

    def _state(self, stacks: set[int]) -> int:
        key = tuple(sorted(stacks))
        number = self._state_numbers.get(key)
        if number is None:
            number = self._state_numbers[key] = len(self._states)
            if number >= STATES:
                raise RequestError(f"the grammar has more than {STATES} states")
            self._states.append(key)
            if number >= len(self._rows):
                more = len(self._rows)
                self._rows = np.concatenate([self._rows, np.empty((more, 256), np.int32)])
                self._has_row = np.concatenate([self._has_row, np.zeros(more, bool)])
        return number
