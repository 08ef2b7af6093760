"""Llama-shaped layers on a GPU, beside torch: ``python bench/gpu.py llama``."""

from __future__ import annotations

from functools import partial
from typing import Any

from gpu_harness import Bench, as_graph, bandwidth, rate, torch_ms

import svod
from svod import Tensor

LAYERS, WIDTH, HEADS, HIDDEN, CACHED = 8, 4096, 32, 11008, 512
PARTS = ("q", "k", "v", "o", "gate", "up", "down")


def attention(q: Any, k: Any, v: Any, mask: Any, softmax: Any) -> Any:
    scores = (q @ k.permute(0, 2, 1)).float() * q.shape[-1] ** -0.5
    return softmax(scores if mask is None else scores + mask).to(q.dtype) @ v


def llama(x: Any, weights: list[dict[str, Any]], attend: Any, silu: Any, cat: Any) -> Any:
    """Layers over x[T, WIDTH]; with a cache the one token attends to what was there before."""
    tokens, size = x.shape[0], WIDTH // HEADS

    def norm(h: Any, scale: Any) -> Any:
        wide = h.float()
        return ((wide * (wide * wide).mean(-1, keepdim=True).add(1e-5).rsqrt()).to(h.dtype)) * scale

    for w in weights:
        h = norm(x, w["norm1"])
        q, k, v = ((h @ w[name].T).reshape(tokens, HEADS, size).permute(1, 0, 2) for name in "qkv")
        if tokens == 1:
            k, v = cat([w["keys"], k], 1), cat([w["values"], v], 1)
        mixed = attend(q, k, v, w["mask"] if tokens > 1 else None)
        x = x + mixed.permute(1, 0, 2).reshape(tokens, WIDTH) @ w["o"].T
        h = norm(x, w["norm2"])
        x = x + (silu(h @ w["gate"].T) * (h @ w["up"].T)) @ w["down"].T
    return x


def llama_case(b: Bench) -> None:
    """One decode step and a prefill of 512 tokens; needs torch for its values."""
    torch = b.torch
    if torch is None:
        print("llama: needs torch for the values; skipped")
        return
    torch.manual_seed(5)
    size = WIDTH // HEADS

    def draw(*shape: int, scale: float = 1.0) -> Any:
        return (torch.randn(*shape, device="cuda") * scale).to(torch.bfloat16)

    def ours(t: Any) -> Tensor:
        import ml_dtypes

        if t.dtype == torch.float32:
            return Tensor(t.cpu().numpy(), device="CUDA").realize()
        return Tensor(
            t.cpu().view(torch.int16).numpy().view(ml_dtypes.bfloat16), device="CUDA"
        ).realize()

    mask = torch.full((512, 512), -1e30, device="cuda").triu(1)
    theirs = []
    for _ in range(LAYERS):
        w = {name: draw(WIDTH, WIDTH, scale=WIDTH**-0.5) for name in "qkvo"}
        w |= {name: draw(HIDDEN, WIDTH, scale=WIDTH**-0.5) for name in ("gate", "up")}
        w["down"] = draw(WIDTH, HIDDEN, scale=HIDDEN**-0.5)
        w |= {name: draw(WIDTH) * 0.1 + 1 for name in ("norm1", "norm2")}
        w |= {name: draw(HEADS, CACHED, size) for name in ("keys", "values")}
        theirs.append(w | {"mask": mask})
    mine = [{name: ours(t) for name, t in w.items()} for w in theirs]

    def written_out(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return attention(q, k, v, mask, lambda t: torch.softmax(t, -1))

    def fused(q: Any, k: Any, v: Any, mask: Any) -> Any:
        causal = mask is not None
        whole = torch.nn.functional.scaled_dot_product_attention(
            q[None], k[None], v[None], is_causal=causal
        )
        return whole[0]

    def torch_model(x: Any, weights: Any, attend: Any = written_out) -> Any:
        return llama(x, weights, attend, torch.nn.functional.silu, torch.cat)

    for name, tokens, bar, page in (("decode", 1, 0.95, 1.176), ("prefill", 512, 0.6, None)):
        x = draw(tokens, WIDTH)
        exact = x.double()
        for w in theirs:
            exact = torch_model(exact, [{n: t.double() for n, t in w.items()}])
        result = llama(
            ours(x), mine, partial(attention, softmax=lambda t: t.softmax(-1)),
            lambda t: t.silu(), lambda parts, axis: svod.cat(parts, dim=axis),
        )  # fmt: skip
        models = [lambda x, w: torch_model(x, w), lambda x, w: torch_model(x, w, fused)]
        eager = min([as_graph(torch, m, x, theirs) for m in models], key=lambda f: torch_ms(f, 3))
        compiled = None
        if b.use_compile:
            graphs = [as_graph(torch, torch.compile(m), x, theirs) for m in models]
            compiled = partial(min(graphs, key=lambda f: torch_ms(f, 3)))
        flops = 2.0 * tokens * LAYERS * (4 * WIDTH * WIDTH + 3 * WIDTH * HIDDEN)
        b.case(
            f"llama {name}", result, lambda f, t=exact: (f, t.cpu().numpy()), eager,
            page, bar, repeat=3, compiled=compiled,
            note=bandwidth(flops) if tokens == 1 else rate(flops),
        )  # fmt: skip
