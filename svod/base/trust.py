"""Whether files that may become machine code can be relied on: nobody else can have written them.

A folder is relied on where it and every folder above it belong to this user or to root and cannot
be written by others; above it, one may be writable for everybody if it is sticky, as /tmp is, since
others cannot rename or remove there what is ours. Neither the folder nor its parent may be a
symbolic link; links further up are followed once, and the folders they lead to are looked at. A
file is opened once, never followed and never waited for, and is looked at through its descriptor.
Systems without POSIX owners and modes check nothing.
"""

from __future__ import annotations

import os
import stat
from functools import lru_cache
from pathlib import Path

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
_READ = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # to open a FIFO would wait for a writer
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_FOLDER = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_DIRECTORY", 0)


class Untrusted(Exception):
    """Something others can have written; the text says what, and what to do."""


def resolved(folder: Path) -> Path:
    """The folder with symbolic links above its parent followed; the last two names stay."""
    folder = folder.absolute()
    return Path(os.path.realpath(folder.parent.parent), folder.parent.name, folder.name)


def check_folder(folder: Path) -> None:
    """Raise `Untrusted` where others can change what is in a resolved folder.

    From the top down, so that nobody can exchange what has been looked at already. What does not
    exist holds nothing, and is not refused.
    """
    if os.name != "posix":
        return
    last = str(folder)
    for each in _above(last):
        try:
            facts = os.lstat(each)
        except OSError:
            return
        _check(each, facts, may_be_sticky=each != last)


def read_file(folder: Path, name: str) -> bytes | None:
    """The content of a regular file in a resolved folder; None for what is no such file.

    Raises `Untrusted` where others can have written the folder or the file, and OSError.
    """
    if os.name != "posix":
        return (folder / name).read_bytes()
    check_folder(folder)
    inside = os.open(folder, _FOLDER)
    try:
        _check(str(folder), os.fstat(inside), may_be_sticky=False)
        if stat.S_ISLNK(os.lstat(name, dir_fd=inside).st_mode):
            return None
        with open(os.open(name, _READ, dir_fd=inside), "rb") as file:
            facts = os.fstat(file.fileno())
            if not stat.S_ISREG(facts.st_mode):
                return None
            _check(f"{folder}/{name}", facts, may_be_sticky=False)
            return file.read()
    finally:
        os.close(inside)


@lru_cache(maxsize=64)
def _above(folder: str) -> tuple[str, ...]:
    """Every folder from the top down to this one."""
    return (*[str(each) for each in reversed(Path(folder).parents)], folder)


def _check(path: str, facts: os.stat_result, may_be_sticky: bool) -> None:
    if stat.S_ISLNK(facts.st_mode):
        raise Untrusted(f"{path} is a symbolic link: give SVOD_CACHE_DIR the folder it leads to")
    if facts.st_uid not in (os.geteuid(), 0):
        raise Untrusted(f"{path} belongs to user {facts.st_uid}: give SVOD_CACHE_DIR your own")
    if facts.st_mode & _OTHERS_WRITE and not (may_be_sticky and facts.st_mode & stat.S_ISVTX):
        raise Untrusted(f"others can write to {path}: chmod go-w makes it yours")
