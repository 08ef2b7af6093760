"""How a token is drawn from scores: penalties, cuts, a seed, and what an answer may look like.

Scores are changed in this order: what a constraint forbids, biases, penalties, DRY; then the
temperature; then the cuts top-k, top-p, min-p and XTC. Probabilities that are reported are those
of the model, before all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from svod.llm.errors import RequestError

Array = np.ndarray[Any, Any]
LOGPROBS = 20  # the most likeliest tokens that are reported
REPEATS = 64  # tokens of a repetition that DRY looks at


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn; temperature 0 takes the likeliest.

    `dry_*`: a token that would continue a repetition of `dry_allowed` tokens or more loses
    `dry_multiplier * dry_base ** (length - dry_allowed)`. `xtc_*`: with this probability, all
    tokens likelier than the threshold go, but for the least likely of them.
    """

    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed: int = 2
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    logit_bias: dict[int, float] = field(default_factory=dict)
    seed: int | None = None
    logprobs: int = 0  # likeliest tokens that are reported with each token

    def __post_init__(self) -> None:
        is_known = (
            0 <= self.temperature <= 100 and 0 < self.top_p <= 1 and 0 <= self.min_p <= 1
            and self.top_k >= 0 and 0 < self.repetition_penalty <= 100
            and abs(self.presence_penalty) <= 100 and abs(self.frequency_penalty) <= 100
            and 0 <= self.dry_multiplier <= 100 and 1 <= self.dry_base <= 100
            and self.dry_allowed >= 1 and 0 <= self.xtc_probability <= 1
            and 0 <= self.xtc_threshold <= 1 and 0 <= self.logprobs <= LOGPROBS
            and (self.seed is None or 0 <= self.seed < 1 << 64)
            and all(abs(bias) <= 1000 for bias in self.logit_bias.values())
        )  # fmt: skip
        if not is_known:
            raise RequestError(f"sampling cannot be as in {self}")


@dataclass(frozen=True, slots=True)
class Step:
    """A token and the logarithm of its probability, with the likeliest tokens at this place."""

    token: int
    logprob: float
    likeliest: tuple[tuple[int, float], ...] = ()


class Constraint(Protocol):
    """What an answer may look like."""

    def allowed(self) -> Array:
        """Which tokens may come next, as truth values."""

    def accept(self, token: int) -> None:
        """A token has come."""


class Sampler:
    """Draws the tokens of one answer."""

    def __init__(self, sampling: Sampling, constraint: Constraint | None = None) -> None:
        self.sampling, self.constraint = sampling, constraint
        self._random = np.random.default_rng(sampling.seed)

    def draw(self, logits: Array, tokens: Sequence[int]) -> Step:
        """The token that follows `tokens`."""
        sampling = self.sampling
        scores = logits.astype(np.float64)
        highest = scores.max()
        if not np.isfinite(highest):
            raise RequestError("the model gave scores that are no numbers")
        whole = highest + np.log(np.exp(scores - highest).sum())
        changed = self._changed(scores, tokens)
        if sampling.temperature == 0:
            token = int(changed.argmax())
        else:
            token = self._drawn(changed / sampling.temperature)
        if self.constraint is not None:
            self.constraint.accept(token)
        likeliest: tuple[tuple[int, float], ...] = ()
        if sampling.logprobs:
            order = _highest(scores, sampling.logprobs)
            likeliest = tuple((int(t), float(scores[t] - whole)) for t in order)
        return Step(token, float(scores[token] - whole), likeliest)

    def _changed(self, scores: Array, tokens: Sequence[int]) -> Array:
        sampling = self.sampling
        changed = scores.copy()
        for token, bias in sampling.logit_bias.items():
            if not 0 <= token < len(scores):
                raise RequestError(f"a bias of token {token}, which is not in the vocabulary")
            changed[token] += bias
        factor, each = sampling.repetition_penalty, sampling.frequency_penalty
        if factor != 1.0 or each or sampling.presence_penalty:
            seen, counts = np.unique(np.asarray(tokens, np.int64), return_counts=True)
            kept = changed[seen]
            changed[seen] = np.where(kept > 0, kept / factor, kept * factor)
            changed[seen] -= sampling.presence_penalty + each * counts
        if sampling.dry_multiplier:
            for token, length in repeated(tokens).items():
                if length >= sampling.dry_allowed:
                    power = sampling.dry_base ** (length - sampling.dry_allowed)
                    changed[token] -= sampling.dry_multiplier * power
        if self.constraint is not None:
            allowed = self.constraint.allowed()
            changed[: len(allowed)][~allowed] = -np.inf
            changed[len(allowed) :] = -np.inf
            if not np.isfinite(changed.max()):
                raise RequestError("no token of the vocabulary continues what the answer must be")
        return changed

    def _drawn(self, scores: Array) -> int:
        """A token by its share after the cuts."""
        sampling = self.sampling
        shares = np.exp(scores - scores.max())
        shares /= shares.sum()
        is_cut = sampling.top_p < 1 or sampling.xtc_probability > 0
        if sampling.top_k and sampling.top_k < len(shares):
            kept = _highest(shares, sampling.top_k)
        elif is_cut:
            kept = np.argsort(-shares, kind="stable")
        else:
            kept = np.arange(len(shares))
        shares = shares[kept]
        if sampling.top_p < 1:
            before = np.cumsum(shares) - shares
            count = max(1, int((before < sampling.top_p).sum()))
            kept, shares = kept[:count], shares[:count]
        if sampling.min_p:
            is_kept = shares >= sampling.min_p * shares.max()
            kept, shares = kept[is_kept], shares[is_kept]
        if sampling.xtc_probability and self._random.random() < sampling.xtc_probability:
            likely = int((shares / shares.sum() >= sampling.xtc_threshold).sum())
            if likely > 1:
                kept, shares = kept[likely - 1 :], shares[likely - 1 :]
        sums = np.cumsum(shares)
        place = int(np.searchsorted(sums, self._random.random() * sums[-1], side="right"))
        place = min(place, len(kept) - 1)
        while shares[place] == 0:  # a sum that rounding has carried past the last share
            place -= 1
        return int(kept[place])


def repeated(tokens: Sequence[int]) -> dict[int, int]:
    """How long the repetition is that each token would continue."""
    found: dict[int, int] = {}
    if not tokens:
        return found
    last = tokens[-1]
    for place in range(len(tokens) - 2, -1, -1):
        if tokens[place] != last:
            continue
        length = 1
        while length < min(REPEATS, place + 1) and tokens[place - length] == tokens[-1 - length]:
            length += 1
        following = tokens[place + 1]
        found[following] = max(found.get(following, 0), length)
    return found


def _highest(values: Array, count: int) -> Array:
    """The places of the highest values, the highest first, the earlier of equal ones first."""
    count = min(count, len(values))
    if count == len(values):
        return np.argsort(-values, kind="stable")
    bound = np.partition(values, len(values) - count)[len(values) - count]
    places = np.flatnonzero(values >= bound)
    return places[np.argsort(-values[places], kind="stable")][:count]
