"""Train a small transformer to know a text by heart: ``python examples/train_chars.py``.

It reads pieces of the text and says the next character at every place. The whole step, forward,
backward and AdamW, is one plan. In the end it writes the text from its first characters.
"""

from __future__ import annotations

import numpy as np

import svod
from svod import Tensor, nn
from svod.nn import optim

TEXT = (
    "In the beginning there was a graph of nodes, and the nodes were without memory. "
    "Then a plan went over them, and said which of them shall be stored, and there were kernels. "
    "The kernels were few, for what could be fused was fused; and they ran, and it was good."
)


class Block(nn.Module):
    """Attention over the characters so far, then a small network."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.network = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        seen = self.before(x)
        x = x + self.attention(seen, seen, seen, need_weights=False, attn_mask=mask)[0]
        return x + self.network(self.between(x))


class Transformer(nn.Module):
    """Numbers of characters (batch, length) in, logits of the next ones out."""

    def __init__(self, characters: int, length: int, width: int, heads: int, layers: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, width)
        self.places = nn.Embedding(length, width)
        self.blocks = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, characters)
        later = svod.ones(length, length, dtype=svod.bool).triu(1)
        self.register_buffer("later", later, persistent=False)

    def forward(self, tokens: Tensor) -> Tensor:
        length = tokens.shape[1]
        x = self.characters(tokens) + self.places.weight[:length]
        for block in self.blocks:
            x = block(x, self.later[:length, :length])
        return self.head(self.last(x))


def write(model: Transformer, start: list[int], count: int, length: int) -> list[int]:
    """Go on from some characters, each time with the most likely next one."""

    @svod.jit(state=model)
    def logits(tokens: Tensor) -> Tensor:
        return model(tokens)[0].argmax(-1)

    found = list(start)
    for _ in range(count):
        seen = found[-length:]
        padded = seen + [0] * (length - len(seen))  # what comes later is not looked at
        found.append(int(logits(Tensor([padded])).numpy()[len(seen) - 1]))
    return found


def main(steps: int = 260, length: int = 32, batch: int = 32, width: int = 64) -> tuple[list, str]:
    """Train; returns the loss of every step, and what the model writes in the end."""
    svod.manual_seed(0)
    known = sorted(set(TEXT))
    text = np.array([known.index(c) for c in TEXT])
    model = Transformer(len(known), length, width, heads=4, layers=2)
    optimizer = optim.AdamW(model.parameters(), lr=3e-3)
    schedule = optim.OneCycleLR(optimizer, max_lr=4e-3, total_steps=steps)

    @svod.jit(state=(model, optimizer))
    def train(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = model(x).flatten(0, 1).cross_entropy(y.flatten())
        loss.backward()
        optim.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    random = np.random.default_rng(0)
    losses = []
    for step in range(steps):
        starts = random.integers(0, len(text) - length, batch)[:, None] + np.arange(length)
        losses.append(train(Tensor(text[starts]), Tensor(text[starts + 1])).item())
        schedule.step()
        if step % 25 == 0:
            print(f"step {step}: loss {losses[-1]:.3f}")
    start = text[:length].tolist()
    written = "".join([known[i] for i in write(model, start, len(text) - length, length)])
    print(written)
    return losses, written


if __name__ == "__main__":
    main()
