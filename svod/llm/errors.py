"""What goes wrong with files of language models, and with requests to one."""

from __future__ import annotations

from svod.base.errors import SvodError


class ModelFileError(SvodError, ValueError):
    """A file of a language model that is not well-formed, or holds what is not read."""


class UnknownArchitecture(ModelFileError):
    """A model of a kind that is not known here; running it as another would be wrong."""


class RequestError(SvodError, ValueError):
    """A prompt or options that the model cannot serve."""


__all__ = ["ModelFileError", "RequestError", "UnknownArchitecture"]
