"""From a piece of text to token numbers, and from a token to its bytes: one class per algorithm.

`ByteBPE` maps bytes to printable characters and merges by a list of merges; `PieceMerges` is
SentencePiece's BPE, characters merged by score or list, bytes where a character is unknown;
`Unigram` finds the likeliest cut; `WordPiece` takes the longest match. Texts come cut already.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Protocol

from svod.llm.errors import ModelFileError
from svod.llm.tokenizer.merging import merged

SPACE = "\u2581"  # what SentencePiece writes for a space
CACHED_WORDS = 1 << 16


class TokenModel(Protocol):
    """What a tokenizer needs of an algorithm."""

    def encode(self, piece: str) -> list[int]:
        """The tokens of a piece of text."""

    def content(self, token: str) -> bytes:
        """The bytes that a token of the vocabulary stands for."""


def _printable_bytes() -> dict[int, str]:
    """Bytes as characters that can be seen: those of Latin-1 as they are, others from 256 on."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, following = {byte: chr(byte) for byte in kept}, 256
    for byte in range(256):
        if byte not in table:
            table[byte] = chr(following)
            following += 1
    return table


BYTE_TO_CHAR = _printable_bytes()
CHAR_TO_BYTE = {char: byte for byte, char in BYTE_TO_CHAR.items()}
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
_BYTES_OF_TOKENS = {token: bytes([byte]) for byte, token in enumerate(BYTE_TOKENS)}


class ByteBPE:
    """Merges over the bytes of a word."""

    def __init__(
        self, vocabulary: Mapping[str, int], merges: Sequence[tuple[str, str]], whole: bool = False
    ) -> None:
        self.vocabulary, self.whole = vocabulary, whole  # whole words need no merges
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self._known: dict[str, list[int]] = {}

    def encode(self, piece: str) -> list[int]:
        if piece in self._known:
            return self._known[piece]
        symbols = "".join([BYTE_TO_CHAR[b] for b in piece.encode("utf-8", "replace")])
        if self.whole and symbols in self.vocabulary:
            found = [self.vocabulary[symbols]]
        else:
            parts = merged(symbols, lambda a, b: self.ranks.get((a, b)))
            found = [self.vocabulary[part] for part in parts if part in self.vocabulary]
        if len(self._known) < CACHED_WORDS:
            self._known[piece] = found
        return found

    def content(self, token: str) -> bytes:
        return b"".join(
            bytes([CHAR_TO_BYTE[c]]) if c in CHAR_TO_BYTE else c.encode() for c in token
        )


class PieceMerges:
    """Merges over the characters of a text, by score of the result or by rank of the pair."""

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        unknown: int | None,
        scores: Sequence[float] | None = None,
        merges: Sequence[tuple[str, str]] = (),
        fuses_unknown: bool = False,
    ) -> None:
        self.vocabulary, self.unknown, self.scores = vocabulary, unknown, scores
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.fuses_unknown = fuses_unknown
        self.has_bytes = all(token in vocabulary for token in BYTE_TOKENS)

    def _rank(self, left: str, right: str) -> float | None:
        if self.scores is None:
            return self.ranks.get((left, right))
        number = self.vocabulary.get(left + right)
        return None if number is None else -self.scores[number]

    def encode(self, piece: str) -> list[int]:
        found: list[int] = []
        was_unknown = False
        for part in merged(piece, self._rank):
            number = self.vocabulary.get(part)
            if number is not None:
                found.append(number)
            elif self.has_bytes:
                raw = part.encode("utf-8", "replace")
                found += [self.vocabulary[BYTE_TOKENS[byte]] for byte in raw]
            elif self.unknown is not None and not (self.fuses_unknown and was_unknown):
                found.append(self.unknown)
            was_unknown = number is None
        return found

    def content(self, token: str) -> bytes:
        return piece_content(token)


def piece_content(token: str) -> bytes:
    """The bytes of one of SentencePiece's tokens."""
    return _BYTES_OF_TOKENS.get(token) or token.replace(SPACE, " ").encode("utf-8", "replace")


class Unigram:
    """The cut of a text whose tokens have the largest sum of scores."""

    def __init__(
        self, vocabulary: Mapping[str, int], scores: Sequence[float], unknown: int | None
    ) -> None:
        if not vocabulary:
            raise ModelFileError("a unigram vocabulary has no tokens")
        self.vocabulary, self.scores, self.unknown = vocabulary, scores, unknown
        self.longest = max(map(len, vocabulary))
        self.penalty = min(scores[n] for n in vocabulary.values()) - 10.0
        self.has_bytes = all(token in vocabulary for token in BYTE_TOKENS)

    def encode(self, piece: str) -> list[int]:
        best, source = [0.0] + [-math.inf] * len(piece), [(0, -1)] * (len(piece) + 1)
        for start in range(len(piece)):
            for end in range(start + 1, min(len(piece), start + self.longest) + 1):
                number = self.vocabulary.get(piece[start:end])
                if number is not None and number != self.unknown:
                    score = best[start] + self.scores[number]
                    if score > best[end]:
                        best[end], source[end] = score, (start, number)
            if piece[start] not in self.vocabulary and best[start] + self.penalty > best[start + 1]:
                best[start + 1], source[start + 1] = best[start] + self.penalty, (start, -1)
        spans, end = [], len(piece)
        while end:
            start, number = source[end]
            spans.append((start, end, number))
            end = start
        return self._numbers(piece, spans[::-1])

    def _numbers(self, piece: str, spans: Sequence[tuple[int, int, int]]) -> list[int]:
        found: list[int] = []
        was_unknown = False
        for start, end, number in spans:
            if number >= 0:
                found.append(number)
            elif self.has_bytes:
                raw = piece[start:end].encode("utf-8", "replace")
                found += [self.vocabulary[BYTE_TOKENS[byte]] for byte in raw]
            elif self.unknown is not None and not was_unknown:
                found.append(self.unknown)
            was_unknown = number < 0
        return found

    def content(self, token: str) -> bytes:
        return piece_content(token)


class WordPiece:
    """The longest token that starts a word, then the longest that continues it."""

    def __init__(
        self,
        vocabulary: Mapping[str, int],
        unknown: int,
        first: str = "",
        later: str = "##",
        longest: int = 100,
    ) -> None:
        self.vocabulary, self.unknown = vocabulary, unknown
        self.first, self.later, self.longest = first, later, longest

    def encode(self, piece: str) -> list[int]:
        if len(piece) > self.longest:
            return [self.unknown]
        found, start = [], 0
        while start < len(piece):
            prefix = self.later if start else self.first
            for end in range(len(piece), start, -1):
                number = self.vocabulary.get(prefix + piece[start:end])
                if number is not None:
                    break
            else:
                return [self.unknown]
            found.append(number)
            start = end
        return found

    def content(self, token: str) -> bytes:
        """A space before what starts a word, as it is read."""
        if self.later and token.startswith(self.later):
            return token[len(self.later) :].encode()
        if self.first and not token.startswith(self.first):
            return token.encode()
        return b" " + token[len(self.first) :].encode()
