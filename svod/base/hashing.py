"""Stable digests for cache keys: the same parts give the same text in every process."""

from __future__ import annotations

try:  # `hashlib` gives the same function, but also loads OpenSSL: 3 ms of every start
    from _blake2 import blake2b
except ImportError:
    from hashlib import blake2b

DIGEST_BYTES = 20  # 160 bits: accidental collisions are out of reach, file names stay short


def digest(*parts: bytes | str | int, size: int = DIGEST_BYTES) -> str:
    """The hex blake2b digest of the parts.

    Each part is written with its kind and its length, so that ("ab", "c"), ("a", "bc"),
    (b"ab", b"c") and (1, "1") never meet.
    """
    state = blake2b(digest_size=size)
    for part in parts:
        if isinstance(part, str):
            kind, data = "s", part.encode("utf-8", "surrogatepass")
        elif isinstance(part, int):
            kind, data = "i", str(int(part)).encode()
        elif isinstance(part, bytes):
            kind, data = "b", part
        else:
            raise TypeError(f"digest takes bytes, str or int, not {type(part).__name__}")
        state.update(f"{kind}{len(data)}:".encode())
        state.update(data)
    return state.hexdigest()


def checksum(*parts: bytes) -> bytes:
    """The 32 raw bytes that guard a stored file, over the parts one after the other."""
    state = blake2b(digest_size=32)
    for part in parts:
        state.update(part)
    return state.digest()


def keyed_checksum(key: bytes, data: bytes) -> bytes:
    """The 32 raw bytes that only who knows the key can make."""
    return blake2b(data, key=key, digest_size=32).digest()
