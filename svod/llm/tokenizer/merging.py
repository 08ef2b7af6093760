"""Merging neighbours in the order of their rank: what BPE and SentencePiece's merges share.

In: symbols and the rank of a pair (lower first; None where it may not merge). The pair of lowest
rank merges first, the leftmost of equals; a heap makes it n log n for text without spaces.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heapify, heappop, heappush


def merged(symbols: Sequence[str], rank: Callable[[str, str], float | None]) -> list[str]:
    """The symbols after all merges."""
    parts: list[str | None] = list(symbols)
    if len(parts) < 2:
        return list(symbols)
    before, after = list(range(-1, len(parts) - 1)), list(range(1, len(parts) + 1))
    heap: list[tuple[float, int, str, str]] = []
    for place in range(len(parts) - 1):
        if (found := rank(symbols[place], symbols[place + 1])) is not None:
            heap.append((found, place, symbols[place], symbols[place + 1]))
    heapify(heap)
    while heap:
        _, place, left, right = heappop(heap)
        other = after[place]
        if parts[place] != left or other >= len(parts) or parts[other] != right:
            continue  # one of the two has merged with another meanwhile
        parts[place], parts[other] = left + right, None
        after[place] = after[other]
        if after[place] < len(parts):
            before[after[place]] = place
        for first in (before[place], place):
            second = after[first] if first >= 0 else len(parts)
            if first < 0 or second >= len(parts):
                continue
            one, two = parts[first], parts[second]
            assert one is not None and two is not None
            if (found := rank(one, two)) is not None:
                heappush(heap, (found, first, one, two))
    return [part for part in parts if part is not None]
