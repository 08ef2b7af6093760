"""A small GPT: tied embeddings, causal attention, AdamW with decay, then greedy sampling."""

from __future__ import annotations

import math


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    vocabulary, width, heads, length = 17, 16, 4, 12

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.ln1 = nn.LayerNorm(width)
            self.attention = nn.Linear(width, 3 * width)
            self.project = nn.Linear(width, width)
            self.ln2 = nn.LayerNorm(width)
            self.up = nn.Linear(width, 4 * width)
            self.down = nn.Linear(4 * width, width)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = self.attention(self.ln1(x)).split(width, dim=2)
            q, k, v = (y.view(b, t, heads, c // heads).transpose(1, 2) for y in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.project(y.transpose(1, 2).contiguous().view(b, t, c))
            return x + self.down(F.gelu(self.up(self.ln2(x))))

    class GPT(nn.Module):
        def __init__(self):
            super().__init__()
            self.tokens = nn.Embedding(vocabulary, width)
            self.positions = nn.Embedding(length, width)
            self.blocks = nn.ModuleList([Block() for _ in range(2)])
            self.norm = nn.LayerNorm(width)
            self.head = nn.Linear(width, vocabulary, bias=False)
            self.head.weight = self.tokens.weight

        def forward(self, ids, targets=None):
            at = torch.arange(0, ids.shape[1], device=ids.device)
            x = self.tokens(ids) + self.positions(at)
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.norm(x))
            if targets is None:
                return logits, None
            return logits, F.cross_entropy(logits.view(-1, vocabulary), targets.view(-1))

    model = env.settle(GPT())
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = env.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
        lr=1e-2,
        betas=(0.9, 0.95),
    )
    data = env.integers(0, vocabulary, (200,))

    def step(x, y):
        optimizer.zero_grad(set_to_none=True)
        _, loss = model(x, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss.detach()

    step = env.compile(step)
    losses = []
    for i in range(env.steps(6)):
        starts = [(7 * i + 31 * j) % 180 for j in range(4)]
        x = torch.stack([data[s : s + length] for s in starts])
        y = torch.stack([data[s + 1 : s + 1 + length] for s in starts])
        rate = 1e-2 * 0.5 * (1 + math.cos(math.pi * i / 6))
        for group in optimizer.param_groups:
            group["lr"] = rate
        losses.append(step(x, y).item())

    model.eval()
    ids = data[:1].unsqueeze(0)
    with torch.no_grad():
        for _ in range(env.steps(6)):
            logits, _ = model(ids)
            ids = torch.cat([ids, logits[:, -1, :].argmax(dim=-1, keepdim=True)], dim=1)
    return {"losses": losses, "generated": ids}
