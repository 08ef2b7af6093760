"""Keys and values in pages: which page holds what, who reads it, what a new prompt can share.

The cache of every layer is a row of pages of `PAGE` tokens each. A sequence owns a list of pages;
full pages are known by their tokens and by the page before, so that a prompt that begins like an
earlier one starts after the pages they share. Pages that nobody reads stay known until their room
is needed. Page 0 takes what is computed for padding and is never read.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from svod.llm.errors import RequestError
from svod.tensor.tensor import Tensor

PAGE = 16  # tokens
# Pages are read so many at a time: sums over whole blocks come out the same however many blocks
# of padding follow, so that an answer does not depend on the lengths of the others in its run.
BLOCK = 4


def pages_of(tokens: int) -> int:
    """How many pages hold so many tokens."""
    return -(-tokens // PAGE)


def blocks_of(pages: int) -> int:
    """How many blocks hold so many pages."""
    return -(-pages // BLOCK)


@dataclass(frozen=True, slots=True)
class Rows:
    """The tokens of one run: so many of each sequence, those of a sequence in a row."""

    tokens: Tensor
    positions: Tensor
    table: Tensor  # (sequences, pages of each), whole blocks
    places: Sequence[Any]  # where in the cache each `run` of tokens is written, as variables
    blocks: Any  # how much of the table is read, a variable

    @property
    def run(self) -> int:
        """Tokens that are written in one piece."""
        return int(self.tokens.shape[0]) // len(self.places)

    @property
    def pages(self) -> Any:
        """How many columns of the table are read."""
        return self.blocks * BLOCK


class PagePool:
    """The pages of a cache."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._free = list(range(count - 1, 0, -1))
        self._readers = [0] * count
        self._known: dict[tuple[int, tuple[int, ...]], int] = {}  # parent's name, tokens -> page
        self._names: dict[int, tuple[int, tuple[int, tuple[int, ...]]]] = {}  # page -> name, key
        self._unread: OrderedDict[int, None] = OrderedDict()  # known pages, longest unread first
        self._last_name = 0

    @property
    def used(self) -> int:
        """Pages that some sequence reads."""
        return self.count - 1 - len(self._free) - len(self._unread)

    def take(self) -> int:
        """A page to write to."""
        if not self._free:
            if not self._unread:
                raise RequestError(f"all {self.count - 1} pages of the cache are in use")
            page, _ = self._unread.popitem(last=False)
            _, key = self._names.pop(page)
            del self._known[key]
            self._free.append(page)
        page = self._free.pop()
        self._readers[page] = 1
        return page

    def shared(self, tokens: Sequence[int]) -> list[int]:
        """Known pages of the beginning of a text, which are read from now on; the last token is
        left out, for its scores have to be computed."""
        found: list[int] = []
        name = 0
        for start in range(0, len(tokens) - PAGE, PAGE):
            page = self._known.get((name, tuple(tokens[start : start + PAGE])))
            if page is None:
                break
            self._unread.pop(page, None)
            self._readers[page] += 1
            found.append(page)
            name = self._names[page][0]
        return found

    def name(self, parent: int, tokens: Sequence[int], page: int) -> int:
        """Make a full page known; returns its name, for the page that follows it."""
        key = (parent, tuple(tokens))
        if key in self._known:  # someone else computed the same
            return self._names[self._known[key]][0]
        self._last_name += 1
        self._known[key] = page
        self._names[page] = (self._last_name, key)
        return self._last_name

    def name_of(self, page: int) -> int:
        """The name of a known page."""
        return self._names[page][0]

    def release(self, pages: Sequence[int]) -> None:
        """A sequence reads these no more; the last of them are forgotten first."""
        for page in reversed(pages):
            self._readers[page] -= 1
            if self._readers[page]:
                continue
            if page in self._names:
                self._unread[page] = None
            else:
                self._free.append(page)
