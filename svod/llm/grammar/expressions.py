"""Expressions over bytes: what grammars, regular expressions and schemas are written in here.

`compiled` makes rules of them: a rule is a list of alternatives, an alternative a sequence of byte
ranges and numbers of rules. Characters become sequences of byte ranges, as UTF-8 writes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from svod.llm.errors import RequestError

RULES = 20_000  # of one form
HIGHEST = 0x10FFFF


@dataclass(frozen=True, slots=True)
class Text:
    """These bytes."""

    content: bytes


@dataclass(frozen=True, slots=True)
class Chars:
    """One character of these ranges, both ends included."""

    ranges: tuple[tuple[int, int], ...]

    def inverted(self) -> Chars:
        """Every other character."""
        found, start = [], 0
        for low, high in sorted(self.ranges):
            if start < low:
                found.append((start, low - 1))
            start = max(start, high + 1)
        if start <= HIGHEST:
            found.append((start, HIGHEST))
        return Chars(tuple(found))


@dataclass(frozen=True, slots=True)
class Sequence:
    """One after another."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """One of these."""

    parts: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """So many times; without an upper bound where `most` is None."""

    part: Expression
    least: int
    most: int | None


@dataclass(frozen=True, slots=True)
class Name:
    """A rule of the grammar."""

    name: str


Expression: TypeAlias = Text | Chars | Sequence | Choice | Repeat | Name
Symbol: TypeAlias = int | tuple[int, int]  # a rule, or a range of bytes
Rules: TypeAlias = tuple[tuple[tuple[Symbol, ...], ...], ...]


def text(content: str) -> Text:
    """A text as bytes."""
    return Text(content.encode("utf-8", "replace"))


def optional(part: Expression) -> Expression:
    return Repeat(part, 0, 1)


def compiled(root: Expression, named: Mapping[str, Expression] | None = None) -> Rules:
    """The rules; the first is the root."""
    return _Compiler(named or {}).rules(root)


class _Compiler:
    def __init__(self, named: Mapping[str, Expression]) -> None:
        self.named = named
        self.found: list[tuple[tuple[Symbol, ...], ...]] = []
        self.numbers: dict[str, int] = {}
        self.same: dict[Expression, int] = {}

    def rules(self, root: Expression) -> Rules:
        first = self._new()
        self.found[first] = self._alternatives(root)
        _refuse_left_recursion(self.found)
        return tuple(self.found)

    def _new(self) -> int:
        if len(self.found) >= RULES:
            raise RequestError(f"what the answer must be needs more than {RULES} rules")
        self.found.append(())
        return len(self.found) - 1

    def _rule(self, part: Expression) -> int:
        if part not in self.same:
            number = self._new()
            self.same[part] = number
            self.found[number] = self._alternatives(part)
        return self.same[part]

    def _alternatives(self, part: Expression) -> tuple[tuple[Symbol, ...], ...]:
        if isinstance(part, Choice):
            return tuple(self._symbols(p) for p in part.parts)
        if isinstance(part, Chars):
            return tuple(way for low, high in part.ranges for way in byte_ranges(low, high))
        return (self._symbols(part),)

    def _symbols(self, part: Expression) -> tuple[Symbol, ...]:
        if isinstance(part, Text):
            return tuple((byte, byte) for byte in part.content)
        if isinstance(part, Sequence):
            return tuple(symbol for p in part.parts for symbol in self._symbols(p))
        if isinstance(part, Repeat):
            return self._repeated(part)
        if isinstance(part, Name):
            return (self._named(part.name),)
        return (self._rule(part),)

    def _named(self, name: str) -> int:
        if name not in self.named:
            raise RequestError(f"the rule {name!r:.60} is not defined")
        if name not in self.numbers:
            number = self.numbers[name] = self._new()
            self.found[number] = self._alternatives(self.named[name])
        return self.numbers[name]

    def _repeated(self, part: Repeat) -> tuple[Symbol, ...]:
        if part.most is not None and not 0 <= part.least <= part.most:
            raise RequestError(f"a repetition from {part.least} to {part.most} times")
        one: tuple[Symbol, ...] = (self._rule(part.part),)
        if part.least > RULES:
            raise RequestError(f"a repetition of {part.least} times")
        always = one * part.least
        if part.most is None:
            more = self._new()
            self.found[more] = ((*one, more), ())
            return (*always, more)
        rest: tuple[Symbol, ...] = ()
        for _ in range(part.most - part.least):
            number = self._new()
            self.found[number] = ((*one, *rest), ())
            rest = (number,)
        return (*always, *rest)


def _refuse_left_recursion(rules: list[tuple[tuple[Symbol, ...], ...]]) -> None:
    """A rule that begins with itself and goes on after it would grow without a byte read."""
    empty: set[int] = set()
    while True:
        found = {
            number
            for number, ways in enumerate(rules)
            if any(all(isinstance(s, int) and s in empty for s in way) for way in ways)
        }
        if found == empty:
            break
        empty = found
    begins: list[list[int]] = [[] for _ in rules]
    goes_on: list[tuple[int, int]] = []  # a rule, and one that it begins with and goes on after
    for number, ways in enumerate(rules):
        for way in ways:
            for place, symbol in enumerate(way):
                if not isinstance(symbol, int):
                    break
                begins[number].append(symbol)
                if place + 1 < len(way):
                    goes_on.append((number, symbol))
                if symbol not in empty:
                    break
    groups = _cycles(begins)
    if any(groups[a] == groups[b] for a, b in goes_on):
        raise RequestError("a rule of the grammar begins with itself")


def _cycles(following: list[list[int]]) -> list[int]:
    """The number of the group of each node: nodes that reach each other share one (Tarjan)."""
    count = len(following)
    groups, order, lowest = [-1] * count, [-1] * count, [0] * count
    kept: list[int] = []
    number = group = 0
    for first in range(count):
        if order[first] >= 0:
            continue
        path: list[tuple[int, Iterator[int]]] = []
        entered: int | None = first
        while entered is not None or path:
            if entered is not None:
                order[entered] = lowest[entered] = number
                number += 1
                kept.append(entered)
                path.append((entered, iter(following[entered])))
                entered = None
            node, rest = path[-1]
            for after in rest:
                if order[after] < 0:
                    entered = after
                    break
                if groups[after] < 0:
                    lowest[node] = min(lowest[node], order[after])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == order[node]:
                    while groups[node] < 0:
                        groups[kept.pop()] = group
                    group += 1
    return groups


def byte_ranges(low: int, high: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """The sequences of byte ranges that are the characters from `low` to `high` in UTF-8."""
    for first, last in ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF),
                        (0x10000, HIGHEST)):  # fmt: skip
        start, end = max(low, first), min(high, last)
        if start <= end:
            yield from _same_length(chr(start).encode(), chr(end).encode())


def _same_length(low: bytes, high: bytes) -> Iterator[tuple[tuple[int, int], ...]]:
    if len(low) == 1:
        yield ((low[0], high[0]),)
        return
    rest = len(low) - 1
    lowest, highest = b"\x80" * rest, b"\xbf" * rest
    if low[0] == high[0]:
        for way in _same_length(low[1:], high[1:]):
            yield ((low[0], low[0]), *way)
        return
    first, last = low[0], high[0]
    if low[1:] != lowest:
        for way in _same_length(low[1:], highest):
            yield ((first, first), *way)
        first += 1
    if high[1:] != highest:
        for way in _same_length(lowest, high[1:]):
            yield ((last, last), *way)
        last -= 1
    if first <= last:
        yield ((first, last), *[(0x80, 0xBF)] * rest)
