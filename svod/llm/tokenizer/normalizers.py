"""What happens to text before it is cut: spaces, forms of Unicode, and BERT's cleaning."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable

Normalizer = Callable[[str], str]


def bert_cleaned(text: str, cleans: bool, spaces_chinese: bool, strips: bool, lowers: bool) -> str:
    """BERT's steps in their order."""
    if cleans:
        kept = [c for c in text if c not in "\0\ufffd" and not _is_control(c)]
        text = "".join(" " if _is_space(c) else c for c in kept)
    if spaces_chinese:
        text = "".join(f" {c} " if _is_chinese(ord(c)) else c for c in text)
    if strips:
        parts = unicodedata.normalize("NFD", text)
        text = "".join(c for c in parts if unicodedata.category(c) != "Mn")
    return text.lower() if lowers else text


def bert_words(text: str) -> list[str]:
    """Words, each sign of punctuation by itself."""
    words: list[str] = []
    is_open = False
    for char in text:
        if _is_space(char):
            is_open = False
        elif _is_punctuation(char):
            words.append(char)
            is_open = False
        elif is_open:
            words[-1] += char
        else:
            words.append(char)
            is_open = True
    return words


def _is_space(char: str) -> bool:
    return char in "\t\n\r" or (char.isspace() and char not in "\x1c\x1d\x1e\x1f")


def _is_control(char: str) -> bool:
    return char not in "\t\n\r" and unicodedata.category(char) in ("Cc", "Cf", "Cn", "Co", "Cs")


def _is_punctuation(char: str) -> bool:
    is_ascii = char.isascii() and char.isprintable() and not char.isalnum() and char != " "
    return is_ascii or unicodedata.category(char).startswith("P")


_CHINESE = (
    (0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F), (0x2B820, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F),
)  # fmt: skip


def _is_chinese(code: int) -> bool:
    return any(first <= code <= last for first, last in _CHINESE)
