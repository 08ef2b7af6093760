"""`python -m svod.llm.small.train`: the model that ships, trained from nothing.

Conversations are made up (`talk`), a byte-level tokenizer is learned from them, a small decoder of
the Llama kind is trained on the answers, and a GGUF file is written that any runtime can read.
A seed gives the same text, weights and file on the same machine.
"""

from __future__ import annotations

import argparse
import random as randoms
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

import svod
from svod import Tensor, nn
from svod.base.progress import shown
from svod.llm.config import DecoderConfig
from svod.llm.gguf_write import quantized, write_gguf
from svod.llm.rotary import angle_tables, turned
from svod.llm.small.place import small_model
from svod.llm.small.talk import conversation
from svod.llm.template import ChatTemplate
from svod.llm.tokenizer import Tokenizer
from svod.llm.tokenizer.from_gguf import tokenizer_of
from svod.llm.tokenizer.models import BYTE_TO_CHAR
from svod.llm.tokenizer.patterns import cut, pre_tokenizer
from svod.nn import optim

Array = np.ndarray[Any, Any]
CONTROL = ("<|start|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
TEMPLATE = (
    "{{ bos_token }}{% if tools %}<|system|>Tools: {% for t in tools %}"
    "{{ t.function.name }}({{ t.function.parameters.properties | join(', ') }})"
    "{% if not loop.last %}; {% endif %}{% endfor %}<|end|>{% endif %}"
    "{% for m in messages %}<|{{ 'system' if m.role == 'developer' else m.role }}|>"
    "{{ m.content or '' }}{% for c in m.tool_calls or [] %}<tool_call>{\"name\": "
    '{{ c.function.name | tojson }}, "arguments": {{ c.function.arguments if '
    "c.function.arguments is string else c.function.arguments | tojson }}}</tool_call>"
    "{% endfor %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
PATTERN = "qwen2"  # digits one by one
LENGTH, WINDOW = 256, 192
CONFIG = DecoderConfig(
    "llama", width=96, layers=3, heads=6, kv_heads=3, head_size=16, context=2048,
    rotation="pairs", rotated=16, window=WINDOW,
)  # fmt: skip
NETWORK, VOCABULARY = 256, 512


class Layer(nn.Module):
    """Attention over a window of what came before, then a gated network."""

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        width, others = config.width, config.kv_heads * config.head_size
        self.attn_norm, self.ffn_norm = nn.RMSNorm(width, 1e-5), nn.RMSNorm(width, 1e-5)
        self.attn_q, self.attn_output = (nn.Linear(width, width, bias=False) for _ in range(2))
        self.attn_k, self.attn_v = (nn.Linear(width, others, bias=False) for _ in range(2))
        self.ffn_gate, self.ffn_up = (nn.Linear(width, NETWORK, bias=False) for _ in range(2))
        self.ffn_down = nn.Linear(NETWORK, width, bias=False)

    def forward(self, x: Tensor, angles: tuple[Tensor, Tensor], unseen: Tensor) -> Tensor:
        batch, length, width = x.shape
        y = self.attn_norm(x).reshape(batch * length, width)
        q, k, v = (
            f(y).reshape(batch * length, -1, CONFIG.head_size)
            for f in (self.attn_q, self.attn_k, self.attn_v)
        )
        q, k = turned(q, *angles, CONFIG), turned(k, *angles, CONFIG)
        group = CONFIG.heads // CONFIG.kv_heads
        heads = (batch, length, -1, CONFIG.head_size)
        q, k, v = (y.reshape(*heads).transpose(1, 2) for y in (q, k, v))
        k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
        scores = (q @ k.transpose(2, 3)) * CONFIG.head_size**-0.5
        mixed = svod.where(unseen, -1e9, scores).softmax(3) @ v
        x = x + self.attn_output(mixed.transpose(1, 2).reshape(batch, length, width))
        y = self.ffn_norm(x)
        return x + self.ffn_down(self.ffn_gate(y).silu() * self.ffn_up(y))


class Model(nn.Module):
    """Token numbers (batch, length) in, logits of the next ones out."""

    def __init__(self, batch: int) -> None:
        super().__init__()
        self.token_embd = nn.Embedding(VOCABULARY, CONFIG.width)
        self.token_embd.weight.copy_(svod.randn(VOCABULARY, CONFIG.width) * 0.05)
        self.blk = nn.ModuleList([Layer(CONFIG) for _ in range(CONFIG.layers)])
        self.output_norm = nn.RMSNorm(CONFIG.width, 1e-5)
        tables = angle_tables(CONFIG, LENGTH, False, None)
        for part, table in zip(("cosines", "sines"), tables, strict=True):
            value = Tensor(np.tile(table, (batch, 1))[:, None].astype(np.float32))
            self.register_buffer(part, value, persistent=False)
        far = np.arange(LENGTH)[:, None] - np.arange(LENGTH)
        self.register_buffer("unseen", Tensor((far < 0) | (far >= WINDOW)), persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.token_embd(tokens)
        for layer in self.blk:
            x = layer(x, (self.cosines, self.sines), self.unseen)
        return self.output_norm(x) @ self.token_embd.weight.transpose(0, 1)


def learned_merges(texts: list[str], count: int) -> list[tuple[str, str]]:
    """The pairs that byte-level BPE merges, the most frequent first."""
    patterns = pre_tokenizer(PATTERN)
    words = Counter(word for text in texts for word in cut(text, patterns))
    cuts = {word: [BYTE_TO_CHAR[byte] for byte in word.encode()] for word in words}
    merges: list[tuple[str, str]] = []
    while len(merges) < count:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, parts in cuts.items():
            for pair in pairwise(parts):
                pairs[pair] += words[word]
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        for word, parts in cuts.items():
            cuts[word] = _joined(parts, best)
    return merges


def _joined(parts: list[str], pair: tuple[str, str]) -> list[str]:
    found: list[str] = []
    for part in parts:
        if found and (found[-1], part) == pair:
            found[-1] += part
        else:
            found.append(part)
    return found


def tokenizer_keys(seed: int) -> dict[str, Any]:
    """The keys of a GGUF file that describe the learned tokenizer."""
    random = randoms.Random(seed)
    texts = [m["content"] for _ in range(1500) for m in conversation(random, 3)[0]]
    alphabet = [BYTE_TO_CHAR[byte] for byte in range(256)]
    merges = learned_merges(texts, VOCABULARY - len(alphabet) - len(CONTROL))
    tokens = [*CONTROL, *alphabet, *(a + b for a, b in merges)]
    return {
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": PATTERN,
        "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.merges": [f"{a} {b}" for a, b in merges],
        "tokenizer.ggml.token_type": [3] * len(CONTROL) + [1] * (len(tokens) - len(CONTROL)),
        "tokenizer.ggml.bos_token_id": 0, "tokenizer.ggml.eos_token_id": 1,
        "tokenizer.ggml.add_bos_token": False, "tokenizer.chat_template": TEMPLATE,
    }  # fmt: skip


class Samples:
    """Rows of tokens with what follows each of them, -100 where that is not an answer."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self.tokenizer, self.template = tokenizer, ChatTemplate(TEMPLATE, tokenizer)
        self.random = randoms.Random(seed)
        self.answer, self.end = (tokenizer.control[n] for n in ("<|assistant|>", "<|end|>"))

    def batch(self, count: int) -> tuple[Array, Array]:
        rows = np.full((count, LENGTH + 1), self.end, np.int64)
        wanted = np.full((count, LENGTH + 1), -100, np.int64)
        for row in range(count):
            place = 0
            while place < LENGTH:  # one conversation after another, cut where the row ends
                messages, tools = conversation(self.random, self.random.randint(1, 6))
                options = {"add_generation_prompt": False, "tools": tools or None}
                text, mark = self.template.rendered(messages, options)
                tokens = self.tokenizer.encode(text, control=True, mark=mark)
                tokens = tokens[: LENGTH + 1 - place]
                rows[row, place : place + len(tokens)] = tokens
                is_answer = False
                for at, token in enumerate(tokens, place):
                    if is_answer:
                        wanted[row, at] = token
                    is_answer = token == self.answer or (is_answer and token != self.end)
                place += len(tokens)
        return rows[:, :-1], wanted[:, 1:]


def train(steps: int, batch: int, seed: int, tokenizer: Tokenizer) -> tuple[Model, list[float]]:
    """The trained model, and the loss of every step."""
    svod.manual_seed(seed)
    model = Model(batch)
    optimizer = optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.98), weight_decay=0.05)
    schedule = optim.OneCycleLR(optimizer, max_lr=6e-3, total_steps=steps, pct_start=0.1)

    @svod.jit(state=(model, optimizer))
    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).flatten(0, 1).cross_entropy(y.flatten(), ignore_index=-100)
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    samples, losses = Samples(tokenizer, seed), []
    for number in shown(range(steps), "training"):
        x, y = samples.batch(batch)
        losses.append(step(Tensor(x), Tensor(y)).item())
        schedule.step()
        if number % 50 == 0 or number == steps - 1:
            print(f"step {number}: loss {losses[-1]:.3f}", flush=True)
    return model, losses


def write(path: Path, model: Model, keys: dict[str, Any]) -> None:
    """The GGUF file: matrices in Q8_0, norms in float32."""
    tensors: dict[str, Any] = {}
    for name, value in model.named_parameters():
        array = value.numpy()
        tensors[name] = quantized(array, "Q8_0") if array.ndim == 2 else array
    sizes = {
        "context_length": CONFIG.context, "embedding_length": CONFIG.width,
        "block_count": CONFIG.layers, "feed_forward_length": NETWORK,
        "attention.head_count": CONFIG.heads, "attention.head_count_kv": CONFIG.kv_heads,
        "attention.key_length": CONFIG.head_size, "attention.value_length": CONFIG.head_size,
        "attention.sliding_window": WINDOW, "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": CONFIG.rotated, "rope.freq_base": CONFIG.base,
    }  # fmt: skip
    metadata = {
        "general.architecture": "llama", "general.name": "svod-small",
        **{f"llama.{name}": value for name, value in sizes.items()}, **keys,
    }  # fmt: skip
    write_gguf(path, metadata, tensors)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=700)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=small_model())
    options = parser.parse_args(arguments)
    keys = tokenizer_keys(options.seed)
    model, _ = train(options.steps, options.batch, options.seed, tokenizer_of(keys))
    write(options.out, model, keys)
    print(f"{options.out}: {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
