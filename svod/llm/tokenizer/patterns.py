"""How text is cut into words before merging: patterns by the name that files give.

Patterns are written with properties of Unicode (`\\p{L}`), which the standard library does not
have: `compiled` spells them out as ranges. Whitespace is Unicode's, without the separators of
ASCII that Python counts. An unknown name is an error: another cut degrades a model silently.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import cache

from svod.llm.errors import ModelFileError

_SPACES = r"\t-\r \x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CAMEL = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+@|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*@"
_LAST = r"|\s*[\r\n]+|\s+(?!\S)|\s+"


def _words(digits: str) -> str:
    return (
        rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
        + _LAST
    )


_THREE, _ONE = (_words(r"\p{N}{1,3}"),), (_words(r"\p{N}"),)
_TEKKEN = (_CAMEL.replace("@", "") + r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*" + _LAST,)
_GPT4O = (
    _CAMEL.replace("@", _CONTRACTIONS + "?")
    + r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*"
    + _LAST,
)  # fmt: skip
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*" + _LAST,
)
_DEEPSEEK3 = (
    r"\p{N}{1,3}",
    "[一-龥\u3040-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
    r"| ?[\p{P}\p{S}]+[\r\n]*" + _LAST,
)
_DEFAULT = (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]")
_DIGITS_FIRST = (r"\p{N}", _GPT2)

# Each pattern of a name cuts what the ones before it have left.
PRE_TOKENIZERS: dict[str, tuple[str, ...]] = {
    "default": _DEFAULT, "gpt-2": (_GPT2,), "phi-2": (_GPT2,), "jina-en": (_GPT2,),
    "llama3": _THREE, "llama-v3": _THREE, "llama-bpe": _THREE, "glm4": _THREE,
    "chatglm-bpe": _THREE, "dbrx": _THREE, "smaug-bpe": _THREE, "falcon3": _THREE,
    "qwen2": _ONE, "deepseek-r1-qwen": _ONE, "stablelm2": _ONE, "megrez": _ONE,
    "qwen35": _QWEN35, "gpt-4o": _GPT4O, "llama4": _GPT4O, "tekken": _TEKKEN,
    "deepseek-v3": _DEEPSEEK3, "smollm": _DIGITS_FIRST, "starcoder": _DIGITS_FIRST,
    "refact": _DIGITS_FIRST, "command-r": _DIGITS_FIRST, "codeshell": _DIGITS_FIRST,
}  # fmt: skip


def pre_tokenizer(name: str) -> tuple[re.Pattern[str], ...]:
    """The patterns of a name."""
    if name not in PRE_TOKENIZERS:
        raise ModelFileError(f"the pre-tokenizer {name!r:.80} is not known")
    return tuple(compiled(pattern) for pattern in PRE_TOKENIZERS[name])


@cache
def compiled(pattern: str) -> re.Pattern[str]:
    """A pattern with properties of Unicode, as one of the standard library."""
    out, place, in_set = [], 0, False
    while place < len(pattern):
        two = pattern[place : place + 2]
        if two[1:] and two[0] == "\\" and two[1] in "pPsSd":
            inner, place = _class(pattern, place)
            if in_set and two[1].isupper():
                raise ModelFileError(f"the pattern {pattern!r:.80} negates a class in a set")
            sign = "^" if two[1].isupper() else ""
            out.append(inner if in_set else f"[{sign}{inner}]")
            continue
        if two[0] in "[]":
            in_set = two[0] == "["
        step = 2 if two[0] == "\\" else 1
        out.append(two[:step])
        place += step
    try:
        return re.compile("".join(out))
    except re.error as error:
        raise ModelFileError(f"the pattern {pattern!r:.80} is not read: {error}") from None


def _class(pattern: str, place: int) -> tuple[str, int]:
    """The inside of a set for the class at a place, and where the pattern goes on."""
    letter, place = pattern[place + 1], place + 2
    if letter in "sS":
        return _SPACES, place
    if letter == "d":
        return _ranges("Nd"), place
    if pattern[place : place + 1] != "{":
        return _ranges(pattern[place : place + 1]), place + 1
    end = pattern.find("}", place)
    return _ranges(pattern[place + 1 : end]), end + 1


@cache
def _categories() -> tuple[str, ...]:
    return tuple(unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1))


@cache
def _ranges(name: str) -> str:
    """The characters of a category, as the inside of a set."""
    found: list[tuple[int, int]] = []
    for code, category in enumerate(_categories()):
        if not category.startswith(name):
            continue
        if found and found[-1][1] == code - 1:
            found[-1] = (found[-1][0], code)
        else:
            found.append((code, code))
    if not found:
        raise ModelFileError(f"the property {name!r:.40} of characters is not known")
    return "".join(f"\\U{first:08x}-\\U{last:08x}" for first, last in found)


def cut(text: str, patterns: Sequence[re.Pattern[str]]) -> list[str]:
    """Text in pieces: matches, and what is between them, cut again by the next pattern."""
    pieces = [text] if text else []
    for pattern in patterns:
        pieces = [part for piece in pieces for part in _isolated(piece, pattern)]
    return pieces


def _isolated(text: str, pattern: re.Pattern[str]) -> list[str]:
    out, place = [], 0
    for match in pattern.finditer(text):
        start, end = match.span()
        if start == end:
            continue
        if place < start:
            out.append(text[place:start])
        out.append(text[start:end])
        place = end
    if place < len(text):
        out.append(text[place:])
    return out
