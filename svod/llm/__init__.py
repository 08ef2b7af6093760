"""Language models: files, tokenizers, decoders and generation."""

from svod.llm.errors import ModelFileError, RequestError, UnknownArchitecture
from svod.llm.load import load
from svod.llm.model import LanguageModel, Piece
from svod.llm.sampling import Sampling

__all__ = [
    "LanguageModel",
    "ModelFileError",
    "Piece",
    "RequestError",
    "Sampling",
    "UnknownArchitecture",
    "load",
]
