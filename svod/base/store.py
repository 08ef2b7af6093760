"""Blobs on disk under a key: the machine-code cache and its like.

Each entry is one file: magic, format version, payload length, checksum over key and payload, then
the payload. An entry that is broken, truncated, foreign or unreadable is a miss and is removed
if possible. A store that cannot be written stops writing with one warning. One that others can
have written, the folders above it and each entry included, is not used at all: `trust.py` looks at
every use. Nothing here raises because of the disk. Any number of processes may share a folder:
files appear by renaming, and a file that vanishes meanwhile is a miss.
"""

from __future__ import annotations

import errno
import os
import re
import struct
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from svod.base.errors import CacheError
from svod.base.hashing import checksum
from svod.base.locks import held_lock
from svod.base.log import warn
from svod.base.paths import TEMPORARY_PREFIX, atomic_write, make_private
from svod.base.trust import Untrusted, check_folder, read_file, resolved

MAGIC = b"SVODBLOB"
FORMAT_VERSION = 1
SUFFIX = ".blob"
STALE_SECONDS = 3600  # a file written aside that is older belongs to a process that died
SIZE_NAME = ".bytes"  # the size of all entries, as the last process that looked found it
SIZE_SECONDS = 600  # how long others believe it

# The process lacks something; that says nothing about the entry.
_SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_HEADER = struct.Struct("<8sIQ32s")  # magic, version, payload bytes, checksum
_warned: set[str] = set()  # reasons given already: several caches share a root
_KEY = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]{0,159}")


@dataclass(frozen=True, slots=True)
class Entry:
    """One stored file: its key, its size on disk and when it was written (seconds)."""

    key: str
    size: int
    modified: float


class BlobStore:
    """Payloads by key in one folder, at most `max_bytes` of files in all."""

    def __init__(self, folder: Path | str, max_bytes: int) -> None:
        self.folder = resolved(Path(folder))
        self.max_bytes = max_bytes
        self.hits = self.misses = self.writes = 0
        self._reads = self._writes = max_bytes > 0
        self._lock = held_lock()  # guards the counters and the size estimate
        self._estimate: int | None = None  # bytes in the folder, as far as this process knows

    @property
    def enabled(self) -> bool:
        """False where the limit is zero, and once the folder turned out not to take files."""
        return self._writes

    def get(self, key: str) -> bytes | None:
        """The payload stored under `key`, or None."""
        path = self._path(key)
        payload = self._read(path, key) if self._reads else None
        with self._lock:
            if payload is None:
                self.misses += 1
            else:
                self.hits += 1
        return payload

    def put(self, key: str, payload: bytes) -> bool:
        """Store `payload` under `key`; says whether it is stored."""
        path = self._path(key)
        size = _HEADER.size + len(payload)
        if not self._writes or size > self.max_bytes:
            return False
        guard = checksum(key.encode(), payload)
        header = _HEADER.pack(MAGIC, FORMAT_VERSION, len(payload), guard)
        try:
            if not self.folder.is_dir():
                make_private(self.folder)
            check_folder(self.folder)
            atomic_write(path, header + payload)
        except Untrusted as problem:
            self._distrust(problem)
            return False
        except OSError as error:
            self._turn_off(
                f"cache folder {self.folder} is not written to: {error.strerror or error}"
            )
            return False
        known = self._noted_size() if self._estimate is None else self._estimate
        with self._lock:
            self.writes += 1
            self._estimate = None if known is None else known + size
        if known is None or known + size > self.max_bytes:
            self.prune()
        return True

    def remove(self, key: str) -> None:
        """Forget one entry."""
        _unlink(self._path(key))

    def entries(self) -> list[Entry]:
        """What is stored, the oldest first."""
        return _entries(self._files())

    def size(self) -> int:
        """The bytes all entries take on disk."""
        return sum(entry.size for entry in self.entries())

    def prune(self, limit: int | None = None) -> int:
        """Remove the oldest entries until at most `limit` bytes are left; returns the bytes freed.

        Without a limit `max_bytes` holds; then an eighth of it is freed beyond need, so that a
        full store does not read its folder at every write. The size is written down for other
        processes, which need not read the folder then.
        """
        files = list(self._files())
        self._remove_stale(files)
        entries = _entries(files)
        total = sum(entry.size for entry in entries)
        allowed = self.max_bytes if limit is None else limit
        target = self.max_bytes * 7 // 8 if limit is None else limit
        freed = 0
        if total > allowed:
            for entry in entries:
                if total - freed <= target:
                    break
                _unlink(self._path(entry.key))
                freed += entry.size
        with self._lock:
            self._estimate = total - freed
        if self._writes:
            self._note_size(total - freed)
        return freed

    def clear(self) -> int:
        """Remove every entry; returns the bytes freed."""
        return self.prune(0)

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise CacheError(
                f"{key!r} cannot be a key: use 1 to 160 letters, digits, '.', '_', '-'"
            )
        return self.folder / (key + SUFFIX)

    def _read(self, path: Path, key: str) -> bytes | None:
        try:
            data = read_file(self.folder, path.name)
        except FileNotFoundError:
            return None
        except Untrusted as problem:
            self._distrust(problem)
            return None
        except OSError as error:
            if error.errno not in _SHORTAGES:
                _unlink(path)
            return None
        if data is None:  # a link, a FIFO or a device: not ours, and no entry
            return None
        if len(data) >= _HEADER.size:
            magic, version, length, guard = _HEADER.unpack_from(data)
            payload = data[_HEADER.size :]
            if (
                magic == MAGIC
                and version == FORMAT_VERSION
                and length == len(payload)
                and guard == checksum(key.encode(), payload)
            ):
                return payload
        _unlink(path)
        return None

    def _distrust(self, problem: Untrusted) -> None:
        self._reads = False
        self._turn_off(f"caches are not used, because {problem}")

    def _turn_off(self, reason: str) -> None:
        with self._lock:
            first, self._writes = self._writes and reason not in _warned, False
            _warned.add(reason)
        if first:
            warn(reason)

    def _files(self) -> Iterator[tuple[str, os.stat_result]]:
        try:
            listing = list(os.scandir(self.folder))
        except OSError:
            return
        for item in listing:
            try:
                if item.is_file(follow_symlinks=False):
                    yield item.name, item.stat(follow_symlinks=False)
            except OSError:
                continue  # it vanished between the listing and the look

    def _noted_size(self) -> int | None:
        """The size that a process has written down lately, or None."""
        path = self.folder / SIZE_NAME
        try:
            is_fresh = abs(time.time() - path.stat().st_mtime) < SIZE_SECONDS
            text = read_file(self.folder, SIZE_NAME) if is_fresh else None
            return None if text is None else int(text)
        except (OSError, ValueError, Untrusted):
            return None

    def _note_size(self, size: int) -> None:
        try:
            atomic_write(self.folder / SIZE_NAME, str(size).encode())
        except OSError:
            return  # the next process reads the folder itself

    def _remove_stale(self, files: Iterable[tuple[str, os.stat_result]]) -> None:
        limit = time.time() - STALE_SECONDS
        for name, facts in files:
            if name.startswith(TEMPORARY_PREFIX) and facts.st_mtime < limit:
                _unlink(self.folder / name)


def _entries(files: Iterable[tuple[str, os.stat_result]]) -> list[Entry]:
    found = [
        Entry(name.removesuffix(SUFFIX), facts.st_size, facts.st_mtime)
        for name, facts in files
        if name.endswith(SUFFIX) and not name.startswith(".")
    ]
    return sorted(found, key=lambda entry: (entry.modified, entry.key))


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError:
        return  # not ours to remove: it stays a miss
