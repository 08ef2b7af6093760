"""Grammars as text, in the notation of GBNF: `root ::= "yes" | "no" | [0-9]+ ("," [0-9]+)*`."""

from __future__ import annotations

import re

from svod.llm.errors import RequestError
from svod.llm.grammar.expressions import (
    HIGHEST,
    Chars,
    Choice,
    Expression,
    Name,
    Repeat,
    Sequence,
    compiled,
    text,
)  # fmt: skip
from svod.llm.grammar.forms import Form

LENGTH = 1 << 16  # characters of a grammar
NESTING = 60
_TOKENS = re.compile(
    r"""(?P<space>(?:[ \t\r\n]|\#[^\n]*)+)
    |(?P<define>[A-Za-z][A-Za-z0-9_-]*[ \t]*::=)
    |(?P<name>[A-Za-z][A-Za-z0-9_-]*)
    |(?P<text>"(?:[^"\\\n]|\\.)*")
    |(?P<chars>\[(?:[^\]\\]|\\.)*\])
    |(?P<times>\{[0-9]+(?:,[0-9]*)?\})
    |(?P<sign>[|()*+?.])""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t"}


def grammar_form(source: str) -> Form:
    """The form of texts that the rule `root` makes."""
    if not isinstance(source, str) or len(source) > LENGTH:
        raise RequestError(f"a grammar is a text of at most {LENGTH} characters")
    rules = _Reader(source).rules()
    if "root" not in rules:
        raise RequestError("the grammar has no rule named root")
    return Form(compiled(Name("root"), rules))


class _Reader:
    def __init__(self, source: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        place = 0
        while place < len(source):
            found = _TOKENS.match(source, place)
            if found is None:
                line = source.count("\n", 0, place) + 1
                raise RequestError(f"line {line} of the grammar: {source[place : place + 20]!r}")
            if found.lastgroup != "space":
                self.tokens.append((str(found.lastgroup), found.group()))
            place = found.end()
        self.place = self.depth = 0

    def rules(self) -> dict[str, Expression]:
        found: dict[str, Expression] = {}
        while self.place < len(self.tokens):
            kind, content = self._next()
            if kind != "define":
                raise RequestError(f"the grammar has {content!r:.40} where a rule begins")
            name = content[:-3].strip()
            if name in found:
                raise RequestError(f"the rule {name!r:.60} is defined twice")
            found[name] = self._choice()
        return found

    def _peek(self) -> tuple[str, str]:
        return self.tokens[self.place] if self.place < len(self.tokens) else ("end", "")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self.place += 1
        return token

    def _choice(self) -> Expression:
        parts = [self._sequence()]
        while self._peek() == ("sign", "|"):
            self._next()
            parts.append(self._sequence())
        return parts[0] if len(parts) == 1 else Choice(tuple(parts))

    def _sequence(self) -> Expression:
        parts: list[Expression] = []
        while self._peek()[0] in ("name", "text", "chars") or self._peek()[1] in ("(", "."):
            parts.append(self._times(self._atom()))
        return parts[0] if len(parts) == 1 else Sequence(tuple(parts))

    def _atom(self) -> Expression:
        kind, content = self._next()
        if kind == "name":
            return Name(content)
        if kind == "text":
            return text("".join(_characters(content[1:-1])))
        if kind == "chars":
            return _class(content[1:-1])
        if content == ".":
            return Chars(((0, HIGHEST),))
        self.depth += 1
        if self.depth > NESTING:
            raise RequestError(f"brackets of the grammar nest deeper than {NESTING}")
        inner = self._choice()
        self.depth -= 1
        if self._next() != ("sign", ")"):
            raise RequestError("a bracket of the grammar is not closed")
        return inner

    def _times(self, part: Expression) -> Expression:
        while True:
            kind, content = self._peek()
            if content == "*" and kind == "sign":
                part = Repeat(part, 0, None)
            elif content == "+" and kind == "sign":
                part = Repeat(part, 1, None)
            elif content == "?" and kind == "sign":
                part = Repeat(part, 0, 1)
            elif kind == "times":
                part = Repeat(part, *bounds(content))
            else:
                return part
            self._next()


def bounds(content: str) -> tuple[int, int | None]:
    """`{3}`, `{3,}` or `{3,5}` as the least and the most."""
    least, comma, most = content[1:-1].partition(",")
    if max(len(least), len(most)) > 6:
        raise RequestError(f"a repetition of {content:.40}")
    return int(least or 0), (int(most) if most else None) if comma else int(least)


def _characters(source: str) -> list[str]:
    """The characters of a text with escapes."""
    found, place = [], 0
    while place < len(source):
        if source[place] != "\\":
            found.append(source[place])
            place += 1
            continue
        letter = source[place + 1]
        count = {"x": 2, "u": 4, "U": 8}.get(letter, 0)
        if not count:
            found.append(_ESCAPES.get(letter, letter))
            place += 2
            continue
        digits = source[place + 2 : place + 2 + count]
        if not re.fullmatch(f"[0-9a-fA-F]{{{count}}}", digits) or int(digits, 16) > HIGHEST:
            raise RequestError(f"the grammar has the escape \\{letter}{digits:.8}")
        found.append(chr(int(digits, 16)))
        place += 2 + count
    return found


def _class(source: str) -> Expression:
    is_inverted = source.startswith("^")
    source = source[is_inverted:]
    characters = _characters(source)
    ranges, place = [], 0
    while place < len(characters):
        low = high = ord(characters[place])
        if place + 2 < len(characters) and characters[place + 1] == "-":
            high = ord(characters[place + 2])
            place += 2
        if high < low:
            raise RequestError(f"the grammar has the characters [{source:.40}]")
        ranges.append((low, high))
        place += 1
    found = Chars(tuple(ranges))
    return found.inverted() if is_inverted else found
