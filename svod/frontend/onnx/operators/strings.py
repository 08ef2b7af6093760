"""Texts: arrays of Python strings on the host.

The operators over texts are here, and what operators of other families do where an input holds
texts: those move, choose or compare elements, or read numbers from them. Words of a vocabulary
become whole numbers, and from there on the device counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

import svod
from svod.base.errors import UnsupportedError
from svod.dtype import types as dt
from svod.frontend.onnx.errors import OnnxError
from svod.frontend.onnx.importer import NodeView
from svod.frontend.onnx.registry import Array, Host, Tensor, Value, operator, texts
from svod.frontend.onnx.types import element


def each(function: Callable[[str], Any], x: Array, kind: Any = object) -> Array:
    """An array of what a function gives for each text."""
    found = np.empty(x.size, kind)
    found[:] = [function(v) for v in x.reshape(-1).tolist()]
    return found.reshape(x.shape)


def as_texts(x: Array) -> Array:
    """Numbers as texts: the shortest that reads back as the same number."""
    return each(_text, x)


def _text(value: Any) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(value)


@texts("Cast", "CastLike")
def cast_texts(
    x: Array, like: Any = None, *, to: Any = None, saturate: int = 1, round_mode: str = "up",
    node: NodeView,
) -> Array:  # fmt: skip
    kind = element(to if to is not None else node.element(1))
    if kind.number == 8:
        return x
    if kind.is_narrow:
        raise UnsupportedError(f"a cast of texts to {kind.name} is not supported")
    reads: Any = float if kind.carrier.is_float else lambda t: int(float(t)) if "." in t else int(t)
    return each(reads, x, np.float64 if kind.carrier.is_float else object).astype(kind.array)


@texts("Equal")
def equal_texts(a: Array, b: Array) -> Array:
    return np.asarray(a == b, np.bool_)


@texts("Where")
def where_texts(condition: Value, a: Array, b: Array, *, node: NodeView) -> Array:
    chosen = node.importer.host(condition, "", "a choice of texts")
    return np.where(chosen, a, b)


@texts("Tile")
def tile_texts(x: Array, repeats: Value, *, node: NodeView) -> Array:
    return np.tile(x, node.host(repeats))


@texts("Expand")
def expand_texts(x: Array, shape: Value, *, node: NodeView) -> Array:
    wanted = tuple(node.host(shape).tolist())
    return np.broadcast_to(x, np.broadcast_shapes(x.shape, wanted))


@texts("Gather")
def gather_texts(x: Array, places: Value, *, axis: int = 0, node: NodeView) -> Array:
    return np.asarray(np.take(x, node.importer.host(places, "", "a choice of texts"), axis), object)


@texts("Compress")
def compress_texts(x: Array, chosen: Value, *, axis: int | None = None, node: NodeView) -> Array:
    return np.compress(node.importer.host(chosen, "", "a choice of texts"), x, axis)


@operator("StringConcat")
def string_concat(a: Value, b: Value) -> Value:
    return np.asarray(np.add(a, b), object)


@operator("RegexFullMatch")
def regex_full_match(x: Value, *, pattern: str) -> Value:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise OnnxError(f"the pattern {pattern!r} is not understood: {error}") from None
    return each(lambda t: compiled.fullmatch(t) is not None, x, np.bool_)


@operator("StringSplit")
def string_split(
    x: Value, *, delimiter: str = "", maxsplit: int | None = None
) -> tuple[Array, Array]:
    limit = -1 if maxsplit is None else maxsplit
    parts = [t.split(delimiter or None, limit) for t in x.reshape(-1).tolist()]
    counts = np.array([len(p) for p in parts], np.int64).reshape(x.shape)
    return padded_rows(parts, "").reshape(*x.shape, -1 if x.size else 0), counts


def padded_rows(rows: list[list[str]], fill: str) -> Array:
    """Lists of texts as one array, short ones with a filling."""
    width = max([len(r) for r in rows], default=0)
    found = np.full((len(rows), width), fill, object)
    for target, row in zip(found, rows, strict=True):
        target[: len(row)] = row
    return found


_CASES: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}


@operator("StringNormalizer")
def string_normalizer(
    x: Value, *, case_change_action: str = "NONE", is_case_sensitive: int = 0,
    locale: str = "en_US", stopwords: Any = None,
) -> Value:  # fmt: skip
    """Words without those to leave out, in capitals or small letters."""
    change = _CASES.get(case_change_action)
    if change is None or x.ndim not in (1, 2):
        raise OnnxError(f"case_change_action {case_change_action!r} over {x.ndim} axes")
    if not stopwords:
        return each(change, x)
    fold: Callable[[str], str] = str if is_case_sensitive else str.lower
    gone = {fold(w) for w in stopwords}
    if x.ndim == 2 and x.shape[0] != 1:
        raise OnnxError(f"StringNormalizer leaves out words of one row, not of {x.shape[0]}")
    kept = [change(w) for w in x.reshape(-1).tolist() if fold(w) not in gone] or [""]
    return np.array(kept, object).reshape((-1,) if x.ndim == 1 else (1, -1))


@operator("Tokenizer", domain="com.microsoft")
def tokenizer(
    x: Value, *, mark: int, mincharnum: int, pad_value: str, separators: Any = None,
    stopwords: Any = None, tokenexp: str = "",
) -> Value:  # fmt: skip
    """The words of each text, along a further axis."""
    splits = "|".join(separators or [])

    def words(text: str) -> list[str]:
        if tokenexp:
            found = [m.group() for m in re.finditer(tokenexp, text)]
        else:
            found = re.split(splits, text) if splits else list(text)
        found = [w for w in found if len(w) >= mincharnum and w not in (stopwords or ())]
        return ["\x02", *found, "\x03"] if mark else found

    rows = padded_rows([words(t) for t in x.reshape(-1).tolist()], pad_value)
    return rows.reshape(*x.shape, rows.shape[1])


@operator("TfIdfVectorizer")
def tf_idf(
    x: Value, *, mode: str, min_gram_length: int, max_gram_length: int, max_skip_count: int,
    ngram_counts: Any, ngram_indexes: Any, pool_int64s: Any = None, pool_strings: Any = None,
    weights: Any = None, node: NodeView,
) -> Tensor:  # fmt: skip
    """How often each n-gram of a pool is found, also with a fixed number of words in between."""
    if pool_strings:
        codes: dict[str, int] = {}
        pool = [codes.setdefault(word, len(codes)) for word in pool_strings]
        words = node.tensor(each(lambda t: codes.get(t, -1), x, np.int64))
    else:
        pool, words = pool_int64s, node.tensor(x).cast(dt.int64)
    is_row = words.ndim == 1
    words = words.reshape(1, -1) if is_row else words
    length = words.shape[1]
    ends = [*ngram_counts[1:], len(pool)]
    columns: list[Tensor] = []
    for n, (start, end) in enumerate(zip(ngram_counts, ends, strict=True), 1):
        grams = np.array(pool[start:end], np.int64).reshape(-1, n)
        total = svod.zeros((words.shape[0], len(grams)), dtype=dt.float32)
        is_counted = min_gram_length <= n <= max_gram_length and len(grams) > 0
        for skip in range(max_skip_count + 1 if n > 1 else 1) if is_counted else ():
            count = length - (n - 1) * (skip + 1)
            if isinstance(count, int) and count <= 0:
                break
            total = total + _found(words, grams, skip + 1, count)
        columns += [total] if len(grams) else []
    found = svod.concat(columns, axis=1)
    if mode == "IDF":
        found = svod.minimum(found, 1.0)
    if weights and mode != "TF":
        found = found * Tensor(np.array(weights, np.float32))
    place = np.full(max(ngram_indexes) + 1, len(ngram_indexes))
    place[ngram_indexes] = np.arange(len(ngram_indexes))
    found = found.pad([0, 1])[:, Tensor(place)]
    return found.reshape(-1) if is_row else found


def _found(words: Tensor, grams: Array, step: int, count: Any) -> Tensor:
    """How many places of each row have each n-gram, with a step between its words."""
    hits: Any = None
    for k in range(grams.shape[1]):
        part = words[:, k * step : k * step + count].unsqueeze(-1)
        same = part == Tensor(np.ascontiguousarray(grams[:, k]))
        hits = same if hits is None else hits & same
    total: Tensor = hits.cast(dt.float32).sum(1)
    return total


@operator("ImageDecoder")
def image_decoder(data: Host, *, pixel_format: str = "RGB") -> Value:
    """An image of a file as (height, width, channels), by Pillow where it is installed."""
    import io

    try:
        from PIL import Image, UnidentifiedImageError
    except ImportError:
        raise UnsupportedError(
            "ImageDecoder needs the package pillow: pip install pillow, or decode before the model"
        ) from None
    if pixel_format not in ("RGB", "BGR", "Grayscale"):
        raise OnnxError(f"pixel_format {pixel_format!r} is none of RGB, BGR, Grayscale")
    try:
        image = Image.open(io.BytesIO(data.tobytes()))
        pixels = np.array(image.convert("L" if pixel_format == "Grayscale" else "RGB"))
    except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
        raise OnnxError(f"ImageDecoder: {error}") from None
    if pixel_format == "Grayscale":
        return pixels[:, :, None]
    return np.ascontiguousarray(pixels[:, :, ::-1]) if pixel_format == "BGR" else pixels
