"""Where caches live, and how a file is written so that no reader ever sees half of it.

Nothing is created until something is written. Folders are made with mode 0700, because what lies
in them may be loaded as machine code. No cache is ever looked for in the current folder.
"""

from __future__ import annotations

import os
from pathlib import Path

from svod.base.knobs import knobs
from svod.base.system import system


def cache_root() -> Path:
    """The folder that holds all caches of this user; it may not exist yet."""
    if knobs.cache_dir:
        return Path(knobs.cache_dir).expanduser().absolute()
    xdg = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(xdg):  # its specification says to ignore a relative one
        return Path(xdg) / "svod"
    home = Path(os.path.expanduser("~"))
    if not home.is_absolute():  # a container without HOME and without an entry for the user
        given = os.environ.get("TMPDIR", "")
        return Path(given if os.path.isabs(given) else "/tmp") / f"svod-{system().user()}"
    return system().cache_home(home)


def cache_folder(name: str) -> Path:
    """The folder of one cache (`objects`, `tuned`, …) below the root; it may not exist yet."""
    return cache_root() / name


def make_private(folder: Path) -> None:
    """Create a folder, and its missing parents, readable and writable by this user alone."""
    missing = []
    while not os.path.exists(folder):
        missing.append(folder)
        folder = folder.parent
    for each in reversed(missing):
        each.mkdir(mode=0o700, exist_ok=True)  # another process may be as fast


def is_writable(folder: Path) -> bool:
    """Whether a file could be made in the folder, or in the folder that would be its parent."""
    while not os.path.exists(folder) and folder != folder.parent:
        folder = folder.parent
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


TEMPORARY_PREFIX = ".tmp-"


def atomic_write(path: Path, data: bytes) -> None:
    """Write aside and rename into place: readers see the old file or the new one, never a mix.

    There is no fsync: it costs milliseconds per file, and what a power loss could damage here
    carries a checksum.
    """
    aside = path.parent / f"{TEMPORARY_PREFIX}{os.getpid()}-{os.urandom(8).hex()}"
    try:
        descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
        with open(descriptor, "wb") as file:
            file.write(data)
        os.replace(aside, path)
    except BaseException:
        aside.unlink(missing_ok=True)
        raise


_BINARY = getattr(os, "O_BINARY", 0)  # only Windows tells text from binary
