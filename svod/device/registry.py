"""Devices by name. A device is made when first asked for, and then there is one of it.

Kinds are registered with a factory that takes the canonical name. Devices of a kind with an
unbounded number of names (files) are kept only while somebody uses them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

from svod.base.errors import ArgumentError, DeviceError
from svod.base.locks import reset_rlock
from svod.device.device import Device
from svod.device.names import base_key, canonical

DeviceFactory = Callable[[str], Device]

_lock: Final = reset_rlock()
_factories: Final[dict[str, tuple[DeviceFactory, bool]]] = {}
_kept: Final[dict[str, Device]] = {}
_alive: Final[WeakValueDictionary[str, Device]] = WeakValueDictionary()


def register_device(prefix: str, factory: DeviceFactory, keep: bool = True) -> None:
    """Make devices of a kind known; a kind registered again replaces the old one.

    With ``keep=False`` a device lives only while somebody refers to it.
    """
    kind = base_key(prefix)
    if ":" in prefix or not kind.isidentifier():
        raise DeviceError(f"{prefix!r} is not a device kind: use a plain name such as CPU")
    if not callable(factory):
        raise ArgumentError(f"a device of kind {kind} is made by a function, not {factory!r:.60}")
    with _lock:
        _factories[kind] = (factory, keep)
        for name in [n for n in _alive if base_key(n) == kind]:
            _kept.pop(name, None)
            _alive.pop(name, None)


def unregister_device(prefix: str) -> None:
    """Forget a kind and its devices."""
    with _lock:
        if _factories.pop(base_key(prefix), None) is None:
            raise DeviceError(f"device kind {prefix!r} is not registered: {_choices()}")
        for name in [n for n in _alive if base_key(n) == base_key(prefix)]:
            _kept.pop(name, None)
            _alive.pop(name, None)


def device_kinds() -> list[str]:
    """The registered kinds, sorted."""
    with _lock:
        return sorted(_factories)


def usable_devices() -> list[str]:
    """The devices that compute here, by name: every GPU, and the CPU first.

    DISK holds memory only, a MESH is several devices, and NULL runs nothing.
    """
    found = []
    for kind in sorted(device_kinds(), key=lambda kind: (kind != "CPU", kind)):
        if kind == "CUDA":
            from svod.device.cuda.driver import device_count

            found += [canonical(f"CUDA:{number}") for number in range(device_count())]
        elif kind not in ("DISK", "MESH", "NULL"):
            found.append(kind)
    return found


def open_devices() -> list[Device]:
    """The devices made so far, by name."""
    with _lock:
        return [device for _, device in sorted(_alive.items())]


def get_device(name: str) -> Device:
    """The device of this name."""
    name = canonical(name)
    found = _kept.get(name)
    if found is not None:
        return found
    with _lock:
        found = _alive.get(name)
        if found is not None:
            return found
        entry = _factories.get(base_key(name))
        if entry is None:
            raise DeviceError(f"there is no device {name!r}: {_choices()}")
        factory, keep = entry
        found = _alive[name] = factory(name)
        if keep:
            _kept[name] = found
        return found


def _choices() -> str:
    return "the devices are " + ", ".join(sorted(_factories))
