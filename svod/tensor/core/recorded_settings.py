"""Python settings that a recorded plan depends on: training mode, optimizer options, leaves.

A function that is recorded runs once. What it found in Python objects on the way, a module in
training mode or an optimizer with a momentum, is part of the plan, so a plan notes it as `Facts`
and is used only while they hold. ``changes`` counts everything that could make a fact false: as
long as the count stands, nothing has to be looked at.
"""

from __future__ import annotations

from typing import Any, Protocol
from weakref import ref

changes = [0]
numbers = [0]  # counts new values of options that plans read as data, such as learning rates


def changed() -> None:
    """A setting has another value."""
    changes[0] += 1


class Table(dict[str, Any]):
    """A dict whose changes are counted; those of keys in ``free`` are changes of numbers only."""

    __slots__ = ()
    free: frozenset[str] = frozenset()

    def is_data(self, key: Any, value: Any) -> bool:
        """Whether plans read this option as data, so that a new value leaves them as they are."""
        return key in self.free

    def __setitem__(self, key: Any, value: Any) -> None:
        numbers[0] += 1
        if not self.is_data(key, value):
            changes[0] += 1
        super().__setitem__(key, value)

    def __delitem__(self, key: Any) -> None:
        changes[0] += 1
        super().__delitem__(key)

    def pop(self, *args: Any) -> Any:
        changes[0] += 1
        return super().pop(*args)

    def update(self, *args: Any, **more: Any) -> None:
        changes[0] += 1
        numbers[0] += 1
        super().update(*args, **more)

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self

    def setdefault(self, key: Any, default: Any = None) -> Any:
        if key not in self:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        changes[0] += 1
        super().clear()


class Watched(Protocol):
    """An object that recorded functions look into."""

    def _plan_flags(self) -> dict[str, Any]:
        """Plain values that decide what is computed, by name."""

    def _plan_objects(self) -> dict[str, Any]:
        """Tensors and parts, by name."""

    def _plan_parts(self) -> list[Any]:
        """Other objects that are looked into through this one."""


class Facts:
    """What a recorded function found in an object.

    They are noted when the function first meets the object and once more when it has ended. What
    it changes itself on the way is no fact.
    """

    __slots__ = ("flags", "objects", "owner")

    def __init__(self, owner: Watched) -> None:
        self.owner = ref(owner)
        self.flags: dict[str, Any] = owner._plan_flags()
        self.objects: dict[str, Any] = {}

    def settle(self) -> None:
        """The function has ended: note the objects, and forget flags that it changed."""
        owner = self.owner()
        if owner is None:
            return
        after = owner._plan_flags()
        self.flags = {k: v for k, v in self.flags.items() if k in after and _equal(v, after[k])}
        self.objects = {name: ref(value) for name, value in owner._plan_objects().items()}

    def are_lasting(self) -> bool:
        """Whether the object has the tensors and parts it had; if not, they are gone for good."""
        owner = self.owner()
        if owner is None:
            return not self.objects
        now = owner._plan_objects()
        return all(now.get(name) is known() for name, known in self.objects.items())

    def write_numbers(self) -> None:
        """Bring options that plans read as data there, where the object has such."""
        write = getattr(self.owner(), "refresh", None)
        if write is not None:
            write()

    def hold(self) -> bool:
        """Whether the flags are what they were."""
        owner = self.owner()
        if owner is None:
            return True
        now = owner._plan_flags()
        return all(k in now and _equal(v, now[k]) for k, v in self.flags.items())


def _equal(a: Any, b: Any) -> bool:
    """Equal, and of one type: 1 and 1.0 make different dtypes. A NaN is itself."""
    return a is b or (type(a) is type(b) and bool(a == b))


def is_plain(value: Any) -> bool:
    """Whether a value decides by being equal to another, not by being the same object."""
    if isinstance(value, tuple):
        return all(is_plain(v) for v in value)
    return value is None or isinstance(value, (bool, int, float, str))
