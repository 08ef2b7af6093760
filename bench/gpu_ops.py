"""What a user meets beyond the bars: functions of torch's names, each beside torch, eagerly.

``python bench/gpu.py ops``. An expression is computed with either library over the same memory. All
results are prepared, the first is compared with torch's. The last line names what is slower.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from gpu_harness import Bench

import svod

SLOW = 0.7

# lib is svod or torch, F its nn.functional, other names are tensors of `inputs`
EXPRESSIONS = """
x.cumsum(1); x.cumsum(0); x.cumprod(1); x.logcumsumexp(1); x.cummax(1); line.cumsum(0)
x.sort(1); x.sort(0); x.argsort(1); short.sort(); line.sort(); few.sort()
x.topk(10); logits.topk(50); x.median(1); x.kthvalue(5, 1)
x.argmax(1); x.argmax(0); x.amax(0); x.var(1); x.var(0); x.prod(1); line.std(); line.norm(); line.argmax()
logits.argmax(1); logits.softmax(1); logits.logsumexp(1); x.log_softmax(1); x.log_softmax(0)
x.T.contiguous() + 0; x.flip((0, 1)); x.roll((5, 7), (0, 1)); lib.cat([x, y], 1); lib.stack([x, y], -1)
x.tril(); lib.where(x > 0, x, y); lib.bucketize(line, edges); lib.fft.rfft(signal).real
x.index_select(0, rows); x.index_select(1, rows); x.gather(0, places); x.gather(1, places)
F.embedding(targets, table)
x.scatter_add(0, places, y); x.scatter_add(1, places, y); x.index_add(0, rows, y); x.index_add(1, rows, y)
zeros.scatter_add(0, few, short); blank.scatter_add(0, many, short)
lib.bincount(few, minlength=1000); lib.histc(short, 100, -3, 3); lib.nonzero_static(short > 0, size=1 << 19)
lib.rand(1 << 24, device=device); lib.randn(1 << 24, device=device)
F.max_pool2d(image, 3, 2, 1); F.avg_pool2d(image, 2); F.adaptive_avg_pool2d(image, 1); F.unfold(image, 3, padding=1)
F.interpolate(image, None, 2, "bilinear"); F.interpolate(image, None, 2, "nearest"); F.pixel_shuffle(image, 2)
F.pad(image, (1, 1, 1, 1), "reflect"); F.group_norm(image, 8); F.instance_norm(image)
F.batch_norm(image, mean, variance); F.batch_norm(image, None, None, None, None, True)
F.conv2d(rgb, w7, None, 2, 3); F.conv2d(image16, w1); F.conv2d(image, w3, None, 1, 1)
F.conv2d(image, deep, None, 1, 1, 1, 64); F.conv_transpose2d(image16, w4, None, 2, 1)
F.cross_entropy(words, targets); grad(F.cross_entropy, words, targets)
grad(lambda t: F.embedding(targets, t) * lines, table)
F.rms_norm(wide, (4096,), scale); F.layer_norm(wide, (4096,), scale, scale)
grad(lambda a: F.rms_norm(a, (4096,), scale) * wide, wide); grad(lambda a: F.layer_norm(a, (4096,), scale) * wide, wide)
grad(lambda a: F.batch_norm(a, None, None, None, None, True) * image, image)
grad(lambda a: F.max_pool2d(a, 3, 2, 1), image)
grad(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True) * heads, heads, keys, keys)
F.scaled_dot_product_attention(query, cache, cache); F.scaled_dot_product_attention(wider, wider, wider)
lib.linalg.inv(small); lib.linalg.solve(middle, middle); lib.linalg.cholesky(middle @ middle.T)
F.linear(r1, flat); F.linear(r4, flat); F.linear(r8, flat); F.linear(r16, flat); F.linear(r32, flat); F.linear(r64, flat)
F.linear(d1, deeper); F.linear(d8, deeper); F.linear(d16, deeper); F.linear(d32, deeper); F.linear(d64, deeper)
x[:512, :512] @ y[:512, :512]; x[:1024, :1024] @ y[:1024, :1024]; x[:2048, :2048] @ y[:2048, :2048].T
"""  # noqa: E501


def inputs(torch: Any) -> dict[str, Any]:
    """Tensors by name."""
    torch.manual_seed(3)

    def draw(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda")

    def whole(limit: int, *shape: int) -> Any:
        return torch.randint(0, limit, shape, device="cuda")

    flat, deeper = draw(4096, 4096), draw(4096, 14336)
    narrow = {
        "image16": draw(32, 64, 112, 112), "rgb": draw(32, 3, 224, 224), "w7": draw(64, 3, 7, 7),
        "w1": draw(128, 64, 1, 1), "w4": draw(64, 64, 4, 4), "table": draw(32000, 4096),
        "wide": draw(16384, 4096), "lines": draw(8192, 4096), "scale": draw(4096),
        "heads": draw(4, 16, 2048, 128), "keys": draw(4, 16, 2048, 128),
        "query": draw(32, 32, 1, 128), "cache": draw(32, 32, 4096, 128), "flat": flat,
        "deeper": deeper, **{f"r{n}": draw(n, 4096) for n in (1, 4, 8, 16, 32, 64)},
        **{f"d{n}": draw(n, 14336) for n in (1, 8, 16, 32, 64)},
    }  # fmt: skip
    return {
        "x": draw(4096, 4096), "y": draw(4096, 4096), "line": draw(1 << 24), "short": draw(1 << 20),
        "logits": draw(32, 128256), "words": draw(8192, 32000), "targets": whole(32000, 8192),
        "rows": whole(4096, 4096), "places": whole(4096, 4096, 4096), "few": whole(1000, 1 << 20),
        "many": whole(1 << 20, 1 << 20), "zeros": torch.zeros(1000, device="cuda"),
        "blank": torch.zeros(1 << 20, device="cuda"), "edges": torch.linspace(-3, 3, 1001).cuda(),
        "image": draw(32, 64, 112, 112), "w3": draw(64, 64, 3, 3), "deep": draw(64, 1, 3, 3),
        "mean": draw(64), "variance": draw(64).abs() + 0.5, "signal": draw(256, 4096),
        "wider": draw(4, 16, 1024, 64), "small": draw(256, 32, 32) + 9 * torch.eye(32).cuda(),
        "middle": draw(512, 512) + 30 * torch.eye(512).cuda(),
        **{name: t.bfloat16() for name, t in narrow.items()},
    }  # fmt: skip


def namespace(lib: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    """What an expression may name."""

    def grad(function: Callable[..., Any], *arguments: Any) -> Any:
        given = [a.detach().requires_grad_() if a.is_floating_point() else a for a in arguments]
        return lib.autograd.grad(function(*given).sum(), [a for a in given if a.requires_grad])

    device = "CUDA" if lib is svod else "cuda"
    return {"lib": lib, "F": lib.nn.functional, "grad": grad, "device": device, **tensors}


def ops_cases(b: Bench) -> None:
    """Every expression of the list."""
    torch = b.torch
    if torch is None:
        print("ops: needs torch for the values; skipped")
        return
    tensors = inputs(torch)
    ours = namespace(svod, {name: svod.from_dlpack(t) for name, t in tensors.items()})
    theirs = namespace(torch, tensors)
    first = len(b.results)
    for text in EXPRESSIONS.replace("\n", ";").split(";"):
        name = text.strip()
        if not name:
            continue
        code = compile(name, "expression", "eval")
        found, wanted = eval(code, ours), eval(code, theirs)
        results = [found] if hasattr(found, "dtype") else list(found)
        exact = wanted if hasattr(wanted, "dtype") else wanted[0]
        exact = exact.detach().double().cpu().numpy()

        def check(f: Any, exact: Any = exact, is_random: bool = ".rand" in name) -> Any:
            return (np.zeros(1), np.zeros(1)) if is_random else (f, exact)

        peer = partial(eval, code, theirs)
        b.case(name[:60], results, check, peer, None, 0.0, repeat=5)
    slow = [r for r in b.results[first:] if r.ratio is not None and r.ratio < SLOW]
    print("slower than torch: " + ", ".join(f"{r.name} {r.ratio:.2f}" for r in slow))
