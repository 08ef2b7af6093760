"""Bounded caches in memory: first in, first out, counted, and read without a lock.

In: a key and a value made from it. Out: the value that was inserted first under that key, so all
users of a key share one object. Whatever a cache drops is only made again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, Generic, NamedTuple, TypeVar

from svod.base.locks import OUTER, held_lock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class CacheInfo(NamedTuple):
    """What a cache has done so far and holds now."""

    hits: int
    misses: int
    size: int
    limit: int


class Cache(Generic[K, V]):
    """At most ``limit()`` entries; an entry inserted again keeps its place and its value."""

    __slots__ = ("_entries", "_limit", "_lock", "hits", "misses", "name")

    def __init__(self, name: str, limit: Callable[[], int]) -> None:
        self.name = name
        self.hits = 0
        self.misses = 0
        self._limit = limit
        self._entries: dict[K, V] = {}  # a dictionary keeps the order of insertion
        self._lock = held_lock(OUTER)
        _caches[name] = self

    def get(self, key: K) -> V | None:
        """The value of a key, or None; counts as a hit or a miss."""
        found = self._entries.get(key)
        if found is None:
            self.misses += 1
        else:
            self.hits += 1
        return found

    def insert(self, key: K, value: V) -> V:
        """Keep a value unless the key has one; returns what the cache holds for the key."""
        with self._lock:
            kept = self._entries.setdefault(key, value)
            while len(self._entries) > self._limit():
                del self._entries[next(iter(self._entries))]
        return kept

    def clear(self) -> None:
        """Forget all entries; the counters stay."""
        with self._lock:
            self._entries = {}
        forgotten[0] += 1

    def info(self) -> CacheInfo:
        return CacheInfo(self.hits, self.misses, len(self._entries), self._limit())

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, key: object) -> bool:
        return key in self._entries


forgotten = [0]  # counts caches that were cleared: what was made from several asks for it
_caches: dict[str, Cache[Any, Any]] = {}  # one per name; caches are made at import only


def cache_statistics() -> dict[str, CacheInfo]:
    """Hits, misses, size and limit of every cache in memory, by name."""
    return {name: cache.info() for name, cache in _caches.items()}


__all__ = ["Cache", "CacheInfo", "cache_statistics", "forgotten"]
