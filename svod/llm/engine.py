"""Generation: an engine takes token numbers and yields the ones that follow.

Two plans do all the work, one for a chunk of the prompt and one for a single token: positions are
variables, so nothing is compiled after the first tokens. Keys and values of the tokens that a new
prompt shares with the last one are kept; the rest is written over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import svod
from svod.base.locks import reset_lock
from svod.llm.decoder import Decoder
from svod.llm.errors import RequestError
from svod.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]
CHUNK = 64


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn; temperature 0 takes the likeliest."""

    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None

    def __post_init__(self) -> None:
        if not (self.temperature >= 0 and 0 < self.top_p <= 1 and 0 <= self.min_p <= 1):
            raise RequestError(f"sampling cannot be as in {self}")
        if self.top_k < 0 or not self.repetition_penalty > 0:
            raise RequestError(f"sampling cannot be as in {self}")


@dataclass(frozen=True, slots=True)
class Step:
    """A token and the logarithm of its probability before sampling cut anything."""

    token: int
    logprob: float


class Engine:
    """A decoder with its plans; one step of one request at a time."""

    def __init__(self, decoder: Decoder, chunk: int = CHUNK) -> None:
        if decoder.capacity <= chunk:
            raise RequestError(f"a cache of {decoder.capacity} has no room for chunks of {chunk}")
        self.decoder, self.chunk = decoder, chunk
        self.last_logits: Array = np.zeros(0, np.float32)
        self._tokens: list[int] = []  # whose keys and values are in the cache
        self._lock = reset_lock()
        self._start = svod.Variable("start", 0, decoder.capacity - chunk)
        self._single = svod.Variable("place", 0, decoder.capacity - 1)
        self._last = svod.Variable("last", 0, chunk - 1)

        @svod.jit(state=decoder)
        def many(tokens: Tensor, positions: Tensor, start: Any, last: Any) -> Tensor:
            return decoder(tokens, positions, start, last)

        @svod.jit(state=decoder)
        def one(token: Tensor, positions: Tensor, start: Any) -> Tensor:
            return decoder(token, positions, start, 0)

        self._many, self._one = many, one

    @property
    def context(self) -> int:
        """The most tokens of a prompt and its answer."""
        return self.decoder.capacity

    @property
    def plans(self) -> int:
        """How many plans there are."""
        return int(self._many.plans + self._one.plans)

    def generate(
        self, prompt: Sequence[int], sampling: Sampling | None = None, limit: int = 1 << 30
    ) -> Iterator[Step]:
        """Tokens that follow a prompt, until the limit, the end of the cache, or the caller's."""
        sampling = sampling or Sampling()
        tokens = self.checked(prompt)
        random = np.random.default_rng(sampling.seed)
        for _ in range(min(limit, self.context - len(tokens))):
            # Held for a step only: another request may run between two, and costs this one the
            # keys and values that it writes over.
            with self._lock:
                self.last_logits = logits = self._logits(tokens)
            step = sampled(logits, tokens, sampling, random)
            tokens.append(step.token)
            yield step

    def checked(self, prompt: Sequence[int]) -> list[int]:
        """The prompt as a list, or what is wrong with it."""
        tokens = [int(token) for token in prompt]
        if not tokens or not all(0 <= t < self.decoder.vocabulary for t in tokens):
            raise RequestError("a prompt is at least one token, each of the vocabulary")
        if len(tokens) >= self.context:
            raise RequestError(f"a prompt of {len(tokens)} tokens in a context of {self.context}")
        return tokens

    def _logits(self, tokens: list[int]) -> Array:
        """Scores of what follows; only what the cache does not hold is computed."""
        place = 0
        for ours, kept in zip(tokens[:-1], self._tokens, strict=False):
            if ours != kept:
                break
            place += 1
        self._tokens = self._tokens[:place]  # valid even where a run is interrupted
        result: Tensor | None = None
        while place < len(tokens):
            left = len(tokens) - place
            is_chunk = left > 1 and place + self.chunk <= self.context
            count = min(left, self.chunk) if is_chunk else 1
            result = self._run(tokens[place : place + count], place, is_chunk)
            place += count
        assert result is not None
        logits = result.numpy()[0]
        self._tokens = list(tokens)
        return logits

    def _run(self, tokens: list[int], place: int, is_chunk: bool) -> Tensor:
        size = self.chunk if is_chunk else 1
        padded = np.zeros(size, np.int32)
        padded[: len(tokens)] = tokens
        positions = Tensor(np.arange(place, place + size, dtype=np.int32))
        if not is_chunk:
            return self._one(Tensor(padded), positions, self._single.bind(place))
        start, last = self._start.bind(place), self._last.bind(len(tokens) - 1)
        return self._many(Tensor(padded), positions, start, last)


def sampled(
    logits: Array, tokens: Sequence[int], sampling: Sampling, random: np.random.Generator
) -> Step:
    """A token drawn from logits."""
    scores = logits.astype(np.float64)
    if not np.isfinite(scores.max()):
        raise RequestError("the model gave scores that are no numbers")
    logprobs = scores - scores.max()
    logprobs -= np.log(np.exp(logprobs).sum())
    scores = _penalised(scores, tokens, sampling)
    if sampling.temperature == 0:
        token = int(scores.argmax())
    else:
        token = int(random.choice(len(scores), p=_shares(scores, sampling)))
    return Step(token, float(logprobs[token]))


def _penalised(scores: Array, tokens: Sequence[int], sampling: Sampling) -> Array:
    for token, bias in sampling.logit_bias.items():
        if not 0 <= token < len(scores):
            raise RequestError(f"a bias of token {token}, which is not in the vocabulary")
        scores[token] += bias
    seen, counts = np.unique(np.asarray(tokens, np.int64), return_counts=True)
    if sampling.repetition_penalty != 1.0:
        kept = scores[seen]
        factor = sampling.repetition_penalty
        scores[seen] = np.where(kept > 0, kept / factor, kept * factor)
    scores[seen] -= sampling.presence_penalty + sampling.frequency_penalty * counts
    return scores


def _shares(scores: Array, sampling: Sampling) -> Array:
    """Probabilities after the cuts: top-k, top-p and min-p, in this order."""
    scores = scores / sampling.temperature
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    order = np.argsort(-shares, kind="stable")
    keep = len(order) if not sampling.top_k else min(sampling.top_k, len(order))
    if sampling.top_p < 1:
        before = np.cumsum(shares[order]) - shares[order]
        keep = min(keep, max(1, int((before < sampling.top_p).sum())))
    kept = np.zeros_like(shares)
    kept[order[:keep]] = shares[order[:keep]]
    kept[kept < sampling.min_p * kept.max()] = 0.0
    return kept / kept.sum()
