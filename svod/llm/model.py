"""A language model: text or messages in, text out, piece by piece.

Texts come in whole characters, and end before a stop string even where it is spread over several
tokens: what may be the beginning of one waits until it is known not to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from svod.llm.config import DecoderConfig
from svod.llm.engine import Engine, Request
from svod.llm.errors import RequestError
from svod.llm.grammar.forms import Form, FormConstraint, Vocabulary
from svod.llm.sampling import Sampling, Step
from svod.llm.template import ChatTemplate
from svod.llm.tokenizer import Stream, Tokenizer

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Piece:
    """What one token adds; `finish` says why the last piece is the last: "stop" or "length"."""

    text: str
    token: int
    logprob: float
    finish: str | None = None
    likeliest: tuple[tuple[int, float], ...] = ()


class LanguageModel:
    """A decoder with its tokenizer and chat template."""

    def __init__(
        self, name: str, config: DecoderConfig, tokenizer: Tokenizer, engine: Engine,
        template: str | None, weight_bytes: int = 0,
    ) -> None:  # fmt: skip
        self.name, self.config, self.tokenizer, self.engine = name, config, tokenizer, engine
        self.template = template
        self.weight_bytes = weight_bytes  # that a token reads, as the file keeps them

    @property
    def context(self) -> int:
        """The most tokens of a prompt and its answer."""
        return self.engine.context

    @property
    def parameters(self) -> int:
        """How many weights there are."""
        decoder = self.engine.decoder
        return sum(prod(decoder.shape(name)) for name in decoder.names)

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        form: Form | None = None,
    ) -> Iterator[str]:
        """The text that follows a prompt, as it comes; `form` says what it may look like."""
        tokens = self.tokenizer.encode(prompt) if isinstance(prompt, str) else list(prompt)
        return _texts(self.pieces(tokens, sampling, max_tokens, stop, form))

    def chat(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        form: Form | None = None,
        **options: Any,
    ) -> Iterator[str]:
        """The answer to messages (`{"role": "user", "content": "..."}`), as it comes; other
        options are names that the chat template may use."""
        tokens = self.chat_tokens(messages, **options)
        return _texts(self.pieces(tokens, sampling, max_tokens, stop, form))

    def chat_tokens(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        """The prompt that the chat template makes of messages."""
        text, mark = self._template.rendered(messages, options)
        return self.tokenizer.encode(text, control=True, mark=mark)

    def embedding(self, text: str | Sequence[int]) -> Array:
        """A text as a vector of length 1: the mean over its tokens in the last layer."""
        tokens = self.tokenizer.encode(text) if isinstance(text, str) else list(text)
        return self.engine.embedding(tokens)

    @cached_property
    def _template(self) -> ChatTemplate:
        if self.template is None:
            raise RequestError(f"{self.name} has no chat template: use generate()")
        return ChatTemplate(self.template, self.tokenizer)

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The bytes of all tokens."""
        return Vocabulary.of(self.tokenizer)

    def pieces(
        self,
        tokens: Sequence[int],
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        form: Form | None = None,
    ) -> Iterator[Piece]:
        """What follows tokens, with its numbers; the arguments are checked at once."""
        tokens = self.engine.checked(tokens)
        reader = Reader(self.tokenizer, self._limit(tokens, max_tokens), stop)
        constraint = self._constraint(form)
        return self._pieces(tokens, sampling or Sampling(), reader, constraint)

    def submit(
        self,
        tokens: Sequence[int],
        give: Callable[[Piece], None],
        sampling: Sampling | None = None,
        max_tokens: int | None = None,
        stop: str | Sequence[str] = (),
        form: Form | None = None,
        ended: Callable[[], None] | None = None,
    ) -> Request:
        """The same for whoever runs the engine's steps: `give` gets each piece as it comes."""
        tokens = self.engine.checked(tokens)
        reader = Reader(self.tokenizer, self._limit(tokens, max_tokens), stop)

        def take(step: Step) -> bool:
            piece = reader.add(step)
            give(piece)
            return piece.finish is not None

        constraint = self._constraint(form)
        return self.engine.submit(tokens, take, sampling, reader.limit, constraint, ended)

    def _limit(self, tokens: list[int], max_tokens: int | None) -> int:
        limit = self.context - len(tokens)
        if max_tokens is not None:
            if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
                raise RequestError(f"max_tokens is {max_tokens!r:.40}, not a positive number")
            limit = min(limit, max_tokens)
        return limit

    def _constraint(self, form: Form | None) -> FormConstraint | None:
        return None if form is None else form.constraint(self.vocabulary)

    def _pieces(
        self,
        tokens: list[int],
        sampling: Sampling,
        reader: Reader,
        constraint: FormConstraint | None,
    ) -> Iterator[Piece]:
        for step in self.engine.generate(tokens, sampling, reader.limit, constraint):
            piece = reader.add(step)
            yield piece
            if piece.finish is not None:
                return


class Reader:
    """Tokens of one answer to pieces of text."""

    def __init__(self, tokenizer: Tokenizer, limit: int, stop: str | Sequence[str]) -> None:
        self.tokenizer, self.limit, self.stops = tokenizer, limit, Stops(stop)
        self._stream, self._count = Stream(tokenizer), 0

    def add(self, step: Step) -> Piece:
        """What a token adds."""
        self._count += 1
        finish = None
        if step.token in self.tokenizer.ends:
            text, finish = self.stops.finish(self._stream.finish()), "stop"
        else:
            is_known = step.token < len(self.tokenizer.tokens)  # weights may have spare rows
            text = self.stops.add(self._stream.add(step.token) if is_known else "")
            if self.stops.is_met:
                finish = "stop"
            elif self._count >= self.limit:
                text, finish = text + self.stops.finish(self._stream.finish()), "length"
        return Piece(text, step.token, step.logprob, finish, step.likeliest)


class Stops:
    """Text held back while it may be the beginning of a stop string."""

    def __init__(self, stop: str | Sequence[str]) -> None:
        self.strings = (stop,) if isinstance(stop, str) else tuple(stop)
        if not all(isinstance(s, str) and s for s in self.strings):
            raise RequestError("stop strings are texts of at least one character")
        self.is_met = False
        self._held = ""

    def add(self, text: str) -> str:
        """What can be shown now."""
        if self.is_met:
            return ""
        self._held += text
        places = [p for s in self.strings if (p := self._held.find(s)) >= 0]
        if places:
            self.is_met = True
            shown, self._held = self._held[: min(places)], ""
            return shown
        kept = max((_overlap(self._held, s) for s in self.strings), default=0)
        shown = self._held[: len(self._held) - kept]
        self._held = self._held[len(shown) :]
        return shown

    def finish(self, text: str) -> str:
        """The rest, when nothing follows."""
        shown = self.add(text)
        if not self.is_met:
            shown, self._held = shown + self._held, ""
        return shown


def _overlap(text: str, stop: str) -> int:
    """How many characters at the end of a text begin a stop string."""
    for count in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:count]):
            return count
    return 0


def _texts(pieces: Iterator[Piece]) -> Iterator[str]:
    return (piece.text for piece in pieces if piece.text)
