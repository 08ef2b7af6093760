"""JSON schemas: the form of the JSON texts that a schema describes.

Members come in the order of the schema, optional ones may be missing. Between tokens there may be
a space, or a new line and its indent. Keywords that are not known here are refused, not ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

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
    optional,
    text,
)  # fmt: skip
from svod.llm.grammar.forms import Form
from svod.llm.grammar.regex import regex_expression

NESTING = 60
_SPACE = optional(
    Choice((text(" "), Sequence((text("\n"), Repeat(Chars(((9, 9), (32, 32))), 0, 20)))))
)
_DIGIT, _HEX = Chars(((48, 57),)), Chars(((48, 57), (65, 70), (97, 102)))
_PLAIN = Chars(((32, 33), (35, 91), (93, HIGHEST)))
_CHARACTER = Choice((
    _PLAIN,
    Sequence((text("\\"), Choice((
        Chars(tuple((ord(c), ord(c)) for c in '"\\/bfnrt')),
        Sequence((text("u"), Repeat(_HEX, 4, 4))),
    )))),
))  # fmt: skip
_WHOLE = Sequence((
    optional(text("-")),
    Choice((text("0"), Sequence((Chars(((49, 57),)), Repeat(_DIGIT, 0, 18))))),
))  # fmt: skip
_NUMBER = Sequence((
    _WHOLE,
    optional(Sequence((text("."), Repeat(_DIGIT, 1, 18)))),
    optional(Sequence((Chars(((69, 69), (101, 101))), optional(Chars(((43, 43), (45, 45)))),
                       Repeat(_DIGIT, 1, 3)))),
))  # fmt: skip
_STRING = Sequence((text('"'), Repeat(_CHARACTER, 0, None), text('"')))
_NOTES = frozenset({
    "title", "description", "default", "examples", "$schema", "$id", "$comment", "deprecated",
    "readOnly", "writeOnly", "$defs", "definitions", "strict",
})  # fmt: skip
_FORMATS = {
    "date": r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])",
    "time": r"([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d{1,6})?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)",
    "uuid": r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}",
    "email": r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(\.[A-Za-z0-9-]{1,63}){1,4}",
    "ipv4": r"((25[0-5]|2[0-4]\d|1?\d?\d)\.){3}(25[0-5]|2[0-4]\d|1?\d?\d)",
}
_FORMATS["date-time"] = f"{_FORMATS['date']}T{_FORMATS['time']}"
_ANY_RULES: dict[str, Expression] = {
    "any": Choice((
        Name("object"), Name("array"), _STRING, _NUMBER, text("true"), text("false"), text("null"),
    )),
    "object": Sequence((
        text("{"), _SPACE,
        optional(Sequence((Name("member"),
                           Repeat(Sequence((text(","), _SPACE, Name("member"))), 0, None)))),
        _SPACE, text("}"),
    )),
    "member": Sequence((_STRING, _SPACE, text(":"), _SPACE, Name("any"))),
    "array": Sequence((
        text("["), _SPACE,
        optional(Sequence((Name("any"),
                           Repeat(Sequence((text(","), _SPACE, Name("any"))), 0, None)))),
        _SPACE, text("]"),
    )),
}  # fmt: skip


def json_form() -> Form:
    """The form of every JSON object."""
    return Form(compiled(Name("object"), _ANY_RULES))


def schema_form(schema: Any) -> Form:
    """The form of JSON texts of a schema."""
    reader = SchemaReader(schema)
    root = reader.expression(schema, 0)
    return Form(compiled(root, reader.rules))


def _literal(value: Any) -> Expression:
    try:
        return text(json.dumps(value, ensure_ascii=False, allow_nan=False))
    except (TypeError, ValueError):
        raise RequestError(f"{value!r:.60} is no JSON value") from None


class SchemaReader:
    """Expressions of a schema; `prefix` begins the names of its rules."""

    def __init__(self, root: Any, prefix: str = "") -> None:
        self.root, self.prefix = root, prefix
        self.rules: dict[str, Expression] = dict(_ANY_RULES)
        self.begun: set[str] = set()

    def expression(self, schema: Any, depth: int) -> Expression:
        if depth > NESTING:
            raise RequestError(f"the schema nests deeper than {NESTING}")
        if schema is True or schema == {}:
            return Name("any")
        if not isinstance(schema, dict):
            raise RequestError(f"the schema has {schema!r:.60}, which is no schema")
        schema = {k: v for k, v in schema.items() if k not in _NOTES}
        if not schema:
            return Name("any")
        for key, build in (("$ref", self._reference), ("const", None), ("enum", None),
                           ("anyOf", self._any_of), ("oneOf", self._any_of),
                           ("allOf", self._all_of)):  # fmt: skip
            if key not in schema:
                continue
            if key == "const":
                self._only(schema, "const", "type")
                return _literal(schema["const"])
            if key == "enum":
                self._only(schema, "enum", "type")
                values = schema["enum"]
                if not isinstance(values, list) or not values:
                    raise RequestError("an enum of the schema is a list of values")
                return Choice(tuple(_literal(value) for value in values))
            assert build is not None
            return build(schema, key, depth)
        kind = schema.get("type")
        if isinstance(kind, list) and kind:
            of_kind = [self.expression(self._narrowed(schema, k), depth + 1) for k in kind]
            return Choice(tuple(of_kind))
        if kind is None:
            kind = "object" if "properties" in schema else "array" if "items" in schema else None
        build_kind = {
            "object": self._object, "array": self._array, "string": self._string,
            "number": self._number, "integer": self._integer, "boolean": self._boolean,
            "null": self._null,
        }.get(kind) if isinstance(kind, str) else None  # fmt: skip
        if build_kind is None:
            raise RequestError(f"the schema has the type {kind!r:.40} and keys {list(schema)[:8]}")
        return build_kind(schema, depth)

    def _narrowed(self, schema: Mapping[str, Any], kind: Any) -> dict[str, Any]:
        """What of a schema of several types is about one of them."""
        own = {"object": _OBJECT, "array": _ARRAY, "string": _TEXT}.get(str(kind), ("type",))
        every = {*_OBJECT, *_ARRAY, *_TEXT}
        found = {k: v for k, v in schema.items() if k in own or k not in every}
        return {**found, "type": kind}

    def _only(self, schema: Mapping[str, Any], *known: str) -> None:
        if unknown := sorted(map(str, set(schema) - set(known))):
            raise RequestError(f"keywords of the schema are not known beside {known[0]}: {unknown}")

    def _reference(self, schema: Mapping[str, Any], key: str, depth: int) -> Expression:
        self._only(schema, "$ref")
        path = schema["$ref"]
        if not isinstance(path, str) or not path.startswith("#"):
            raise RequestError(f"the schema refers to {path!r:.60}, which is not in it")
        if path not in self.begun:
            self.begun.add(path)
            target = self.root
            for part in path[1:].strip("/").split("/") if path != "#" else ():
                name = part.replace("~1", "/").replace("~0", "~")
                if not isinstance(target, dict) or name not in target:
                    raise RequestError(f"the schema refers to {path!r:.60}, which is not in it")
                target = target[name]
            self.rules[self.prefix + path] = self.expression(target, depth + 1)
        return Name(self.prefix + path)

    def _any_of(self, schema: Mapping[str, Any], key: str, depth: int) -> Expression:
        self._only(schema, key, "type")
        if not isinstance(schema[key], list) or not schema[key]:
            raise RequestError(f"{key} of the schema is a list of schemas")
        return Choice(tuple(self.expression(part, depth + 1) for part in schema[key]))

    def _all_of(self, schema: Mapping[str, Any], key: str, depth: int) -> Expression:
        self._only(schema, "allOf", "type")
        if not isinstance(schema[key], list) or len(schema[key]) != 1:
            raise RequestError("allOf of the schema is read where it holds one schema")
        return self.expression(schema[key][0], depth + 1)

    def _object(self, schema: Mapping[str, Any], depth: int) -> Expression:
        self._only(schema, *_OBJECT)
        properties = schema.get("properties", {})
        required = schema.get("required", [])
        if not isinstance(properties, dict) or not isinstance(required, list):
            raise RequestError("an object of the schema has properties, and a list of required")
        if missing := [r for r in required if not isinstance(r, str) or r not in properties]:
            if not properties:  # any object with these members is too much to ask
                raise RequestError(f"required members {missing[:6]} have no schema")
            raise RequestError(f"required members {missing[:6]} have no schema")
        others = schema.get("additionalProperties", not properties)
        members: list[tuple[Expression, bool]] = [
            (Sequence((_literal(name), _SPACE, text(":"), _SPACE,
                       self.expression(value, depth + 1))), name in required)
            for name, value in properties.items()
        ]  # fmt: skip
        more: Expression | None = None
        if others is not False and not properties:
            value = Name("any") if others is True else self.expression(others, depth + 1)
            more = Sequence((_STRING, _SPACE, text(":"), _SPACE, value))
        inner = self._members(members) if more is None else _several(more)
        return Sequence((text("{"), _SPACE, inner, _SPACE, text("}")))

    def _members(self, members: list[tuple[Expression, bool]]) -> Expression:
        """Members in their order with commas between those that are there."""
        comma = Sequence((text(","), _SPACE))
        # From the last to the first: what may follow when something was written, and when not.
        # Both are rules of their own, for each of them is needed in two places.
        after: Expression = text("")
        alone: Expression = text("")
        for member, is_required in reversed(members):
            written = self._ruled(Sequence((member, after)))
            following = Sequence((comma, written))
            alone = written if is_required else self._ruled(Choice((written, alone)))
            after = following if is_required else self._ruled(Choice((following, after)))
        return alone

    def _ruled(self, part: Expression) -> Name:
        name = f"{self.prefix}part {len(self.rules)}"
        self.rules[name] = part
        return Name(name)

    def _array(self, schema: Mapping[str, Any], depth: int) -> Expression:
        self._only(schema, *_ARRAY)
        first = [self.expression(s, depth + 1) for s in schema.get("prefixItems", ())]
        items = schema.get("items", True)
        least, most = _limits(schema, "minItems", "maxItems")
        separator = Sequence((text(","), _SPACE))
        if first:
            if items is not False or least not in (0, len(first)) or most not in (None, len(first)):
                raise RequestError("prefixItems of the schema need items: false")
            parts: list[Expression] = [first[0]]
            for part in first[1:]:
                parts += [separator, part]
            inner: Expression = Sequence(tuple(parts))
        elif most == 0:
            inner = text("")
        else:
            item = self.expression(items, depth + 1)
            rest = Repeat(
                Sequence((separator, item)), max(least - 1, 0), None if most is None else most - 1
            )
            inner = Sequence((item, rest))
            inner = inner if least else optional(inner)
        return Sequence((text("["), _SPACE, inner, _SPACE, text("]")))

    def _string(self, schema: Mapping[str, Any], depth: int) -> Expression:
        self._only(schema, *_TEXT)
        least, most = _limits(schema, "minLength", "maxLength")
        pattern = schema.get("pattern")
        if "format" in schema:
            if schema["format"] not in _FORMATS:
                raise RequestError(f"the format {schema['format']!r:.40} of a text is not known")
            inner = regex_expression(_FORMATS[schema["format"]])
        elif pattern is not None:
            inner = _quotable(regex_expression(pattern, is_search=True))
        else:
            return Sequence((text('"'), Repeat(_CHARACTER, least, most), text('"')))
        if least or most is not None:
            raise RequestError("a text of the schema has a length beside a pattern or a format")
        return Sequence((text('"'), inner, text('"')))

    def _number(self, schema: Mapping[str, Any], depth: int) -> Expression:
        self._only(schema, "type")
        return _NUMBER

    def _integer(self, schema: Mapping[str, Any], depth: int) -> Expression:
        self._only(schema, "type", "minimum", "maximum")
        least, most = schema.get("minimum"), schema.get("maximum")
        if least is None and most is None:
            return _WHOLE
        least = 0 if least is None else least
        if not isinstance(least, int) or not isinstance(most, int) or not 0 <= most - least < 5000:
            raise RequestError(
                f"an integer from {least!r:.20} to {most!r:.20}: both ends, at most 5000 apart"
            )
        return Choice(tuple(text(str(n)) for n in range(least, most + 1)))

    def _boolean(self, schema: Mapping[str, Any], depth: int) -> Expression:
        self._only(schema, "type")
        return Choice((text("true"), text("false")))

    def _null(self, schema: Mapping[str, Any], depth: int) -> Expression:
        self._only(schema, "type")
        return text("null")


_OBJECT = ("type", "properties", "required", "additionalProperties")
_ARRAY = ("type", "items", "prefixItems", "minItems", "maxItems")
_TEXT = ("type", "minLength", "maxLength", "pattern", "format")


def _several(part: Expression) -> Expression:
    """Any number of parts with commas between them."""
    more = Repeat(Sequence((text(","), _SPACE, part)), 0, None)
    return optional(Sequence((part, more)))


def _limits(schema: Mapping[str, Any], least: str, most: str) -> tuple[int, int | None]:
    found = []
    for name, default in ((least, 0), (most, None)):
        value = schema.get(name, default)
        is_number = isinstance(value, int) and not isinstance(value, bool)
        if value is not None and not (is_number and 0 <= value <= 10_000):
            raise RequestError(f"{name} of the schema is {value!r:.40}")
        found.append(value)
    return found[0], found[1]


def _quotable(part: Expression) -> Expression:
    """A pattern inside of a JSON text: characters that need an escape there are left out."""
    if isinstance(part, Chars):
        return Chars((*part.inverted().ranges, (0, 31), (34, 34), (92, 92))).inverted()
    if isinstance(part, Sequence):
        return Sequence(tuple(_quotable(p) for p in part.parts))
    if isinstance(part, Choice):
        return Choice(tuple(_quotable(p) for p in part.parts))
    if isinstance(part, Repeat):
        return Repeat(_quotable(part.part), part.least, part.most)
    return part
