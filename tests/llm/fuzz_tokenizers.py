"""Random and multilingual texts, ours beside the `tokenizers` and `sentencepiece` packages:
``python -m tests.llm.fuzz_tokenizers 1000000``. Prints every kind of tokenizer with how many texts
were compared, and the first text that differs; the exit status says whether any did."""

from __future__ import annotations

import io
import json
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from svod.base.progress import shown
from svod.llm.tokenizer import Tokenizer, read_tokenizer_json, tokenizer_of
from svod.llm.tokenizer.patterns import PRE_TOKENIZERS
from tests.llm.test_tokenizer_packages import SAMPLES, texts

BATCH = 1000
Encode = Callable[[str], list[int]]


def pairs() -> Iterator[tuple[str, Encode, Encode]]:
    """Each kind of tokenizer: its name, theirs and ours."""
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    corpus = list(SAMPLES) * 4
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    for name in sorted(set(PRE_TOKENIZERS) - {"default"}):
        made = tokenizers.Tokenizer(models.BPE())
        splits = [
            pre_tokenizers.Split(tokenizers.Regex(p), "isolated") for p in PRE_TOKENIZERS[name]
        ]
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        made.pre_tokenizer = pre_tokenizers.Sequence([*splits, level])
        trainer = trainers.BpeTrainer(
            vocab_size=600, initial_alphabet=alphabet, special_tokens=["<|x|>"],
            show_progress=False,
        )  # fmt: skip
        made.train_from_iterator(corpus, trainer)
        yield f"byte-level BPE, {name}", *both(made)
    unigram = tokenizers.Tokenizer(models.Unigram())
    unigram.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=400, unk_token="<unk>", special_tokens=["<unk>"], show_progress=False
    )
    unigram.train_from_iterator(corpus, trainer)
    yield "unigram", *both(unigram)
    pieces = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    pieces.normalizer = normalizers.BertNormalizer()
    pieces.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=500, special_tokens=["[UNK]", "[CLS]"], show_progress=False
    )
    pieces.train_from_iterator(corpus, trainer)
    yield "WordPiece", *both(pieces)
    for kind in ("bpe", "unigram"):
        yield f"SentencePiece, {kind}", *of_sentencepiece(kind)


def both(made: Any) -> tuple[Encode, Encode]:
    """A tokenizer of the package, and ours from the file that it writes."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "tokenizer.json"
        made.save(str(path))
        ours = read_tokenizer_json(path)
    return (
        lambda text: made.encode(text, add_special_tokens=False).ids,
        lambda text: ours.encode(text, control=True, special=False),
    )


def of_sentencepiece(kind: str) -> tuple[Encode, Encode]:
    """The same with a model of sentencepiece."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(list(SAMPLES) * 4), model_writer=model, model_type=kind,
        vocab_size=520, byte_fallback=True, character_coverage=0.98, minloglevel=2,
        normalization_rule_name="identity", remove_extra_whitespaces=False,
        hard_vocab_limit=False,
    )  # fmt: skip
    theirs = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    numbers = range(theirs.get_piece_size())

    def type_of(n: int) -> int:
        if theirs.is_unknown(n):
            return 2
        return 3 if theirs.is_control(n) else 6 if theirs.is_byte(n) else 1

    ours: Tokenizer = tokenizer_of({
        "tokenizer.ggml.model": "llama" if kind == "bpe" else "t5",
        "tokenizer.ggml.tokens": [theirs.id_to_piece(n) for n in numbers],
        "tokenizer.ggml.scores": [theirs.get_score(n) for n in numbers],
        "tokenizer.ggml.token_type": [type_of(n) for n in numbers],
        "tokenizer.ggml.unknown_token_id": 0,
    })  # fmt: skip
    return (
        lambda text: theirs.encode(text.replace("\u2581", "")),
        lambda text: ours.encode(text.replace("\u2581", ""), special=False),
    )


def main(count: int) -> int:
    kinds = list(pairs())
    each, wrong = -(-count // len(kinds)), 0
    for number, (name, theirs, ours) in enumerate(kinds):
        compared, found = 0, None
        for batch in shown(range(-(-each // BATCH)), name):
            for text in texts(BATCH, seed=number * 1_000_003 + batch):
                compared += 1
                if found is None and theirs(text) != ours(text):
                    found = text
        wrong += found is not None
        print(f"{name}: {compared} texts" + ("" if found is None else f", {json.dumps(found)}"))
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 10_000))
