"""A small GPT writes tokens one by one with a cache of keys and values.

The position is a Variable, so one plan serves every length: nothing is compiled after the first
token. Keys and values are state of the model and stay where they are.
Run it with ``python examples/gpt_decode.py``.
"""

from __future__ import annotations

from time import perf_counter
from typing import Any

import numpy as np

import svod
from svod import Tensor, nn
from svod.device.cpu.compiler import counters


class Block(nn.Module):
    """Attention over everything so far, then a small network."""

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.size = heads, width // heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        shape = (heads, length, self.size)
        self.register_buffer("keys", svod.zeros(shape), persistent=False)
        self.register_buffer("values", svod.zeros(shape), persistent=False)

    def forward(self, x: Tensor, position: Any) -> Tensor:
        """One token at a position; its key and value go into the cache."""
        q, k, v = self.qkv(self.before(x)).reshape(3, self.heads, self.size).unbind(0)
        self.keys[:, position].assign(k).realize()
        self.values[:, position].assign(v).realize()
        keys, values = self.keys[:, : position + 1], self.values[:, : position + 1]
        scores = (keys @ q.unsqueeze(2)).squeeze(2) * self.size**-0.5
        mixed = (scores.softmax(1).unsqueeze(1) @ values).reshape(1, -1)
        x = x + self.out(mixed)
        return x + self.down(self.up(self.between(x)).gelu())


class GPT(nn.Module):
    """Token numbers in, logits of the next token out."""

    def __init__(self, tokens: int, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads, length) for _ in range(layers)])
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)
        self.length = length

    def forward(self, token: Tensor, position: Any) -> Tensor:
        x = self.tokens(token) + self.places.weight[position]
        for block in self.blocks:
            x = block(x, position)
        return self.head(self.last(x))


def full_logits(model: GPT, tokens: list[int]) -> np.ndarray[Any, Any]:
    """The same without a cache: all tokens at once under a causal mask."""
    count = len(tokens)
    x = model.tokens(Tensor(tokens)) + model.places.weight[:count]
    mask = svod.ones(count, count, dtype=svod.bool).tril()
    for block in model.blocks:
        parts = block.qkv(block.before(x)).reshape(count, 3, block.heads, block.size)
        q, k, v = parts.permute(1, 2, 0, 3).unbind(0)
        scores = (q @ k.transpose(1, 2) * block.size**-0.5).masked_fill(~mask, -1e9)
        mixed = (scores.softmax(2) @ v).transpose(0, 1).reshape(count, -1)
        x = x + block.out(mixed)
        x = x + block.down(block.up(block.between(x)).gelu())
    return model.head(model.last(x)).numpy()


def main(
    count: int = 48, tokens: int = 64, width: int = 64, heads: int = 4, layers: int = 3
) -> dict[str, Any]:
    """Write tokens; returns them, the last logits and what was compiled after the first one."""
    svod.manual_seed(0)
    model = GPT(tokens, width, heads, layers, count)
    place = svod.Variable("place", 0, count - 1)

    @svod.jit(state=model)
    def step(token: Tensor, position: Any) -> tuple[Tensor, Tensor]:
        logits = model(token, position)
        return logits.argmax(1), logits

    token = Tensor([1])
    written = [token]
    token, logits = step(token, place.bind(0))
    compiled = dict(counters)
    start = perf_counter()
    for position in range(1, count):
        written.append(token)
        token, logits = step(token, place.bind(position))
    found = [int(t.item()) for t in written]
    seconds = (perf_counter() - start) / (count - 1)
    later = sum(counters.values()) - sum(compiled.values())
    print(f"{found}\n{1e6 * seconds:.0f} us per token, {step.plans} plan, {later} compiled later")
    return {
        "tokens": found, "logits": logits.numpy(), "compiled": later, "plans": step.plans,
        "expected": full_logits(model, found)[-1:],
    }  # fmt: skip


if __name__ == "__main__":
    main()
