"""Damaged model files: ``python -m tests.llm.fuzz_files FIRST LAST``.

A GGUF file, and the config.json and tokenizer.json of a folder, are changed at random, bytes and
values. Each is refused with an error of ours, or gives a model whose tokenizer reads texts back;
some of these write a few tokens too. Anything else is printed with its seed."""

from __future__ import annotations

import json
import random as randoms
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import svod
from svod.base.errors import SvodError
from svod.base.progress import shown
from svod.llm.gguf import read_gguf
from svod.llm.small.place import small_model
from svod.llm.tokenizer import Tokenizer, read_tokenizer_json

TEXTS = ("Hello, world! 123", "héllo\n\tξ 你好 😀", "", "  <|user|> ")
WRITES = 40  # one model of so many also generates
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 2, 3, 7, 1 << 31, 1 << 63, 1e308, float("nan"), "", "x", [], [1], {},
    {"a": 1}, "a" * 1000,
)  # fmt: skip


def folder_of_the_small_model(folder: Path) -> None:
    """The model that ships as config.json, tokenizer.json and safetensors."""
    import numpy as np

    file = read_gguf(small_model())
    keys = file.metadata
    sizes = {
        "hidden_size": "embedding_length", "num_hidden_layers": "block_count",
        "intermediate_size": "feed_forward_length", "num_attention_heads": "attention.head_count",
        "num_key_value_heads": "attention.head_count_kv", "head_dim": "attention.key_length",
    }  # fmt: skip
    config = {name: keys[f"llama.{key}"] for name, key in sizes.items()}
    config |= {"model_type": "llama", "max_position_embeddings": 64, "hidden_act": "silu"}
    config |= {"tie_word_embeddings": True, "rms_norm_eps": 1e-5, "vocab_size": 512}
    config |= {"rope_parameters": {"rope_theta": 1e4, "rope_type": "default"}}
    (folder / "config.json").write_text(json.dumps(config))
    tokens = keys["tokenizer.ggml.tokens"]
    merges = [m.split(" ") for m in keys["tokenizer.ggml.merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    added = [
        {"id": n, "content": t, "special": True, "single_word": False, "lstrip": False,
         "rstrip": False, "normalized": False}
        for n, t in enumerate(tokens[:6])
    ]  # fmt: skip
    level = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True,
             "trim_offsets": True}  # fmt: skip
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": added, "normalizer": None, "pre_tokenizer": level,
        "post_processor": None, "decoder": level,
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    }))  # fmt: skip
    heads = {"attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
             "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
             "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
             "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm"}  # fmt: skip
    state = {}
    for name, entry in file.tensors.items():
        parts = name.split(".")
        if parts[0] == "blk":
            named = f"model.layers.{parts[1]}.{heads[parts[2]]}.weight"
        else:
            named = {"token_embd": "model.embed_tokens.weight", "output_norm": "model.norm.weight"}[
                parts[0]
            ]
        state[named] = svod.Tensor(np.asarray(entry.tensor().numpy(), np.float32))
    svod.nn.state.save_file(state, folder / "model.safetensors")


def damaged_bytes(content: bytes, head: int, random: randoms.Random) -> bytes:
    """A file with some bytes changed, most of them in its head."""
    changed = bytearray(content)
    for _ in range(random.choice((1, 1, 2, 5, 30))):
        end = min(head, len(changed)) if random.random() < 0.8 else len(changed)
        place = random.randrange(max(end, 1))
        kind = random.randrange(5)
        if kind == 0:
            changed[place : place + 1] = random.randbytes(1)
        elif kind == 1:
            changed[place : place + 8] = random.choice((b"\xff", b"\0")) * 8
        elif kind == 2:
            changed[place:place] = random.randbytes(random.randint(1, 9))
        elif kind == 3:
            del changed[place : place + random.randint(1, 9)]
        elif random.random() < 0.3:
            del changed[place:]
    return bytes(changed)


def damaged_json(content: bytes, random: randoms.Random) -> bytes:
    """JSON with a few values changed, or as damaged bytes."""
    if random.random() < 0.2:
        return damaged_bytes(content, len(content), random)
    data = json.loads(content)
    for _ in range(random.choice((1, 1, 2, 4))):
        inside: Any = data
        while isinstance(inside, (dict, list)) and inside:
            keys = list(inside) if isinstance(inside, dict) else range(len(inside))
            key = random.choice(keys)
            if random.random() < 0.5 or not isinstance(inside[key], (dict, list)):
                if random.random() < 0.2:
                    del inside[key]
                else:
                    inside[key] = random.choice(VALUES)
                break
            inside = inside[key]
    return json.dumps(data).encode()


def checked(tokenizer: Tokenizer) -> None:
    """Texts are read and written; what a damaged vocabulary makes of them is its own affair."""
    for text in TEXTS:
        tokens = tokenizer.encode(text)
        assert all(0 <= token < len(tokenizer.tokens) for token in tokens)
        assert isinstance(tokenizer.decode(tokens), str)


def used(path: Path, writes: bool) -> None:
    model = svod.llm.load(path, context=40)
    checked(model.tokenizer)
    if writes:
        for text in model.generate("Hello", max_tokens=3):
            assert isinstance(text, str)


def outcome(run: Callable[[], None]) -> str:
    """What became of one file."""
    try:
        run()
    except SvodError as error:
        assert str(error)
        return "refused"
    return "loaded"


def one(seed: int, folder: Path, files: dict[str, bytes]) -> str:
    """Damage one file and use it."""
    random = randoms.Random(seed)
    name = random.choice(sorted(files))
    writes = seed % WRITES == 0
    if name == "model.gguf":
        path = folder / "damaged.gguf"
        path.write_bytes(damaged_bytes(files[name], 20_000, random))
        return outcome(lambda: used(path, writes))
    path = folder / name
    path.write_bytes(damaged_json(files[name], random))
    try:
        if name == "tokenizer.json":
            return outcome(lambda: checked(read_tokenizer_json(path, {})))
        return outcome(lambda: used(folder, writes))
    finally:
        path.write_bytes(files[name])


def run(first: int, last: int) -> tuple[Counter[str], list[str]]:
    """How many were refused and loaded, and what was neither."""
    counts: Counter[str] = Counter()
    problems = []
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        folder_of_the_small_model(folder)
        files = {n: (folder / n).read_bytes() for n in ("config.json", "tokenizer.json")}
        files["model.gguf"] = small_model().read_bytes()
        used(folder, True)
        for seed in shown(range(first, last), "damaged files"):
            try:
                counts[one(seed, folder, files)] += 1
            except Exception as error:  # whatever is no error of ours is a finding
                problems.append(f"seed {seed}: {type(error).__name__}: {error!s:.200}")
    return counts, problems


def main(arguments: list[str]) -> int:
    counts, problems = run(int(arguments[0]), int(arguments[1]))
    print("\n".join([*problems, f"{counts['refused']} refused, {counts['loaded']} loaded"]))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
