"""Language models: files, tokenizers, decoders and generation."""

from svod.llm.engine import Sampling
from svod.llm.errors import ModelFileError, RequestError, UnknownArchitecture
from svod.llm.load import load
from svod.llm.model import LanguageModel, Piece
from svod.reference.docstrings import describe

__all__ = [
    "LanguageModel",
    "ModelFileError",
    "Piece",
    "RequestError",
    "Sampling",
    "UnknownArchitecture",
    "load",
]

describe(globals(), "svod.llm")
