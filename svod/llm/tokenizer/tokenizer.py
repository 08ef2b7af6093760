"""A tokenizer: text to token numbers and back.

Tokens that steer a model (control tokens) are found in a text only where `control=True` says that
the text is ours, as a rendered template is; what a user wrote never becomes one. Bytes of a
character may come in several tokens: `Stream` gives complete characters only.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from svod.llm.errors import RequestError
from svod.llm.tokenizer.models import TokenModel


@dataclass(frozen=True, slots=True)
class Tokenizer:
    """The parts of a tokenizer; `words` cuts a text that has no added tokens in it."""

    tokens: tuple[str, ...]
    model: TokenModel
    words: Callable[[str, bool], list[str]]  # text, and whether it begins the whole text
    control: Mapping[str, int] = field(default_factory=dict)
    added: Mapping[str, int] = field(default_factory=dict)  # found in every text
    bos: int | None = None
    eos: int | None = None
    adds_bos: bool = False
    adds_eos: bool = False
    strips_first_space: bool = False
    ends: frozenset[int] = frozenset()  # tokens that end a turn
    content_of_added: Callable[[str], bytes] = str.encode

    def encode(
        self, text: str, control: bool = False, special: bool = True, mark: str = ""
    ) -> list[int]:
        """The tokens of a text, with the ones that begin and end a text where the model has them.

        With `control`, names of control tokens in the text become these; with `special` False
        nothing is added around it. A `mark` inside a name keeps it text, and is dropped.
        """
        if not isinstance(text, str):
            raise RequestError(f"a text is tokenised, not a {type(text).__name__}")
        found = self._encoded(text, control, mark)
        if special and self.adds_bos and self.bos is not None and found[:1] != [self.bos]:
            found.insert(0, self.bos)
        if special and self.adds_eos and self.eos is not None:
            found.append(self.eos)
        return found

    def _encoded(self, text: str, control: bool, mark: str) -> list[int]:
        names = {**self.added, **self.control} if control else self.added
        found: list[int] = []
        is_first = True
        for part in _separated(text, names):
            if part in names:
                found.append(names[part])
            else:
                plain = part.replace(mark, "") if mark else part
                for word in self.words(plain, is_first):
                    found += self.model.encode(word)
            is_first = False
        return found

    def content(self, token: int) -> bytes:
        """The bytes that a token adds to a text; control tokens add none."""
        if not 0 <= token < len(self.tokens):
            raise RequestError(f"token {token} is not one of {len(self.tokens)}")
        name = self.tokens[token]
        if self.control.get(name) == token:
            return b""
        if self.added.get(name) == token:
            return self.content_of_added(name)
        return self.model.content(name)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of tokens; bytes that are no character are shown as U+FFFD."""
        text = b"".join(self.content(token) for token in tokens).decode("utf-8", "replace")
        return text[1:] if self.strips_first_space and text.startswith(" ") else text


def _separated(text: str, names: Mapping[str, int]) -> Sequence[str]:
    if not names or not text:
        return [text] if text else []
    longest_first = sorted(names, key=len, reverse=True)
    pattern = "|".join(map(re.escape, longest_first))
    return [part for part in re.split(f"({pattern})", text) if part]


class Stream:
    """Texts of tokens as they come, in whole characters."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token: int) -> str:
        """What can be shown now."""
        return self._decoder.decode(self.tokenizer.content(token))

    def finish(self) -> str:
        """What was begun and never completed."""
        return self._decoder.decode(b"", True)
