"""Generation: requests share the runs of a handful of plans, token by token.

A step of the engine runs at most one chunk of one prompt and one token of every request that has
its prompt behind it. Both are plans whose positions, pages and lengths are variables, so nothing
is compiled after the first tokens, and the rows of a run do not depend on each other: an answer is
the same whoever else is served. Whoever waits for a token makes the next step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

import svod
from svod.base.locks import reset_lock
from svod.base.progress import step as report
from svod.llm.decoder import Decoder
from svod.llm.errors import RequestError
from svod.llm.paged import BLOCK, PAGE, PagePool, Rows, blocks_of, pages_of
from svod.llm.sampling import Constraint, Sampler, Sampling, Step
from svod.tensor.tensor import Tensor

Array = np.ndarray[Any, Any]
CHUNK = 64
NGRAM = 3  # tokens that must have been there before, for what followed them to be guessed


class Request:
    """A prompt with the tokens that have followed it.

    `take` gets each token as it comes, and says whether it was the last that is wanted; `ended`
    is called once, whatever the end was.
    """

    def __init__(
        self,
        prompt: list[int],
        sampler: Sampler,
        limit: int,
        take: Callable[[Step], bool],
        ended: Callable[[], None] | None = None,
    ) -> None:
        self.tokens, self.sampler, self.limit, self.take = prompt, sampler, limit, take
        self.ended = ended
        self.prompt_length, self.shared_length = len(prompt), 0
        self.computed = 0  # tokens whose keys and values are in the cache
        self.pages: list[int] = []
        self.name = 0  # of the last full page
        self.failure: Exception | None = None
        self.is_done = self.is_cancelled = False

    def cancel(self) -> None:
        """Nothing more is wanted; the next step gives its pages back."""
        self.is_cancelled = True

    def finish(self) -> None:
        """Nothing more comes."""
        if not self.is_done:
            self.is_done = True
            if self.ended is not None:
                self.ended()


class Engine:
    """A decoder with its plans and the requests that it serves."""

    def __init__(self, decoder: Decoder, chunk: int = CHUNK, guesses: int = 0) -> None:
        self.decoder = decoder
        self.chunk = max(PAGE, chunk // PAGE * PAGE)
        self.guesses = guesses  # tokens that are guessed from what was said before
        self.last_logits: Array = np.zeros(0, np.float32)
        self.pool = PagePool(decoder.pages)
        self.waiting: deque[Request] = deque()
        self.active: list[Request] = []
        self._lock = reset_lock()
        self._most = blocks_of(pages_of(decoder.capacity))
        self._blocks = svod.Variable("blocks", 1, self._most)
        self._last = svod.Variable("last", 0, self.chunk - 1)
        self._count = svod.Variable("count", 1, self.chunk)
        end = decoder.pages * PAGE
        runs = max(decoder.slots, guesses + 1)
        self._chunk_places = [
            svod.Variable(f"page{n}", 0, end - PAGE) for n in range(self.chunk // PAGE)
        ]
        self._places = [svod.Variable(f"place{n}", 0, end - 1) for n in range(runs)]

        @svod.jit(state=decoder)
        def many(rows: dict[str, Any], last: Any) -> Tensor:
            x = decoder.hidden(Rows(**rows))
            return decoder.logits(x[last : last + 1])

        @svod.jit(state=decoder)
        def single(rows: dict[str, Any]) -> Tensor:
            return decoder(Rows(**rows))

        @svod.jit(state=decoder)
        def pooled(rows: dict[str, Any], count: Any) -> Tensor:
            return decoder.normed(decoder.hidden(Rows(**rows)))[:count].sum(0)

        self._many, self._single, self._pooled = many, single, pooled

    @property
    def context(self) -> int:
        """The most tokens of a prompt and its answer."""
        return self.decoder.capacity

    @property
    def plans(self) -> int:
        """How many plans there are."""
        return int(self._many.plans + self._single.plans + self._pooled.plans)

    def prepare(self) -> None:
        """Make the plans now rather than at the first tokens."""
        with self._lock:
            report("prompts", 0, 2)
            self._run_chunk([0], 0, [])
            report("tokens", 1, 2)
            self._run_singles([])
            if self.guesses:
                self._run_guesses([0], 0, [])
            report("", 2, 2)

    def checked(self, prompt: Sequence[int]) -> list[int]:
        """The prompt as a list, or what is wrong with it."""
        tokens = [int(token) for token in prompt]
        if not tokens or not all(0 <= t < self.decoder.vocabulary for t in tokens):
            raise RequestError("a prompt is at least one token, each of the vocabulary")
        if len(tokens) >= self.context:
            raise RequestError(f"a prompt of {len(tokens)} tokens in a context of {self.context}")
        return tokens

    def submit(
        self,
        prompt: Sequence[int],
        take: Callable[[Step], bool],
        sampling: Sampling | None = None,
        limit: int = 1 << 30,
        constraint: Constraint | None = None,
        ended: Callable[[], None] | None = None,
    ) -> Request:
        """A request that the next steps serve."""
        tokens = self.checked(prompt)
        limit = min(limit, self.context - len(tokens))
        sampler = Sampler(sampling or Sampling(), constraint)
        request = Request(tokens, sampler, limit, take, ended)
        self.waiting.append(request)
        return request

    def generate(
        self,
        prompt: Sequence[int],
        sampling: Sampling | None = None,
        limit: int = 1 << 30,
        constraint: Constraint | None = None,
    ) -> Iterator[Step]:
        """Tokens that follow a prompt, until the limit, the end of the cache, or the caller's."""
        steps: deque[Step] = deque()

        def take(step: Step) -> bool:
            steps.append(step)
            return False

        request = self.submit(prompt, take, sampling, limit, constraint)
        try:
            while True:
                while steps:
                    yield steps.popleft()
                if request.is_done:
                    break
                with self._lock:
                    if not steps and not request.is_done:
                        self._step()
            if request.failure is not None:
                raise request.failure
        finally:
            request.cancel()

    def step(self) -> bool:
        """Advance all requests; says whether there were any."""
        with self._lock:
            return self._step()

    def embedding(self, tokens: Sequence[int]) -> Array:
        """The mean of what the last layer gives for the tokens, of length 1."""
        tokens = self.checked(tokens)
        with self._lock:
            pages: list[int] = []
            total = np.zeros(self.decoder.config.width, np.float64)
            try:
                for place in range(0, len(tokens), self.chunk):
                    part = tokens[place : place + self.chunk]
                    while len(pages) < pages_of(place + len(part)):
                        pages.append(self.pool.take())
                    rows = self._chunk_rows(part, place, pages)
                    total += self._pooled(rows, self._count.bind(len(part))).numpy()
            finally:
                self.pool.release(pages)
        return (total / max(float(np.sqrt((total * total).sum())), 1e-30)).astype(np.float32)

    def _step(self) -> bool:
        for request in [r for r in self.active if r.is_cancelled or r.is_done]:
            self._end(request)
        self._admit()
        if not self.active:
            return False
        starting = next((r for r in self.active if r.computed < r.prompt_length), None)
        running = [r for r in self.active if r.computed >= r.prompt_length]
        if starting is not None:
            self._prefill(starting)
        if len(running) == 1 and self._guess(running[0]):
            return True
        if running:
            logits = self._run_singles(running)
            for row, request in enumerate(running):
                self._computed(request, request.computed + 1)
                self._draw(request, logits[row])
        return True

    def _admit(self) -> None:
        while self.waiting and len(self.active) < self.decoder.slots:
            request = self.waiting.popleft()
            if request.is_cancelled:
                request.finish()
                continue
            request.pages = self.pool.shared(request.tokens)
            request.computed = request.shared_length = len(request.pages) * PAGE
            request.name = self.pool.name_of(request.pages[-1]) if request.pages else 0
            self.active.append(request)

    def fail(self, error: Exception) -> None:
        """End all requests with an error."""
        with self._lock:
            for request in [*self.active, *self.waiting]:
                request.failure = error
                self._end(request)
            self.waiting.clear()

    def _end(self, request: Request) -> None:
        if request in self.active:
            self.active.remove(request)
            self.pool.release(request.pages)
            request.pages = []
        request.finish()

    def _prefill(self, request: Request) -> None:
        place = request.computed
        tokens = request.tokens[place : place + self.chunk]
        self._reserve(request, place + len(tokens))
        logits = self._run_chunk(tokens, place, request.pages)
        self._computed(request, place + len(tokens))
        if request.computed == len(request.tokens):
            self._draw(request, logits[0])

    def _guess(self, request: Request) -> bool:
        """Run what followed the same tokens earlier; keep as much as would have been drawn."""
        left = min(self.guesses, request.limit + request.prompt_length - len(request.tokens) - 1)
        guessed = guess(request.tokens, left)
        if not guessed:
            return False
        place = request.computed
        self._reserve(request, place + 1 + len(guessed))
        logits = self._run_guesses([request.tokens[-1], *guessed], place, request.pages)
        for row, expected in enumerate([*guessed, None]):
            self._computed(request, request.computed + 1)
            self._draw(request, logits[row])
            if request.is_done or request.tokens[-1] != expected:
                break
        return True

    def _draw(self, request: Request, logits: Array) -> None:
        """The next token of a request; what goes wrong is this request's alone."""
        self.last_logits = logits
        try:
            step = request.sampler.draw(logits, request.tokens)
            request.tokens.append(step.token)
            is_last = request.take(step)
        except Exception as error:
            request.failure, is_last = error, True
        if is_last or len(request.tokens) - request.prompt_length >= request.limit:
            self._end(request)

    def _reserve(self, request: Request, tokens: int) -> None:
        while len(request.pages) < pages_of(tokens):
            request.pages.append(self.pool.take())

    def _computed(self, request: Request, tokens: int) -> None:
        """Keys and values of so many tokens are there: full pages can be shared."""
        first, request.computed = request.computed // PAGE, tokens
        for page in range(first, tokens // PAGE):
            content = request.tokens[page * PAGE : (page + 1) * PAGE]
            request.name = self.pool.name(request.name, content, request.pages[page])

    def _table(self, rows: Sequence[Sequence[int]], count: int) -> tuple[Tensor, Any]:
        table = np.zeros((count, self._most * BLOCK), np.int32)
        for number, pages in enumerate(rows):
            table[number, : len(pages)] = pages
        longest = max([len(pages) for pages in rows] + [1])
        return Tensor(table), self._blocks.bind(blocks_of(longest))

    def _bound(self, places: Sequence[int]) -> list[Any]:
        return [v.bind(p) for v, p in zip(self._places, places, strict=False)]

    def _positions(self, place: int, count: int) -> Tensor:
        positions = np.arange(place, place + count, dtype=np.int32)
        return Tensor(np.minimum(positions, self.context - 1))  # padding may lie behind the end

    def _chunk_rows(self, tokens: list[int], place: int, pages: list[int]) -> dict[str, Any]:
        padded = np.zeros(self.chunk, np.int32)
        padded[: len(tokens)] = tokens
        first = place // PAGE
        used = [*pages[first : first + len(self._chunk_places)], *[0] * self.chunk]
        table, count = self._table([pages], 1)
        return {
            "tokens": Tensor(padded), "positions": self._positions(place, self.chunk),
            "table": table, "blocks": count,
            "places": [v.bind(used[n] * PAGE) for n, v in enumerate(self._chunk_places)],
        }  # fmt: skip

    def _run_chunk(self, tokens: list[int], place: int, pages: list[int]) -> Array:
        rows = self._chunk_rows(tokens, place, pages)
        logits: Array = self._many(rows, self._last.bind(len(tokens) - 1)).numpy()
        return logits

    def _run_singles(self, requests: Sequence[Request]) -> Array:
        slots = self.decoder.slots
        tokens, positions = np.zeros((2, slots), np.int32)
        places = [0] * slots
        for row, request in enumerate(requests):
            place = request.computed
            self._reserve(request, place + 1)
            tokens[row], positions[row] = request.tokens[place], place
            places[row] = request.pages[place // PAGE] * PAGE + place % PAGE
        table, count = self._table([r.pages for r in requests], slots)
        rows = {
            "tokens": Tensor(tokens), "positions": Tensor(positions), "table": table,
            "blocks": count, "places": self._bound(places),
        }  # fmt: skip
        logits: Array = self._single(rows).numpy()
        return logits

    def _run_guesses(self, tokens: list[int], place: int, pages: list[int]) -> Array:
        count = self.guesses + 1
        padded = np.zeros(count, np.int32)
        padded[: len(tokens)] = tokens
        at = range(place, place + len(tokens))
        places = [pages[p // PAGE] * PAGE + p % PAGE for p in at] if pages else []
        places += [0] * (count - len(places))
        table, longest = self._table([pages], 1)
        rows = {
            "tokens": Tensor(padded), "positions": self._positions(place, count),
            "table": table, "blocks": longest,
            "places": self._bound(places),
        }  # fmt: skip
        logits: Array = self._single(rows).numpy()
        return logits


def guess(tokens: Sequence[int], count: int) -> list[int]:
    """What followed the last tokens when they were there before."""
    if count < 1 or len(tokens) <= NGRAM:
        return []
    last = tokens[-NGRAM:]
    for place in range(len(tokens) - NGRAM - 1, -1, -1):
        if tokens[place : place + NGRAM] == last:
            return list(tokens[place + NGRAM : place + NGRAM + count])
    return []
