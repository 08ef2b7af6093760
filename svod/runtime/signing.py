"""Who saved a plan: machine code in a file is loaded without asking only if this user wrote it.

In: the manifest of a saved plan, which holds checksums of all code. Out: a signature, made with a
key that only this user can read. The key is made at first use and lies beside the caches, in a
folder that `svod cache` neither lists, exports nor imports. Where it cannot be kept, a process has
a key of its own: what it saves, it can load itself.
"""

from __future__ import annotations

import os
from functools import cache

from svod.base.hashing import keyed_checksum
from svod.base.paths import cache_folder
from svod.base.store import BlobStore

FOLDER = ".keys"  # no name of a cache: those begin with a letter
NAME = "plans"
BYTES = 32


def sign(manifest: bytes) -> bytes:
    """The signature of this user, as text of hexadecimal digits."""
    return _signature(_key() or _made_key(), manifest)


def is_ours(manifest: bytes, signature: bytes) -> bool:
    """Whether this user, or this process, has signed the manifest."""
    keys = (_key(), _process_key())
    return any(key is not None and _signature(key, manifest) == signature for key in keys)


def _signature(key: bytes, manifest: bytes) -> bytes:
    return keyed_checksum(key, manifest).hex().encode()


def _key() -> bytes | None:
    found = _store().get(NAME)
    return found if found is not None and len(found) == BYTES else None


def _made_key() -> bytes:
    """A new key, once it lies on disk; else the one of this process."""
    _store().put(NAME, os.urandom(BYTES))
    return _key() or _process_key()


def _store() -> BlobStore:
    return BlobStore(cache_folder(FOLDER), 1 << 16)


@cache
def _process_key() -> bytes:
    return os.urandom(BYTES)
