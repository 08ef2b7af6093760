"""Cross attention written out: masks of several kinds, weights returned, heads of one module."""

from __future__ import annotations

import math


def journey(env):
    torch, nn, F = env.torch, env.nn, env.F
    width, heads = 12, 3
    attention = env.settle(nn.MultiheadAttention(width, heads, batch_first=True))
    query, memory = env.tensor(2, 5, width), env.tensor(2, 7, width)
    pad = torch.zeros(2, 7, dtype=torch.bool, device=env.device)
    pad[0, 5:] = True
    out, weights = attention(query, memory, memory, key_padding_mask=pad)
    assert weights[0, :, 5:].abs().max().item() == 0
    assert torch.allclose(weights.sum(-1), torch.ones(2, 5, device=env.device))

    def by_hand(q, k, v, bias):
        score = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1]) + bias
        return torch.softmax(score, dim=-1) @ v

    by_hand = env.compile(by_hand)
    q, k, v = (env.tensor(2, heads, n, 4) for n in (5, 7, 7))
    distance = (
        torch.arange(7, device=env.device)[None] - torch.arange(5, device=env.device)[:, None]
    )
    slopes = 2.0 ** -torch.arange(1, heads + 1, device=env.device)
    alibi = -distance.abs() * slopes[:, None, None]
    window = (distance.abs() > 3) & (distance != 0)
    biased = by_hand(q, k, v, alibi)
    windowed = by_hand(q, k, v, torch.zeros(5, 7, device=env.device).masked_fill(window, -1e9))
    fused = F.scaled_dot_product_attention(q, k, v, attn_mask=alibi.expand(2, -1, -1, -1))
    assert torch.allclose(biased, fused, atol=1e-5)
    allowed = F.scaled_dot_product_attention(q, k, v, attn_mask=~window)
    assert torch.allclose(windowed, allowed, atol=1e-5)

    x = env.tensor(2, 6, width).requires_grad_()
    causal = torch.full((6, 6), float("-inf"), device=env.device).triu(1)
    y, _ = attention(x, x, x, attn_mask=causal, need_weights=False)
    y[:, 2].sum().backward()
    assert x.grad[:, 3:].abs().max().item() == 0
    entropy = -(weights * (weights + 1e-9).log()).sum(-1)
    return {
        "out": out,
        "entropy": entropy,
        "biased": biased.mean((1, 3)),
        "windowed": windowed.mean((1, 3)),
        "gradient": x.grad.norm(),
        "projection": attention.in_proj_weight.grad.abs().sum(),
    }
