"""The tuned store: the best opts of kernels, kept on disk for every process.

One small file per entry, written aside and renamed into place, with a checksum: any number of
processes read and write at once, and what is broken, foreign or unreadable is a miss. The key is
the content of the kernel, what it runs on, and the version of the language of opts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from svod.base.errors import CacheError
from svod.base.hashing import digest
from svod.base.paths import atomic_write, cache_folder
from svod.base.store import BlobStore
from svod.optimize.opts import Opt

ACTION_SPACE = 4  # changes when an opt does something else than before, or axes are numbered anew
MAX_BYTES = 32 << 20  # some hundred thousand kernels
EXPORT_FORMAT = "svod tuned 1"
_MAX_OPTS = 64
_MAX_NUMBER = 1 << 40


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one kernel."""

    opts: tuple[Opt, ...]
    seconds: float  # of a run, when it was measured
    width: int = 0  # of the search
    is_heuristic: bool = False  # the search found nothing faster than the heuristics
    name: str = ""  # for people


class TunedStore:
    """Entries in one folder."""

    def __init__(self, folder: Path | None = None, max_bytes: int = MAX_BYTES) -> None:
        self._blobs = BlobStore(folder or cache_folder("tuned"), max_bytes)

    def get(self, kernel: str, identity: str) -> Entry | None:
        """The entry of a kernel, by its content hash and what it runs on."""
        return self._read(entry_key(kernel, identity))

    def put(self, kernel: str, identity: str, entry: Entry) -> bool:
        """Keep an entry; says whether it is kept."""
        return self._blobs.put(entry_key(kernel, identity), _encoded(entry))

    def entries(self) -> dict[str, Entry]:
        """Everything that is readable, by key."""
        found = {each.key: self._read(each.key) for each in self._blobs.entries()}
        return {key: entry for key, entry in found.items() if entry is not None}

    def clear(self) -> int:
        """Forget everything; returns the bytes freed."""
        return self._blobs.clear()

    def export(self, path: Path | str) -> int:
        """Write all entries to one file; returns how many."""
        entries = {key: _plain(entry) for key, entry in sorted(self.entries().items())}
        data = {"format": EXPORT_FORMAT, "entries": entries}
        try:
            atomic_write(Path(path).absolute(), json.dumps(data, indent=1).encode())
        except OSError as problem:
            raise CacheError(f"{path} cannot be written: {problem.strerror}") from None
        return len(entries)

    def import_from(self, path: Path | str) -> int:
        """Take the entries of an exported file; of two for one kernel the faster stays."""
        try:
            data = json.loads(Path(path).read_bytes())
        except OSError as problem:
            raise CacheError(f"{path} cannot be read: {problem.strerror}") from None
        except ValueError:
            data = None
        if not isinstance(data, dict) or data.get("format") != EXPORT_FORMAT:
            raise CacheError(f"{path} is no file of tuned kernels: make one with `svod tune`")
        taken = 0
        for key, value in dict(data.get("entries") or {}).items():
            entry = _decoded(value)
            if entry is None or not key.isalnum():
                raise CacheError(f"{path} holds a malformed entry under {key!r}")
            known = self._read(key)
            if known is None or entry.seconds < known.seconds:
                taken += self._blobs.put(key, _encoded(entry))
        return taken

    def _read(self, key: str) -> Entry | None:
        data = self._blobs.get(key)
        if data is None:
            return None
        try:
            return _decoded(json.loads(data))
        except ValueError:
            return None


def entry_key(kernel: str, identity: str) -> str:
    """The name of a kernel's entry."""
    return digest(kernel, identity, ACTION_SPACE)


def tuned_store() -> TunedStore:
    """The store of this user."""
    return _store(str(cache_folder("tuned")))


@cache
def _store(folder: str) -> TunedStore:
    return TunedStore(Path(folder))


def opts_to_json(opts: Iterable[Opt]) -> list[list[str | int]]:
    """Opts as plain values."""
    return [[opt.name, opt.axis, opt.amount] for opt in opts]


def opts_from_json(value: object) -> tuple[Opt, ...] | None:
    """Opts from plain values nobody vouches for; None where they are malformed."""
    if not isinstance(value, list) or len(value) > _MAX_OPTS:
        return None
    found = []
    for each in value:
        if not isinstance(each, list) or len(each) != 3 or not isinstance(each[0], str):
            return None
        numbers: Sequence[Any] = each[1:]
        if any(type(n) is not int or not 0 <= n < _MAX_NUMBER for n in numbers):
            return None
        found.append(Opt(each[0], numbers[0], numbers[1]))
    return tuple(found)


def _plain(entry: Entry) -> dict[str, object]:
    return {
        "opts": opts_to_json(entry.opts),
        "seconds": entry.seconds,
        "width": entry.width,
        "heuristic": entry.is_heuristic,
        "name": entry.name,
    }


def _encoded(entry: Entry) -> bytes:
    return json.dumps(_plain(entry)).encode()


def _decoded(value: object) -> Entry | None:
    if not isinstance(value, dict):
        return None
    opts, seconds = opts_from_json(value.get("opts")), value.get("seconds")
    if opts is None or not isinstance(seconds, int | float):
        return None
    width = value.get("width")
    return Entry(
        opts,
        float(seconds),
        width if type(width) is int else 0,
        value.get("heuristic") is True,
        str(value.get("name", "")),
    )
