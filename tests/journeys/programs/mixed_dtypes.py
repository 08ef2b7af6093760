"""Dtypes of every kind in one program: masks, bytes, halves, doubles, counts, promotions."""

from __future__ import annotations

import numpy as np


def journey(env):
    torch, F = env.torch, env.F
    image = torch.from_numpy(env.random.integers(0, 256, (6, 6, 3)).astype(np.uint8))
    image = image.to(env.device)
    assert image.dtype == torch.uint8
    scaled = image.float() / 255
    grey = (scaled * torch.tensor([0.299, 0.587, 0.114], device=env.device)).sum(-1)
    mask = grey > grey.mean()
    bright = image[mask].to(torch.float64).mean(0)

    def pack(image):
        packed = (image[..., 0].to(torch.int32) << 16) | (image[..., 1].to(torch.int32) << 8)
        packed = packed | image[..., 2]
        return packed, torch.stack([(packed >> s) & 255 for s in (16, 8, 0)], -1).to(torch.uint8)

    packed, back = env.compile(pack)(image)
    assert (back == image).all()
    half = scaled.to(torch.bfloat16)
    product = (half.reshape(36, 3) @ half.reshape(36, 3).T).float()
    low = scaled.half() * 3
    sums = [low.sum().item(), half.mean(dtype=torch.float32).item()]
    counts = torch.histc(grey, bins=4, min=0, max=1)
    whole = (grey * 10).round().to(torch.int64)
    found = {
        "grey": grey,
        "bright": bright,
        "packed": packed.sum(),
        "product": product.diagonal().sum() / 3,
        "counts": counts,
        "modulo": (whole % 3).flatten().bincount(minlength=3),
        "floor": torch.div(whole - 5, 3, rounding_mode="floor").sum(),
        "bools": (mask.logical_not() ^ (whole > 4)).sum(),
        "cumulative": whole.flatten().cumsum(0)[-1],
        "double": F.softmax(grey.double(), -1)[0],
    }
    kinds = [
        (torch.ones(2, dtype=torch.int32) + 1.5).dtype,
        (torch.ones(2, dtype=torch.uint8) + torch.ones(2, dtype=torch.int8)).dtype,
        (torch.ones(2, dtype=torch.float16) + torch.ones(2, dtype=torch.float64)).dtype,
        (torch.ones(2, dtype=torch.int64) / 2).dtype,
        torch.ones(2, dtype=torch.bool).sum().dtype,
        (torch.ones(2, dtype=torch.bfloat16) * torch.ones(2, dtype=torch.float32)).dtype,
    ]
    found["kinds"] = " ".join(str(k).removeprefix("torch.") for k in kinds)
    assert abs(sums[0] - 3 * scaled.sum().item()) < 0.5 and sums[1] > 0
    return found
