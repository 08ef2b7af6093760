"""The directory of a zip file, as torch writes them: stored entries, and where their bytes lie.

In: the bytes of a file, which are not trusted. Out: the first byte and the length of each entry by
name. Every number is compared with the size of the file. Compressed and encrypted entries are
refused: torch stores tensors as they are, so a file never grows while it is read.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from svod.nn.state import StateFileError

ENTRIES_LIMIT = 1 << 20
_END, _END64, _LOCATOR64 = b"PK\x05\x06", b"PK\x06\x06", b"PK\x06\x07"
_CENTRAL, _LOCAL = b"PK\x01\x02", b"PK\x03\x04"
_UNKNOWN = 0xFFFFFFFF


class Span(NamedTuple):
    """Bytes of a file."""

    start: int
    size: int


class _Directory(NamedTuple):
    start: int
    size: int
    entries: int


def read_directory(data: memoryview, path: str) -> dict[str, Span]:
    """Where the entries of a zip file are, by their names."""
    found: dict[str, Span] = {}
    place, size, count = _find_directory(data, path)
    stop = place + size
    for _ in range(count):
        fields = _unpack(data, place, _CENTRAL, "<4xHHHHHHIIIHHHHHII", path)
        _, _, flags, method, _, _, _, packed, nbytes, named, extra, comment, *_, local = fields
        name_at = place + 46
        place = name_at + named + extra + comment
        if place > stop:
            raise StateFileError(f"{path}: the directory of the zip ends within an entry")
        name = bytes(data[name_at : name_at + named]).decode("utf-8", "replace")
        if flags & 1 or method != 0:
            raise StateFileError(f"{path}: entry {name!r:.80} is compressed or encrypted")
        wide = bytes(data[name_at + named : name_at + named + extra])
        nbytes, packed, local = _widened(wide, nbytes, packed, local, path)
        if nbytes != packed:
            raise StateFileError(f"{path}: entry {name!r:.80} has {packed} bytes for {nbytes}")
        if name in found:
            raise StateFileError(f"{path}: entry {name!r:.80} appears twice")
        found[name] = _span(data, local, nbytes, name, path)
    return found


def _span(data: memoryview, local: int, nbytes: int, name: str, path: str) -> Span:
    """The bytes of an entry: they follow its own header."""
    fields = _unpack(data, local, _LOCAL, "<4xHHHHHIIIHH", path)
    named, extra = fields[-2:]
    start = local + 30 + named + extra
    if start + nbytes > len(data):
        raise StateFileError(
            f"{path}: entry {name!r:.80} of {nbytes} bytes at {start} does not fit the file of "
            f"{len(data)} bytes"
        )
    return Span(start, nbytes)


def _find_directory(data: memoryview, path: str) -> _Directory:
    tail_at = max(0, len(data) - 22 - 0xFFFF)
    end = bytes(data[tail_at:]).rfind(_END)
    if end < 0:
        raise StateFileError(f"{path}: the zip has no directory: the file is cut off")
    end += tail_at
    *_, count, size, start, _ = _unpack(data, end, _END, "<4xHHHHIIH", path)
    if end >= 20 and bytes(data[end - 20 : end - 16]) == _LOCATOR64:
        (end64,) = struct.unpack("<Q", data[end - 12 : end - 4])
        *_, count, size, start = _unpack(data, end64, _END64, "<4xQHHIIQQQQ", path)
    if start + size > len(data) or count > min(ENTRIES_LIMIT, size // 46):
        raise StateFileError(
            f"{path}: a directory of {count} entries in bytes {start} to {start + size} of "
            f"{len(data)}"
        )
    return _Directory(start, size, count)


def _unpack(
    data: memoryview, place: int, signature: bytes, form: str, path: str
) -> tuple[int, ...]:
    stop = place + struct.calcsize(form)
    if stop > len(data) or bytes(data[place : place + 4]) != signature:
        raise StateFileError(f"{path}: the zip has no {signature[2:].hex()} record at {place}")
    return struct.unpack(form, data[place:stop])


def _widened(extra: bytes, nbytes: int, packed: int, local: int, path: str) -> tuple[int, int, int]:
    """Sizes that 32 bits do not hold are in an extra field, in this order."""
    values = [nbytes, packed, local]
    wanted = [i for i, value in enumerate(values) if value == _UNKNOWN]
    while wanted and len(extra) >= 4:
        kind, size = struct.unpack("<HH", extra[:4])
        body, extra = extra[4 : 4 + size], extra[4 + size :]
        if kind != 1:
            continue
        if len(body) < 8 * len(wanted):
            break
        for place, index in enumerate(wanted):
            (values[index],) = struct.unpack("<Q", body[8 * place : 8 * place + 8])
        wanted = []
    if wanted:
        raise StateFileError(f"{path}: the sizes of a large entry are missing")
    return values[0], values[1], values[2]
