"""Convolutions on a GPU, beside torch: ``python bench/gpu.py conv``."""

from __future__ import annotations

from functools import partial

from gpu_harness import Bench, as_graph, rate

import svod

# images, channels, outputs, side, window, stride
CONVOLUTIONS = (
    (32, 64, 64, 56, 3, 1), (32, 128, 128, 28, 3, 1), (32, 256, 256, 14, 3, 1),
    (32, 512, 512, 7, 3, 1), (32, 64, 128, 56, 3, 2), (32, 256, 256, 56, 3, 1),
    (8, 512, 512, 64, 3, 1),
)  # fmt: skip


def convolution_cases(b: Bench) -> None:
    """Convolutions in bfloat16 and their gradients; torch as a graph, of its fastest algorithms."""
    torch = b.torch
    if torch is None:
        print("conv: needs torch for the values; skipped")
        return
    torch.backends.cudnn.benchmark = True
    run = torch.nn.functional.conv2d
    both = torch.nn.grad
    for images, channels, outputs, side, window, stride in CONVOLUTIONS:
        shape, kernel = (images, channels, side, side), (outputs, channels, window, window)
        options = {"stride": stride, "padding": window // 2}
        x, w = (torch.randn(*s, device="cuda").bfloat16() for s in (shape, kernel))
        exact = run(x.double(), w.double(), **options)
        flops = 2.0 * exact.numel() * channels * window * window
        name = f"{images}x{channels}x{side} to {outputs}{f'/{stride}' if stride > 1 else ''}"
        last = [t.permute(0, 2, 3, 1).contiguous() for t in (x, w)]
        ours = [svod.from_dlpack(t) for t in (x, w)]
        turned = [svod.from_dlpack(t).permute(0, 3, 1, 2) for t in last]
        seen = [t.permute(0, 3, 1, 2) for t in last]
        b.case(
            f"conv {name}", ours[0].conv2d(ours[1], **options),
            lambda f, t=exact: (f, t.cpu().numpy()),
            as_graph(torch, partial(run, **options), x, w), None, 0.0, note=rate(flops),
        )  # fmt: skip
        b.case(
            "  channels last", turned[0].conv2d(turned[1], **options).permute(0, 2, 3, 1),
            lambda f, t=exact: (f, t.permute(0, 2, 3, 1).cpu().numpy()),
            as_graph(torch, partial(run, **options), *seen), None, 0.0, note=rate(flops),
        )  # fmt: skip
        g = torch.randn_like(exact).bfloat16()
        given = [t.detach().requires_grad_() for t in ours]
        given[0].conv2d(given[1], **options).backward(svod.from_dlpack(g))
        rules = (
            ("  gradient of the image", both.conv2d_input, (shape, w, g)),
            ("  gradient of the weight", both.conv2d_weight, (x, kernel, g)),
        )
        for (title, rule, arguments), t in zip(rules, given, strict=True):
            wide = [a.double() if hasattr(a, "double") else a for a in arguments]
            wanted = rule(*wide, **options)
            b.case(
                title, t.grad, lambda f, t=wanted: (f, t.cpu().numpy()),
                as_graph(torch, partial(rule, **options), *arguments), None, 0.0, note=rate(flops),
            )  # fmt: skip
