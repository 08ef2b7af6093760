"""Reading values of a JSON object that nobody vouches for.

In: the object, and where it stands in the file. Out: values of the expected type within the
expected limits. Anything else is a `PlanFormatError` that names the place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from svod.base.errors import PlanFormatError

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
LONGEST_TEXT = 4096


class Checked:
    """One JSON object with typed access to its fields."""

    __slots__ = ("_fields", "_where")

    def __init__(self, fields: Any, where: str) -> None:  # whatever json.loads gave
        if not isinstance(fields, dict):
            raise PlanFormatError(f"{where}: expected an object, found {_shown(fields)}")
        self._fields: dict[str, Any] = fields
        self._where = where

    def has(self, name: str) -> bool:
        return name in self._fields

    def text(self, name: str, most: int = LONGEST_TEXT) -> str:
        value = self.value(name)
        if not isinstance(value, str) or len(value) > most:
            raise self.wrong(name, "a text", value)
        return value

    def flag(self, name: str) -> bool:
        value = self.value(name)
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return value

    def number(self, name: str, low: int = 0, high: int = INT64_MAX) -> int:
        return self._number(name, self.value(name), low, high)

    def optional_number(self, name: str, low: int = 0, high: int = INT64_MAX) -> int | None:
        value = self.value(name)
        return None if value is None else self._number(name, value, low, high)

    def numbers(self, name: str, low: int = 0, high: int = INT64_MAX) -> list[int]:
        return [self._number(name, value, low, high) for value in self.items(name)]

    def rows(self, name: str, low: int = 0, high: int = INT64_MAX) -> list[list[int]]:
        """A list of lists of numbers."""
        found = []
        for row in self.items(name):
            if not isinstance(row, list):
                raise self.wrong(name, "lists of numbers", row)
            found.append([self._number(name, value, low, high) for value in row])
        return found

    def texts(self, name: str) -> list[str]:
        found = self.items(name)
        for value in found:
            if not isinstance(value, str) or len(value) > LONGEST_TEXT:
                raise self.wrong(name, "texts", value)
        return found

    def values(self, name: str) -> dict[str, int]:
        """Numbers by name."""
        fields = self.value(name)
        if not isinstance(fields, dict):
            raise self.wrong(name, "numbers by name", fields)
        return {key: self._number(name, v, INT64_MIN, INT64_MAX) for key, v in fields.items()}

    def items(self, name: str) -> list[Any]:
        value = self.value(name)
        if not isinstance(value, list):
            raise self.wrong(name, "a list", value)
        return value

    def all_inner(self, name: str) -> list[Checked]:
        items = self.items(name)
        return [Checked(item, f"{self._where}.{name}[{i}]") for i, item in enumerate(items)]

    def inner(self, name: str) -> Checked:
        return Checked(self.value(name), f"{self._where}.{name}")

    def value(self, name: str) -> Any:
        if name not in self._fields:
            raise PlanFormatError(f"{self._where}: {name} is missing")
        return self._fields[name]

    def one_of(self, name: str, choices: Sequence[str]) -> str:
        value = self.value(name)
        if value not in choices:
            raise self.wrong(name, " or ".join(choices), value)
        return str(value)

    def wrong(self, name: str, expected: str, found: object) -> PlanFormatError:
        return PlanFormatError(f"{self._where}.{name}: expected {expected}, found {_shown(found)}")

    def _number(self, name: str, value: Any, low: int, high: int) -> int:
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(name, f"a whole number from {low} to {high}", value)
        return value


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
