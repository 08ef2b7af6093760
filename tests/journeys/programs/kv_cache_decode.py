"""Decoding with a cache that is written in place: rotary positions, grouped heads."""

from __future__ import annotations


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    words, width, heads, groups, longest = 11, 16, 4, 2, 12
    size = width // heads

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(words, width)
            self.q = nn.Linear(width, width, bias=False)
            self.kv = nn.Linear(width, 2 * groups * size, bias=False)
            self.out = nn.Linear(width, width, bias=False)
            self.norm = nn.RMSNorm(width)
            rates = 1.0 / 100 ** (torch.arange(0, size, 2).float() / size)
            angles = torch.outer(torch.arange(longest).float(), rates)
            self.register_buffer("cos", angles.cos())
            self.register_buffer("sin", angles.sin())
            self.register_buffer("k", torch.zeros(1, groups, longest, size), persistent=False)
            self.register_buffer("v", torch.zeros(1, groups, longest, size), persistent=False)

        def rotate(self, x, start):
            a, b = x[..., ::2], x[..., 1::2]
            cos = self.cos[start : start + x.shape[2]]
            sin = self.sin[start : start + x.shape[2]]
            return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)

        def forward(self, ids, start):
            b, t = ids.shape
            x = self.embed(ids)
            h = self.norm(x)
            q = self.rotate(self.q(h).view(b, t, heads, size).transpose(1, 2), start)
            k, v = self.kv(h).view(b, t, 2 * groups, size).transpose(1, 2).chunk(2, dim=1)
            self.k[:, :, start : start + t] = self.rotate(k, start)
            self.v[:, :, start : start + t] = v
            keys = self.k[:, :, : start + t].repeat_interleave(heads // groups, dim=1)
            values = self.v[:, :, : start + t].repeat_interleave(heads // groups, dim=1)
            mask = None
            if t > 1:
                mask = torch.ones(t, start + t, dtype=torch.bool, device=ids.device)
                mask = mask.tril(diagonal=start)
            y = F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, width))
            return x @ self.embed.weight.T

    model = env.settle(Decoder()).eval()
    prompt = env.integers(0, words, (1, 5))
    decode = env.compile(lambda ids, start: model(ids, start))
    with torch.no_grad():
        whole = decode(prompt, 0)
        ids, made = prompt, []
        logits = whole
        for i in range(env.steps(6)):
            last = logits[:, -1:].argmax(-1)
            made.append(last.item())
            ids = torch.cat([ids, last], 1)
            logits = decode(last, 5 + i)
        again = model(ids, 0)
    assert torch.allclose(again[:, -1], logits[:, -1], atol=1e-4)
    return {"whole": whole, "made": made, "last": logits, "keys": model.k.abs().sum((0, 1, 3))}
