r"""Regular expressions, matched as a whole: characters, classes, groups, choices, repetitions.

What needs to look around or back (`\b`, `(?=`, `\1`) is refused.
"""

from __future__ import annotations

import re

from svod.llm.errors import RequestError
from svod.llm.grammar.ebnf import LENGTH, NESTING, bounds
from svod.llm.grammar.expressions import (
    HIGHEST,
    Chars,
    Choice,
    Expression,
    Repeat,
    Sequence,
    compiled,
)  # fmt: skip
from svod.llm.grammar.forms import Form

_DIGITS = ((48, 57),)
_WORD = ((48, 57), (65, 90), (95, 95), (97, 122))
_SPACE = ((9, 13), (32, 32))
_CLASSES = {"d": Chars(_DIGITS), "w": Chars(_WORD), "s": Chars(_SPACE)}
_CLASSES |= {name.upper(): chars.inverted() for name, chars in _CLASSES.items()}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
_TIMES = re.compile(r"\{[0-9]+(?:,[0-9]*)?\}|\{,[0-9]+\}")


def regex_form(pattern: str) -> Form:
    """The form of texts that match a pattern from their beginning to their end."""
    return Form(compiled(regex_expression(pattern)))


def regex_expression(pattern: str, is_search: bool = False) -> Expression:
    """A pattern as an expression; with `is_search`, `^` and `$` say where it is tied down."""
    if not isinstance(pattern, str) or len(pattern) > LENGTH:
        raise RequestError(f"a pattern is a text of at most {LENGTH} characters")
    is_first, is_last = pattern.startswith("^"), _ends(pattern)
    inner = pattern[is_first : len(pattern) - is_last]
    if is_search and (is_first or is_last) and "|" in inner and _has_top_choice(inner):
        raise RequestError(f"the anchor of {pattern!r:.60} would hold for a part of it alone")
    found = _Reader(inner).whole()
    if is_search:
        anything = Repeat(Chars(((0, HIGHEST),)), 0, None)
        parts = [*([] if is_first else [anything]), found, *([] if is_last else [anything])]
        return Sequence(tuple(parts))
    return found


def _ends(pattern: str) -> bool:
    stripped = pattern[:-1].rstrip("\\")
    return pattern.endswith("$") and (len(pattern) - 1 - len(stripped)) % 2 == 0


def _has_top_choice(pattern: str) -> bool:
    return isinstance(_Reader(pattern).whole(), Choice)


class _Reader:
    def __init__(self, source: str) -> None:
        self.source, self.place, self.depth = source, 0, 0

    def whole(self) -> Expression:
        found = self._choice()
        if self.place < len(self.source):
            self._refuse("an unmatched bracket")
        return found

    def _refuse(self, what: str) -> None:
        raise RequestError(f"the pattern {self.source!r:.60} has {what} at place {self.place}")

    def _peek(self) -> str:
        return self.source[self.place] if self.place < len(self.source) else ""

    def _choice(self) -> Expression:
        parts = [self._sequence()]
        while self._peek() == "|":
            self.place += 1
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Expression:
        parts: list[Expression] = []
        while self._peek() not in ("", "|", ")"):
            parts.append(self._times(self._atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _times(self, part: Expression) -> Expression:
        while True:
            sign = self._peek()
            if sign and sign in "*+?":
                part = Repeat(part, int(sign == "+"), 1 if sign == "?" else None)
                self.place += 1
            elif found := _TIMES.match(self.source, self.place):
                part = Repeat(part, *bounds(found.group()))
                self.place = found.end()
            else:
                return part
            if self._peek() == "?":  # whatever is taken first, the same texts match
                self.place += 1
            elif self._peek() == "+":
                self._refuse("a repetition that gives nothing back")

    def _atom(self) -> Expression:
        sign = self._peek()
        if sign == "(":
            return self._group()
        if sign == "[":
            return self._class()
        if sign == "\\":
            return self._escape()
        if sign in ("^", "$"):
            self._refuse("an anchor inside")
        if sign and sign in "*+?":
            self._refuse("a repetition of nothing")
        self.place += 1
        if sign == ".":
            return Chars(((10, 10),)).inverted()
        return Chars(((ord(sign), ord(sign)),))

    def _group(self) -> Expression:
        self.depth += 1
        if self.depth > NESTING:
            self._refuse(f"brackets deeper than {NESTING}")
        self.place += 1
        if self._peek() == "?":
            found = re.compile(r"\?(?::|P?<[A-Za-z_]\w*>)").match(self.source, self.place)
            if found is None:
                self._refuse("a group that looks around")
            else:
                self.place = found.end()
        inner = self._choice()
        if self._peek() != ")":
            self._refuse("a bracket that is not closed")
        self.place += 1
        self.depth -= 1
        return inner

    def _escape(self) -> Chars:
        self.place += 1
        letter = self._peek()
        self.place += 1
        if letter in _CLASSES:
            return _CLASSES[letter]
        count = {"x": 2, "u": 4}.get(letter, 0)
        if count:
            digits = self.source[self.place : self.place + count]
            if not re.fullmatch(f"[0-9a-fA-F]{{{count}}}", digits):
                self._refuse("an escape that is no character")
            self.place += count
            number = int(digits, 16)
        elif letter in _ESCAPES:
            number = ord(_ESCAPES[letter])
        elif not letter or letter.isalnum():
            self._refuse(f"the escape \\{letter}")
            number = 0
        else:
            number = ord(letter)
        return Chars(((number, number),))

    def _class(self) -> Expression:
        self.place += 1
        is_inverted = self._peek() == "^"
        self.place += is_inverted
        ranges: list[tuple[int, int]] = []
        is_first = True
        while self._peek() != "]" or is_first:
            is_first = False
            if not self._peek():
                self._refuse("a class that is not closed")
            low = self._member()
            is_range = self._peek() == "-" and self.source[self.place + 1 : self.place + 2] not in (
                "]", "",
            )  # fmt: skip
            if not is_range or len(low.ranges) > 1:
                ranges += low.ranges
                continue
            self.place += 1
            high = self._member()
            start, end = low.ranges[0][0], high.ranges[-1][1]
            if start != low.ranges[0][1] or high.ranges[0][0] != end or end < start:
                self._refuse("a range that has no order")
            ranges.append((start, end))
        self.place += 1
        found = Chars(tuple(ranges))
        return found.inverted() if is_inverted else found

    def _member(self) -> Chars:
        if self._peek() == "\\":
            return self._escape()
        number = ord(self._peek())
        self.place += 1
        return Chars(((number, number),))
