"""Tokenizers give the tokens that the `tokenizers` and `sentencepiece` packages give."""

from __future__ import annotations

import io
import json
import random
import unicodedata
from pathlib import Path
from typing import Any

import pytest

from svod.llm.tokenizer import read_tokenizer_json, tokenizer_of
from svod.llm.tokenizer.patterns import PRE_TOKENIZERS

pytestmark = pytest.mark.long
COUNT = 1500
OLD = unicodedata.ucd_3_2_0  # packages disagree about characters that came later
SAMPLES = (
    "The quick brown fox, isn't it? I'LL say 12345 in 2024.\n\n  def f(x):\n\treturn x+1\r\n",
    "Ein schönes Übergrößenmaß ß äöü. Любовь и мир 123. 你好,世界!こんにちは世界。 안녕하세요 세계",
    "مرحبا بالعالم ١٢٣ שלום עולם हिन्दी में लिखना ไทยภาษา é e\u0301 ﬁ ½ ² Ⅷ  \u00a0\u2003x\u3000",
    "😀👩‍👩‍👧‍👦🇩🇪 ✨ ™ — – … “quotes” $100 €20 a_b-c/d\\e CamelCase HTTPServer <|x|> </s>",
)  # fmt: skip
ALPHABETS = [(0x20, 0x7E), (0xA0, 0x24F), (0x370, 0x52F), (0x590, 0x6FF), (0x900, 0x97F),
             (0xE00, 0xE5B), (0x3040, 0x30FF), (0x4E00, 0x9FA5), (0xAC00, 0xD7A3),
             (0x1F300, 0x1F64F), (0x2000, 0x206F)]  # fmt: skip


def texts(count: int = COUNT, seed: int = 11) -> list[str]:
    source = random.Random(seed)
    words = [w for s in SAMPLES for w in s.split(" ")]
    found = list(SAMPLES)
    while len(found) < count:
        parts = []
        for _ in range(source.randint(1, 12)):
            if source.random() < 0.5:
                parts.append(source.choice(words))
            else:
                first, last = source.choice(ALPHABETS)
                run = [chr(source.randint(first, last)) for _ in range(source.randint(1, 6))]
                parts.append("".join(c for c in run if OLD.category(c) != "Cn"))
        found.append("".join(p + source.choice([" ", "", "  ", "\n", "\t"]) for p in parts))
    return found


@pytest.fixture(scope="module")
def tokenizers() -> Any:
    return pytest.importorskip("tokenizers", reason="the other implementation")


def compare(made: Any, path: Path) -> None:
    made.save(str(path))
    ours = read_tokenizer_json(path)
    for text in texts():
        expected = made.encode(text, add_special_tokens=False).ids
        assert ours.encode(text, control=True, special=False) == expected, repr(text)


@pytest.mark.parametrize("name", sorted(set(PRE_TOKENIZERS) - {"default"}))
def test_byte_level_bpe_cuts_and_merges_alike(name: str, tokenizers: Any, tmp_path: Path) -> None:
    from tokenizers import models, pre_tokenizers, trainers

    made = tokenizers.Tokenizer(models.BPE())
    splits = [pre_tokenizers.Split(tokenizers.Regex(p), "isolated") for p in PRE_TOKENIZERS[name]]
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=600, initial_alphabet=alphabet, special_tokens=["<|x|>"], show_progress=False
    )
    made.train_from_iterator(list(SAMPLES) * 3, trainer)
    compare(made, tmp_path / "tokenizer.json")
    data = json.loads((tmp_path / "tokenizer.json").read_text())
    vocabulary = data["model"]["vocab"]
    ours = tokenizer_of(
        {
            "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": name,
            "tokenizer.ggml.tokens": sorted(vocabulary, key=lambda t: vocabulary[t]),
            "tokenizer.ggml.merges": [" ".join(m) for m in data["model"]["merges"]],
        }
    )  # fmt: skip
    made = tokenizers.Tokenizer.from_str(json.dumps({**data, "added_tokens": []}))
    for text in texts(500):
        tokens = ours.encode(text)
        assert tokens == made.encode(text).ids, repr(text)
        assert ours.decode(tokens) == text


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_pieces_are_those_of_sentencepiece(kind: str, tmp_path: Path) -> None:
    package = pytest.importorskip("sentencepiece", reason="the other implementation")
    model = io.BytesIO()
    package.SentencePieceTrainer.train(
        sentence_iterator=iter(list(SAMPLES) * 4), model_writer=model,
        model_type=kind, vocab_size=520, byte_fallback=True, character_coverage=0.98,
        normalization_rule_name="identity", remove_extra_whitespaces=False,
        minloglevel=2, hard_vocab_limit=False,
    )  # fmt: skip
    theirs = package.SentencePieceProcessor(model_proto=model.getvalue())
    count = theirs.get_piece_size()
    types = [
        2 if theirs.is_unknown(n) else 3 if theirs.is_control(n) else 6 if theirs.is_byte(n) else 1
        for n in range(count)
    ]
    ours = tokenizer_of(
        {
            "tokenizer.ggml.model": "llama" if kind == "bpe" else "t5",
            "tokenizer.ggml.tokens": [theirs.id_to_piece(n) for n in range(count)],
            "tokenizer.ggml.scores": [theirs.get_score(n) for n in range(count)],
            "tokenizer.ggml.token_type": types, "tokenizer.ggml.unknown_token_id": 0,
        }
    )  # fmt: skip
    for text in texts():
        text = text.replace("\u2581", "")
        expected = theirs.encode(text)
        assert ours.encode(text, special=False) == expected, repr(text)


def test_unigram_and_metaspace_are_those_of_the_package(tokenizers: Any, tmp_path: Path) -> None:
    from tokenizers import models, pre_tokenizers, trainers

    made = tokenizers.Tokenizer(models.Unigram())
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
    )
    made.train_from_iterator(list(SAMPLES) * 4, trainer)
    compare(made, tmp_path / "tokenizer.json")


def test_word_pieces_are_those_of_the_package(tokenizers: Any, tmp_path: Path) -> None:
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    made = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=["[UNK]", "[CLS]"], show_progress=False
    )
    made.train_from_iterator(list(SAMPLES) * 4, trainer)
    compare(made, tmp_path / "tokenizer.json")


def test_merges_of_llama_in_json_are_those_of_the_package(tokenizers: Any, tmp_path: Path) -> None:
    from tokenizers import models, normalizers, trainers

    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    special = ["<unk>", "</s>", *[f"<0x{n:02X}>" for n in range(256)]]
    trainer = trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False)
    made.train_from_iterator([w for t in texts(400) for w in t.split(" ")], trainer)
    data = json.loads(made.to_str())
    data["added_tokens"] = data["added_tokens"][:2]
    compare(tokenizers.Tokenizer.from_str(json.dumps(data)), tmp_path / "tokenizer.json")
