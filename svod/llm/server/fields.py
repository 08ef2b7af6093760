"""Reading fields of a request's JSON body, each checked where it is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from svod.llm.errors import RequestError

STOPS = 16
# What clients send that changes nothing here.
_IGNORED = frozenset({
    "model", "user", "store", "metadata", "service_tier", "parallel_tool_calls",
    "safety_identifier", "prompt_cache_key",
    "reasoning_effort", "reasoning", "include", "truncation", "verbosity",
    "cache_prompt",
})  # fmt: skip


class FieldError(RequestError):
    """A field of a request that cannot be as it is."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(f"{field}: {problem}")
        self.field = field


class Fields:
    """The fields of one object."""

    def __init__(self, body: Any) -> None:
        if not isinstance(body, Mapping):
            raise RequestError("the body is not a JSON object")
        self.body = body
        self._read: set[str] = set()

    def value(self, name: str, default: Any = None) -> Any:
        """A field as it is; null is as if it were not there."""
        self._read.add(name)
        found = self.body.get(name)
        return default if found is None else found

    def number(self, name: str, default: float, least: float, most: float) -> float:
        found = self.value(name, default)
        if isinstance(found, bool) or not isinstance(found, (int, float)):
            raise FieldError(name, f"{found!r:.60} is not a number")
        if not least <= found <= most:
            raise FieldError(name, f"{found!r:.60} is not from {least:g} to {most:g}")
        return float(found)

    def whole(self, name: str, default: int | None, least: int, most: int) -> int | None:
        found = self.value(name, default)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= most:
            raise FieldError(name, f"{found!r:.60} is not a whole number from {least} to {most}")
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        found = self.value(name, default)
        if not isinstance(found, bool):
            raise FieldError(name, f"{found!r:.60} is neither true nor false")
        return found

    def text(self, name: str, default: str | None = None) -> str | None:
        found = self.value(name, default)
        if found is not None and not isinstance(found, str):
            raise FieldError(name, f"{found!r:.60} is not a text")
        return found

    def stops(self) -> tuple[str, ...]:
        found = self.value("stop", [])
        found = [found] if isinstance(found, str) else found
        if not isinstance(found, list) or len(found) > STOPS:
            raise FieldError("stop", f"at most {STOPS} texts")
        if not all(isinstance(s, str) and s for s in found):
            raise FieldError("stop", "texts of at least one character")
        return tuple(found)

    def finish(self) -> None:
        """Refuse what nobody has read."""
        if unknown := sorted(map(str, self.body.keys() - self._read - _IGNORED)):
            raise FieldError(unknown[0][:60], "this field is not known")
