"""Tokenizers from tokenizer.json, the description that the `tokenizers` package writes.

Normalizers and pre-tokenizers that are read are those of the table below; another is an error.
"""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from svod.llm.errors import ModelFileError
from svod.llm.tokenizer.from_gguf import TURN_ENDS
from svod.llm.tokenizer.models import SPACE, ByteBPE, PieceMerges, TokenModel, Unigram, WordPiece
from svod.llm.tokenizer.normalizers import bert_cleaned, bert_words
from svod.llm.tokenizer.patterns import PRE_TOKENIZERS, compiled, cut
from svod.llm.tokenizer.tokenizer import Tokenizer

Step = Callable[[list[str], bool], list[str]]

NUMBER_LIMIT = 1 << 24  # of tokens: numbers leave gaps, and gaps take memory


def read_tokenizer_json(
    path: str | os.PathLike[str], config: Mapping[str, Any] | None = None
) -> Tokenizer:
    """The tokenizer of a file; `config` is the tokenizer_config.json beside it."""
    try:
        with open(path, encoding="utf-8") as file:
            data = json.load(file)
    except (OSError, ValueError, RecursionError) as error:
        raise ModelFileError(f"{os.fspath(path)}: {error}") from None
    try:
        return _tokenizer(data, config or {})
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise ModelFileError(f"{os.fspath(path)} is no tokenizer: {error!r:.120}") from None


def _tokenizer(data: Mapping[str, Any], config: Mapping[str, Any]) -> Tokenizer:
    kind = data["model"].get("type") or _guessed(data["model"])
    steps = _normalizing(data.get("normalizer"))
    cutting, is_bytes, prefix = _cutting(data.get("pre_tokenizer"))
    vocabulary, model = _model(kind, data["model"], is_bytes)
    control = {a["content"]: a["id"] for a in data.get("added_tokens", []) if a["special"]}
    added = {a["content"]: a["id"] for a in data.get("added_tokens", []) if not a["special"]}
    names = {**vocabulary, **added, **control}
    last = max(names.values())
    if last >= NUMBER_LIMIT:
        raise ModelFileError(f"the tokenizer has a token of the number {last}")
    tokens = [""] * (last + 1)
    for token, number in names.items():
        tokens[number] = token

    def words(text: str, first: bool) -> list[str]:
        pieces = [text]
        for step in (*steps, *cutting):
            pieces = step(pieces, first)
        return pieces

    bos, eos = (_special(config, name, names) for name in ("bos_token", "eos_token"))
    first, last = _template(data.get("post_processor"), names)
    ends = {control[name] for name in TURN_ENDS if name in control} | ({eos} - {None})
    return Tokenizer(
        tuple(tokens), model, words, control, added, first if first is not None else bos,
        last if last is not None else eos, adds_bos=first is not None, adds_eos=last is not None,
        strips_first_space=_prepends(data.get("normalizer")) or prefix or kind == "WordPiece",
        ends=frozenset(n for n in ends if n is not None),
    )  # fmt: skip


def _guessed(model: Mapping[str, Any]) -> str:
    return "BPE" if "merges" in model else "Unigram" if isinstance(model["vocab"], list) else ""


def _model(
    kind: str, model: Mapping[str, Any], is_bytes: bool
) -> tuple[dict[str, int], TokenModel]:
    if kind == "Unigram":
        vocabulary = {token: n for n, (token, _) in enumerate(model["vocab"])}
        scores = [float(score) for _, score in model["vocab"]]
        return vocabulary, Unigram(vocabulary, scores, model.get("unk_id"))
    vocabulary = dict(model["vocab"])
    if kind == "WordPiece":
        later, longest = model["continuing_subword_prefix"], model["max_input_chars_per_word"]
        unknown = vocabulary[model["unk_token"]]
        return vocabulary, WordPiece(vocabulary, unknown, "", later, longest)
    if kind != "BPE":
        raise ModelFileError(f"the tokenizer model {kind!r:.80} is not known")
    for option in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(option):
            raise ModelFileError(f"BPE with {option} is not read")
    merges = [tuple(m.split(" ")) if isinstance(m, str) else tuple(m) for m in model["merges"]]
    if any(len(pair) != 2 for pair in merges):
        raise ModelFileError("a merge is not of two tokens")
    if is_bytes:
        return vocabulary, ByteBPE(vocabulary, merges, bool(model.get("ignore_merges")))
    unknown = vocabulary.get(model.get("unk_token") or "")
    fuses = bool(model.get("fuse_unk"))
    return vocabulary, PieceMerges(vocabulary, unknown, None, merges, fuses)


def _normalizing(item: Mapping[str, Any] | None) -> list[Step]:
    """Steps over whole texts."""
    if item is None:
        return []
    kind = item["type"]
    if kind == "Sequence":
        return [step for part in item["normalizers"] for step in _normalizing(part)]
    if kind in ("NFC", "NFD", "NFKC", "NFKD"):
        return [lambda pieces, first: [unicodedata.normalize(kind, p) for p in pieces]]
    if kind == "Lowercase":
        return [lambda pieces, first: [p.lower() for p in pieces]]
    if kind == "Prepend":
        return [lambda pieces, first: [item["prepend"] + p for p in pieces if p]]
    if kind == "Replace" and "String" in item["pattern"]:
        old, new = item["pattern"]["String"], item["content"]
        return [lambda pieces, first: [p.replace(old, new) for p in pieces]]
    if kind == "BertNormalizer":
        strips = item["lowercase"] if item["strip_accents"] is None else item["strip_accents"]
        options = (item["clean_text"], item["handle_chinese_chars"], strips, item["lowercase"])
        return [lambda pieces, first: [bert_cleaned(p, *options) for p in pieces]]
    raise ModelFileError(f"the normalizer {kind!r:.80} is not known")


def _cutting(item: Mapping[str, Any] | None) -> tuple[list[Step], bool, bool]:
    """Steps that cut, whether bytes are mapped after them, and whether a space is put first."""
    if item is None:
        return [], False, False
    kind = item["type"]
    if kind == "Sequence":
        parts = [_cutting(part) for part in item["pretokenizers"]]
        steps = [step for part in parts for step in part[0]]
        return steps, any(p[1] for p in parts), any(p[2] for p in parts)
    if kind == "ByteLevel":
        steps = [_prefixed(" ")] if item["add_prefix_space"] else []
        if item.get("use_regex", True):
            steps.append(_by_patterns(compiled(PRE_TOKENIZERS["gpt-2"][0])))
        return steps, True, bool(item["add_prefix_space"])
    if kind == "Split":
        return [_split(item)], False, False
    if kind == "Digits":
        digits = r"\p{N}" if item["individual_digits"] else r"\p{N}+"
        return [_by_patterns(compiled(digits))], False, False
    if kind == "Metaspace":
        return _metaspace(item)
    if kind == "BertPreTokenizer":
        return [lambda pieces, first: [w for p in pieces for w in bert_words(p)]], False, False
    raise ModelFileError(f"the pre-tokenizer {kind!r:.80} is not known")


def _by_patterns(*patterns: re.Pattern[str]) -> Step:
    return lambda pieces, first: [part for p in pieces for part in cut(p, patterns)]


def _prefixed(space: str) -> Step:
    def step(pieces: list[str], first: bool) -> list[str]:
        return [p if p.startswith(space) else space + p for p in pieces[:1]] + pieces[1:]

    return step


def _split(item: Mapping[str, Any]) -> Step:
    pattern = item["pattern"]
    found = compiled(pattern["Regex"]) if "Regex" in pattern else re.compile(
        re.escape(pattern["String"])
    )  # fmt: skip
    behavior = item["behavior"]
    if behavior == "Isolated" or (behavior == "Removed" and item["invert"]):
        return _by_patterns(found)
    if behavior == "MergedWithPrevious" and not item["invert"]:
        ends = re.compile(f"(?<={found.pattern})", found.flags)
        return lambda pieces, first: [w for p in pieces for w in ends.split(p) if w]
    raise ModelFileError(f"a split that is {behavior!r:.40} is not known")


def _metaspace(item: Mapping[str, Any]) -> tuple[list[Step], bool, bool]:
    mark = item["replacement"]
    scheme = item.get("prepend_scheme", "always" if item.get("add_prefix_space") else "never")
    starts = re.compile(f"(?={re.escape(mark)})")

    def step(pieces: list[str], first: bool) -> list[str]:
        out: list[str] = []
        for piece in pieces:
            text = piece.replace(" ", mark)
            puts = scheme == "always" or (scheme == "first" and first)
            if puts and not text.startswith(mark):
                text = mark + text
            out += [w for w in starts.split(text) if w] if item.get("split", True) else [text]
        return out

    return [step], False, scheme != "never"


def _prepends(item: Mapping[str, Any] | None) -> bool:
    return bool(item) and SPACE in json.dumps(item, ensure_ascii=False) and "Prepend" in str(item)


def _template(
    item: Mapping[str, Any] | None, names: Mapping[str, int]
) -> tuple[int | None, int | None]:
    """Tokens that are put before and after a text."""
    if item is None or item["type"] == "ByteLevel":
        return None, None
    if item["type"] == "Sequence":
        found = [_template(part, names) for part in item["processors"]]
        firsts = [f for f, _ in found if f is not None]
        lasts = [last for _, last in found if last is not None]
        return (firsts or [None])[0], (lasts or [None])[0]
    if item["type"] in ("BertProcessing", "RobertaProcessing"):
        return item["cls"][1], item["sep"][1]
    if item["type"] != "TemplateProcessing":
        raise ModelFileError(f"the post-processor {item['type']!r:.80} is not known")
    parts = item["single"]
    text = next(n for n, part in enumerate(parts) if "Sequence" in part)
    before = [names[p["SpecialToken"]["id"]] for p in parts[:text]]
    after = [names[p["SpecialToken"]["id"]] for p in parts[text + 1 :]]
    if len(before) > 1 or len(after) > 1:
        raise ModelFileError("a template with several tokens around a text is not read")
    return (before or [None])[0], (after or [None])[0]


def _special(config: Mapping[str, Any], name: str, names: Mapping[str, int]) -> int | None:
    value = config.get(name)
    text = value.get("content") if isinstance(value, dict) else value
    return names.get(text) if isinstance(text, str) else None
