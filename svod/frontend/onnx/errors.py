"""What goes wrong with ONNX files."""

from __future__ import annotations

from svod.base.errors import SvodError, UnsupportedError


class OnnxError(SvodError, ValueError):
    """An ONNX file that is damaged, or that holds what Svod does not support."""


class UnsupportedModel(OnnxError, UnsupportedError):
    """Operators, attributes or types that are not supported: all of a model's at once."""

    def __init__(self, message: str) -> None:
        UnsupportedError.__init__(self, message, "model")

    def __str__(self) -> str:
        return self.message


class NeedsValue(Exception):
    """An operator needs numbers that are not known before the model runs (internal)."""

    def __init__(self, name: str, why: str, most: int | None = None) -> None:
        super().__init__(name, why)
        self.name = name
        self.why = why
        self.most = most  # of a number that is one size


class NeedsSize(Exception):
    """An operator does not hold for a whole range of sizes (internal)."""

    def __init__(self, error: OnnxError) -> None:
        super().__init__(str(error))
        self.error = error
