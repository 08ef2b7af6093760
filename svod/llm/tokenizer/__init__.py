"""Tokenizers of GGUF files and of tokenizer.json."""

from svod.llm.tokenizer.from_gguf import tokenizer_of
from svod.llm.tokenizer.from_json import read_tokenizer_json
from svod.llm.tokenizer.tokenizer import Stream, Tokenizer

__all__ = ["Stream", "Tokenizer", "read_tokenizer_json", "tokenizer_of"]
