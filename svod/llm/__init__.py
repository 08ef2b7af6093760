"""Language models: files, tokenizers, decoders and generation."""

from svod.llm import grammar, quantize
from svod.llm.errors import ModelFileError, RequestError, UnknownArchitecture
from svod.llm.load import load
from svod.llm.model import LanguageModel, Piece
from svod.llm.sampling import Sampling
from svod.reference.docstrings import describe

__all__ = [
    "LanguageModel",
    "ModelFileError",
    "Piece",
    "RequestError",
    "Sampling",
    "UnknownArchitecture",
    "grammar",
    "load",
    "quantize",
]

describe(globals(), "svod.llm")
