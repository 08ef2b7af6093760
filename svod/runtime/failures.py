"""Errors of a run that carry which op failed; all are `ExecutionError`."""

from __future__ import annotations

from typing import TypeVar

from svod.base.errors import ExecutionError, SvodError

E = TypeVar("E", bound=SvodError)


class OpError(ExecutionError):
    """One prepared op failed; `op_id` says which, `kind` what sort of op it is."""

    def __init__(self, message: str, op_id: int, kind: str) -> None:
        super().__init__(message, op_id, kind)
        self.message, self.op_id, self.kind = message, op_id, kind

    def __str__(self) -> str:
        return self.message


class RunErrors(ExceptionGroup[Exception], ExecutionError):
    """Several kernels that ran side by side failed; `exceptions` holds all of the errors."""


def with_line(error: E, line: tuple[str, int, str] | None) -> E:
    """The error with the line of the user's code that it belongs to, where that is known."""
    return error if line is None else type(error)(f"{error}{line_text(line)}")


def line_text(line: tuple[str, int, str] | None) -> str:
    """Where in the user's code something belongs, for the end of a message."""
    return "" if line is None else f" ({line[0]}, line {line[1]})"
