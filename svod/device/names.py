"""Device names in one canonical spelling.

A name is a kind and, after a colon, an index (``CPU:1``) or, for DISK, a path. The kind is upper
case and index 0 is left out, so equal devices have equal names: ``cpu:0`` is ``CPU``.
"""

from __future__ import annotations

import os
from functools import lru_cache
from typing import Final

from svod.base.errors import DeviceError

DISK_PREFIX: Final = "DISK:"
HOST_KINDS: Final = frozenset({"CPU", "REF"})  # their memory is ordinary memory of this process


def canonical(name: str) -> str:
    """The one spelling of a device name."""
    if name == "CPU":  # by far the most frequent
        return name
    kind, _, rest = name.strip().partition(":")
    if kind.upper() == "DISK":
        if not rest:
            raise DeviceError(f"device {name!r} names no file: use DISK:path")
        return DISK_PREFIX + os.path.abspath(rest)  # depends on the working folder: not cached
    return _canonical_index(name)


def base_key(name: str) -> str:
    """The kind of a device, without its index: devices of one kind share compiled code."""
    return name.strip().partition(":")[0].upper()


@lru_cache(maxsize=256)
def _canonical_index(name: str) -> str:
    kind, colon, rest = name.strip().partition(":")
    if not kind.isidentifier():
        raise DeviceError(f"device name {name!r} is malformed: use a name such as CPU or CPU:1")
    if not colon:
        return kind.upper()
    if not (rest.isascii() and rest.isdigit()):
        raise DeviceError(f"device {name!r} has index {rest!r}: use a whole number, as in CPU:1")
    number = int(rest)
    return f"{kind.upper()}:{number}" if number else kind.upper()


def device_number(name: str) -> int:
    """Which of several devices of a kind a name means: 1 for CUDA:1, 0 for CUDA."""
    return int(canonical(name).partition(":")[2] or 0)


def memory_device(name: str) -> str:
    """Whose memory a device uses: a mesh holds the parts of its ranks in memory of the host."""
    return "CPU" if name.startswith("MESH:") else name


def can_use(device: str, memory: str) -> bool:
    """Whether kernels of a device may be given memory of another; the host sees mapped files."""
    if device == memory:
        return True
    return memory.startswith(DISK_PREFIX) and base_key(device) in HOST_KINDS
