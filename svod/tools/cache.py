"""`svod cache`: look at, prune, clear, export and import what is kept on disk.

Every folder below the cache root that holds entries is one cache: machine code, measurements.
An export is a zip archive of entries with a list of checksums; an import checks everything before
the first entry is stored. Entries hold machine code: import only what you would also run.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from svod.base.errors import CacheError, ConfigError
from svod.base.hashing import checksum
from svod.base.knobs import Knobs, knobs
from svod.base.paths import cache_root
from svod.base.store import SUFFIX, BlobStore, Entry
from svod.tools.report import Report, byte_size, table

ACTIONS = ("list", "prune", "clear", "export", "import")
FORMAT = 1  # of an export
MANIFEST = "manifest.json"
MOST_MANIFEST_BYTES = 64 << 20
UNBOUNDED = 1 << 62  # bytes; only the store of objects has a limit of its own
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_KEY = re.compile(r"[0-9A-Za-z_-][0-9A-Za-z._-]{0,159}")
_AGE = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw]?)")
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def add_arguments(verb: argparse.ArgumentParser) -> None:
    """The grammar of `svod cache`."""
    verb.add_argument("action", nargs="?", default="list", choices=ACTIONS, help="list if absent")
    verb.add_argument("file", nargs="?", help="the archive to export to or to import from")
    verb.add_argument("--bytes", help="prune: keep the newest entries up to this size (64M, 2G)")
    verb.add_argument("--older", help="prune: remove entries older than this (90s, 12h, 30d)")


def cache(options: argparse.Namespace) -> Report:
    """Run the action that the command line names."""
    action = options.action
    if action in ("export", "import"):
        if not options.file:
            raise ConfigError(f"svod cache {action} needs the name of a file")
        path = Path(options.file)
        return export_entries(path) if action == "export" else import_entries(path)
    if options.file:
        raise ConfigError(f"svod cache {action} takes no file, got {options.file!r}")
    if action == "prune":
        return prune(options.bytes, options.older)
    return clear() if action == "clear" else listing()


def listing() -> Report:
    """Every cache: entries, sizes, and how many were read again after they were written."""
    root, found = cache_root(), []
    for name, store in stores():
        entries = [_described(store, entry) for entry in store.entries()]
        found.append(
            {
                "name": name,
                "entries": entries,
                "bytes": sum(entry["bytes"] for entry in entries),
                "limit": store.max_bytes if store.max_bytes < UNBOUNDED else None,
                "read_again": sum(entry["read_again"] for entry in entries),
            }
        )
    rows: list[tuple[object, ...]] = [("cache", "entries", "size", "limit", "read again", "oldest")]
    for each in found:
        oldest = min((entry["modified"] for entry in each["entries"]), default=None)
        rows.append(
            (
                each["name"],
                len(each["entries"]),
                byte_size(each["bytes"]),
                "-" if each["limit"] is None else byte_size(each["limit"]),
                each["read_again"],
                "-" if oldest is None else _age(time.time() - oldest),
            )
        )
    text = f"{root}\n" + (table(rows, 2, frozenset({1, 2, 3, 4, 5})) if found else "  empty")
    return Report({"root": str(root), "caches": found}, text)


def prune(limit: str | None, older: str | None) -> Report:
    """Remove old entries: beyond an age, and then the oldest of all until the rest is small."""
    if limit is None and older is None:
        raise ConfigError("svod cache prune needs --bytes or --older")
    entries = sorted(_all_entries(), key=lambda found: found[1].modified)
    removed: list[tuple[BlobStore, Entry]] = []
    if older is not None:
        before = time.time() - _seconds(older)
        removed = [found for found in entries if found[1].modified < before]
        entries = [found for found in entries if found[1].modified >= before]
    if limit is not None:
        allowed = Knobs.object_cache_bytes.check(limit)
        total = sum(entry.size for _, entry in entries)
        for found in entries:
            if total <= allowed:
                break
            removed.append(found)
            total -= found[1].size
    for store, entry in removed:
        store.remove(entry.key)
    return _removed(removed)


def clear() -> Report:
    """Remove everything."""
    entries = list(_all_entries())
    for store, entry in entries:
        store.remove(entry.key)
    return _removed(entries)


def export_entries(path: Path) -> Report:
    """Write every sound entry to an archive."""
    listed: list[dict[str, Any]] = []
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with zipfile.ZipFile(aside, "x", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for name, store in stores():
                for entry in store.entries():
                    payload = store.get(entry.key)
                    if payload is None:
                        continue
                    archive.writestr(f"{name}/{entry.key}", payload)
                    listed.append(
                        {
                            "cache": name,
                            "key": entry.key,
                            "bytes": len(payload),
                            "checksum": checksum(payload).hex(),
                        }
                    )
            content = {"kind": "svod cache", "format": FORMAT, "entries": listed}
            archive.writestr(MANIFEST, json.dumps(content))
        os.replace(aside, path)
    except OSError as error:
        raise CacheError(f"cannot write {path}: {error.strerror or error}") from None
    finally:
        aside.unlink(missing_ok=True)
    size = sum(item["bytes"] for item in listed)
    text = f"{len(listed)} entries, {byte_size(size)}, to {path}"
    return Report({"file": str(path), "entries": len(listed), "bytes": size}, text)


def import_entries(path: Path) -> Report:
    """Store the entries of an archive; nothing is stored unless all of them are sound."""
    try:
        with zipfile.ZipFile(path) as archive:
            listed = _checked_list(path, archive)
            for item in listed:  # first look at everything, then store
                _payload(path, archive, item)
            kept = _store_all(path, archive, listed)
    except (OSError, CacheError) as error:
        if isinstance(error, CacheError):
            raise
        raise CacheError(f"cannot read {path}: {error.strerror or error}") from None
    except Exception as error:  # zipfile raises errors of many kinds for a damaged file
        raise _refused(path, f"it is no sound zip archive ({error})") from None
    text = f"{len(kept)} of {len(listed)} entries from {path}"
    data = {"file": str(path), "entries": len(listed), "stored": len(kept)}
    return Report(data, text, ok=len(kept) == len(listed))


def stores() -> Iterator[tuple[str, BlobStore]]:
    """Every cache that has a folder, by name."""
    root = cache_root()
    try:
        names = sorted(entry.name for entry in os.scandir(root) if entry.is_dir())
    except OSError:
        return
    for name in names:
        if _NAME.fullmatch(name):
            yield name, _store(name)


def _store(name: str) -> BlobStore:
    limit = knobs.object_cache_bytes if name == "objects" else UNBOUNDED
    return BlobStore(cache_root() / name, limit)


def _all_entries() -> Iterator[tuple[BlobStore, Entry]]:
    for _, store in stores():
        for entry in store.entries():
            if _KEY.fullmatch(entry.key):
                yield store, entry


def _described(store: BlobStore, entry: Entry) -> dict[str, Any]:
    try:  # most systems note the first read after a write
        facts = os.stat(store.folder / (entry.key + SUFFIX))
        read, is_read = facts.st_atime, facts.st_atime > facts.st_mtime
    except OSError:
        read, is_read = entry.modified, False
    return {
        "key": entry.key,
        "bytes": entry.size,
        "modified": entry.modified,
        "last_read": read,
        "read_again": is_read,
    }


def _removed(entries: list[tuple[BlobStore, Entry]]) -> Report:
    size = sum(entry.size for _, entry in entries)
    text = f"removed {len(entries)} entries, {byte_size(size)}"
    return Report({"removed": len(entries), "bytes": size}, text)


def _checked_list(path: Path, archive: zipfile.ZipFile) -> list[dict[str, Any]]:
    names = set(archive.namelist())
    if MANIFEST not in names or archive.getinfo(MANIFEST).file_size > MOST_MANIFEST_BYTES:
        raise _refused(path, f"it has no {MANIFEST}, or one that is too large")
    content = json.loads(archive.read(MANIFEST))
    if not isinstance(content, dict) or content.get("kind") != "svod cache":
        raise _refused(path, "it holds something else")
    version = content.get("format")
    if version != FORMAT:
        raise _refused(path, f"it has format {version!r}, this version reads {FORMAT}")
    listed = content.get("entries")
    if not isinstance(listed, list):
        raise _refused(path, "its list of entries is missing")
    for item in listed:
        match item:
            case {"cache": str(name), "key": str(key), "bytes": int(size), "checksum": str()}:
                if not (_NAME.fullmatch(name) and _KEY.fullmatch(key)):
                    raise _refused(path, f"{name!r}/{key!r} cannot be an entry")
                inside = f"{name}/{key}"
                if inside not in names or archive.getinfo(inside).file_size != size:
                    raise _refused(path, f"{inside} is missing or has another size")
                if size > knobs.object_cache_bytes:
                    raise _refused(path, f"{inside} has {size} bytes, more than a cache takes")
            case _:
                raise _refused(path, "its list of entries is damaged")
    return listed


def _payload(path: Path, archive: zipfile.ZipFile, item: dict[str, Any]) -> bytes:
    with archive.open(f"{item['cache']}/{item['key']}") as file:
        payload = file.read(item["bytes"] + 1)  # no more, whatever it would unpack to
    if len(payload) != item["bytes"] or checksum(payload).hex() != item["checksum"]:
        raise _refused(path, f"{item['cache']}/{item['key']} does not match its checksum")
    return payload


def _store_all(
    path: Path, archive: zipfile.ZipFile, listed: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    open_stores: dict[str, BlobStore] = {}
    kept = []
    for item in listed:
        store = open_stores.setdefault(item["cache"], _store(item["cache"]))
        if store.put(item["key"], _payload(path, archive, item)):
            kept.append(item)
    return kept


def _refused(path: Path, why: str) -> CacheError:
    return CacheError(f"{path.name} cannot be imported: {why}")


def _seconds(text: str) -> float:
    found = _AGE.fullmatch(text.strip())
    if found is None:
        raise ConfigError(f"{text!r} is no age: use a number and s, m, h, d or w, such as 30d")
    return float(found[1]) * _SECONDS[found[2]]


def _age(seconds: float) -> str:
    for unit in ("w", "d", "h", "m"):
        if seconds >= 2 * _SECONDS[unit]:
            return f"{seconds / _SECONDS[unit]:.0f} {unit}"
    return f"{max(0, seconds):.0f} s"
