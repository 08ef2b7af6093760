"""`svod.llm.load`: a GGUF file, or a folder with config.json, safetensors and tokenizer.json.

Both give the same things: a config, weights by the names of GGUF files, a tokenizer, a chat
template where there is one. Nothing is downloaded and no code of a model is run.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from svod.base.progress import step
from svod.llm.config import DecoderConfig, config_of_folder, config_of_gguf
from svod.llm.decoder import Decoder, Weight
from svod.llm.engine import CHUNK, Engine
from svod.llm.errors import ModelFileError, RequestError
from svod.llm.gguf import read_gguf
from svod.llm.mapping import safetensors
from svod.llm.model import LanguageModel
from svod.llm.names import named_as_gguf
from svod.llm.small.place import small_model
from svod.llm.tokenizer import Tokenizer, read_tokenizer_json, tokenizer_of
from svod.llm.weights import Matrix, Products
from svod.tensor.tensor import Tensor

DEFAULT_CONTEXT = 4096
JSON_LIMIT = 1 << 26  # bytes of a config or an index
_TIED_UNLESS_SAID = ("gemma2", "gemma3", "gpt2")


def load(
    path: str | os.PathLike[str] | None = None,
    *,
    context: int | None = None,
    slots: int = 1,
    guesses: int = 0,
    products: Products = "integer",
) -> LanguageModel:
    """A language model from a GGUF file or a model folder; without a path, the one that ships.

    `context` is the most tokens of a prompt and its answer; without it, what the model was made
    for, or 4096 where that is more. `slots` requests are served at once. With `guesses`, so many
    tokens are guessed from what was said before, and checked in one run. `products` says how
    weights of block formats are multiplied: "integer" rounds activations to bytes and multiplies
    whole numbers, "float" rounds nothing and is slower.
    """
    if products not in ("integer", "float"):
        raise RequestError(f"products are 'integer' or 'float', not {products!r:.40}")
    where = small_model() if path is None else Path(path)
    if where.is_dir():
        config, weights, tokenizer, template, read = _of_folder(where, products)
    elif where.is_file():
        config, weights, tokenizer, template, read = _of_gguf(where, products)
    else:
        raise ModelFileError(f"{where} is neither a GGUF file nor a folder of a model")
    for name, count, most in (("slots", slots, 1024), ("guesses", guesses, 63)):
        least = int(name == "slots")
        if isinstance(count, bool) or not isinstance(count, int) or not least <= count <= most:
            raise RequestError(f"{name} is {count!r:.40}, not a number from {least} to {most}")
    capacity = _capacity(config, context)
    decoder = Decoder(config, weights, capacity, slots)
    if len(tokenizer.tokens) > decoder.vocabulary:
        raise ModelFileError(
            f"{where}: {len(tokenizer.tokens)} tokens, but weights of {decoder.vocabulary}"
        )
    engine = Engine(decoder, min(CHUNK, capacity), guesses)
    name = where.name if where.is_dir() else where.stem
    return LanguageModel(name, config, tokenizer, engine, template, read)


def _capacity(config: DecoderConfig, context: int | None) -> int:
    if context is None:
        found = min(config.context, DEFAULT_CONTEXT)
    elif isinstance(context, bool) or not isinstance(context, int) or context > config.context:
        raise RequestError(f"a context of {context!r:.40}, where the model has {config.context}")
    else:
        found = context
    if found < 2:
        raise RequestError(f"a context of {found} tokens has no room for an answer")
    return found


Parts = tuple[DecoderConfig, Mapping[str, Weight], Tokenizer, str | None, int]


def _of_gguf(path: Path, products: Products) -> Parts:
    file = read_gguf(path)
    config = config_of_gguf(file.metadata)
    weights = {name: entry.weight(products) for name, entry in file.tensors.items()}
    template = file.metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise ModelFileError(f"{path}: the chat template is no text")
    read = _read_by_a_token({name: entry.nbytes for name, entry in file.tensors.items()})
    return config, weights, tokenizer_of(file.metadata), template, read


def _read_by_a_token(sizes: Mapping[str, int]) -> int:
    """Bytes of the weights that a token reads: of a table of rows that is no product, one row."""
    tables = ["position_embd.weight"]
    if "output.weight" in sizes:
        tables.append("token_embd.weight")
    return sum(size for name, size in sizes.items() if name not in tables)


def _of_folder(folder: Path, products: Products) -> Parts:
    data = read_json(folder / "config.json")
    try:
        config = config_of_folder(data)
    except (TypeError, AttributeError) as error:
        raise ModelFileError(f"{folder / 'config.json'}: {error!r:.120}") from None
    is_tied = data.get("tie_word_embeddings", config.architecture in _TIED_UNLESS_SAID)
    weights = named_as_gguf(_state(folder, config, products), config, bool(is_tied))
    about = _optional_json(folder / "tokenizer_config.json")
    tokenizer = read_tokenizer_json(folder / "tokenizer.json", about)
    read = _read_by_a_token({name: value.nbytes for name, value in weights.items()})
    tokenizer = _with_ends(tokenizer, folder, data)
    return config, weights, tokenizer, _template(folder, about), read


def _state(folder: Path, config: DecoderConfig, products: Products) -> dict[str, Tensor | Matrix]:
    """The weights of the one file or of all shards."""
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = read_json(index).get("weight_map")
        if not isinstance(shards, dict) or not all(isinstance(n, str) for n in shards.values()):
            raise ModelFileError(f"{index} does not say where the weights are")
        names = sorted(set(shards.values()))
    else:
        names = ["model.safetensors"]
    state: dict[str, Tensor | Matrix] = {}
    for number, name in enumerate(names, 1):
        step(f"weights {name:.40}", number, len(names))
        if Path(name).name != name or not (folder / name).is_file():
            raise ModelFileError(f"{folder} has no file {name!r:.80}")
        part = safetensors(folder / name, products)
        if twice := state.keys() & part.keys():
            raise ModelFileError(f"{folder / name}: {min(twice)!r:.80} is in another file too")
        state |= part
    if config.architecture == "gpt2":  # older files leave out the first word
        heads = ("transformer.", "lm_head.")
        state = {n if n.startswith(heads) else f"transformer.{n}": v for n, v in state.items()}
    return state


def _with_ends(tokenizer: Tokenizer, folder: Path, data: Mapping[str, Any]) -> Tokenizer:
    """Tokens that end a text, from wherever the folder names them."""
    ends = set(tokenizer.ends)
    for source in (data, _optional_json(folder / "generation_config.json")):
        found = source.get("eos_token_id")
        for token in found if isinstance(found, list) else [found]:
            if token is None:
                continue
            if not isinstance(token, int) or token < 0:
                raise ModelFileError(f"{folder}: {token!r:.40} is no token that ends a text")
            ends.add(token)
    return dataclasses.replace(tokenizer, ends=frozenset(ends))


def _template(folder: Path, about: Mapping[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    if path.is_file():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ModelFileError(f"{path}: {error}") from None
    found = about.get("chat_template")
    if isinstance(found, list):  # several by name
        by_name = {t.get("name"): t.get("template") for t in found if isinstance(t, dict)}
        found = by_name.get("default")
    if found is not None and not isinstance(found, str):
        raise ModelFileError(f"{folder}: the chat template is no text")
    return found


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def read_json(path: Path) -> dict[str, Any]:
    """The object that a file holds."""
    try:
        if path.stat().st_size > JSON_LIMIT:
            raise ModelFileError(f"{path} is too long")
        data = json.loads(path.read_bytes().decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        if isinstance(error, ModelFileError):
            raise
        raise ModelFileError(f"{path}: {error}") from None
    if not isinstance(data, dict):
        raise ModelFileError(f"{path} holds no object")
    return data


__all__ = ["load"]
