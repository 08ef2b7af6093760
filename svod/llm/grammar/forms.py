"""Which tokens may come next: all tokens walk through the automaton at once, byte by byte."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import numpy as np

from svod.llm.errors import RequestError
from svod.llm.grammar.automaton import DEAD, Automaton
from svod.llm.grammar.expressions import Rules
from svod.llm.tokenizer import Tokenizer

Array = np.ndarray[Any, Any]
CACHED_MASKS = 128


class Vocabulary:
    """The bytes of every token, the longest tokens first: column j has the j-th bytes."""

    def __init__(self, contents: list[bytes], ends: Iterable[int]) -> None:
        self.contents = contents
        self.ends = np.array(sorted(ends), np.int64)
        lengths = np.array([len(c) for c in contents], np.int64)
        self.order = np.argsort(-lengths, kind="stable")
        ordered = lengths[self.order]
        self.columns = []
        for place in range(int(ordered[0]) if len(ordered) else 0):
            count = int((ordered > place).sum())
            column = [contents[token][place] for token in self.order[:count].tolist()]
            self.columns.append(np.array(column, np.uint8))
        self.count = len(self.columns[0]) if self.columns else 0  # tokens that have bytes

    @staticmethod
    def of(tokenizer: Tokenizer) -> Vocabulary:
        contents = [tokenizer.content(token) for token in range(len(tokenizer.tokens))]
        return Vocabulary(contents, tokenizer.ends)


class Form:
    """What an answer may look like, with the masks that were computed so far."""

    def __init__(self, rules: Rules) -> None:
        self.automaton = Automaton(rules)
        self._masks: OrderedDict[int, Array] = OrderedDict()
        self._vocabulary: Vocabulary | None = None

    def matches(self, text: str | bytes) -> bool:
        """Whether a whole text is of this form."""
        content = text.encode() if isinstance(text, str) else text
        state = self.automaton.after(self.automaton.first, content)
        return state != DEAD and self.automaton.is_complete(state)

    def constraint(self, vocabulary: Vocabulary) -> FormConstraint:
        """The form as a constraint of one answer."""
        if self._vocabulary is not vocabulary:
            self._vocabulary, self._masks = vocabulary, OrderedDict()
        return FormConstraint(self, vocabulary)

    def mask(self, state: int, vocabulary: Vocabulary) -> Array:
        """The tokens that may come in a state."""
        known = self._masks.get(state)
        if known is not None:
            self._masks.move_to_end(state)
            return known
        states = np.full(vocabulary.count, state, np.int32)
        for column in vocabulary.columns:
            walking = np.flatnonzero(states[: len(column)] != DEAD)
            if not len(walking):
                break
            before = states[walking]
            states[walking] = self.automaton.rows(before)[before, column[walking]]
        mask = np.zeros(len(vocabulary.contents), bool)
        mask[vocabulary.order[: vocabulary.count]] = states != DEAD
        mask[vocabulary.ends] = self.automaton.is_complete(state)
        self._masks[state] = mask
        if len(self._masks) > CACHED_MASKS:
            self._masks.popitem(last=False)
        return mask


class FormConstraint:
    """Where one answer is in its form."""

    def __init__(self, form: Form, vocabulary: Vocabulary) -> None:
        self.form, self.vocabulary = form, vocabulary
        self.state = form.automaton.first

    def allowed(self) -> Array:
        return self.form.mask(self.state, self.vocabulary)

    def accept(self, token: int) -> None:
        if token in self.vocabulary.ends:
            return
        self.state = self.form.automaton.after(self.state, self.vocabulary.contents[token])
        if self.state == DEAD:
            raise RequestError(f"token {token} does not continue what the answer must be")
