"""The file of a saved plan: a zip archive whose entries are stored as they are.

In: names and bytes. Out: a file that any zip tool lists, written aside and renamed into place.
Entries are not compressed and start on a cache line, so large ones can be mapped instead of read.
Reading trusts nothing: every size and place is checked against the file before it is used.
"""

from __future__ import annotations

import mmap
import os
import struct
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import BinaryIO, NamedTuple
from zlib import crc32

from svod.base.errors import PlanFormatError
from svod.base.paths import TEMPORARY_PREFIX

ALIGNMENT = 64  # of the bytes of every entry within the file
MOST_ENTRIES = 4096
_LOCAL_HEADER = struct.Struct("<4s5H3I2H")
_PADDING = 0xD935  # the field that Android's zipalign pads with
_ZIP64_FIELD = 20  # bytes zipfile adds to the header of an entry that may be large
_EPOCH = (1980, 1, 1, 0, 0, 0)  # the same plan gives the same file
_PIECE = 1 << 24  # bytes read at once

Pieces = Iterable[bytes | memoryview]


class Entry(NamedTuple):
    """Where the bytes of an entry lie in the file."""

    start: int
    size: int
    crc: int


def write_archive(path: Path, entries: Mapping[str, Callable[[], Pieces]]) -> None:
    """Write entries in order; each is asked for its pieces when its turn comes."""
    aside = path.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{os.urandom(8).hex()}"
    try:
        with open(aside, "xb") as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, pieces in entries.items():
                info = zipfile.ZipInfo(name, _EPOCH)
                info.external_attr = 0o600 << 16
                before = file.tell() + _LOCAL_HEADER.size + len(name) + _ZIP64_FIELD + 4
                blank = -before % ALIGNMENT
                info.extra = struct.pack("<HH", _PADDING, blank) + bytes(blank)
                with archive.open(info, "w", force_zip64=True) as entry:
                    for piece in pieces():
                        entry.write(piece)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


class Archive:
    """An open file and the entries found in it; use it in a `with` block."""

    __slots__ = ("_file", "entries", "path", "size")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: BinaryIO = open(path, "rb")  # noqa: SIM115  # closed by `close`
        try:
            self.size = os.fstat(self._file.fileno()).st_size
            self.entries = self._directory()
        except PlanFormatError:
            self.close()
            raise
        except Exception as problem:  # zipfile raises errors of many kinds for a damaged file
            self.close()
            raise broken(path, f"it is no zip archive ({problem})") from None

    def read(self, name: str, most: int) -> bytes:
        """The bytes of an entry of at most `most` bytes, checked against their checksum."""
        entry = self._entry(name)
        if entry.size > most:
            raise broken(self.path, f"{name} has {entry.size} bytes, {most} are allowed")
        self._file.seek(entry.start)
        data = self._file.read(entry.size)
        if len(data) != entry.size or crc32(data) != entry.crc:
            raise broken(self.path, f"{name} does not match its checksum")
        return data

    def verify(self, name: str) -> None:
        """Read an entry of any size, piece by piece, and compare its checksum."""
        entry = self._entry(name)
        self._file.seek(entry.start)
        left, found = entry.size, 0
        while left:
            piece = self._file.read(min(left, _PIECE))
            if not piece:
                break
            found, left = crc32(piece, found), left - len(piece)
        if left or found != entry.crc:
            raise broken(self.path, f"{name} does not match its checksum")

    def map(self, name: str) -> tuple[mmap.mmap, int, int]:
        """A private mapping of the file, and where the entry starts and how long it is.

        Pages are read when they are touched. What is written stays in this process.
        """
        entry = self._entry(name)
        if entry.start % ALIGNMENT:
            raise broken(self.path, f"{name} starts at byte {entry.start}, which is not aligned")
        mapping = mmap.mmap(self._file.fileno(), self.size, access=mmap.ACCESS_COPY)
        return mapping, entry.start, entry.size

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Archive:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def _entry(self, name: str) -> Entry:
        found = self.entries.get(name)
        if found is None:
            raise broken(self.path, f"it has no {name}")
        return found

    def _directory(self) -> dict[str, Entry]:
        with zipfile.ZipFile(self._file) as archive:
            listed = archive.infolist()
        if len(listed) > MOST_ENTRIES:
            raise broken(self.path, f"it has {len(listed)} entries, {MOST_ENTRIES} are allowed")
        found: dict[str, Entry] = {}
        for info in listed:
            name = info.filename
            if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
                raise broken(self.path, f"{name!r} is compressed or encrypted")
            if name in found:
                raise broken(self.path, f"{name!r} is there twice")
            start = self._start_of(info)
            if info.compress_size != info.file_size or start + info.file_size > self.size:
                raise broken(self.path, f"{name!r} ends beyond the file")
            found[name] = Entry(start, info.file_size, info.CRC)
        return found

    def _start_of(self, info: zipfile.ZipInfo) -> int:
        """Where the bytes begin: after the entry's own header, which has its own lengths."""
        self._file.seek(info.header_offset)
        header = _LOCAL_HEADER.unpack(self._file.read(_LOCAL_HEADER.size))
        if header[0] != b"PK\x03\x04":
            raise broken(self.path, f"{info.filename!r} has no header")
        return info.header_offset + _LOCAL_HEADER.size + int(header[9]) + int(header[10])


def broken(path: Path, what: str) -> PlanFormatError:
    """The error for a file that cannot be used."""
    return PlanFormatError(f"{path.name} is not a usable saved plan: {what}; save it again")
