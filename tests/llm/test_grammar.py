"""Forms of answers: what matches, which tokens may come, what is refused."""

from __future__ import annotations

import json
import random as randoms
import re
from typing import Any

import numpy as np
import pytest

from svod.llm import RequestError
from svod.llm.grammar import Form, grammar_form, json_form, regex_form, schema_form
from svod.llm.grammar.automaton import DEAD
from svod.llm.grammar.expressions import Chars, byte_ranges, compiled
from svod.llm.grammar.forms import Vocabulary

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"}, "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 2},
        "child": {"$ref": "#"},
    },
    "required": ["name"], "additionalProperties": False,
}  # fmt: skip


def random_pattern(random: randoms.Random, depth: int) -> str:
    kind = random.randrange(6 if depth else 3)
    if kind < 2:
        return random.choice(["a", "b", "é", "[ab]", "[^a]", ".", r"\d", r"\w", "[b-dé]"])
    if kind == 2:
        return re.escape(random.choice(["ab", "ba", "a.b"]))
    inner = random_pattern(random, depth - 1)
    if kind == 3:
        return f"(?:{inner})" + random.choice(["*", "+", "?", "{2}", "{1,3}", "{2,}"])
    if kind == 4:
        return f"(?:{inner}|{random_pattern(random, depth - 1)})"
    return inner + random_pattern(random, depth - 1)


def test_patterns_match_what_they_match_in_python() -> None:
    random = randoms.Random(0)
    counts = [0, 0]
    for _ in range(150):
        pattern = random_pattern(random, 3)
        form = regex_form(pattern)
        for _ in range(12):
            text = "".join(random.choices("abé1.", k=random.randrange(6)))
            expected = re.fullmatch(pattern, text, re.ASCII) is not None
            assert form.matches(text) == expected, (pattern, text)
            counts[expected] += 1
    assert min(counts) > 100


def test_characters_are_the_bytes_of_utf8() -> None:
    random = randoms.Random(1)
    bounds = [0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFF, 0x1000, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF]
    for _ in range(60):
        low, high = sorted(random.sample(bounds, 2))
        low, high = low + random.randrange(2), max(high - random.randrange(2), low + 1)
        ways = list(byte_ranges(low, high))
        form = Form(compiled(Chars(((low, high),))))
        for number in {*bounds, low, high, max(low - 1, 0), high + 1, (low + high) // 2}:
            if number > 0x10FFFF or 0xD800 <= number < 0xE000:
                continue
            content = chr(number).encode()
            is_in = sum(
                len(way) == len(content)
                and all(a <= byte <= b for byte, (a, b) in zip(content, way, strict=True))
                for way in ways
            )
            assert is_in == form.matches(content) == (low <= number <= high), (low, high, number)


@pytest.mark.parametrize(
    "text, is_right",
    [
        ('{"name": "x"}', True), ('{"name":"x","age":-12}', True), ("{}", False),
        ('{"name": "\\u00e9é\\n", "tags": ["a", "b"], "child": {"name": "y"}}', True),
        ('{"name": "x", "tags": ["a", "b", "a"]}', False), ('{"age": 1}', False),
        ('{"name": "x",}', False), ('{"name": "x" "age": 1}', False),
        ('{"name": "x", "age": 01}', False), ('{"name": "x", "other": 1}', False),
        ('{"name": "a"b"}', False), ('{"name": "x"}}', False),
    ],
)  # fmt: skip
def test_a_schema_of_an_object(text: str, is_right: bool) -> None:
    assert schema_form(PERSON).matches(text) == is_right


@pytest.mark.parametrize(
    "schema, right, wrong",
    [
        ({"type": "string", "minLength": 2, "maxLength": 3}, ['"ab"', '"abé"'], ['"a"', '"abcd"']),
        ({"type": "string", "pattern": "^[a-z]+$"}, ['"abc"'], ['""', '"aB"', '"a\nb"']),
        ({"type": "string", "pattern": "b"}, ['"abc"'], ['"ac"']),
        ({"type": "string", "format": "date"}, ['"2024-02-28"'], ['"2024-13-01"']),
        ({"type": ["integer", "null"]}, ["1", "null"], ["1.5", '"x"']),
        ({"type": "integer", "minimum": 3, "maximum": 12}, ["3", "12"], ["2", "13"]),
        ({"type": "number"}, ["1", "-0.5e+3"], [".5", "1.", "0x1"]),
        ({"type": "array", "items": {"type": "boolean"}, "minItems": 1}, ["[true]"], ["[]"]),
        ({"anyOf": [{"const": {"a": 1}}, {"enum": ["x", 2]}]}, ['{"a": 1}', '"x"', "2"], ["3"]),
        ({"type": "object", "additionalProperties": {"type": "integer"}}, ['{"q": 1}', "{}"],
         ['{"q": "x"}']),
        (True, ['{"a": [1, {"b": null}]}', "false"], ["nope"]),
        ({"$defs": {"t": {"type": "array", "items": {"$ref": "#/$defs/t"}}}, "$ref": "#/$defs/t"},
         ["[[], [[]]]"], ["[1]"]),
    ],
)  # fmt: skip
def test_schemas(schema: Any, right: list[str], wrong: list[str]) -> None:
    form = schema_form(schema)
    assert [t for t in right if not form.matches(t)] == []
    assert [t for t in wrong if form.matches(t)] == []


def test_many_optional_members_are_no_burden() -> None:
    names = [f"m{n}" for n in range(60)]
    form = schema_form({"type": "object", "properties": {n: {"type": "null"} for n in names}})
    assert form.matches("{" + ", ".join(f'"{n}": null' for n in names[::7]) + "}")
    assert not form.matches('{"m3": null, "m1": null}')


@pytest.mark.parametrize(
    "schema",
    [{"type": "strange"}, {"type": "string", "strange": 1}, {"$ref": "http://x"}, {"enum": []},
     {"$ref": "#/nowhere"}, {"type": "object", "required": ["a"]}, 7, {"minItems": 1},
     {"type": "array", "minItems": 3, "maxItems": 2}, {"type": "string", "pattern": "(?=a)"}],
)  # fmt: skip
def test_schemas_that_are_not_known_are_refused(schema: Any) -> None:
    with pytest.raises(RequestError):
        schema_form(schema)


@pytest.mark.parametrize(
    "pattern", ["(", "a)", "[a", "*", r"\1", r"\b", "(?=a)", "a^b", "[z-a]", "a{3,1}", "a++"]
)
def test_patterns_that_are_not_known_are_refused(pattern: str) -> None:
    with pytest.raises(RequestError):
        regex_form(pattern)


def test_grammars() -> None:
    form = grammar_form(
        'root ::= sum  # of terms\nsum ::= term (("+" | "-") term)*\n'
        'term ::= [0-9]+ | "(" sum ")" | "\\u00e9" | "x"{2,3}'
    )
    for text in ("1+(2-3)+44", "é", "xxx-xx", "(((7)))"):
        assert form.matches(text)
    for text in ("1+", "(2", "x", ""):
        assert not form.matches(text)
    assert grammar_form('root ::= a*\na ::= "x"?').matches("xx")


@pytest.mark.parametrize(
    "source, problem",
    [
        ('root ::= root "a" | "b"', "begins with itself"), ('a ::= "x"', "no rule named root"),
        ("root ::= other", "'other' is not defined"), ('root ::= ("a"', "not closed"),
        ('root ::= "a\nroot ::= "b"', "line 1"), ('root ::= "a"\nroot ::= "b"', "defined twice"),
        ('root ::= "x"? root "y"', "begins with itself"),
    ],
)  # fmt: skip
def test_grammars_that_make_no_sense_are_refused(source: str, problem: str) -> None:
    with pytest.raises(RequestError, match=problem):
        grammar_form(source)


def test_masks_are_those_of_each_token_by_itself() -> None:
    random = randoms.Random(2)
    alphabet = [
        '"',
        "{",
        "}",
        "na",
        "me",
        '{"',
        '":',
        " ",
        "1",
        "23",
        "tr",
        "ue",
        "é",
        "\n",
        '", "',
    ]
    contents = [s.encode() for s in alphabet] + [b"\xc3", b"\xa9", b"", b"name"]
    vocabulary = Vocabulary(contents, [len(contents) - 2])
    end = len(contents) - 2
    for form in (schema_form(PERSON), json_form(), regex_form('("é|na|\\d)+')):
        constraint = form.constraint(vocabulary)
        for _ in range(30):
            mask = constraint.allowed()
            for token, content in enumerate(contents):
                after = form.automaton.after(constraint.state, content)
                expected = bool(content) and after != DEAD
                if token == end:
                    expected = form.automaton.is_complete(constraint.state)
                assert mask[token] == expected
            following = [t for t in np.flatnonzero(mask).tolist() if t != end]
            if not following:
                break
            constraint.accept(random.choice(following))


def test_an_answer_of_the_model_is_of_its_form() -> None:
    import svod

    model = svod.llm.load(context=128)
    sampling = svod.llm.Sampling(temperature=1.0, seed=5)
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    pieces = list(model.pieces([9, 10], sampling, 60, form=schema_form(schema)))
    assert pieces[-1].finish == "stop"
    assert isinstance(json.loads("".join(p.text for p in pieces))["n"], int)
    text = "".join(model.generate("Hello", max_tokens=12, form=regex_form("[xyz]{4}")))
    assert re.fullmatch("[xyz]{4}", text)
