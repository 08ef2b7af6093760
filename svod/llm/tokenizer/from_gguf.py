"""Tokenizers from the metadata of GGUF files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from svod.llm.errors import ModelFileError
from svod.llm.tokenizer.models import SPACE, ByteBPE, PieceMerges, TokenModel, Unigram, WordPiece
from svod.llm.tokenizer.normalizers import bert_cleaned, bert_words
from svod.llm.tokenizer.patterns import cut, pre_tokenizer
from svod.llm.tokenizer.tokenizer import Tokenizer

_UNKNOWN, _CONTROL, _USER, _UNUSED, _BYTE = 2, 3, 4, 5, 6
# Names of tokens that end a turn, in models whose files name one of several.
TURN_ENDS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>",
    "<|return|>", "<|call|>", "<EOT>", "_<EOT>",
)  # fmt: skip
Words = Callable[[str, bool], list[str]]


def tokenizer_of(metadata: Mapping[str, Any]) -> Tokenizer:
    """The tokenizer that the keys describe."""
    keys = {k[15:]: v for k, v in metadata.items() if k.startswith("tokenizer.ggml.")}
    kind, tokens = keys.get("model"), keys.get("tokens")
    if kind not in _KINDS:
        raise ModelFileError(f"the tokenizer model {kind!r:.80} is not known")
    if not isinstance(tokens, list) or not tokens or not all(isinstance(t, str) for t in tokens):
        raise ModelFileError("the tokenizer has no list of tokens")
    types = keys.get("token_type", [1] * len(tokens))
    if not isinstance(types, list) or len(types) != len(tokens):
        raise ModelFileError(f"{len(tokens)} tokens do not have as many types")
    control = {t: n for n, t in enumerate(tokens) if types[n] == _CONTROL and t}
    added = {t: n for n, t in enumerate(tokens) if types[n] == _USER and t}
    plain = {
        t: n for n, t in enumerate(tokens) if types[n] not in (_CONTROL, _UNUSED, _UNKNOWN)
    }  # fmt: skip
    model, words, adds_bos, strips = _KINDS[kind](keys, tokens, plain)
    bos, eos = (_token(keys, name, len(tokens)) for name in ("bos", "eos"))
    ends = {_token(keys, name, len(tokens)) for name in ("eos", "eot", "eom")}
    ends |= {control[name] for name in TURN_ENDS if name in control}
    return Tokenizer(
        tuple(tokens), model, words, control, added, bos, eos,
        adds_bos=_flag(keys, "add_bos_token", adds_bos),
        adds_eos=_flag(keys, "add_eos_token", False),
        strips_first_space=strips, ends=frozenset(n for n in ends if n is not None),
        content_of_added=model.content if kind == "llama" else str.encode,
    )  # fmt: skip


Parts = tuple[TokenModel, Words, bool, bool]


def _byte_bpe(keys: Mapping[str, Any], tokens: list[str], plain: Mapping[str, int]) -> Parts:
    merges = [tuple(m.split(" ")) for m in keys.get("merges", ()) if isinstance(m, str)]
    if not merges or any(len(pair) != 2 for pair in merges):
        raise ModelFileError("byte-level BPE needs merges of two tokens each")
    name = keys.get("pre")
    if not isinstance(name, str):
        raise ModelFileError("the file does not name its pre-tokenizer")
    patterns = pre_tokenizer(name)
    whole = name in ("llama3", "llama-v3", "llama-bpe", "falcon3", "tekken", "llama4", "gpt-4o")
    model = ByteBPE(plain, merges, whole)  # type: ignore[arg-type]
    return model, lambda text, first: cut(text, patterns), False, False


def _scores(keys: Mapping[str, Any], tokens: list[str]) -> list[float]:
    scores = keys.get("scores")
    if not isinstance(scores, list) or len(scores) != len(tokens):
        raise ModelFileError(f"{len(tokens)} tokens do not have as many scores")
    return [float(s) for s in scores]


def _spaced(prefix: bool) -> Words:
    def words(text: str, first: bool) -> list[str]:
        return [(" " + text if prefix and first else text).replace(" ", SPACE)]

    return words


def _pieces(keys: Mapping[str, Any], tokens: list[str], plain: Mapping[str, int]) -> Parts:
    unknown = _token(keys, "unknown", len(tokens))
    prefix = _flag(keys, "add_space_prefix", True)
    model = PieceMerges(plain, unknown, _scores(keys, tokens))
    return model, _spaced(prefix), True, prefix


def _unigram(keys: Mapping[str, Any], tokens: list[str], plain: Mapping[str, int]) -> Parts:
    if keys.get("precompiled_charsmap"):
        raise ModelFileError("unigram tokenizers with a precompiled map of characters are not read")
    unknown = _token(keys, "unknown", len(tokens))
    collapses = _flag(keys, "remove_extra_whitespaces", False)
    prefix = _flag(keys, "add_space_prefix", True)
    spaced = _spaced(prefix)

    def words(text: str, first: bool) -> list[str]:
        return spaced(_collapsed(text) if collapses else text, first)

    return Unigram(plain, _scores(keys, tokens), unknown), words, False, prefix


def _collapsed(text: str) -> str:
    return " ".join(part for part in text.split(" ") if part)


def _word_pieces(keys: Mapping[str, Any], tokens: list[str], plain: Mapping[str, int]) -> Parts:
    unknown = _token(keys, "unknown", len(tokens))
    if unknown is None:
        raise ModelFileError("a WordPiece tokenizer needs an unknown token")

    def words(text: str, first: bool) -> list[str]:
        return bert_words(bert_cleaned(text, True, True, True, True))

    return WordPiece(plain, unknown, first=SPACE, later=""), words, True, True


_KINDS: dict[Any, Callable[..., Parts]] = {
    "gpt2": _byte_bpe, "llama": _pieces, "t5": _unigram, "bert": _word_pieces,
}  # fmt: skip


def _token(keys: Mapping[str, Any], name: str, count: int) -> int | None:
    number = keys.get(f"{name}_token_id")
    if number is None:
        return None
    if not isinstance(number, int) or not 0 <= number < count:
        raise ModelFileError(f"the {name} token {number!r:.40} is not one of {count}")
    return number


def _flag(keys: Mapping[str, Any], name: str, default: bool) -> bool:
    value = keys.get(name, default)
    if not isinstance(value, bool):
        raise ModelFileError(f"{name} is {value!r:.40}, neither true nor false")
    return value
